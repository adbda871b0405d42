// A worker whose parameters change while it floods.

#include <sys/resource.h>
#include <zlib.h>

#include <filesystem>

#include "agent/drivers/tls.h"
#include "tests/unit/agent/issued_certificate.h"
#include "tests/unit/agent/worker_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace spate::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr Duration kLength = 400ms;

class WorkerChange : public WorkerFixture {
 protected:
  // One epoch for all of it.
  std::shared_ptr<Assignment> plan(std::uint16_t port, std::uint64_t connections) {
    auto a = assignment(port, connections);
    a->segments[0].length = kLength;
    return a;
  }
  // From `at` on another epoch.
  std::shared_ptr<const Assignment> changed(const Assignment& a, Duration at,
                                            const AssignedEpoch& e) {
    auto next = std::make_shared<Assignment>(a);
    next->epochs = {e};
    next->segments = {{at, kLength - at, 0, e.number, false}};
    return next;
  }
  AssignedEpoch epoch_with(std::uint32_t number, std::uint64_t connections, PreparedCall call) {
    AssignedEpoch e = epoch(number, connections);
    e.call = prepare(std::move(call));
    return e;
  }

  void start(Worker& worker, Duration in = 10ms) {
    worker.open();
    wait_until([&] { return opening.settled; });
    t0 = BootClock::now() + in;
    worker.start_at(t0);
  }
  void change(Worker& worker, const Assignment& a, Duration at, const AssignedEpoch& e) {
    worker.change(changed(a, at, e), t0 + at);
  }
  void finish() {
    wait_until([&] { return drained; });
    check_laws();
    check_epochs();
  }
  // Epochs only grow, and every one begins where a record does.
  void check_epochs() {
    for (std::size_t i = 1; i < records.size(); ++i)
      EXPECT_GE(records[i].epoch, records[i - 1].epoch);
    for (const auto& [number, at] : changes)
      EXPECT_EQ(t0 + first_of(number).start, at) << "epoch " << number;
  }
  const Record& first_of(std::uint32_t number) const {
    static const Record none;
    for (const Record& r : records)
      if (r.epoch == number) return r;
    ADD_FAILURE() << "no record of epoch " << number;
    return none;
  }
  const Record& last_of(std::uint32_t number) const {
    const Record* last = &first_of(number);
    for (const Record& r : records)
      if (r.epoch == number && !r.drain) last = &r;
    return *last;
  }
  template <class F>
  std::uint64_t sum(F&& of) const {
    std::uint64_t n = 0;
    for (const Record& r : records) n += of(r);
    return n;
  }
  std::uint64_t sent_in(std::uint32_t number) const {
    return sum([&](const Record& r) { return r.epoch == number ? r.counters.sent : 0; });
  }
};

TEST_F(WorkerChange, IsHeardOfAfterAnotherIntervalHasBegun) {
  FloodServer server;
  auto a = plan(server.port(), 2);
  a->interval = 50ms;
  Worker worker(0, a, callbacks());
  start(worker);
  wait_until([&] { return records.size() >= 2; });
  const Duration begun = records.back().start + records.back().length;
  change(worker, *a, begun, epoch(2, 1));
  finish();
  for (const Record& r : records)
    EXPECT_TRUE(r.length > Duration::zero() || r.counters.sent == 0) << r.counters.sent;
  EXPECT_GT(first_of(2).start, begun);
}

TEST_F(WorkerChange, OpensAndClosesConnectionsToFit) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  start(worker);
  change(worker, *a, 115ms, epoch(2, 6));
  wait_until([&] { return changes.size() == 1; });
  change(worker, *a, 265ms, epoch(3, 1));
  finish();
  EXPECT_THAT(changes, ElementsAre(Pair(2, t0 + 115ms), Pair(3, t0 + 265ms)));
  EXPECT_EQ(last_of(1).start + last_of(1).length, Duration(115ms)) << "the interval is cut there";
  EXPECT_EQ(last_of(1).length, Duration(15ms));
  EXPECT_EQ(first_of(2).length, Duration(35ms)) << "borders go on counting from the start";
  EXPECT_EQ(total(&Counters::connections_opened), 6U);
  EXPECT_EQ(total(&Counters::connections_closed), 5U);
  EXPECT_EQ(server.accepted(), 6U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_EQ(last_of(2).gauges.connections_established, 6U);
  EXPECT_EQ(last_of(2).gauges.connections_requested, 6U);
  EXPECT_EQ(last_of(3).gauges.connections_established, 1U);
}

TEST_F(WorkerChange, OpensAgainWhatItHadClosed) {
  FloodServer server;
  const auto a = plan(server.port(), 6);
  Worker worker(0, a, callbacks());
  start(worker);
  change(worker, *a, 100ms, epoch(2, 1));
  wait_until([&] { return changes.size() == 1; });
  change(worker, *a, 200ms, epoch(3, 4));
  wait_until([&] { return changes.size() == 2; });
  change(worker, *a, 300ms, epoch(4, 8));
  finish();
  EXPECT_EQ(last_of(2).gauges.connections_established, 1U);
  EXPECT_EQ(last_of(3).gauges.connections_established, 4U);
  EXPECT_EQ(last_of(4).gauges.connections_established, 8U);
  EXPECT_EQ(total(&Counters::connections_opened), 6U + 3U + 4U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
}

TEST_F(WorkerChange, KeepsConnectionsWhenOnlyTheCallChanges) {
  FloodServer server;
  const auto a = plan(server.port(), 4);
  Worker worker(0, a, callbacks());
  start(worker);
  PreparedCall call = call_to(server.port());
  call.route = calls->route;
  call.method_path = "/other.Service/Method";
  call.metadata = {{"x-test", "one"}, {"x-other", std::string(200, 'y')}};
  call.timeout = 3s;
  call.message = message(R"({"call":{"add":[1,1]}})");
  change(worker, *a, 80ms, epoch_with(2, 4, call));
  wait_until([&] { return changes.size() == 1; });
  call.metadata = {{"x-test", std::string(20'000, 'z')}};  // too large for a prepared header block
  change(worker, *a, 160ms, epoch_with(3, 4, call));
  wait_until([&] { return changes.size() == 2; });
  change(worker, *a, 240ms, epoch(4, 4));
  finish();
  EXPECT_EQ(server.accepted(), 4U);
  EXPECT_EQ(total(&Counters::connections_closed), 0U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  const auto heard = server.heard();
  EXPECT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard.at({"/spate.target.v1.Calls/Call", "", "10S", ""}), sent_in(1) + sent_in(4));
  EXPECT_EQ(heard.at({"/other.Service/Method", "", "3S", "one"}), sent_in(2));
  EXPECT_EQ(heard.at({"/other.Service/Method", "", "3S", std::string(20'000, 'z')}), sent_in(3));
  for (std::uint32_t e = 1; e <= 4; ++e) EXPECT_GT(sent_in(e), 4U);
}

std::string gunzipped(const std::string& bytes) {
  std::string out(100'000, '\0');
  z_stream z{};
  inflateInit2(&z, 15 + 16);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  inflateEnd(&z);
  return out;
}

TEST_F(WorkerChange, CompressesMessagesWhileItIsOn) {
  // A constant message, and one that is rendered anew each time.
  const std::string text(3000, 't');
  for (const std::string& spice : {std::string("1"), std::string("{{seq}}")}) {
    FloodServer server;
    const auto json = R"({"call":{"text":")" + text + spice + R"("}})";
    PreparedCall call = call_to(server.port());
    call.message = message(json.c_str());
    auto a = plan(server.port(), 2);
    a->epochs = {epoch_with(1, 2, call)};
    Worker worker(0, a, callbacks());
    start(worker);
    call.route = a->epochs[0].call->route;
    call.compress = true;
    change(worker, *a, 100ms, epoch_with(2, 2, call));
    finish();
    EXPECT_EQ(server.accepted(), 2U);
    EXPECT_EQ(total(Outcome::ok), server.calls());
    EXPECT_THAT(server.flags(), ElementsAre(Pair('\0', sent_in(1)), Pair('\1', sent_in(2))));
    EXPECT_EQ((server.heard().at({"/spate.target.v1.Calls/Call", "gzip", "10S", ""})), sent_in(2));
    EXPECT_THAT(gunzipped(server.last_message()), HasSubstr(text + (spice == "1" ? "1" : "")));
    const auto bytes_per_request = [&](std::uint32_t number) {
      return sum([&](const Record& r) { return r.epoch == number ? r.counters.bytes_sent : 0; }) /
             sent_in(number);
    };
    EXPECT_GT(bytes_per_request(1), 3000U);
    EXPECT_LT(bytes_per_request(2), 300U);
    records.clear();
    changes.clear();
    opening = {};
    drained = false;
  }
}

TEST_F(WorkerChange, ReplacesConnectionsThatLeadElsewhere) {
  TemporaryDirectory directory;
  const Issued ca = issue("test CA", nullptr, nullptr);
  const Issued certificate = issue("server", "IP:127.0.0.1", &ca);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_use_certificate(context, certificate.certificate);
  SSL_CTX_use_PrivateKey(context, certificate.key);
  SSL_CTX_set_alpn_select_cb(
      context,
      [](SSL*, const unsigned char** out, unsigned char* size, const unsigned char*, unsigned,
         void*) {
        *out = reinterpret_cast<const unsigned char*>("h2");
        *size = 2;
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
  {
    FloodServer plain;
    FloodServer sealed({.tls = context});
    const auto a = plan(plain.port(), 3);
    Worker worker(0, a, callbacks());
    start(worker);
    PreparedCall call = call_to(sealed.port());
    call.route = std::make_shared<Route>(Route{
        *IpAddress::parse("127.0.0.1"),
        {"127.0.0.1", sealed.port()},
        *TlsContext::load({write_pem(directory / "ca.pem", ca, false), "", ""}, "127.0.0.1")});
    change(worker, *a, 120ms, epoch_with(2, 3, call));
    finish();
    EXPECT_EQ(plain.accepted(), 3U);
    EXPECT_EQ(sealed.accepted(), 3U);
    EXPECT_EQ(total(&Counters::connections_opened), 6U);
    EXPECT_EQ(total(&Counters::connections_closed), 3U);
    EXPECT_EQ(total(Outcome::ok), plain.calls() + sealed.calls()) << errors();
    EXPECT_EQ(total(Outcome::ok), total(&Counters::sent));
    EXPECT_GT(sealed.calls(), 3U);
    EXPECT_EQ(last_of(2).gauges.connections_established, 3U);
  }
  SSL_CTX_free(context);
  for (const Issued& issued : {ca, certificate}) free_issued(issued);
}

TEST_F(WorkerChange, WaitsForTheAnswerBeforeItGoesElsewhere) {
  FloodServer silent({.silent = true});
  FloodServer server;
  auto a = plan(silent.port(), 2);
  PreparedCall call = call_to(silent.port());
  call.timeout = 200ms;
  a->epochs = {epoch_with(1, 2, call)};
  Worker worker(0, a, callbacks());
  start(worker);
  change(worker, *a, 100ms, epoch_with(2, 2, call_to(server.port())));
  finish();
  EXPECT_EQ(silent.calls(), 2U);
  EXPECT_EQ(total(Outcome::timed_out), 2U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_GT(server.calls(), 2U);
  EXPECT_EQ(total(&Counters::connections_opened), 4U);
}

TEST_F(WorkerChange, PausesAndResumesOnTheSameConnections) {
  FloodServer server;
  const auto a = plan(server.port(), 3);
  Worker worker(0, a, callbacks());
  start(worker);
  AssignedEpoch paused = epoch(2, 3);
  paused.parameters.paused = true;
  change(worker, *a, 100ms, paused);
  wait_until([&] { return changes.size() == 1; });
  change(worker, *a, 300ms, epoch(3, 3));
  finish();
  EXPECT_EQ(server.accepted(), 3U);
  EXPECT_EQ(sent_in(2), 0U);
  EXPECT_GT(sent_in(3), 3U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_EQ(last_of(2).gauges.connections_established, 3U);
  for (const Record& r : records)
    EXPECT_LT(r.send_lag.max(), Duration(200ms).count()) << "what is not due has no lag";
}

TEST_F(WorkerChange, BeginsPausedIfItsFirstEpochIs) {
  FloodServer server;
  const auto a = plan(server.port(), 3);
  a->epochs[0].parameters.paused = true;
  Worker worker(0, a, callbacks());
  start(worker);
  change(worker, *a, 200ms, epoch(2, 3));
  finish();
  EXPECT_EQ(sent_in(1), 0U);
  EXPECT_GT(sent_in(2), 3U);
  EXPECT_GE(first, t0 + 200ms);
}

TEST_F(WorkerChange, MakesTwoChangesCloseTogether) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  start(worker);
  change(worker, *a, 100ms, epoch(2, 5));
  change(worker, *a, 101ms, epoch(3, 3));
  finish();
  EXPECT_THAT(changes, ElementsAre(Pair(2, t0 + 100ms), Pair(3, t0 + 101ms)));
  EXPECT_EQ(first_of(2).length, Duration(1ms));
  EXPECT_EQ(last_of(3).gauges.connections_established, 3U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
}

TEST_F(WorkerChange, ForgetsAChangeThatALaterOneComesBefore) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  start(worker);
  change(worker, *a, 200ms, epoch(2, 5));
  change(worker, *a, 100ms, epoch(3, 1));
  finish();
  EXPECT_THAT(changes, ElementsAre(Pair(3, t0 + 100ms)));
  EXPECT_EQ(sent_in(2), 0U);
  EXPECT_EQ(total(&Counters::connections_opened), 2U);
}

TEST_F(WorkerChange, ChangesAtOnceWhenTheInstantIsPast) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  start(worker);
  wait_until([&] { return records.size() >= 3; });
  change(worker, *a, 70ms, epoch(2, 4));
  finish();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_GE(changes[0].second, t0 + 150ms) << "not into an interval that is told already";
  EXPECT_EQ(last_of(2).gauges.connections_established, 4U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
}

TEST_F(WorkerChange, BeginsWithAChangeThatCameBeforeTheStart) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  start(worker, 60ms);
  change(worker, *a, 0ms, epoch(2, 4));
  finish();
  EXPECT_EQ(records.front().epoch, 2U);
  EXPECT_THAT(changes, ElementsAre(Pair(2, t0)));
  EXPECT_EQ(last_of(2).gauges.connections_established, 4U);
}

TEST_F(WorkerChange, JoinsARunInTheMiddle) {
  FloodServer server;
  auto a = plan(server.port(), 2);
  a->epochs.push_back(epoch(2, 3));
  a->segments = {{0ms, 100ms, 0, 1, false}, {100ms, 60ms, 1, 2, true}, {160ms, 240ms, 1, 2, false}};
  Worker worker(0, a, callbacks());
  worker.open();
  wait_until([&] { return opening.settled; });
  const Instant begin = BootClock::now() + 10ms;
  t0 = begin - 130ms;
  begins_at = 130ms;
  worker.start_at(t0, begin);
  finish();
  EXPECT_EQ(records.front().epoch, 2U);
  EXPECT_EQ(records.front().phase, 1U);
  EXPECT_TRUE(records.front().guard) << "what is in effect now";
  EXPECT_EQ(records.front().length, Duration(20ms)) << "borders count from the common start";
  EXPECT_EQ(records.at(1).length, Duration(10ms)) << "the end of the guard band";
  EXPECT_FALSE(records.at(2).guard);
  EXPECT_GE(first, begin);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_EQ(last_of(2).gauges.connections_established, 3U);
}

TEST_F(WorkerChange, JoinsWithoutOpeningAnythingBefore) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  t0 = BootClock::now() - 100ms;
  const Instant begin = BootClock::now() + 60ms;
  begins_at = begin - t0;
  worker.join(changed(*a, begin - t0, epoch(2, 2)), t0, begin);
  finish();
  EXPECT_EQ(records.front().gauges.connections_established, 2U);
  EXPECT_EQ(total(&Counters::connections_opened), 2U);
  EXPECT_GE(first, begin);
}

TEST_F(WorkerChange, HoldsWhenItsLeaseEndsAndGoesOnWithANewOne) {
  FloodServer server;
  const auto a = plan(server.port(), 3);
  Worker worker(0, a, callbacks());
  start(worker);
  worker.lease(t0 + 40ms);
  worker.lease(t0 + 100ms);  // renewed in time
  wait_until([&] { return records.size() >= 5; });
  const std::uint64_t held = server.calls();
  worker.lease(BootClock::now() + 10s);
  finish();
  EXPECT_GT(server.calls(), held);
  EXPECT_GT(records.at(1).counters.sent, 0U);
  EXPECT_EQ(records.at(3).counters.sent, 0U);
  EXPECT_EQ(records.at(4).counters.sent, 0U);
  EXPECT_EQ(records.at(4).gauges.connections_established, 3U);
  EXPECT_EQ(total(&Counters::connections_opened), 3U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
}

TEST_F(WorkerChange, EndsAsPlannedWithoutALease) {
  FloodServer server({.close_after = 3});
  const auto a = plan(server.port(), 3);
  Worker worker(0, a, callbacks());
  worker.lease(BootClock::now() + 100ms);
  start(worker);
  finish();
  EXPECT_EQ(records.back().start, kLength);
  EXPECT_EQ(records.at(6).counters.sent, 0U);
  EXPECT_EQ(records.at(6).counters.connections_opened, 0U) << "a lost connection stays lost";
}

// As after SIGSTOP: the clock has gone on, and nobody could tell the worker anything.
TEST_F(WorkerChange, SendsNothingWhenItWakesUpAfterItsLease) {
  FloodServer server;
  const auto a = plan(server.port(), 4);
  a->segments[0].length = 10s;
  WorkerCallbacks c = callbacks();
  Instant leased_until = kLength + BootClock::now();
  std::uint64_t before = 0;
  std::uint64_t intervals = 0;
  const auto tell = c.interval;
  c.interval = [&](std::uint32_t w, Record r) {
    tell(w, std::move(r));
    if (++intervals != 3) return;
    while (BootClock::now() < leased_until + 50ms) std::this_thread::yield();
    before = server.calls();
  };
  Worker worker(0, a, c);
  start(worker);
  leased_until = t0 + 160ms;
  worker.lease(leased_until);
  wait_until([&] { return records.size() >= 8; });
  EXPECT_LE(server.calls(), before + 4);
  worker.stop(BootClock::now(), 1s);
  finish();
  EXPECT_EQ(total(Outcome::ok), server.calls());
}

TEST_F(WorkerChange, CountsItAsDataWhenThereIsNoDescriptorLeft) {
  FloodServer server;
  const auto a = plan(server.port(), 2);
  Worker worker(0, a, callbacks());
  start(worker);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  std::uint64_t open = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++open;
  rlimit little = before;
  little.rlim_cur = open + 4;
  setrlimit(RLIMIT_NOFILE, &little);
  change(worker, *a, 50ms, epoch(2, 40));
  wait_until([&] { return records.size() >= 5; });
  setrlimit(RLIMIT_NOFILE, &before);
  finish();
  EXPECT_GT(total(&Counters::connect_failed), 0U);
  EXPECT_THAT(errors(), HasSubstr("EMFILE"));
  EXPECT_GT(sent_in(2), 0U);
  EXPECT_EQ(total(Outcome::ok), total(&Counters::sent));
}

TEST_F(WorkerChange, TakesRoutesMessagesAndConnectionsFromThePlanItself) {
  FloodServer one;
  FloodServer two;
  auto a = plan(one.port(), 2);
  PreparedCall call = call_to(two.port());
  call.compress = true;
  a->epochs.push_back(epoch_with(2, 3, call));
  a->segments = {{0ms, 100ms, 0, 1, false},
                 {100ms, 100ms, 0, 2, true},
                 {200ms, 100ms, 0, 2, false},
                 {300ms, 100ms, 0, 1, false}};
  Worker worker(0, a, callbacks());
  start(worker);
  wait_until([&] { return drained; });
  check_laws();
  EXPECT_EQ(one.accepted(), 4U);
  EXPECT_EQ(two.accepted(), 3U);
  EXPECT_EQ(total(Outcome::ok), one.calls() + two.calls());
  EXPECT_EQ(two.flags().count('\0'), 0U);
  for (const Record& r : records) EXPECT_EQ(r.guard, r.start >= 100ms && r.start < 200ms);
}

}  // namespace
}  // namespace spate::agent
