// Reads whole numbers (ns), one a line, from stdin into one Histogram and prints count and the
// quantiles named on the command line as JSON: the half of the histogram oracle that is ours.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/histogram.h"

int main(int argc, char** argv) {
  spate::Histogram histogram;
  std::int64_t value = 0;
  while (std::cin >> value) histogram.record(value);
  std::printf("{\"count\": %llu, \"quantiles\": {",
              static_cast<unsigned long long>(histogram.count()));
  for (int i = 1; i < argc; ++i) {
    std::printf("%s\"%s\": %lld", i == 1 ? "" : ", ", argv[i],
                static_cast<long long>(histogram.quantile(std::strtod(argv[i], nullptr))));
  }
  std::printf("}}\n");
  return 0;
}
