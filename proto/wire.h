#pragma once

// Between the wire form (generated types) and the values of common/. Decoding refuses what encoding
// would not have written.

#include "common/record.h"
#include "common/result.h"

namespace spate::record::v1 {
class Record;
class ErrorClass;
}  // namespace spate::record::v1

namespace spate::wire {

record::v1::Record encode(const Record& record);
Result<Record> decode(const record::v1::Record& message);

// Serialized record::v1::Record, for the store and the spool.
std::string to_bytes(const Record& record);
Result<Record> from_bytes(std::string_view bytes);

}  // namespace spate::wire
