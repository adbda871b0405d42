#include "controller/coordinator.h"

#include <algorithm>

// What agents say: streams, then one function per message, in the order of agent_events.h.

namespace spate::controller {

using Severity = RunEvent::Severity;

void Coordinator::on(event::StreamOpened& e, Instant now) { silent_streams_[e.stream] = now; }

void Coordinator::on(event::StreamClosed& e, Instant now) {
  silent_streams_.erase(e.stream);
  const AgentEntry* agent = registry_.find(e.stream);
  if (agent == nullptr) return;
  log(Severity::info, "agent stream broke agent=" + agent->name);
  registry_.stream_broke(e.stream, now);
}

void Coordinator::on(event::FromAgent& e, Instant now) {
  if (auto* hello = std::get_if<AgentHello>(&e.message)) {
    said_hello(e.stream, *hello, now);
    return;
  }
  const AgentEntry* agent = registry_.find(e.stream);
  if (agent == nullptr) {
    close(e.stream, "the first message must be a hello");
    return;
  }
  registry_.seen(e.stream, now);
  const Speaker who{e.stream, agent->name, agent->id, agent->hello.incarnation};
  std::visit([&](auto& m) { said(who, m, now); }, e.message);
}

namespace {

std::string identity(const AgentHello& hello) {
  return hello.agent_id + ' ' + hello.name + ' ' + hello.peer;
}

std::string clock_differs(const AgentEntry& agent) {
  return "clock differs from the controller's agent=" + agent.name +
         " by=" + shown_step(agent.clock_off);
}

}  // namespace

// Whether a refusal is worth a line of the log.
bool Coordinator::is_news(const AgentHello& hello, const std::string& refusal, Instant now) {
  if (refusals_.size() >= kMaxRefusals) refusals_.clear();
  Refusal& last = refusals_[identity(hello)];
  if (last.cause == refusal && now - last.logged_at < kRefusalAgainAfter) return false;
  last = {refusal, now};
  return true;
}

void Coordinator::said_hello(StreamId stream, const AgentHello& hello, Instant now) {
  silent_streams_.erase(stream);
  if (registry_.find(stream) != nullptr) {
    close(stream, "a second hello on one stream");
    return;
  }
  if (hello.cluster == cluster_ && hello.term > term_) {
    superseded(hello.term,
               "another host: agent " + hello.name + " at " + hello.peer + " has seen it");
    return;
  }
  Registry::Admission admission;
  admission.refusal = wrong_cluster(hello);
  if (admission.refusal.empty()) admission.refusal = outdated(hello);
  if (admission.refusal.empty())
    admission = registry_.hello(stream, hello, now, names_in_runs(), stranger(hello, now));
  if (!admission.accepted) {
    if (is_news(hello, admission.refusal, now)) {
      log(admission.is_copied ? Severity::error : Severity::warning,
          "agent refused agent=" + hello.name + " peer=" + hello.peer + " cause=\"" +
              admission.refusal + "\"");
    }
    if (admission.is_copied) hold_copies(hello, admission, now);
    send(stream, SendRejected{admission.refusal});
    close(stream, admission.refusal);
    return;
  }
  refusals_.erase(identity(hello));
  log(Severity::info, std::string("agent ") + (admission.is_back ? "back" : "joined") +
                          " agent=" + admission.name + " host=" + hello.host +
                          " version=" + hello.version + " cpus=" + std::to_string(hello.cpus));
  if (admission.replaced)
    close(*admission.replaced, "replaced by a newer stream of the same agent");
  send(stream, SendWelcome{admission.name, kHeartbeatInterval, cluster_});
  const AgentEntry& agent = *registry_.find(stream);
  // An agent without an id is not known again: the process before it is lost.
  if (admission.restarted && hello.agent_id.empty()) {
    lose(admission.name + "#" + std::to_string(*admission.restarted), *admission.restarted,
         "it was restarted", now);
  }
  resume({stream, agent.name, agent.id, hello.incarnation}, hello, now);
  agents_changed(now);
}

std::string Coordinator::wrong_cluster(const AgentHello& hello) const {
  if (hello.cluster.empty() || hello.cluster == cluster_) return "";
  const std::string other = "another controller (cluster " + hello.cluster.substr(0, 8) + ")";
  if (!hello.running.empty()) {
    return "agent " + hello.name + " is at work on run " + hello.running + " for " + other +
           ": stop that run there, or wait for its end";
  }
  const auto waiting = std::ranges::find_if(hello.accounts, &AgentAccount::waiting);
  if (waiting == hello.accounts.end()) return "";
  return "agent " + hello.name + " has records of run " + waiting->run + " for " + other +
         " that were not delivered: connect it there once, or give it another state folder "
         "(--state)";
}

// Of one folder's processes the later one has a share: this one cannot follow it.
std::string Coordinator::outdated(const AgentHello& hello) {
  for (const LiveRun* run : live_runs_of(hello.agent_id)) {
    const RunAgent& member = *run->run().member(hello.agent_id);
    if (member.incarnation <= hello.incarnation) continue;
    return "agent " + member.name + " at " + hello.peer + " is start " +
           std::to_string(hello.incarnation) + " of its state folder, and start " +
           std::to_string(member.incarnation) + " has its share of run " + run->id() +
           ": it runs from an old copy of the folder; give it an empty one (--state), or remove "
           "the copy";
  }
  return "";
}

std::string Coordinator::stranger(const AgentHello& hello, Instant now) {
  for (const LiveRun* run : live_runs_of(hello.agent_id)) {
    if (!run->is_of_a_copy(hello, now)) continue;
    return "start " + std::to_string(hello.incarnation) + " does not know of start " +
           std::to_string(run->run().member(hello.agent_id)->incarnation) +
           ", which has its share of run " + run->id() +
           " and may be at work: there are copies of one state folder, or its spool was removed; "
           "neither is served before that one's lease has ended";
  }
  return "";
}

// Both of them: the one that was there first is as likely to be the copy.
void Coordinator::hold_copies(const AgentHello& hello, const Registry::Admission& admission,
                              Instant now) {
  for (LiveRun* run : live_runs_of(hello.agent_id)) {
    run->log(Severity::error, "identity used twice agent=" + admission.name, now);
    if (admission.replaced)
      send(*admission.replaced, SendStop{run->id(), Duration{}, admission.refusal});
    run->step(run_input::Lost{admission.name, admission.refusal}, now);
  }
  if (!admission.replaced) return;
  send(*admission.replaced, SendRejected{admission.refusal});
  close(*admission.replaced, admission.refusal);
}

Registry::Reserved Coordinator::names_in_runs() const {
  Registry::Reserved names;
  for (const auto& [id, run] : live_) {
    for (const RunAgent& agent : run->run().info().agents) names[agent.name] = agent.agent_id;
  }
  return names;
}

// An agent learns where we are with its runs: what is stored of each of its processes' records, and
// what it has to do in the one that is live.
void Coordinator::resume(const Speaker& who, const AgentHello& hello, Instant now) {
  const std::vector<LiveRun*> runs = live_runs_of(who.id);
  const auto live = [&](const std::string& id) {
    const auto it =
        std::find_if(runs.begin(), runs.end(), [&](const LiveRun* r) { return r->id() == id; });
    return it == runs.end() ? nullptr : *it;
  };
  // In the order in which they were.
  std::vector<AgentAccount> accounts = hello.accounts;
  std::ranges::sort(accounts, {}, &AgentAccount::incarnation);
  for (const AgentAccount& account : accounts) {
    if (LiveRun* run = live(account.run)) {
      run->step(run_input::Account{who.name, account}, now);
      run->acknowledge(who.name, account.incarnation);
    } else {
      if (auto dead = closed_runs_.bury(account, who.id)) {
        log(Severity::warning, "agent died unseen agent=" + dead->agent + " run=" + dead->run +
                                   " cause=\"" + dead->dead.cause + "\"");
        actions_.emplace_back(action::Write{*std::move(dead)});
      }
      acknowledge_closed(who, account.run, account.incarnation);
    }
  }
  for (LiveRun* run : runs) {
    const bool has_run = run->id() == hello.running;
    if (has_run) run->acknowledge(who.name, who.incarnation);
    if (!run->run().has_member(who.id, who.incarnation)) {
      run->step(run_input::Restarted{who.name, who.incarnation, has_run}, now);
      if (!has_run) continue;
    }
    // Only the process that has the share is asked what became of it.
    if (run->run().has_member(who.id, who.incarnation))
      run->step(run_input::Back{who.name, has_run}, now);
  }
  if (hello.running.empty() || live(hello.running) != nullptr) return;
  acknowledge_closed(who, hello.running, who.incarnation);
  tell_to_stop(who, hello.running);
}

void Coordinator::tell_to_stop(const Speaker& who, const std::string& run) {
  send(who.stream, SendStop{run, Duration{}, "the run has ended for this controller"});
  log(Severity::warning,
      "agent told to stop agent=" + who.name + " run=" + run + " cause=\"not live here\"");
}

void Coordinator::acknowledge_closed(const Speaker& who, const std::string& run,
                                     std::uint64_t incarnation) {
  const std::string name = closed_runs_.name_of(run, who.id);
  send(who.stream, SendRecordAck{run, incarnation,
                                 closed_runs_.committed_mark(run, name.empty() ? who.name : name,
                                                             incarnation)});
}

void Coordinator::said(const Speaker& who, AgentHeartbeat& m, Instant now) {
  tell_news(who, registry_.heartbeat(who.stream, m, now), now);
  SendHeartbeatReply reply{m.t1_agent_ns, m.t2_controller_ns};
  for (LiveRun* run : live_runs_of(who.id)) {
    learn_start(*run, *registry_.find(who.stream), now);
    if (run->run().has_member(who.id, who.incarnation)) run->heard_of_epoch(who.id, m.certain, now);
    const Duration lease = run->lease(who.id, who.incarnation, now);
    if (lease == Duration{}) continue;
    reply.leased_run = run->id();
    reply.lease = lease;
  }
  send(who.stream, std::move(reply));
}

void Coordinator::tell_news(const Speaker& who, const Registry::News& news, Instant now) {
  const auto tell = [&](Severity severity, const std::string& text) {
    log(severity, text);
    for (LiveRun* run : live_runs_of(who.id)) run->log(severity, text, now);
  };
  const AgentEntry& agent = *registry_.find(who.stream);
  if (news.clock_step != Duration{}) {
    tell(Severity::warning,
         "clock stepped agent=" + who.name + " by=" + shown_step(news.clock_step));
  }
  if (news.is_clock_off_new && agent.clock_off != Duration{}) {
    tell(Severity::warning, clock_differs(agent));
  } else if (news.is_clock_off_new) {
    tell(Severity::info, "clock agrees with the controller's again agent=" + who.name);
  }
  if (news.is_trouble_new && agent.trouble.empty()) {
    tell(Severity::info, "spool works again agent=" + who.name);
  } else if (news.is_trouble_new) {
    tell(Severity::warning,
         "spool in trouble agent=" + who.name + " cause=\"" + agent.trouble + "\"");
  }
}

// After a reboot of this machine the agents know the run's T by clocks that went on.
void Coordinator::learn_start(LiveRun& run, const AgentEntry& agent, Instant now) {
  const bool can_tell = !run.run().is_start_known() && agent.hello.running == run.id() &&
                        agent.hello.run_start_agent_ns != 0 && agent.offset_bound_ns >= 0;
  if (can_tell)
    run.step(run_input::StartKnown{from_ns(agent.hello.run_start_agent_ns + agent.offset_ns)}, now);
}

void Coordinator::said(const Speaker& who, AgentPrepareReply& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who))
    run->step(run_input::PrepareReply{who.name, std::move(m.problems), m.max_rate_per_s}, now);
}

void Coordinator::said(const Speaker& who, AgentArmed& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who)) {
    // It may have been told before there was this run.
    const AgentEntry& agent = *registry_.find(who.stream);
    if (agent.clock_off != Duration{}) run->log(Severity::warning, clock_differs(agent), now);
    return run->step(run_input::Armed{who.name, m}, now);
  }
  // Its run ended while it got ready: nobody will start it.
  if (!live_.contains(m.run)) tell_to_stop(who, m.run);
}

void Coordinator::said(const Speaker& who, AgentStarted& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who))
    run->step(run_input::Started{who.name, m.at_controller_ns, m.offset_bound_ns}, now);
}

void Coordinator::said(const Speaker& who, AgentFinished& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who))
    run->step(run_input::Finished{who.name, m.last_seq, m.reason}, now);
}

void Coordinator::said(const Speaker& who, AgentRecord& m, Instant now) {
  const RecordKey& key = m.record.key;
  const auto it = live_.find(key.run);
  if (it == live_.end()) {
    take_late(who, m);
    return;
  }
  // An agent delivers what its earlier processes left, too.
  const RunAgent* member = it->second->run().member(who.id);
  if (member == nullptr || member->name != key.agent || key.incarnation > who.incarnation) {
    close(who.stream, "a record in the name of another agent");
    return;
  }
  it->second->take(who.name, std::move(m), now);
}

// For a run that has ended: stored as well, so that its report is complete.
void Coordinator::take_late(const Speaker& who, AgentRecord& m) {
  const RecordKey key = m.record.key;
  switch (closed_runs_.offer(m, who.id)) {
    case ClosedRuns::Ruling::store:
      actions_.emplace_back(
          action::Write{store_op::PutRecord{std::move(m.record), std::move(m.bytes), true}});
      return;
    case ClosedRuns::Ruling::acknowledge:
      send(who.stream,
           SendRecordAck{key.run, key.incarnation,
                         closed_runs_.committed_mark(key.run, key.agent, key.incarnation)});
      return;
    case ClosedRuns::Ruling::unknown_run:
      log(Severity::warning, "record dropped agent=" + who.name + " run=" + key.run +
                                 " seq=" + std::to_string(key.seq) +
                                 " cause=\"it is none of this store's latest runs\"");
      send(who.stream, SendRecordAck{key.run, key.incarnation, key.seq});
      return;
    case ClosedRuns::Ruling::not_its_own:
      close(who.stream, "a record in the name of another agent");
      return;
  }
}

void Coordinator::said(const Speaker& who, AgentEpochReply& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who)) run->epoch_replied(who.name, std::move(m), now);
}

void Coordinator::said(const Speaker& who, AgentEpochApplied& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who)) run->epoch_applied(who.name, m, now);
}

void Coordinator::said(const Speaker& who, AgentNonsense& m, Instant now) {
  log(Severity::error, "agent cut off agent=" + who.name + " cause=\"" + m.reason + "\"");
  for (LiveRun* run : live_runs_of(who.id)) {
    run->log(Severity::error,
             "agent sent nonsense agent=" + who.name + " cause=\"" + m.reason + "\"", now);
  }
  close(who.stream, m.reason);
}

void Coordinator::lose(const std::string& id, std::uint64_t incarnation, const std::string& cause,
                       Instant now) {
  for (LiveRun* run : live_runs_of(id)) {
    const RunAgent& member = *run->run().member(id);
    log(Severity::warning,
        "agent lost agent=" + member.name + " run=" + run->id() + " cause=\"" + cause + "\"");
    if (member.incarnation == incarnation) run->step(run_input::Lost{member.name, cause}, now);
  }
}

LiveRun* Coordinator::live_run_of(const std::string& run, const Speaker& who) {
  const auto it = live_.find(run);
  if (it == live_.end() || !it->second->run().has_member(who.id, who.incarnation)) return nullptr;
  return it->second.get();
}

std::vector<LiveRun*> Coordinator::live_runs_of(const std::string& agent_id) {
  std::vector<LiveRun*> runs;
  for (const auto& [id, run] : live_) {
    if (run->run().member(agent_id) != nullptr) runs.push_back(run.get());
  }
  return runs;
}

std::string Coordinator::busy_with(const AgentEntry& agent) const {
  for (const auto& [id, run] : live_) {
    if (run->run().member(agent.id) != nullptr) return id;
  }
  return "";
}

}  // namespace spate::controller
