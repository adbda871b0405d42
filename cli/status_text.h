#pragma once

// What `spate status RUN` prints. Pure.

#include <string>

namespace spate::ops::v1 {
class StatusReply;
}

namespace spate::cli {

std::string status_text(const ops::v1::StatusReply& reply);
std::string status_json(const ops::v1::StatusReply& reply);

}  // namespace spate::cli
