#pragma once

// The few HTTP/2 bytes that the sink and the floor exchange: frames built from strings, frame
// headers read from a buffer. No HPACK coder: the header blocks are spelled out by hand, and never
// decoded. Pure functions; no thread of their own.

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace spate::bench {

inline constexpr std::size_t kFrameHeader = 9;
inline constexpr std::size_t kMaxPayload =
    16'384;  // SETTINGS_MAX_FRAME_SIZE that nobody here raises
inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : std::uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
};
inline constexpr std::uint8_t kAck = 0x1;
inline constexpr std::uint8_t kEndStream = 0x1;
inline constexpr std::uint8_t kEndHeaders = 0x4;

struct FrameHeader {
  std::uint32_t length = 0;
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
};

// `at` holds at least kFrameHeader bytes. The stream id stays where it is: both sides only copy it.
inline FrameHeader frame_header(const char* at) {
  const auto byte = [at](int i) { return static_cast<std::uint8_t>(at[i]); };
  return {static_cast<std::uint32_t>(byte(0) << 16 | byte(1) << 8 | byte(2)), byte(3), byte(4)};
}

inline void put_u32(char* at, std::uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(at, &value, sizeof value);
}

inline std::uint32_t get_u32(const char* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}

inline std::string u32(std::uint32_t value) {
  std::string bytes(4, '\0');
  put_u32(bytes.data(), value);
  return bytes;
}

inline std::string frame(FrameType type, int flags, std::uint32_t stream,
                         std::string_view payload) {
  std::string bytes = u32(static_cast<std::uint32_t>(payload.size())).substr(1);
  bytes += static_cast<char>(type);
  bytes += static_cast<char>(flags);
  bytes += u32(stream);
  bytes += payload;
  return bytes;
}

// One entry of a SETTINGS frame.
inline std::string setting(std::uint16_t id, std::uint32_t value) {
  return std::string{static_cast<char>(id >> 8), static_cast<char>(id)} + u32(value);
}

// A gRPC message: not compressed, its length, its bytes.
inline std::string grpc_message(std::string_view bytes) {
  return '\0' + u32(static_cast<std::uint32_t>(bytes.size())) + std::string(bytes);
}

// A bench program must not outlive whoever started it, nor `seconds`: SIGTERM or SIGALRM ends it.
inline void bound_lifetime(unsigned seconds) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  alarm(seconds);
}

// The value of `--name`, or `fallback`. All flags of these programs take whole numbers.
inline unsigned flag(int argc, char** argv, std::string_view name, unsigned fallback) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (name == argv[i]) return static_cast<unsigned>(std::strtoul(argv[i + 1], nullptr, 10));
  }
  return fallback;
}

}  // namespace spate::bench
