#pragma once

// Adding records up: beside one another (workers of an agent), and one after the other (coarser
// intervals). Exact: counters add, histograms merge bucket for bucket.

#include "common/record.h"

namespace spate {

// Adds everything of `r` that adds up to `sum`: counters of flow, histograms, errors. Not the
// in-flight levels, the gauges and the times, whose meaning differs between "another worker" and
// "later".
void add_flows(Record& sum, const Record& r);
void add_flows(Counters& sum, const Counters& c);

// `later` follows `earlier` directly in one chain, with the same phase, epoch, drain and guard; the
// result covers both, times and seqs. Gauges are the later's, CPU time adds up, memory is the
// larger.
Record merge_in_time(const Record& earlier, const Record& later);

// Whether merge_in_time() of the two would not mix what must be kept apart.
bool mergeable_in_time(const Record& earlier, const Record& later);

}  // namespace spate
