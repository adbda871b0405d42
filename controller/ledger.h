#pragma once

// Which records of a run are taken. Pure; on the control loop; one per live run.
//
// Per (agent, incarnation) it keeps two marks: `offered`, the highest seq taken over, and
// `committed`, the highest that the store has committed. Only the committed mark is ever
// acknowledged, so an agent may forget what was acknowledged whatever happens to the controller.
//
//   seq <= offered        duplicate: acknowledge again, counted. With other content than the record
//                         taken before (within the last kRememberedHashes): quarantined, never
//                         stored
//   first = offered + 1   accepted; broken laws are named but do not keep the record out. A record
//                         merged from several (first < seq) is taken whole, or not at all
//   anything else         gap: refused; the acknowledgement of the mark asks for the missing ones
//
// What it remembers of content is kept for the latest kRememberedIncarnations of an agent only; an
// older one keeps its marks (some hundred bytes).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/record.h"

namespace spate::controller {

inline constexpr std::size_t kRememberedHashes =
    256;  // an agent has at most 64 unacknowledged records
inline constexpr std::size_t kRememberedIncarnations = 4;

class Ledger {
 public:
  enum class Ruling { accepted, duplicate, gap, quarantined };
  struct Entry {
    Ruling ruling = Ruling::accepted;
    std::vector<std::string> broken;  // laws; only with `accepted`
  };
  Entry offer(const Record& record, std::uint64_t content_hash);

  // The store has committed everything up to `seq`.
  void committed(const std::string& agent, std::uint64_t incarnation, std::uint64_t seq);
  // Marks of a run that an earlier controller process took records for.
  void restore(const std::string& agent, std::uint64_t incarnation, std::uint64_t seq);

  std::uint64_t offered_mark(const std::string& agent, std::uint64_t incarnation) const;
  std::uint64_t committed_mark(const std::string& agent, std::uint64_t incarnation) const;
  std::uint64_t duplicates() const { return duplicates_; }
  // Of all records: from now on a duplicate is one whatever it says.
  void forget_contents();
  // Of an earlier controller process.
  void add_duplicates(std::uint64_t n) { duplicates_ += n; }

 private:
  struct Account {
    std::uint64_t offered = 0;
    std::uint64_t committed = 0;
    std::optional<Record> last;  // without its histograms: for the chain
    struct Content {
      std::uint64_t seq = 0;
      std::uint64_t hash = 0;
    };
    std::vector<Content> contents;  // ring, by seq
  };
  using Accounts = std::map<std::pair<std::string, std::uint64_t>, Account>;
  void forget_old_contents(Accounts::iterator newest);

  Accounts accounts_;
  std::uint64_t duplicates_ = 0;
};

}  // namespace spate::controller
