#include "agent/drivers/tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace spate::agent {
namespace {

constexpr unsigned char kAlpnH2[] = {2, 'h', '2'};

bool is_ip_literal(const std::string& host) {
  unsigned char buffer[16];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 ||
         inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

// The oldest error in OpenSSL's queue of this thread, which is emptied.
std::string openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "error " + std::to_string(code);
}

Error cannot_read(const char* what, const std::string& file) {
  return {ErrorCode::io, std::string(what) + " " + file + ": " + openssl_error()};
}

}  // namespace

// ---- the context

TlsContext::TlsContext(ssl_ctx_st* context, std::string ca_file, std::string host)
    : context_(context), ca_file_(std::move(ca_file)), host_(std::move(host)) {}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const TlsFiles& files,
                                                           std::string host) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  CHECK(context != nullptr, "out of memory");
  std::shared_ptr<const TlsContext> result(new TlsContext(context, files.ca, std::move(host)));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // Thousands of mostly idle connections: OpenSSL's 34 KB of record buffers only while they are in
  // use.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(context, kAlpnH2, sizeof kAlpnH2);
  if (SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr) != 1)
    return cannot_read("CA file", files.ca);
  if (files.certificate.empty() && files.key.empty()) return result;
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return cannot_read("certificate file", files.certificate);
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return cannot_read("key file", files.key);
  if (SSL_CTX_check_private_key(context) != 1)
    return invalid("key " + files.key + " does not belong to certificate " + files.certificate);
  return result;
}

// ---- the filter

// What OpenSSL sees as its socket: reads from the bytes of the current receive() call and writes
// straight into the caller's string, so that nothing is buffered per connection.
struct TlsChannelMethod {
  static int read(BIO* bio, char* out, int room) {
    auto& channel = *static_cast<TlsFilter::Channel*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (channel.in.empty()) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const std::size_t size = std::min(channel.in.size(), static_cast<std::size_t>(room));
    std::memcpy(out, channel.in.data(), size);
    channel.in = channel.in.subspan(size);
    return static_cast<int>(size);
  }

  static int write(BIO* bio, const char* data, int size) {
    auto& channel = *static_cast<TlsFilter::Channel*>(BIO_get_data(bio));
    if (channel.out == nullptr) return -1;  // nothing is written outside of a call
    channel.out->append(data, static_cast<std::size_t>(size));
    return size;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* get() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "spate bytes");
      CHECK(made != nullptr, "out of memory");
      BIO_meth_set_read(made, read);
      BIO_meth_set_write(made, write);
      BIO_meth_set_ctrl(made, control);
      return made;
    }();
    return method;
  }
};

TlsFilter::TlsFilter(const TlsContext& context) : context_(context) {
  ssl_ = SSL_new(context.context_);
  BIO* bio = BIO_new(TlsChannelMethod::get());
  CHECK(ssl_ != nullptr && bio != nullptr, "out of memory");
  BIO_set_data(bio, &channel_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_connect_state(ssl_);
  const char* host = context.host_.c_str();
  if (is_ip_literal(context.host_)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), host);
  } else {
    SSL_set1_host(ssl_, host);
    SSL_set_tlsext_host_name(ssl_, host);
  }
}

TlsFilter::~TlsFilter() { SSL_free(ssl_); }

Error TlsFilter::failure(const char* doing) const {
  const std::string& host = context_.host_;
  const long verdict = SSL_get_verify_result(ssl_);
  if (verdict == X509_V_OK) {
    if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_WRONG_VERSION_NUMBER) {
      ERR_clear_error();
      return {ErrorCode::unavailable,
              "TLS with " + host + ": the target does not speak TLS (did you mean grpc://?)"};
    }
    return {ErrorCode::unavailable,
            std::string("TLS ") + doing + " with " + host + ": " + openssl_error()};
  }
  ERR_clear_error();
  const std::string certificate = "TLS: certificate of " + host + " ";
  switch (verdict) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return {ErrorCode::unavailable, certificate + "is not signed by CA " + context_.ca_file_};
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return {ErrorCode::unavailable,
              certificate + "does not name " + host + "; issue one with --host " + host};
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return {ErrorCode::unavailable, certificate + "has expired"};
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return {ErrorCode::unavailable, certificate + "is not valid yet; check the clocks"};
    default:
      return {ErrorCode::unavailable,
              certificate + "was refused: " + X509_verify_cert_error_string(verdict)};
  }
}

Result<void> TlsFilter::handshake() {
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  if (done != 1) {
    const int reason = SSL_get_error(ssl_, done);
    if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) return {};
    return failure("handshake");
  }
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_, &protocol, &size);
  if (size != 2 || std::memcmp(protocol, "h2", 2) != 0)
    return Error{ErrorCode::unavailable,
                 "TLS with " + context_.host_ + ": the target does not offer HTTP/2 (ALPN h2)"};
  open_ = true;
  return {};
}

Result<void> TlsFilter::start(std::string& cipher) {
  channel_.out = &cipher;
  const auto result = handshake();
  channel_ = {};
  return result;
}

Result<void> TlsFilter::receive(std::span<const std::uint8_t> bytes, std::string& plain,
                                std::string& cipher) {
  channel_ = {bytes, &cipher};
  if (!open_) {
    if (const auto result = handshake(); !result || !open_) {
      channel_ = {};
      return result;
    }
  }
  ERR_clear_error();
  constexpr std::size_t kRecord = 16 * 1024;
  constexpr std::size_t kSmall = 1024;
  std::size_t room =
      kSmall;  // most answers are small; clearing 16 KB for each would cost more than they do
  Result<void> result;
  for (;;) {
    const std::size_t before = plain.size();
    plain.resize(before + room);
    std::size_t got = 0;
    const int done = SSL_read_ex(ssl_, plain.data() + before, room, &got);
    plain.resize(before + got);
    if (done == 1) {
      room = kRecord;
      if (channel_.in.empty() && SSL_has_pending(ssl_) == 0) break;
      continue;
    }
    const int reason = SSL_get_error(ssl_, done);
    if (reason == SSL_ERROR_ZERO_RETURN)
      closed_by_peer_ = true;
    else if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
      result = failure("session");
    break;
  }
  channel_ = {};
  return result;
}

Result<void> TlsFilter::send(std::string_view plain, std::string& cipher) {
  CHECK(open_, "TLS send() before the handshake is done");
  channel_ = {{}, &cipher};
  ERR_clear_error();
  Result<void> result;
  while (!plain.empty()) {
    std::size_t taken = 0;
    const int done = SSL_write_ex(ssl_, plain.data(), plain.size(), &taken);
    if (done != 1) {
      result = failure("session");
      break;
    }
    plain.remove_prefix(taken);
  }
  channel_ = {};
  return result;
}

void TlsFilter::close(std::string& cipher) {
  channel_ = {{}, &cipher};
  if (open_) SSL_shutdown(ssl_);
  ERR_clear_error();
  channel_ = {};
}

}  // namespace spate::agent
