#pragma once

// Result<T>: a value or an Error. For operations that can fail in a running program: bad input,
// files, sockets. A failed request of the flood is not one of these; it is an Outcome (outcome.h).

#include <boost/system/result.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace spate {

enum class ErrorCode { invalid, not_found, unavailable, refused, conflict, io, internal };

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;  // for the user: what was wrong, where, what to do

  Error with_context(const std::string& context) const { return {code, context + ": " + message}; }
};

[[noreturn]] inline void throw_exception_from_error(const Error& e, const boost::source_location&) {
  throw std::runtime_error(e.message);
}

template <class T>
using Result = boost::system::result<T, Error>;

inline Error invalid(std::string message) { return {ErrorCode::invalid, std::move(message)}; }

}  // namespace spate
