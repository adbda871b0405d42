#pragma once

// The highest term that was heard of each cluster's controllers, kept durably. A controller with a
// lower one has been superseded, and nothing it says is acted upon.

#include <cstdint>
#include <string>

#include "common/result.h"

namespace spate::agent {

class TermBook {
 public:
  virtual ~TermBook() = default;
  virtual std::string last_cluster() const = 0;  // kept last; empty: none yet
  virtual std::uint64_t highest(const std::string& cluster) const = 0;  // 0: none yet
  // On the disk when it returns well.
  virtual Result<void> keep(const std::string& cluster, std::uint64_t term) = 0;
};

}  // namespace spate::agent
