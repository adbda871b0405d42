#include "service/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "common/units.h"

namespace spate::service {

void declare_log(CLI::App& app, LogFlags& flags, const std::vector<std::string>& levels) {
  app.add_option("--log-level", flags.level, "How much is logged")
      ->envname("SPATE_LOG_LEVEL")
      ->check(CLI::IsMember(levels))
      ->capture_default_str();
  app.add_option("--log-file", flags.file, "Log to this file, rotated by size; default: stderr")
      ->envname("SPATE_LOG_FILE");
  app.add_option("--log-max-size", flags.max_size, "Size at which a new log file is begun")
      ->envname("SPATE_LOG_MAX_SIZE")
      ->capture_default_str();
  app.add_option("--log-files", flags.kept, "Older log files that are kept, as NAME.1.log, …")
      ->envname("SPATE_LOG_FILES")
      ->check(CLI::Range(1U, kMostLogFiles))
      ->capture_default_str();
}

Result<void> start_log(const std::string& name, const LogFlags& flags) {
  std::shared_ptr<spdlog::logger> log;
  if (flags.file.empty()) {
    log = std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  } else {
    const auto size = parse_size(flags.max_size);
    if (!size) return size.error().with_context("--log-max-size");
    if (*size < kSmallestLog)
      return invalid("--log-max-size must be at least " + format_size(kSmallestLog));
    // Addresses and names are nobody else's business.
    const auto mask = umask(0077);
    try {
      log = std::make_shared<spdlog::logger>(
          name,
          std::make_shared<spdlog::sinks::rotating_file_sink_mt>(flags.file, *size, flags.kept));
    } catch (const spdlog::spdlog_ex& e) {
      umask(mask);
      return invalid(std::string("--log-file cannot be written: ") + e.what() +
                     ": give a path in a folder that this user may write, or leave it out");
    }
    umask(mask);
    log->flush_on(spdlog::level::info);
  }
  log->set_level(spdlog::level::from_str(flags.level));
  log->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n %v");
  spdlog::drop(name);
  spdlog::set_default_logger(log);
  return {};
}

}  // namespace spate::service
