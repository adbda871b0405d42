// The whole controller over real gRPC on loopback, with agents that are scripts.

#include "controller/controller.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/operator.grpc.pb.h"
#include "proto/wire.h"
#include "rpc/grpc_settings.h"
#include "tests/unit/controller/run_data.h"

namespace spate::controller {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(30);

const char* const kPlan = R"({
  "name": "script", "target": {"url": "grpc://127.0.0.1:1"},
  "call": {"method": "spate.target.v1.Calls/Call", "message": {}},
  "load": {"model": "closed", "connections": 10}, "agents": {"count": 2},
  "interval": "1s", "phases": [{"name": "flood", "for": "3s"}]})";

// What an agent does, told by the controller's messages. Sends its records as soon as it is
// started: the controller goes by what they say, not by when they come.
class ScriptedAgent {
 public:
  struct Script {
    std::string problem{};  // refuses its share
    int records = 3;
    bool repeats_a_record = false;
    std::uint64_t breaks_off_after =
        100;  // records, once acknowledged: the stream is cut, for good
  };
  ScriptedAgent(const std::shared_ptr<grpc::Channel>& channel, std::string name,
                std::uint64_t incarnation, Script script)
      : stub_(agent::v1::AgentControl::NewStub(channel)),
        script_(script),
        name_(std::move(name)),
        incarnation_(incarnation),
        stream_(stub_->Session(&context_)) {
    agent::v1::AgentMessage hello;
    hello.mutable_hello()->set_protocol(kProtocolVersion);
    hello.mutable_hello()->set_version(kVersion);
    hello.mutable_hello()->set_name(name_);
    hello.mutable_hello()->set_incarnation(incarnation_);
    hello.mutable_hello()->set_host("test");
    stream_->Write(hello);
    thread_ = std::thread([this] { read(); });
    beat_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
  }
  ~ScriptedAgent() {
    beat_.request_stop();
    beat_.join();
    context_.TryCancel();
    thread_.join();
  }
  std::uint64_t acknowledged() const { return acknowledged_; }

 private:
  void read() {
    agent::v1::ControllerMessage m;
    while (stream_->Read(&m)) {
      if (m.has_prepare()) prepare(m.prepare());
      if (m.has_start()) start(m.start());
      if (m.has_record_ack()) acknowledged_ = m.record_ack().seq();
      if (acknowledged_ >= script_.breaks_off_after) {
        beat_.request_stop();
        context_.TryCancel();
      }
    }
    stream_->Finish();
  }
  void write(const agent::v1::AgentMessage& m) {
    const std::lock_guard lock(writing_);
    stream_->Write(m);
  }
  void beat(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      agent::v1::AgentMessage m;
      m.mutable_heartbeat()->set_t1_agent_ns(to_ns(BootClock::now()));
      write(m);
      wake.wait_for(lock, stop, std::chrono::milliseconds(500), [] { return false; });
    }
  }
  void prepare(const agent::v1::Prepare& p) {
    connections_ = p.timeline().epochs(0).connections();
    agent::v1::AgentMessage reply;
    reply.mutable_prepare_reply()->set_run(p.run());
    if (!script_.problem.empty()) {
      auto* problem = reply.mutable_prepare_reply()->add_problems();
      problem->set_what("descriptors");
      problem->set_text(script_.problem);
      problem->set_needed(5000);
      problem->set_available(1024);
    }
    write(reply);
    if (!script_.problem.empty()) return;
    agent::v1::AgentMessage armed;
    armed.mutable_armed()->set_run(p.run());
    armed.mutable_armed()->set_connections_requested(connections_);
    armed.mutable_armed()->set_connections_established(connections_);
    write(armed);
  }
  void start(const agent::v1::Start& s) {
    agent::v1::AgentMessage started;
    started.mutable_started()->set_run(s.run());
    started.mutable_started()->set_at_controller_ns(s.at_controller_ns() + 1000);
    write(started);
    test::FakeAgent source(name_, incarnation_);
    for (int i = 0; i < script_.records; ++i) {
      if (static_cast<std::uint64_t>(i) == script_.breaks_off_after) return;
      test::FakeAgent::Interval interval;
      interval.start = i * test::kSecond;
      interval.requests = test::ok_requests(5);
      interval.requested = interval.established = connections_;
      Record record = source.next(interval);
      record.key.run = s.run();
      agent::v1::AgentMessage m;
      *m.mutable_record() = wire::encode(record);
      write(m);
      if (script_.repeats_a_record && i == 1) write(m);
    }
    agent::v1::AgentMessage finished;
    finished.mutable_finished()->set_run(s.run());
    finished.mutable_finished()->set_last_seq(static_cast<std::uint64_t>(script_.records));
    finished.mutable_finished()->set_reason("completed");
    write(finished);
  }

  std::unique_ptr<agent::v1::AgentControl::Stub> stub_;
  const Script script_;
  const std::string name_;
  const std::uint64_t incarnation_;
  std::uint64_t connections_ = 0;
  std::atomic<std::uint64_t> acknowledged_{0};
  std::mutex writing_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<agent::v1::AgentMessage, agent::v1::ControllerMessage>>
      stream_;
  std::thread thread_;
  std::jthread beat_;
};

class ControllerTest : public testing::Test {
 protected:
  ControllerTest() {
    std::string pattern = (fs::temp_directory_path() / "spate-controller-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    begin();
  }
  ~ControllerTest() override {
    end();
    fs::remove_all(directory_);
  }
  void begin() {
    auto made = Controller::create({"127.0.0.1", 0}, {}, (directory_ / "runs.sqlite").string());
    ASSERT_TRUE(made.has_value()) << made.error().message;
    controller_ = std::move(*made);
    thread_ = std::thread([this] { controller_->run(); });
    auto channel = rpc::make_channel(controller_->listening_on(), {}, rpc::Role::controller);
    ASSERT_TRUE(channel.has_value()) << channel.error().message;
    channel_ = *channel;
    stub_ = ops::v1::Operator::NewStub(channel_);
  }
  void end() {
    controller_->shut_down();
    thread_.join();
    controller_.reset();
  }
  ops::v1::SubmitReply submit(std::chrono::milliseconds wait = kPatience) {
    grpc::ClientContext context;
    ops::v1::SubmitRequest request;
    request.set_plan(kPlan);
    request.set_wait_ms(wait.count());
    ops::v1::SubmitReply reply;
    const grpc::Status status = stub_->Submit(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  struct Seen {
    std::vector<ops::v1::Progress> progress;
    std::string events;
    ops::v1::End end;
    grpc::Status status;
  };
  Seen watch(const std::string& run) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    ops::v1::WatchRequest request;
    request.set_run(run);
    auto reader = stub_->Watch(&context, request);
    Seen seen;
    ops::v1::WatchEvent event;
    while (reader->Read(&event)) {
      if (event.has_progress()) seen.progress.push_back(event.progress());
      if (event.has_event()) seen.events += event.event().text() + "\n";
      if (event.has_end()) seen.end = event.end();
    }
    seen.status = reader->Finish();
    return seen;
  }
  ops::v1::VerifyReply verify(const std::string& run) {
    grpc::ClientContext context;
    ops::v1::VerifyRequest request;
    request.set_run(run);
    ops::v1::VerifyReply reply;
    const grpc::Status status = stub_->Verify(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  fs::path directory_;
  std::unique_ptr<Controller> controller_;
  std::thread thread_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ops::v1::Operator::Stub> stub_;
};

TEST_F(ControllerTest, TakesARunThroughToItsEnd) {
  ScriptedAgent one(channel_, "pc-1", 1, {});
  ScriptedAgent two(channel_, "pc-2", 2, {.repeats_a_record = true});
  const auto submitted = submit();
  ASSERT_EQ(submitted.problems_size(), 0) << submitted.problems(0);
  const Seen seen = watch(submitted.run());
  ASSERT_TRUE(seen.status.ok()) << seen.status.error_message();
  const auto summary = nlohmann::json::parse(seen.end.summary_json());
  EXPECT_EQ(seen.end.exit_code(), 0) << seen.end.summary_text();
  EXPECT_EQ(summary["verdict"], "VALID") << seen.end.summary_text();
  EXPECT_EQ(summary["requests"]["ok"], 30);
  EXPECT_EQ(summary["records"]["stored"], 6);
  EXPECT_EQ(summary["records"]["gaps"], 0);
  EXPECT_EQ(summary["records"]["duplicates"], 1);
  EXPECT_EQ(summary["connections"]["established"], 10);
  EXPECT_THAT(seen.events, HasSubstr("run prepared agents=2 connections=10"));
  EXPECT_EQ(one.acknowledged(), 3U);

  // The same again from the store.
  EXPECT_EQ(watch(submitted.run()).end.summary_json(), seen.end.summary_json());
  EXPECT_EQ(verify(submitted.run()).exit_code(), 0);
  grpc::ClientContext context;
  ops::v1::ListRunsReply runs;
  ASSERT_TRUE(stub_->ListRuns(&context, {}, &runs).ok());
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).verdict(), "VALID");
  EXPECT_EQ(runs.runs(0).state(), "completed");
  EXPECT_EQ(runs.runs(0).requests(), 30U);

  // And after a restart.
  end();
  begin();
  EXPECT_EQ(watch(submitted.run()).end.summary_json(), seen.end.summary_json());
}

TEST_F(ControllerTest, ReturnsEveryProblemAndStartsNothing) {
  ScriptedAgent one(channel_, "pc-1", 1, {.problem = "too few"});
  ScriptedAgent two(channel_, "pc-2", 2, {});
  const auto submitted = submit();
  EXPECT_EQ(submitted.exit_code(), 2);
  ASSERT_EQ(submitted.problems_size(), 1);
  EXPECT_THAT(submitted.problems(0),
              HasSubstr("agent pc-1: descriptors: too few (needed 5,000, there are 1,024)"));
  // The agents are free again.
  grpc::ClientContext context;
  ops::v1::ListAgentsReply agents;
  ASSERT_TRUE(stub_->ListAgents(&context, {}, &agents).ok());
  ASSERT_EQ(agents.agents_size(), 2);
  for (const auto& agent : agents.agents()) EXPECT_EQ(agent.run(), "");
}

TEST_F(ControllerTest, NamesTheAgentsThatAreThere) {
  ScriptedAgent one(channel_, "pc-1", 1, {});
  const auto submitted = submit(std::chrono::milliseconds(500));
  EXPECT_EQ(submitted.exit_code(), 1);
  ASSERT_EQ(submitted.problems_size(), 1);
  EXPECT_THAT(submitted.problems(0),
              HasSubstr("asks for 2 agents, 1 are there after waiting 500ms: pc-1"));
}

TEST_F(ControllerTest, ShowsALostAgentAndEndsTheRun) {
  ScriptedAgent one(channel_, "pc-1", 1, {});
  ScriptedAgent two(channel_, "pc-2", 2, {.breaks_off_after = 1});
  const auto submitted = submit();
  const Seen seen = watch(submitted.run());
  ASSERT_TRUE(seen.status.ok()) << seen.status.error_message();
  EXPECT_EQ(seen.end.exit_code(), 3);
  EXPECT_THAT(seen.events, HasSubstr("agent lost agent=pc-2"));
  const auto summary = nlohmann::json::parse(seen.end.summary_json());
  EXPECT_EQ(summary["verdict"], "INVALID");
  EXPECT_EQ(summary["records"]["stored"], 4);
  EXPECT_THAT(seen.end.summary_text(), HasSubstr("pc-2"));
}

TEST_F(ControllerTest, SaysThatARunIsNotThere) {
  EXPECT_EQ(watch("nothing").status.error_code(), grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  ops::v1::StopRequest request;
  request.set_run("nothing");
  ops::v1::StopReply reply;
  EXPECT_EQ(stub_->Stop(&context, request, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ControllerTest, ListsEveryMistakeOfAPlan) {
  grpc::ClientContext context;
  ops::v1::SubmitRequest request;
  request.set_plan(
      R"({"name": "x", "lood": {}, "load": {"connections": -1}, "agents": {"count": "many"}})");
  ops::v1::SubmitReply reply;
  ASSERT_TRUE(stub_->Submit(&context, request, &reply).ok());
  EXPECT_EQ(reply.exit_code(), 2);
  EXPECT_GE(reply.problems_size(), 2);
}

TEST_F(ControllerTest, ForgetsASubmissionWhoseClientHasLeft) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  ops::v1::SubmitRequest request;
  request.set_plan(kPlan);
  request.set_wait_ms(60'000);
  ops::v1::SubmitReply reply;
  EXPECT_EQ(stub_->Submit(&context, request, &reply).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // Agents that come now are not taken; what happened is on record.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  ops::v1::ListRunsReply runs;
  do {
    grpc::ClientContext list;
    runs.Clear();
    ASSERT_TRUE(stub_->ListRuns(&list, {}, &runs).ok());
  } while ((runs.runs_size() == 0 || runs.runs(0).state() != "stopped") &&
           std::chrono::steady_clock::now() < deadline);
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).state(), "stopped");
  EXPECT_THAT(runs.runs(0).reason(), HasSubstr("the client left before the start"));
}

}  // namespace
}  // namespace spate::controller
