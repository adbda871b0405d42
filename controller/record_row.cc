#include "controller/record_row.h"

#include <zlib.h>

#include <cstdint>

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

}  // namespace

std::string pack_record(std::string_view wire_bytes) {
  uLongf length = compressBound(wire_bytes.size());
  std::string packed(kHeader + length, kPacked);
  for (std::size_t i = 1; i < kHeader; ++i)
    packed[i] = static_cast<char>(wire_bytes.size() >> (8 * (i - 1)));
  const int status = compress(reinterpret_cast<Bytef*>(packed.data() + kHeader), &length,
                              reinterpret_cast<const Bytef*>(wire_bytes.data()), wire_bytes.size());
  if (status != Z_OK) return std::string(wire_bytes);  // no memory: larger, but kept
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
  std::string bytes(size, '\0');
  uLongf length = size;
  const int status =
      uncompress(reinterpret_cast<Bytef*>(bytes.data()), &length,
                 reinterpret_cast<const Bytef*>(packed.data() + kHeader), packed.size() - kHeader);
  if (status != Z_OK || length != size) return damaged("it cannot be uncompressed");
  return wire::from_bytes(bytes);
}

RecordInsert::RecordInsert(SQLite::Database& db, const std::string& table)
    : statement_(db, "INSERT INTO " + table +
                         " (run, agent, incarnation, seq, first_seq, epoch, phase, drain, guard,"
                         " recovered, start_ns, length_ns, scheduled, sent, ok, failed,"
                         " in_flight_begin, in_flight_end, connections_established, bytes_sent,"
                         " bytes_received, wire)"
                         " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)") {}

void RecordInsert::put(const Record& r, std::string_view wire_bytes) {
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
  const std::string packed = pack_record(wire_bytes);
  statement_.bind(++i, static_cast<const void*>(packed.data()), static_cast<int>(packed.size()));
  statement_.exec();
  statement_.tryReset();
}

}  // namespace spate::controller
