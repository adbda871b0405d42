#pragma once

// Certificates made on the spot, for tests of TLS.

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <string>

namespace spate::agent {

struct Issued {
  X509* certificate = nullptr;
  EVP_PKEY* key = nullptr;
};

// A certificate signed by `issuer`, or by itself. `san` is OpenSSL's spelling:
// "IP:127.0.0.1,DNS:x".
inline Issued issue(const char* common_name, const char* san, const Issued* issuer) {
  Issued made{X509_new(), EVP_EC_gen("P-256")};
  X509_set_version(made.certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), issuer == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(made.certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(made.certificate), 3600);
  X509_set_pubkey(made.certificate, made.key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  X509* parent = issuer == nullptr ? made.certificate : issuer->certificate;
  X509_set_issuer_name(made.certificate, X509_get_subject_name(parent));
  X509V3_CTX context;
  X509V3_set_ctx(&context, parent, made.certificate, nullptr, nullptr, 0);
  const auto extend = [&](int nid, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
    X509_add_ext(made.certificate, extension, -1);
    X509_EXTENSION_free(extension);
  };
  if (issuer == nullptr) extend(NID_basic_constraints, "critical,CA:TRUE");
  if (san != nullptr) extend(NID_subject_alt_name, san);
  X509_sign(made.certificate, issuer == nullptr ? made.key : issuer->key, EVP_sha256());
  return made;
}

inline std::string write_pem(const std::string& path, const Issued& issued, bool key) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (key)
    PEM_write_PrivateKey(file, issued.key, nullptr, nullptr, 0, nullptr, nullptr);
  else
    PEM_write_X509(file, issued.certificate);
  std::fclose(file);
  return path;
}

inline void free_issued(const Issued& issued) {
  X509_free(issued.certificate);
  EVP_PKEY_free(issued.key);
}

}  // namespace spate::agent
