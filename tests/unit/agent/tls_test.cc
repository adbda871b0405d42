#include "agent/drivers/tls.h"

#include <gmock/gmock.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "tests/unit/agent/issued_certificate.h"
#include "tests/unit/temporary_directory.h"

namespace spate::agent {
namespace {

using testing::HasSubstr;

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    ca = issue("test CA", nullptr, nullptr);
    other_ca = issue("other CA", nullptr, nullptr);
    server = issue("server", "IP:127.0.0.1,DNS:target.test", &ca);
    client = issue("client", nullptr, &ca);
    ca_file = write_pem(directory / "ca.pem", ca, false);
    other_ca_file = write_pem(directory / "other.pem", other_ca, false);
    client_files = {ca_file, write_pem(directory / "client.pem", client, false),
                    write_pem(directory / "client.key", client, true)};
    context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context, server.certificate);
    SSL_CTX_use_PrivateKey(context, server.key);
    SSL_CTX_load_verify_locations(context, ca_file.c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_alpn_select_cb(
        context,
        [](SSL*, const unsigned char** out, unsigned char* size, const unsigned char*, unsigned,
           void* offers) {
          if (!*static_cast<bool*>(offers)) return SSL_TLSEXT_ERR_NOACK;
          *out = reinterpret_cast<const unsigned char*>("h2");
          *size = 2;
          return SSL_TLSEXT_ERR_OK;
        },
        &offers_h2);
    ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl);
  }
  void TearDown() override {
    SSL_free(ssl);
    SSL_CTX_free(context);
    for (const Issued& issued : {ca, other_ca, server, client}) free_issued(issued);
  }

  TemporaryDirectory directory;  // of this test alone: others run at the same time

  std::string server_says() {
    std::string out(65536, '\0');
    const int size = BIO_read(SSL_get_wbio(ssl), out.data(), static_cast<int>(out.size()));
    out.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return out;
  }
  void server_hears(const std::string& bytes) {
    BIO_write(SSL_get_rbio(ssl), bytes.data(), static_cast<int>(bytes.size()));
  }
  // Runs the handshake until both are through or the filter complains.
  Result<void> shake(TlsFilter& filter) {
    std::string cipher;
    if (auto started = filter.start(cipher); !started) return started;
    for (int i = 0; i < 10; ++i) {
      server_hears(cipher);
      cipher.clear();
      SSL_do_handshake(ssl);
      const std::string answer = server_says();
      if (answer.empty() && filter.is_open()) break;
      std::string plain;
      if (auto result = filter.receive(bytes(answer), plain, cipher); !result) return result;
    }
    return {};
  }
  static std::span<const std::uint8_t> bytes(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }
  std::string error_of(const TlsFiles& files, const std::string& host) {
    const auto loaded = TlsContext::load(files, host);
    if (!loaded) return loaded.error().message;
    TlsFilter filter(**loaded);
    const auto result = shake(filter);
    return result ? "no error" : result.error().message;
  }

  Issued ca, other_ca, server, client;
  std::string ca_file, other_ca_file;
  TlsFiles client_files;
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  bool offers_h2 = true;
};

TEST_F(Tls, CarriesBytesBothWays) {
  const auto loaded = TlsContext::load(client_files, "127.0.0.1");
  ASSERT_TRUE(loaded) << loaded.error().message;
  TlsFilter filter(**loaded);
  const auto shaken = shake(filter);
  ASSERT_TRUE(shaken) << shaken.error().message;
  ASSERT_TRUE(filter.is_open());
  ASSERT_TRUE(SSL_is_init_finished(ssl));

  std::string cipher;
  const std::string question(100'000, 'q');
  ASSERT_TRUE(filter.send(question, cipher));
  server_hears(cipher);
  std::string heard;
  char buffer[16384];
  for (int n = 0; (n = SSL_read(ssl, buffer, sizeof buffer)) > 0;)
    heard.append(buffer, static_cast<std::size_t>(n));
  EXPECT_EQ(heard, question);

  std::string plain;
  const std::string reply(50'000, 'r');
  SSL_write(ssl, reply.data(), static_cast<int>(reply.size()));
  const std::string sealed = server_says();
  for (std::size_t i = 0; i < sealed.size(); i += 1000)
    ASSERT_TRUE(filter.receive(bytes(sealed.substr(i, 1000)), plain, cipher));
  EXPECT_EQ(plain, reply);

  SSL_shutdown(ssl);
  ASSERT_TRUE(filter.receive(bytes(server_says()), plain, cipher));
  EXPECT_TRUE(filter.is_closed_by_peer());
}

TEST_F(Tls, AcceptsTheHostByName) { EXPECT_EQ(error_of(client_files, "target.test"), "no error"); }

TEST_F(Tls, SaysWhyACertificateIsRefused) {
  TlsFiles files = client_files;
  files.ca = other_ca_file;
  EXPECT_THAT(error_of(files, "127.0.0.1"),
              HasSubstr("certificate of 127.0.0.1 is not signed by CA"));
}

TEST_F(Tls, ChecksTheHost) {
  EXPECT_THAT(error_of(client_files, "10.0.0.100"), HasSubstr("does not name 10.0.0.100"));
}

TEST_F(Tls, ChecksTheHostName) {
  EXPECT_THAT(error_of(client_files, "elsewhere.test"), HasSubstr("does not name elsewhere.test"));
}

TEST_F(Tls, WantsHttp2) {
  offers_h2 = false;
  EXPECT_THAT(error_of(client_files, "127.0.0.1"), HasSubstr("ALPN h2"));
}

TEST_F(Tls, NamesAFileThatCannotBeRead) {
  TlsFiles files = client_files;
  files.key = "/nowhere/agent.key";
  EXPECT_THAT(error_of(files, "127.0.0.1"), HasSubstr("key file /nowhere/agent.key"));
}

}  // namespace
}  // namespace spate::agent
