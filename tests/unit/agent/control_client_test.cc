#include "agent/control_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <future>

#include "proto/agent.grpc.pb.h"
#include "tests/unit/agent/record_fixture.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;

using ServerStream = grpc::ServerReaderWriter<v1::ControllerMessage, v1::AgentMessage>;

// The controller's end, in this process, on a free port of loopback. `talk` runs on gRPC's thread,
// once a stream.
class FakeController final : public v1::AgentControl::Service {
 public:
  explicit FakeController(std::function<void(ServerStream&)> talk, int port = 0)
      : talk_(std::move(talk)) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeController() override { stop(); }

  void stop() {
    if (server_) server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
    server_.reset();
  }
  int port() const { return port_; }
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                               grpc::InsecureChannelCredentials());
  }

 private:
  grpc::Status Session(grpc::ServerContext*, ServerStream* stream) override {
    talk_(*stream);
    return grpc::Status::OK;
  }
  std::function<void(ServerStream&)> talk_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct ClientTest : testing::Test {
  asio::io_context loop{1};
  int up = 0;
  std::vector<std::string> down;
  std::vector<ControllerMessage> messages;
  std::vector<std::uint64_t> terms;
  std::unique_ptr<ControlClient> client;

  void make(const std::shared_ptr<grpc::Channel>& channel) {
    client = std::make_unique<ControlClient>(
        loop, channel,
        ControlClient::Callbacks{[this] { ++up; },
                                 [this](std::string r) { down.push_back(std::move(r)); },
                                 [this](FromController m) {
                                   messages.push_back(std::move(m.message));
                                   terms.push_back(m.term);
                                 }});
    client->dial();
  }

  template <class Condition>
  bool run_until(Condition done, Duration limit = 10s) {
    const auto work = asio::make_work_guard(loop);
    loop.restart();
    const Instant end = BootClock::now() + limit;
    while (!done() && BootClock::now() < end) loop.run_one_for(100ms);
    return done();
  }
};

TEST_F(ClientTest, CarriesEveryMessageOfTheAgent) {
  std::promise<std::vector<v1::AgentMessage>> heard;
  FakeController controller([&heard](ServerStream& s) {
    std::vector<v1::AgentMessage> all(7);
    for (v1::AgentMessage& m : all) s.Read(&m);
    heard.set_value(all);
  });
  make(controller.channel());
  Hello hello;
  hello.name = "pc-1";
  hello.incarnation = 77;
  hello.running = "run-1";
  Armed armed{"run-1", 9, 10, {}};
  armed.errors.add(Outcome::reset, 111, "connection refused", 4);
  Record record = lawful(1s, 1s, 0, 3, 50);
  record.key = {"run-1", "pc-1", 77, 5};
  client->send(hello);
  client->send(Heartbeat{from_ns(5), Duration(6), Duration(7), "disk full", 8});
  client->send(PrepareReply{"run-1", {{"ports", "few", 10, 5}}});
  client->send(armed);
  client->send(Started{"run-1", ControllerInstant(Duration(99)), Duration(3)});
  client->send(record);
  client->send(Finished{"run-1", 5, "completed"});

  auto future = heard.get_future();
  ASSERT_TRUE(run_until([&] { return future.wait_for(0s) == std::future_status::ready; }));
  const auto all = future.get();
  EXPECT_EQ(all[0].hello().name(), "pc-1");
  EXPECT_EQ(all[0].hello().incarnation(), 77U);
  EXPECT_EQ(all[0].hello().running(), "run-1");
  EXPECT_EQ(all[1].heartbeat().t1_agent_ns(), 5);
  EXPECT_EQ(all[1].heartbeat().offset_bound_ns(), 7);
  EXPECT_EQ(all[1].heartbeat().trouble(), "disk full");
  EXPECT_EQ(all[1].heartbeat().certain(), 8U);
  EXPECT_EQ(all[2].prepare_reply().problems(0).needed(), 10U);
  EXPECT_EQ(all[3].armed().connect_errors(0).count(), 4U);
  EXPECT_EQ(all[3].armed().connect_errors(0).text(), "connection refused");
  EXPECT_EQ(all[4].started().at_controller_ns(), 99);
  EXPECT_EQ(all[5].record().seq(), 5U);
  EXPECT_EQ(all[5].record().counters().in_flight_end(), 3U);
  EXPECT_EQ(all[6].finished().last_seq(), 5U);
}

TEST_F(ClientTest, CarriesEveryMessageOfTheController) {
  FakeController controller([](ServerStream& s) {
    v1::AgentMessage ignored;
    v1::ControllerMessage m;
    m.mutable_welcome()->set_name("pc-1 (2)");
    m.mutable_welcome()->set_heartbeat_ms(250);
    s.Write(m);
    m.mutable_rejected()->set_reason("because");
    s.Write(m);
    m.mutable_heartbeat_reply()->set_t1_agent_ns(1);
    m.mutable_heartbeat_reply()->set_t2_controller_ns(2);
    m.mutable_heartbeat_reply()->set_t3_controller_ns(3);
    s.Write(m);
    v1::Prepare& p = *m.mutable_prepare();
    p.set_run("run-1");
    v1::ShareTimeline& t = *p.mutable_timeline();
    v1::CallSpec& call = *t.add_calls();
    call.set_method("a.B/C");
    call.set_timeout_ns(9);
    auto* d = call.add_metadata();
    d->set_key("k");
    d->set_value("v");
    v1::EpochShare& epoch = *t.add_epochs();
    epoch.set_target_url("grpc://127.0.0.1:7000");
    epoch.set_threads(4);
    epoch.set_connections(300);
    v1::Segment& segment = *t.add_segments();
    segment.set_offset_ns(5);
    segment.set_length_ns(6);
    segment.set_phase(1);
    p.set_interval_ns(8);
    p.set_seed(42);
    p.set_first_connection(600);
    s.Write(m);
    m.mutable_prepare()->set_drain_ns(0);
    s.Write(m);
    m.mutable_start()->set_at_controller_ns(1234);
    s.Write(m);
    m.mutable_record_ack()->set_seq(17);
    s.Write(m);
    m.mutable_stop()->set_drain_ns(3);
    m.mutable_stop()->set_reason("user");
    s.Write(m);
    m.mutable_epoch_commit()->set_epoch(7);
    s.Write(m);
    m.mutable_epoch_commit()->set_hold_from_ns(12);
    s.Write(m);
    s.Write(v1::ControllerMessage());  // of a later version, for all we know
    while (s.Read(&ignored)) {
    }
  });
  make(controller.channel());
  ASSERT_TRUE(run_until([&] { return messages.size() == 10; }));
  EXPECT_EQ(std::get<Welcome>(messages[0]).name, "pc-1 (2)");
  EXPECT_EQ(std::get<Welcome>(messages[0]).heartbeat, 250ms);
  EXPECT_EQ(std::get<Rejected>(messages[1]).reason, "because");
  const auto& beat = std::get<HeartbeatReply>(messages[2]);
  EXPECT_EQ(to_ns(beat.sent), 1);
  EXPECT_EQ(beat.replied.time_since_epoch(), 3ns);
  EXPECT_LT(BootClock::now() - beat.answered, 10s);
  EXPECT_EQ(std::get<EpochCommit>(messages[8]).epoch, 7U);
  EXPECT_FALSE(std::get<EpochCommit>(messages[8]).hold_from);
  EXPECT_EQ(std::get<EpochCommit>(messages[9]).hold_from, 12ns);
  const auto& p = std::get<Prepare>(messages[3]);
  EXPECT_EQ(p.run, "run-1");
  const Parameters& parameters = p.timeline.epochs.at(0).parameters;
  EXPECT_EQ(parameters.call.method, "a.B/C");
  EXPECT_EQ(parameters.call.metadata.at(0).second, "v");
  EXPECT_EQ(parameters.load.connections, 300U);
  EXPECT_EQ(p.timeline.segments.at(0).length, 6ns);
  EXPECT_EQ(p.first_connection, 600U);
  EXPECT_EQ(p.drain, 5s) << "absent";
  EXPECT_EQ(std::get<Prepare>(messages[4]).drain, 0s) << "asked for";
  EXPECT_EQ(std::get<Start>(messages[5]).at.time_since_epoch(), 1234ns);
  EXPECT_EQ(std::get<RecordAck>(messages[6]).seq, 17U);
  EXPECT_EQ(std::get<Stop>(messages[7]).reason, "user");
  EXPECT_TRUE(down.empty());
}

TEST_F(ClientTest, DialsAgainUntilTheControllerIsBack) {
  std::atomic<int> streams{0};
  const auto talk = [&streams](ServerStream& s) {
    v1::AgentMessage m;
    s.Read(&m);
    ++streams;
    v1::ControllerMessage w;
    w.mutable_welcome()->set_name(m.hello().name());
    s.Write(w);
    while (s.Read(&m)) {
    }
  };
  auto controller = std::make_unique<FakeController>(talk);
  const int port = controller->port();
  make(controller->channel());
  client->send(Hello{});
  ASSERT_TRUE(run_until([&] { return messages.size() == 1; }));
  controller.reset();
  ASSERT_TRUE(run_until([&] { return !down.empty(); }));
  const int ups = up;
  ASSERT_TRUE(run_until([&] { return up > ups + 1; })) << "it goes on trying";
  controller = std::make_unique<FakeController>(talk, port);
  int said = 0;
  ASSERT_TRUE(run_until([&] {
    if (up > said) {
      client->send(Hello{});
      said = up;
    }
    return messages.size() == 2;
  }));
  EXPECT_EQ(streams, 2);
}

TEST_F(ClientTest, GivesAStreamUpOnDemandAndMakesANewOne) {
  FakeController controller([](ServerStream& s) {
    v1::AgentMessage m;
    while (s.Read(&m)) {
    }
  });
  make(controller.channel());
  client->send(Hello{});
  client->disconnect();
  ASSERT_TRUE(run_until([&] { return up == 2; }));
  EXPECT_TRUE(down.empty());
}

TEST_F(ClientTest, WaitsLongerAndLongerWhileItIsRefused) {
  EXPECT_EQ(ControlClient::backoff_ceiling(0, true), ControlClient::kBackoffMin);
  EXPECT_EQ(ControlClient::backoff_ceiling(100, true), ControlClient::kRefusedBackoffMax);
  EXPECT_EQ(ControlClient::backoff_ceiling(100, false), ControlClient::kBackoffMax);
  FakeController controller([](ServerStream& s) {
    v1::ControllerMessage m;
    m.mutable_rejected()->set_reason("because");
    s.Write(m);
  });
  make(controller.channel());
  std::size_t heard = 0;
  run_until(
      [&] {
        if (messages.size() > heard) client->disconnect(true);
        heard = messages.size();
        return false;
      },
      3s);
  EXPECT_GE(up, 3);
  EXPECT_LT(up, 20) << "a refusal does not begin the back-off anew";
}

TEST_F(ClientTest, GivesAStreamUpThatIsNotRead) {
  std::promise<void> over;
  auto wait = over.get_future().share();
  FakeController controller([wait](ServerStream&) { wait.wait(); });
  make(controller.channel());
  Record record = lawful(0s, 1s, 0, 0, 10);
  record.errors.add(Outcome::reset, 1, std::string(150, 'x'));
  for (int i = 0; i < 1'000'000 && down.empty(); ++i) {
    client->send(record);
    loop.poll();
    loop.restart();
  }
  EXPECT_FALSE(down.empty());
  client.reset();
  over.set_value();
}

TEST_F(ClientTest, WritesWhatIsQueuedBeforeItCloses) {
  std::promise<int> heard;
  FakeController controller([&heard](ServerStream& s) {
    v1::AgentMessage m;
    int count = 0;
    while (s.Read(&m)) ++count;
    heard.set_value(count);
  });
  make(controller.channel());
  for (int i = 0; i < 100; ++i) client->send(Heartbeat{});
  bool closed = false;
  client->close(5s, [&closed] { closed = true; });
  ASSERT_TRUE(run_until([&] { return closed; }));
  EXPECT_EQ(heard.get_future().get(), 100);
  EXPECT_EQ(up, 1);
}

TEST_F(ClientTest, ClosesInTimeWhenNobodyAnswers) {
  std::promise<void> over;
  auto wait = over.get_future().share();
  FakeController controller([wait](ServerStream&) { wait.wait(); });
  make(controller.channel());
  client->send(Hello{});
  bool closed = false;
  client->close(200ms, [&closed] { closed = true; });
  EXPECT_TRUE(run_until([&] { return closed; }, 5s));
  client.reset();
  over.set_value();
}

}  // namespace
}  // namespace spate::agent
