#include "controller/controller.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <random>
#include <thread>

#include "controller/closed_runs.h"
#include "controller/control_service.h"
#include "controller/live_run.h"
#include "controller/operator_service.h"
#include "controller/orders.h"
#include "controller/registry.h"
#include "controller/report.h"
#include "controller/run_reader.h"
#include "rpc/grpc_settings.h"
#include "spdlog/spdlog.h"

// Orientation: construction; what agents say (one function per message); what time does (tick);
// what operators ask; the end. Everything but create() and shut_down() runs on the control loop.

namespace spate::controller {
namespace {

namespace asio = boost::asio;

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kHelloDeadline = std::chrono::seconds(10);
constexpr auto kServerShutdownDeadline = std::chrono::seconds(2);

std::uint64_t draw() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

class Controller::Impl {
 public:
  explicit Impl(const rpc::TlsFiles& tls)
      : tls_(tls),
        guard_(loop_.get_executor()),
        tick_timer_(loop_),
        control_(loop_, {[this](StreamId s) { opened(s); },
                         [this](StreamId s, AgentMessage m) { received(s, std::move(m)); },
                         [this](StreamId s) { closed(s); }}),
        operator_(loop_, operator_handlers()) {}

  ~Impl() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    if (shutdown_thread_.joinable()) shutdown_thread_.join();
  }

  Result<void> open(const Endpoint& listen, const std::string& store_path) {
    auto store = Store::open(store_path, store_callbacks());
    if (!store) return store.error();
    store_ = std::move(*store);
    reader_ = std::make_unique<RunReader>(loop_, store_path);
    for (const std::string& run : store_->crashed_runs()) {
      spdlog::warn("run closed as crashed run={}", run);
      closed_runs_.add(run, {});
    }
    for (const Mark& mark : store_->marks_of_crashed()) closed_runs_.restore(mark);

    grpc::ServerBuilder builder;
    int port = 0;
    if (auto configured = rpc::configure_server(builder, listen, tls_, &port); !configured)
      return configured.error();
    builder.RegisterService(&control_.service());
    builder.RegisterService(&operator_.service());
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) {
      return Error{
          ErrorCode::io,
          "cannot listen on " + listen.to_string() +
              ": is another program using the port, or is the address not this machine's?"};
    }
    listening_on_ = {listen.host, static_cast<std::uint16_t>(port)};
    return {};
  }

  void run() {
    schedule_tick();
    loop_.run();
  }

  void shut_down() {
    asio::post(loop_, [this] { begin_shutdown(); });
  }

  Endpoint listening_on_;

 private:
  Store::Callbacks store_callbacks() {
    // On the writer's thread.
    return {[this](std::vector<Mark> marks) {
              asio::post(loop_, [this, marks = std::move(marks)] { committed(marks); });
            },
            [this](std::string why) {
              asio::post(loop_, [this, why = std::move(why)] {
                store_event(RunEvent::Severity::error, why);
              });
            },
            [this] {
              asio::post(loop_, [this] {
                store_event(RunEvent::Severity::info, "the store can be written again");
              });
            }};
  }

  // Agents.

  void opened(StreamId stream) { silent_streams_[stream] = BootClock::now(); }

  void closed(StreamId stream) {
    silent_streams_.erase(stream);
    if (const AgentEntry* agent = registry_.find(stream)) {
      spdlog::info("agent stream broke agent={}", agent->name);
      registry_.stream_broke(stream, BootClock::now());
    }
  }

  void received(StreamId stream, AgentMessage message) {
    if (auto* hello = std::get_if<AgentHello>(&message)) {
      said_hello(stream, *hello);
      return;
    }
    const AgentEntry* agent = registry_.find(stream);
    if (agent == nullptr) {
      control_.close(stream, "the first message must be a hello");
      return;
    }
    registry_.seen(stream, BootClock::now());
    const std::string name = agent->name;
    const std::uint64_t incarnation = agent->hello.incarnation;
    std::visit([&](auto& m) { said(stream, name, incarnation, m); }, message);
  }

  void said_hello(StreamId stream, const AgentHello& hello) {
    silent_streams_.erase(stream);
    if (registry_.find(stream) != nullptr) {
      control_.close(stream, "a second hello on one stream");
      return;
    }
    const Registry::Admission admission = registry_.hello(stream, hello, BootClock::now());
    if (!admission.accepted) {
      spdlog::warn("agent refused agent={} peer={} cause=\"{}\"", hello.name, hello.peer,
                   admission.refusal);
      control_.send(stream, SendRejected{admission.refusal});
      control_.close(stream, admission.refusal);
      return;
    }
    spdlog::info("agent {} agent={} host={} version={} cpus={}",
                 admission.is_back ? "back" : "joined", admission.name, hello.host, hello.version,
                 hello.cpus);
    if (admission.replaced)
      control_.close(*admission.replaced, "replaced by a newer stream of the same agent");
    control_.send(stream, SendWelcome{admission.name, kHeartbeatInterval});
    if (admission.restarted) lose(admission.name, *admission.restarted, "it was restarted");
    resume(stream, admission.name, hello);
    agents_changed();
  }

  // An agent that says it still has a run learns where we are with it.
  void resume(StreamId stream, const std::string& agent, const AgentHello& hello) {
    for (const auto& run : live_runs_of(agent, hello.incarnation)) {
      const bool has_run = run->id() == hello.running;
      if (has_run) run->acknowledge(agent, hello.incarnation);
      run->step(run_input::Back{agent, has_run});
      if (has_run) return;
    }
    if (hello.running.empty()) return;
    control_.send(stream, SendRecordAck{hello.running, hello.incarnation,
                                        closed_runs_.committed_mark(hello.running, agent,
                                                                    hello.incarnation)});
    control_.send(stream,
                  SendStop{hello.running, Duration{}, "the run has ended for this controller"});
    spdlog::warn("agent told to stop agent={} run={} cause=\"not live here\"", agent,
                 hello.running);
  }

  void said(StreamId stream, const std::string&, std::uint64_t, const AgentHeartbeat& m) {
    registry_.heartbeat(stream, m.offset_ns, m.offset_bound_ns, BootClock::now());
    control_.send(stream, SendHeartbeatReply{m.t1_agent_ns, m.t2_controller_ns});
  }
  void said(StreamId, const std::string& agent, std::uint64_t incarnation,
            const AgentPrepareReply& m) {
    if (auto run = live_run(m.run, agent, incarnation))
      run->step(run_input::PrepareReply{agent, m.problems});
  }
  void said(StreamId, const std::string& agent, std::uint64_t incarnation, const AgentArmed& m) {
    if (auto run = live_run(m.run, agent, incarnation)) run->step(run_input::Armed{agent, m});
  }
  void said(StreamId, const std::string& agent, std::uint64_t incarnation, const AgentStarted& m) {
    if (auto run = live_run(m.run, agent, incarnation)) {
      run->step(run_input::Started{agent, m.at_controller_ns, m.offset_bound_ns});
    }
  }
  void said(StreamId, const std::string& agent, std::uint64_t incarnation, const AgentFinished& m) {
    if (auto run = live_run(m.run, agent, incarnation)) {
      run->step(run_input::Finished{agent, m.last_seq, m.reason});
    }
  }
  void said(StreamId stream, const std::string& agent, std::uint64_t incarnation, AgentRecord& m) {
    const RecordKey key = m.record.key;
    if (key.agent != agent || key.incarnation != incarnation) {
      control_.close(stream, "a record in the name of another agent");
      return;
    }
    if (auto run = live_run(key.run, agent, incarnation)) {
      run->take(agent, std::move(m));
      return;
    }
    // Late, for a run that has ended: stored as well, so that its report is complete.
    const ClosedRuns::Ruling ruling = closed_runs_.offer(m);
    if (ruling == ClosedRuns::Ruling::store) {
      store_->put_record(m.record, std::move(m.bytes));
      return;
    }
    if (ruling == ClosedRuns::Ruling::unknown_run) {
      spdlog::warn("record dropped agent={} run={} seq={} cause=\"this store has no such run\"",
                   agent, key.run, key.seq);
    }
    const std::uint64_t mark = ruling == ClosedRuns::Ruling::unknown_run
                                   ? key.seq
                                   : closed_runs_.committed_mark(key.run, agent, incarnation);
    control_.send(stream, SendRecordAck{key.run, incarnation, mark});
  }
  void said(StreamId stream, const std::string& agent, std::uint64_t, const AgentNonsense& m) {
    spdlog::error("agent cut off agent={} cause=\"{}\"", agent, m.reason);
    for (const auto& [id, run] : live_) {
      if (run->run().has_member(agent, registry_.find(stream)->hello.incarnation)) {
        run->log(RunEvent::Severity::error,
                 "agent sent nonsense agent=" + agent + " cause=\"" + m.reason + "\"");
      }
    }
    control_.close(stream, m.reason);
  }
  void said(StreamId, const std::string&, std::uint64_t, const AgentEpochReply&) {}
  void said(StreamId, const std::string&, std::uint64_t, const AgentEpochApplied&) {}
  void said(StreamId, const std::string&, std::uint64_t, const AgentHello&) {}

  void lose(const std::string& agent, std::uint64_t incarnation, const std::string& cause) {
    spdlog::warn("agent lost agent={} cause=\"{}\"", agent, cause);
    for (const auto& run : live_runs_of(agent, incarnation))
      run->step(run_input::Lost{agent, cause});
  }

  std::shared_ptr<LiveRun> live_run(const std::string& id, const std::string& agent,
                                    std::uint64_t incarnation) {
    const auto it = live_.find(id);
    if (it == live_.end() || !it->second->run().has_member(agent, incarnation)) return nullptr;
    return it->second;
  }

  std::vector<std::shared_ptr<LiveRun>> live_runs_of(const std::string& agent,
                                                     std::uint64_t incarnation) {
    std::vector<std::shared_ptr<LiveRun>> runs;
    for (const auto& [id, run] : live_) {
      if (run->run().has_member(agent, incarnation)) runs.push_back(run);
    }
    return runs;
  }

  // Runs that wait look again. One of them may take agents that the next would have wanted.
  void agents_changed() {
    for (const auto& run : all_live()) {
      if (run->run().stage() != RunStage::waiting) continue;
      run_input::Agents agents;
      for (const AgentEntry& agent : registry_.agents()) {
        if (agent.state != AgentState::online || !agent.stream) continue;
        agents.online.push_back({agent.name, agent.hello.incarnation, busy_with(agent)});
      }
      run->step(agents);
    }
  }

  std::string busy_with(const AgentEntry& agent) const {
    for (const auto& [id, run] : live_) {
      if (run->run().has_member(agent.name, agent.hello.incarnation)) return id;
    }
    return "";
  }

  void send_to(const std::string& agent, const ControllerMessage& message) {
    const AgentEntry* entry = registry_.find(agent);
    if (entry != nullptr && entry->stream) control_.send(*entry->stream, message);
  }

  // Store.

  void committed(const std::vector<Mark>& marks) {
    for (const Mark& mark : marks) {
      const auto it = live_.find(mark.run);
      if (it != live_.end()) {
        const auto run = it->second;
        run->committed(mark);
      } else {
        closed_runs_.committed(mark);
        send_to(mark.agent, SendRecordAck{mark.run, mark.incarnation, mark.seq});
      }
    }
  }

  void store_event(RunEvent::Severity severity, const std::string& text) {
    if (severity == RunEvent::Severity::error) {
      spdlog::error("store trouble cause=\"{}\"", text);
    } else {
      spdlog::info("store {}", text);
    }
    for (const auto& run : all_live()) run->log(severity, text);
  }

  // Time.

  void schedule_tick() {
    tick_timer_.expires_after(kTick);
    tick_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      tick();
      schedule_tick();
    });
  }

  void tick() {
    const Instant now = BootClock::now();
    for (const Registry::Lost& lost : registry_.tick(now)) {
      // A stream that is still there says hello again when it comes back to life.
      const AgentEntry* agent = registry_.find(lost.name);
      if (agent != nullptr && agent->stream) control_.close(*agent->stream, "no heartbeat");
      lose(lost.name, lost.incarnation, lost.cause);
    }
    std::vector<StreamId> overdue;
    for (const auto& [stream, since] : silent_streams_) {
      if (now - since >= kHelloDeadline) overdue.push_back(stream);
    }
    for (const StreamId stream : overdue) control_.close(stream, "no hello");
    for (const auto& run : all_live()) run->tick();
    agents_changed();
  }

  std::vector<std::shared_ptr<LiveRun>> all_live() const {
    std::vector<std::shared_ptr<LiveRun>> runs;
    for (const auto& [id, run] : live_) runs.push_back(run);
    return runs;
  }

  // Operators.

  OperatorHandlers operator_handlers() {
    OperatorHandlers h;
    h.submit = [this](SubmitOrder order, std::function<void(SubmitAnswer)> done) {
      return submit(order, std::move(done));
    };
    h.watch = [this](const std::string& run, std::shared_ptr<WatchSink> sink) {
      watch(run, std::move(sink));
    };
    h.stop = [this](const std::string& run, bool at_once) { return stop(run, at_once); };
    h.list_runs = [this](const std::string& run, auto done) { list_runs(run, std::move(done)); };
    h.list_agents = [this] { return list_agents(); };
    h.report = [this](const std::string& run, const std::string& format, auto done) {
      reader_->report(run, format, std::move(done));
    };
    h.verify = [this](const std::string& run, auto done) { reader_->verify(run, std::move(done)); };
    return h;
  }

  std::function<void()> submit(const SubmitOrder& submitted,
                               std::function<void(SubmitAnswer)> done) {
    if (is_shutting_down_ || live_.size() >= kMaxLiveRuns) {
      done({"",
            {is_shutting_down_ ? std::string("the controller is shutting down")
                               : std::to_string(live_.size()) + " runs are live, at most " +
                                     std::to_string(kMaxLiveRuns) + " may be: stop one, or wait"},
            1});
      return nullptr;
    }
    OrderOrProblems made = make_order(submitted, wall_clock_ms(), draw());
    std::unique_ptr<TargetSampler> sampler;
    if (made.problems.empty() && !made.order.plan.target.probe.empty()) {
      auto created = TargetSampler::create(loop_, *parse_endpoint(made.order.plan.target.probe),
                                           tls_, made.order.id);
      if (created) {
        sampler = std::move(*created);
      } else {
        made.problems.push_back(created.error().message);
      }
    }
    if (!made.problems.empty()) {
      done({"", std::move(made.problems), 2});
      return nullptr;
    }
    const std::string id = made.order.id;
    spdlog::info("run submitted run={} agents={} connections={}", id, made.order.plan.agents,
                 made.order.plan.max_connections());
    auto run = std::make_shared<LiveRun>(
        LiveRun::Outside{
            loop_, *store_,
            [this](const std::string& agent, const ControllerMessage& m) { send_to(agent, m); },
            [this](LiveRun& r) { run_closed(r); }},
        std::move(made.order), std::move(sampler), std::move(done));
    live_.emplace(id, run);
    agents_changed();
    return [run = std::weak_ptr(run)] {
      const auto r = run.lock();
      if (r && !r->is_answered())
        r->step(run_input::Stop{true, "the client left before the start"});
    };
  }

  void run_closed(LiveRun& run) {
    const RunInfo& info = run.run().info();
    spdlog::info("run ended run={} end={} reason=\"{}\"", info.id, name(info.end), info.end_reason);
    if (!info.agents.empty()) closed_runs_.add(info.id, run.ledger());
    live_.erase(info.id);
    if (is_shutting_down_ && live_.empty()) asio::post(loop_, [this] { finish_shutdown(); });
  }

  void watch(const std::string& wanted, std::shared_ptr<WatchSink> sink) {
    const auto it = wanted.empty() && !live_.empty() ? std::prev(live_.end()) : live_.find(wanted);
    if (it != live_.end()) {
      if (const auto watching = it->second->watch(sink); !watching) sink->fail(watching.error());
      return;
    }
    if (wanted.empty()) {
      sink->fail({ErrorCode::not_found, "no run is live: name one; `spate status` lists them"});
      return;
    }
    reader_->end_of(wanted, [sink](const Result<WatchEnd>& end) {
      if (end) {
        sink->put(*end);
      } else {
        sink->fail(end.error());
      }
    });
  }

  Result<void> stop(const std::string& id, bool at_once) {
    const auto it = live_.find(id);
    if (it == live_.end()) {
      if (closed_runs_.has(id))
        return Error{ErrorCode::conflict, "run " + id + " has ended already"};
      return Error{ErrorCode::not_found, "no run " + id + " is live: `spate status` lists them"};
    }
    const auto run = it->second;
    run->step(
        run_input::Stop{at_once, at_once ? "stopped at once by the user" : "stopped by the user"});
    return {};
  }

  void list_runs(const std::string& wanted, std::function<void(Result<std::vector<RunRow>>)> done) {
    std::vector<RunRow> live;
    for (const auto& run : all_live()) {
      if (wanted.empty() || run->id() == wanted) live.push_back(run->row());
    }
    reader_->list(wanted, std::move(live), std::move(done));
  }

  std::vector<AgentRow> list_agents() const {
    std::vector<AgentRow> rows;
    const Instant now = BootClock::now();
    for (const AgentEntry& a : registry_.agents()) {
      AgentRow row;
      row.name = a.name;
      row.host = a.hello.host;
      row.state = std::string(name(a.state));
      row.run = busy_with(a);
      row.version = a.hello.version;
      row.cpus = a.hello.cpus;
      row.last_seen_s = std::chrono::duration<double>(now - a.last_seen).count();
      row.clock_offset_ns = a.offset_ns;
      row.clock_bound_ns = a.offset_bound_ns;
      row.max_descriptors = a.hello.max_descriptors;
      rows.push_back(std::move(row));
    }
    return rows;
  }

  // The end.

  void begin_shutdown() {
    if (std::exchange(is_shutting_down_, true)) return;
    spdlog::info("controller shuts down live_runs={}", live_.size());
    for (const auto& run : all_live())
      run->step(run_input::Stop{false, "the controller was shut down"});
    if (live_.empty()) finish_shutdown();
  }

  // The server waits for its calls, whose ends come through this loop: so it is stopped from
  // elsewhere, while the loop goes on. Watchers of the runs that just ended are told within
  // kFinalCommitDeadline.
  void finish_shutdown() {
    if (shutdown_thread_.joinable()) return;
    store_->when_committed([this] {
      asio::post(loop_, [this] {
        control_.close_all("the controller is shutting down");
        if (shutdown_thread_.joinable()) return;
        shutdown_thread_ = std::thread([this] {
          server_->Shutdown(std::chrono::system_clock::now() + kServerShutdownDeadline);
          server_->Wait();
          asio::post(loop_, [this] {
            tick_timer_.cancel();
            reader_.reset();
            guard_.reset();
          });
        });
      });
    });
  }

  const rpc::TlsFiles tls_;
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  asio::steady_timer tick_timer_;
  Registry registry_;
  std::map<StreamId, Instant> silent_streams_;  // opened, no hello yet
  std::map<std::string, std::shared_ptr<LiveRun>> live_;
  ClosedRuns closed_runs_;
  bool is_shutting_down_ = false;
  ControlService control_;
  OperatorService operator_;
  std::unique_ptr<RunReader> reader_;
  std::unique_ptr<Store> store_;  // its thread posts to the loop: it goes before the loop does
  std::unique_ptr<grpc::Server> server_;
  std::thread shutdown_thread_;
};

Result<std::unique_ptr<Controller>> Controller::create(const Endpoint& listen,
                                                       const rpc::TlsFiles& tls,
                                                       const std::string& store_path) {
  auto impl = std::make_unique<Impl>(tls);
  if (auto opened = impl->open(listen, store_path); !opened) return opened.error();
  return std::unique_ptr<Controller>(new Controller(std::move(impl)));
}

Controller::Controller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Controller::~Controller() = default;

Endpoint Controller::listening_on() const { return impl_->listening_on_; }
void Controller::run() { impl_->run(); }
void Controller::shut_down() { impl_->shut_down(); }

}  // namespace spate::controller
