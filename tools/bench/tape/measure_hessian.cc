#include "tools/bench/tape/measure_hessian.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "core/compute/threads.h"
#include "stepnet/matmul.h"
#include "stepnet/net.h"
#include "stepnet/net_function.h"
#include "tools/bench/tape/cpu_clock.h"

namespace stepnet::bench {
namespace {

constexpr std::array<bool, 2> kTrimmed = {true, false};

const char* name_of(bool trimmed) { return trimmed ? "trimmed" : "untrimmed"; }

// False if the counts differ from the formulas'.
bool print_counts(const HessianTimer& timer, const MlpSizes& sizes, bool with_backward) {
  bool right = true;
  for (const bool trimmed : kTrimmed) {
    const HessianKind kind{trimmed, with_backward};
    const ProductCount is = timer.count(kind), should = expected_products(sizes, kind, false);
    const bool same = is == should;
    right = right && same;
    fmt::print("{:10} {:4} products, {:8.3f} GFLOP{}\n", name_of(trimmed), is.calls, is.flops / 1e9,
               same ? ", as the formula says"
                    : fmt::format("; the formula says {} and {:.3f}", should.calls, should.flops / 1e9));
  }
  return right;
}

}  // namespace

double HessianTimer::run_ms(HessianKind kind) const {
  const bool on_cpu = net_.device().kind == DeviceKind::cpu;
  if (!on_cpu) allocator(net_.device()).synchronize();
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_nanoseconds();
  hessian(net_, kind);
  if (!on_cpu) allocator(net_.device()).synchronize();
  if (on_cpu && threads() == 1) return (cpu_nanoseconds() - cpu_start) / 1e6;
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

ProductCount HessianTimer::count(HessianKind kind) const {
  count_matmuls(true);
  const MatmulCounters before = matmul_counters();
  hessian(net_, kind);
  const MatmulCounters after = matmul_counters();
  count_matmuls(false);
  return {after.calls - before.calls, after.flops - before.flops};
}

bool measure_hessian(const MlpSizes& sizes, bool with_backward, int rounds, Device device) {
  const HessianTimer timer(sizes, "Relu", device);
  fmt::print("{} layers, {} inputs, width {}, batch {}, ReLU{}, on {}\n", sizes.layers, sizes.inputs, sizes.width,
             sizes.batch, with_backward ? ", with backward" : "", device.str());
  const bool right = device.kind != DeviceKind::cpu || print_counts(timer, sizes, with_backward);
  std::array<double, 2> best = {1e300, 1e300};
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < kTrimmed.size(); ++i)
      best[i] = std::min(best[i], timer.run_ms({kTrimmed[i], with_backward}));
  const double of_flops = expected_products(sizes, {false, with_backward}, false).flops /
                          expected_products(sizes, {true, with_backward}, false).flops;
  const double of_times = best[1] / best[0];
  fmt::print(
      "trimmed {:.2f} ms, untrimmed {:.2f} ms, the least of {} rounds: {:.3f} times, of the FLOPs {:.3f}, {:.3f}\n",
      best[0], best[1], rounds, of_times, of_flops, of_times / of_flops);
  return right;
}

namespace {

// Of one kind: the net that was captured, and the run that it was captured from.
class CapturedHessian {
 public:
  CapturedHessian(const MlpSizes& sizes, const std::string& activation, HessianKind kind)
      : mlp_(sizes, activation), kind_(kind) {
    mlp_.keep_seeds();
    // The gradients of leaves, if there are any, are added to nothing in each run.
    for (autograd::Variable& leaf : mlp_.leaves()) leaf.clear_grad();
    captured_ = autograd::capture([this](const std::vector<autograd::Variable>&) { return values(); }, {mlp_.x()});
    workspace_.tensor(captured_.inputs[0]) = mlp_.x().value();
    for (const auto& [name, value] : captured_.constants) workspace_.tensor(name) = value;
    net_ = std::make_unique<Net>(captured_.net, workspace_, NetOptions{.plan_memory = true});
  }

  double eager_ms() const {
    return milliseconds([this] { hessian(mlp_, kind_); });
  }
  double captured_ms() {
    RunContext context;
    return milliseconds([&] { net_->run(context); });
  }
  int operators() const { return captured_.net.op_size(); }
  double planned_mb() const { return static_cast<double>(net_->memory().block) / 1e6; }
  // Of the net's latest run, against an eager one.
  bool has_same_bits() const {
    const std::vector<autograd::Variable> eager = values();
    for (size_t k = 0; k < eager.size(); ++k)
      if (differs(captured_.outputs[k], eager[k].value())) return false;
    return std::ranges::none_of(captured_.gradients, [&](const autograd::Captured::LeafGradient& g) {
      return differs(g.dense, g.leaf.grad().value());
    });
  }

 private:
  // What is asked for: with a backward pass the gradients of leaves, as of the other contenders.
  std::vector<autograd::Variable> values() const {
    const Hessian h = hessian(mlp_, kind_);
    std::vector<autograd::Variable> all = {h.value};
    if (kind_.with_backward) return all;
    all.push_back(h.gradient);
    all.insert(all.end(), h.rows.begin(), h.rows.end());
    return all;
  }
  bool differs(const std::string& name, const Tensor& should) const {
    const Tensor& is = workspace_.fetch(name);
    return is.shape() != should.shape() || std::memcmp(is.raw(), should.raw(), is.bytes()) != 0;
  }
  template <class Fn>
  static double milliseconds(Fn fn) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_nanoseconds();
    fn();
    if (threads() == 1) return (cpu_nanoseconds() - cpu_start) / 1e6;
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  Mlp<float> mlp_;
  HessianKind kind_;
  autograd::Captured captured_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

}  // namespace

std::function<double()> captured_timer(const MlpSizes& sizes, const std::string& activation, bool with_backward) {
  const auto captured = std::make_shared<CapturedHessian>(sizes, activation, HessianKind{true, with_backward});
  return [captured] { return captured->captured_ms(); };
}

bool measure_captured(const MlpSizes& sizes, bool with_backward, int rounds) {
  bool right = true;
  for (const char* activation : {"Relu", "Tanh"})
    for (const bool trimmed : kTrimmed) {
      CapturedHessian hessian(sizes, activation, {trimmed, with_backward});
      double eager = 1e300, captured = 1e300;
      for (int round = 0; round < std::max(rounds, 2); ++round) {  // memory is planned from the second on
        eager = std::min(eager, hessian.eager_ms());
        captured = std::min(captured, hessian.captured_ms());
      }
      const bool same = hessian.has_same_bits();
      right = right && same;
      fmt::print("{:4} {:10} eager {:.2f} ms, captured {:.2f} ms, {:.3f} times; {} operators, {:.1f} MB planned, {}\n",
                 activation, name_of(trimmed), eager, captured, captured / eager, hessian.operators(),
                 hessian.planned_mb(), same ? "the same bits" : "OTHER BITS");
    }
  return right;
}

bool check_hessian_values(MlpSizes sizes) {
  constexpr double kStep = 1e-5, kTolerance = 1e-7;
  sizes.batch = std::min<int64_t>(sizes.batch, 20);
  sizes.width = std::min<int64_t>(sizes.width, 32);
  const Mlp<double> net(sizes, "Tanh");
  const Hessian h = hessian(net, {});
  double largest = 0, off = 0;
  for (int64_t i = 0; i < sizes.inputs; ++i) {
    const std::vector<double> up = gradient_at(net, i, kStep), down = gradient_at(net, i, -kStep);
    const auto row = h.rows[i].value().span<double>();
    for (size_t k = 0; k < row.size(); ++k) {
      largest = std::max(largest, std::abs(row[k]));
      off = std::max(off, std::abs(row[k] - (up[k] - down[k]) / (2 * kStep)));
    }
  }
  fmt::print("with tanh the largest second derivative is {:.4f}, and central differences are off by {:.1e} at most\n",
             largest, off);
  return off <= kTolerance * std::max(largest, 1.0);
}

}  // namespace stepnet::bench
