#include "controller/report.h"

namespace spate::controller {

// Built only while the renderer is not part of the tree.
Result<std::string> render_report(const Aggregate&, std::string_view) {
  return Error{ErrorCode::unavailable, "this build has no reports"};
}

}  // namespace spate::controller
