#include "agent/drivers/http2_grpc.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "agent/drivers/block_pool.h"
#include "agent/drivers/header_blocks.h"
#include "common/check.h"
#include "common/record.h"
#include "common/version.h"

namespace spate::agent {
namespace {

// What an answer may be in flight with before we acknowledge it. Large, because nothing is kept of
// it.
constexpr std::int32_t kReceiveWindow = 1 << 20;

// At most eight digits and a unit; the coarsest unit that is exact, so that servers log "10S" and
// not "10000m". A timeout too long or too fine for that is rounded up.
std::string grpc_timeout(Duration timeout) {
  struct Unit {
    char letter;
    std::int64_t ns;
  };
  static constexpr Unit kUnits[] = {
      {'H', 3'600'000'000'000}, {'M', 60'000'000'000}, {'S', 1'000'000'000},
      {'m', 1'000'000},         {'u', 1'000},          {'n', 1}};
  constexpr std::int64_t kMost = 99'999'999;
  const std::int64_t ns = std::max<std::int64_t>(timeout.count(), 1);
  for (const Unit& unit : kUnits)
    if (ns % unit.ns == 0 && ns / unit.ns <= kMost)
      return std::to_string(ns / unit.ns) + unit.letter;
  for (std::size_t i = std::size(kUnits); i-- > 0;) {
    const std::int64_t count = (ns - 1) / kUnits[i].ns + 1;
    if (count <= kMost) return std::to_string(count) + kUnits[i].letter;
  }
  return std::to_string(kMost) + 'H';
}

const char* grpc_status_name(std::uint32_t code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code < std::size(kNames) ? kNames[code] : "unknown status";
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// grpc-message is percent-encoded UTF-8; a broken escape is taken as it stands.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size() && out.size() < kMaxErrorText; ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::uint32_t parse_number(std::string_view text, std::uint32_t if_broken) {
  if (text.empty() || text.size() > 9) return if_broken;
  std::uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return if_broken;
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return value;
}

std::uint32_t read_u32(const std::uint8_t* p) {
  return static_cast<std::uint32_t>(p[0]) << 24 | static_cast<std::uint32_t>(p[1]) << 16 |
         static_cast<std::uint32_t>(p[2]) << 8 | static_cast<std::uint32_t>(p[3]);
}

std::string printable(const std::uint8_t* data, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < std::min(size, kMaxErrorText); ++i)
    out += data[i] >= 0x20 && data[i] < 0x7f ? static_cast<char>(data[i]) : '?';
  return out;
}

}  // namespace

// ---- what the connections of a worker share

struct GrpcEngine::Shared {
  BlockPool pool;
  nghttp2_mem memory{};
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;

  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
  }
};

// nghttp2 calls these from inside receive() and write().
struct GrpcConnection::Callbacks {
  static GrpcConnection& self(void* user) { return *static_cast<GrpcConnection*>(user); }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* user) {
    GrpcConnection& c = self(user);
    if (frame->hd.stream_id == c.stream_)
      c.take_header({reinterpret_cast<const char*>(name), name_size},
                    {reinterpret_cast<const char*>(value), value_size});
    return 0;
  }

  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data,
                     std::size_t size, void* user) {
    GrpcConnection& c = self(user);
    if (stream == c.stream_) c.take_data(data, size);
    return 0;
  }

  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    GrpcConnection& c = self(user);
    switch (frame->hd.type) {
      case NGHTTP2_DATA:
      case NGHTTP2_HEADERS:
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 && frame->hd.stream_id == c.stream_)
          c.answer_complete_ = true;
        break;
      case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) c.ready_ = true;
        break;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) c.ping_answered_ = true;
        break;
      case NGHTTP2_GOAWAY:
        c.goaway_received_ = true;
        c.goaway_code_ = frame->goaway.error_code;
        if (frame->goaway.opaque_data_len > 0 && c.error_.empty())
          c.error_ = printable(frame->goaway.opaque_data, frame->goaway.opaque_data_len);
        break;
      default:
        break;
    }
    (void)session;
    return 0;
  }

  static int on_invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int error, void* user) {
    GrpcConnection& c = self(user);
    const std::string text = std::string("HTTP/2: ") + nghttp2_strerror(error);
    if (frame->hd.stream_id != 0 && frame->hd.stream_id == c.stream_)
      c.end_call_as(Outcome::protocol_error, 0, text);
    c.error_ = text;
    return 0;
  }

  static int on_close(nghttp2_session*, std::int32_t stream, std::uint32_t error_code, void* user) {
    GrpcConnection& c = self(user);
    if (stream == c.stream_) c.end_call(error_code);
    return 0;
  }

  static ssize_t read_body(nghttp2_session*, std::int32_t stream, std::uint8_t* out,
                           std::size_t room, std::uint32_t* flags, nghttp2_data_source*,
                           void* user) {
    GrpcConnection& c = self(user);
    if (stream != c.stream_) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (c.unfinished_) return NGHTTP2_ERR_DEFERRED;
    const std::size_t size = std::min(room, c.body_left_);
    std::memcpy(out, c.body_, size);
    c.body_ += size;
    c.body_left_ -= size;
    if (c.body_left_ == 0) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }

  static nghttp2_session_callbacks* make() {
    nghttp2_session_callbacks* callbacks = nullptr;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0, "out of memory");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    return callbacks;
  }
};

namespace {

BlockPool& pool_of(void* user) { return *static_cast<BlockPool*>(user); }

nghttp2_mem memory_of(BlockPool& pool) {
  nghttp2_mem memory{};
  memory.mem_user_data = &pool;
  memory.malloc = [](std::size_t size, void* user) { return pool_of(user).allocate(size); };
  memory.free = [](void* p, void* user) { pool_of(user).release(p); };
  memory.calloc = [](std::size_t count, std::size_t size, void* user) -> void* {
    void* p = pool_of(user).allocate(count * size);  // nghttp2's own small numbers: no overflow
    if (p != nullptr) std::memset(p, 0, count * size);
    return p;
  };
  memory.realloc = [](void* p, std::size_t size, void* user) {
    return pool_of(user).reallocate(p, size);
  };
  return memory;
}

}  // namespace

struct GrpcProfile::Fields {
  std::vector<HeaderField> headers;
  std::vector<nghttp2_nv> fields;  // point into `headers`; empty if there are blocks
  std::optional<HeaderBlocks> blocks;
};

GrpcProfile::GrpcProfile(const PreparedCall& call, bool with_run_metadata) {
  auto made = std::make_unique<Fields>();
  auto& headers = made->headers;
  headers = {{":method", "POST"},
             {":scheme", call.route->tls ? "https" : "http"},
             {":path", call.method_path},
             {":authority", call.route->target.to_string()},
             {"te", "trailers"},
             {"content-type", "application/grpc"},
             {"user-agent", std::string("spate/") + kVersion},
             // Answers are counted, not read, so a target may compress them as it likes.
             {"grpc-accept-encoding", "identity,deflate,gzip"}};
  if (call.compress) headers.emplace_back("grpc-encoding", "gzip");
  if (call.timeout.count() > 0) headers.emplace_back("grpc-timeout", grpc_timeout(call.timeout));
  for (const auto& [key, value] : call.metadata)
    if (with_run_metadata || !key.starts_with("spate-")) headers.emplace_back(key, value);
  made->blocks = HeaderBlocks::make(headers);
  // With blocks nghttp2 opens the streams, append_headers() adds what they are about. Without, it
  // must leave the peer's table alone: another profile's blocks may use it on the same connection.
  if (!made->blocks)
    for (auto& [key, value] : headers)
      made->fields.push_back({reinterpret_cast<std::uint8_t*>(key.data()),
                              reinterpret_cast<std::uint8_t*>(value.data()), key.size(),
                              value.size(),
                              NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE |
                                  NGHTTP2_NV_FLAG_NO_INDEX});
  fields_ = std::move(made);
}

GrpcProfile::~GrpcProfile() = default;

GrpcEngine::GrpcEngine() : shared_(std::make_unique<Shared>()) {
  Shared& s = *shared_;
  s.memory = memory_of(s.pool);
  s.callbacks = GrpcConnection::Callbacks::make();
  CHECK(nghttp2_option_new(&s.option) == 0, "out of memory");
  nghttp2_option_set_no_closed_streams(s.option, 1);
}

GrpcEngine::~GrpcEngine() = default;

// ---- one connection

GrpcConnection::GrpcConnection(GrpcEngine& engine, const GrpcProfile& profile)
    : shared_(*engine.shared_), profile_(profile.fields_.get()) {
  CHECK(nghttp2_session_client_new3(&session_, shared_.callbacks, this, shared_.option,
                                    &shared_.memory) == 0,
        "out of memory");
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<std::uint32_t>(kReceiveWindow)}};
  CHECK(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) == 0,
        "out of memory");
  CHECK(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kReceiveWindow) == 0,
        "out of memory");
}

GrpcConnection::~GrpcConnection() { nghttp2_session_del(session_); }

bool GrpcConnection::may_start() const {
  return ready_ && stream_ == 0 && !unusable_ &&
         nghttp2_session_check_request_allowed(session_) != 0 &&
         nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) > 0;
}

bool GrpcConnection::is_finished() const {
  return ready_ && stream_ == 0 && !is_broken() &&
         nghttp2_session_check_request_allowed(session_) == 0;
}

bool GrpcConnection::is_broken() const { return unusable_ || violated_; }

std::string GrpcConnection::goaway() const {
  if (!goaway_received_) return {};
  std::string text = std::string("GOAWAY ") + nghttp2_http2_strerror(goaway_code_);
  if (!error_.empty()) text += ": " + error_;
  return text;
}

void GrpcConnection::begin_call(std::int32_t stream) {
  CHECK(stream > 0, std::string("nghttp2 refused a request: ") + nghttp2_strerror(stream));
  stream_ = stream;
  grpc_status_ = kNoStatus;
  http_status_ = 0;
  messages_ = 0;
  message_left_ = 0;
  prefix_have_ = 0;
  in_message_ = false;
  answer_complete_ = false;
  has_end_ = false;
  if (!text_.empty()) text_.clear();
}

void GrpcConnection::use(const GrpcProfile& profile) {
  profile_ = profile.fields_.get();
  header_block_.restart();
}

void GrpcConnection::start(std::string_view framed, bool is_stable) {
  body_ = framed.data();
  body_left_ = framed.size();
  body_is_stable_ = is_stable;
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::read_body;
  begin_call(nghttp2_submit_request(session_, nullptr, profile_->fields.data(),
                                    profile_->fields.size(), &provider, nullptr));
}

void GrpcConnection::start_unfinished() {
  unfinished_ = true;
  start({}, true);
}

void GrpcConnection::write_prefix(std::string& framed, bool is_compressed) {
  const auto size = static_cast<std::uint32_t>(framed.size() - kPrefixBytes);
  framed[0] = is_compressed ? 1 : 0;
  framed[1] = static_cast<char>(size >> 24);
  framed[2] = static_cast<char>(size >> 16);
  framed[3] = static_cast<char>(size >> 8);
  framed[4] = static_cast<char>(size);
}

void GrpcConnection::cancel_call() {
  if (stream_ == 0) return;
  const std::int32_t stream = std::exchange(stream_, 0);
  body_left_ = 0;
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
}

void GrpcConnection::ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

void GrpcConnection::say_goodbye() {
  if (!is_broken()) nghttp2_session_terminate_session(session_, NGHTTP2_NO_ERROR);
}

void GrpcConnection::receive(std::span<const std::uint8_t> bytes) {
  if (is_broken()) return;
  const ssize_t taken = nghttp2_session_mem_recv(session_, bytes.data(), bytes.size());
  if (taken < 0) {
    unusable_ = true;
    error_ = std::string("HTTP/2: ") + nghttp2_strerror(static_cast<int>(taken));
    return;
  }
  // The whole answer came before the whole request was sent: the target does not want the rest.
  if (answer_complete_ && stream_ != 0) {
    const std::int32_t stream = stream_;
    end_call(NGHTTP2_NO_ERROR);
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
  }
}

std::optional<CallEnd> GrpcConnection::take_end() {
  if (!has_end_) return std::nullopt;
  has_end_ = false;
  return CallEnd{end_outcome_, end_code_, text_};
}

void GrpcConnection::write(std::string& out, std::size_t limit) {
  if (unusable_) return;
  while (out.size() < limit) {
    const std::uint8_t* frame = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &frame);
    if (size == 0) break;
    if (size < 0) {
      unusable_ = true;
      error_ = std::string("HTTP/2: ") + nghttp2_strerror(static_cast<int>(size));
      return;
    }
    const std::string_view bytes(reinterpret_cast<const char*>(frame),
                                 static_cast<std::size_t>(size));
    if (frame[3] == NGHTTP2_HEADERS && profile_->blocks) {
      append_headers(out, bytes);
      continue;
    }
    out.append(bytes);
    // A GOAWAY of our own with an error is how nghttp2 says that the peer broke the protocol.
    constexpr ssize_t kGoawayBytes = 17;
    if (frame[3] == NGHTTP2_GOAWAY && size >= kGoawayBytes && read_u32(frame + 13) != 0) {
      violated_ = true;
      error_ = std::string("HTTP/2: ") + nghttp2_http2_strerror(read_u32(frame + 13));
      if (size > kGoawayBytes)
        error_ +=
            ": " + printable(frame + kGoawayBytes, static_cast<std::size_t>(size - kGoawayBytes));
    }
  }
}

// nghttp2's HEADERS frame, with nothing in it but perhaps a change of the table's size; then our
// block.
void GrpcConnection::append_headers(std::string& out, std::string_view frame) {
  constexpr std::size_t kFrameHeaderBytes = 9;
  const std::size_t limit =
      nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_HEADER_TABLE_SIZE);
  const std::string& block =
      header_block_.choose(*profile_->blocks, limit, frame.size() > kFrameHeaderBytes);
  const std::size_t length = frame.size() - kFrameHeaderBytes + block.size();
  out.push_back(static_cast<char>(length >> 16));
  out.push_back(static_cast<char>(length >> 8));
  out.push_back(static_cast<char>(length));
  out.append(frame.substr(3));
  out.append(block);
}

void GrpcConnection::settle_body() {
  if (body_left_ == 0) {
    if (kept_body_.capacity() > 256) std::string().swap(kept_body_);
    return;
  }
  if (body_is_stable_) return;
  if (body_ >= kept_body_.data() && body_ < kept_body_.data() + kept_body_.size()) return;
  kept_body_.assign(body_, body_left_);
  body_ = kept_body_.data();
}

void GrpcConnection::take_header(std::string_view name, std::string_view value) {
  if (name == "grpc-status") {
    grpc_status_ = parse_number(value, 2);  // 2: UNKNOWN
  } else if (name == "grpc-message") {
    text_ = percent_decoded(value);
  } else if (name == ":status") {
    http_status_ = parse_number(value, 0);
  }
}

// Walks the length-prefixed messages of an answer; only their sizes matter.
void GrpcConnection::take_data(const std::uint8_t* data, std::size_t size) {
  while (size > 0 || (in_message_ && message_left_ == 0)) {
    if (!in_message_) {
      const std::size_t part = std::min(size, prefix_.size() - prefix_have_);
      std::memcpy(prefix_.data() + prefix_have_, data, part);
      prefix_have_ = static_cast<std::uint8_t>(prefix_have_ + part);
      data += part;
      size -= part;
      if (prefix_have_ < prefix_.size()) return;
      prefix_have_ = 0;
      in_message_ = true;
      message_left_ = read_u32(prefix_.data() + 1);
    }
    const std::size_t part = std::min<std::size_t>(size, message_left_);
    data += part;
    size -= part;
    message_left_ -= static_cast<std::uint32_t>(part);
    if (message_left_ > 0) return;
    in_message_ = false;
    ++messages_;
  }
}

void GrpcConnection::end_call_as(Outcome outcome, std::uint32_t code, std::string text) {
  stream_ = 0;
  body_left_ = 0;
  has_end_ = true;
  end_outcome_ = outcome;
  end_code_ = code;
  if (outcome != Outcome::ok || !text_.empty()) text_ = std::move(text);
}

void GrpcConnection::end_call(std::uint32_t error_code) {
  if (error_code == NGHTTP2_REFUSED_STREAM)
    return end_call_as(Outcome::refused, error_code, "REFUSED_STREAM");
  if (error_code != NGHTTP2_NO_ERROR)
    return end_call_as(Outcome::reset, error_code,
                       std::string("stream reset: ") + nghttp2_http2_strerror(error_code));
  if (grpc_status_ == 0 && messages_ == 1 && !in_message_ && prefix_have_ == 0) [[likely]]
    return end_call_as(Outcome::ok, 0, {});
  if (grpc_status_ == kNoStatus)
    return end_call_as(Outcome::bad_response, 0,
                       "no grpc-status; HTTP status " + std::to_string(http_status_));
  if (grpc_status_ != 0) {
    std::string text = grpc_status_name(grpc_status_);
    if (!text_.empty()) text += ": " + text_;
    return end_call_as(Outcome::application_error, grpc_status_, std::move(text));
  }
  if (messages_ > 1)
    return end_call_as(Outcome::bad_response, 0, "more than one message in the answer");
  end_call_as(Outcome::bad_response, 0, "no whole message in the answer");
}

}  // namespace spate::agent
