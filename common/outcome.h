#pragma once

// What became of a request. A failed request is data: counted, with its own histogram; never
// thrown, never logged one by one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spate {

enum class Outcome : std::uint8_t {
  ok,
  application_error,  // the target answered with an error code of its own
  timed_out,          // no answer within the call's timeout, by the agent's clock
  refused,            // declined before the target looked at it (REFUSED_STREAM)
  reset,              // the connection or stream broke after the request was sent
  protocol_error,     // the peer broke the protocol
  bad_response,       // answered, but the answer failed a check
  cancelled,          // cut off by the end of the drain
};

inline constexpr std::size_t kOutcomeCount = 8;

inline constexpr std::array<Outcome, kOutcomeCount> kOutcomes = {
    Outcome::ok,    Outcome::application_error, Outcome::timed_out,    Outcome::refused,
    Outcome::reset, Outcome::protocol_error,    Outcome::bad_response, Outcome::cancelled};

constexpr std::size_t index(Outcome o) { return static_cast<std::size_t>(o); }

// "ok", "application_error", …: the spelling in JSON, CSV and on the screen.
std::string_view name(Outcome o);

}  // namespace spate
