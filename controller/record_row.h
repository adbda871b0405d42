#pragma once

// A record as a row of the store: the columns, and the packed bytes of its `wire` column (a format
// byte, the length, and the serialized record compressed by zlib: about half). Rows of an older
// store are the serialized record itself. Used by the store's files only.

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <string_view>

#include "common/record.h"
#include "common/result.h"

namespace spate::controller {

std::string pack_record(std::string_view wire_bytes);
// Refuses what pack_record() would not have written, with the reason.
Result<Record> unpack_record(std::string_view packed);

// Throws SQLite::Exception.
class RecordInsert {
 public:
  RecordInsert(SQLite::Database& db, const std::string& table);
  void put(const Record& record, std::string_view wire_bytes);

 private:
  SQLite::Statement statement_;
};

}  // namespace spate::controller
