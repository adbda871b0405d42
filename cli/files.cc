#include "cli/files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace spate::cli {
namespace {

Error io_error(const std::string& what, const std::string& path) {
  return {ErrorCode::io, what + " " + path + ": " + std::strerror(errno)};
}

bool write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  errno = 0;
  if (std::filesystem::is_directory(path)) {
    errno = EISDIR;
    return io_error("cannot read", path);
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return io_error("cannot read", path);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

Result<void> write_file(const std::string& path, std::string_view data, mode_t mode,
                        IfExists if_exists) {
  const auto parent = std::filesystem::path(path).parent_path();
  std::error_code ec;
  if (!parent.empty()) std::filesystem::create_directories(parent, ec);
  if (ec) return Error{ErrorCode::io, "cannot make " + parent.string() + ": " + ec.message()};

  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // 0600 from the start
  if (fd < 0) return io_error("cannot write", path);
  bool good = write_all(fd, data) && fchmod(fd, mode) == 0 && fsync(fd) == 0;
  good = close(fd) == 0 && good;
  // link() refuses to replace, and does so in one step; rename() replaces, also in one.
  if (good && if_exists == IfExists::refuse) good = link(temporary.c_str(), path.c_str()) == 0;
  if (good && if_exists == IfExists::replace) good = rename(temporary.c_str(), path.c_str()) == 0;
  const int saved = errno;
  if (!good || if_exists == IfExists::refuse) unlink(temporary.c_str());
  if (good) return {};
  errno = saved;
  if (saved == EEXIST)
    return Error{ErrorCode::invalid,
                 path + " exists already and is not overwritten; move it away first"};
  return io_error("cannot write", path);
}

std::string data_directory() {
  if (const char* xdg = std::getenv("XDG_DATA_HOME"); xdg && *xdg)
    return std::string(xdg) + "/spate";
  const char* home = std::getenv("HOME");
  if (!home || !*home) {
    const passwd* user = getpwuid(getuid());
    home = user ? user->pw_dir : "/tmp";
  }
  return std::string(home) + "/.local/share/spate";
}

std::string tail(const std::string& path, int lines) {
  const auto text = read_file(path);
  if (!text) return "";
  std::size_t from = text->size();
  for (int n = 0; from > 0 && n <= lines; ++n) {
    const std::size_t found = from >= 2 ? text->rfind('\n', from - 2) : std::string::npos;
    if (found == std::string::npos) return *text;
    from = found + 1;
    if (n + 1 == lines) break;
  }
  return text->substr(from);
}

}  // namespace spate::cli
