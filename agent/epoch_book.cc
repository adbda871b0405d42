#include "agent/epoch_book.h"

#include <algorithm>

#include "common/check.h"

namespace spate::agent {

EpochBook::EpochBook(const std::vector<Segment>& segments) {
  if (segments.empty()) return;
  for (const Segment& s : segments) given_ = std::max(given_, s.epoch);
  append(segments, segments.front().offset);
}

void EpochBook::append(const std::vector<Segment>& segments, Duration from) {
  for (const Segment& s : segments) {
    if (s.offset + s.length <= from) continue;
    end_ = s.offset + s.length;
    if (stretches_.empty() || stretches_.back().epoch != s.epoch)
      stretches_.push_back({std::max(s.offset, from), s.epoch});
  }
}

void EpochBook::prepare(std::uint32_t epoch, Duration from, const std::vector<Segment>& segments) {
  prepared_[epoch] = {from, segments, false};
  if (prepared_.size() > kMostPrepared) prepared_.erase(prepared_.begin());
}

void EpochBook::checked(std::uint32_t epoch) {
  if (const auto found = prepared_.find(epoch); found != prepared_.end())
    found->second.is_checked = true;
}

const EpochBook::Prepared* EpochBook::find(std::uint32_t epoch) const {
  const auto found = prepared_.find(epoch);
  return found == prepared_.end() ? nullptr : &found->second;
}

void EpochBook::commit(std::uint32_t epoch, Duration at) {
  const Prepared* const change = find(epoch);
  CHECK(change != nullptr, "epoch " + std::to_string(epoch) + " is not prepared");
  while (!stretches_.empty() && stretches_.back().from >= at) stretches_.pop_back();
  append(change->segments, at);
  committed_ = epoch;
  if (at > change->from) late_until_ = std::max(late_until_, at);
  prepared_.erase(prepared_.begin(), prepared_.upper_bound(epoch));
}

std::uint32_t EpochBook::epoch_at(Duration at) const {
  if (stretches_.empty()) return 0;
  const auto after = std::upper_bound(stretches_.begin(), stretches_.end(), at,
                                      [](Duration t, const Stretch& s) { return t < s.from; });
  return after == stretches_.begin() ? after->epoch : std::prev(after)->epoch;
}

}  // namespace spate::agent
