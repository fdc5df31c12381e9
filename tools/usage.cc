#include "tools/usage.h"

#include "core/error.h"

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
  return extras.empty() ? "" : fmt::format("the argument \"{}\" is one too many", extras[0]);
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

std::pair<std::string, std::string> parse_feed(const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0 && equals + 1 < text.size(),
          "--feed takes BLOB=FILE.npy, but is \"{}\"", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void refuse_usage(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App* command = &app;
  if (const auto parsed = app.get_subcommands(); !parsed.empty()) command = parsed[0];
  const std::string call = command == &app ? app.get_name() : app.get_name() + " " + command->get_name();
  std::string unknown;
  if (dynamic_cast<const CLI::ExtrasError*>(&e)) unknown = unknown_text(*command);
  throw Error(unknown.empty() ? e.what() : unknown, fmt::format("see {} --help", call));
}

}  // namespace stepnet::tools
