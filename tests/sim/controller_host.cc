#include "tests/sim/controller_host.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tests/sim/translate.h"

namespace spate::sim {

using namespace std::chrono_literals;
namespace c = spate::controller;

namespace {

constexpr Duration kTick = 100ms;

// As controller/store_restore.cc reads it from the real one.
c::Restored::Run unfinished(const std::string& id, const StoreFile::Run& run) {
  c::Restored::Run one;
  one.info = run.info;
  one.descriptor_set = run.descriptor_set;
  one.duplicates = run.outcome.duplicates;
  one.aggregate = std::make_unique<c::Aggregate>(run.info);
  for (const auto& [key, seq] : run.marks) one.marks.push_back({id, key.first, key.second, seq});
  std::vector<const Record*> records;
  for (const auto& put : run.records) records.push_back(&put->record);
  std::stable_sort(records.begin(), records.end(), [](const Record* a, const Record* b) {
    return std::tie(a->key.agent, a->key.incarnation, a->key.seq) <
           std::tie(b->key.agent, b->key.incarnation, b->key.seq);
  });
  for (const Record* record : records) {
    one.aggregate->add(*record);
    one.finished_requests += record->finished();
    if (record->drain) continue;
    Duration& covered = one.covered_to[record->key.agent];
    covered = std::max(covered, record->start + record->length);
  }
  for (const auto& sample : run.samples) one.aggregate->add(sample);
  for (const auto& event : run.events) one.aggregate->add(event);
  one.aggregate->add_duplicates(run.outcome.duplicates);
  return one;
}

c::Restored restored_from(const StoreFile& file) {
  c::Restored restored;
  restored.cluster = file.cluster;
  restored.term = file.term;
  restored.alive_wall_ms = file.alive_wall_ms;
  for (const std::string& id : file.order) {
    const StoreFile::Run& run = file.runs.at(id);
    if (run.info.state != c::RunState::finished) {
      restored.runs.push_back(unfinished(id, run));
      continue;
    }
    c::Restored::Closed closed;
    closed.run = id;
    closed.agents = c::holders_of(run.info);
    for (const auto& [key, seq] : run.marks)
      closed.marks.push_back({id, key.first, key.second, seq});
    restored.closed.push_back(std::move(closed));
  }
  return restored;
}

}  // namespace

ControllerHost::ControllerHost(World& world, Network& network, FakeTarget& target, std::string name,
                               MachineClock clock)
    : world_(world), network_(network), target_(target), name_(std::move(name)), clock_(clock) {}

ControllerHost::~ControllerHost() {
  if (process_) process_->store->die();
}

// --- the machine

void ControllerHost::start_process() {
  if (process_) return;
  world_.tell(name_, "process starts");
  process_ = std::make_unique<Process>();
  refusals_.clear();  // an epoch's number that was refused is given again by another process
  if (file_.cluster.empty()) file_.cluster = name_ + "-cluster";
  const std::uint64_t number = process_->number = ++processes_;
  const auto post = [this, number](auto make_event) {
    return [this, number, make_event](auto... arguments) {
      in_process(number, [this, event = make_event(std::move(arguments)...)] { step(event); });
    };
  };
  process_->store = std::make_shared<ModelStore>(
      world_, file_, faults_,
      ModelStore::Callbacks{
          post([](std::vector<c::Mark> marks) -> c::Event { return c::event::Committed{marks}; }),
          post([](std::string why) -> c::Event { return c::event::StoreInTrouble{why}; }),
          post([]() -> c::Event { return c::event::StoreRecovered{}; }),
          post([](std::uint64_t term) -> c::Event { return c::event::StoreTakenOver{term}; })});
  process_->term = file_.term;
  c::Coordinator::Config config;
  config.boot_id = name_ + "-" + std::to_string(boots_);
  config.wall_ms = clock_.wall_ms(world_.now());
  process_->coordinator =
      std::make_unique<c::Coordinator>(std::move(config), restored_from(file_), now());
  tick(number);
}

void ControllerHost::kill(bool is_power_cut) {
  if (!process_) return;
  world_.tell(name_, is_power_cut ? "loses power" : "is killed");
  process_->store->die();
  for (const auto& [stream, end] : process_->streams)
    network_.lose_end(stream, Direction::to_agent, is_power_cut);
  process_.reset();
  if (!is_power_cut) return;
  clock_.reboot(world_.now());
  ++boots_;
}

void ControllerHost::freeze() {
  if (!process_ || process_->is_frozen) return;
  world_.tell(name_, "is stopped (SIGSTOP)");
  process_->is_frozen = true;
}

void ControllerHost::thaw() {
  if (!process_ || !process_->is_frozen) return;
  world_.tell(name_, "goes on (SIGCONT)");
  process_->is_frozen = false;
  const std::uint64_t number = process_->number;
  for (auto& what : std::exchange(process_->while_frozen, {})) in_process(number, std::move(what));
}

void ControllerHost::in_process(std::uint64_t number, std::function<void()> what) {
  if (!process_ || process_->number != number) return;
  if (process_->is_frozen) {
    process_->while_frozen.push_back(std::move(what));
    return;
  }
  what();
}

// --- the control loop

void ControllerHost::step(c::Event event) {
  Process& process = *process_;
  process.events.push_back(std::move(event));
  if (process.is_handling) return;
  process.is_handling = true;
  const std::uint64_t number = process.number;
  while (!process.events.empty()) {
    c::Event next = std::move(process.events.front());
    process.events.pop_front();
    for (c::Action& action : process.coordinator->step(std::move(next), now())) {
      std::visit([this](auto& a) { act(a); }, action);
      if (!process_ || process_->number != number) return;  // it has ended
    }
  }
  process.is_handling = false;
  for (const auto& [id, run] : file_.runs) {
    const c::LiveRun* live = process.coordinator->live_run(id);
    if (live && !live->run().is_start_known()) start_unknown_until_ = world_.now();
  }
}

void ControllerHost::tick(std::uint64_t number) {
  step(c::event::Tick{});
  world_.after(kTick, [this, number] { in_process(number, [this, number] { tick(number); }); });
}

// --- agents

void ControllerHost::stream_opened(Network::StreamId stream, AgentEnd end) {
  in_process(process_->number, [this, stream, end = std::move(end)] {
    process_->streams[stream] = end;
    step(c::event::StreamOpened{stream});
  });
}

void ControllerHost::stream_closed(Network::StreamId stream) {
  if (!process_) return;
  in_process(process_->number, [this, stream] {
    if (process_->streams.erase(stream) > 0) step(c::event::StreamClosed{stream});
  });
}

void ControllerHost::received(Network::StreamId stream, agent::AgentMessage message,
                              const std::string& peer) {
  if (!process_) return;
  in_process(process_->number, [this, stream, message = std::move(message), peer]() mutable {
    const auto* reply = std::get_if<agent::EpochReply>(&message);
    // One that has no part in the run any more cannot serve it either, and need not.
    const bool is_heard = process_->streams.contains(stream);
    if (is_heard && reply != nullptr && !reply->problems.empty() &&
        reply->problems.front().what != "busy") {
      refusals_.push_back({reply->run, reply->epoch, process_->hellos[stream].agent_id});
      const auto run = file_.runs.find(reply->run);
      if (run != file_.runs.end() &&
          std::ranges::any_of(run->second.info.changes,
                              [&](const Change& change) { return change.epoch == reply->epoch; }))
        stragglers_.insert(reply->run);
    }
    if (const auto* hello = std::get_if<agent::Hello>(&message)) {
      // Another process of it is asked anew.
      if (hello->running.empty())
        std::erase_if(refusals_, [&](const Refusal& r) { return r.agent_id == hello->agent_id; });
      process_->hellos[stream] = *hello;
    }
    if (is_heard) step(c::event::FromAgent{stream, to_controller(std::move(message), now(), peer)});
  });
}

// An identity is one process at a time; the same start of it is the same process.
void ControllerHost::check_welcome(Network::StreamId stream) {
  const agent::Hello& hello = process_->hellos.at(stream);
  const auto [first, is_new] =
      process_->welcomed.try_emplace({hello.agent_id, hello.incarnation}, hello.nonce);
  if (!is_new && first->second != hello.nonce)
    world_.violated("a copied agent is not served", "two processes are " + hello.agent_id + "/" +
                                                        std::to_string(hello.incarnation));
}

// I1: what is acknowledged is stored, before the word leaves.
void ControllerHost::check_acknowledgement(Network::StreamId stream, const c::SendRecordAck& ack) {
  const c::AgentEntry* agent = process_->coordinator->registry().find(stream);
  const auto run = file_.runs.find(ack.run);
  if (agent == nullptr || run == file_.runs.end()) return;  // a run of another store
  const auto mark = run->second.marks.find({agent->name, ack.incarnation});
  const std::uint64_t stored = mark == run->second.marks.end() ? 0 : mark->second;
  if (ack.seq > stored)
    world_.violated("I1 acknowledged is stored",
                    agent->name + "/" + std::to_string(ack.incarnation) + " acknowledged " +
                        std::to_string(ack.seq) + ", stored " + std::to_string(stored));
}

// A change is made whole, or not at all.
void ControllerHost::check_change(const c::store_op::PutChange& put) {
  for (const Refusal& refusal : refusals_)
    if (refusal.run == put.run && refusal.epoch == put.change.epoch)
      world_.violated("a change that one refuses is not made",
                      "epoch " + std::to_string(refusal.epoch) + " is made, and was refused");
}

void ControllerHost::act(c::action::Send& a) {
  const auto it = process_->streams.find(a.stream);
  if (it == process_->streams.end()) return;
  if (std::holds_alternative<c::SendWelcome>(a.message)) check_welcome(a.stream);
  if (const auto* ack = std::get_if<c::SendRecordAck>(&a.message))
    check_acknowledgement(a.stream, *ack);
  if (const auto* start = std::get_if<c::SendStart>(&a.message))
    starts_[start->run] = world_.now() + (from_ns(start->at_controller_ns) - now());
  network_.send(a.stream, Direction::to_agent,
                [end = it->second, message = std::move(a.message), term = process_->term,
                 replied = now()] { end.hear(message, term, replied); });
}

void ControllerHost::act(c::action::CloseStream& a) {
  if (process_->streams.erase(a.stream) == 0) return;
  world_.tell(name_, "closes stream reason=" + a.reason);
  network_.close(a.stream, Direction::to_agent);
  step(c::event::StreamClosed{a.stream});
}

// --- store and target

void ControllerHost::act(c::action::Write& a) {
  if (const auto* put = std::get_if<c::store_op::PutChange>(&a.op)) check_change(*put);
  has_taken_records_ = has_taken_records_ || std::holds_alternative<c::store_op::PutRecord>(a.op);
  process_->store->put(std::move(a.op));
}

void ControllerHost::act(c::action::Barrier& a) {
  const std::uint64_t number = process_->number;
  process_->store->when_committed([this, number, barrier = a.barrier] {
    in_process(number, [this, barrier] { step(c::event::BarrierPassed{barrier}); });
  });
}

void ControllerHost::act(c::action::StartSampling& a) {
  Sampler& s = process_->samplers[a.run];
  s = {a.run, a.start, a.interval, ++samplers_};
  sample(process_->number, a.run, s.number);
}

void ControllerHost::sample(std::uint64_t number, const std::string& run, std::uint64_t sampler) {
  in_process(number, [this, number, run, sampler] {
    const auto it = process_->samplers.find(run);
    if (it == process_->samplers.end() || it->second.number != sampler) return;
    const Sampler& s = it->second;
    const Instant next =
        now() < s.start ? s.start : s.start + ((now() - s.start) / s.interval + 1) * s.interval;
    world_.at(clock_.when(next, world_.now()),
              [this, number, run, sampler] { sample(number, run, sampler); });
    c::event::Sampled e{run, {}, "", now(), false};
    if (target_.is_up() && reaches_target)
      e.sample = target_.sample(run);
    else
      e.error = "no answer";
    step(std::move(e));
  });
}

void ControllerHost::act(c::action::TakeFinalSample& a) {
  process_->samplers.erase(a.run);
  const std::uint64_t number = process_->number;
  world_.after(world_.between(1ms, 20ms), [this, number, run = a.run] {
    in_process(number, [this, run] {
      c::event::Sampled e{run, {}, "", now(), true};
      if (target_.is_up() && reaches_target)
        e.sample = target_.sample(run);
      else
        e.error = "no answer";
      step(std::move(e));
    });
  });
}

void ControllerHost::act(c::action::StopSampling& a) { process_->samplers.erase(a.run); }

void ControllerHost::act(c::action::Log& a) { world_.tell(name_, a.text); }

void ControllerHost::act(c::action::Exit& a) {
  world_.tell(name_, "exits code=" + std::to_string(a.code) + " reason=" + a.reason);
  last_exit_ = a.code;
  const std::uint64_t number = process_->number;
  process_->store->when_committed([this, number] {
    if (process_ && process_->number == number) kill(false);
  });
}

// --- operators

void ControllerHost::submit(c::SubmitOrder order, Answer answer) {
  if (!listens()) return;
  const c::Token token = ++tokens_;
  process_->answers[token] = std::move(answer);
  step(c::event::Submit{token, std::move(order), clock_.wall_ms(world_.now()), world_.random()()});
}

void ControllerHost::act(c::action::AnswerSubmit& a) {
  const auto it = process_->answers.find(a.token);
  if (it == process_->answers.end()) return;
  const Answer answer = std::move(it->second);
  process_->answers.erase(it);
  if (answer) answer(a.answer);
}

void ControllerHost::change(c::ChangeRequest request) {
  if (listens())
    step(c::event::ChangeRun{++tokens_, std::move(request), clock_.wall_ms(world_.now())});
}

void ControllerHost::act(c::action::AnswerChange& a) {
  if (a.answer.problems.empty())
    world_.tell("operator",
                "has changed epoch=" + std::to_string(a.answer.epoch) + " what=" + a.answer.what);
  else
    world_.tell("operator", "cannot change because=" + a.answer.problems.front());
}

void ControllerHost::stop(const std::string& run, bool at_once) {
  if (listens()) step(c::event::Stop{++tokens_, run, at_once});
}

}  // namespace spate::sim
