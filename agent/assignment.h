#pragma once

// What a worker has to do: its part of the agent's share of a run, ready to be done. Made by the
// pre-flight and immutable afterwards; shared by the workers of a run. A change of the run's
// parameters makes another one (worker.h: change()), which shares with it what did not change.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/parameters.h"
#include "common/timeline.h"

namespace spate::agent {

class GrpcProfile;      // drivers/http2_grpc.h; immutable
class MessageTemplate;  // message_template.h; immutable
class TlsContext;       // drivers/tls.h; immutable

// Where connections go. A connection belongs to one route for its life; epochs of one target share
// one, so that their connections stay.
struct Route {
  IpAddress address;                      // resolved, and allowed by the agent's owner
  Endpoint target;                        // as the plan names it: the authority
  std::shared_ptr<const TlsContext> tls;  // null: plain
};

// The calls of one parameter set, with all that needs parsing, compiling or compressing done. Equal
// sets share one.
struct PreparedCall {
  std::shared_ptr<const Route> route;
  std::string method_path;  // "/package.Service/Method"
  Metadata metadata;        // plan's own, then spate-run, spate-agent, spate-incarnation
  Duration timeout{};
  bool compress = false;
  std::shared_ptr<const MessageTemplate> message;

  // Made by prepare() of all this.
  std::shared_ptr<const GrpcProfile> profile;
  std::string framed;  // the body of every request, if all are the same; else empty
};

// Compresses a constant message: takes its time if that is large.
std::shared_ptr<const PreparedCall> prepare(PreparedCall call);

struct AssignedEpoch {
  std::uint32_t number = 1;
  Parameters parameters;  // this agent's own: its connections are divided among its workers
  std::shared_ptr<const PreparedCall> call;
};

struct Assignment {
  std::string run;
  std::string agent;
  std::uint64_t incarnation = 0;
  Duration interval{};
  std::uint64_t seed = 1;
  double max_rate_per_s = 0;  // the owner's cap on requests, all workers together; 0: none

  // How connections and requests are numbered: the same in all assignments of a run.
  std::uint64_t first_connection = 0;      // cluster-wide number of the agent's first connection
  std::uint64_t numbered_connections = 0;  // those numbers are this agent's own
  std::uint32_t workers = 1;               // most there are by the plan

  std::vector<AssignedEpoch> epochs;
  std::vector<Segment> segments;  // contiguous; of a change: from where it takes effect

  const AssignedEpoch& epoch(std::uint32_t number) const;  // requires it to exist
  // Index of the segment in effect at `at` since the run's start: the last one that has begun.
  std::size_t segment_at(Duration at) const;
  Duration end() const { return segments.back().offset + segments.back().length; }
};

}  // namespace spate::agent
