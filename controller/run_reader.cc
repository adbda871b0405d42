#include "controller/run_reader.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "controller/canary.h"
#include "controller/change_orders.h"
#include "controller/controller.h"
#include "controller/report.h"
#include "controller/store_reader.h"

namespace spate::controller {
namespace {

namespace asio = boost::asio;

Result<std::string> make_report(const std::string& path, const std::string& run,
                                const std::string& format) {
  const auto loaded = load_run(path, run);
  if (!loaded) return loaded.error();
  return render_report(**loaded, format);
}

Result<VerifyAnswer> make_verification(const std::string& path, const std::string& run) {
  const auto loaded = load_run(path, run);
  if (!loaded) return loaded.error();
  const Summary summary = (*loaded)->summary();
  VerifyAnswer answer;
  answer.balance = std::string(name(summary.balance));
  answer.lines = summary.balance_lines;
  answer.exit_code =
      summary.balance == Balance::unbalanced || summary.verdict == Verdict::invalid ? 3 : 0;
  return answer;
}

Result<WatchEnd> make_end(const std::string& path, const std::string& run) {
  const auto loaded = load_run(path, run);
  if (!loaded) return loaded.error();
  const Summary summary = (*loaded)->summary();
  return WatchEnd{summary.exit_code, to_json(summary), to_text(summary)};
}

RunRow to_row(const StoredRun& stored) {
  RunRow row;
  row.run = stored.id;
  row.plan = stored.plan;
  row.state = stored.state == "finished" ? stored.end : stored.state;
  row.started_at = stored.started_wall_ms == 0 ? "" : rfc3339(stored.started_wall_ms);
  row.duration_s = std::chrono::duration<double>(stored.length).count();
  row.verdict = stored.verdict;
  row.requests = stored.requests;
  row.agents = stored.agents;
  row.reason = stored.reason;
  return row;
}

Result<std::vector<RunRow>> make_list(const std::string& path, const std::string& wanted,
                                      std::vector<RunRow> live) {
  const auto stored = list_runs(path, wanted);
  if (!stored && (live.empty() || stored.error().code != ErrorCode::not_found))
    return stored.error();
  std::vector<RunRow> rows = std::move(live);
  if (!stored) return rows;
  const std::size_t live_count = rows.size();
  for (const StoredRun& one : *stored) {
    const auto end = rows.begin() + static_cast<std::ptrdiff_t>(live_count);
    if (std::any_of(rows.begin(), end, [&](const RunRow& r) { return r.run == one.id; })) continue;
    rows.push_back(to_row(one));
  }
  return rows;
}

Result<RunStatus> make_status(const std::string& path, const std::string& run,
                              std::optional<RunStatus> live) {
  RunStatus status;
  if (live) {
    status = *std::move(live);
  } else {
    const auto rows = list_runs(path, run);
    if (!rows) return rows.error();
    const auto info = load_run_info(path, run);
    if (!info) return info.error();
    status.run = to_row(rows->front());
    for (const Change& change : info->changes)
      status.changes.push_back(to_row(change, *info, info->length));
    return status;
  }
  if (const Change* canary = canary_on_trial(status.changes)) {
    const auto groups = compare_canary(path, run, *canary);
    if (!groups) return groups.error();
    status.canary = *groups;
  }
  return status;
}

}  // namespace

class RunReader::Impl {
 public:
  Impl(asio::io_context& loop, std::string path) : loop_(loop), path_(std::move(path)) {}
  ~Impl() { pool_.join(); }

  template <class Value, class Make>
  void ask(Make make, std::function<void(Result<Value>)> done) {
    if (*waiting_ >= kMaxWaitingReads) {
      done(Error{ErrorCode::unavailable, "the controller is busy with " +
                                             std::to_string(*waiting_) +
                                             " other questions about stored runs: try again"});
      return;
    }
    ++*waiting_;
    asio::post(pool_, [&loop = loop_, path = path_, waiting = waiting_,
                       work = asio::make_work_guard(loop_), make = std::move(make),
                       done = std::move(done)]() mutable {
      Result<Value> value = make(path);
      asio::post(loop, [waiting, value = std::move(value), done = std::move(done)]() mutable {
        --*waiting;
        done(std::move(value));
      });
    });
  }

 private:
  asio::io_context& loop_;
  const std::string path_;
  std::shared_ptr<std::size_t> waiting_ = std::make_shared<std::size_t>(0);  // of the control loop
  asio::thread_pool pool_{1};
};

RunReader::RunReader(asio::io_context& loop, std::string store_path)
    : impl_(std::make_unique<Impl>(loop, std::move(store_path))) {}
RunReader::~RunReader() = default;

void RunReader::report(const std::string& run, const std::string& format,
                       std::function<void(Result<std::string>)> done) {
  impl_->ask<std::string>(
      [run, format](const std::string& path) { return make_report(path, run, format); },
      std::move(done));
}

void RunReader::verify(const std::string& run, std::function<void(Result<VerifyAnswer>)> done) {
  impl_->ask<VerifyAnswer>([run](const std::string& path) { return make_verification(path, run); },
                           std::move(done));
}

void RunReader::status(const std::string& run, std::optional<RunStatus> live,
                       std::function<void(Result<RunStatus>)> done) {
  impl_->ask<RunStatus>([run, live = std::move(live)](
                            const std::string& path) { return make_status(path, run, live); },
                        std::move(done));
}

void RunReader::end_of(const std::string& run, std::function<void(Result<WatchEnd>)> done) {
  impl_->ask<WatchEnd>([run](const std::string& path) { return make_end(path, run); },
                       std::move(done));
}

void RunReader::list(const std::string& wanted, std::vector<RunRow> live,
                     std::function<void(Result<std::vector<RunRow>>)> done) {
  impl_->ask<std::vector<RunRow>>(
      [wanted, live = std::move(live)](const std::string& path) {
        return make_list(path, wanted, live);
      },
      std::move(done));
}

}  // namespace spate::controller
