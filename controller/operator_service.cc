#include "controller/operator_service.h"

#include <boost/asio/post.hpp>
#include <deque>

#include "proto/operator.grpc.pb.h"
#include "rpc/grpc_settings.h"

// Orientation: the conversions, then three kinds of call (Unary answers once, WatchStream writes
// lines, ReportStream writes one text in pieces), then the methods, one screen each.

namespace spate::controller {
namespace {

namespace asio = boost::asio;
using ops::v1::Operator;

grpc::Status to_status(const Error& error) {
  using grpc::StatusCode;
  StatusCode code = StatusCode::INTERNAL;
  switch (error.code) {
    case ErrorCode::invalid:
      code = StatusCode::INVALID_ARGUMENT;
      break;
    case ErrorCode::not_found:
      code = StatusCode::NOT_FOUND;
      break;
    case ErrorCode::unavailable:
      code = StatusCode::UNAVAILABLE;
      break;
    case ErrorCode::refused:
      code = StatusCode::PERMISSION_DENIED;
      break;
    case ErrorCode::conflict:
      code = StatusCode::FAILED_PRECONDITION;
      break;
    case ErrorCode::io:
    case ErrorCode::internal:
      break;
  }
  return {code, error.message};
}

grpc::Status may_operate(const grpc::CallbackServerContext& context) {
  const auto may = rpc::authorize(context, {rpc::Role::op});
  return may ? grpc::Status::OK
             : grpc::Status(grpc::StatusCode::PERMISSION_DENIED, may.error().message);
}

SubmitOrder to_order(const ops::v1::SubmitRequest& request) {
  SubmitOrder order;
  order.plan = request.plan();
  order.overrides.assign(request.overrides().begin(), request.overrides().end());
  order.descriptor_set = request.descriptor_set();
  order.wait = std::chrono::milliseconds(request.wait_ms());
  order.measured_for = std::chrono::milliseconds(request.measured_for_ms());
  order.target_url = request.target_url();
  order.target_tls_url = request.target_tls_url();
  order.target_probe = request.target_probe();
  return order;
}

void fill(ops::v1::Progress& out, const ProgressLine& line) {
  out.set_elapsed_ms(line.elapsed / std::chrono::milliseconds(1));
  out.set_planned_ms(line.planned / std::chrono::milliseconds(1));
  out.set_phase(line.phase);
  out.set_measured(line.measured);
  out.set_epoch(line.epoch);
  out.set_agents_reporting(line.agents_reporting);
  out.set_agents(line.agents);
  out.set_connections_requested(line.connections_requested);
  out.set_connections_established(line.connections_established);
  out.set_rate_per_s(line.rate_per_s);
  out.set_ok(line.ok);
  out.set_failed(line.failed);
  out.set_latency_p50_ns(static_cast<std::uint64_t>(line.latency_p50_ns));
  out.set_latency_p99_ns(static_cast<std::uint64_t>(line.latency_p99_ns));
  out.set_latency_max_ns(static_cast<std::uint64_t>(line.latency_max_ns));
  out.set_target_address_space_bytes(line.target_address_space_bytes);
  out.set_target_rss_bytes(line.target_rss_bytes);
  out.set_bytes_sent_per_s(line.bytes_sent_per_s);
  out.set_bytes_received_per_s(line.bytes_received_per_s);
  out.set_requests_total(line.requests_total);
}

void fill(ops::v1::Event& out, const RunEvent& event) {
  // Rounded away from the start, so that what was before it stays negative.
  out.set_at_ms(event.at_ns < 0 ? (event.at_ns - 999'999) / 1'000'000 : event.at_ns / 1'000'000);
  out.set_severity(event.severity == RunEvent::Severity::info      ? "info"
                   : event.severity == RunEvent::Severity::warning ? "warning"
                                                                   : "error");
  out.set_text(event.text);
}

ops::v1::WatchEvent to_wire(const WatchLine& line) {
  ops::v1::WatchEvent out;
  if (const auto* progress = std::get_if<ProgressLine>(&line))
    fill(*out.mutable_progress(), *progress);
  if (const auto* event = std::get_if<RunEvent>(&line)) fill(*out.mutable_event(), *event);
  if (const auto* end = std::get_if<WatchEnd>(&line)) {
    out.mutable_end()->set_exit_code(end->exit_code);
    out.mutable_end()->set_summary_json(end->summary_json);
    out.mutable_end()->set_summary_text(end->summary_text);
  }
  return out;
}

void fill(ops::v1::RunRow& out, const RunRow& row) {
  out.set_run(row.run);
  out.set_plan(row.plan);
  out.set_state(row.state);
  out.set_started_at(row.started_at);
  out.set_duration_s(row.duration_s);
  out.set_verdict(row.verdict);
  out.set_requests(row.requests);
  out.set_agents(row.agents);
  out.set_reason(row.reason);
}

void fill(ops::v1::AgentRow& out, const AgentRow& row) {
  out.set_name(row.name);
  out.set_host(row.host);
  out.set_state(row.state);
  out.set_run(row.run);
  out.set_version(row.version);
  out.set_cpus(row.cpus);
  out.set_last_seen_s(row.last_seen_s);
  out.set_clock_offset_ns(row.clock_offset_ns);
  out.set_clock_bound_ns(row.clock_bound_ns);
  out.set_max_descriptors(row.max_descriptors);
  out.set_note(row.note);
}

template <class Message>
ChangeRequest to_change(const Message& message, const grpc::CallbackServerContext& context,
                        ChangeRequest::Verb verb) {
  const ops::v1::ChangeTerms& terms = message.terms();
  ChangeRequest request;
  request.verb = verb;
  request.run = message.run();
  request.agents.assign(terms.agents().begin(), terms.agents().end());
  request.at = terms.at();
  if (terms.has_if_epoch()) request.if_epoch = terms.if_epoch();
  request.reason = terms.reason();
  request.who = rpc::peer_name(context);
  return request;
}

void fill(ops::v1::SetReply& out, const ChangeAnswer& answer) {
  for (const std::string& problem : answer.problems) out.add_problems(problem);
  out.set_exit_code(answer.exit_code);
  out.set_epoch(answer.epoch);
  out.set_from_epoch(answer.from_epoch);
  out.set_at_ms(answer.at / std::chrono::milliseconds(1));
  out.set_at_time(answer.at_time);
  out.set_what(answer.what);
  out.set_guard_ms(answer.guard / std::chrono::milliseconds(1));
  out.set_is_undecided(answer.is_undecided);
  for (const Difference& d : answer.differences) {
    auto& difference = *out.add_differences();
    difference.set_path(d.path);
    difference.set_from(d.from);
    difference.set_to(d.to);
  }
  for (const std::string& name : answer.prepared) out.add_prepared(name);
  for (const std::string& name : answer.away) out.add_away(name);
}

void fill(ops::v1::AgentStatus& out, const AgentStatus& agent) {
  out.set_name(agent.name);
  out.set_state(agent.state);
  out.set_epoch(agent.epoch);
  out.set_connections(agent.connections);
  out.set_lease_until(agent.lease_until);
  out.set_incarnation(agent.incarnation);
  out.set_records_stored(agent.records_stored);
  out.set_records_waiting(agent.records_waiting);
  out.set_clock_offset_ns(agent.clock_offset_ns);
  out.set_clock_bound_ns(agent.clock_bound_ns);
  out.set_note(agent.note);
  out.set_lag_ms(agent.lag / std::chrono::milliseconds(1));
}

void fill(ops::v1::LiveStatus& out, const LiveStatus& live) {
  out.set_epoch(live.epoch);
  out.set_phase(live.phase);
  out.set_elapsed_ms(live.elapsed / std::chrono::milliseconds(1));
  out.set_planned_ms(live.planned / std::chrono::milliseconds(1));
  out.set_connections(live.connections);
  out.set_leased(live.leased);
  out.set_spread(live.spread);
  out.set_under_way(live.under_way);
  out.set_queued(live.queued);
  out.set_store_trouble(live.store_trouble);
  out.set_store_space(live.store_space);
  for (const AgentStatus& agent : live.agents) fill(*out.add_agents(), agent);
}

void fill(ops::v1::ChangeRow& out, const ChangeRow& row) {
  out.set_epoch(row.change.epoch);
  out.set_at_time(row.at_time);
  out.set_at_ms(row.change.at / std::chrono::milliseconds(1));
  out.set_who(row.change.who);
  out.set_what(row.change.what);
  out.set_reason(row.change.reason);
  out.set_accepted_at(rfc3339(row.change.wall_ms));
  out.set_canary(row.change.canary);
  for (const std::string& name : row.agents) out.add_agents(name);
  out.set_is_due(row.is_due);
  out.set_guard_ms(row.change.guard / std::chrono::milliseconds(1));
}

void fill(ops::v1::CanaryGroup& out, const CanaryGroup& group) {
  out.set_name(group.name);
  out.set_agents(group.agents);
  out.set_rate_per_connection(group.rate_per_connection);
  out.set_latency_p50_ns(group.latency_p50_ns);
  out.set_latency_p99_ns(group.latency_p99_ns);
  out.set_failed_share(group.failed_share);
  out.set_requests(group.requests);
}

void fill(ops::v1::StatusReply& out, const RunStatus& status) {
  fill(*out.mutable_run(), status.run);
  if (status.live) fill(*out.mutable_live(), *status.live);
  for (const ChangeRow& row : status.changes) fill(*out.add_changes(), row);
  for (const CanaryGroup& group : status.canary) fill(*out.add_canary(), group);
}

void fill(ops::v1::SubmitReply& out, const SubmitAnswer& answer) {
  out.set_run(answer.run);
  for (const std::string& p : answer.problems) out.add_problems(p);
  out.set_exit_code(answer.exit_code);
}

void fill(ops::v1::ListRunsReply& out, const std::vector<RunRow>& rows) {
  for (const RunRow& row : rows) fill(*out.add_runs(), row);
}

void fill(ops::v1::ListAgentsReply& out, const std::vector<AgentRow>& rows) {
  for (const AgentRow& row : rows) fill(*out.add_agents(), row);
}

void fill(ops::v1::VerifyReply& out, const VerifyAnswer& answer) {
  out.set_balance(answer.balance);
  for (const std::string& line : answer.lines) out.add_lines(line);
  out.set_exit_code(answer.exit_code);
}

// A call with one answer. Deletes itself when gRPC is done with it.
class Unary final : public grpc::ServerUnaryReactor {
 public:
  explicit Unary(asio::io_context& loop) : loop_(loop) {}

  // On the control loop. `withdraw` is called if the client leaves before `answer`.
  void on_cancel(std::function<void()> withdraw) {
    if (is_answered_) return;
    withdraw_ = std::move(withdraw);
    if (is_cancelled_) std::exchange(withdraw_, nullptr)();
  }
  void answer(const grpc::Status& status) {
    if (std::exchange(is_answered_, true)) return;
    Finish(status);
  }

  void OnCancel() override {
    asio::post(loop_, [this] {
      is_cancelled_ = true;
      if (!is_answered_ && withdraw_) std::exchange(withdraw_, nullptr)();
    });
  }
  void OnDone() override {
    asio::post(loop_, [this] { delete this; });
  }

 private:
  asio::io_context& loop_;
  std::function<void()> withdraw_;
  bool is_answered_ = false;
  bool is_cancelled_ = false;
};

// Takes what a handler answers, and answers the call with it.
template <class Reply>
struct Answering {
  Unary* call;
  Reply* reply;

  template <class Answer>
  void operator()(const Answer& answer) const {
    fill(*reply, answer);
    call->answer(grpc::Status::OK);
  }
  template <class Answer>
  void operator()(const Result<Answer>& answer) const {
    if (answer) return (*this)(*answer);
    call->answer(to_status(answer.error()));
  }
};

class WatchStream final : public grpc::ServerWriteReactor<ops::v1::WatchEvent> {
 public:
  explicit WatchStream(asio::io_context& loop) : loop_(loop) {}

  void put(const WatchLine& line) {
    if (is_finished_ || is_ending_) return;
    const bool is_progress = std::holds_alternative<ProgressLine>(line);
    if (is_progress && queue_.size() >= kMaxProgressQueued) return;
    if (queue_.size() >= kMaxWatchQueued) {
      end(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the watcher does not read"));
      return;
    }
    queue_.push_back(line);
    is_ending_ = std::holds_alternative<WatchEnd>(line);
    write_next();
  }
  void end(const grpc::Status& status) {
    if (std::exchange(is_finished_, true)) return;
    queue_.clear();
    Finish(status);
  }
  bool is_finished() const { return is_finished_; }
  void let_go() {
    // The sink is gone; if nothing has ended the stream, nobody will.
    if (!is_ending_)
      end(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the controller is shutting down"));
  }

  void OnWriteDone(bool ok) override {
    asio::post(loop_, [this, ok] {
      is_writing_ = false;
      if (!ok) end(grpc::Status::CANCELLED);
      write_next();
    });
  }
  void OnCancel() override {
    asio::post(loop_, [this] { end(grpc::Status::CANCELLED); });
  }
  void OnDone() override {
    asio::post(loop_, [this] {
      is_done_ = true;
      delete_if_unused();
    });
  }
  // The sink keeps the stream's memory; gRPC does, too.
  void sink_gone() {
    has_sink_ = false;
    let_go();
    delete_if_unused();
  }

 private:
  void write_next() {
    if (is_writing_ || is_finished_) return;
    if (queue_.empty()) {
      if (is_ending_) end(grpc::Status::OK);
      return;
    }
    is_writing_ = true;
    outgoing_ = to_wire(queue_.front());
    queue_.pop_front();
    StartWrite(&outgoing_);
  }
  void delete_if_unused() {
    if (is_done_ && !has_sink_) delete this;
  }

  asio::io_context& loop_;
  ops::v1::WatchEvent outgoing_;
  std::deque<WatchLine> queue_;
  bool is_writing_ = false;
  bool is_ending_ = false;
  bool is_finished_ = false;
  bool is_done_ = false;
  bool has_sink_ = true;
};

class StreamSink final : public WatchSink {
 public:
  explicit StreamSink(WatchStream& stream) : stream_(stream) {}
  ~StreamSink() override { stream_.sink_gone(); }
  void put(const WatchLine& line) override { stream_.put(line); }
  void fail(const Error& error) override { stream_.end(to_status(error)); }
  bool is_open() const override { return !stream_.is_finished(); }

 private:
  WatchStream& stream_;
};

class ReportStream final : public grpc::ServerWriteReactor<ops::v1::ReportChunk> {
 public:
  explicit ReportStream(asio::io_context& loop) : loop_(loop) {}

  void answer(Result<std::string> text) {
    if (is_finished_) return;
    if (!text) {
      end(to_status(text.error()));
      return;
    }
    text_ = std::move(*text);
    write_next();
  }
  void end(const grpc::Status& status) {
    if (std::exchange(is_finished_, true)) return;
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    asio::post(loop_, [this, ok] {
      if (ok) {
        write_next();
      } else {
        end(grpc::Status::CANCELLED);
      }
    });
  }
  void OnDone() override {
    asio::post(loop_, [this] { delete this; });
  }

 private:
  void write_next() {
    if (is_finished_) return;
    if (written_ >= text_.size()) {
      end(grpc::Status::OK);
      return;
    }
    outgoing_.set_data(text_.substr(written_, kReportChunkBytes));
    written_ += outgoing_.data().size();
    StartWrite(&outgoing_);
  }

  asio::io_context& loop_;
  ops::v1::ReportChunk outgoing_;
  std::string text_;
  std::size_t written_ = 0;
  bool is_finished_ = false;
};

}  // namespace

class OperatorService::Impl final : public Operator::CallbackService {
 public:
  Impl(asio::io_context& loop, OperatorHandlers handlers)
      : loop_(loop), handlers_(std::move(handlers)) {}

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const ops::v1::SubmitRequest* request,
                                   ops::v1::SubmitReply* reply) override {
    return unary(context, [this, order = to_order(*request), reply](Unary* call) mutable {
      auto withdraw = handlers_.submit(std::move(order), Answering{call, reply});
      if (withdraw) call->on_cancel(std::move(withdraw));
    });
  }

  grpc::ServerWriteReactor<ops::v1::WatchEvent>* Watch(
      grpc::CallbackServerContext* context, const ops::v1::WatchRequest* request) override {
    auto* stream = new WatchStream(loop_);
    asio::post(loop_, [this, stream, run = request->run(), may = may_operate(*context)] {
      auto sink = std::make_shared<StreamSink>(*stream);
      if (may.ok()) {
        handlers_.watch(run, std::move(sink));
      } else {
        stream->end(may);
      }
    });
    return stream;
  }

  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const ops::v1::StopRequest* request,
                                 ops::v1::StopReply* reply) override {
    return unary(context,
                 [this, run = request->run(), at_once = request->now(), reply](Unary* call) {
                   handlers_.stop(run, at_once, [call, reply](const Result<void>& stopped) {
                     if (!stopped) reply->set_error(stopped.error().message);
                     call->answer(stopped || stopped.error().code != ErrorCode::not_found
                                      ? grpc::Status::OK
                                      : to_status(stopped.error()));
                   });
                 });
  }

  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context,
                                const ops::v1::SetRequest* request,
                                ops::v1::SetReply* reply) override {
    ChangeRequest change = to_change(*request, *context, ChangeRequest::Verb::set);
    change.assignments.assign(request->assignments().begin(), request->assignments().end());
    change.canary_percent = request->canary_percent();
    change.guard = request->guard();
    return change_of(context, std::move(change), reply);
  }
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context,
                                  const ops::v1::PauseRequest* request,
                                  ops::v1::SetReply* reply) override {
    return change_of(context, to_change(*request, *context, ChangeRequest::Verb::pause), reply);
  }
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const ops::v1::PauseRequest* request,
                                   ops::v1::SetReply* reply) override {
    return change_of(context, to_change(*request, *context, ChangeRequest::Verb::resume), reply);
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const ops::v1::StatusRequest* request,
                                   ops::v1::StatusReply* reply) override {
    return unary(context, [this, run = request->run(), reply](Unary* call) {
      handlers_.status(run, Answering{call, reply});
    });
  }

  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const ops::v1::ListRunsRequest* request,
                                     ops::v1::ListRunsReply* reply) override {
    return unary(context, [this, run = request->run(), reply](Unary* call) {
      handlers_.list_runs(run, Answering{call, reply});
    });
  }

  grpc::ServerUnaryReactor* ListAgents(grpc::CallbackServerContext* context,
                                       const ops::v1::ListAgentsRequest*,
                                       ops::v1::ListAgentsReply* reply) override {
    return unary(context, [this, reply](Unary* call) {
      handlers_.list_agents(Answering{call, reply});
    });
  }

  grpc::ServerWriteReactor<ops::v1::ReportChunk>* Report(
      grpc::CallbackServerContext* context, const ops::v1::ReportRequest* request) override {
    auto* stream = new ReportStream(loop_);
    asio::post(loop_, [this, stream, run = request->run(), format = request->format(),
                       may = may_operate(*context)] {
      if (!may.ok()) {
        stream->end(may);
        return;
      }
      handlers_.report(run, format,
                       [stream](Result<std::string> text) { stream->answer(std::move(text)); });
    });
    return stream;
  }

  grpc::ServerUnaryReactor* Verify(grpc::CallbackServerContext* context,
                                   const ops::v1::VerifyRequest* request,
                                   ops::v1::VerifyReply* reply) override {
    return unary(context, [this, run = request->run(), reply](Unary* call) {
      handlers_.verify(run, Answering{call, reply});
    });
  }

 private:
  Unary* change_of(grpc::CallbackServerContext* context, ChangeRequest change,
                   ops::v1::SetReply* reply) {
    return unary(context, [this, change = std::move(change), reply](Unary* call) mutable {
      handlers_.change(std::move(change), Answering{call, reply});
    });
  }

  // Runs `body` on the control loop if the peer may.
  template <class Body>
  Unary* unary(grpc::CallbackServerContext* context, Body body) {
    auto* call = new Unary(loop_);
    asio::post(loop_, [call, may = may_operate(*context), body = std::move(body)]() mutable {
      if (may.ok()) {
        body(call);
      } else {
        call->answer(may);
      }
    });
    return call;
  }

  asio::io_context& loop_;
  OperatorHandlers handlers_;
};

OperatorService::OperatorService(asio::io_context& loop, OperatorHandlers handlers)
    : impl_(std::make_unique<Impl>(loop, std::move(handlers))) {}
OperatorService::~OperatorService() = default;

grpc::Service& OperatorService::service() { return *impl_; }

}  // namespace spate::controller
