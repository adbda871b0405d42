#pragma once

#include <cstdint>

namespace spate {

inline constexpr const char* kVersion = "0.1.0";
// Of the control stream (agent.proto). An agent and a controller with different numbers refuse each
// other.
inline constexpr std::uint32_t kProtocolVersion = 2;

}  // namespace spate
