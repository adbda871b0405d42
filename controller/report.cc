#include "controller/report.h"

#include "controller/report_formats.h"

namespace spate::controller {

Result<std::string> render_report(const Aggregate& run, std::string_view format) {
  if (format == "html") return report::html(run);
  if (format == "csv") return report::csv(run);
  if (format == "json") return report::json(run);
  if (format == "reference") return report::reference(run);
  if (format == "sets") return report::sets(run);
  return invalid("unknown report format \"" + std::string(format) +
                 "\": use html, csv, json, reference or sets");
}

}  // namespace spate::controller
