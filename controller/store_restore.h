#pragma once

// What a controller that starts needs of the runs that are in the store. Used by store.cc, before
// anything is written.

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstddef>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/restored.h"

namespace spate::controller {

// A run without an end, its records folded one after the other.
Result<Restored::Run> load_unfinished(const std::string& path, const std::string& id);

// The latest runs that have ended, oldest first.
std::vector<Restored::Closed> load_closed(SQLite::Database& db, std::size_t most);

}  // namespace spate::controller
