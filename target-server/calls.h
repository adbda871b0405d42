#pragma once

// The functions of the target: evaluates a CallRequest of proto/target.proto, bytes in, bytes out.
//
// Pure and thread-safe. Recursion is bounded by kMaxCallDepth whatever the bytes say, so it is safe
// on a pool thread's small stack: nesting is measured by a loop before anything recurses. Messages
// live on the heap on purpose: the allocator under the target is what an allocator flood varies.

#include <string>
#include <string_view>

#include "common/result.h"

namespace spate::target_server {

// add, mul and echo count, also inside one another; number and text do not.
inline constexpr int kMaxCallDepth = 64;

// The serialized CallResponse, or why there is none. Errors (all ErrorCode::invalid) begin with the
// place of the mistake: "call[0].add[1]: mul needs two or more operands, has 1".
Result<std::string> answer_calls(std::string_view request);

}  // namespace spate::target_server
