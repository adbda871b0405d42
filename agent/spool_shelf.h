#pragma once

// The bytes of what the spool puts on its disk's shelf: intervals that the disk refused. Pure.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spool_disk.h"
#include "common/record.h"
#include "common/result.h"

namespace spate::agent {

// An interval that the disk did not take yet.
struct PendingInterval {
  AccountKey account;
  std::string agent;
  std::string cluster;
  Record record;
  std::vector<std::uint64_t> taken;
  std::uint64_t intervals = 1;
  std::uint64_t attempted = 0;  // the seq of a commit that failed: it may be stored as that
};

std::string encode_shelf(const std::deque<PendingInterval>& pending);
// Refuses what encode_shelf() would not have written.
Result<std::deque<PendingInterval>> decode_shelf(std::string_view bytes);

}  // namespace spate::agent
