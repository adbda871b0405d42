#include "cli/pki.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>

#include "cli/files.h"
#include "tests/unit/temporary_directory.h"

namespace spate::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What a shell command prints, with its errors.
std::string output_of(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    out.append(buffer.data(), n);
  pclose(pipe);
  return out;
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  stat(path.c_str(), &status);
  return status.st_mode & 07777;
}

class Pki : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto ca = make_ca(directory_.path());
    ASSERT_TRUE(ca) << ca.error().message;
  }

  std::string verify(const std::string& certificate, const std::string& more = "") {
    return output_of("openssl verify -x509_strict " + more + " -CAfile " + directory_ / "ca.crt" +
                     " " + certificate);
  }

  TemporaryDirectory directory_;
};

TEST_F(Pki, IssuesWhatOpensslVerifies) {
  for (const std::string role : {"controller", "agent", "operator", "target"}) {
    const auto files =
        issue(directory_.path(), {.role = role, .name = "pc-01", .hosts = {}, .days = 30});
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_THAT(verify(files->certificate, "-purpose sslclient"), HasSubstr(": OK"));
    EXPECT_THAT(
        verify(files->certificate, "-purpose sslserver -verify_hostname " + role + ".spate"),
        HasSubstr(": OK"));
  }
}

TEST_F(Pki, WritesRoleNameAndHostsIntoTheCertificate) {
  const auto files = issue(directory_.path(), {.role = "target",
                                               .name = "main",
                                               .hosts = {"10.77.0.100", "server.lan", "::1"},
                                               .days = 30});
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->certificate, directory_ / "target-main.crt");
  EXPECT_THAT(verify(files->certificate, "-verify_ip 10.77.0.100"), HasSubstr(": OK"));
  EXPECT_THAT(verify(files->certificate, "-verify_ip 10.77.0.101"), Not(HasSubstr(": OK")));
  EXPECT_THAT(verify(files->certificate, "-verify_hostname server.lan"), HasSubstr(": OK"));
  EXPECT_THAT(output_of("openssl x509 -noout -text -in " + files->certificate),
              AllOf(HasSubstr("URI:spiffe://spate/target/main"), HasSubstr("CA:FALSE"),
                    HasSubstr("prime256v1"),
                    HasSubstr("TLS Web Server Authentication, TLS Web Client Authentication")));
  const auto info = inspect(files->certificate);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->identity, "spiffe://spate/target/main");
  EXPECT_GE(info->days_left, 29);
  EXPECT_LE(info->days_left, 30);
}

TEST_F(Pki, KeysAreReadableByTheirOwnerOnly) {
  const auto files =
      issue(directory_.path(), {.role = "agent", .name = "a", .hosts = {}, .days = 1});
  ASSERT_TRUE(files);
  EXPECT_EQ(mode_of(files->key), 0600U);
  EXPECT_EQ(mode_of(directory_ / "ca.key"), 0600U);
  EXPECT_EQ(mode_of(directory_ / "ca.crt"), 0644U);
}

TEST_F(Pki, NeverReplacesAKey) {
  const auto before = read_file(directory_ / "ca.key");
  const auto again = make_ca(directory_.path());
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("exists already"));
  EXPECT_EQ(*read_file(directory_ / "ca.key"), *before);
}

TEST_F(Pki, KeepsNothingOfACertificateThatCannotBeWritten) {
  ASSERT_TRUE(write_file(directory_ / "agent-a.crt", "mine", 0644, IfExists::refuse));
  EXPECT_FALSE(issue(directory_.path(), {.role = "agent", .name = "a", .hosts = {}, .days = 1}));
  EXPECT_FALSE(read_file(directory_ / "agent-a.key"));
}

TEST_F(Pki, RefusesNamesThatMeanSomethingElse) {
  for (const std::string name : {"", "a/b", "../x", "a,DNS:other", "a b", "ü"})
    EXPECT_FALSE(issue(directory_.path(), {.role = "agent", .name = name, .hosts = {}, .days = 1}))
        << name;
  EXPECT_FALSE(issue(directory_.path(), {.role = "root", .name = "a", .hosts = {}, .days = 1}));
  EXPECT_FALSE(issue(directory_.path(),
                     {.role = "agent", .name = "a", .hosts = {"x,IP:1.2.3.4"}, .days = 1}));
  EXPECT_FALSE(issue(directory_.path(), {.role = "agent", .name = "a", .hosts = {}, .days = 0}));
  EXPECT_FALSE(
      issue(directory_.path(), {.role = "agent", .name = "a", .hosts = {}, .days = kCaDays + 1}));
}

TEST_F(Pki, SaysHowToMakeAMissingCa) {
  const auto files =
      issue(directory_ / "elsewhere", {.role = "agent", .name = "a", .hosts = {}, .days = 1});
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, HasSubstr("spate pki init --dir"));
}

}  // namespace
}  // namespace spate::cli
