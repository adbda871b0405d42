#pragma once

// A table for a terminal: every column as wide as its widest cell. Pure.

#include <string>
#include <vector>

namespace spate::cli {

class Table {
 public:
  // A heading that begins with '>' is set, with its column, to the right.
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.size() == 1; }
  std::string to_string() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // the headings first
};

}  // namespace spate::cli
