// What the subcommands share in reading a command line: checks of numbers, and the message about a mistake.
//
// Threads: for the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "stepnet/file_place.h"

namespace stepnet::tools {

// Checks for CLI::Option::check.
CLI::Validator whole_number(int64_t least, int64_t most = INT64_MAX);
CLI::Validator number_at_least(double least);
CLI::Validator number_above(double bound);
CLI::Validator not_empty();
// For CLI::Option::transform: a number of bytes such as 200M (of 10^6), 24.5MB or 1.5GiB (of 2^30), which must be above
// 0, becomes a whole one.
CLI::Validator byte_count();

// The blob and the file of "BLOB=FILE.npy". Throws Error.
std::pair<std::string, std::string> parse_feed(const std::string& text);

// The option --root, for commands that run nets or ask their operators what is wrong; "" if it is not given.
CLI::Option* add_root_option(CLI::App& command, std::string& folder);
// What it means: null without it. Throws Error if there is no such folder.
FileRootPtr root_of(const std::string& folder);

// The option --offload, for commands that run recurrent networks backward; "" if it is not given.
CLI::Option* add_offload_option(CLI::App& command, std::string& folder);

// Throws Error for what CLI found wrong with the command line of one of the subcommands.
[[noreturn]] void refuse_usage(const CLI::App& app, const CLI::ParseError& e);

}  // namespace stepnet::tools
