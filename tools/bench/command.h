// The frame of the benchmarks' commands. Exit codes: what `run` returns, 0 after --help, or kMistake.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

namespace stepnet::bench {

inline constexpr int kMistake = 2;  // in the call, or what was thrown

template <class Run>
int run_app(CLI::App& app, int argc, char** argv, const Run& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kMistake;
  }
  try {
    return run();
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), e.what());
    return kMistake;
  }
}

}  // namespace stepnet::bench
