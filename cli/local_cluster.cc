#include "cli/local_cluster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "cli/files.h"
#include "cli/pki.h"
#include "common/plan.h"

namespace spate::cli {
namespace {

using std::chrono::seconds;

constexpr seconds kReadyWithin{20};  // from a program's start to its ready line, on a busy machine
constexpr seconds kEndWithin{15};    // from SIGTERM to its end; then it is killed
constexpr int kLogLines = 12;        // shown of a program that ended

// The other programs stand beside this one.
std::string program_path(const std::string& name) {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  return (self.parent_path() / name).string();
}

std::string lock_path(const std::string& store) {
  return store + ".live";
}  // ".lock" is the controller's own

// "X listening on 127.0.0.1:7070 stats on …" -> the word behind "listening on ".
std::string word_after(const std::string& line, const std::string& text) {
  const std::size_t at = line.find(text);
  if (at == std::string::npos) return "";
  const std::size_t from = at + text.size();
  return line.substr(from, line.find(' ', from) - from);
}

// The flags of a program of this role, with its certificate of the CA in `pki`.
std::vector<std::string> identity(const std::string& pki, const std::string& role) {
  const std::string pair = pki + "/" + role + "-" + role;
  return {"--ca", pki + "/ca.crt", "--cert", pair + ".crt", "--key", pair + ".key"};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ControllerFlags flags_of(const std::string& address, const std::string& pki) {
  const auto flags = identity(pki, "operator");
  return {address, flags[1], flags[3], flags[5]};
}

std::string indented(const std::string& text) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    out += "\n    " + text.substr(from, end - from);
    from = end + 1;
  }
  return out;
}

}  // namespace

std::string default_local_store() { return data_directory() + "/local.sqlite"; }

std::optional<LiveLocalCluster> live_local_cluster(const std::string& store) {
  const int fd = open(lock_path(store).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  // Free to take: whoever wrote it has gone.
  const bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  if (!is_held) return std::nullopt;
  const auto text = read_file(lock_path(store));
  if (!text) return std::nullopt;
  // As publish() writes it; the target's lines come later, or never.
  std::istringstream lines(*text);
  std::string address, pki;
  LiveLocalCluster live;
  if (!std::getline(lines, address) || !std::getline(lines, pki)) return std::nullopt;
  live.controller = flags_of(address, pki);
  std::getline(lines, live.target_url);
  std::getline(lines, live.target_tls_url);
  return live;
}

std::string with_local_target(const std::string& assignment, const LiveLocalCluster& cluster) {
  constexpr std::string_view kPath = "target.url=";
  if (!assignment.starts_with(kPath)) return assignment;
  std::string_view value = std::string_view(assignment).substr(kPath.size());
  // A value is JSON, or else a string.
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
    value = value.substr(1, value.size() - 2);
  const std::string& url = value == kLocalTlsUrl ? cluster.target_tls_url : cluster.target_url;
  if (!is_local_url(value) || url.empty()) return assignment;
  return std::string(kPath) + url;
}

Result<void> LocalCluster::lock(const std::string& store) {
  std::error_code ec;
  const auto parent = std::filesystem::path(store).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ec);
  lock_ = open(lock_path(store).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0)
    return Error{ErrorCode::io, "cannot write " + lock_path(store) + ": " + std::strerror(errno)};
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  const auto live = live_local_cluster(store);
  return Error{ErrorCode::unavailable,
               "another local cluster is using " + store +
                   (live ? " (its controller answers at " + live->controller.controller + ")"
                         : std::string()) +
                   ": wait for its end, or give this one another store with --store FILE"};
}

Result<void> LocalCluster::make_certificates() {
  if (const auto made = make_ca(pki()); !made) return made.error();
  for (const char* role : {"controller", "agent", "operator", "target"}) {
    const auto issued = issue(pki(), {.role = role, .name = role, .hosts = {"127.0.0.1"}});
    if (!issued) return issued.error();
  }
  return {};
}

Result<LocalCluster::Member*> LocalCluster::launch(const std::string& name,
                                                   const std::string& program,
                                                   std::vector<std::string> arguments) {
  const std::string path = program_path(program);
  if (access(path.c_str(), X_OK) != 0)
    return Error{ErrorCode::unavailable,
                 "there is no " + path + ": --local needs all four programs in one directory"};
  auto child = ChildProcess::start(path, arguments, directory_ + "/" + name + ".log");
  if (!child) return child.error();
  members_.push_back(std::make_unique<Member>(Member{name, std::move(*child)}));
  return members_.back().get();
}

Result<std::string> LocalCluster::wait_ready(Member& member, const std::string& text) {
  auto line = member.process.wait_for_line(text, kReadyWithin);
  if (line) return line;
  keep_logs_ = true;
  member.reported = true;
  return Error{ErrorCode::unavailable, member.name + " did not start: " + line.error().message +
                                           indented(tail(member.process.log_file(), kLogLines)) +
                                           "\n  all logs are in " + directory_};
}

Result<void> LocalCluster::start_controller(const std::string& store, const Say& say) {
  const auto member =
      launch("spate-controller", "spate-controller",
             std::vector<std::string>{"--listen", "127.0.0.1:0", "--store", store, "--no-adopt"} +
                 identity(pki(), "controller"));
  if (!member) return member.error();
  const auto line = wait_ready(**member, "listening on ");
  if (!line) return line.error();
  controller_ = flags_of(word_after(*line, "listening on "), pki());
  say(fmt::format("started spate-controller, pid {}, on {}", (*member)->process.pid(),
                  controller_.controller));
  return publish(store);
}

// For other verbs of this user, with --local.
Result<void> LocalCluster::publish(const std::string& store) {
  std::string text = controller_.controller + "\n" + pki() + "\n";
  if (!target_url_.empty()) text += target_url_ + "\n" + target_tls_url_ + "\n";
  if (ftruncate(lock_, 0) != 0 || pwrite(lock_, text.data(), text.size(), 0) < 0)
    return Error{ErrorCode::io, "cannot write " + lock_path(store) + ": " + std::strerror(errno)};
  return {};
}

Result<void> LocalCluster::start_target(const LocalClusterSpec& spec, const Say& say) {
  if (!spec.with_target) return {};
  const std::vector<std::string> addresses{"--listen",    "127.0.0.1:0", "--listen-plain",
                                           "127.0.0.1:0", "--stats",     "127.0.0.1:0"};
  const auto member =
      launch("spate-target", "spate-target", addresses + identity(pki(), "target") + spec.target);
  if (!member) return member.error();
  const auto line = wait_ready(**member, "listening on ");
  if (!line) return line.error();
  target_url_ = "grpc://" + word_after(*line, "plain on ");
  target_tls_url_ = "grpcs://" + word_after(*line, "listening on ");
  target_probe_ = word_after(*line, "stats on ");
  say(fmt::format("started spate-target, pid {}, on {} and {}", (*member)->process.pid(),
                  target_url_, target_tls_url_));
  return {};
}

Result<void> LocalCluster::start_agents(const LocalClusterSpec& spec, const Say& say) {
  std::vector<Member*> agents;
  for (std::uint32_t i = 1; i <= spec.agents; ++i) {
    const std::string name = fmt::format("local-{}", i);
    std::vector<std::string> arguments{"--controller", controller_.controller, "--name", name,
                                       "--state",      directory_ + "/" + name};
    for (const auto& entry : spec.allow) arguments.insert(arguments.end(), {"--allow", entry});
    const auto member =
        launch("spate-agent-" + name, "spate-agent", arguments + identity(pki(), "agent"));
    if (!member) return member.error();
    agents.push_back(*member);
  }
  for (Member* agent : agents) {
    const auto line = wait_ready(*agent, " connected to ");
    if (!line) return line.error();
  }
  if (!agents.empty())
    say(fmt::format("started {} spate-agent{}, pid {}{}", agents.size(),
                    agents.size() > 1 ? "s" : "", agents.front()->process.pid(),
                    agents.size() > 1 ? fmt::format(" to {}", agents.back()->process.pid()) : ""));
  return {};
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(const LocalClusterSpec& spec,
                                                          const Say& say) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster);
  const std::string store = spec.store.empty() ? default_local_store() : spec.store;
  if (auto locked = cluster->lock(store); !locked) return locked.error();

  std::string directory = (std::filesystem::temp_directory_path() / "spate-local-XXXXXX").string();
  if (!mkdtemp(directory.data()))
    return Error{ErrorCode::io, "cannot make " + directory + ": " + std::strerror(errno)};
  cluster->directory_ = directory;

  if (auto done = cluster->make_certificates(); !done) return done.error();
  if (auto done = cluster->start_controller(store, say); !done) return done.error();
  if (auto done = cluster->start_target(spec, say); !done) return done.error();
  if (auto done = cluster->publish(store); !done) return done.error();
  if (auto done = cluster->start_agents(spec, say); !done) return done.error();
  return cluster;
}

LocalCluster::~LocalCluster() {
  stop();
  if (lock_ >= 0) {
    if (ftruncate(lock_, 0) != 0) {
      // The lock itself says that nobody is there; the address in it is then not looked at.
    }
    close(lock_);
  }
  std::error_code ec;
  if (!directory_.empty()) std::filesystem::remove_all(keep_logs_ ? pki() : directory_, ec);
}

std::vector<std::string> LocalCluster::news_of_deaths() {
  std::vector<std::string> news;
  for (auto& member : members_) {
    const auto how = member->process.ended();
    if (!how || member->reported) continue;
    member->reported = true;
    keep_logs_ = true;
    news.push_back(member->name + " ended with " + *how +
                   indented(tail(member->process.log_file(), kLogLines)) + "\n  its log is " +
                   member->process.log_file());
  }
  return news;
}

bool LocalCluster::controller_has_ended() {
  return !members_.empty() && members_.front()->process.ended().has_value();
}

bool LocalCluster::agents_have_ended() {
  bool has_agents = false;
  for (auto& member : members_) {
    if (!member->name.starts_with("spate-agent")) continue;
    has_agents = true;
    if (!member->process.ended()) return false;
  }
  return has_agents;
}

void LocalCluster::stop() {
  // The controller last: it closes the run's books after the agents have gone.
  for (std::size_t i = members_.size(); i-- > 1;) members_[i]->process.signal(SIGTERM);
  for (std::size_t i = members_.size(); i-- > 0;) {
    if (i == 0) members_[0]->process.signal(SIGTERM);
    if (!members_[i]->process.wait_for_end(kEndWithin)) {
      keep_logs_ = true;
      std::fprintf(stderr, "spate: %s did not end when asked to and was killed; its log is %s\n",
                   members_[i]->name.c_str(), members_[i]->process.log_file().c_str());
    }
  }
  members_.clear();
}

void LocalCluster::kill() { members_.clear(); }

}  // namespace spate::cli
