#include "common/outcome.h"

namespace spate {

std::string_view name(Outcome o) {
  switch (o) {
    case Outcome::ok:
      return "ok";
    case Outcome::application_error:
      return "application_error";
    case Outcome::timed_out:
      return "timed_out";
    case Outcome::refused:
      return "refused";
    case Outcome::reset:
      return "reset";
    case Outcome::protocol_error:
      return "protocol_error";
    case Outcome::bad_response:
      return "bad_response";
    case Outcome::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace spate
