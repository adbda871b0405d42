#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "rpc/grpc_settings.h"

// gRPC itself reports bad key material as a failed handshake minutes later, without the file's
// name. So it is checked here, at the start.

namespace spate::rpc {
namespace {

constexpr std::size_t kMaxPemBytes = 1024 * 1024;
constexpr const char* kHelp = "; make one with `spate pki init` and `spate pki issue`";

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>>;

Result<std::string> read_file(const char* what, const std::string& path) {
  std::error_code ignored;
  std::ifstream in;
  if (!std::filesystem::is_directory(path, ignored)) in.open(path, std::ios::binary);
  std::string text;
  if (in.is_open())
    text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  if (text.empty() || text.size() > kMaxPemBytes) {
    return Error{ErrorCode::io, std::string("cannot read the ") + what + " from " + path + kHelp};
  }
  return text;
}

Bio memory(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// An encrypted key would otherwise ask for its password on the terminal.
int no_password(char*, int, int, void*) { return 0; }

Certificate next_certificate(BIO* bio) {
  return Certificate(PEM_read_bio_X509(bio, nullptr, no_password, nullptr));
}

Result<void> check_chain(const TlsFiles& files, const TlsMaterial& material, X509* certificate) {
  const Store store(X509_STORE_new());
  const Bio ca = memory(material.ca);
  int authorities = 0;
  while (const Certificate authority = next_certificate(ca.get())) {
    X509_STORE_add_cert(store.get(), authority.get());
    ++authorities;
  }
  if (authorities == 0) return invalid(files.ca + " has no certificate in PEM form" + kHelp);
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr);
  if (X509_verify_cert(context.get()) == 1) return {};
  return invalid(files.certificate + " is no good certificate of " + files.ca + ": " +
                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())) + kHelp);
}

Result<void> check(const TlsFiles& files, const TlsMaterial& material) {
  const Certificate certificate = next_certificate(memory(material.certificate).get());
  if (!certificate) return invalid(files.certificate + " has no certificate in PEM form" + kHelp);
  const Key key(PEM_read_bio_PrivateKey(memory(material.key).get(), nullptr, no_password, nullptr));
  if (!key) return invalid(files.key + " has no private key in PEM form without password" + kHelp);
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return invalid(files.key + " is not the key of the certificate " + files.certificate);
  }
  return check_chain(files, material, certificate.get());
}

}  // namespace

Result<TlsMaterial> load_tls_files(const TlsFiles& files) {
  if (files.ca.empty() || files.certificate.empty() || files.key.empty()) {
    return invalid("--ca, --cert and --key go together; one or two of them are missing");
  }
  auto ca = read_file("CA certificate", files.ca);
  if (!ca) return ca.error();
  auto certificate = read_file("certificate", files.certificate);
  if (!certificate) return certificate.error();
  auto key = read_file("private key", files.key);
  if (!key) return key.error();
  TlsMaterial material{std::move(*ca), std::move(*certificate), std::move(*key)};
  const auto good = check(files, material);
  ERR_clear_error();  // what was found is in `good`; gRPC must not meet it in the queue
  if (!good) return good.error();
  return material;
}

}  // namespace spate::rpc
