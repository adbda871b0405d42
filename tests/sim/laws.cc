#include "tests/sim/laws.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "common/record.h"
#include "controller/aggregate.h"
#include "controller/run_shares.h"

namespace spate::sim {
namespace {

namespace c = spate::controller;
using Account = std::pair<std::string, std::uint64_t>;  // agent, incarnation

std::string text(std::uint64_t n) { return std::to_string(n); }
std::string text(const Account& a) { return a.first + "/" + text(a.second); }

struct Sums {
  std::uint64_t sent = 0;
  std::uint64_t in_flight_end = 0;
  std::array<std::uint64_t, kOutcomeCount> outcomes{};
  std::map<std::uint32_t, std::uint64_t> sent_in_epoch;
};

// Laws of single records and of their chains; returns what is stored of each account.
std::map<Account, Sums> check_records(Cluster& cluster, const StoreFile::Run& run) {
  World& world = cluster.world();
  std::map<Account, const Record*> last;
  std::map<Account, Sums> sums;
  for (const auto& stored : run.records) {
    const Record& r = stored->record;
    if (cluster.was_copy_served(run.info.id, r.key.agent)) continue;
    const Account account{r.key.agent, r.key.incarnation};
    for (const std::string& law : broken_laws(r))
      world.violated("record laws", text(account) + " seq " + text(r.key.seq) + ": " + law);
    const Record*& previous = last[account];
    if (previous == nullptr) {
      if (r.first() != 1)
        world.violated("I3 no gap", text(account) + " begins with seq " + text(r.first()));
      if (r.counters.in_flight_begin != 0)
        world.violated("chain", text(account) + " begins with requests in flight");
    } else {
      for (const std::string& law : broken_chain(*previous, r))
        world.violated("chain", text(account) + ": " + law);
    }
    if (r.length < Duration::zero())
      world.violated("I13 positive length", text(account) + " seq " + text(r.key.seq));
    // What a kill left may be of one instant.
    if (r.length == Duration::zero() && r.counters.sent > 0 && !r.recovered)
      world.violated("I13 positive length", text(account) + " seq " + text(r.key.seq));
    previous = &r;
    Sums& s = sums[account];
    s.sent += r.counters.sent;
    s.sent_in_epoch[r.epoch] += r.counters.sent;
    s.in_flight_end = r.counters.in_flight_end;
    for (std::size_t o = 0; o < kOutcomeCount; ++o) s.outcomes[o] += r.series[o].latency.count();
  }
  for (const auto& [account, record] : last) {
    const auto mark = run.marks.find(account);
    if (mark == run.marks.end() || mark->second != record->key.seq)
      world.violated("mark", text(account) + " last stored seq " + text(record->key.seq) +
                                 ", mark " + text(mark == run.marks.end() ? 0 : mark->second));
  }
  return sums;
}

// What is stored against what was really done.
void check_truth(Cluster& cluster, const std::string& run, const std::map<Account, Sums>& stored) {
  World& world = cluster.world();
  for (const auto& [client, counts] : cluster.target().accounts()) {
    if (client.run != run || cluster.was_copy_served(run, client.agent)) continue;
    const Truth& truth = counts.truth;
    const Account account{client.agent, client.incarnation};
    const auto it = stored.find(account);
    const Sums sums = it == stored.end() ? Sums{} : it->second;
    if (sums.sent > truth.sent)
      world.violated("counted twice", text(account) + " stored " + text(sums.sent) + " sent, did " +
                                          text(truth.sent));
    if (sums.sent + truth.may_be_lost < truth.sent)
      world.violated("lost", text(account) + " stored " + text(sums.sent) + " sent, did " +
                                 text(truth.sent) + ", " + text(truth.may_be_lost) +
                                 " may be missing");
    for (const auto& [epoch, sent] : sums.sent_in_epoch) {
      const auto did = truth.sent_in_epoch.find(epoch);
      const std::uint64_t really = did == truth.sent_in_epoch.end() ? 0 : did->second;
      if (sent > really)
        world.violated("I11 one epoch a record", text(account) + " stored " + text(sent) +
                                                     " sent in epoch " + text(epoch) + ", did " +
                                                     text(really));
    }
    for (std::size_t o = 0; o < kOutcomeCount; ++o)
      if (truth.has_lost_counts ? sums.outcomes[o] > truth.outcomes[o]
                                : sums.outcomes[o] != truth.outcomes[o])
        world.violated("outcomes", text(account) + " stored " + text(sums.outcomes[o]) + " " +
                                       std::string(name(kOutcomes[o])) + ", did " +
                                       text(truth.outcomes[o]));
  }
}

bool has_clones(Cluster& cluster, const StoreFile::Run& run) {
  return std::ranges::any_of(run.info.agents,
                             [&](const c::RunAgent& a) { return cluster.was_cloned(a.name); });
}

// A change that is made reaches everybody in the end.
void check_changes(Cluster& cluster, const StoreFile::Run& run, Moment healed) {
  World& world = cluster.world();
  const auto start = cluster.controller().starts().find(run.info.id);
  if (run.info.changes.empty() || start == cluster.controller().starts().end()) return;
  if (has_clones(cluster, run)) return;  // a raise waits for the lease of a copy
  // By then everybody has had time to ask again.
  constexpr Duration kSettled = std::chrono::seconds(75);
  for (const auto& stored : run.records) {
    const Record& r = stored->record;
    if (r.drain || start->second + r.start < healed + kSettled) continue;
    for (const Change& change : run.info.changes)
      if (r.start > change.at + kSettled && r.epoch < change.epoch)
        world.violated("a change reaches everybody",
                       r.key.agent + " seq " + text(r.key.seq) + " is of epoch " + text(r.epoch) +
                           ", epoch " + text(change.epoch) + " began long before");
  }
}

void check_balance(World& world, const StoreFile::Run& run, bool is_undisturbed) {
  c::Aggregate aggregate(run.info);
  for (const auto& stored : run.records) aggregate.add(stored->record);
  for (const c::TargetSample& sample : run.samples) aggregate.add(sample);
  for (const c::RunEvent& event : run.events) aggregate.add(event);
  aggregate.add_duplicates(run.outcome.duplicates);
  const c::Summary summary = aggregate.summary();
  if (summary.balance == c::Balance::unbalanced)
    world.violated("UNBALANCED",
                   summary.balance_lines.empty() ? "" : summary.balance_lines.front());
  if (!is_undisturbed) return;
  if (summary.verdict != c::Verdict::valid)
    world.violated("verdict", std::string(name(summary.verdict)) + ": " +
                                  (summary.reasons.empty() ? "" : summary.reasons.front()));
}

// A controller on an old copy of the store takes nothing from anybody.
void check_copies(Cluster& cluster) {
  for (const auto& controller : cluster.controllers()) {
    if (!controller->copied_at) continue;
    for (const auto& [id, run] : controller->file().runs) {
      const auto real = cluster.controller().file().runs.find(id);
      const bool has_more = real == cluster.controller().file().runs.end() ||
                            run.records.size() > real->second.records.size();
      if (has_more)
        cluster.world().violated("I12 one term writes", controller->name() + " has records of " +
                                                            id + " that the real store has not");
    }
    if (controller->has_taken_records())
      cluster.world().violated("I12 one term writes",
                               controller->name() + " took records, and its term is lower");
  }
}

// As the plan says, when its lease ended; the controller need not have heard of it yet.
bool has_ended_its_share(Cluster& cluster, const std::string& name) {
  return std::ranges::any_of(cluster.agents(), [&](const auto& agent) {
    const agent::Session* session = agent->session();
    return agent->name() == name && session != nullptr &&
           (session->state() == agent::Session::State::draining ||
            session->state() == agent::Session::State::delivering);
  });
}

// Leases that end before a change are renewed after it, if there is no room for its share and the
// others' before; one that may not come back after its lease is given none that ends so soon.
bool is_near_a_change(const c::RunInfo& info, Duration elapsed) {
  const bool goes_on = info.plan.on_controller_loss == OnControllerLoss::go_on;
  const Duration before = goes_on ? std::chrono::seconds(6) : c::lease_length(info.plan);
  const Duration after = goes_on ? std::chrono::seconds(3) : kLoadBackWithin;
  return std::ranges::any_of(info.changes, [&](const Change& change) {
    return change.at > elapsed - after && change.at < elapsed + before;
  });
}

// What an agent has to do at `elapsed`, however many of the changes it has made.
std::uint64_t least_connections(const c::RunInfo& info, std::size_t agent, Duration elapsed) {
  const auto planned = planned_timeline(info.plan, info.started_wall_ms);
  if (!planned) return 0;
  std::uint64_t least = UINT64_MAX;
  for (std::size_t n = 0; n <= info.changes.size(); ++n) {
    const Timeline timeline = changed_timeline(*planned, std::span(info.changes).first(n));
    const Parameters& due = timeline.epoch(timeline.epoch_at(elapsed)).shares.at(agent).parameters;
    least = std::min(least, due.paused ? 0 : due.load.connections);
  }
  return least;
}

}  // namespace

void check_load_back(Cluster& cluster) {
  World& world = cluster.world();
  cluster.target().settle();
  for (const auto& [id, run] : cluster.controller().file().runs) {
    const auto start = cluster.controller().starts().find(id);
    const c::Coordinator* coordinator = cluster.controller().coordinator();
    const c::LiveRun* live = coordinator ? coordinator->live_run(id) : nullptr;
    const bool is_live =
        run.info.state == c::RunState::armed || run.info.state == c::RunState::running;
    if (!live || !is_live || start == cluster.controller().starts().end()) continue;
    // After a reboot the controller asks agents for T, and waits for those that do not answer.
    const Moment unknown_until = cluster.controller().start_unknown_until();
    if (unknown_until != Moment{} && world.now() - unknown_until < kLoadBackWithin) continue;
    const Duration elapsed = world.now() - start->second;
    // The share of one whose copy was served is free, for the others as well, when that lease ends.
    // Nor is the room that one needs who cannot take a change: it is asked again every 30 s.
    if (has_clones(cluster, run) || cluster.controller().has_straggler(id)) continue;
    if (is_near_a_change(run.info, elapsed)) continue;
    // Agents' clocks need not agree on the end to the millisecond.
    if (elapsed < kLoadBackWithin || elapsed > run.info.plan.length() - std::chrono::seconds(1))
      continue;
    for (std::size_t i = 0; i < run.info.agents.size(); ++i) {
      const c::RunAgent& agent = run.info.agents[i];
      if (agent.last_seq || least_connections(run.info, i, elapsed) == 0) continue;
      if (has_ended_its_share(cluster, agent.name)) continue;
      if (cluster.load(id, agent.name).calling == 0)
        world.violated("I15 load is back", agent.name + " makes no calls");
    }
  }
}

void check_drained(Cluster& cluster) {
  // Of a live run: the interval that was just closed, cut where phases, epochs and the run end.
  constexpr std::size_t kUnderWay = 6;
  for (const auto& agent : cluster.agents()) {
    if (cluster.was_cloned(agent->name())) continue;  // held for as long, and not heard
    const agent::Session* session = agent->session();
    const std::size_t waiting = session ? session->spool().size() : 0;
    if (session == nullptr)
      cluster.world().violated("I14 backlog drains", agent->name() + " has not started again");
    if (waiting > kUnderWay)
      cluster.world().violated("I14 backlog drains",
                               agent->name() + " still has " + text(waiting) + " records");
  }
}

void check_laws(Cluster& cluster, bool is_undisturbed, Moment healed) {
  World& world = cluster.world();
  for (const auto& agent : cluster.agents()) {
    const agent::Session* session = agent->session();
    if (session == nullptr) continue;
    if (session->spool().size() > 0)
      world.violated("I14 backlog drains",
                     agent->name() + " still has " + text(session->spool().size()) + " records");
    if (session->state() != agent::Session::State::idle)
      world.violated("agents become free",
                     agent->name() + " is " + std::string(agent::name(session->state())));
  }
  for (const auto& [id, run] : cluster.controller().file().runs) {
    if (run.info.state != c::RunState::finished)
      world.violated("run closes", id + " is " + std::string(name(run.info.state)));
    const auto sums = check_records(cluster, run);
    if (run.info.agents.empty()) continue;
    check_truth(cluster, id, sums);
    check_changes(cluster, run, healed);
    if (std::ranges::none_of(run.info.agents, [&](const c::RunAgent& a) {
          return cluster.was_copy_served(id, a.name);
        }))
      check_balance(world, run, is_undisturbed);
  }
  check_copies(cluster);
  for (const std::string& id : cluster.accepted_runs())
    if (!cluster.controller().file().runs.contains(id))
      world.violated("acknowledged run is stored", id);
}

}  // namespace spate::sim
