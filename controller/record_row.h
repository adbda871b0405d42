#pragma once

// A record as a row of the store: the columns, and the packed bytes of its `wire` column. Rows of
// an older store are the serialized record itself. Used by the store's files only.
//
// Packed: a format byte, the length (4 bytes), and by zlib: the serialized record without its
// histograms; the heads of the histograms; then of all their buckets the steps of the index, the
// high bits of the steps of the count, and their low bytes. What is alike lies together that way,
// and a record takes half of what it is on the wire, a third less than if that were compressed.

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <string_view>

#include "common/record.h"
#include "common/result.h"

namespace spate::controller {

std::string pack_record(const Record& record);
// Refuses what pack_record() would not have written, with the reason.
Result<Record> unpack_record(std::string_view packed);

// Throws SQLite::Exception.
class RecordInsert {
 public:
  RecordInsert(SQLite::Database& db, const std::string& table);
  void put(const Record& record);

 private:
  SQLite::Statement statement_;
};

}  // namespace spate::controller
