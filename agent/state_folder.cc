#include "agent/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "agent/process.h"
#include "agent/spool.h"
#include "common/units.h"
#include "service/durable_rename.h"

namespace spate::agent {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr int kMostOfOneName = 64;
constexpr std::size_t kLongestCluster = 128;
constexpr const char* kMagic = "spate agent identity ";
constexpr long kTmpfs = 0x01021994;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string new_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> word{};
    std::snprintf(word.data(), word.size(), "%08x", random());
    id += word.data();
  }
  return id;
}

// FNV-1a: tells a file that was cut off or scribbled over from a whole one.
std::string checksum(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<char, 17> out{};
  std::snprintf(out.data(), out.size(), "%016llx", static_cast<unsigned long long>(h));
  return out.data();
}

// Whole or not at all, also when the power fails.
Result<void> replace_file(const std::string& folder, const std::string& name,
                          const std::string& text) {
  const std::string path = folder + "/" + name;
  const std::string next = path + ".new";
  const int fd = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 &&
                       ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (written) return durable_rename(next, path);
  return Error{ErrorCode::io, "cannot write " + path + ": " + std::strerror(why) +
                                  ": make the folder writable, or free space there"};
}

bool is_tmpfs(const std::string& path) {
  struct statfs info {};
  return ::statfs(path.c_str(), &info) == 0 && info.f_type == kTmpfs;
}

// Folders of tmpfs in which this user may keep something, the best first.
std::vector<std::string> memory_places() {
  std::vector<std::string> places;
  const auto add = [&](const std::string& parent, const std::string& name) {
    if (!parent.empty() && is_tmpfs(parent) && ::access(parent.c_str(), W_OK) == 0)
      places.push_back(parent + "/" + name);
  };
  add(variable("RUNTIME_DIRECTORY"), "memory");
  add("/run", "spate");
  add(variable("XDG_RUNTIME_DIR"), "spate");
  add("/dev/shm", "spate-" + std::to_string(::getuid()));
  return places;
}

bool was_in_memory(const std::string& agent_id) {
  const std::vector<std::string> places = memory_places();
  std::error_code error;
  return std::any_of(places.begin(), places.end(), [&](const std::string& place) {
    return fs::exists(place + "/" + agent_id, error);
  });
}

// A state folder that was removed, not one whose disk is not mounted at the moment.
bool is_gone(const fs::path& state) {
  std::error_code error;
  if (fs::exists(state, error) || error) return false;
  const fs::path temporary = fs::temp_directory_path(error);
  return fs::exists(state.parent_path(), error) || state.string().starts_with(temporary.string());
}

// Of agents whose state folder was removed, as that of a local cluster is.
void remove_orphans(const std::string& place) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(place, error)) {
    std::ifstream file(entry.path() / "state");
    std::string state;
    if (std::getline(file, state) && is_gone(state)) fs::remove_all(entry.path(), error);
  }
}

}  // namespace

std::string StateFolder::default_path(const std::string& name) {
  if (const std::string given = variable("STATE_DIRECTORY"); !given.empty()) return given;
  std::string base = variable("XDG_STATE_HOME");
  if (base.empty()) {
    const std::string home = variable("HOME");
    base = (home.empty() ? "/var/tmp" : home) + "/.local/state";
  }
  std::string folder = name;
  for (char& c : folder)
    if (c == '/' || c == '\0') c = '_';
  if (folder.empty() || folder.front() == '.') folder.insert(folder.begin(), '_');
  return base + "/spate/agents/" + folder;
}

Result<std::unique_ptr<StateFolder>> StateFolder::open_default(const std::string& name) {
  const std::string path = default_path(name);
  auto folder = open(path);
  for (int i = 2; !folder && folder.error().code == ErrorCode::conflict && i <= kMostOfOneName; ++i)
    folder = open(path + "-" + std::to_string(i));
  return folder;
}

Result<std::unique_ptr<StateFolder>> StateFolder::open(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  const fs::path whole = fs::absolute(path, error);
  if (error || !fs::is_directory(whole, error))
    return Error{ErrorCode::io,
                 "cannot make the state folder " + path + ": give another one with --state DIR"};
  fs::permissions(whole, fs::perms::owner_all, error);
  std::unique_ptr<StateFolder> folder(new StateFolder(whole.string()));
  if (auto locked = folder->lock(); !locked) return locked.error();
  if (auto done = folder->read(); !done) return done.error();
  if (auto done = folder->begin(); !done) return done.error();
  folder->make_memory_folder();
  return folder;
}

StateFolder::~StateFolder() {
  if (lock_ >= 0) ::close(lock_);
}

Error StateFolder::damaged(const std::string& what) const {
  return {ErrorCode::io,
          "the file " + path_ + "/identity is damaged (" + what +
              "); it was left as it is. Restore a copy, or give another folder with --state: that "
              "makes a new agent, and what is in this one's spool stays there"};
}

Result<void> StateFolder::lock() {
  const std::string path = path_ + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0)
    return Error{ErrorCode::io, "cannot write " + path + ": " + std::strerror(errno) +
                                    ": make the state folder writable, or give another one with "
                                    "--state DIR"};
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK)
    return Error{ErrorCode::conflict,
                 "the state folder " + path_ +
                     " is in use by another spate-agent: stop it, or give this one a folder of its "
                     "own with --state DIR"};
  return Error{ErrorCode::io, "cannot lock " + path + ": " + std::strerror(errno)};
}

std::string StateFolder::to_text(const Identity& identity) {
  std::ostringstream out;
  out << kMagic << kVersion << "\nagent_id " << identity.agent_id << "\nincarnation "
      << identity.incarnation << "\nboot " << identity.boot << "\noom_kills " << identity.oom_kills
      << "\nended_well " << identity.ended_well << "\n";
  if (!identity.last_cluster.empty()) out << "last_cluster " << identity.last_cluster << "\n";
  for (const auto& [cluster, term] : identity.terms)
    out << "term " << term << " " << cluster << "\n";
  return out.str();
}

Result<StateFolder::Identity> StateFolder::parse(const std::string& text) const {
  if (!text.starts_with(kMagic)) return damaged("it does not begin as an identity does");
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const int version = std::atoi(line.c_str() + std::strlen(kMagic));
  if (version > kVersion)
    return Error{ErrorCode::conflict,
                 "the state folder " + path_ + " was written by a newer spate (version " +
                     std::to_string(version) + ", this one knows " + std::to_string(kVersion) +
                     "): install that version, or give another folder with --state DIR"};
  const std::size_t end = text.rfind("checksum ");
  if (end == std::string::npos ||
      text.substr(end) != "checksum " + checksum(text.substr(0, end)) + "\n")
    return damaged("its checksum is wrong");
  Identity identity;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "agent_id") words >> identity.agent_id;
    if (key == "incarnation") words >> identity.incarnation;
    if (key == "boot") words >> identity.boot;
    if (key == "oom_kills") words >> identity.oom_kills;
    if (key == "ended_well") words >> identity.ended_well;
    if (key == "last_cluster") words >> identity.last_cluster;
    std::uint64_t term = 0;
    std::string cluster;
    if (key == "term" && words >> term >> cluster) identity.terms[cluster] = term;
  }
  if (identity.agent_id.empty()) return damaged("it names no agent");
  return identity;
}

Result<void> StateFolder::read() {
  const std::string path = path_ + "/identity";
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (fs::exists(spool_path(), error))
      return Error{ErrorCode::io,
                   "the state folder " + path_ +
                       " has a spool but no identity: restore the file `identity`, or give another "
                       "folder with --state DIR"};
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error{ErrorCode::io, "cannot read " + path + ": " + std::strerror(errno)};
  Result<Identity> identity = parse(text.str());
  if (!identity) return identity.error();
  identity_ = *std::move(identity);
  return {};
}

Result<void> StateFolder::write(const Identity& identity) {
  const std::string text = to_text(identity);
  if (auto done = replace_file(path_, "identity", text + "checksum " + checksum(text) + "\n");
      !done)
    return done;
  identity_ = identity;
  return {};
}

Result<void> StateFolder::begin() {
  Identity next = identity_;
  const std::string boot = boot_id();
  const MemoryGroup memory = memory_group();
  // Where the kernel's id is hidden (ProcSubset=pid), that tmpfs has forgotten us tells the same.
  const bool is_same_boot =
      boot.empty() ? was_in_memory(identity_.agent_id) : identity_.boot == boot;
  if (identity_.incarnation > 0) {
    if (identity_.ended_well)
      cause_ = kCleanStop;
    else if (!is_same_boot)
      cause_ = "power loss or reboot";
    else if (memory.oom_kills > identity_.oom_kills)
      cause_ = "killed by the OOM killer" +
               (memory.limit_bytes == 0 ? "" : " at " + format_size(memory.limit_bytes));
    else
      cause_ = "killed";
  }
  if (next.agent_id.empty()) next.agent_id = new_id();
  ++next.incarnation;
  next.boot = boot;
  next.oom_kills = memory.oom_kills;
  next.ended_well = false;
  return write(next);
}

void StateFolder::make_memory_folder() {
  for (const std::string& place : memory_places()) {
    std::error_code error;
    const std::string folder = place + "/" + identity_.agent_id;
    fs::create_directories(folder, error);
    fs::permissions(folder, fs::perms::owner_all, error);
    if (error) continue;
    std::ofstream file(folder + "/state");
    file << path_ << "\n";
    file.close();
    if (!file) continue;
    memory_ = folder;
    remove_orphans(place);
    return;
  }
}

std::uint64_t StateFolder::highest(const std::string& cluster) const {
  const auto found = identity_.terms.find(cluster);
  return found == identity_.terms.end() ? 0 : found->second;
}

Result<void> StateFolder::keep(const std::string& cluster, std::uint64_t term) {
  const auto is_plain = [](char c) { return c > ' ' && c < 127; };
  if (cluster.empty() || cluster.size() > kLongestCluster ||
      !std::all_of(cluster.begin(), cluster.end(), is_plain))
    return invalid("a controller's cluster id must be 1 to 128 printable characters");
  Identity next = identity_;
  next.last_cluster = cluster;
  next.terms[cluster] = term;
  return write(next);
}

Result<void> StateFolder::ends_well() {
  Identity next = identity_;
  next.ended_well = true;
  return write(next);
}

}  // namespace spate::agent
