#pragma once

// What a disk may do to a process, for tests of real SQLite files: a VFS that counts the calls
// which change files (write, truncate, sync, delete), and lets one of them go wrong. While a Disk
// lives, it is SQLite's default. Nothing is really synced: a kill takes nothing that was written,
// and a power cut is the model's.

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"

namespace spate::faulty_vfs {

enum class Fault {
  none,
  kill,         // before the call; and so after the one before it, with everybody told
  kill_within,  // half of what was to be written is
  power_cut,    // before the call; of what was not synced, some is there and some is not
  io_error,     // EIO, once
  disk_full,    // ENOSPC, for some calls
};
inline constexpr Fault kFaults[] = {Fault::kill, Fault::kill_within, Fault::power_cut,
                                    Fault::io_error, Fault::disk_full};

// Letters and underscores only.
inline std::string text(Fault fault) {
  constexpr const char* kTexts[] = {"nothing",   "killed", "killed_within",
                                    "power_cut", "EIO",    "ENOSPC"};
  return kTexts[static_cast<std::size_t>(fault)];
}

inline bool is_survived(Fault fault) {
  return fault == Fault::io_error || fault == Fault::disk_full;
}

// Every call is tried; with a sanitizer, where a process costs more, every seventh.
#ifdef __SANITIZE_ADDRESS__
inline constexpr std::uint64_t kStep = 7;
#else
inline constexpr std::uint64_t kStep = 1;
#endif

inline constexpr int kDied = 77;                    // exit status
inline constexpr std::uint64_t kFullForCalls = 12;  // a few transactions

struct State {
  Fault fault = Fault::none;
  std::uint64_t at = 0;            // the call, from 1
  std::uint64_t* calls = nullptr;  // counted there
  sqlite3_vfs* disk = nullptr;     // SQLite's own
  struct Write {
    std::int64_t offset;
    std::string before;        // what was there
    std::int64_t size_before;  // of the file
    std::string after;
  };
  std::map<std::string, std::vector<Write>> unsynced;  // by path
};

inline State& state() {
  static State one;
  return one;
}

struct File {
  sqlite3_file base;
  const char* path;
  sqlite3_file* real;
};
inline sqlite3_file* real(sqlite3_file* f) { return reinterpret_cast<File*>(f)->real; }
inline const char* path(sqlite3_file* f) { return reinterpret_cast<File*>(f)->path; }

// The disk as the power cut leaves it: first as it was synced, then some of the writes since.
inline void lose_power() {
  Random random(state().at);
  for (auto& [path, writes] : state().unsynced) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    bool is_well = true;
    for (auto w = writes.rbegin(); w != writes.rend(); ++w) {
      is_well &= ::pwrite(fd, w->before.data(), w->before.size(), w->offset) >= 0;
      is_well &= ::ftruncate(fd, w->size_before) == 0;
    }
    for (const State::Write& w : writes)
      if (random.unit() < 0.5)
        is_well &= ::pwrite(fd, w.after.data(), w.after.size(), w.offset) >= 0;
    ::close(fd);
    if (!is_well) ::_exit(1);
  }
}

// Makes the call, or not. `write_half` does half of it; `error` is how SQLite calls EIO there.
template <class Call, class Half>
int durable(Call call, Half write_half, int error) {
  State& s = state();
  const std::uint64_t n = ++*s.calls;
  if (s.fault == Fault::disk_full && n >= s.at && n < s.at + kFullForCalls) return SQLITE_FULL;
  if (n != s.at) return call();
  switch (s.fault) {
    case Fault::none:
    case Fault::disk_full:
      break;
    case Fault::kill:
      ::_exit(kDied);
    case Fault::kill_within:
      write_half();
      ::_exit(kDied);
    case Fault::power_cut:
      lose_power();
      ::_exit(kDied);
    case Fault::io_error:
      return error;
  }
  return call();
}

inline int write(sqlite3_file* f, const void* data, int size, sqlite3_int64 offset) {
  const auto write_some = [&](int part) {
    return real(f)->pMethods->xWrite(real(f), data, part, offset);
  };
  const auto call = [&] {
    State::Write w{offset, std::string(static_cast<std::size_t>(size), '\0'), 0,
                   std::string(static_cast<const char*>(data), static_cast<std::size_t>(size))};
    sqlite3_int64 size_before = 0;
    real(f)->pMethods->xFileSize(real(f), &size_before);
    w.size_before = size_before;
    real(f)->pMethods->xRead(real(f), w.before.data(), size, offset);
    state().unsynced[path(f)].push_back(std::move(w));
    return write_some(size);
  };
  return durable(
      call, [&] { write_some(size / 2); }, SQLITE_IOERR_WRITE);
}

inline int truncate(sqlite3_file* f, sqlite3_int64 size) {
  const auto call = [&] {
    state().unsynced.erase(path(f));
    return real(f)->pMethods->xTruncate(real(f), size);
  };
  return durable(
      call, [] {}, SQLITE_IOERR_TRUNCATE);
}

inline int sync(sqlite3_file* f, int) {
  const auto call = [&] {
    state().unsynced.erase(path(f));
    return SQLITE_OK;
  };
  return durable(
      call, [] {}, SQLITE_IOERR_FSYNC);
}

inline int remove(sqlite3_vfs*, const char* name, int sync_directory) {
  const auto call = [&] {
    state().unsynced.erase(name);
    return state().disk->xDelete(state().disk, name, sync_directory);
  };
  return durable(
      call, [] {}, SQLITE_IOERR_DELETE);
}

inline const sqlite3_io_methods kMethods = {
    2,
    [](sqlite3_file* f) { return real(f)->pMethods->xClose(real(f)); },
    [](sqlite3_file* f, void* to, int size, sqlite3_int64 offset) {
      return real(f)->pMethods->xRead(real(f), to, size, offset);
    },
    write,
    truncate,
    sync,
    [](sqlite3_file* f, sqlite3_int64* size) {
      return real(f)->pMethods->xFileSize(real(f), size);
    },
    [](sqlite3_file* f, int level) { return real(f)->pMethods->xLock(real(f), level); },
    [](sqlite3_file* f, int level) { return real(f)->pMethods->xUnlock(real(f), level); },
    [](sqlite3_file* f, int* is) { return real(f)->pMethods->xCheckReservedLock(real(f), is); },
    [](sqlite3_file* f, int op, void* arg) {
      return real(f)->pMethods->xFileControl(real(f), op, arg);
    },
    [](sqlite3_file* f) { return real(f)->pMethods->xSectorSize(real(f)); },
    [](sqlite3_file* f) { return real(f)->pMethods->xDeviceCharacteristics(real(f)); },
    [](sqlite3_file* f, int page, int size, int extend, auto** to) {
      return real(f)->pMethods->xShmMap(real(f), page, size, extend, to);
    },
    [](sqlite3_file* f, int offset, int n, int flags) {
      return real(f)->pMethods->xShmLock(real(f), offset, n, flags);
    },
    [](sqlite3_file* f) { real(f)->pMethods->xShmBarrier(real(f)); },
    [](sqlite3_file* f, int is_deleted) {
      return real(f)->pMethods->xShmUnmap(real(f), is_deleted);
    },
    nullptr,
    nullptr,
};

inline int open(sqlite3_vfs*, const char* name, sqlite3_file* f, int flags, int* out_flags) {
  File* const file = reinterpret_cast<File*>(f);
  file->base.pMethods = nullptr;
  file->path = name == nullptr ? "" : name;  // SQLite keeps it until xClose
  file->real = reinterpret_cast<sqlite3_file*>(file + 1);
  const int result = state().disk->xOpen(state().disk, name, file->real, flags, out_flags);
  if (file->real->pMethods != nullptr) file->base.pMethods = &kMethods;
  return result;
}

class Disk {
 public:
  Disk() {
    State& s = state() = State{};
    s.calls = &own_calls_;
    s.disk = sqlite3_vfs_find(nullptr);
    vfs_ = *s.disk;
    vfs_.zName = "faulty";
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + s.disk->szOsFile;
    vfs_.pNext = nullptr;
    vfs_.xOpen = open;
    vfs_.xDelete = remove;
    sqlite3_vfs_register(&vfs_, 1);
  }
  ~Disk() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(state().disk, 1);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // Call `at` of those that are counted in `calls` from now on. For a process that may die of it.
  static void strike(Fault fault, std::uint64_t at, std::uint64_t* calls) {
    state().fault = fault;
    state().at = at;
    state().calls = calls;
  }

 private:
  sqlite3_vfs vfs_{};
  std::uint64_t own_calls_ = 0;
};

}  // namespace spate::faulty_vfs
