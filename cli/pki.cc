#include "cli/pki.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "cli/files.h"
#include "common/endpoint.h"

namespace spate::cli {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;

constexpr long kBackdateSeconds = 300;  // for clocks that are a little behind
constexpr long kDaySeconds = 24 * 60 * 60;

Error openssl_error(const std::string& what) {
  char text[256] = "no reason given";
  if (const unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return {ErrorCode::internal, what + ": " + text};
}

Key new_key() { return Key(EVP_EC_gen("P-256")); }

Certificate new_certificate(EVP_PKEY& key, const std::string& common_name, long days) {
  Certificate certificate(X509_new());
  // 159 random bits: positive, and within the 20 bytes that RFC 5280 allows.
  std::array<unsigned char, 20> serial{};
  if (RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) return nullptr;
  serial[0] &= 0x7f;
  BIGNUM* number = BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr);
  X509* c = certificate.get();
  X509_NAME* name = X509_get_subject_name(c);
  const auto add = [name](const char* field, const std::string& value) {
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(value.data()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  const bool good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(c)) &&
                    X509_set_version(c, 2) == 1 &&
                    X509_gmtime_adj(X509_getm_notBefore(c), -kBackdateSeconds) &&
                    X509_gmtime_adj(X509_getm_notAfter(c), days * kDaySeconds) &&
                    add("O", "spate") && add("CN", common_name) && X509_set_pubkey(c, &key) == 1;
  BN_free(number);
  return good ? std::move(certificate) : nullptr;
}

bool add_extension(X509& certificate, X509& issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool good = extension && X509_add_ext(&certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return good;
}

std::string text_of(BIO& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(&bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

std::string to_pem(X509& certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  return PEM_write_bio_X509(bio.get(), &certificate) == 1 ? text_of(*bio) : "";
}

std::string to_pem(EVP_PKEY& key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  return PEM_write_bio_PKCS8PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr, nullptr) == 1
             ? text_of(*bio)
             : "";
}

Result<Certificate> load_certificate(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  const Bio bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate) return openssl_error(path + " is no certificate in PEM form");
  return certificate;
}

Result<Key> load_key(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  const Bio bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
  // Without this callback OpenSSL would ask on the terminal for the passphrase of a key that has
  // one.
  Key key(PEM_read_bio_PrivateKey(
      bio.get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
  if (!key) return openssl_error(path + " is no private key in PEM form without a passphrase");
  return key;
}

// The key first: a certificate without its key is of no use, and the other way round nothing is
// lost.
Result<KeyPairFiles> write_pair(const std::string& base, EVP_PKEY& key, X509& certificate) {
  const KeyPairFiles files{base + ".crt", base + ".key"};
  for (const auto& path : {files.certificate, files.key})
    if (std::filesystem::exists(path))
      return invalid(path + " exists already and is not overwritten; move it away first");
  const std::string key_text = to_pem(key), certificate_text = to_pem(certificate);
  if (key_text.empty() || certificate_text.empty()) return openssl_error("cannot write a key pair");
  if (auto done = write_file(files.key, key_text, 0600, IfExists::refuse); !done)
    return done.error();
  if (auto done = write_file(files.certificate, certificate_text, 0644, IfExists::refuse); !done) {
    std::error_code ec;
    std::filesystem::remove(files.key, ec);
    return done.error();
  }
  return files;
}

bool is_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), is_allowed);
}

// The subjectAltName in the notation of OpenSSL's configuration. Its commas and colons cannot come
// from outside: every part has been checked.
Result<std::string> alternative_names(const CertificateRequest& request) {
  std::string names =
      "URI:spiffe://spate/" + request.role + "/" + request.name + ",DNS:" + request.role + ".spate";
  for (const auto& host : request.hosts) {
    if (const auto address = IpAddress::parse(host)) {
      names += ",IP:" + address->to_string();
    } else if (is_name(host)) {
      names += ",DNS:" + host;
    } else {
      return invalid("--host " + host + " is neither an IP address nor a host name");
    }
  }
  return names;
}

Result<void> check_request(const CertificateRequest& request) {
  const std::array<std::string, 4> roles{"controller", "agent", "operator", "target"};
  if (std::find(roles.begin(), roles.end(), request.role) == roles.end())
    return invalid("--role " + request.role + " is none of controller, agent, operator, target");
  if (!is_name(request.name))
    return invalid("--name " + request.name +
                   ": letters, digits, '.', '_' and '-', at most 64 of them");
  if (request.days < 1 || request.days > kCaDays)
    return invalid("--days " + std::to_string(request.days) + ": from 1 to " +
                   std::to_string(kCaDays));
  return {};
}

}  // namespace

Result<KeyPairFiles> make_ca(const std::string& directory) {
  const Key key = new_key();
  if (!key) return openssl_error("cannot make a key");
  const Certificate ca = new_certificate(*key, "spate CA", kCaDays);
  if (!ca || X509_set_issuer_name(ca.get(), X509_get_subject_name(ca.get())) != 1 ||
      !add_extension(*ca, *ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(*ca, *ca, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(*ca, *ca, NID_subject_key_identifier, "hash") ||
      X509_sign(ca.get(), key.get(), EVP_sha256()) == 0)
    return openssl_error("cannot make the CA's certificate");
  return write_pair(directory + "/ca", *key, *ca);
}

Result<KeyPairFiles> issue(const std::string& directory, const CertificateRequest& request) {
  if (auto good = check_request(request); !good) return good.error();
  const auto names = alternative_names(request);
  if (!names) return names.error();
  const std::string ca_base = directory + "/ca";
  if (!std::filesystem::exists(ca_base + ".crt") || !std::filesystem::exists(ca_base + ".key"))
    return invalid("there is no CA in " + directory +
                   ": make one first with `spate pki init --dir " + directory + "`");
  const auto ca = load_certificate(ca_base + ".crt");
  if (!ca) return ca.error();
  const auto ca_key = load_key(ca_base + ".key");
  if (!ca_key) return ca_key.error();
  if (X509_check_private_key(ca->get(), ca_key->get()) != 1)
    return openssl_error(ca_base + ".key does not belong to " + ca_base + ".crt");
  int ca_days = 0, ca_seconds = 0;
  ASN1_TIME_diff(&ca_days, &ca_seconds, nullptr, X509_get0_notAfter(ca->get()));
  if (request.days > ca_days)
    return invalid("--days " + std::to_string(request.days) + " is longer than the CA's own " +
                   std::to_string(ca_days));

  const Key key = new_key();
  if (!key) return openssl_error("cannot make a key");
  const Certificate leaf = new_certificate(*key, request.name, request.days);
  if (!leaf || X509_set_issuer_name(leaf.get(), X509_get_subject_name(ca->get())) != 1 ||
      !add_extension(*leaf, **ca, NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(*leaf, **ca, NID_key_usage, "critical,digitalSignature") ||
      !add_extension(*leaf, **ca, NID_ext_key_usage, "serverAuth,clientAuth") ||
      !add_extension(*leaf, **ca, NID_subject_alt_name, *names) ||
      !add_extension(*leaf, **ca, NID_subject_key_identifier, "hash") ||
      !add_extension(*leaf, **ca, NID_authority_key_identifier, "keyid") ||
      X509_sign(leaf.get(), ca_key->get(), EVP_sha256()) == 0)
    return openssl_error("cannot make the certificate");
  return write_pair(directory + "/" + request.role + "-" + request.name, *key, *leaf);
}

Result<CertificateInfo> inspect(const std::string& certificate_file) {
  const auto certificate = load_certificate(certificate_file);
  if (!certificate) return certificate.error();
  CertificateInfo info;
  int days = 0, seconds_left = 0;
  ASN1_TIME_diff(&days, &seconds_left, nullptr, X509_get0_notAfter(certificate->get()));
  info.days_left = days < 0 || seconds_left < 0 ? days - 1 : days;
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate->get(), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* uri = name->d.uniformResourceIdentifier;
    info.identity.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                         static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  GENERAL_NAMES_free(names);
  return info;
}

}  // namespace spate::cli
