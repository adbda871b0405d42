#pragma once

// What an earlier process left in the store: a coordinator begins with it.

#include <string>
#include <vector>

#include "controller/store_op.h"

namespace spate::controller {

struct Restored {
  struct Closed {
    std::string run;
    std::vector<Mark> marks;
    bool is_news = false;  // it was found unfinished, and closed as crashed just now
  };
  std::vector<Closed> closed;  // oldest first
};

}  // namespace spate::controller
