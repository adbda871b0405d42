#pragma once

// HTTP/2 frames made and read by hand, for tests: what a peer may send, also what it must not.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spate::agent::h2 {

enum Type : std::uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9
};
inline constexpr std::uint8_t kEndStream = 1;
inline constexpr std::uint8_t kAck = 1;
inline constexpr std::uint8_t kEndHeaders = 4;
inline constexpr std::uint8_t kPadded = 8;
inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string u32(std::uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

inline std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                         std::string_view payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  return u32(size).substr(1) + static_cast<char>(type) + static_cast<char>(flags) + u32(stream) +
         std::string(payload);
}

inline std::string setting(std::uint16_t id, std::uint32_t value) {
  return std::string{static_cast<char>(id >> 8), static_cast<char>(id)} + u32(value);
}
inline constexpr std::uint16_t kMaxConcurrentStreams = 3;
inline constexpr std::uint16_t kInitialWindowSize = 4;

// HPACK: a literal without indexing; name and value below 127 bytes.
inline std::string header(std::string_view name, std::string_view value) {
  return std::string{'\0', static_cast<char>(name.size())} + std::string(name) +
         static_cast<char>(value.size()) + std::string(value);
}
inline const std::string kStatus200 = "\x88";

inline std::string grpc_message(std::string_view payload) {
  return std::string(1, '\0') + u32(static_cast<std::uint32_t>(payload.size())) +
         std::string(payload);
}

// A whole good answer.
inline std::string answer(std::uint32_t stream, std::string_view payload = "12345678") {
  return frame(kHeaders, kEndHeaders, stream,
               kStatus200 + header("content-type", "application/grpc")) +
         frame(kData, 0, stream, grpc_message(payload)) +
         frame(kHeaders, kEndHeaders | kEndStream, stream, header("grpc-status", "0"));
}

struct Frame {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint32_t stream = 0;
  std::string payload;

  bool ends_stream() const {
    return (type == kData || type == kHeaders) && (flags & kEndStream) != 0;
  }
};

// Takes the whole frames (and the preface) off the front of `bytes`.
inline std::vector<Frame> take_frames(std::string& bytes) {
  std::vector<Frame> frames;
  std::string_view rest = bytes;
  if (rest.starts_with(kPreface)) rest.remove_prefix(kPreface.size());
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(rest[i]); };
  while (rest.size() >= 9 && !kPreface.starts_with(rest.substr(0, 24))) {
    const std::size_t size = std::size_t{byte(0)} << 16 | std::size_t{byte(1)} << 8 | byte(2);
    if (rest.size() < 9 + size) break;
    const std::uint32_t stream = static_cast<std::uint32_t>(byte(5)) << 24 |
                                 static_cast<std::uint32_t>(byte(6)) << 16 |
                                 static_cast<std::uint32_t>(byte(7)) << 8 | byte(8);
    frames.push_back({byte(3), byte(4), stream, std::string(rest.substr(9, size))});
    rest.remove_prefix(9 + size);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return frames;
}

}  // namespace spate::agent::h2
