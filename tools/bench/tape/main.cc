// `stepnet_tape_bench`: times the tape, and counts its matrix products and the bytes that it holds. Exit codes: 0 done,
// 2 a mistake in the call, or a count that is not what it should be.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "core/compute/threads.h"
#include "stepnet/error.h"
#ifdef STEPNET_HAS_GPU
#include "gpu/runtime/device.h"
#endif
#include "tools/bench/command.h"
#include "tools/bench/tape/chains.h"
#include "tools/bench/tape/double_backward.h"
#include "tools/bench/tape/held.h"
#include "tools/bench/tape/measure_hessian.h"

namespace stepnet::bench {
namespace {

struct Options {
  MlpSizes sizes;
  bool with_backward = false, captured = false;
  int threads = 1, rounds = 10, count = 2000;
  std::string chain, op, device = "cpu";
  int64_t rows = 32, size = 512;
  bool tf32 = false;
};

void allow_tf32() {
#ifdef STEPNET_HAS_GPU
  gpu::allow_tf32(true);
#else
  throw Error("--tf32 is for GPUs, and this program was built without any");
#endif
}

Device device_of(const Options& options) {
  if (options.device == "cpu") return {};
  if (!device_offered(DeviceKind::cuda)) throw Error("there is no CUDA device here", "use --device cpu");
  return {DeviceKind::cuda, 0};
}

bool run_hessian(const Options& options) {
  if (options.captured) {
    require(options.device == "cpu", "captured Hessians are timed on the CPU");
    return measure_captured(options.sizes, options.with_backward, options.rounds);
  }
  const bool values = check_hessian_values(options.sizes);
  return measure_hessian(options.sizes, options.with_backward, options.rounds, device_of(options)) && values;
}

// The least of many short rounds, as other work on the machine only ever adds.
void run_overhead(const Options& options) {
  for (const std::string& name : chain_names()) {
    if (!options.chain.empty() && name != options.chain) continue;
    ChainTimes best;
    for (int round = 0; round < options.rounds; ++round)
      if (const ChainTimes t = time_chain(name, options.count); round == 0 || t.sum() < best.sum()) best = t;
    fmt::print("{:12} {:6.0f} ns: forward {:.0f}, backward {:.0f}, release {:.0f}\n", name, best.sum(), best.forward,
               best.backward, best.release);
  }
}

void run_double(const Options& options) {
  for (const std::string& name : double_backward_names()) {
    if (!options.op.empty() && name != options.op) continue;
    const DoubleBackwardTimes t =
        time_double_backward(name, options.rows, options.size, options.rounds, device_of(options));
    fmt::print("{:16} gradients {:.3f} ms, their gradients {:.3f} ms\n", name, t.first, t.second);
  }
}

// Lines of name, inputs that require gradients, and bytes, between tabs. False if bytes are more or less than expected.
bool run_memory() {
  bool right = true;
  for (const HeldCase& c : held_cases())
    for (const std::string& trained : c.choices()) {
      held_bytes(c, trained);
      const int64_t bytes = held_bytes(c, trained);
      fmt::print("{}\t{}\t{}\n", c.name, trained, bytes);
      if (bytes == c.expected_bytes(trained)) continue;
      fmt::print(stderr, "{}, {}: {} bytes are expected\n", c.name, trained, c.expected_bytes(trained));
      right = false;
    }
  return right;
}

std::string serve_chain(std::istringstream& words) {
  std::string name;
  int count = 0;
  words >> name >> count;
  require(count > 0, "a chain is of 1 or more, not {}", count);
  const ChainTimes t = time_chain(name, count);
  return fmt::format("{:.1f} {:.1f} {:.1f}", t.forward, t.backward, t.release);
}

class HessianServer {
 public:
  explicit HessianServer(Device device) : device_(device) {}
  std::string answer(std::istringstream& words) {
    std::string kind, more, activation;
    MlpSizes s;
    words >> kind >> more >> activation >> s.layers >> s.inputs >> s.width >> s.batch;
    require(!words.fail() && s.layers > 0 && s.inputs > 0 && s.width > 0 && s.batch > 0, "sizes are 1 or more");
    const std::string op = activation == "tanh" ? "Tanh" : "Relu";
    const std::string net = fmt::format("{} {} {} {} {}", activation, s.layers, s.inputs, s.width, s.batch);
    if (kind == "captured") {
      std::function<double()>& run = captured_[net + more];
      if (!run) run = captured_timer(s, op, more == "backward");
      return fmt::format("{:.0f}", 1e6 * run());
    }
    if (net != net_) timer_.emplace(s, op, device_);
    net_ = net;
    return fmt::format("{:.0f}", 1e6 * timer_->run_ms({kind == "trimmed", more == "backward"}));
  }

 private:
  Device device_;
  std::string net_;
  std::optional<HessianTimer> timer_;
  std::map<std::string, std::function<double()>> captured_;
};

// Answers "chain NAME COUNT" with nanoseconds per operator, and "hessian trimmed|untrimmed|captured forward|backward
// relu|tanh LAYERS INPUTS WIDTH BATCH" with nanoseconds.
void serve(Device device) {
  HessianServer hessians(device);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    require(verb == "chain" || verb == "hessian", "there is no {} to serve", verb);
    fmt::print("{}\n", verb == "chain" ? serve_chain(words) : hessians.answer(words));
    std::fflush(stdout);
  }
}

void add_size(CLI::App& app, const char* name, int64_t& size, const char* doc) {
  app.add_option(name, size, doc)->check(CLI::Range(1, 1'000'000))->capture_default_str();
}

void add_hessian_options(CLI::App& app, Options& options) {
  add_size(app, "--layers", options.sizes.layers, "fully connected layers");
  add_size(app, "--inputs", options.sizes.inputs, "rows of the Hessian");
  add_size(app, "--width", options.sizes.width, "of the hidden layers");
  add_size(app, "--batch", options.sizes.batch, "rows of the input");
  app.add_flag("--captured", options.captured, "as a captured net beside the eager run, with ReLU and tanh");
  app.add_flag("--with-backward", options.with_backward, "a loss on value and Hessian, and its gradient");
}

int run_command(int argc, char** argv) {
  Options options;
  CLI::App app("Times the tape.", "stepnet_tape_bench");
  app.require_subcommand(1);
  app.add_option("--threads", options.threads, "of matrix products")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rounds", options.rounds, "how often each thing is timed")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--device", options.device, "of Hessians and of gradients of gradients")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--tf32", options.tf32, "a GPU's products of float32 in TF32");
  auto* hessian = app.add_subcommand("hessian", "a Hessian, trimmed and untrimmed: products, FLOPs, times");
  add_hessian_options(*hessian, options);
  auto* overhead = app.add_subcommand("overhead", "nanoseconds per operator on one element");
  overhead->add_option("--chain", options.chain, "this chain alone")->check(CLI::IsMember(chain_names()));
  overhead->add_option("--count", options.count, "operators of a chain")->check(CLI::Range(1, 10'000'000));
  auto* twice = app.add_subcommand("double", "gradients of gradients of fused operators");
  twice->add_option("--op", options.op, "this operator alone")->check(CLI::IsMember(double_backward_names()));
  add_size(*twice, "--rows", options.rows, "of its inputs");
  add_size(*twice, "--size", options.size, "of a row, or of the states of a unit");
  auto* memory = app.add_subcommand("memory", "bytes held for backward");
  app.add_subcommand("serve", "answers lines on standard input; for tools/bench/tape/compare");
  return run_app(app, argc, argv, [&] {
    set_threads(options.threads);
    if (options.tf32) allow_tf32();
    bool right = true;
    if (*hessian) {
      right = run_hessian(options);
    } else if (*overhead) {
      run_overhead(options);
    } else if (*twice) {
      run_double(options);
    } else if (*memory) {
      right = run_memory();
    } else {
      serve(device_of(options));
    }
    return right ? 0 : kMistake;
  });
}

}  // namespace
}  // namespace stepnet::bench

int main(int argc, char** argv) { return stepnet::bench::run_command(argc, argv); }
