#include "agent/preflight.h"

#include <algorithm>
#include <utility>

#include "common/units.h"

namespace spate::agent {

namespace {

std::uint64_t most_connections(const Prepare& p) {
  std::uint64_t most = 0;
  for (const EpochShare& e : p.timeline.epochs)
    most = std::max(most, e.parameters.load.connections);
  return most;
}

// What a controller of this version never sends; refused rather than trusted.
std::string malformed(const Prepare& p) {
  if (p.run.empty()) return "the run has no id";
  if (p.interval <= Duration::zero()) return "the interval must be longer than 0";
  if (p.drain < Duration::zero()) return "the drain must not be negative";
  if (p.timeline.epochs.empty()) return "no epoch";
  if (p.timeline.segments.empty()) return "no segment";
  for (const EpochShare& e : p.timeline.epochs) {
    if (e.parameters.threads == 0 || e.parameters.threads > kMaxThreadsPerAgent)
      return "workers must be 1 to " + std::to_string(kMaxThreadsPerAgent);
    if (e.parameters.call.timeout <= Duration::zero())
      return "the call's timeout must be longer than 0";
  }
  Duration end = p.timeline.segments.front().offset;
  for (const Segment& s : p.timeline.segments) {
    if (s.offset != end || s.length <= Duration::zero())
      return "the segment at " + format_duration(s.offset) + " does not follow the one before it";
    end = s.offset + s.length;
    const bool known = std::any_of(p.timeline.epochs.begin(), p.timeline.epochs.end(),
                                   [&s](const EpochShare& e) { return e.epoch == s.epoch; });
    if (!known)
      return "the segment at " + format_duration(s.offset) + " names an epoch that is not there";
  }
  return {};
}

const Parameters& first_parameters(const Prepare& p) {
  return p.timeline.epochs.front().parameters;
}

void check_descriptors(const Prepare& p, const PreflightWorld& world,
                       std::vector<Problem>& problems) {
  const std::uint64_t needed = descriptors_needed(p);
  const std::uint64_t available = world.descriptors();
  if (needed <= available) return;
  problems.push_back(
      {"descriptors",
       format_count(most_connections(p)) + " connections and " +
           std::to_string(first_parameters(p).threads) + " workers need " + format_count(needed) +
           " file descriptors; this process may open " + format_count(available) +
           " (the hard limit). Raise it with `ulimit -Hn " + std::to_string(needed) +
           "` before the agent starts, or LimitNOFILE= of its systemd unit, or use more agents",
       needed, available});
}

void check_cap(const Prepare& p, const PreflightRules& rules, std::vector<Problem>& problems) {
  const std::uint64_t needed = most_connections(p);
  if (!rules.max_connections || needed <= *rules.max_connections) return;
  problems.push_back({"connections",
                      format_count(needed) +
                          " connections are more than the owner of this agent allows (" +
                          format_count(*rules.max_connections) +
                          "); use more agents, or start this one with a higher --max-connections",
                      needed, *rules.max_connections});
}

// A connection's local port is unique per (source address, target address and port), on loopback
// too.
void check_ports(const Prepare& p, const PreflightWorld& world, std::vector<Problem>& problems) {
  const PortRange range = world.local_ports();
  const std::uint64_t needed = most_connections(p);
  if (needed <= range.size()) return;
  problems.push_back(
      {"ports",
       format_count(needed) +
           " connections to one target address need as many local ports; there are " +
           format_count(range.size()) + " (net.ipv4.ip_local_port_range = " +
           std::to_string(range.low) + " " + std::to_string(range.high) +
           "). Widen it with `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`, or use more "
           "agents",
       needed, range.size()});
}

std::string join(const std::vector<IpAddress>& addresses) {
  std::string text;
  for (const IpAddress& a : addresses) text += (text.empty() ? "" : ", ") + a.to_string();
  return text;
}

// Those of the host's addresses that the owner of this agent allows.
std::vector<IpAddress> allowed_addresses(const Endpoint& target, const PreflightRules& rules,
                                         const PreflightWorld& world,
                                         std::vector<Problem>& problems) {
  const Result<std::vector<IpAddress>> found = world.resolve(target.host);
  if (!found) {
    problems.push_back({"target", "cannot find " + target.host + ": " + found.error().message});
    return {};
  }
  std::vector<IpAddress> allowed;
  for (const IpAddress& a : *found)
    if (!a.is_forbidden_target() && rules.allow.allows(a, target.port)) allowed.push_back(a);
  if (!allowed.empty()) return allowed;

  const bool never =
      !found->empty() && std::all_of(found->begin(), found->end(),
                                     [](const IpAddress& a) { return a.is_forbidden_target(); });
  const std::string port = std::to_string(target.port);
  if (never)
    problems.push_back(
        {"allow",
         target.host + " is " + join(*found) +
             ", which is never a target (unspecified, link-local, multicast or broadcast)"});
  else
    problems.push_back(
        {"allow", join(*found) + " port " + port + " is not on this agent's list of targets (" +
                      rules.allow.to_string() + "). Its owner may add it: spate-agent --allow " +
                      (found->empty() ? target.host : found->front().to_string()) + ":" + port});
  return {};
}

Assignment assign(const PreflightRequest& request, const TargetUrl& url) {
  const Prepare& p = request.prepare;
  Assignment a;
  a.run = p.run;
  a.agent = request.agent;
  a.incarnation = request.incarnation;
  a.target = url.endpoint;
  const Parameters& parameters = first_parameters(p);
  a.method_path = "/" + parameters.call.method;
  a.metadata = parameters.call.metadata;
  a.metadata.emplace_back("spate-run", p.run);
  a.metadata.emplace_back("spate-agent", request.agent);
  a.metadata.emplace_back("spate-incarnation", std::to_string(request.incarnation));
  a.timeout = parameters.call.timeout;
  a.interval = p.interval;
  a.timeline = p.timeline;
  a.seed = p.seed;
  a.first_connection = p.first_connection;
  a.workers = parameters.threads;
  return a;
}

// The first address that answers is the one to flood.
void probe_in_order(Assignment& assignment, const std::vector<IpAddress>& addresses,
                    const PreflightWorld& world, std::vector<Problem>& problems) {
  std::string silent;
  for (const IpAddress& address : addresses) {
    assignment.address = address;
    const Result<void> answer = world.probe(assignment, kProbeTimeout);
    if (answer) return;
    if (answer.error().code == ErrorCode::not_found) {
      problems.push_back({"method", answer.error().message});
      return;
    }
    silent += (silent.empty() ? "" : "; ") + answer.error().message;
  }
  problems.push_back({"target", silent});
}

}  // namespace

std::uint64_t descriptors_needed(const Prepare& prepare) {
  return most_connections(prepare) + first_parameters(prepare).threads * kDescriptorsPerWorker +
         kDescriptorsOfAgent;
}

PreflightResult check(const PreflightRequest& request, const PreflightRules& rules,
                      const PreflightWorld& world) {
  PreflightResult result;
  std::vector<Problem>& problems = result.problems;
  const Prepare& p = request.prepare;

  if (const std::string text = malformed(p); !text.empty()) {
    problems.push_back({"plan", text});
    return result;
  }
  const Result<TargetUrl> url = parse_target_url(first_parameters(p).target_url);
  if (!url) {
    problems.push_back({"target", url.error().message});
    return result;
  }
  check_descriptors(p, world, problems);
  check_cap(p, rules, problems);
  check_ports(p, world, problems);
  const std::vector<IpAddress> addresses = allowed_addresses(url->endpoint, rules, world, problems);

  Assignment assignment = assign(request, *url);
  const auto message = world.compile(first_parameters(p).call.method, p.descriptor_set,
                                     first_parameters(p).call.message_json);
  if (message)
    assignment.message = *message;
  else
    problems.push_back({message.error().code == ErrorCode::not_found ? "method" : "message",
                        message.error().message});
  if (url->is_tls()) {
    const auto tls = world.tls(url->endpoint);
    if (tls)
      assignment.tls = *tls;
    else
      problems.push_back({"tls", tls.error().message});
  }
  // The target is not touched for a run that cannot be.
  if (problems.empty()) probe_in_order(assignment, addresses, world, problems);
  if (problems.empty())
    result.assignment = std::make_shared<const Assignment>(std::move(assignment));
  return result;
}

}  // namespace spate::agent
