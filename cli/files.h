#pragma once

// Files as whole texts, written so that nobody ever sees half of one.

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/result.h"

namespace spate::cli {

Result<std::string> read_file(const std::string& path);

enum class IfExists { replace, refuse };
// Written beside its place under another name, synced, then moved. Has `mode` from its first
// moment, whatever the umask allows beyond it. Directories are made.
Result<void> write_file(const std::string& path, std::string_view data, mode_t mode,
                        IfExists if_exists);

// $XDG_DATA_HOME/spate, or ~/.local/share/spate.
std::string data_directory();
// The last `lines` lines of a file, for an error's text; "" if there is none.
std::string tail(const std::string& path, int lines);

}  // namespace spate::cli
