#include "agent/open_interval.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <new>
#include <type_traits>

namespace spate::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "open-";
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlotBytes = (sizeof(OpenSlot) + kPage - 1) / kPage * kPage;

// The first page. A file of another build is recognized by its sizes and refused.
struct FileHead {
  std::array<char, 16> magic;
  std::uint64_t slot_bytes;
  std::uint64_t slots;
  std::uint64_t buckets;
  std::uint64_t incarnation;
  std::uint64_t worker;
  std::array<char, 512> run;
  std::array<char, 512> agent;
};
constexpr std::string_view kMagic = "spate open 1";
static_assert(sizeof(FileHead) <= kPage);
static_assert(std::is_trivially_copyable_v<OpenSlot::Error> && std::is_standard_layout_v<OpenSlot>);

constexpr std::size_t kFileBytes = kPage + SlotRing::kSlots * kSlotBytes;

Error failed(const std::string& path, const char* doing) {
  return {ErrorCode::io, std::string("cannot ") + doing + " " + path + ": " + std::strerror(errno)};
}

template <std::size_t N>
bool put_text(std::array<char, N>& out, const std::string& text) {
  if (text.size() >= N) return false;
  std::copy(text.begin(), text.end(), out.begin());
  return true;
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& in) {
  return std::string(in.data(), strnlen(in.data(), N));
}

bool read_all(int fd, void* out, std::size_t size, std::size_t at) {
  auto* bytes = static_cast<char*>(out);
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = ::pread(fd, bytes + done, size - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Result<WorkerRemains> read_ring(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return failed(path, "read");
  FileHead head{};
  if (!read_all(file.fd, &head, sizeof head, 0)) return failed(path, "read");
  // Written last: a process that died before it had counted nothing.
  WorkerRemains remains;
  if (text_of(head.magic).empty()) return remains;
  if (text_of(head.magic) != kMagic || head.slot_bytes != kSlotBytes ||
      head.slots != SlotRing::kSlots || head.buckets != Histogram::kBucketCount)
    return Error{ErrorCode::conflict, path + " was written by another version of spate-agent"};
  remains.owner = {text_of(head.run), text_of(head.agent), head.incarnation,
                   static_cast<std::uint32_t>(head.worker)};
  auto slot = std::make_unique<OpenSlot>();
  for (std::size_t i = 0; i < SlotRing::kSlots; ++i) {
    const std::size_t at = kPage + i * kSlotBytes;
    std::uint32_t state = OpenSlot::free;
    static_assert(offsetof(OpenSlot, state) == 0 && sizeof(OpenSlot::state) == sizeof state);
    if (!read_all(file.fd, &state, sizeof state, at)) return failed(path, "read");
    if (state == OpenSlot::free) continue;
    if (!read_all(file.fd, slot.get(), sizeof(OpenSlot), at)) return failed(path, "read");
    if (!slot->has_begun) continue;
    remains.has_open = remains.has_open || state == OpenSlot::open;
    Result<Record> record = record_of(*slot);
    if (!record) return record.error().with_context(path);
    remains.intervals.push_back({slot->ordinal, *std::move(record)});
  }
  std::sort(remains.intervals.begin(), remains.intervals.end(),
            [](const auto& a, const auto& b) { return a.ordinal < b.ordinal; });
  return remains;
}

}  // namespace

void OpenSlot::prepare() {
  for (Histogram::Head& head : heads) head = {};
}

void OpenSlot::clear() {
  has_begun = false;
  label = {};
  ordinal = 0;
  start_ns = end_ns = t0_ns = 0;
  counters = {};
  connections_requested = connections_established = 0;
  sent_intended_ns = sent_ns = ended_intended_ns = ended_sent_ns = ended_ns = 0;
  for (std::size_t i = 0; i < kSlotHistograms; ++i) {
    Histogram::Head& head = heads[i];
    if (head.count > 0) {
      const auto first = Histogram::bucket_of(static_cast<std::uint64_t>(head.min));
      const auto last = Histogram::bucket_of(static_cast<std::uint64_t>(head.max));
      std::fill(buckets[i].begin() + static_cast<std::ptrdiff_t>(first),
                buckets[i].begin() + static_cast<std::ptrdiff_t>(last) + 1, 0);
    }
    head = {};
  }
  for (Error& e : errors) {
    if (e.count == 0) break;
    e.count = 0;
  }
}

void OpenSlot::add_error(std::size_t place, const ErrorClass& error) {
  Error& e = errors[place];
  if (e.count == 0) {
    e.code = error.code;
    e.outcome = error.outcome;
    e.length = static_cast<std::uint8_t>(error.text.size());
    std::copy(error.text.begin(), error.text.end(), e.text.begin());
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  e.count = error.count;
}

Result<Record> record_of(const OpenSlot& slot) {
  Record r;
  r.epoch = slot.label.epoch;
  r.phase = slot.label.phase;
  r.drain = slot.label.drain;
  r.guard = slot.label.guard;
  r.counters = slot.counters;
  const bool is_whole = slot.state.load() == OpenSlot::closed;
  const auto histogram = [&](std::size_t i, std::int64_t last_value) {
    return is_whole ? Histogram::copy_of(slot.heads[i], slot.buckets[i].data())
                    : Histogram::salvage(slot.heads[i], slot.buckets[i].data(), last_value);
  };
  // The last request that was sent is counted when its bucket is; the last one that ended, when its
  // latency or its service time is.
  r.send_lag = histogram(kSendLag, slot.sent_ns - slot.sent_intended_ns);
  const std::int64_t latency = slot.ended_ns - slot.ended_intended_ns;
  const std::int64_t service_time = slot.ended_ns - slot.ended_sent_ns;
  for (const Outcome o : kOutcomes) {
    OutcomeSeries& s = r.series[index(o)];
    s.latency = histogram(latency_of(o), latency);
    s.service_time = histogram(service_time_of(o), service_time);
    if (s.latency.count() == s.service_time.count() + 1) s.service_time.record(service_time);
    if (s.service_time.count() == s.latency.count() + 1) s.latency.record(latency);
  }
  for (const OpenSlot::Error& e : slot.errors) {
    if (e.count == 0) break;
    r.errors.add(e.outcome, e.code, {e.text.data(), e.length}, e.count);
  }
  r.counters.sent = r.send_lag.count();
  r.counters.scheduled = r.counters.sent + r.counters.missed();
  r.counters.in_flight_end = r.counters.in_flight_begin + r.counters.sent - r.finished();
  r.gauges.connections_requested = slot.connections_requested;
  r.gauges.connections_established = slot.connections_established;
  const std::int64_t end =
      is_whole ? slot.end_ns
               : std::max({slot.start_ns, slot.sent_ns - slot.t0_ns, slot.ended_ns - slot.t0_ns});
  r.start = Duration(slot.start_ns);
  r.length = Duration(end - slot.start_ns);
  const auto broken = broken_laws(r);
  if (r.counters.in_flight_begin + r.counters.sent < r.finished() || !broken.empty())
    return Error{ErrorCode::io, "what was counted there contradicts itself" +
                                    (broken.empty() ? std::string() : ": " + broken.front())};
  return r;
}

SlotRing::SlotRing(std::string path, int fd, std::byte* base)
    : path_(std::move(path)), fd_(fd), base_(base) {}

SlotRing::~SlotRing() {
  ::munmap(base_, kFileBytes);
  ::close(fd_);
  ::unlink(path_.c_str());
}

OpenSlot& SlotRing::slot(std::size_t i) {
  return *std::launder(reinterpret_cast<OpenSlot*>(base_ + kPage + i * kSlotBytes));
}

Result<std::shared_ptr<SlotRing>> SlotRing::create(const std::string& folder, const Owner& owner) {
  const std::string path = folder + "/" + std::string(kPrefix) + std::to_string(owner.incarnation) +
                           "-" + std::to_string(owner.worker);
  FileHead head{};
  head.slot_bytes = kSlotBytes;
  head.slots = kSlots;
  head.buckets = Histogram::kBucketCount;
  head.incarnation = owner.incarnation;
  head.worker = owner.worker;
  if (!put_text(head.run, owner.run) || !put_text(head.agent, owner.agent))
    return invalid("the name of the run or the agent is too long for " + path);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return failed(path, "make");
  void* base = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(kFileBytes)) == 0 &&
      ::fallocate(fd, 0, 0, static_cast<off_t>(kPage)) == 0)
    base = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const Error error = failed(path, "map");
    ::close(fd);
    ::unlink(path.c_str());
    return error;
  }
  std::memcpy(base, &head, sizeof head);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(base, kMagic.data(), kMagic.size());
  return std::shared_ptr<SlotRing>(new SlotRing(path, fd, static_cast<std::byte*>(base)));
}

OpenSlot* SlotRing::take() {
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (!reserved_[i].load(std::memory_order_relaxed) && !reserve(i)) return nullptr;
    if (is_free(i)) return &slot(i);
  }
  return nullptr;
}

bool SlotRing::is_free(std::size_t i) {
  return slot(i).state.load(std::memory_order_acquire) == OpenSlot::free;
}

// Touching a page that tmpfs has no room for would end the process.
bool SlotRing::reserve(std::size_t i) {
  has_room_ = ::fallocate(fd_, 0, static_cast<off_t>(kPage + i * kSlotBytes),
                          static_cast<off_t>(kSlotBytes)) == 0;
  if (!has_room_) return false;
  slot(i).prepare();
  reserved_[i].store(true, std::memory_order_release);
  return true;
}

bool SlotRing::is_short() {
  std::size_t reserved = 0, free = 0;
  for (; reserved < kSlots && reserved_[reserved].load(std::memory_order_relaxed); ++reserved)
    if (is_free(reserved)) ++free;
  // Whether there is room for another one is known when it is there.
  if (free == 0 && reserved < kSlots && reserve(reserved)) {
    ++reserved;
    ++free;
  }
  const std::size_t all = has_room_ ? kSlots : reserved;
  // With less than two to take turns there is nothing to save.
  return all > 1 && free + (all - reserved) <= std::min(kSpareSlots, (all - 1) / 2);
}

void SlotRing::release_through(std::uint64_t ordinal) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (!reserved_[i].load(std::memory_order_acquire)) continue;
    OpenSlot& s = slot(i);
    if (s.state.load(std::memory_order_acquire) != OpenSlot::closed || s.ordinal > ordinal)
      continue;
    s.clear();
    s.state.store(OpenSlot::free, std::memory_order_release);
  }
}

std::vector<WorkerRemains> read_remains(const std::string& folder,
                                        std::vector<std::string>& complaints) {
  std::vector<WorkerRemains> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    Result<WorkerRemains> remains = read_ring(entry.path().string());
    if (!remains)
      complaints.push_back(remains.error().message);
    else if (!remains->owner.run.empty())
      all.push_back(*std::move(remains));
  }
  return all;
}

void remove_remains(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(kPrefix)) fs::remove(entry.path(), error);
}

}  // namespace spate::agent
