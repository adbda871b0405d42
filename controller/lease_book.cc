#include "controller/lease_book.h"

#include <algorithm>

namespace spate::controller {

void LeaseBook::assume(std::size_t agent, Instant now) {
  Agent& one = agents_.at(agent);
  one.is_assumed = one.has_assumed_lease = true;
  one.sure = history_.oldest();
  one.told.clear();
  for (std::size_t v = history_.oldest() + 1; v <= latest(); ++v) one.told.push_back({v});
  leases_.renew(agent, setup_.length, now);
}

void LeaseBook::restarted(std::size_t agent) {
  agents_.at(agent) = {};
  agents_[agent].sure = latest();
  leases_.release(agent);  // the process that had one is no more
}

void LeaseBook::tell(std::size_t agent, std::optional<Duration> full_at) {
  std::vector<Told>& told = agents_.at(agent).told;
  const Told now{latest(), full_at.value_or(Duration::max())};
  // Told again, it may have heard the first one, or the second one alone.
  if (told.empty() || told.back().version != now.version) {
    told.push_back(now);
  } else {
    told.back().full_at = std::max(told.back().full_at, now.full_at);
  }
}

// It works by one of the versions that it was told of; the oldest with what it has is sure.
void LeaseBook::confirm(std::size_t agent, std::size_t version) {
  Agent& one = agents_.at(agent);
  if (version <= one.sure) return;
  std::erase_if(one.told, [&](const Told& told) { return told.version < version; });
  one.sure = version;
  if (one.told.empty()) return;
  Duration full_at = Duration::min();
  for (const Told& told : one.told) full_at = std::max(full_at, told.full_at);
  if (full_at != Duration::max()) {
    leases_.shorten(agent, setup_.start + full_at);
    one.has_bounded_lease = true;
  }
  one.sure = one.told.front().version;
  one.told.erase(one.told.begin());
}

void LeaseBook::lacks_all_after(std::size_t agent, std::size_t version) {
  std::erase_if(agents_.at(agent).told, [&](const Told& told) { return told.version > version; });
}

void LeaseBook::learn(std::size_t agent, std::uint32_t epoch, Instant now) {
  Agent& one = agents_.at(agent);
  if (!one.is_assumed) return;
  const auto is_other = [&](std::size_t version) {
    return history_.epoch(version, offset(now)) != epoch;
  };
  std::vector<Told> possible = one.told;
  possible.insert(possible.begin(), Told{one.sure});
  std::erase_if(possible, [&](const Told& told) { return is_other(told.version); });
  if (possible.empty()) {
    // Older than all that is remembered: its lease has ended long ago.
    if (history_.oldest() > 0) one.sure = 0;
    return;
  }
  one.is_assumed = false;
  one.sure = possible.front().version;
  one.told.assign(possible.begin() + 1, possible.end());
}

bool LeaseBook::has_room(std::size_t agent, Duration from, Instant now) {
  // Without a lease it does nothing with it; the lease is what has to wait then.
  if (ended(agent, now)) return true;
  const std::vector<Duration> all = instants(agent, std::max(offset(now), from), now);
  return std::all_of(all.begin(), all.end(), [&](Duration at) {
    const std::uint64_t wanted = history_.connections(latest(), agent, at);
    return wanted <= least(agent, at) || fits(agent, wanted, at, history_.total(latest(), at), now);
  });
}

std::optional<Duration> LeaseBook::full_at(std::size_t agent, Duration from, Instant now) {
  for (const Duration at : instants(agent, std::max(offset(now), from), now)) {
    const std::uint64_t wanted = history_.connections(latest(), agent, at);
    // What an agent may have been given by another process is no leave to give it that.
    const std::uint64_t granted = agents_.at(agent).is_assumed ? least(agent, at) : most(agent, at);
    if (wanted > granted && !fits(agent, wanted, at, history_.total(latest(), at), now)) return at;
  }
  return std::nullopt;
}

Duration LeaseBook::lease(std::size_t agent, Instant now) {
  Agent& one = agents_.at(agent);
  if (one.sure < history_.oldest()) return {};  // nobody knows what it would do
  // It has been told when to hold, and has not said that it knows: none comes in between.
  const bool is_to_hold = std::any_of(one.told.begin(), one.told.end(), [](const Told& told) {
    return told.full_at != Duration::max();
  });
  if (is_to_hold) return {};
  // One that has ended is as good as none: giving another is letting the agent do more. So it may
  // be with one that lacks a change; but where a lease's end is the end of the agent's run, it
  // keeps what it has, as long as all do no more than the run had in one of the versions.
  const bool lacks_some = one.sure != latest();
  const bool is_new = ended(agent, now) || one.has_bounded_lease ||
                      (lacks_some && (one.has_assumed_lease || setup_.goes_on_after_lease));
  std::optional<Duration> full;
  if (is_new || lacks_some)
    full = first_without_room(agent, is_new ? 0 : most(agent, offset(now)), lacks_some, now);
  if (full && !setup_.goes_on_after_lease) return {};
  const Duration length =
      full ? std::min(setup_.length, *full - offset(now) - kLeaseMargin) : setup_.length;
  if (length < std::min(kLeastLease, setup_.length)) return {};
  one.has_assumed_lease = false;
  one.has_bounded_lease = full.has_value();
  leases_.renew(agent, length, now);
  return length;
}

// When others' shares, as far as they are known, leave no room for its own.
std::optional<Duration> LeaseBook::first_without_room(std::size_t agent, std::uint64_t present,
                                                      bool lacks_some, Instant now) {
  const bool is_kept = lacks_some && !setup_.goes_on_after_lease && present > 0;
  const std::size_t oldest = is_kept ? oldest_version(agent, now) : latest();
  for (const Duration at : instants(agent, offset(now), now)) {
    const std::uint64_t wanted = most(agent, at);
    const bool is_more = wanted > present || (lacks_some && at > offset(now));
    if (is_more && !fits(agent, wanted, at, history_.most_in_all(oldest, at), now)) return at;
  }
  return std::nullopt;
}

std::uint64_t LeaseBook::sum(Instant now) {
  hold_at(offset(now));
  return leases_.sum(now);
}

bool LeaseBook::fits(std::size_t agent, std::uint64_t connections, Duration at, std::uint64_t limit,
                     Instant now) {
  hold_at(at);
  return leases_.may_hold(agent, connections, limit, now);
}

// That the agent, or another one with a lease, may work by.
std::size_t LeaseBook::oldest_version(std::size_t agent, Instant now) const {
  std::size_t oldest = agents_.at(agent).sure;
  for (std::size_t i = 0; i < agents_.size(); ++i)
    if (!ended(i, now)) oldest = std::min(oldest, agents_[i].sure);
  return std::max(oldest, history_.oldest());
}

// `from`, and every instant after it at which a share may change, of the agent or while another's
// lease lives.
std::vector<Duration> LeaseBook::instants(std::size_t agent, Duration from, Instant now) const {
  Instant last = now + setup_.length + kLeaseMargin;
  for (std::size_t i = 0; i < agents_.size(); ++i) last = std::max(last, leases_.until(i));
  std::vector<Duration> all{from};
  for (std::size_t v = oldest_version(agent, now); v <= latest(); ++v)
    history_.add_borders(v, from, offset(last), all);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void LeaseBook::hold_at(Duration at) {
  for (std::size_t i = 0; i < agents_.size(); ++i) leases_.hold(i, most(i, at));
}

// What it may be doing at that instant, at most and at least.
std::uint64_t LeaseBook::most(std::size_t agent, Duration at) const {
  const Agent& one = agents_[agent];
  std::uint64_t most = history_.connections(one.sure, agent, at);
  for (const Told& told : one.told)
    if (at < told.full_at) most = std::max(most, history_.connections(told.version, agent, at));
  return most;
}

std::uint64_t LeaseBook::least(std::size_t agent, Duration at) const {
  const Agent& one = agents_[agent];
  std::uint64_t least = history_.connections(one.sure, agent, at);
  for (const Told& told : one.told)
    least = std::min(least, history_.connections(told.version, agent, at));
  return least;
}

}  // namespace spate::controller
