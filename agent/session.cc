#include "agent/session.h"

#include <algorithm>
#include <utility>

#include "common/units.h"

namespace spate::agent {

namespace {

constexpr const char* kShutdownReason = "agent is shutting down";
constexpr const char* kLeaseReason = "the lease ended without a controller";

bool is_of_controller(const Event& event) {
  return std::visit(
      [](const auto& e) {
        using T = std::decay_t<decltype(e)>;
        return std::is_constructible_v<ControllerMessage, T> && !std::is_same_v<T, Rejected>;
      },
      event);
}

std::string silent_reason() {
  return "no controller was heard for " + format_duration(Session::kControllerSilentFor);
}

}  // namespace

std::string_view name(Session::State s) {
  switch (s) {
    case Session::State::idle:
      return "idle";
    case Session::State::checking:
      return "checking";
    case Session::State::opening:
      return "opening";
    case Session::State::armed:
      return "armed";
    case Session::State::running:
      return "running";
    case Session::State::draining:
      return "draining";
    case Session::State::delivering:
      return "delivering";
    case Session::State::left:
      return "left";
  }
  return "?";
}

Session::Session(Hello self, Spool& spool, TermBook& terms)
    : self_(std::move(self)), spool_(spool), terms_(terms) {}

Actions Session::step(Event event, Instant now, std::uint64_t term) {
  now_ = now;
  actions_.clear();
  if (state_ != State::left && accepts(event, term)) {
    std::visit([this](auto& e) { on(e); }, event);
    watch_spool();
  }
  return std::exchange(actions_, {});
}

// Whether a message comes from the controller in charge. Everything else does not ask.
bool Session::accepts(const Event& event, std::uint64_t term) {
  const Welcome* const welcome = std::get_if<Welcome>(&event);
  if (welcome && link_ == Link::greeting) cluster_ = welcome->cluster;
  const bool is_due = link_ == Link::up || (welcome && link_ == Link::greeting);
  if (!is_due || cluster_.empty() || !is_of_controller(event)) return true;
  const std::uint64_t highest = terms_.highest(cluster_);
  if (term < highest) {
    drop_link("term " + std::to_string(term) + " superseded by " + std::to_string(highest) +
              ": another controller of this cluster has taken over");
    return false;
  }
  if (term == highest && terms_.last_cluster() == cluster_) return true;
  const auto kept = terms_.keep(cluster_, term);
  if (!kept) drop_link("its term cannot be kept: " + kept.error().message);
  return kept.has_value();
}

std::optional<Instant> Session::wake_at() const {
  std::optional<Instant> at;
  const auto due = [&at](Instant t) { at = at ? std::min(*at, t) : t; };
  if (state_ == State::left) return at;

  if (link_ == Link::greeting) due(link_since_ + kLinkSilentFor);
  if (link_ == Link::up) {
    due(beat_due_);
    due(heard_at_ + kLinkSilentFor);
  }
  if (hold_until_) due(*hold_until_);
  if (ended_until_) due(*ended_until_);
  if (retry_spool_at_) due(*retry_spool_at_);
  if (shutting_down_) due(shutdown_ends_at_);
  if (state_ == State::checking || state_ == State::opening || state_ == State::armed)
    due(heard_at_ + kControllerSilentFor);
  if (state_ == State::running && !run_.held && run_.leased_until != Instant::max())
    due(run_.leased_until);
  if (state_ == State::opening) due(run_.opening_since + kArmAfter);
  if (state_ == State::running || state_ == State::draining) {
    due(run_.overdue_at);
    if (run_.first_request && !run_.started_said && is_clock_known_well())
      due(run_.begin + kStartedAfter);
  }
  return at;
}

// --- the link

void Session::on(const StreamUp&) {
  link_ = Link::greeting;
  link_since_ = hello_at_ = now_;
  clock_.restart();
  Hello hello = self_;
  hello.running = run();
  hello.cluster = terms_.last_cluster();
  hello.term = terms_.highest(hello.cluster);
  if (state_ != State::idle) {
    hello.epoch = run_.epochs.epoch_at(since_start());
    hello.committed = run_.epochs.committed();
  }
  if (has_started()) hello.run_start = run_.start;
  const auto announce = [&hello](const std::vector<SpoolAccount>& accounts, bool waiting) {
    for (const SpoolAccount& a : accounts)
      hello.accounts.push_back({a.key.run, a.key.incarnation, a.last_seq, a.cause, waiting});
  };
  announce(spool_.accounts(), true);
  announce(spool_.empty_accounts(), false);
  // The only thing that is said before the Welcome.
  actions_.push_back(Send{std::move(hello)});
}

void Session::on(const StreamDown&) {
  link_ = Link::down;
  link_since_ = now_;
  hold_until_.reset();
  ended_until_.reset();
  spool_.stream_down();
  run_.finished_said = false;
  // They are told again.
  run_.told_start.reset();
  run_.committed_early.clear();
}

void Session::drop_link(std::string reason) {
  on(StreamDown{});
  actions_.push_back(Disconnect{std::move(reason), false});
}

void Session::on(const Welcome& m) {
  if (link_ != Link::greeting) return;
  link_ = Link::up;
  link_since_ = now_;
  heard();
  self_.name = m.name.empty() ? self_.name : m.name;
  beat_every_ = m.heartbeat > Duration::zero() ? m.heartbeat : Duration(std::chrono::seconds(1));
  burst_left_ = kBurst;
  beat();
  spool_.stream_up(cluster_);
  if (spool_.holds_back()) hold_until_ = now_ + kResumeHold;

  switch (state_) {
    case State::idle:
      if (!last_finished_said_) send(*last_finished_);
      last_finished_said_ = true;
      break;
    case State::checking:
      break;  // the reply comes when the pre-flight is done
    case State::opening:
      send(PrepareReply{run_.id, {}, run_.max_rate_per_s});
      break;
    case State::armed:
      send(PrepareReply{run_.id, {}, run_.max_rate_per_s});
      arm();
      break;
    case State::running:
    case State::draining:
    case State::delivering:
      run_.started_said = false;  // said again when the clock is known
      if (run_.applied) send(*run_.applied);
      say(Say::Level::info, "run resumed run=" + run_.id +
                                " state=" + std::string(agent::name(state_)) +
                                " records_waiting=" + std::to_string(spool_.living()));
      break;
    case State::left:
      break;
  }
  pump();
}

void Session::on(const Rejected& m) {
  if (link_ == Link::down) return;
  on(StreamDown{});
  actions_.push_back(Disconnect{"rejected: " + m.reason, true});
}

void Session::on(const HeartbeatReply& m) {
  if (link_ != Link::up) return;
  heard();
  clock_.add(m);
  answered_beat_ = m.sent;
  if (burst_left_ > 0) {
    --burst_left_;
    beat();
  }
  begin_when_clock_is_known();
  if (is_started_due()) say_started();
  if (m.lease > Duration::zero() && is_current(m.leased_run)) renew_lease(m.sent + m.lease);
}

void Session::beat() {
  const auto e = clock_.estimate(now_);
  const bool has_run = state_ == State::armed || state_ == State::running;
  send(Heartbeat{now_,
                 e ? e->offset : Duration::zero(),
                 e ? e->bound : Duration(-1),
                 spool_.trouble(),
                 has_run ? run_.epochs.certain(since_start()) : 0,
                 {}});
  beat_due_ = now_ + beat_every_;
}

void Session::send(AgentMessage message) {
  if (link_ == Link::up) actions_.push_back(Send{std::move(message)});
}

void Session::say(Say::Level level, std::string text) {
  actions_.push_back(Say{level, std::move(text)});
}

// --- before the start

void Session::refuse(const std::string& run, Problem problem) {
  say(Say::Level::warning,
      "run refused run=" + run + " because=" + problem.what + " " + problem.text);
  send(PrepareReply{run, {std::move(problem)}});
}

void Session::refuse_without_spool(const std::string& run) {
  refuse(run, {"spool",
               "agent " + self_.name + " cannot keep what it would count: " + spool_.trouble()});
}

void Session::on(Prepare& m) {
  if (link_ != Link::up) return;
  heard();
  if (shutting_down_) return refuse(m.run, {"busy", "agent " + self_.name + " is shutting down"});
  if (is_current(m.run)) return;  // asked twice; the answer is on its way or was given
  if (spool_.in_trouble()) return refuse_without_spool(m.run);
  if (state_ == State::delivering) make_way();
  if (state_ != State::idle)
    return refuse(m.run, {"busy", "agent " + self_.name + " is busy with run " + run_.id + " (" +
                                      std::string(agent::name(state_)) +
                                      "); stop that run first, or wait for its end"});

  spool_.open_account({m.run, self_.incarnation}, self_.name, cluster_);
  if (spool_.in_trouble()) return refuse_without_spool(m.run);

  run_ = Run{};
  run_.id = m.run;
  run_.agent = self_.name;
  const Parameters first =
      m.timeline.epochs.empty() ? Parameters{} : m.timeline.epochs.front().parameters;
  run_.threads = first.threads;
  run_.drain = m.drain;
  run_.epochs = EpochBook(m.timeline.segments);
  run_.on_controller_loss = m.on_controller_loss;
  run_.first_lease = m.lease;
  state_ = State::checking;
  say(Say::Level::info, "run prepared run=" + m.run + " target=" + first.target_url +
                            " workers=" + std::to_string(first.threads));
  actions_.push_back(RunPreflight{std::move(m), self_.name});
}

void Session::on(const PreflightDone& e) {
  if (state_ != State::checking || e.run != run_.id) return;  // of a run given up meanwhile
  run_.max_rate_per_s = e.max_rate_per_s;
  send(PrepareReply{e.run, e.problems, e.max_rate_per_s});
  if (!e.problems.empty()) {
    for (const Problem& p : e.problems)
      say(Say::Level::warning, "run refused run=" + e.run + " because=" + p.what + " " + p.text);
    state_ = State::idle;
    run_ = Run{};
    return;
  }
  state_ = State::opening;
  run_.opening_since = now_;
  actions_.push_back(OpenWorkers{});
}

void Session::on(const WorkersOpening& e) {
  if (state_ != State::opening && state_ != State::armed) return;
  run_.opening = e;
  if (state_ == State::opening && e.settled) arm();
}

void Session::arm() {
  const WorkersOpening& o = run_.opening;
  if (state_ == State::opening)
    say(o.established == o.requested ? Say::Level::info : Say::Level::warning,
        "run armed run=" + run_.id + " connections=" + std::to_string(o.established) + "/" +
            std::to_string(o.requested));
  state_ = State::armed;
  send(Armed{run_.id, o.established, o.requested, o.errors});
}

void Session::on(const Start& m) {
  if (link_ != Link::up) return;
  heard();
  if (!is_current(m.run)) {
    send(Finished{m.run, 0, "not prepared on agent " + self_.name});
    return;
  }
  if (state_ == State::opening) arm();  // the controller does not want to wait for the rest
  if (state_ != State::armed)
    return;  // started already; or a Start before our reply, which is void
  run_.told_start = m.at;
  run_.told_after = answered_beat_.value_or(hello_at_);
  begin_when_clock_is_known();
}

// The start is an instant of the controller's clock; a stream that has just come up has not shown
// it.
void Session::begin_when_clock_is_known() {
  if (state_ != State::armed || !run_.told_start) return;
  if (!is_clock_known_well()) return;
  if (const auto at = clock_.to_agent(*run_.told_start, now_)) begin_at(*at);
}

// A start in the past is joined in the middle: time counts from there all the same.
void Session::begin_at(Instant start) {
  const Instant begin = start >= now_ ? start : now_ + kJoinLead;
  if (begin >= start + run_.epochs.end())
    return abandon("the run was over when this agent was to start");
  state_ = State::running;
  run_.start = start;
  run_.begin = begin;
  run_.drain_ends_at = start + run_.epochs.end() + run_.drain;
  run_.overdue_at = run_.drain_ends_at + kOverdueAfter;
  const auto e = clock_.estimate(now_);
  say(Say::Level::info, "run starts run=" + run_.id +
                            " in=" + format_latency((begin - now_).count()) +
                            " at=" + format_duration(begin - start) +
                            " clock_bound=" + format_latency(e ? e->bound.count() : 0));
  actions_.push_back(StartWorkersAt{start, begin, run_.drain});
  begin_lease();
  for (const EpochCommit& early : std::exchange(run_.committed_early, {})) change_over(early);
}

// Nothing was sent: the run ends here without a record.
void Session::abandon(const std::string& reason) {
  if (state_ != State::checking) actions_.push_back(ReleaseWorkers{});
  run_.end_reason = reason;
  say(Say::Level::info, "run given up before its start run=" + run_.id + " because=" + reason);
  last_finished_said_ = link_ == Link::up;
  send(Finished{run_.id, 0, reason});
  end_run();
}

// --- under load

void Session::on(const FirstRequest& e) {
  if (state_ != State::running && state_ != State::draining) return;
  run_.first_request = run_.first_request ? std::min(*run_.first_request, e.at) : e.at;
  if (++run_.first_requests >= run_.threads && !run_.started_said) say_started();
}

bool Session::is_clock_known_well() const {
  const auto clock = clock_.estimate(now_);
  return clock && (burst_left_ == 0 || clock->bound <= kGoodBound);
}

void Session::say_started() {
  if (!is_clock_known_well()) return;
  const auto at = clock_.to_controller(*run_.first_request, now_);
  if (!at) return;
  run_.started_said = true;
  send(Started{run_.id, *at, clock_.estimate(now_)->bound});
}

void Session::on(IntervalClosed& e) {
  if (state_ != State::running && state_ != State::draining) return;
  if (run_.first_request && !run_.started_said) say_started();
  if (spool_.add(std::move(e.record), e.taken))
    actions_.push_back(ReleaseIntervals{std::move(e.taken)});
  pump();
}

void Session::stop(Duration drain, const std::string& reason) {
  // A moment ahead, so that the stop is one instant for all workers.
  const Instant at = drain == Duration::zero() ? now_ : now_ + kStopLead;
  if (state_ == State::running && at <= run_.begin) return abandon(reason);
  if (state_ == State::running && at < run_.start + run_.epochs.end()) run_.end_reason = reason;
  if (state_ == State::draining && at + drain >= run_.drain_ends_at) return;  // only ever shorter
  if (state_ == State::running)
    say(Say::Level::info,
        "run stops run=" + run_.id + " drain=" + format_duration(drain) + " because=" + reason);
  state_ = State::draining;
  run_.drain_ends_at = std::min(run_.drain_ends_at, at + drain);
  run_.overdue_at = run_.drain_ends_at + kOverdueAfter;
  run_.is_overdue = false;
  actions_.push_back(StopWorkers{at, drain});
}

void Session::on(const Stop& m) {
  if (link_ != Link::up) return;
  heard();
  if (!is_current(m.run)) {
    // Whoever asks waits for an answer.
    if (last_finished_ && last_finished_->run == m.run)
      send(*last_finished_);
    else
      send(Finished{m.run, 0, "not running on agent " + self_.name});
    return;
  }
  // A controller that only knows that this must end names no mark.
  hold_until_.reset();
  spool_.release_held();
  switch (state_) {
    case State::checking:
    case State::opening:
    case State::armed:
      return abandon("stopped");
    case State::running:
    case State::draining:
      stop(std::max(m.drain, Duration::zero()), "stopped");
      break;
    case State::delivering:
      run_.finished_said = false;
      break;
    case State::idle:
    case State::left:
      break;
  }
  pump();
}

// --- changes

void Session::refuse_change(const std::string& run, std::uint32_t epoch, Problem problem) {
  say(Say::Level::warning, "change refused run=" + run + " epoch=" + std::to_string(epoch) +
                               " because=" + problem.what + " " + problem.text);
  send(EpochReply{run, epoch, {std::move(problem)}});
}

void Session::on(EpochPrepare& m) {
  if (link_ != Link::up) return;
  heard();
  const bool is_live =
      state_ == State::opening || state_ == State::armed || state_ == State::running;
  if (!is_current(m.run) || !is_live)
    return refuse_change(
        m.run, m.epoch,
        {"busy", "agent " + self_.name + " has no part in run " + m.run +
                     " that could change; it is " + std::string(agent::name(state_))});
  if (m.epoch <= run_.epochs.committed()) return send(EpochReply{m.run, m.epoch, {}});
  run_.epochs.prepare(m.epoch, m.from, m.timeline.segments);
  actions_.push_back(CheckChange{std::move(m)});
}

void Session::on(const ChangeChecked& e) {
  if (!is_current(e.run)) return;  // of a run that has ended meanwhile
  if (!e.problems.empty()) {
    run_.epochs.drop(e.epoch);
    for (const Problem& p : e.problems)
      say(Say::Level::warning, "change refused run=" + e.run + " epoch=" + std::to_string(e.epoch) +
                                   " because=" + p.what + " " + p.text);
  }
  run_.epochs.checked(e.epoch);
  send(EpochReply{e.run, e.epoch, e.problems});
}

void Session::on(const EpochCommit& m) {
  if (link_ != Link::up) return;
  heard();
  if (!is_current(m.run)) return;
  if (m.epoch <= run_.epochs.committed()) {
    // Said again because the answer was lost, or is still to come; or it was in the timeline that
    // this agent began with.
    if (run_.applied && run_.applied->epoch >= m.epoch)
      send(*run_.applied);
    else if (m.epoch <= run_.epochs.given() && has_started())
      send(EpochApplied{m.run, m.epoch, run_.begin - run_.start});
    return;
  }
  if (state_ != State::opening && state_ != State::armed && state_ != State::running) return;
  const EpochBook::Prepared* const change = run_.epochs.find(m.epoch);
  if (!change || !change->is_checked)
    return refuse_change(
        m.run, m.epoch,
        {"plan", "epoch " + std::to_string(m.epoch) + " is not prepared on agent " + self_.name +
                     "; it has to be prepared first"});
  if (state_ == State::running)
    change_over(m);
  else if (std::ranges::find(run_.committed_early, m.epoch, &EpochCommit::epoch) ==
           run_.committed_early.end())
    run_.committed_early.push_back(m);
}

// A moment ahead if its instant has passed, so that it is one instant for all workers, and no
// worker's past.
void Session::change_over(const EpochCommit& commit) {
  const EpochBook::Prepared* const change = run_.epochs.find(commit.epoch);
  if (!change) return;  // before the start more were prepared than are kept
  const Instant at = std::max({run_.start + change->from, run_.begin, now_ + kChangeLead});
  run_.epochs.commit(commit.epoch, at - run_.start);
  say(Say::Level::info, "run changes run=" + run_.id + " epoch=" + std::to_string(commit.epoch) +
                            " at=" + format_duration(at - run_.start));
  // First: the workers must not do what it forbids.
  if (commit.hold_from)
    shorten_lease(run_.start + std::clamp(*commit.hold_from, Duration{}, run_.epochs.end()));
  actions_.push_back(ChangeWorkers{commit.epoch, at});
}

void Session::on(const ChangedOver& e) {
  if (state_ != State::running && state_ != State::draining) return;
  run_.applied = EpochApplied{run_.id, e.epoch, e.at - run_.start};
  send(*run_.applied);
}

// --- the lease

// The first one begins with the start. If that is past, the controller counts from when it told us,
// which was after the last heartbeat that it had answered then.
void Session::begin_lease() {
  if (run_.first_lease <= Duration::zero()) return;
  const auto clock = clock_.estimate(now_);
  const Instant from =
      run_.start >= now_ ? run_.start - (clock ? clock->bound : Duration::zero()) : run_.told_after;
  run_.leased_until = from + run_.first_lease;
  // One that is over by then says that the run has no room yet; there will be some.
  run_.held = run_.leased_until <= run_.begin;
  actions_.push_back(LeaseWorkers{run_.leased_until});
}

void Session::renew_lease(Instant until) {
  if (state_ != State::running || run_.leased_until == Instant::max()) return;
  if (until <= run_.leased_until) return;
  run_.leased_until = until;
  actions_.push_back(LeaseWorkers{until});
  if (!run_.held || now_ >= until) return;
  run_.held = false;
  say(Say::Level::info, "lease renewed run=" + run_.id + " then=requests go on");
}

void Session::shorten_lease(Instant until) {
  if (until >= run_.leased_until) return;
  run_.leased_until = until;
  actions_.push_back(LeaseWorkers{until});
}

// The workers know by themselves.
void Session::lease_ended() {
  switch (run_.on_controller_loss) {
    case OnControllerLoss::go_on:
      run_.held = true;
      say(Say::Level::warning, "lease ended run=" + run_.id +
                                   " then=connections stay, and no request is sent until a "
                                   "controller renews it");
      break;
    case OnControllerLoss::drain:
      return stop(run_.drain, kLeaseReason);
    case OnControllerLoss::stop:
      return stop(Duration::zero(), kLeaseReason);
  }
}

void Session::on(const WorkersDrained&) {
  if (state_ == State::running || state_ == State::draining) begin_delivery();
}

// --- afterwards

void Session::begin_delivery() {
  actions_.push_back(ReleaseWorkers{});
  if (run_.first_request && !run_.started_said) say_started();
  state_ = State::delivering;
  if (shutting_down_) shutdown_ends_at_ = now_ + kDeliverFor;
  say(Say::Level::info, "run drained run=" + run_.id + " records_waiting=" +
                            std::to_string(spool_.living()) + " reason=" + run_.end_reason);
  pump();
}

// The next run need not wait for the records of this one: they are in the spool.
void Session::make_way() {
  say(Say::Level::info,
      "run makes way run=" + run_.id + " records_in_spool=" + std::to_string(spool_.living()));
  if (!run_.finished_said) send(Finished{run_.id, spool_.last_seq(), run_.end_reason});
  last_finished_said_ = true;
  end_run();
}

void Session::pump() {
  if (link_ != Link::up) return;
  while (auto record = spool_.next()) send(*std::move(record));
  if (spool_.ended_on_wire() == 0)
    ended_until_.reset();
  else if (!ended_until_)
    ended_until_ = now_ + kDeliverFor;
  if (state_ == State::delivering && spool_.waiting() == 0 && !run_.finished_said) {
    send(Finished{run_.id, spool_.last_seq(), run_.end_reason});
    run_.finished_said = true;
  }
  finish_if_delivered();
}

void Session::on(const RecordAck& m) {
  if (link_ != Link::up) return;
  heard();
  const AccountKey account{m.run, m.incarnation};
  const bool is_living = is_current(m.run) && m.incarnation == self_.incarnation;
  const auto known = spool_.find(account);
  const bool is_taken = spool_.acknowledge(account, m.seq);
  if (known && m.seq > known->frozen)
    say(Say::Level::warning, std::string("acknowledgement ") +
                                 (is_taken ? "of what a copy of this agent sent" : "ignored") +
                                 " run=" + m.run + " incarnation=" + std::to_string(m.incarnation) +
                                 " seq=" + std::to_string(m.seq) +
                                 " last_sent=" + std::to_string(known->frozen));
  if (!is_taken) return;
  if (!is_living) ended_until_.reset();
  if (!spool_.holds_back()) hold_until_.reset();
  pump();
}

void Session::finish_if_delivered() {
  if (state_ != State::delivering || !run_.finished_said || spool_.living() > 0) return;
  say(Say::Level::info,
      "run delivered run=" + run_.id + " records=" + std::to_string(spool_.last_seq()));
  last_finished_said_ = true;
  end_run();
}

void Session::end_run() {
  last_finished_ = Finished{run_.id, spool_.last_seq(), run_.end_reason};
  run_ = Run{};
  state_ = State::idle;
  if (shutting_down_) leave();
}

// --- the spool's disk

void Session::watch_spool() {
  if (!spool_.in_trouble() || retry_spool_at_) return;
  retry_spool_at_ = now_ + kSpoolRetry;
  say(Say::Level::warning, "spool in trouble because=" + spool_.trouble() +
                               " then=intervals are added up in memory until it works again");
}

void Session::heal_spool() {
  if (!retry_spool_at_ || now_ < *retry_spool_at_) return;
  retry_spool_at_ = now_ + kSpoolRetry;
  if (!spool_.retry()) return;
  retry_spool_at_.reset();
  say(Say::Level::info, "spool works again records=" + std::to_string(spool_.size()));
  pump();
}

void Session::on(const ShutdownRequested&) {
  if (shutting_down_) return;
  shutting_down_ = true;
  shutdown_ends_at_ = now_ + kShutdownDrain + kStopLead + kDeliverFor;
  switch (state_) {
    case State::idle:
      return leave();
    case State::checking:
    case State::opening:
    case State::armed:
      return abandon(kShutdownReason);
    case State::running:
    case State::draining:
      return stop(kShutdownDrain, kShutdownReason);
    case State::delivering:
      shutdown_ends_at_ = now_ + kDeliverFor;
      return;
    case State::left:
      return;
  }
}

void Session::leave() {
  if (state_ == State::running || state_ == State::draining) actions_.push_back(ReleaseWorkers{});
  if (spool_.in_trouble()) spool_.retry();
  actions_.push_back(Leave{spool_.size()});
  state_ = State::left;
}

// --- time

void Session::on(const Tick&) {
  tick_link();
  heal_spool();
  if (hold_until_ && now_ >= *hold_until_) {
    hold_until_.reset();
    spool_.release_held();
    pump();
  }
  if (ended_until_ && now_ >= *ended_until_) {
    ended_until_.reset();
    spool_.set_aside_ended();
    say(Say::Level::warning, "records of earlier runs are not acknowledged, and stay in the spool");
    pump();
  }
  tick_run();
  if (shutting_down_ && state_ != State::left && now_ >= shutdown_ends_at_) leave();
}

void Session::tick_link() {
  const std::string limit = format_duration(kLinkSilentFor);
  if (link_ == Link::greeting && now_ - link_since_ >= kLinkSilentFor)
    return drop_link("no welcome within " + limit);
  if (link_ != Link::up) return;
  if (now_ - heard_at_ >= kLinkSilentFor) return drop_link("controller silent for " + limit);
  if (now_ >= beat_due_) beat();
}

void Session::tick_run() {
  switch (state_) {
    case State::checking:
      if (silent_too_long()) abandon(silent_reason());
      break;
    case State::opening:
      if (silent_too_long()) return abandon(silent_reason());
      if (now_ - run_.opening_since >= kArmAfter) arm();
      break;
    case State::armed:
      if (silent_too_long()) abandon(silent_reason());
      break;
    case State::running:
      if (!run_.held && now_ >= run_.leased_until) lease_ended();
      [[fallthrough]];
    case State::draining:
      if (is_started_due()) say_started();
      if (now_ < run_.overdue_at) break;
      // The process may have been stopped until a moment ago, and its workers with it.
      if (!std::exchange(run_.is_overdue, true)) {
        run_.overdue_at = now_ + kLastLook;
      } else {
        run_.end_reason =
            "workers did not end within " + format_duration(kOverdueAfter) + " after the drain";
        begin_delivery();
      }
      break;
    case State::idle:
    case State::delivering:
    case State::left:
      break;
  }
}

}  // namespace spate::agent
