#pragma once

// A disk for the spool that is a value: it can be copied as a power cut would leave it, and told to
// fail at any operation, before or after it took effect.

#include <algorithm>
#include <map>
#include <optional>

#include "agent/spool_disk.h"
#include "agent/term_book.h"
#include "common/check.h"

namespace spate::agent {

class ModelDisk final : public SpoolDisk {
 public:
  enum class Fault { none, before, after };

  Result<SpoolContents> open() override {
    if (fails(Fault::before) || fails(Fault::after)) return error();
    usable_ = true;
    SpoolContents out;
    for (const Chain& c : chains) {
      out.chains.push_back({c.account, {}});
      for (const auto& [seq, r] : c.records) out.chains.back().entries.push_back(r.first);
    }
    out.shelved = shelf;
    ++fault_in_;
    return out;
  }

  Result<void> commit(const SpoolChange& change) override {
    CHECK(usable_, "a commit after an error, without open()");
    usable_ = false;
    if (fails(Fault::before)) return error();
    apply(change);
    ++commits;
    if (fails(Fault::after)) return error();
    usable_ = true;
    ++fault_in_;
    return {};
  }

  Result<std::string> read(const AccountKey& account, std::uint64_t seq) override {
    CHECK(usable_, "a read after an error, without open()");
    if (is_broken) return error();
    return chain(account)->records.at(seq).second;
  }

  bool shelve(const std::string& bytes) override {
    if (!has_shelf) return false;
    shelf = bytes;
    return true;
  }

  std::string place() const override { return "model"; }

  // The operation after `n` others fails, once.
  void fail_after(int n, Fault fault) {
    fault_in_ = -n;
    fault_ = fault;
  }
  // As another process finds it.
  void crash() {
    usable_ = false;
    fault_ = Fault::none;
    is_broken = false;
  }

  struct Chain {
    SpoolAccount account;
    std::map<std::uint64_t, std::pair<SpoolEntry, std::string>> records;
  };
  std::vector<Chain> chains;
  std::string shelf;
  bool has_shelf = true;
  bool is_broken = false;  // everything fails until it is not
  int commits = 0;

 private:
  bool fails(Fault kind) {
    if (is_broken) return true;
    if (fault_ != kind || fault_in_ != 0) return false;
    fault_ = Fault::none;
    return true;
  }
  static Error error() { return {ErrorCode::io, "model: I/O error"}; }

  Chain* chain(const AccountKey& key) {
    const auto c = std::find_if(chains.begin(), chains.end(),
                                [&](const Chain& x) { return x.account.key == key; });
    return c == chains.end() ? nullptr : &*c;
  }

  void apply(const SpoolChange& change) {
    for (const AccountKey& key : change.forget)
      std::erase_if(chains, [&](const Chain& c) { return c.account.key == key; });
    for (const SpoolAccount& a : change.accounts) {
      if (Chain* c = chain(a.key))
        c->account = a;
      else
        chains.push_back({a, {}});
    }
    for (const SpoolChange::Erase& e : change.erase) {
      Chain* const c = chain(e.account);
      CHECK(c, "records of no account");
      c->records.erase(c->records.lower_bound(e.from), c->records.upper_bound(e.to));
    }
    for (const SpoolChange::Put& p : change.put) {
      Chain* const c = chain(p.account);
      CHECK(c, "a record of no account");
      CHECK(c->records.emplace(p.entry.seq, std::pair(p.entry, p.payload)).second,
            "seq " + std::to_string(p.entry.seq) + " twice");
    }
  }

  bool usable_ = false;
  Fault fault_ = Fault::none;
  int fault_in_ = 0;
};

class ModelTerms final : public TermBook {
 public:
  std::string last_cluster() const override { return last; }
  std::uint64_t highest(const std::string& cluster) const override {
    const auto found = terms.find(cluster);
    return found == terms.end() ? 0 : found->second;
  }
  Result<void> keep(const std::string& cluster, std::uint64_t term) override {
    if (is_broken) return Error{ErrorCode::io, "model: I/O error"};
    last = cluster;
    terms[cluster] = term;
    return {};
  }

  std::string last;
  std::map<std::string, std::uint64_t> terms;
  bool is_broken = false;
};

}  // namespace spate::agent
