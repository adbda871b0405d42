#include "controller/record_row.h"

#include <zlib.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/varint.h"
#include "proto/wire.h"

namespace spate::controller {
namespace {

// No serialized record begins with it: that one begins with the tag of its first field, 0x0A.
constexpr char kPacked = 0x01;
constexpr std::size_t kHeader = 5;
constexpr std::uint32_t kMaxRecordBytes = 4 * 1024 * 1024;  // a message's limit on the wire

std::int64_t to_sql(std::uint64_t value) { return static_cast<std::int64_t>(value); }

Error damaged(std::string_view what) {
  return {ErrorCode::io, "a packed record is damaged: " + std::string(what)};
}

// A histogram's encoding (common/histogram.h) is this many numbers, then two for each bucket.
constexpr std::size_t kHead = 5;

template <class Visit>
void for_each_histogram(Record& r, Visit visit) {
  for (OutcomeSeries& s : r.series) {
    visit(s.latency);
    visit(s.service_time);
  }
  visit(r.send_lag);
}

std::uint64_t zigzag(std::uint64_t step) {
  return (step << 1) ^ static_cast<std::uint64_t>(static_cast<std::int64_t>(step) >> 63);
}
std::uint64_t unzigzag(std::uint64_t z) { return (z >> 1) ^ (0 - (z & 1)); }

std::vector<std::uint64_t> numbers_of(std::string_view encoded) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t n = 0; take_varint(encoded, n);) numbers.push_back(n);
  return numbers;
}

std::string take_apart(const Record& record) {
  Record rest = record;
  std::string heads, indexes, high, low;
  for_each_histogram(rest, [&](Histogram& h) {
    const auto numbers = numbers_of(h.encode());
    // Number of buckets plus one; an empty histogram has no head either.
    append_varint(heads, numbers.empty() ? 0 : (numbers.size() - kHead) / 2 + 1);
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i < kHead) {
        append_varint(heads, numbers[i]);
      } else if ((i - kHead) % 2 == 0) {
        append_varint(indexes, numbers[i]);
      } else {
        const std::uint64_t step = zigzag(numbers[i] - before);
        before = numbers[i];
        append_varint(high, step >> 8);
        low.push_back(static_cast<char>(step & 0xff));
      }
    }
    h = {};
  });
  const std::string skeleton = wire::to_bytes(rest);
  std::string body;
  append_varint(body, skeleton.size());
  return body + skeleton + heads + indexes + high + low;
}

// One histogram's numbers while the planes are read one after the other.
struct Planes {
  std::vector<std::uint64_t> head;
  std::vector<std::uint64_t> indexes;
  std::vector<std::uint64_t> steps;
};

bool take_numbers(std::string_view& bytes, std::vector<std::uint64_t>& numbers) {
  for (std::uint64_t& n : numbers)
    if (!take_varint(bytes, n)) return false;
  return true;
}

bool take_planes(std::string_view bytes, std::vector<Planes>& all) {
  for (Planes& p : all) {
    std::uint64_t buckets = 0;
    if (!take_varint(bytes, buckets) || buckets > Histogram::kBucketCount + 1) return false;
    if (buckets == 0) continue;
    p.head.resize(kHead);
    p.indexes.resize(buckets - 1);
    p.steps.resize(buckets - 1);
    if (!take_numbers(bytes, p.head)) return false;
  }
  for (Planes& p : all)
    if (!take_numbers(bytes, p.indexes)) return false;
  for (Planes& p : all)
    if (!take_numbers(bytes, p.steps)) return false;
  for (Planes& p : all) {
    for (std::uint64_t& step : p.steps) {
      if (bytes.empty()) return false;
      step = unzigzag((step << 8) | static_cast<unsigned char>(bytes.front()));
      bytes.remove_prefix(1);
    }
  }
  return bytes.empty();
}

Result<Record> put_together(std::string_view body) {
  std::uint64_t length = 0;
  if (!take_varint(body, length) || length > body.size()) return damaged("its parts do not fit");
  auto record = wire::from_bytes(body.substr(0, length));
  if (!record) return record;
  std::vector<Planes> all(2 * kOutcomeCount + 1);
  if (!take_planes(body.substr(length), all)) return damaged("its histograms do not fit");
  std::optional<Error> wrong;
  auto planes = all.begin();
  for_each_histogram(*record, [&](Histogram& h) {
    std::string encoded;
    for (const std::uint64_t n : planes->head) append_varint(encoded, n);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < planes->steps.size(); ++i) {
      append_varint(encoded, planes->indexes[i]);
      append_varint(encoded, count += planes->steps[i]);
    }
    auto decoded = Histogram::decode(encoded);
    if (decoded) {
      h = std::move(*decoded);
    } else {
      wrong = decoded.error();
    }
    ++planes;
  });
  if (wrong) return *wrong;
  return record;
}

}  // namespace

std::string pack_record(const Record& record) {
  const std::string body = take_apart(record);
  uLongf length = compressBound(body.size());
  std::string packed(kHeader + length, kPacked);
  for (std::size_t i = 1; i < kHeader; ++i)
    packed[i] = static_cast<char>(body.size() >> (8 * (i - 1)));
  const int status = compress(reinterpret_cast<Bytef*>(packed.data() + kHeader), &length,
                              reinterpret_cast<const Bytef*>(body.data()), body.size());
  if (status != Z_OK) return wire::to_bytes(record);  // no memory: larger, but kept
  packed.resize(kHeader + length);
  return packed;
}

Result<Record> unpack_record(std::string_view packed) {
  if (packed.empty()) return damaged("it is empty");
  if (packed[0] != kPacked) return wire::from_bytes(packed);
  if (packed.size() < kHeader) return damaged("it is cut off");
  std::uint32_t size = 0;
  for (std::size_t i = 1; i < kHeader; ++i)
    size |= static_cast<std::uint32_t>(static_cast<unsigned char>(packed[i])) << (8 * (i - 1));
  if (size > kMaxRecordBytes) return damaged("it is too long");
  std::string body(size, '\0');
  uLongf length = size;
  const int status =
      uncompress(reinterpret_cast<Bytef*>(body.data()), &length,
                 reinterpret_cast<const Bytef*>(packed.data() + kHeader), packed.size() - kHeader);
  if (status != Z_OK || length != size) return damaged("it cannot be uncompressed");
  return put_together(body);
}

RecordInsert::RecordInsert(SQLite::Database& db, const std::string& table)
    : statement_(db, "INSERT INTO " + table +
                         " (run, agent, incarnation, seq, first_seq, epoch, phase, drain, guard,"
                         " recovered, start_ns, length_ns, scheduled, sent, ok, failed,"
                         " in_flight_begin, in_flight_end, connections_established, bytes_sent,"
                         " bytes_received, wire)"
                         " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)") {}

void RecordInsert::put(const Record& r) {
  statement_.tryReset();
  int i = 0;
  statement_.bind(++i, r.key.run);
  statement_.bind(++i, r.key.agent);
  const std::uint64_t ok = r.count(Outcome::ok);
  for (const std::int64_t value :
       {to_sql(r.key.incarnation), to_sql(r.key.seq), to_sql(r.first_seq), std::int64_t{r.epoch},
        std::int64_t{r.phase}, std::int64_t{r.drain}, std::int64_t{r.guard},
        std::int64_t{r.recovered}, std::int64_t{r.start.count()}, std::int64_t{r.length.count()},
        to_sql(r.counters.scheduled), to_sql(r.counters.sent), to_sql(ok),
        to_sql(r.finished() - ok), to_sql(r.counters.in_flight_begin),
        to_sql(r.counters.in_flight_end), to_sql(r.gauges.connections_established),
        to_sql(r.counters.bytes_sent), to_sql(r.counters.bytes_received)}) {
    statement_.bind(++i, value);
  }
  const std::string packed = pack_record(r);
  statement_.bind(++i, static_cast<const void*>(packed.data()), static_cast<int>(packed.size()));
  statement_.exec();
  statement_.tryReset();
}

}  // namespace spate::controller
