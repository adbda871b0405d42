#include "agent/assignment.h"

#include <algorithm>

#include "agent/drivers/gzip.h"
#include "agent/drivers/http2_grpc.h"
#include "agent/message_template.h"
#include "common/check.h"
#include "common/random.h"

namespace spate::agent {
namespace {

std::string constant_body(const PreparedCall& call) {
  Random unused(1);  // a constant message asks for nothing of its context
  std::string message;
  call.message->render({.random = unused, .agent = {}}, message);
  std::string framed(GrpcConnection::kPrefixBytes, '\0');
  if (call.compress)
    GzipDeflater().append(message, framed);
  else
    framed += message;
  GrpcConnection::write_prefix(framed, call.compress);
  return framed;
}

}  // namespace

std::shared_ptr<const PreparedCall> prepare(PreparedCall call) {
  call.profile = std::make_shared<const GrpcProfile>(call);
  if (call.message && call.message->is_constant()) call.framed = constant_body(call);
  return std::make_shared<const PreparedCall>(std::move(call));
}

const AssignedEpoch& Assignment::epoch(std::uint32_t number) const {
  const auto found = std::find_if(epochs.begin(), epochs.end(),
                                  [&](const AssignedEpoch& e) { return e.number == number; });
  CHECK(found != epochs.end(), "a segment names epoch " + std::to_string(number));
  return *found;
}

std::size_t Assignment::segment_at(Duration at) const {
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), at,
                       [](Duration t, const Segment& segment) { return t < segment.offset; });
  return after == segments.begin() ? 0 : static_cast<std::size_t>(after - segments.begin()) - 1;
}

}  // namespace spate::agent
