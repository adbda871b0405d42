#pragma once

// The types of a plan's call, read from the files that the plan names.

#include <string>
#include <vector>

#include "common/plan.h"

namespace spate::cli {

struct DescriptorsOrProblems {
  std::string descriptor_set;         // serialized FileDescriptorSet; "" if the plan names no file
  std::vector<std::string> problems;  // "calls.proto:12:3: …"
};

// Reads call.proto or call.descriptor_set, relative to the directory of the plan file, with
// everything they import, and checks that the plan's method is among them.
DescriptorsOrProblems read_descriptors(const Call& call, const std::string& plan_file);

}  // namespace spate::cli
