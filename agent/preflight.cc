#include "agent/preflight.h"

#include <algorithm>
#include <concepts>
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

std::uint32_t most_threads(const Prepare& p) {
  std::uint32_t most = 0;
  for (const EpochShare& e : p.timeline.epochs) most = std::max(most, e.parameters.threads);
  return most;
}

// What a controller of this version never sends; refused rather than trusted.
std::string malformed(const ShareTimeline& timeline) {
  if (timeline.epochs.empty()) return "no epoch";
  if (timeline.segments.empty()) return "no segment";
  for (const EpochShare& e : timeline.epochs) {
    if (e.parameters.threads == 0 || e.parameters.threads > kMaxThreadsPerAgent)
      return "workers must be 1 to " + std::to_string(kMaxThreadsPerAgent);
    if (e.parameters.call.timeout <= Duration::zero())
      return "the call's timeout must be longer than 0";
  }
  Duration end = timeline.segments.front().offset;
  for (const Segment& s : timeline.segments) {
    if (s.offset != end || s.length <= Duration::zero())
      return "the segment at " + format_duration(s.offset) + " does not follow the one before it";
    end = s.offset + s.length;
    const bool known = std::any_of(timeline.epochs.begin(), timeline.epochs.end(),
                                   [&s](const EpochShare& e) { return e.epoch == s.epoch; });
    if (!known)
      return "the segment at " + format_duration(s.offset) + " names an epoch that is not there";
  }
  return {};
}

std::string malformed(const Prepare& p) {
  if (p.run.empty()) return "the run has no id";
  if (p.interval <= Duration::zero()) return "the interval must be longer than 0";
  if (p.drain < Duration::zero()) return "the drain must not be negative";
  return malformed(p.timeline);
}

std::string malformed(const EpochPrepare& change) {
  if (std::string text = malformed(change.timeline); !text.empty()) return text;
  const Duration first = change.timeline.segments.front().offset;
  if (first > change.from)
    return "the change's first segment begins at " + format_duration(first) +
           ", after the change itself (" + format_duration(change.from) + ")";
  return {};
}

void check_descriptors(const Prepare& p, const PreflightWorld& world,
                       std::vector<Problem>& problems) {
  const std::uint64_t needed = descriptors_needed(p);
  const std::uint64_t available = world.descriptors();
  if (needed <= available) return;
  problems.push_back(
      {"descriptors",
       format_count(most_connections(p)) + " connections and " + std::to_string(most_threads(p)) +
           " workers need " + format_count(needed) + " file descriptors; this process may open " +
           format_count(available) + " (the hard limit). Raise it with `ulimit -Hn " +
           std::to_string(needed) +
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

// A parameter set as far as its calls go: those of equal ones are prepared once.
struct CallKey {
  std::string target_url;
  Call call;

  explicit CallKey(const Parameters& p) : target_url(p.target_url), call(p.call) {}
  bool operator==(const CallKey&) const = default;
};

using Assignments = std::vector<std::shared_ptr<const Assignment>>;

// Makes an assignment out of a timeline: every target, method and message in it once. What `known`
// ones have is taken from there, and so stays what it is for the connections that use it.
class Preparation {
 public:
  Preparation(const PreflightRequest& request, const PreflightRules& rules,
              const PreflightWorld& world, const Assignments& known, std::vector<Problem>& problems)
      : request_(request), rules_(rules), world_(world), known_(known), problems_(problems) {}

  // Everything but asking the targets: those are not touched for a run that cannot be.
  void compile();
  void probe();
  Assignment assignment() const;

 private:
  struct Target {
    std::string url;
    std::shared_ptr<const Route> known;
    std::shared_ptr<Route> made;       // if none is known; probe() finds its address
    std::vector<IpAddress> addresses;  // to be tried
  };
  struct Compiled {
    CallKey key;
    std::size_t target;                         // index into targets_
    PreparedCall call;                          // without what prepare() makes
    std::shared_ptr<const PreparedCall> ready;  // known, or when it has been probed
  };

  std::size_t target_of(const std::string& url);
  Target find_target(const std::string& url);
  void compile_call(const Parameters& parameters);
  PreparedCall make_call(const Parameters& parameters, const Target& target);
  template <std::predicate<const Parameters&> Matches>
  std::shared_ptr<const PreparedCall> find_known(Matches matches) const;
  bool ask(const Compiled& compiled);
  void add(Problem problem);

  const PreflightRequest& request_;
  const PreflightRules& rules_;
  const PreflightWorld& world_;
  const Assignments& known_;
  std::vector<Problem>& problems_;
  std::vector<Target> targets_;
  std::vector<Compiled> calls_;
};

template <std::predicate<const Parameters&> Matches>
std::shared_ptr<const PreparedCall> Preparation::find_known(Matches matches) const {
  for (const auto& assignment : known_)
    for (const AssignedEpoch& e : assignment->epochs)
      if (matches(e.parameters)) return e.call;
  return nullptr;
}

// Two messages may have the same mistake.
void Preparation::add(Problem problem) {
  if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end())
    problems_.push_back(std::move(problem));
}

void Preparation::compile() {
  for (const EpochShare& e : request_.prepare.timeline.epochs) {
    const CallKey key(e.parameters);
    const bool is_done =
        std::any_of(calls_.begin(), calls_.end(), [&](const Compiled& c) { return c.key == key; });
    if (!is_done) compile_call(e.parameters);
  }
}

std::size_t Preparation::target_of(const std::string& url) {
  const auto found = std::find_if(targets_.begin(), targets_.end(),
                                  [&](const Target& target) { return target.url == url; });
  const auto index = static_cast<std::size_t>(found - targets_.begin());
  if (found == targets_.end()) targets_.push_back(find_target(url));
  return index;
}

Preparation::Target Preparation::find_target(const std::string& url) {
  if (const auto known = find_known([&](const Parameters& p) { return p.target_url == url; }))
    return {url, known->route, nullptr, {}};

  Target target{url, nullptr, std::make_shared<Route>(), {}};
  const Result<TargetUrl> parsed = parse_target_url(url);
  if (!parsed) {
    add({"target", parsed.error().message});
    return target;
  }
  target.made->target = parsed->endpoint;
  std::vector<Problem> problems;
  target.addresses = allowed_addresses(parsed->endpoint, rules_, world_, problems);
  for (Problem& problem : problems) add(std::move(problem));
  if (!parsed->is_tls()) return target;
  if (const auto tls = world_.tls(parsed->endpoint))
    target.made->tls = *tls;
  else
    add({"tls", tls.error().message});
  return target;
}

void Preparation::compile_call(const Parameters& parameters) {
  Compiled compiled{CallKey(parameters), target_of(parameters.target_url), {}, nullptr};
  compiled.ready = find_known([&](const Parameters& p) { return CallKey(p) == compiled.key; });
  if (!compiled.ready) compiled.call = make_call(parameters, targets_[compiled.target]);
  calls_.push_back(std::move(compiled));
}

PreparedCall Preparation::make_call(const Parameters& parameters, const Target& target) {
  const Call& spec = parameters.call;
  PreparedCall call;
  call.route = target.known ? target.known : target.made;
  call.method_path = "/" + spec.method;
  call.metadata = spec.metadata;
  call.metadata.emplace_back("spate-run", request_.prepare.run);
  call.metadata.emplace_back("spate-agent", request_.agent);
  call.metadata.emplace_back("spate-incarnation", std::to_string(request_.incarnation));
  call.timeout = spec.timeout;
  call.compress = spec.compress;
  const auto message =
      world_.compile(spec.method, request_.prepare.descriptor_set, spec.message_json);
  if (message)
    call.message = *message;
  else
    add({message.error().code == ErrorCode::not_found ? "method" : "message",
         message.error().message});
  return call;
}

// Whether the target answers and knows the method. The first of its addresses that answers is the
// one to flood.
bool Preparation::ask(const Compiled& compiled) {
  Target& target = targets_[compiled.target];
  std::vector<IpAddress> addresses = std::exchange(target.addresses, {});
  if (addresses.empty()) addresses = {compiled.call.route->address};  // chosen before
  std::string silent;
  for (const IpAddress& address : addresses) {
    if (target.made) target.made->address = address;
    const Result<void> answer = world_.probe(compiled.call, kProbeTimeout);
    if (answer) return true;
    if (answer.error().code == ErrorCode::not_found) {
      add({"method", answer.error().message});
      return false;
    }
    silent += (silent.empty() ? "" : "; ") + answer.error().message;
  }
  add({"target", silent});
  return false;
}

// Every method of every target once; what did not answer once is not asked again.
void Preparation::probe() {
  std::vector<std::pair<std::size_t, std::string>> answered;
  for (Compiled& compiled : calls_) {
    if (compiled.ready) continue;
    const std::pair question(compiled.target, compiled.call.method_path);
    if (std::find(answered.begin(), answered.end(), question) == answered.end()) {
      if (!ask(compiled)) return;
      answered.push_back(question);
    }
    compiled.ready = prepare(compiled.call);
  }
}

Assignment Preparation::assignment() const {
  const Prepare& p = request_.prepare;
  Assignment a;
  a.run = p.run;
  a.agent = request_.agent;
  a.incarnation = request_.incarnation;
  a.interval = p.interval;
  a.seed = p.seed;
  a.max_rate_per_s = rules_.max_rate_per_s;
  a.first_connection = p.first_connection;
  a.numbered_connections =
      known_.empty() ? most_connections(p) : known_.front()->numbered_connections;
  a.workers = known_.empty() ? most_threads(p) : known_.front()->workers;
  a.segments = p.timeline.segments;
  for (const EpochShare& e : p.timeline.epochs) {
    const auto compiled = std::find_if(calls_.begin(), calls_.end(), [&](const Compiled& c) {
      return c.key == CallKey(e.parameters);
    });
    a.epochs.push_back({e.epoch, e.parameters, compiled->ready});
  }
  return a;
}

PreflightResult check_all(const PreflightRequest& request, const PreflightRules& rules,
                          const PreflightWorld& world, const Assignments& known) {
  PreflightResult result;
  std::vector<Problem>& problems = result.problems;
  check_descriptors(request.prepare, world, problems);
  check_cap(request.prepare, rules, problems);
  check_ports(request.prepare, world, problems);
  Preparation preparation(request, rules, world, known, problems);
  preparation.compile();
  if (problems.empty()) preparation.probe();
  if (problems.empty())
    result.assignment = std::make_shared<const Assignment>(preparation.assignment());
  return result;
}

}  // namespace

std::uint64_t descriptors_needed(const Prepare& prepare) {
  return most_connections(prepare) + most_threads(prepare) * kDescriptorsPerWorker +
         kDescriptorsOfAgent;
}

PreflightResult check(const PreflightRequest& request, const PreflightRules& rules,
                      const PreflightWorld& world) {
  if (const std::string text = malformed(request.prepare); !text.empty())
    return {{{"plan", text}}, nullptr};
  return check_all(request, rules, world, {});
}

PreflightResult check(const ChangeRequest& request, const PreflightRules& rules,
                      const PreflightWorld& world) {
  if (const std::string text = malformed(request.change); !text.empty())
    return {{{"plan", text}}, nullptr};
  PreflightRequest changed = request.run;
  changed.prepare.timeline = request.change.timeline;
  return check_all(changed, rules, world, request.assignments);
}

}  // namespace spate::agent
