#pragma once

// The wire form of a timeline's share and of an agent's loss policy, for both ends of the control
// stream. Decoding refuses what encoding would not have written.

#include "common/plan.h"
#include "common/result.h"
#include "common/timeline.h"

namespace spate::agent::v1 {
class ShareTimeline;
}

namespace spate::wire {

void encode(const ShareTimeline& timeline, agent::v1::ShareTimeline& out);
Result<ShareTimeline> decode(const agent::v1::ShareTimeline& message);

}  // namespace spate::wire
