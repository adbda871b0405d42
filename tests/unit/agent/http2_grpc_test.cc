#include "agent/drivers/http2_grpc.h"

#include <gmock/gmock.h>
#include <nghttp2/nghttp2.h>

#include <map>

#include "agent/message_template.h"
#include "tests/unit/agent/h2_frames.h"

namespace spate::agent {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

PreparedCall call() {
  PreparedCall c;
  c.route = std::make_shared<Route>(Route{{}, {"example.test", 7000}, nullptr});
  c.method_path = "/p.S/M";
  c.timeout = std::chrono::seconds(10);
  c.metadata = {{"spate-run", "r1"}, {"x-key", "v"}};
  return c;
}

// A driver, and what it said.
class Http2Grpc : public testing::Test {
 protected:
  void settle() {
    std::string out;
    do {
      out.clear();
      driver.write(out, 64 * 1024);
      driver.settle_body();
      said += out;
    } while (!out.empty());
    for (h2::Frame& frame : h2::take_frames(said)) frames.push_back(std::move(frame));
  }
  void hear(const std::string& bytes, std::size_t piece = SIZE_MAX) {
    for (std::size_t i = 0; i < bytes.size(); i += std::min(piece, bytes.size() - i)) {
      const std::size_t size = std::min(piece, bytes.size() - i);
      driver.receive({reinterpret_cast<const std::uint8_t*>(bytes.data()) + i, size});
    }
    settle();
  }
  void greet(const std::string& settings = {}) {
    settle();
    hear(h2::frame(h2::kSettings, 0, 0, settings) + h2::frame(h2::kSettings, h2::kAck, 0, {}));
  }
  std::uint32_t start(std::string message = "hi") {
    framed = std::string(GrpcConnection::kPrefixBytes, '\0') + message;
    GrpcConnection::write_prefix(framed, false);
    driver.start(framed, false);
    settle();
    return next_stream += 2;
  }
  std::size_t count(std::uint8_t type) const {
    return static_cast<std::size_t>(
        std::count_if(frames.begin(), frames.end(), [&](const auto& f) { return f.type == type; }));
  }
  const h2::Frame& last(std::uint8_t type) const {
    for (auto f = frames.rbegin(); f != frames.rend(); ++f)
      if (f->type == type) return *f;
    ADD_FAILURE() << "no frame of type " << int{type};
    return frames.front();
  }
  void expect_end(Outcome outcome, std::uint32_t code, const std::string& text) {
    const auto end = driver.take_end();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(name(end->outcome), name(outcome));
    EXPECT_EQ(end->code, code);
    EXPECT_THAT(std::string(end->text), HasSubstr(text));
    EXPECT_FALSE(driver.has_call());
    EXPECT_FALSE(driver.take_end().has_value());
  }

  GrpcEngine engine;
  GrpcProfile profile{call()};
  GrpcConnection driver{engine, profile};
  std::string framed;
  std::string said;
  std::vector<h2::Frame> frames;
  std::uint32_t next_stream = static_cast<std::uint32_t>(-1);
};

TEST_F(Http2Grpc, SaysItsPrefaceAndRefusesPushes) {
  std::string out;
  driver.write(out, 64 * 1024);
  ASSERT_TRUE(out.starts_with(h2::kPreface));
  const auto sent = h2::take_frames(out);
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].type, h2::kSettings);
  EXPECT_THAT(sent[0].payload, HasSubstr(h2::setting(2, 0)));
  EXPECT_FALSE(driver.is_ready());
  EXPECT_FALSE(driver.may_start());
}

TEST_F(Http2Grpc, SendsTheHeadersOfAUnaryCall) {
  greet();
  start("hello");
  nghttp2_hd_inflater* inflater = nullptr;
  ASSERT_EQ(nghttp2_hd_inflate_new(&inflater), 0);
  std::map<std::string, std::string> headers;
  std::string block = last(h2::kHeaders).payload;
  auto* p = reinterpret_cast<std::uint8_t*>(block.data());
  std::size_t left = block.size();
  for (;;) {
    nghttp2_nv nv{};
    int flags = 0;
    const ssize_t used = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, p, left, 1);
    ASSERT_GE(used, 0);
    p += used;
    left -= static_cast<std::size_t>(used);
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0)
      headers[std::string(reinterpret_cast<char*>(nv.name), nv.namelen)] =
          std::string(reinterpret_cast<char*>(nv.value), nv.valuelen);
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
  }
  nghttp2_hd_inflate_del(inflater);
  EXPECT_EQ(headers[":method"], "POST");
  EXPECT_EQ(headers[":scheme"], "http");
  EXPECT_EQ(headers[":path"], "/p.S/M");
  EXPECT_EQ(headers[":authority"], "example.test:7000");
  EXPECT_EQ(headers["te"], "trailers");
  EXPECT_EQ(headers["content-type"], "application/grpc");
  EXPECT_EQ(headers["grpc-timeout"], "10S");
  EXPECT_THAT(headers["user-agent"], HasSubstr("spate/"));
  EXPECT_EQ(headers["spate-run"], "r1");
  EXPECT_EQ(headers["x-key"], "v");
  EXPECT_EQ(last(h2::kData).payload, h2::grpc_message("hello"));
  EXPECT_TRUE(last(h2::kData).ends_stream());
}

TEST_F(Http2Grpc, TakesAGoodAnswerInPiecesOfAnySize) {
  greet();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{10'000}}) {
    hear(h2::answer(start()), piece);
    expect_end(Outcome::ok, 0, "");
    EXPECT_TRUE(driver.may_start());
  }
}

TEST_F(Http2Grpc, TakesAnEmptyMessage) {
  greet();
  hear(h2::answer(start(), ""));
  expect_end(Outcome::ok, 0, "");
}

TEST_F(Http2Grpc, ReadsATrailersOnlyAnswerWithAPercentEncodedMessage) {
  greet();
  const std::uint32_t s = start();
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s,
                 h2::kStatus200 + h2::header("grpc-status", "8") +
                     h2::header("grpc-message", "queue%20full %E2%82%AC 5%")));
  expect_end(Outcome::application_error, 8, "RESOURCE_EXHAUSTED: queue full \xE2\x82\xAC 5%");
}

TEST_F(Http2Grpc, CutsALongMessage) {
  greet();
  const std::uint32_t s = start();
  std::string fields = h2::kStatus200 + h2::header("grpc-status", "2");
  // A value of 1000 bytes: 127 + 873 as an HPACK integer.
  fields += std::string{'\0', 12} + "grpc-message" + "\x7f\xe9\x06" + std::string(1000, 'x');
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s, fields));
  const auto end = driver.take_end();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 2U);
  EXPECT_LT(end->text.size(), 200U);
}

TEST_F(Http2Grpc, CallsAnAnswerWithoutAWholeMessageBad) {
  greet();
  std::uint32_t s = start();
  const std::string head = h2::kStatus200;
  const std::string ok = h2::header("grpc-status", "0");
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders, s, head) +
       h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s, ok));
  expect_end(Outcome::bad_response, 0, "no whole message");
  s = start();
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders, s, head) +
       h2::frame(h2::kData, 0, s, h2::grpc_message("abc").substr(0, 7)) +
       h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s, ok));
  expect_end(Outcome::bad_response, 0, "no whole message");
  s = start();
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders, s, head) +
       h2::frame(h2::kData, 0, s, h2::grpc_message("a") + h2::grpc_message("b")) +
       h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s, ok));
  expect_end(Outcome::bad_response, 0, "more than one message");
  s = start();
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s, "\x8d"));  // :status 404
  expect_end(Outcome::bad_response, 0, "HTTP status 404");
}

TEST_F(Http2Grpc, ReadsPaddingAndContinuations) {
  greet();
  const std::uint32_t s = start();
  const std::string trailers = h2::header("grpc-status", "0") + h2::header("x-a", "b");
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders, s, h2::kStatus200) +
       h2::frame(h2::kData, h2::kPadded, s,
                 std::string(1, 5) + h2::grpc_message("abc") + "\0\0\0\0\0"s) +
       h2::frame(h2::kHeaders, h2::kEndStream, s, trailers.substr(0, 4)) +
       h2::frame(h2::kContinuation, h2::kEndHeaders, s, trailers.substr(4)));
  expect_end(Outcome::ok, 0, "");
}

TEST_F(Http2Grpc, CountsABigAnswerAndGivesTheWindowBack) {
  greet();
  const std::uint32_t s = start();
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders, s, h2::kStatus200));
  constexpr std::size_t kPieces = 256;  // 4 MiB
  const std::string piece(16 * 1024, 'x');
  hear(h2::frame(
      h2::kData, 0, s,
      std::string(1, '\0') + h2::u32(static_cast<std::uint32_t>(kPieces * piece.size()))));
  for (std::size_t i = 0; i < kPieces; ++i) hear(h2::frame(h2::kData, 0, s, piece));
  EXPECT_GT(count(h2::kWindowUpdate), 4U);
  hear(
      h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s, h2::header("grpc-status", "0")));
  expect_end(Outcome::ok, 0, "");
}

TEST_F(Http2Grpc, WaitsForThePeersWindowAndGoesOn) {
  greet(h2::setting(h2::kInitialWindowSize, 1000));
  const std::uint32_t s = start(std::string(100'000, 'm'));
  framed.assign(framed.size(), '!');  // the caller's buffer is reused
  std::size_t sent = 0;
  const auto sum = [&] {
    sent = 0;
    for (const auto& f : frames)
      if (f.type == h2::kData) sent += f.payload.size();
    return sent;
  };
  EXPECT_EQ(sum(), 1000U);
  hear(h2::frame(h2::kWindowUpdate, 0, s, h2::u32(50'000)));
  EXPECT_EQ(sum(), 51'000U);
  hear(h2::frame(h2::kWindowUpdate, 0, 0, h2::u32(1'000'000)) +
       h2::frame(h2::kWindowUpdate, 0, s, h2::u32(1'000'000)));
  EXPECT_EQ(sum(), 100'005U);
  EXPECT_TRUE(last(h2::kData).ends_stream());
  EXPECT_EQ(last(h2::kData).payload.find('!'), std::string::npos);
  hear(h2::answer(s));
  expect_end(Outcome::ok, 0, "");
}

TEST_F(Http2Grpc, TakesAnAnswerThatComesBeforeTheWholeRequestIsSent) {
  greet(h2::setting(h2::kInitialWindowSize, 10));
  const std::uint32_t s = start(std::string(100, 'm'));
  hear(h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, s,
                 h2::kStatus200 + h2::header("grpc-status", "8")));
  expect_end(Outcome::application_error, 8, "RESOURCE_EXHAUSTED");
  EXPECT_EQ(last(h2::kRstStream).stream, s);
  EXPECT_TRUE(driver.may_start());
}

TEST_F(Http2Grpc, WaitsWhileNoStreamIsAllowed) {
  greet(h2::setting(h2::kMaxConcurrentStreams, 0));
  EXPECT_TRUE(driver.is_ready());
  EXPECT_FALSE(driver.may_start());
  EXPECT_FALSE(driver.is_finished());
  hear(h2::frame(h2::kSettings, 0, 0, h2::setting(h2::kMaxConcurrentStreams, 1)));
  EXPECT_TRUE(driver.may_start());
  hear(h2::answer(start()));
  expect_end(Outcome::ok, 0, "");
  EXPECT_TRUE(driver.may_start());
}

TEST_F(Http2Grpc, TellsRefusedFromReset) {
  greet();
  hear(h2::frame(h2::kRstStream, 0, start(), h2::u32(7)));
  expect_end(Outcome::refused, 7, "REFUSED_STREAM");
  hear(h2::frame(h2::kRstStream, 0, start(), h2::u32(11)));
  expect_end(Outcome::reset, 11, "ENHANCE_YOUR_CALM");
  EXPECT_FALSE(driver.is_broken());
  EXPECT_TRUE(driver.may_start());
}

TEST_F(Http2Grpc, CancelsACallAndIgnoresItsLateAnswer) {
  greet();
  const std::uint32_t s = start();
  driver.cancel_call();
  settle();
  EXPECT_EQ(last(h2::kRstStream).payload, h2::u32(8));
  EXPECT_FALSE(driver.take_end().has_value());
  hear(h2::answer(s));
  EXPECT_FALSE(driver.take_end().has_value());
  EXPECT_FALSE(driver.is_broken());
  hear(h2::answer(start()));
  expect_end(Outcome::ok, 0, "");
}

TEST_F(Http2Grpc, FinishesWhatMayFinishAfterGoaway) {
  greet();
  const std::uint32_t s = start();
  hear(h2::frame(h2::kGoaway, 0, 0, h2::u32(s) + h2::u32(0) + "max_age"));
  EXPECT_TRUE(driver.has_call());
  EXPECT_FALSE(driver.is_finished());
  hear(h2::answer(s));
  expect_end(Outcome::ok, 0, "");
  EXPECT_TRUE(driver.is_finished());
  EXPECT_FALSE(driver.may_start());
  EXPECT_THAT(driver.goaway(), HasSubstr("max_age"));
}

TEST_F(Http2Grpc, CallsAStreamBeyondGoawayRefused) {
  greet();
  start();
  hear(h2::frame(h2::kGoaway, 0, 0, h2::u32(0) + h2::u32(0)));
  expect_end(Outcome::refused, 7, "REFUSED_STREAM");
  EXPECT_TRUE(driver.is_finished());
}

TEST_F(Http2Grpc, AnswersPing) {
  greet();
  hear(h2::frame(h2::kPing, 0, 0, "12345678"));
  EXPECT_EQ(last(h2::kPing).flags, h2::kAck);
  EXPECT_EQ(last(h2::kPing).payload, "12345678");
}

// What breaks the protocol, each in a connection with a call open.
class BrokenPeer : public Http2Grpc,
                   public testing::WithParamInterface<std::pair<const char*, std::string>> {};

TEST_P(BrokenPeer, IsFoundOut) {
  greet();
  start();
  hear(GetParam().second);
  EXPECT_TRUE(driver.is_broken() || driver.has_end()) << GetParam().first;
  if (driver.has_end()) {
    const auto end = driver.take_end();
    EXPECT_EQ(name(end->outcome), name(Outcome::protocol_error)) << GetParam().first;
    EXPECT_FALSE(end->text.empty());
  }
  if (driver.is_broken()) {
    EXPECT_FALSE(driver.error().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Peers, BrokenPeer,
    testing::Values(
        std::pair{"not HTTP/2", std::string("HTTP/1.1 400 Bad Request\r\n\r\n")},
        std::pair{"frame too large", h2::frame(h2::kData, 0, 1, std::string(20'000, 'x'))},
        std::pair{"data on an idle stream", h2::frame(h2::kData, 0, 77, "x")},
        std::pair{"broken HPACK",
                  h2::frame(h2::kHeaders, h2::kEndHeaders, 1, "\xff\xff\xff\xff\xff")},
        std::pair{"push", h2::frame(h2::kPushPromise, h2::kEndHeaders, 1, h2::u32(2))},
        std::pair{"settings of a wrong size", h2::frame(h2::kSettings, 0, 0, "12345")},
        std::pair{"continuation out of place",
                  h2::frame(h2::kContinuation, h2::kEndHeaders, 1, "")},
        std::pair{"window overflow", h2::frame(h2::kWindowUpdate, 0, 0, h2::u32(0x7fffffff))},
        std::pair{"data before headers", h2::frame(h2::kData, 0, 1, "x")},
        std::pair{"headers without a status",
                  h2::frame(h2::kHeaders, h2::kEndHeaders, 1, h2::header("x", "y"))}),
    [](const auto& peer) { return "Case" + std::to_string(peer.index); });

}  // namespace
}  // namespace spate::agent
