// The run as a reference log: a row per look at the target, with what it had completed of this run
// and its address space; the last row has the exact total. Without samples the agents' own counts
// are all there is, and the memory is 0.

#include "common/reference_log.h"

#include "controller/report_formats.h"

namespace spate::controller::report {

std::string reference(const Aggregate& run) {
  ReferenceLogWriter writer(run.info().started_wall_ms, 0, ',');
  auto out = writer.header();
  const auto& samples = run.target_samples();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].at_ns <= 0 && i + 1 < samples.size()) continue;
    out +=
        writer.row(samples[i].at_ns, run.completed_at_samples()[i], samples[i].address_space_bytes);
  }
  if (!samples.empty()) return out;
  std::uint64_t finished = 0;
  for (const auto& p : run.points()) {
    finished += p.ok() + p.outcomes[index(Outcome::application_error)] +
                p.outcomes[index(Outcome::bad_response)];
    out += writer.row((p.start + p.length).count(), finished, 0);
  }
  return out;
}

}  // namespace spate::controller::report
