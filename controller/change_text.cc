// What a change makes different, for people; declared in change_book.h.

#include <algorithm>
#include <functional>

#include "common/units.h"
#include "controller/change_book.h"

namespace spate::controller {
namespace {

constexpr std::size_t kMaxShown = 60;
constexpr std::size_t kValuesShown = 3;

struct Field {
  const char* path;
  std::function<std::string(const Parameters&)> value;
};

std::string shortened(const std::string& text) {
  return text.size() <= kMaxShown
             ? text
             : text.substr(0, kMaxShown) + "… (" + std::to_string(text.size()) + " bytes)";
}

std::string truth(bool value) { return value ? "true" : "false"; }

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"target.url", [](const Parameters& p) { return p.target_url; }},
      {"call.method", [](const Parameters& p) { return p.call.method; }},
      {"call.message", [](const Parameters& p) { return shortened(p.call.message_json); }},
      {"call.timeout", [](const Parameters& p) { return format_duration(p.call.timeout); }},
      {"call.compress", [](const Parameters& p) { return truth(p.call.compress); }},
      {"load.calls_per_loop",
       [](const Parameters& p) { return std::to_string(p.load.calls_per_loop); }},
      {"load.pause", [](const Parameters& p) { return format_duration(p.load.pause); }},
      {"agents.threads", [](const Parameters& p) { return std::to_string(p.threads); }},
      {"paused", [](const Parameters& p) { return truth(p.paused); }}};
  return all;
}

void add_once(std::vector<std::string>& values, std::string value) {
  if (std::find(values.begin(), values.end(), value) == values.end())
    values.push_back(std::move(value));
}

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size() && i < kValuesShown; ++i)
    text += (i == 0 ? "" : " | ") + values[i];
  return values.size() > kValuesShown ? text + " | …" : text;
}

}  // namespace

std::vector<Difference> differences(const Epoch& from, const Epoch& to,
                                    const std::vector<std::uint32_t>& agents) {
  std::vector<Difference> all;
  std::uint64_t before = 0, after = 0;
  std::vector<std::string> old_shares, new_shares;
  bool metadata_differs = false;
  for (const std::uint32_t i : agents) {
    const Parameters& a = from.shares.at(i).parameters;
    const Parameters& b = to.shares.at(i).parameters;
    metadata_differs = metadata_differs || a.call.metadata != b.call.metadata;
    before += a.load.connections;
    after += b.load.connections;
    if (a.load.connections == b.load.connections) continue;
    add_once(old_shares, std::to_string(a.load.connections));
    add_once(new_shares, std::to_string(b.load.connections));
  }
  if (before != after) {
    all.push_back({"load.connections", std::to_string(before), std::to_string(after)});
  } else if (!new_shares.empty()) {
    // As many in all, divided in another way.
    const std::string sum = std::to_string(before) + ": ";
    all.push_back({"load.connections", sum + joined(old_shares) + " an agent",
                   sum + joined(new_shares) + " an agent"});
  }
  for (const Field& field : fields()) {
    std::vector<std::string> old_values, new_values;
    for (const std::uint32_t i : agents) {
      const std::string a = field.value(from.shares[i].parameters);
      const std::string b = field.value(to.shares[i].parameters);
      if (a == b) continue;
      add_once(old_values, a);
      add_once(new_values, b);
    }
    if (!new_values.empty()) all.push_back({field.path, joined(old_values), joined(new_values)});
  }
  // Its values may be secrets.
  if (metadata_differs) all.push_back({"call.metadata", "(as before)", "(changed)"});
  return all;
}

}  // namespace spate::controller
