// Random histories of a change book: agents that go away, return and are restarted, controllers
// that crash, messages that are late, lost and doubled. The seed of a failing one is printed;
// SPATE_SEED=N runs that one alone, with SPATE_SEEDS=M as many from there on.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "controller/change_book.h"

namespace spate::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kAgents = 4;
constexpr Duration kLease = seconds(20);
constexpr Duration kPhase = seconds(60);
constexpr Duration kNoise = seconds(240);  // then everything is healed
constexpr Duration kEnd = seconds(420);

// What an agent must be for the book: it prepares what it is sent, changes over when told, works
// only while its lease lives by its own clock.
struct Agent {
  ShareTimeline timeline;
  struct Tail {
    std::uint32_t epoch = 0;
    Duration from{};
    ShareTimeline timeline;
  };
  std::optional<Tail> prepared;
  std::uint32_t committed = 0;
  Instant lease_until{};
  Instant given_until{};  // by the book: a lease may be on its way
  std::uint32_t said_epoch = 1;
  std::uint64_t stream = 0;  // 0: none
  Instant away_since{};
  bool is_lost = false;

  std::uint32_t epoch_at(Duration at) const {
    std::uint32_t epoch = timeline.segments.front().epoch;
    for (const Segment& s : timeline.segments) {
      if (s.offset <= at) epoch = s.epoch;
    }
    return epoch;
  }
  std::uint64_t connections_at(Duration at) const {
    const std::uint32_t epoch = epoch_at(at);
    for (const EpochShare& share : timeline.epochs) {
      if (share.epoch == epoch) return share.parameters.load.connections;
    }
    return 0;
  }
  void commit(std::uint32_t epoch) {
    if (!prepared || prepared->epoch != epoch || epoch <= committed) return;
    committed = epoch;
    ShareTimeline merged;
    for (Segment s : timeline.segments) {
      if (s.offset >= prepared->from) break;
      s.length = std::min(s.length, prepared->from - s.offset);
      merged.segments.push_back(s);
      for (const EpochShare& share : timeline.epochs) {
        if (share.epoch == s.epoch &&
            (merged.epochs.empty() || merged.epochs.back().epoch != s.epoch))
          merged.epochs.push_back(share);
      }
    }
    for (const Segment& s : prepared->timeline.segments) merged.segments.push_back(s);
    for (const EpochShare& e : prepared->timeline.epochs) merged.epochs.push_back(e);
    timeline = std::move(merged);
  }
};

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    Plan plan;
    plan.agents = kAgents;
    plan.target.url = "grpc://127.0.0.1:7000";
    for (int i = 0; i < static_cast<int>(kEnd / kPhase); ++i) {
      Phase phase;
      phase.name = "p" + std::to_string(i);
      phase.length = kPhase;
      phase.load.connections = 100 + 100 * below(8);
      plan.phases.push_back(phase);
    }
    planned_ = *planned_timeline(plan, 0);
    goes_on_ = below(2) == 0;
    redistribute_ = below(2) == 0 ? Redistribute::after_fence : Redistribute::never;
    loss_percent_ = below(3);
    start_book();
    for (std::size_t i = 0; i < kAgents; ++i) {
      agents_[i].timeline = share_of(planned_, i);
      agents_[i].lease_until = start_ + kLease;
      agents_[i].stream = ++streams_;
    }
  }

  void run() {
    while (now_ < start_ + kEnd - seconds(1) && !testing::Test::HasFailure()) {
      now_ += milliseconds(20 + below(100));
      is_noisy_ = now_ < start_ + kNoise;
      if (is_noisy_) disturb();
      deliver();
      live();
      if (is_crashed_until_ == Instant{}) {
        act(book_->step(change_input::Tick{}, now_));
      } else if (now_ >= is_crashed_until_) {
        is_crashed_until_ = {};
        start_book();
      }
      check_law();
    }
    if (!testing::Test::HasFailure()) check_end();
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  Duration offset() const { return now_ - start_; }

  void start_book() {
    ChangeBook::Setup s;
    s.run = "run";
    s.agents = {"a", "b", "c", "d"};
    for (std::size_t i = 0; i < planned_.segments.size(); ++i) s.phases.emplace_back("p");
    s.planned = planned_;
    s.start = start_;
    s.start_wall_ms = 1'800'000'000'000;
    s.lease = kLease;
    s.goes_on_after_lease = goes_on_;
    s.redistribute = redistribute_;
    s.accepted = store_;
    s.is_adopted = now_ > start_;
    book_ = std::make_unique<ChangeBook>(s, now_);
  }

  // Things on their way.
  struct Message {
    Instant at;
    std::uint64_t stream;  // dies with it; 0: the store's
    std::function<void()> deliver;
  };
  void send(std::uint64_t stream, std::function<void()> deliver) {
    if (stream != 0 && broken_.contains(stream)) return;
    if (is_noisy_ && below(100) < loss_percent_) {
      // So is all that comes after it, and in the end both notice.
      broken_.insert(stream);
      for (std::size_t i = 0; i < kAgents; ++i) {
        if (agents_[i].stream == stream)
          messages_.push_back(
              {now_ + milliseconds(below(5000)), stream, [this, i] { go_away(i); }});
      }
      return;
    }
    const int copies = is_noisy_ && loss_percent_ > 0 && one_in(20) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const Duration delay = milliseconds(1 + below(is_noisy_ && one_in(10) ? 3000 : 50));
      Instant& at = last_of_[stream];  // in order
      at = std::max(at, now_ + delay);
      messages_.push_back({at, stream, deliver});
    }
  }
  void deliver() {
    std::vector<Message> due, rest;
    for (Message& m : messages_) (m.at <= now_ ? due : rest).push_back(std::move(m));
    messages_ = std::move(rest);
    for (Message& m : due) {
      const bool is_alive =
          m.stream == 0 || std::any_of(agents_.begin(), agents_.end(),
                                       [&](const Agent& a) { return a.stream == m.stream; });
      if (is_alive) m.deliver();
    }
  }

  void to_book(const ChangeInput& input) {
    if (is_crashed_until_ == Instant{}) act(book_->step(input, now_));
  }

  void act(const std::vector<ChangeAction>& actions) {
    for (const ChangeAction& action : actions) {
      if (const auto* s = std::get_if<change_action::Send>(&action)) {
        to_agent(s->agent, s->message);
      } else if (const auto* store = std::get_if<change_action::Store>(&action)) {
        // Committed after a while; the crash of the process before that undoes it.
        messages_.push_back(
            {now_ + milliseconds(1 + below(500)), 0, [this, change = store->change, life = life_] {
               if (life != life_) return;
               store_.push_back(change);
               to_book(change_input::Stored{change.epoch});
             }});
      } else if (const auto* answer = std::get_if<change_action::Answer>(&action)) {
        const std::string what = "order " + std::to_string(answer->ticket);
        const bool is_stored = std::any_of(store_.begin(), store_.end(),
                                           [&](const Change& c) { return c.what == what; });
        EXPECT_EQ(answer->answer.problems.empty(), is_stored) << what;
        ++(is_stored ? accepted : refused);
      }
    }
  }

  void to_agent(std::size_t i, const ControllerMessage& message) {
    const std::uint64_t stream = agents_[i].stream;
    if (stream == 0) return;
    if (const auto* p = std::get_if<SendEpochPrepare>(&message)) {
      // Some changes are too much for some agents, always.
      const bool is_refused = (p->epoch + i) % 11 == 0 && is_noisy_;
      send(stream, [this, i, stream, p = *p, is_refused] {
        std::vector<AgentProblem> problems;
        if (is_refused) problems.push_back({"cap", "too much", 2, 1});
        if (!is_refused && p.epoch > agents_[i].committed)
          agents_[i].prepared = Agent::Tail{p.epoch, p.from, p.timeline};
        send(stream, [this, i, p, problems] {
          to_book(change_input::Reply{i, p.epoch, problems});
        });
      });
    } else if (const auto* c = std::get_if<SendEpochCommit>(&message)) {
      send(stream, [this, i, c = *c] {
        Agent& agent = agents_[i];
        const std::uint32_t before = agent.committed;
        agent.commit(c.epoch);
        if (c.hold_from && agent.committed != before)
          agent.lease_until = std::min(agent.lease_until, start_ + *c.hold_from);
        agents_[i].said_epoch = 0;  // says it again
      });
    }
  }

  // What agents do by themselves: heartbeats, and their word when an epoch begins.
  void live() {
    for (std::size_t i = 0; i < kAgents; ++i) {
      Agent& agent = agents_[i];
      if (agent.stream == 0) {
        if (is_crashed_until_ != Instant{}) continue;
        if (!agent.is_lost && now_ - agent.away_since >= seconds(5)) {
          agent.is_lost = true;
          to_book(change_input::Lost{i});
        }
        if (one_in(is_noisy_ ? 300 : 20)) come_back(i);
        continue;
      }
      const std::uint32_t epoch = agent.epoch_at(offset());
      if (epoch != agent.said_epoch) {
        agent.said_epoch = epoch;
        send(agent.stream, [this, i, epoch] { to_book(change_input::Has{i, epoch}); });
      }
      if (one_in(10)) heartbeat(i);
      if (has_ended(agent)) go_away(i);
    }
  }

  // Without its lease.
  bool has_ended(const Agent& agent) const {
    return !goes_on_ && agent.lease_until != Instant{} && now_ >= agent.lease_until;
  }

  void heartbeat(std::size_t i) {
    const std::uint64_t stream = agents_[i].stream;
    send(stream, [this, i, stream, t1 = now_, committed = agents_[i].committed] {
      if (is_crashed_until_ != Instant{}) return;
      to_book(change_input::Has{i, committed});
      const Duration lease = book_->lease(i, now_);
      if (lease == Duration{}) return;
      agents_[i].given_until = std::max(agents_[i].given_until, t1 + lease);
      send(stream, [this, i, until = t1 + lease] {
        if (has_ended(agents_[i])) return;
        agents_[i].lease_until = std::max(agents_[i].lease_until, until);
      });
    });
  }

  void come_back(std::size_t i) {
    Agent& agent = agents_[i];
    agent.stream = ++streams_;
    agent.is_lost = false;
    if (one_in(3) || has_ended(agent)) {
      // Another process of it: it is given everything, and asks for a lease.
      agent.timeline = share_of(book_->timeline(), i);
      agent.prepared.reset();
      agent.committed = agent.timeline.epochs.back().epoch;
      agent.lease_until = agent.given_until = {};
      agent.said_epoch = agent.epoch_at(offset());
      to_book(change_input::Restarted{i});
      to_book(change_input::Back{i, agent.said_epoch, {}});
    } else {
      to_book(change_input::Back{i, agent.epoch_at(offset()), agent.committed});
    }
  }

  void go_away(std::size_t i) {
    if (agents_[i].stream == 0) return;
    agents_[i].stream = 0;
    agents_[i].away_since = now_;
    to_book(change_input::Away{i});
  }

  void disturb() {
    if (one_in(60)) order();
    if (one_in(150)) go_away(below(kAgents));
    if (one_in(700) && is_crashed_until_ == Instant{}) {
      for (std::size_t i = 0; i < kAgents; ++i) go_away(i);
      ++life_;
      book_.reset();
      is_crashed_until_ = now_ + milliseconds(below(60'000));
    }
  }

  void order() {
    ChangeOrder order;
    order.ticket = ++tickets_;
    order.change.what = "order " + std::to_string(order.ticket);
    order.change.who = "alice";
    const std::size_t parts = 1 + below(2);
    for (std::size_t p = 0; p < parts; ++p) {
      Change::Part part;
      if (one_in(2)) part.agents.push_back(static_cast<std::uint32_t>(below(kAgents)));
      part.patch.connections = below(1000);
      order.change.parts.push_back(part);
    }
    if (one_in(3)) order.at = offset() + milliseconds(below(60'000));
    to_book(change_input::Order{order});
  }

  // Never more than the run allows: while it changes over, the largest of the epochs since all
  // agents were on the same.
  void check_law() {
    std::uint64_t real = 0;
    bool is_settled = true;
    for (const Agent& agent : agents_) {
      if (now_ < agent.lease_until) real += agent.connections_at(offset());
      if (now_ >= std::max(agent.lease_until, agent.given_until)) continue;
      is_settled = is_settled && version_of(agent) == store_.size();
    }
    if (is_settled) settled_ = store_.size();
    std::uint64_t allowed = 0;
    for (std::size_t v = settled_; v <= store_.size(); ++v) {
      const Timeline& timeline = version(v);
      allowed = std::max(allowed, timeline.epoch(timeline.epoch_at(offset())).connections());
    }
    // A controller that was restarted does not know whose lease had ended before it: it takes
    // everybody to have one, and the account it keeps is never less than what is real.
    if (life_ == 0) {
      ASSERT_LE(real, allowed) << "at " << offset() / milliseconds(1) << " ms";
    }
    if (is_crashed_until_ != Instant{}) return;
    if (life_ == 0) {
      ASSERT_LE(book_->leased(now_), book_->allowed(now_));
    }
    ASSERT_GE(book_->leased(now_), real);
  }

  const Timeline& version(std::size_t v) {
    while (versions_.size() <= v) {
      versions_.push_back(versions_.empty()
                              ? planned_
                              : with_last_change(planned_, versions_.back(),
                                                 std::span(store_).first(versions_.size())));
    }
    return versions_[v];
  }
  std::size_t version_of(const Agent& agent) const {
    std::size_t v = 0;
    const std::uint32_t last = agent.timeline.segments.back().epoch;
    while (v < store_.size() && store_[v].epoch <= last) ++v;
    return v;
  }

  // Long after everything has healed: what was stored is in effect everywhere, and nothing else.
  void check_end() {
    const Timeline& timeline = version(store_.size());
    EXPECT_EQ(book_->timeline(), timeline);
    for (std::size_t i = 0; i < kAgents; ++i) {
      EXPECT_EQ(agents_[i].epoch_at(offset()), timeline.epoch_at(offset())) << "agent " << i;
      EXPECT_EQ(agents_[i].connections_at(offset()),
                timeline.epoch(timeline.epoch_at(offset())).shares[i].parameters.load.connections)
          << "agent " << i;
      EXPECT_GT(agents_[i].lease_until, now_) << "agent " << i << " may work";
    }
    EXPECT_EQ(book_->spread(now_), "");
    if (redistribute_ == Redistribute::after_fence) {
      for (const Change& change : store_) {
        if (change.absent) last_absent_ = *change.absent;
      }
      EXPECT_TRUE(last_absent_.empty()) << "everybody has its connections back";
    }
  }

 public:
  std::size_t accepted = 0;
  std::size_t refused = 0;
  std::size_t stored() const { return store_.size(); }

 private:
  std::mt19937 random_;
  const Instant start_ = from_ns(1'000'000'000'000);
  Instant now_ = start_;
  Timeline planned_;
  bool goes_on_ = false;
  Redistribute redistribute_ = Redistribute::never;
  std::size_t loss_percent_ = 0;
  bool is_noisy_ = true;
  std::unique_ptr<ChangeBook> book_;
  std::array<Agent, kAgents> agents_;
  std::vector<Message> messages_;
  std::set<std::uint64_t> broken_;            // streams
  std::map<std::uint64_t, Instant> last_of_;  // by stream
  std::vector<Change> store_;
  std::vector<Timeline> versions_;
  std::size_t settled_ = 0;
  std::vector<std::uint32_t> last_absent_;
  std::uint64_t streams_ = 0;
  std::uint64_t tickets_ = 0;
  std::uint64_t life_ = 0;  // of the controller
  Instant is_crashed_until_{};
};

TEST(ChangeBookHistoriesTest, TheLawHoldsAndEveryChangeIsEverywhereOrNowhere) {
  const char* wanted = std::getenv("SPATE_SEED");
  const char* many = std::getenv("SPATE_SEEDS");
  const auto number = [](const char* text) { return static_cast<unsigned>(std::stoul(text)); };
  const unsigned first = wanted != nullptr ? number(wanted) : std::random_device{}();
  const unsigned count = many != nullptr ? number(many) : wanted != nullptr ? 1 : 60;
  std::size_t accepted = 0, refused = 0, stored = 0;
  for (unsigned i = 0; i < count; ++i) {
    SCOPED_TRACE("SPATE_SEED=" + std::to_string(first + i));
    World world(first + i);
    world.run();
    accepted += world.accepted;
    refused += world.refused;
    stored += world.stored();
    if (HasFailure()) return;
  }
  if (wanted == nullptr) {
    EXPECT_GT(accepted, 100u);
    EXPECT_GT(refused, 10u);
    EXPECT_GE(stored, accepted);
  }
}

}  // namespace
}  // namespace spate::controller
