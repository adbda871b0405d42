#pragma once

// gRPC unary calls over HTTP/2, one call open at a time: a protocol object without sockets. Bytes
// from the peer go in by receive(), bytes for it come out of write(); the owner moves them. The
// HTTP/2 layer is nghttp2, which stays behind the .cc.
//
// Nothing of an answer is kept but counts, so answers of any size cost the same memory.
//
// A GrpcEngine holds what all connections of a worker share (callbacks, memory). It belongs to one
// thread, as they do, and outlives them. A GrpcProfile is what all calls of one kind have in
// common, their headers: immutable, any thread; a connection can be told to go on with another.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "agent/assignment.h"
#include "agent/drivers/header_blocks.h"
#include "common/outcome.h"

struct nghttp2_session;

namespace spate::agent {

// How a call ended. `code` is the gRPC status, or the HTTP/2 error code of a reset; `text` is for
// people, empty for ok, and valid until the connection is touched again.
struct CallEnd {
  Outcome outcome = Outcome::ok;
  std::uint32_t code = 0;
  std::string_view text;
};

class GrpcProfile {
 public:
  // `with_run_metadata` false leaves out the spate-* keys: a call that is not part of the flood.
  explicit GrpcProfile(const PreparedCall& call, bool with_run_metadata = true);
  ~GrpcProfile();
  GrpcProfile(const GrpcProfile&) = delete;
  GrpcProfile& operator=(const GrpcProfile&) = delete;

 private:
  friend class GrpcConnection;
  struct Fields;
  std::unique_ptr<const Fields> fields_;
};

class GrpcEngine {
 public:
  GrpcEngine();
  ~GrpcEngine();
  GrpcEngine(const GrpcEngine&) = delete;
  GrpcEngine& operator=(const GrpcEngine&) = delete;

 private:
  friend class GrpcConnection;
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

class GrpcConnection {
 public:
  // Room for the gRPC message prefix in front of a message; see start().
  static constexpr std::size_t kPrefixBytes = 5;

  // `profile` outlives the connection, or the last call before use() names another.
  GrpcConnection(GrpcEngine& engine, const GrpcProfile& profile);
  ~GrpcConnection();
  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  // The peer's SETTINGS have come.
  bool is_ready() const { return ready_; }
  bool has_call() const { return stream_ != 0; }
  // Ready, no call open, and the peer allows one (no GOAWAY, stream ids left,
  // MAX_CONCURRENT_STREAMS not 0).
  bool may_start() const;
  // No call is open and none can be started any more, though nothing is wrong: GOAWAY, or ids used
  // up.
  bool is_finished() const;
  // The peer broke the protocol; drop the connection after what write() still gives. error() says
  // why.
  bool is_broken() const;
  const std::string& error() const { return error_; }
  // The peer's GOAWAY for people; empty without one.
  std::string goaway() const;

  // The next calls are of another kind. No call is open.
  void use(const GrpcProfile& profile);
  // Opens a call. `framed` is kPrefixBytes of room, then the message; the prefix is written by
  // write_prefix(). It must stay valid until settle_body(), or for ever if `is_stable`.
  // Requires may_start().
  void start(std::string_view framed, bool is_stable);
  static void write_prefix(std::string& framed, bool is_compressed);
  // Ends the open call by RST_STREAM(CANCEL); take_end() has nothing to say about it.
  void cancel_call();
  // For a probe: opens a call without ending the request, so that the server cannot execute it.
  void start_unfinished();
  void ping();
  bool is_ping_answered() const { return ping_answered_; }
  // Says goodbye (GOAWAY without error); for a connection that is closed on purpose.
  void say_goodbye();

  void receive(std::span<const std::uint8_t> bytes);
  // The end of the open call, once.
  bool has_end() const { return has_end_; }
  std::optional<CallEnd> take_end();
  // Appends what is to be sent, in whole frames, until `out` holds `limit` bytes or more; call
  // again until it appends nothing.
  void write(std::string& out, std::size_t limit);
  // Copies what is left of a request body that the peer's window holds back; the caller's buffer is
  // free.
  void settle_body();

 private:
  friend class GrpcEngine;
  struct Callbacks;
  static constexpr std::uint32_t kNoStatus = UINT32_MAX;

  void begin_call(std::int32_t stream);
  void end_call(std::uint32_t error_code);
  void end_call_as(Outcome outcome, std::uint32_t code, std::string text);
  void append_headers(std::string& out, std::string_view frame);
  void take_data(const std::uint8_t* data, std::size_t size);
  void take_header(std::string_view name, std::string_view value);

  nghttp2_session* session_ = nullptr;
  GrpcEngine::Shared& shared_;
  const GrpcProfile::Fields* profile_;

  HeaderBlockChoice header_block_;

  // The open call.
  std::int32_t stream_ = 0;  // 0: none
  std::uint32_t grpc_status_ = kNoStatus;
  std::uint32_t http_status_ = 0;
  std::uint32_t messages_ = 0;      // whole ones
  std::uint32_t message_left_ = 0;  // bytes of the message being received
  std::array<std::uint8_t, kPrefixBytes> prefix_{};
  std::uint8_t prefix_have_ = 0;
  bool in_message_ = false;
  bool answer_complete_ = false;  // END_STREAM received

  bool body_is_stable_ = false;
  const char* body_ = nullptr;
  std::size_t body_left_ = 0;

  bool ready_ = false;
  bool violated_ = false;
  bool unusable_ = false;  // nghttp2 gave up on the session
  bool goaway_received_ = false;
  bool ping_answered_ = false;
  bool has_end_ = false;
  bool unfinished_ = false;
  Outcome end_outcome_ = Outcome::ok;
  std::uint32_t end_code_ = 0;
  std::uint32_t goaway_code_ = 0;

  std::string text_;       // grpc-message, then the end's text
  std::string kept_body_;  // see settle_body()
  std::string error_;
};

}  // namespace spate::agent
