// Looks at this machine the way a flood will, and says what to change.

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <openssl/crypto.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/exit_code.h"
#include "cli/files.h"
#include "cli/pki.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "common/units.h"
#include "common/version.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

constexpr std::uint64_t kOwnDescriptors = 64;  // of a program, beside its connections
constexpr std::uint64_t kFewDescriptors = 4'096;
constexpr std::uint64_t kFewPorts = 16'000;
constexpr std::uint64_t kShortBacklog = 1'024;
constexpr std::int64_t kExpiresSoonDays = 30;
constexpr std::uint64_t kLittleSpace = std::uint64_t{1} << 30;

class Findings {
 public:
  void ok(const std::string& text) { line("OK", text); }
  void warn(const std::string& text) { line("WARN", text); }
  void fail(const std::string& text) {
    failed_ = true;
    line("FAIL", text);
  }
  bool failed() const { return failed_; }

 private:
  void line(const char* verdict, const std::string& text) {
    std::printf("%-4s  %s\n", verdict, text.c_str());
  }
  bool failed_ = false;
};

std::string first_line(const std::string& path) {
  const auto text = read_file(path);
  return text ? text->substr(0, text->find('\n')) : "";
}

void look_at_versions(Findings& out) {
  utsname system{};
  uname(&system);
  out.ok(fmt::format("spate {}, gRPC {}, {}, kernel {}", kVersion, grpc::Version(),
                     OpenSSL_version(OPENSSL_VERSION), system.release));
}

void look_at_descriptors(Findings& out) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto allows = [](rlim_t n) {
    return n == RLIM_INFINITY ? std::string("any number of")
                              : format_count(n > kOwnDescriptors ? n - kOwnDescriptors : 0);
  };
  const std::string text =
      fmt::format("descriptors: {} now, {} at most: {} connections per process now, {} at most",
                  limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_count(limit.rlim_cur),
                  limit.rlim_max == RLIM_INFINITY ? "unlimited" : format_count(limit.rlim_max),
                  allows(limit.rlim_cur), allows(limit.rlim_max));
  if (limit.rlim_cur >= kFewDescriptors) {
    out.ok(text);
  } else if (limit.rlim_max >= kFewDescriptors) {
    out.warn(text + "; raise it in the shell that starts an agent or a target: ulimit -n " +
             std::to_string(std::min<rlim_t>(limit.rlim_max, 1'048'576)));
  } else {
    out.warn(text +
             "; raise the hard limit in /etc/security/limits.conf, or LimitNOFILE= of the service");
  }
}

void look_at_ports(Findings& out) {
  std::istringstream range(first_line("/proc/sys/net/ipv4/ip_local_port_range"));
  std::uint64_t low = 0, high = 0;
  if (!(range >> low >> high) || high < low) return out.warn("ip_local_port_range cannot be read");
  const std::string text =
      fmt::format("ports: {} to {}: {} connections from this address to one target address", low,
                  high, format_count(high - low + 1));
  if (high - low + 1 >= kFewPorts) return out.ok(text);
  out.warn(text + "; more: sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"");
}

void look_at_backlog(Findings& out) {
  std::istringstream in(first_line("/proc/sys/net/core/somaxconn"));
  std::uint64_t somaxconn = 0;
  if (!(in >> somaxconn)) return out.warn("somaxconn cannot be read");
  const std::string text =
      fmt::format("somaxconn: {}: so many connections may wait to be accepted", somaxconn);
  if (somaxconn >= kShortBacklog) return out.ok(text);
  out.warn(text + "; for a target under a storm of connects: sysctl -w net.core.somaxconn=4096");
}

void look_at_cpu_and_clock(Findings& out) {
  const unsigned cpus = std::thread::hardware_concurrency();
  const std::string text = fmt::format("CPUs: {}", cpus);
  if (cpus >= 2) {
    out.ok(text);
  } else {
    out.warn(
        text +
        "; a flood and its target on one CPU slow each other: use another machine for one of them");
  }
  const std::string source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (source.empty()) return out.warn("clock source cannot be read");
  if (source == "hpet" || source == "acpi_pm" || source == "jiffies")
    return out.warn("clock source: " + source +
                    ": reading it is slow; time stamps cost throughput on this machine");
  out.ok("clock source: " + source);
}

void look_at_data_directory(Findings& out) {
  const std::string directory = data_directory();
  const std::string probe = directory + "/.doctor";
  const auto written = write_file(probe, "", 0600, IfExists::replace);
  if (!written)
    return out.fail("data directory: " + written.error().message +
                    "; set XDG_DATA_HOME to one that can be written");
  unlink(probe.c_str());
  struct statvfs disk {};
  if (statvfs(directory.c_str(), &disk) != 0) return out.ok("data directory: " + directory);
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string text = "data directory: " + directory + ", " + format_size(free) + " free";
  if (free >= kLittleSpace) return out.ok(text);
  out.warn(text + "; an hour of one agent's records at 1 s is some 7 MiB: free some space");
}

void look_at_certificate(Findings& out, const std::string& path) {
  if (path.empty()) return;
  const auto info = inspect(path);
  if (!info) return out.fail("certificate: " + info.error().message);
  const std::string text =
      "certificate " + path + (info->identity.empty() ? "" : " (" + info->identity + ")");
  if (info->days_left < 0)
    return out.fail(text + " has expired; make another with `spate pki issue`");
  const std::string left = text + fmt::format(" is good for {} more days", info->days_left);
  if (info->days_left < kExpiresSoonDays)
    return out.warn(left + "; make another with `spate pki issue`");
  out.ok(left);
}

void look_at_key(Findings& out, const std::string& path) {
  if (path.empty()) return;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return out.fail("key " + path + " cannot be read");
  if ((status.st_mode & 077) != 0)
    return out.warn("key " + path + " can be read by others: chmod 600 " + path);
  out.ok("key " + path + " is readable by its owner only");
}

void look_at_controller(Findings& out, const ControllerFlags& flags, bool was_named) {
  auto client = OperatorClient::create(flags);
  const auto agents =
      client ? (*client)->list_agents() : Result<ops::v1::ListAgentsReply>(client.error());
  if (agents)
    return out.ok(fmt::format("controller: {} answers and knows {} agents", flags.controller,
                              agents->agents_size()));
  // Nobody has to have one running; whoever named one expects it to.
  if (was_named) return out.fail("controller: " + agents.error().message);
  out.warn("controller: " + agents.error().message);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("doctor", "What this machine can carry, and what stands in the way");
  const auto flags = std::make_shared<ControllerFlags>();
  add_controller_flags(*verb, *flags);
  verb->callback([verb, flags, &exit_code] {
    Findings out;
    look_at_versions(out);
    look_at_cpu_and_clock(out);
    look_at_descriptors(out);
    look_at_ports(out);
    look_at_backlog(out);
    look_at_data_directory(out);
    look_at_certificate(out, flags->ca);
    look_at_certificate(out, flags->certificate);
    look_at_key(out, flags->key);
    look_at_controller(out, *flags, verb->get_option("--controller")->count() > 0);
    exit_code = out.failed() ? kFailed : kPassed;
  });
}

}  // namespace spate::cli
