#pragma once

// The header block of a request, compressed once for all connections. Every request of a parameter
// set has the same header fields, and compressing a dozen of them costs more than everything else
// nghttp2 does for a request. Made by nghttp2's own HPACK coder, so these are the bytes that it
// would have sent.
//
// Immutable; any thread.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace spate::agent {

using HeaderField = std::pair<std::string, std::string>;

struct HeaderBlocks {
  std::string first;      // puts the fields in the peer's table
  std::string next;       // then names them by their places; right for every later request
  std::string stateless;  // neither reads nor changes the peer's table
  std::size_t table_bytes =
      0;  // of the peer's table that `first` and `next` need; 0: they do not fit

  // Nothing if even a stateless block would not fit into one frame: let nghttp2 do it each time.
  static std::optional<HeaderBlocks> make(std::span<const HeaderField> fields);
};

// Which of them is right on one connection.
class HeaderBlockChoice {
 public:
  // For the request that is being sent. `table_limit` is the peer's SETTINGS_HEADER_TABLE_SIZE;
  // `table_changed` whether nghttp2 puts a change of the table's size in front of this block, which
  // may have emptied the table.
  const std::string& choose(const HeaderBlocks& blocks, std::size_t table_limit,
                            bool table_changed) {
    if (table_ == Table::filled) {
      if (!table_changed) [[likely]]
        return blocks.next;
      table_ = Table::unused;
    }
    if (table_ == Table::empty) {
      const bool fits = blocks.table_bytes > 0 && blocks.table_bytes <= table_limit;
      table_ = fits ? Table::filled : Table::unused;
      if (fits) return blocks.first;
    }
    return blocks.stateless;
  }
  // Other blocks from now on. What theirs put in the table goes to the front of it, so what is
  // there already does not matter.
  void restart() {
    if (table_ == Table::filled) table_ = Table::empty;
  }

 private:
  enum class Table : unsigned char { empty, filled, unused };
  Table table_ = Table::empty;
};

}  // namespace spate::agent
