#pragma once

#include "common/record.h"

namespace spate::agent {

// Adds everything of `r` that adds up to `sum`: counters of flow, histograms, errors. Not the
// in-flight levels, the gauges and the times, whose meaning differs between "another worker" and
// "later".
void add_flows(Record& sum, const Record& r);

}  // namespace spate::agent
