#include "controller/controller.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "controller/control_service.h"
#include "controller/coordinator.h"
#include "controller/operator_service.h"
#include "controller/run_reader.h"
#include "controller/store.h"
#include "controller/target_sampler.h"
#include "rpc/grpc_settings.h"
#include "spdlog/spdlog.h"

// Orientation: opening; what becomes an event (agents and store, operators, time); what each action
// does; the end. Everything but create() and shut_down() runs on the control loop.

namespace spate::controller {
namespace {

namespace asio = boost::asio;
using Severity = RunEvent::Severity;

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr auto kServerShutdownDeadline = std::chrono::seconds(2);

std::uint64_t draw() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

// Instants of CLOCK_BOOTTIME are comparable within one boot only.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

class Controller::Impl {
 public:
  explicit Impl(const rpc::TlsFiles& tls)
      : tls_(tls),
        guard_(loop_.get_executor()),
        tick_timer_(loop_),
        exit_timer_(loop_),
        control_(loop_, {[this](StreamId s) { step(event::StreamOpened{s}); },
                         [this](StreamId s, AgentMessage m) {
                           step(event::FromAgent{s, std::move(m)});
                         },
                         [this](StreamId s) { step(event::StreamClosed{s}); }}),
        operator_(loop_, operator_handlers()) {}

  ~Impl() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    if (shutdown_thread_.joinable()) shutdown_thread_.join();
  }

  Result<void> open(const Endpoint& listen, const std::string& store_path, bool adopts) {
    auto store = Store::open(store_path, store_callbacks());
    if (!store) return store.error();
    store_ = std::move(*store);
    reader_ = std::make_unique<RunReader>(loop_, store_path);
    Coordinator::Config config;
    config.may_probe = [this](const Endpoint& probe) { return may_probe(probe); };
    config.boot_id = boot_id();
    config.wall_ms = wall_clock_ms();
    config.adopts = adopts;
    Restored restored = store_->take_restored();
    control_.set_term(restored.term);
    coordinator_ =
        std::make_unique<Coordinator>(std::move(config), std::move(restored), BootClock::now());

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

  int run() {
    tick();
    loop_.run();
    return exit_code_;
  }

  void shut_down() {
    asio::post(loop_, [this] { step(event::ShutDown{}); });
  }

  void probe(std::function<void()> alive) {
    asio::post(loop_,
               [this, alive = std::move(alive)]() mutable { store_->probe(std::move(alive)); });
  }

  Endpoint listening_on_;

 private:
  // Events. An action may cause another event: it waits until the actions before it are done.
  void step(Event event) {
    events_.push_back(std::move(event));
    if (events_.size() > 1) return;
    while (!events_.empty()) {
      for (Action& action : coordinator_->step(std::move(events_.front()), BootClock::now()))
        std::visit([this](auto& one) { act(one); }, action);
      events_.pop_front();
    }
  }

  Store::Callbacks store_callbacks() {
    // On the writer's thread.
    const auto post = [this](Event event) {
      asio::post(loop_, [this, event = std::move(event)]() mutable { step(std::move(event)); });
    };
    return {[post](std::vector<Mark> marks) { post(event::Committed{std::move(marks)}); },
            [post](std::string why) { post(event::StoreInTrouble{std::move(why)}); },
            [post] { post(event::StoreRecovered{}); },
            [post](std::uint64_t term) { post(event::StoreTakenOver{term}); },
            [post](RunEvent::Severity severity, std::string text) {
              post(event::StoreNote{severity, std::move(text)});
            },
            [post](StoreSpace space) { post(event::StoreMeasured{space}); }};
  }

  void tick() {
    step(event::Tick{wall_clock_offset().count()});
    tick_timer_.expires_after(kTick);
    tick_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error && !is_over_) tick();
    });
  }

  OperatorHandlers operator_handlers() {
    OperatorHandlers h;
    h.submit = [this](SubmitOrder order, std::function<void(SubmitAnswer)> done) {
      const Token token = next_token_++;
      submits_[token] = std::move(done);
      step(event::Submit{token, std::move(order), wall_clock_ms(), draw()});
      return [this, token] { step(event::Withdraw{token}); };
    };
    h.watch = [this](const std::string& run, std::shared_ptr<WatchSink> sink) {
      forget_watchers_that_left();
      const Token token = next_token_++;
      watchers_[token] = std::move(sink);
      step(event::Watch{token, run});
    };
    h.stop = [this](const std::string& run, bool at_once, std::function<void(Result<void>)> done) {
      const Token token = next_token_++;
      stops_[token] = std::move(done);
      step(event::Stop{token, run, at_once});
    };
    h.change = [this](ChangeRequest request, std::function<void(ChangeAnswer)> done) {
      const Token token = next_token_++;
      changes_[token] = std::move(done);
      step(event::ChangeRun{token, std::move(request), wall_clock_ms()});
    };
    h.status = [this](const std::string& run, std::function<void(Result<RunStatus>)> done) {
      const Token token = next_token_++;
      statuses_[token] = std::move(done);
      step(event::AskStatus{token, run});
    };
    h.list_runs = [this](const std::string& run,
                         std::function<void(Result<std::vector<RunRow>>)> done) {
      const Token token = next_token_++;
      run_lists_[token] = std::move(done);
      step(event::ListRuns{token, run});
    };
    h.list_agents = [this](std::function<void(std::vector<AgentRow>)> done) {
      const Token token = next_token_++;
      agent_lists_[token] = std::move(done);
      step(event::ListAgents{token});
    };
    h.report = [this](const std::string& run, const std::string& format, auto done) {
      reader_->report(run, format, std::move(done));
    };
    h.verify = [this](const std::string& run, auto done) { reader_->verify(run, std::move(done)); };
    return h;
  }

  void forget_watchers_that_left() {
    std::vector<Token> left;
    for (const auto& [token, sink] : watchers_) {
      if (!sink->is_open()) left.push_back(token);
    }
    for (const Token token : left) {
      watchers_.erase(token);
      step(event::WatcherLeft{token});
    }
  }

  // Actions.

  void act(action::Send& a) { control_.send(a.stream, a.message); }
  void act(action::CloseStream& a) { control_.close(a.stream, a.reason); }

  void act(action::Write& a) { store_->put(std::move(a.op)); }
  void act(action::Barrier& a) {
    store_->when_committed([this, barrier = a.barrier] {
      asio::post(loop_, [this, barrier] { step(event::BarrierPassed{barrier}); });
    });
  }

  Result<void> may_probe(const Endpoint& probe) const {
    const auto channel = rpc::make_channel(probe, tls_, rpc::Role::target);
    if (!channel) return channel.error().with_context("target.probe " + probe.to_string());
    return {};
  }

  void act(action::StartSampling& a) {
    const auto probe = parse_endpoint(a.probe);
    auto sampler = probe ? TargetSampler::create(loop_, *probe, tls_, a.run) : probe.error();
    if (!sampler) {
      step(event::Sampled{a.run, {}, sampler.error().message, BootClock::now(), false});
      return;
    }
    (*sampler)->start(a.start, a.interval, on_sample(a.run, false));
    samplers_[a.run] = std::move(*sampler);
  }
  void act(action::TakeFinalSample& a) {
    const auto it = samplers_.find(a.run);
    if (it != samplers_.end()) {
      it->second->take_final(on_sample(a.run, true));
    } else {
      step(event::Sampled{a.run, {}, "it was never asked", BootClock::now(), true});
    }
  }
  void act(action::StopSampling& a) {
    // A sampler may be the caller: it goes when it is done.
    const auto it = samplers_.find(a.run);
    if (it == samplers_.end()) return;
    asio::post(loop_, [sampler = std::shared_ptr<TargetSampler>(std::move(it->second))] {});
    samplers_.erase(it);
  }
  TargetSampler::OnSample on_sample(const std::string& run, bool is_final) {
    return [this, run, is_final](Result<TargetSample> sample, Instant at) {
      event::Sampled event{run, {}, {}, at, is_final};
      if (sample) {
        event.sample = std::move(*sample);
      } else {
        event.error = sample.error().message;
      }
      step(std::move(event));
    };
  }

  void act(action::AnswerSubmit& a) { answer(submits_, a.token, std::move(a.answer)); }
  void act(action::AnswerStop& a) { answer(stops_, a.token, std::move(a.answer)); }
  void act(action::AnswerChange& a) { answer(changes_, a.token, std::move(a.answer)); }
  void act(action::AnswerStatus& a) {
    const auto it = statuses_.find(a.token);
    reader_->status(a.run, std::move(a.live), std::move(it->second));
    statuses_.erase(it);
  }
  void act(action::AnswerAgents& a) { answer(agent_lists_, a.token, std::move(a.agents)); }
  void act(action::AnswerRuns& a) {
    const auto it = run_lists_.find(a.token);
    reader_->list(a.wanted, std::move(a.live), std::move(it->second));
    run_lists_.erase(it);
  }
  template <class Waiting, class Value>
  static void answer(Waiting& waiting, Token token, Value value) {
    const auto it = waiting.find(token);
    const auto done = std::move(it->second);
    waiting.erase(it);
    done(std::move(value));
  }

  void act(action::Show& a) {
    const bool is_end = std::holds_alternative<WatchEnd>(a.line);
    for (const Token token : a.watchers) {
      const auto it = watchers_.find(token);
      if (it == watchers_.end()) continue;
      it->second->put(a.line);
      if (is_end) watchers_.erase(it);
    }
  }
  void act(action::ShowStoredEnd& a) {
    reader_->end_of(a.run,
                    [sink = watchers_.extract(a.watcher).mapped()](const Result<WatchEnd>& end) {
                      if (end) {
                        sink->put(*end);
                      } else {
                        sink->fail(end.error());
                      }
                    });
  }
  void act(action::RefuseWatcher& a) { watchers_.extract(a.watcher).mapped()->fail(a.error); }

  static void act(action::Log& a) {
    spdlog::log(a.severity == Severity::error     ? spdlog::level::err
                : a.severity == Severity::warning ? spdlog::level::warn
                                                  : spdlog::level::info,
                "{}", a.text);
  }

  void act(action::Exit& a) {
    exit_code_ = a.code;
    // The next process begins where this one has stopped writing; agents keep the rest.
    exit_timer_.expires_after(a.code == 0 ? kFinalCommitDeadline : Duration{});
    exit_timer_.async_wait(
        [this, reason = a.reason](const boost::system::error_code&) { end(reason); });
    store_->when_committed([this] { asio::post(loop_, [this] { exit_timer_.cancel(); }); });
  }

  // The server waits for its calls, whose ends come through this loop: so it is stopped from
  // elsewhere, while the loop goes on.
  void end(const std::string& reason) {
    control_.close_all(reason);
    watchers_.clear();
    for (const auto& [token, done] : std::exchange(changes_, {})) {
      ChangeAnswer answer;
      answer.problems = {reason};
      answer.exit_code = 1;
      answer.is_undecided = true;
      done(answer);
    }
    samplers_.clear();  // of runs that go on; their timers would keep the loop
    shutdown_thread_ = std::thread([this] {
      server_->Shutdown(std::chrono::system_clock::now() + kServerShutdownDeadline);
      server_->Wait();
      asio::post(loop_, [this] {
        is_over_ = true;
        tick_timer_.cancel();
        reader_.reset();
        guard_.reset();
      });
    });
  }

  const rpc::TlsFiles tls_;
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  asio::steady_timer tick_timer_;
  asio::steady_timer exit_timer_;
  int exit_code_ = 0;
  bool is_over_ = false;  // a tick that was due when its timer was cancelled comes all the same
  std::unique_ptr<Coordinator> coordinator_;
  std::deque<Event> events_;  // the first one is being handled
  // Who waits for an answer, and who watches.
  Token next_token_ = 1;
  std::map<Token, std::function<void(SubmitAnswer)>> submits_;
  std::map<Token, std::function<void(Result<void>)>> stops_;
  std::map<Token, std::function<void(ChangeAnswer)>> changes_;
  std::map<Token, std::function<void(Result<RunStatus>)>> statuses_;
  std::map<Token, std::function<void(Result<std::vector<RunRow>>)>> run_lists_;
  std::map<Token, std::function<void(std::vector<AgentRow>)>> agent_lists_;
  std::map<Token, std::shared_ptr<WatchSink>> watchers_;
  std::map<std::string, std::unique_ptr<TargetSampler>> samplers_;  // by run
  ControlService control_;
  OperatorService operator_;
  std::unique_ptr<RunReader> reader_;
  std::unique_ptr<Store> store_;  // its thread posts to the loop: it goes before the loop does
  std::unique_ptr<grpc::Server> server_;
  std::thread shutdown_thread_;
};

Result<std::unique_ptr<Controller>> Controller::create(const Endpoint& listen,
                                                       const rpc::TlsFiles& tls,
                                                       const std::string& store_path, bool adopts) {
  auto impl = std::make_unique<Impl>(tls);
  if (auto opened = impl->open(listen, store_path, adopts); !opened) return opened.error();
  return std::unique_ptr<Controller>(new Controller(std::move(impl)));
}

Controller::Controller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Controller::~Controller() = default;

Endpoint Controller::listening_on() const { return impl_->listening_on_; }
int Controller::run() { return impl_->run(); }
void Controller::shut_down() { impl_->shut_down(); }
void Controller::probe(std::function<void()> alive) { impl_->probe(std::move(alive)); }

}  // namespace spate::controller
