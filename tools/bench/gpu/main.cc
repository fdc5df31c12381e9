// `stepnet_gpu_bench`: times cells written as Stepnet nets on a GPU, and prints one table of them and of peers whose
// times are in a file (tools/bench/gpu/peers.py). Exit codes: 0 done, or with --check also where there is no device;
// 2 a mistake in the call, no device, or wrong results.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "gpu/loops/matmul.h"
#include "gpu/runtime/device.h"
#include "stepnet/error.h"
#include "stepnet/half.h"
#include "tools/bench/cell_case.h"
#include "tools/bench/command.h"
#include "tools/bench/gpu/gpu_times.h"
#include "tools/bench/gpu/limits.h"
#include "tools/bench/gpu/machine.h"
#include "tools/bench/gpu/table.h"
#include "tools/bench/stepnet_net.h"

namespace stepnet::bench {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr Size kSmallSize{5, 3, 8, 16, 1};  // what results are checked at, and what --check runs

struct Options {
  std::string filter, mode = "all", peer_times;
  std::vector<std::string> cells = {"lstm", "gru", "twin"}, types = {"float32", "bfloat16"};
  int rounds = 20;
  double seconds = 3;
  bool quick = false, check = false, list = false, limits = false, tf32 = false, verify = false;

  std::vector<Size> sizes() const {
    if (check) return {kSmallSize};
    std::vector<Size> sizes = quick ? quick_grid() : grid();
    if (!quick)
      for (const Size& more : {Size{50, 64, 1024, 1024, 1}, {512, 64, 512, 512, 4}, {1024, 16, 768, 768, 1}})
        sizes.push_back(more);  // (1000, 1, 512, 512, 1) is in the grid
    return sizes;
  }
  std::vector<Mode> modes() const {
    std::vector<Mode> modes;
    for (const Mode m : {Mode::forward, Mode::training})
      if (mode == "all" || mode == mode_name(m)) modes.push_back(m);
    return modes;
  }
  bool wants(const std::string& net, const Size& size) const {
    return (net + " " + size.str()).find(filter) != std::string::npos;
  }
  bool wants_any(const Cell& cell, const Size& size) const {
    return std::any_of(cell.nets.begin(), cell.nets.end(), [&](const NetFile& net) { return wants(net.name, size); });
  }
  // Of the largest value. Halves keep 8 or 11 bits of each state and gradient.
  double tolerance(DType type) const {
    if (is_half(type)) return type == DType::bfloat16 ? 6e-2 : 1e-2;
    return tf32 ? 2e-2 : 1e-4;
  }
};

Values results_on(const NetFile& file, const CellData& data, Mode mode, Device device, DType type = DType::float32) {
  StepnetNet net(file, data, mode, device, type);
  net.run();
  return net.results();
}

// Against float64.
void check_small(const Options& options, const Cell& cell, const std::string& type) {
  const CellData data = random_data(cell, kSmallSize);
  const ExactValues exact = exact_results(data);
  for (const NetFile& file : cell.nets)
    for (const Mode mode : options.modes())
      check_agreement(results_on(file, data, mode, kGpu, dtype_of_name(type)), exact, mode,
                      options.tolerance(dtype_of_name(type)),
                      fmt::format("{} at {}, {}, {}", file.name, kSmallSize.str(), mode_name(mode), type));
}

// Against the same net on the CPU, in float32.
void verify(const Options& options, const NetFile& file, const CellData& data, Mode mode, const std::string& type,
            const Values& values) {
  ExactValues expected;
  for (const auto& [name, elements] : results_on(file, data, mode, Device{}))
    expected[name].assign(elements.begin(), elements.end());
  check_agreement(values, expected, mode, options.tolerance(dtype_of_name(type)),
                  fmt::format("{} at {}, {}, {}, beside the CPU", file.name, data.size.str(), mode_name(mode), type));
}

void measure(const Options& options, const Cell& cell, const Size& size, const std::string& type,
             const GpuTable& table) {
  const CellData data = random_data(cell, size);
  for (const NetFile& file : cell.nets) {
    if (!options.wants(file.name, size)) continue;
    for (const Mode mode : options.modes()) {
      StepnetNet net(file, data, mode, kGpu, dtype_of_name(type));
      const GpuTimes times = time_on_gpu(net, options.rounds, options.seconds);
      if (options.verify) verify(options, file, data, mode, type, net.results());
      table.add({cell.name, file.name, size, mode, type, times, net.work()});
    }
  }
}

void run(const Options& options) {
  gpu::allow_tf32(options.tf32);
  const GpuTable table(options.peer_times, measure_limits(options.types, options.check));
  fmt::print("{}; float32 {}; halves with sums in float32.\n", machine_line(),
             options.tf32 ? "with products in TF32" : "without TF32");
  fmt::print("Medians of up to {} samples, by CUDA events; wall is by the host's clock.\n", options.rounds);
  table.print_limits();
  for (const std::string& name : options.cells) {
    const Cell& c = cell(name);
    for (const std::string& type : options.types) check_small(options, c, type);
    for (const Size& size : options.sizes())
      for (const std::string& type : options.types) measure(options, c, size, type, table);
  }
  table.print_notes();
}

// For the peers.
void print_list(const Options& options) {
  for (const std::string& name : options.cells)
    for (const Size& size : options.sizes())
      if (options.wants_any(cell(name), size)) fmt::print("{}\t{}\n", name, size.str());
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--filter", options.filter, "only rows whose \"net T,B,I,H,layers\" has this text in it");
  app.add_option("--cells", options.cells, "lstm, lstm_layer_norm, gru, twin")->capture_default_str();
  app.add_option("--types", options.types, "float32, bfloat16, float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}).description(""))
      ->capture_default_str();
  app.add_option("--mode", options.mode, "what to measure")
      ->check(CLI::IsMember({"all", "forward", "training"}))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "samples of each")->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--seconds", options.seconds, "for the samples of each")->capture_default_str();
  app.add_option("--peer-times", options.peer_times, "what tools/bench/gpu/peers.py printed");
  app.add_flag("--quick", options.quick, "few sizes");
  app.add_flag("--tf32", options.tf32, "products of float32 in TF32");
  app.add_flag("--verify", options.verify, "compare all results with the CPU's, which takes its time");
  app.add_flag("--list", options.list, "print cells and sizes, and measure nothing");
  app.add_flag("--limits", options.limits,
               "print the GFLOP/s of products of float32 and the GB/s of a copy, and measure nothing else");
  app.add_flag("--check", options.check, "the smallest case alone; done where there is no device, too");
}

int run_command(int argc, char** argv) {
  Options options;
  CLI::App app("Times cells written as Stepnet nets on GPU 0, beside their peers.", "stepnet_gpu_bench");
  add_options(app, options);
  return run_app(app, argc, argv, [&] {
    if (options.list) {
      print_list(options);
      return 0;
    }
    if (gpu::device_count() == 0) {
      fmt::print("there is no CUDA device here: nothing was measured\n");
      return options.check ? 0 : kMistake;
    }
    if (options.limits) {
      gpu::allow_tf32(options.tf32);
      const DeviceLimits limits = measure_limits({"float32"}, options.check);
      fmt::print("{:.0f},{:.0f}\n", limits.flops_per_second.at("float32") / 1e9, limits.bytes_per_second / 1e9);
      return 0;
    }
    if (options.check) options.rounds = std::min(options.rounds, 3);
    run(options);
    return 0;
  });
}

}  // namespace
}  // namespace stepnet::bench

int main(int argc, char** argv) { return stepnet::bench::run_command(argc, argv); }
