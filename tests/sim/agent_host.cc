#include "tests/sim/agent_host.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "agent/recovery.h"
#include "common/version.h"
#include "proto/wire.h"
#include "tests/sim/translate.h"

namespace spate::sim {

using namespace std::chrono_literals;
namespace a = spate::agent;
namespace fs = std::filesystem;

namespace {

// As agent/control_client.cc has them.
constexpr Duration kBackoffMin = 250ms;
constexpr Duration kBackoffMax = 5s;
constexpr Duration kRefusedBackoffMax = 15s;

}  // namespace

AgentHost::AgentHost(Outside outside, std::string name, MachineClock clock, std::string memory)
    : outside_(std::move(outside)),
      name_(std::move(name)),
      memory_(std::move(memory)),
      clock_(clock),
      link_(outside_.network.add_link()) {
  fs::create_directories(memory_);
  identity_.id = "id-of-" + name_;
  identity_.label = name_;
  World& world = outside_.world;
  if (!world.chance(0.4)) return;
  // Small enough to be merged.
  spool_limits_.bytes = static_cast<std::size_t>(world.random().between(2'000, 40'000));
  spool_limits_.window = 1 + world.pick(16);
}

AgentHost::~AgentHost() = default;

// --- the machine

void AgentHost::start_process() {
  if (process_ || is_discarded_) return;
  process_ = std::make_unique<Process>();
  process_->number = ++identity_.incarnation;
  outside_.world.tell(name_, "process starts incarnation=" + std::to_string(process_->number));
  if (!open_spool()) {
    // A process without its spool does not run; whoever started it tries again.
    process_.reset();
    outside_.world.after(5s, [this] { start_process(); });
    return;
  }
  a::Hello self;
  self.protocol = kProtocolVersion;
  self.version = kVersion;
  self.name = identity_.label;
  self.incarnation = process_->number;
  self.cpus = 2;
  self.max_descriptors = 1024;
  self.host = name_;
  self.agent_id = identity_.id;
  self.nonce = outside_.world.random()();
  process_->session = std::make_unique<a::Session>(self, *process_->spool, identity_);
  dial(0s);
}

bool AgentHost::open_spool() {
  process_->disk = std::make_unique<ModelDisk>(outside_.world, disk_);
  try {
    auto spool = a::Spool::open(*process_->disk, spool_limits_);
    if (!spool) {
      outside_.world.tell(name_, "does not start because=" + spool.error().message);
      return false;
    }
    process_->spool = *std::move(spool);
    const bool has_begun = begin();
    disk_.before.reset();
    return has_begun;
  } catch (const ProcessDied&) {
    outside_.world.tell(name_, "dies while it starts");
    return false;
  }
}

// As agent/main.cc does it.
bool AgentHost::begin() {
  std::vector<std::string> complaints;
  const auto left =
      a::left_behind(a::read_remains(memory_, complaints),
                     [&](const a::AccountKey& account) { return process_->spool->find(account); });
  for (const std::string& c : complaints) outside_.world.violated("what was open can be read", c);
  const auto begun = process_->spool->begin(process_->number, identity_.cause, left);
  if (!begun) {
    outside_.world.tell(name_, "does not start because=" + begun.error().message);
    return false;
  }
  a::remove_remains(memory_);
  for (const a::LeftBehind& l : left)
    outside_.world.tell(
        name_, "recovers open intervals incarnation=" + std::to_string(l.account.incarnation) +
                   " records=" + std::to_string(l.records.size()));
  return true;
}

// Before the process is gone: what no record will ever tell of.
void AgentHost::account_for_loss(bool is_power_cut) {
  if (is_power_cut) {
    for (const auto* counts : {&process_->undurable, &process_->sent_at_disk}) {
      for (const auto& [client, sent] : *counts) {
        Truth& truth = outside_.target.truth(client);
        truth.has_lost_counts = true;
        truth.may_be_lost += sent;
      }
    }
  }
  FakeCrew* crew = process_->crew.get();
  if (crew == nullptr) return;
  crew->release();
  Truth& truth = outside_.target.truth(crew->client());
  if (!is_power_cut && crew->is_all_in_slots()) return;
  truth.has_lost_counts = true;
  truth.may_be_lost += truth.sent - crew->handed_over();
}

// A process that is killed does not tidy up: its files stay, until the machine loses power.
void AgentHost::end_without_tidying(std::unique_ptr<Process> process, bool is_power_cut) {
  const std::string away = memory_ + ".kept";
  fs::rename(memory_, away);
  if (process->crew) process->crew->destroy();
  process.reset();
  if (is_power_cut) {
    fs::remove_all(away);
    fs::create_directories(memory_);
  } else {
    fs::rename(away, memory_);
  }
}

void AgentHost::kill(bool is_power_cut) {
  if (!process_) return;
  outside_.world.tell(name_, is_power_cut ? "loses power" : "is killed");
  account_for_loss(is_power_cut);
  if (process_->stream != 0)
    outside_.network.lose_end(process_->stream, Direction::to_controller, is_power_cut);
  end_without_tidying(std::move(process_), is_power_cut);
  identity_.cause = is_power_cut ? "power loss or reboot" : "killed";
  if (!is_power_cut) return;
  disk_.shelf.clear();
  if (disk_.before && outside_.world.chance(0.5)) disk_.chains = *std::move(disk_.before);
  disk_.before.reset();
  clock_.reboot(outside_.world.now());
}

void AgentHost::copy_disk(const AgentHost& other) {
  identity_ = other.identity_;
  spool_limits_ = other.spool_limits_;
  disk_.chains = other.disk_.chains;
  copied_incarnations_ = identity_.incarnation;
}

void AgentHost::discard() {
  kill(true);
  is_discarded_ = true;
  outside_.world.tell(name_, "is taken away");
  for (const DiskState::Chain& chain : disk_.chains) {
    const a::SpoolAccount& account = chain.account;
    if (account.key.incarnation <= copied_incarnations_) continue;
    Truth& truth = outside_.target.truth({account.key.run, account.agent, account.key.incarnation});
    truth.has_lost_counts = true;
    for (const auto& [seq, record] : chain.records)
      truth.may_be_lost += wire::from_bytes(record.second)->counters.sent;
  }
}

void AgentHost::freeze() {
  if (!process_ || process_->is_frozen) return;
  outside_.world.tell(name_, "is stopped (SIGSTOP)");
  if (process_->crew) process_->crew->freeze();
  process_->is_frozen = true;
}

void AgentHost::thaw() {
  if (!process_ || !process_->is_frozen) return;
  outside_.world.tell(name_, "goes on (SIGCONT)");
  process_->is_frozen = false;
  if (process_->crew) process_->crew->thaw();
  go_on();
}

// What has waited for the control thread.
void AgentHost::go_on() {
  const std::uint64_t number = process_->number;
  const auto can_go_on = [&] {
    return process_ && process_->number == number && !process_->is_busy();
  };
  while (can_go_on() && !process_->waiting.empty()) {
    const auto what = std::move(process_->waiting.front());
    process_->waiting.pop_front();
    what();
  }
}

void AgentHost::shut_down() {
  if (process_) in_process(process_->number, [this] { on_event(a::ShutdownRequested{}); });
}

void AgentHost::set_reaches_target(bool reaches) {
  if (process_ && process_->crew) process_->crew->settle();
  reaches_target_ = reaches;
}

void AgentHost::in_process(std::uint64_t number, std::function<void()> what) {
  if (!process_ || process_->number != number) return;
  if (process_->is_busy()) {
    process_->waiting.push_back(std::move(what));
    return;
  }
  what();
}

// --- the control loop

void AgentHost::on_event(a::Event event, std::uint64_t term) {
  const std::uint64_t number = process_->number;
  try {
    carry_out(std::move(event), term);
  } catch (const ProcessDied& death) {
    kill(death.is_power_cut);
  }
  if (process_ && process_->number == number) arm_timer();
}

void AgentHost::carry_out(a::Event event, std::uint64_t term) {
  // Also one in which nothing was sent may have outcomes.
  std::optional<std::uint64_t> sent;
  if (const auto* closed = std::get_if<a::IntervalClosed>(&event))
    sent = closed->record.counters.sent;
  a::Actions actions = process_->session->step(std::move(event), now(), term);
  if (sent) process_->undurable[process_->crew->client()] += *sent;
  const Duration at_disk = process_->disk->take_time_spent();
  if (at_disk > Duration::zero())
    for (const auto& [client, count] : process_->undurable) process_->sent_at_disk[client] += count;
  if (!process_->spool->in_trouble()) process_->undurable.clear();
  if (at_disk > Duration::zero() || process_->is_at_disk)
    wait_for_disk(at_disk, std::move(actions));
  else
    act_all({std::make_move_iterator(actions.begin()), std::make_move_iterator(actions.end())});
}

void AgentHost::act_all(std::deque<a::Action> actions) {
  const std::uint64_t number = process_->number;
  for (a::Action& action : actions) {
    std::visit([this](auto& one) { act(one); }, action);
    if (!process_ || process_->number != number) return;
  }
}

// What a step has committed is on the disk; what it does then comes late, or never.
void AgentHost::wait_for_disk(Duration time, a::Actions actions) {
  Process& process = *process_;
  const Moment begin = process.is_at_disk ? process.disk_done : outside_.world.now();
  process.is_at_disk = true;
  process.disk_done = begin + time;
  std::move(actions.begin(), actions.end(), std::back_inserter(process.after_disk));
  outside_.world.at(process.disk_done, [this, number = process.number] { leave_disk(number); });
}

void AgentHost::slow_disk(Duration commit_takes) {
  disk_.commit_takes = commit_takes;
  if (commit_takes > Duration::zero() || !process_) return;
  process_->disk->take_time_spent();
  if (!process_->is_at_disk) return;
  process_->disk_done = outside_.world.now();
  outside_.world.after(0s, [this, number = process_->number] { leave_disk(number); });
}

void AgentHost::leave_disk(std::uint64_t number) {
  if (!process_ || process_->number != number || !process_->is_at_disk) return;
  if (outside_.world.now() < process_->disk_done) return;  // another commit came after it
  process_->is_at_disk = false;
  process_->sent_at_disk.clear();
  disk_.before.reset();
  process_->waiting.push_front([this] { act_all(std::exchange(process_->after_disk, {})); });
  go_on();
}

void AgentHost::arm_timer() {
  const auto at = process_->session->wake_at();
  // An earlier timer that is due at the same instant does as well.
  if (at && *at == process_->timer_at) return;
  const std::uint64_t timer = ++process_->timer;
  process_->timer_at = at ? *at : Instant::max();
  if (!at) return;
  const Moment moment = clock_.when(*at, outside_.world.now());
  outside_.world.at(moment, [this, number = process_->number, timer] {
    in_process(number, [this, timer] {
      if (process_->timer != timer) return;
      process_->timer_at = Instant::max();
      on_event(a::Tick{});
    });
  });
}

// --- the control stream

void AgentHost::dial(Duration after) {
  const std::uint64_t number = process_->number;
  outside_.world.after(after,
                       [this, number] { in_process(number, [this, number] { dialled(number); }); });
}

void AgentHost::dialled(std::uint64_t number) {
  if (process_->stream != 0) return;
  Network& network = outside_.network;
  ControllerHost* controller = outside_.controller();
  const Network::StreamId stream = network.open(
      link_, {[this, number](Network::StreamId s, const std::string& why) {
        in_process(number, [this, s, why] { stream_down(s, why); });
      }},
      {[controller](Network::StreamId s, const std::string&) { controller->stream_closed(s); }});
  process_->stream = stream;
  process_->controller = controller;
  knock(stream, 0s);
}

// A packet that gets no answer is sent again after 1 s and after 3 s.
void AgentHost::knock(Network::StreamId stream, Duration waited) {
  Network& network = outside_.network;
  if (process_->stream != stream) return;
  if (network.is_open(link_)) return connect(stream);
  if (waited >= 3s) return network.fail_dial(stream, Network::kDialTimeout - waited, "timed out");
  const Duration again = waited == 0s ? 1s : 3s;
  outside_.world.after(again - waited, [this, number = process_->number, stream, again] {
    in_process(number, [this, stream, again] { knock(stream, again); });
  });
}

void AgentHost::connect(Network::StreamId stream) {
  Network& network = outside_.network;
  ControllerHost* controller = process_->controller;
  if (!controller->is_running())
    return network.fail_dial(stream, network.round_trip(link_), "connection refused");
  const auto hear = [this, number = process_->number, stream](
                        const controller::ControllerMessage& m, std::uint64_t term,
                        Instant replied) { heard(number, stream, m, term, replied); };
  network.send(stream, Direction::to_controller, [&network, controller, stream, hear] {
    if (controller->is_running())
      controller->stream_opened(stream, {hear});
    else
      network.lose_end(stream, Direction::to_agent, false);
  });
  on_event(a::StreamUp{});
}

void AgentHost::stream_down(Network::StreamId stream, const std::string& why) {
  if (process_->stream != stream) return;
  process_->stream = 0;
  outside_.world.tell(name_, "stream down because=" + why);
  dial_later(false);
  on_event(a::StreamDown{});
}

void AgentHost::dial_later(bool is_refused) {
  const Duration ceiling = std::min(is_refused ? kRefusedBackoffMax : kBackoffMax,
                                    kBackoffMin * (1 << std::min(process_->attempts, 10)));
  ++process_->attempts;
  dial(outside_.world.between(kBackoffMin / 2, ceiling));
}

void AgentHost::heard(std::uint64_t number, Network::StreamId stream,
                      const controller::ControllerMessage& message, std::uint64_t term,
                      Instant replied) {
  in_process(number, [this, stream, message, term, replied] {
    if (process_->stream != stream) return;
    if (!std::holds_alternative<controller::SendRejected>(message)) process_->attempts = 0;
    note(message);
    if (outside_.world.is_traced()) {
      const std::string text = describe(message);
      if (!text.empty()) outside_.world.tell(name_, "hears " + text);
    }
    std::visit([this, term](auto& m) { on_event(a::Event(std::move(m)), term); },
               *std::make_unique<a::ControllerMessage>(to_agent(message, replied, now())));
  });
}

void AgentHost::note(const controller::ControllerMessage& message) {
  if (const auto* prepare = std::get_if<controller::SendPrepare>(&message))
    process_->first_lease[prepare->run] = prepare->lease;
  if (const auto* start = std::get_if<controller::SendStart>(&message)) {
    // The first lease counts from T, or from now if that has passed.
    const Moment at =
        process_->controller->clock().when(from_ns(start->at_controller_ns), outside_.world.now());
    process_->start = at;
    process_->leased[start->run] = clock_.boottime(at) + process_->first_lease[start->run];
  }
  const auto* reply = std::get_if<controller::SendHeartbeatReply>(&message);
  if (reply == nullptr || reply->leased_run.empty()) return;
  Instant& until = process_->leased[reply->leased_run];
  until = std::max(until, from_ns(reply->t1_agent_ns) + reply->lease);
}

// All agents start at one instant, as well as their clocks can know it.
void AgentHost::check_start(Instant at) {
  const auto clock = process_->session->clock().estimate(now());
  if (!clock || process_->controller == nullptr) return;
  const Moment mine = clock_.when(at, outside_.world.now());
  const Moment wanted = process_->start;
  const Duration off = mine > wanted ? mine - wanted : wanted - mine;
  if (off > std::chrono::hours(1)) return;  // said by a clock of before a reboot
  // Until then the two clocks go on drifting, by 50 ppm each at most.
  const Duration drift = std::max(wanted - outside_.world.now(), 0ns) / 10'000;
  if (off > clock->bound + drift + 1ms && wanted > outside_.world.now())
    outside_.world.violated("start at T", name_ + " is off by " + seconds_text(off) +
                                              ", its clock's bound is " +
                                              seconds_text(clock->bound));
}

void AgentHost::act(a::Send& m) {
  if (process_->stream == 0) return;
  if (outside_.world.is_traced()) {
    const std::string text = describe(m.message);
    if (!text.empty()) outside_.world.tell(name_, "says " + text);
  }
  outside_.network.send(
      process_->stream, Direction::to_controller,
      [controller = process_->controller, stream = process_->stream, message = std::move(m.message),
       peer = name_]() mutable { controller->received(stream, std::move(message), peer); });
}

void AgentHost::act(a::Disconnect& m) {
  if (process_->stream == 0) return;
  outside_.world.tell(name_, "disconnects because=" + m.reason);
  outside_.network.close(process_->stream, Direction::to_controller);
  process_->stream = 0;
  dial_later(m.is_refused);
}

// --- the workers

void AgentHost::act(a::RunPreflight& m) {
  process_->checked = std::move(m.prepare);
  process_->agent_name = m.agent;
  const std::uint64_t number = process_->number;
  outside_.world.after(outside_.world.between(1ms, 200ms),
                       [this, number, run = process_->checked->run] {
                         in_process(number, [this, run] { on_event(a::PreflightDone{run, {}}); });
                       });
}

void AgentHost::act(a::OpenWorkers&) {
  const Client client{process_->checked->run, process_->agent_name, process_->number};
  const std::uint64_t number = process_->number;
  FakeCrew::Setting setting{
      outside_.world,
      clock_,
      outside_.target,
      memory_,
      [this] { return reaches_target_; },
      [this, number](std::function<void()> what) { in_process(number, std::move(what)); },
      [this](a::Event e) { on_event(std::move(e)); },
      [this, run = client.run](const Load& load) { outside_.load(run, load); }};
  process_->crew =
      std::make_shared<FakeCrew>(std::move(setting), *std::move(process_->checked), client);
  process_->checked.reset();
  if (copied_incarnations_ > 0) outside_.target.truth(client).is_of_a_copy = true;
  process_->crew->open();
}

void AgentHost::act(a::StartWorkersAt& m) {
  check_start(m.at);
  process_->crew->start_at(m.at, m.begin, m.drain);
}

void AgentHost::act(a::ReleaseIntervals& m) {
  if (process_->crew) process_->crew->release_intervals(m.taken);
}

void AgentHost::act(a::CheckChange& m) {
  const std::uint64_t number = process_->number;
  outside_.world.after(outside_.world.between(1ms, 200ms), [this, number, change = m.change] {
    in_process(number, [this, change] {
      if (outside_.world.chance(0.05)) {
        const a::Problem problem{"connections", "more than this agent's owner allows", 0, 0};
        on_event(a::ChangeChecked{change.run, change.epoch, {problem}});
        return;
      }
      process_->changes[change.epoch] = change.timeline;
      on_event(a::ChangeChecked{change.run, change.epoch, {}});
    });
  });
}

void AgentHost::act(a::ChangeWorkers& m) {
  process_->crew->change(process_->changes.at(m.epoch), m.epoch, m.at);
  process_->changes.erase(process_->changes.begin(), process_->changes.upper_bound(m.epoch));
}

void AgentHost::act(a::LeaseWorkers& m) {
  const std::string& run = process_->crew->client().run;
  const Instant granted = process_->leased[run];
  // Clocks drift until then, by 50 ppm each at most.
  if (m.until > granted + 1ms + std::max(m.until - now(), Duration{}) / 10'000)
    outside_.world.violated(
        "I10 no call after the lease",
        name_ + " takes " + seconds_text(m.until - granted) + " more than it was given");
  process_->crew->lease(m.until);
}

void AgentHost::act(a::StopWorkers& m) { process_->crew->stop(m.at, m.drain); }

void AgentHost::act(a::ReleaseWorkers&) {
  if (process_->crew) process_->crew->release();
  process_->crew.reset();
  process_->changes.clear();
}

void AgentHost::act(a::Say& m) { outside_.world.tell(name_, m.text); }

void AgentHost::act(a::Leave&) {
  outside_.world.tell(name_, "leaves");
  kill(false);
}

}  // namespace spate::sim
