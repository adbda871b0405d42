#include "controller/target_sampler.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/target.grpc.pb.h"
#include "rpc/grpc_settings.h"

namespace spate::controller {
namespace {

namespace asio = boost::asio;

// Less than the run waits for its final sample (kFinalSampleDeadline).
constexpr Duration kFinalPatience = std::chrono::seconds(4);

TargetSample to_sample(const target::v1::StatsReply& reply, const std::string& run) {
  TargetSample s;
  s.boot_id = reply.boot_id();
  s.allocator = reply.allocator();
  s.received = reply.received();
  s.completed = reply.completed();
  s.refused = reply.refused();
  s.address_space_bytes = reply.address_space_bytes();
  s.rss_bytes = reply.rss_bytes();
  s.cpu_ns = reply.cpu_ns();
  s.threads = reply.threads();
  s.open_connections = reply.open_connections();
  for (const auto& a : reply.agents()) {
    if (a.run() != run) continue;
    s.agents.push_back({a.agent(), a.incarnation(), a.received(), a.completed(), a.refused()});
  }
  return s;
}

}  // namespace

class TargetSampler::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, std::shared_ptr<grpc::Channel> channel, std::string run)
      : loop_(loop),
        timer_(loop),
        stub_(target::v1::Stats::NewStub(std::move(channel))),
        run_(std::move(run)) {}

  void start(Instant start, Duration interval, OnSample on_sample) {
    start_ = start;
    interval_ = interval;
    on_sample_ = std::move(on_sample);
    ask(on_sample_, usual_patience());
    wait_for_next();
  }

  void take_final(OnSample on_sample) {
    timer_.cancel();
    is_final_ = true;
    if (call_) {
      // The answer under way is from before the end: it does not count as the last one.
      on_final_ = std::move(on_sample);
    } else {
      ask(std::move(on_sample), kFinalPatience);
    }
  }

  void close() {
    is_closed_ = true;
    timer_.cancel();
    if (call_) call_->context.TryCancel();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    target::v1::StatsRequest request;
    target::v1::StatsReply reply;
  };

  void wait_for_next() {
    const Duration since = BootClock::now() - start_;
    const std::int64_t next = since < Duration{} ? 0 : since / interval_ + 1;
    timer_.expires_after(start_ + next * interval_ - BootClock::now());
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->is_closed_ || self->is_final_) return;
      if (!self->call_) self->ask(self->on_sample_, self->usual_patience());
      self->wait_for_next();
    });
  }

  Duration usual_patience() const { return std::max<Duration>(interval_, std::chrono::seconds(1)); }

  void ask(OnSample on_sample, Duration patience) {
    call_ = std::make_shared<Call>();
    call_->request.set_run(run_);
    // The last answer is worth waiting for a target that is just coming back.
    call_->context.set_wait_for_ready(is_final_);
    call_->context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(patience));
    stub_->async()->Get(&call_->context, &call_->request, &call_->reply,
                        [self = shared_from_this(), call = call_, on_sample = std::move(on_sample),
                         work = asio::make_work_guard(loop_)](const grpc::Status& status) mutable {
                          asio::post(self->loop_, [self, call, status, at = BootClock::now(),
                                                   on_sample = std::move(on_sample)] {
                            self->answered(*call, status, at, on_sample);
                          });
                        });
  }

  void answered(const Call& call, const grpc::Status& status, Instant at,
                const OnSample& on_sample) {
    call_.reset();
    if (is_closed_) return;
    if (on_final_) {
      ask(std::exchange(on_final_, nullptr), kFinalPatience);
    }
    if (status.ok()) {
      on_sample(to_sample(call.reply, run_), at);
    } else {
      on_sample(Error{ErrorCode::unavailable, status.error_message()}, at);
    }
  }

  asio::io_context& loop_;
  asio::steady_timer timer_;
  std::unique_ptr<target::v1::Stats::Stub> stub_;
  std::string run_;
  Instant start_{};
  Duration interval_ = std::chrono::seconds(1);
  OnSample on_sample_;
  OnSample on_final_;
  std::shared_ptr<Call> call_;  // the question under way
  bool is_final_ = false;
  bool is_closed_ = false;
};

Result<std::unique_ptr<TargetSampler>> TargetSampler::create(asio::io_context& loop,
                                                             const Endpoint& probe,
                                                             const rpc::TlsFiles& tls,
                                                             std::string run) {
  auto channel = rpc::make_channel(probe, tls, rpc::Role::target);
  if (!channel) return channel.error().with_context("target.probe " + probe.to_string());
  return std::unique_ptr<TargetSampler>(
      new TargetSampler(std::make_shared<Impl>(loop, std::move(*channel), std::move(run))));
}

TargetSampler::TargetSampler(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
TargetSampler::~TargetSampler() { impl_->close(); }

void TargetSampler::start(Instant start, Duration interval, OnSample on_sample) {
  impl_->start(start, interval, std::move(on_sample));
}

void TargetSampler::take_final(OnSample on_sample) { impl_->take_final(std::move(on_sample)); }

}  // namespace spate::controller
