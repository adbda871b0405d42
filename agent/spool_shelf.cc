#include "agent/spool_shelf.h"

#include <utility>

#include "common/varint.h"
#include "proto/wire.h"

namespace spate::agent {

namespace {

constexpr std::string_view kMagic = "spate shelf 1\n";

void append_text(std::string& out, const std::string& text) {
  append_varint(out, text.size());
  out += text;
}

bool take_text(std::string_view& bytes, std::string& text) {
  std::uint64_t size = 0;
  if (!take_varint(bytes, size) || size > bytes.size()) return false;
  text = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return true;
}

bool take_pending(std::string_view& bytes, PendingInterval& p) {
  std::string payload;
  std::uint64_t workers = 0;
  if (!take_text(bytes, p.account.run) || !take_varint(bytes, p.account.incarnation) ||
      !take_text(bytes, p.agent) || !take_text(bytes, p.cluster) ||
      !take_varint(bytes, p.intervals) || !take_varint(bytes, p.attempted) ||
      !take_varint(bytes, workers) || workers > bytes.size())
    return false;
  p.taken.resize(workers);
  for (std::uint64_t& n : p.taken)
    if (!take_varint(bytes, n)) return false;
  if (!take_text(bytes, payload)) return false;
  Result<Record> record = wire::from_bytes(payload);
  if (!record) return false;
  p.record = *std::move(record);
  p.record.key.seq = 0;
  return true;
}

}  // namespace

std::string encode_shelf(const std::deque<PendingInterval>& pending) {
  if (pending.empty()) return {};
  std::string out(kMagic);
  append_varint(out, pending.size());
  for (const PendingInterval& p : pending) {
    append_text(out, p.account.run);
    append_varint(out, p.account.incarnation);
    append_text(out, p.agent);
    append_text(out, p.cluster);
    append_varint(out, p.intervals);
    append_varint(out, p.attempted);
    append_varint(out, p.taken.size());
    for (const std::uint64_t n : p.taken) append_varint(out, n);
    Record record = p.record;
    record.key.seq = 1;  // it has none yet, and the wire wants one
    append_text(out, wire::to_bytes(record));
  }
  return out;
}

Result<std::deque<PendingInterval>> decode_shelf(std::string_view bytes) {
  std::deque<PendingInterval> pending;
  if (bytes.empty()) return pending;
  if (!bytes.starts_with(kMagic)) return invalid("it is not a shelf of this version");
  bytes.remove_prefix(kMagic.size());
  std::uint64_t count = 0;
  if (!take_varint(bytes, count)) return invalid("it is cut off");
  for (std::uint64_t i = 0; i < count; ++i) {
    PendingInterval p;
    if (!take_pending(bytes, p)) return invalid("it is cut off or malformed");
    pending.push_back(std::move(p));
  }
  if (!bytes.empty()) return invalid("there is something after its end");
  return pending;
}

}  // namespace spate::agent
