#include "tools/commands/cli/usage.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <regex>

#include "stepnet/error.h"

namespace stepnet::tools {
namespace {

template <class Check>
CLI::Validator number_check(Check check) {
  return CLI::Validator(
      [check](std::string& text) {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value)) return fmt::format("must be a number, but is \"{}\"", text);
        return check(value);
      },
      "");
}

// What "M", "MB" or "MiB" stands for, in any case; "": 1.
std::optional<double> bytes_of_unit(std::string unit) {
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.empty()) return 1;
  const size_t power = std::string("kmgtpe").find(unit[0]);
  if (power == std::string::npos || (unit.size() > 1 && unit.substr(1) != "i")) return {};
  return std::pow(unit.size() > 1 ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

std::string option_name(const std::string& argument) { return argument.substr(0, argument.find('=')); }

// The first argument that looks like an option, else the first that nobody wants.
std::string unknown_text(const CLI::App& command) {
  const std::vector<std::string> extras = command.remaining();
  for (const std::string& extra : extras) {
    if (!extra.starts_with("-")) continue;
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    return fmt::format("there is no option {}.{}", option_name(extra), suggest(option_name(extra), names));
  }
  if (extras.empty()) return "";
  // Without a subcommand the first word should have been one.
  if (const auto subcommands = command.get_subcommands({}); !subcommands.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* subcommand : subcommands) names.push_back(subcommand->get_name());
    return fmt::format("there is no command \"{}\".{}", extras[0], suggest(extras[0], names));
  }
  return fmt::format("the argument \"{}\" is one too many", extras[0]);
}

// CLI11's words for a value that is none of several names, or no number, in ours.
std::string reworded(const std::string& text) {
  static const std::regex choice(R"((--[a-z0-9-]+): Check (.*) value in \{(.*)\} OR \{.*\} FAILED)");
  static const std::regex number(R"(Could not convert: (--[a-z0-9-]+) = (.*))");
  constexpr size_t kLongest = 1000;  // matching takes stack for each letter
  if (text.size() > kLongest) return text;
  std::smatch found;
  if (std::regex_match(text, found, choice))
    return fmt::format(
        "{}: \"{}\" is none of {}", found.str(1), found.str(2),
        std::regex_replace(std::regex_replace(found.str(3), std::regex("->-?[0-9]+"), ""), std::regex(","), ", "));
  if (std::regex_match(text, found, number))
    return fmt::format("{} must be a number, but is \"{}\"", found.str(1), found.str(2));
  return text;
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        int64_t value = 0;
        if (!CLI::detail::lexical_cast(text, value)) return fmt::format("must be a whole number, but is \"{}\"", text);
        if (value < least) return fmt::format("must be at least {}, but is {}", least, value);
        return value > most ? fmt::format("must be at most {}, but is {}", most, value) : std::string();
      },
      "");
}

CLI::Validator number_at_least(double least) {
  return number_check([least](double value) {
    return value >= least ? std::string() : fmt::format("must be at least {}, but is {}", least, value);
  });
}

CLI::Validator number_above(double bound) {
  return number_check([bound](double value) {
    return value > bound ? std::string() : fmt::format("must be above {}, but is {}", bound, value);
  });
}

CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return text.empty() ? "must not be empty" : std::string(); }, "");
}

CLI::Validator byte_count() {
  return CLI::Validator(
      [](std::string& text) {
        const auto refuse = [&](const char* what) {
          return fmt::format("must be {} bytes, such as 200M or 1.5GiB, but is \"{}\"", what, text);
        };
        int64_t whole = 0;
        const char* end = text.data() + text.size();
        if (const auto [rest, error] = std::from_chars(text.data(), end, whole); error == std::errc() && rest == end)
          return whole > 0 ? std::string() : refuse("more than 0");
        double number = 0;
        const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
        const std::optional<double> unit = bytes_of_unit(std::string(rest, end));
        if (error != std::errc() || !unit || !std::isfinite(number)) return refuse("a number of");
        const double bytes = std::round(number * *unit);
        if (bytes < 1) return refuse("more than 0");
        if (bytes >= 0x1p63) return refuse("fewer");
        text = fmt::format("{}", static_cast<int64_t>(bytes));
        return std::string();
      },
      "");
}

std::pair<std::string, std::string> parse_feed(const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0 && equals + 1 < text.size(),
          "--feed takes BLOB=FILE.npy, but is \"{}\"", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

CLI::Option* add_offload_option(CLI::App& command, std::string& folder) {
  return command.add_option(
      "--offload", folder,
      "Folder on a disk for what recurrent networks keep for their backward passes; made if it is not there");
}

CLI::Option* add_root_option(CLI::App& command, std::string& folder) {
  return command
      .add_option("--root", folder,
                  "Nets open files below this folder only, by paths from there; links are not followed")
      ->check(not_empty())
      ->type_name("DIR")
      ->default_str("");
}

FileRootPtr root_of(const std::string& folder) {
  return folder.empty() ? nullptr : std::make_shared<const FileRoot>(folder);
}

void refuse_usage(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App* command = &app;
  if (const auto parsed = app.get_subcommands(); !parsed.empty()) command = parsed[0];
  const std::string call = command == &app ? app.get_name() : app.get_name() + " " + command->get_name();
  std::string unknown;
  const bool lacks_command = dynamic_cast<const CLI::RequiredError*>(&e) && command == &app;
  if (dynamic_cast<const CLI::ExtrasError*>(&e) || lacks_command) unknown = unknown_text(*command);
  throw Error(unknown.empty() ? reworded(e.what()) : unknown, fmt::format("see {} --help", call));
}

}  // namespace stepnet::tools
