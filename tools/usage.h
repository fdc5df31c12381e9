// What the subcommands share in reading a command line: checks of numbers, and the message about a mistake.
//
// Threads: for the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>

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

// Throws Error for what CLI found wrong with the command line of one of the subcommands.
[[noreturn]] void refuse_usage(const CLI::App& app, const CLI::ParseError& e);

}  // namespace stepnet::tools
