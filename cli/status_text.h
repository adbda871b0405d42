#pragma once

// What `spate status` prints, of all runs and of one. Pure.

#include <string>

namespace spate::ops::v1 {
class ListRunsReply;
class StatusReply;
}  // namespace spate::ops::v1

namespace spate::cli {

std::string runs_text(const ops::v1::ListRunsReply& reply);  // empty if there are none
std::string runs_json(const ops::v1::ListRunsReply& reply);
std::string status_text(const ops::v1::StatusReply& reply);
std::string status_json(const ops::v1::StatusReply& reply);

}  // namespace spate::cli
