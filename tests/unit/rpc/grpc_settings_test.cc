#include "rpc/grpc_settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "proto/operator.grpc.pb.h"

namespace spate::rpc {
namespace {

using namespace std::chrono_literals;

const Endpoint kAnyPort{"127.0.0.1", 0};
const Endpoint kElsewhere{"192.0.2.1", 7070};  // TEST-NET-1: nobody's

// Answers with the peer's name, or refuses with the reason.
class Service final : public ops::v1::Operator::Service {
 public:
  explicit Service(std::vector<Role> roles) : roles_(std::move(roles)) {}

  grpc::Status Stop(grpc::ServerContext* context, const ops::v1::StopRequest*,
                    ops::v1::StopReply* reply) override {
    if (const auto allowed = authorize(*context, roles_); !allowed) {
      return {grpc::StatusCode::PERMISSION_DENIED, allowed.error().message};
    }
    reply->set_error(peer_name(*context));
    return grpc::Status::OK;
  }

 private:
  std::vector<Role> roles_;
};

struct RunningServer {
  std::unique_ptr<Service> service;
  std::unique_ptr<grpc::Server> server;
  Endpoint endpoint;
};

RunningServer try_to_start(const Endpoint& listen, const TlsFiles& files, std::vector<Role> roles) {
  RunningServer s;
  s.service = std::make_unique<Service>(std::move(roles));
  grpc::ServerBuilder builder;
  int port = 0;
  const auto configured = configure_server(builder, listen, files, &port);
  EXPECT_TRUE(configured.has_value()) << configured.error().message;
  builder.RegisterService(s.service.get());
  s.server = builder.BuildAndStart();
  s.endpoint = {listen.host, static_cast<std::uint16_t>(port)};
  return s;
}

RunningServer start(const Endpoint& listen, const TlsFiles& files,
                    std::vector<Role> roles = {Role::op}) {
  RunningServer s = try_to_start(listen, files, std::move(roles));
  if (!s.server) throw std::runtime_error("the server did not start");
  return s;
}

grpc::Status call(grpc::Channel& channel, std::string* answer = nullptr) {
  const auto stub =
      ops::v1::Operator::NewStub(std::shared_ptr<grpc::Channel>(&channel, [](grpc::Channel*) {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 10s);
  ops::v1::StopReply reply;
  const grpc::Status status = stub->Stop(&context, {}, &reply);
  if (answer != nullptr) *answer = reply.error();
  return status;
}

grpc::Status dial(const RunningServer& s, const TlsFiles& files, Role server_role,
                  std::string* answer = nullptr) {
  const auto channel = make_channel(s.endpoint, files, server_role);
  EXPECT_TRUE(channel.has_value()) << channel.error().message;
  return call(**channel, answer);
}

TEST(Listening, NeedsTlsBeyondLoopback) {
  for (const std::string host :
       {"0.0.0.0", "::", "192.0.2.1", "10.0.0.1", "::ffff:10.0.0.1", "fd00::1"}) {
    grpc::ServerBuilder builder;
    const auto r = configure_server(builder, {host, 0}, {}, nullptr);
    ASSERT_FALSE(r.has_value()) << host;
    EXPECT_NE(r.error().message.find("without TLS"), std::string::npos) << r.error().message;
    EXPECT_NE(r.error().message.find("spate pki"), std::string::npos) << r.error().message;
    EXPECT_FALSE(server_credentials({host, 0}, {}).has_value());
  }
  for (const std::string host :
       {"127.0.0.1", "127.1.2.3", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(server_credentials({host, 0}, {}).has_value()) << host;
  }
}

TEST(Dialling, NeedsTlsBeyondLoopback) {
  for (const Endpoint& e : {kElsewhere, Endpoint{"0.0.0.0", 1}, Endpoint{"fd00::1", 1},
                            Endpoint{"::ffff:10.0.0.1", 1}}) {
    const auto channel = make_channel(e, {}, Role::controller);
    ASSERT_FALSE(channel.has_value()) << e.to_string();
    EXPECT_EQ(channel.error().code, ErrorCode::invalid);
  }
  EXPECT_TRUE(make_channel({"localhost", 1}, {}, Role::controller).has_value());
  const auto unknown = make_channel({"no-such-host.invalid", 1}, {}, Role::controller);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("no-such-host.invalid"), std::string::npos);
}

TEST(Loopback, AnswersEverybodyWithoutTls) {
  for (const std::string host : {"127.0.0.1", "localhost", "::1"}) {
    const RunningServer s = start({host, 0}, {});
    std::string answer = "something";
    const grpc::Status status = dial(s, {}, Role::controller, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(answer, "");
  }
}

TEST(Listening, FailsOnAPortThatIsTaken) {
  const RunningServer first = start(kAnyPort, {});
  const RunningServer second = try_to_start(first.endpoint, {}, {});
  EXPECT_EQ(second.server, nullptr);
  EXPECT_EQ(second.endpoint.port, 0);
}

TEST(Dialling, IgnoresAProxyInTheEnvironment) {
  const RunningServer s = start(kAnyPort, {});
  setenv("http_proxy", "http://127.0.0.1:9", 1);
  setenv("grpc_proxy", "http://127.0.0.1:9", 1);
  const grpc::Status status = dial(s, {}, Role::controller);
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// ---- certificates, made once by the openssl command

class Tls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string path = (std::filesystem::temp_directory_path() / "spate-rpc-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
    make_ca("ca");
    make_ca("other-ca");
    issue("ca", "controller", "c1");
    issue("ca", "operator", "ann");
    issue("ca", "agent", "a7");
    issue("ca", "stranger", "x");
    issue("other-ca", "operator", "mallory");
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  static std::string file(const std::string& name) { return (directory_ / name).string(); }
  static TlsFiles files(const std::string& name, const std::string& ca = "ca") {
    return {file(ca + ".crt"), file(name + ".crt"), file(name + ".key")};
  }
  static void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }

 private:
  static void run(const std::string& arguments) {
    const std::string command =
        "cd " + directory_.string() + " && openssl " + arguments + " 2>/dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void make_ca(const std::string& name) {
    run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=" + name +
        " -keyout " + name + ".key -out " + name + ".crt");
  }
  static void issue(const std::string& ca, const std::string& role, const std::string& name) {
    write(name + ".ext",
          "subjectAltName=URI:spiffe://spate/" + role + "/" + name + ",DNS:" + role + ".spate\n");
    run("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -keyout " +
        name + ".key -out " + name + ".csr");
    run("x509 -req -in " + name + ".csr -CA " + ca + ".crt -CAkey " + ca +
        ".key -CAcreateserial -days 1 -extfile " + name + ".ext -out " + name + ".crt");
  }

  static inline std::filesystem::path directory_;
};

TEST_F(Tls, KnowsItsPeers) {
  const RunningServer s = start(kAnyPort, files("c1"));
  std::string answer;
  const grpc::Status status = dial(s, files("ann"), Role::controller, &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer, "ann");
}

TEST_F(Tls, RefusesAnotherRole) {
  const RunningServer s = start(kAnyPort, files("c1"), {Role::op, Role::controller});
  const grpc::Status agent = dial(s, files("a7"), Role::controller);
  EXPECT_EQ(agent.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_NE(agent.error_message().find("operator or controller, yours has the role agent"),
            std::string::npos)
      << agent.error_message();
  const grpc::Status stranger = dial(s, files("x"), Role::controller);
  EXPECT_EQ(stranger.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_NE(stranger.error_message().find("no role of spate"), std::string::npos)
      << stranger.error_message();
}

TEST_F(Tls, RefusesPeersWithoutACertificateOfItsCa) {
  const RunningServer s = start(kAnyPort, files("c1"));
  EXPECT_EQ(dial(s, {}, Role::controller).error_code(), grpc::StatusCode::UNAVAILABLE)
      << "without TLS";
  // Trusts the server, but shows a certificate of another CA (made by hand: load_tls_files would
  // refuse it).
  std::ifstream ca(file("ca.crt"));
  std::ifstream key(file("mallory.key"));
  std::ifstream certificate(file("mallory.crt"));
  const auto text = [](std::ifstream& in) {
    return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  };
  const std::string roots = text(ca);
  grpc::ChannelArguments args;
  args.SetSslTargetNameOverride("controller.spate");
  const std::string address = "ipv4:" + s.endpoint.to_string();
  const auto mallory = grpc::CreateCustomChannel(
      address, grpc::SslCredentials({roots, text(key), text(certificate)}), args);
  EXPECT_EQ(call(*mallory).error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto nobody =
      grpc::CreateCustomChannel(address, grpc::SslCredentials({roots, "", ""}), args);
  EXPECT_EQ(call(*nobody).error_code(), grpc::StatusCode::UNAVAILABLE)
      << "without a client certificate";
}

TEST_F(Tls, RefusesAServerOfAnotherCaOrRole) {
  const RunningServer s = start(kAnyPort, files("c1"));
  EXPECT_EQ(dial(s, files("mallory", "other-ca"), Role::controller).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(dial(s, files("ann"), Role::target).error_code(), grpc::StatusCode::UNAVAILABLE);
  const RunningServer impostor = start(kAnyPort, files("a7"));  // an agent that plays controller
  EXPECT_EQ(dial(impostor, files("ann"), Role::controller).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Tls, OpensNonLoopbackAddresses) {
  EXPECT_TRUE(make_channel(kElsewhere, files("ann"), Role::controller).has_value());
  EXPECT_TRUE(server_credentials({"0.0.0.0", 0}, files("c1")).has_value());
}

TEST_F(Tls, NamesTheFileThatIsWrong) {
  write("empty.crt", "");
  write("text.crt", "not PEM");
  const auto message = [](const TlsFiles& f) {
    const auto material = load_tls_files(f);
    return material ? std::string("accepted") : material.error().message;
  };
  const auto names = [&](const TlsFiles& f, const std::string& part) {
    const std::string text = message(f);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(message(files("c1")), "accepted");
  names({file("ca.crt"), file("none.crt"), file("c1.key")}, file("none.crt"));
  names({file("none.crt"), file("c1.crt"), file("c1.key")}, file("none.crt"));
  names({file("ca.crt"), file("c1.crt"), file("none.key")}, file("none.key"));
  names({file("ca.crt"), file("empty.crt"), file("c1.key")}, file("empty.crt"));
  names({file("text.crt"), file("c1.crt"), file("c1.key")},
        file("text.crt") + " has no certificate");
  names({file("ca.crt"), file("text.crt"), file("c1.key")},
        file("text.crt") + " has no certificate");
  names({file("ca.crt"), file("c1.crt"), file("c1.crt")}, file("c1.crt") + " has no private key");
  names({file("ca.crt"), file("c1.crt"), file("ann.key")}, file("ann.key") + " is not the key of");
  names({file("other-ca.crt"), file("c1.crt"), file("c1.key")},
        "no good certificate of " + file("other-ca.crt"));
  names({file("ca.crt"), "", ""}, "go together");
  EXPECT_FALSE(make_channel(kAnyPort, {file("ca.crt"), "", ""}, Role::controller).has_value());
  EXPECT_FALSE(server_credentials(kAnyPort, {"", file("c1.crt"), file("c1.key")}).has_value());
  names({file(""), file("c1.crt"), file("c1.key")}, file(""));  // the directory itself
}

}  // namespace
}  // namespace spate::rpc
