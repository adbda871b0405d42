#pragma once

// The summary as a JSON value, for the files that put it into something larger. Kept out of
// aggregate.h because of what it includes.

#include <nlohmann/json_fwd.hpp>

#include "controller/aggregate.h"

namespace spate::controller {

nlohmann::ordered_json summary_json(const Summary& summary);

}  // namespace spate::controller
