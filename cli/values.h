#pragma once

// Flags with units for CLI11: what parse_duration refuses is refused with its text.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/units.h"

namespace spate::cli {

inline CLI::Option* add_duration(CLI::App& app, const std::string& name,
                                 std::function<void(Duration)> set,
                                 const std::string& description) {
  return app
      .add_option_function<std::string>(
          name,
          [name, set = std::move(set)](const std::string& text) {
            const auto parsed = parse_duration(text);
            if (!parsed) throw CLI::ValidationError(name, parsed.error().message);
            set(*parsed);
          },
          description)
      ->type_name("DURATION");
}

}  // namespace spate::cli
