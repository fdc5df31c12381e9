// Loops over samples of different lengths are one kernel, too, forward and backward: random nets, whose units have the
// lengths or whose loop has them, against the CPU and against the same loop operator by operator.
#include <random>

#include "core/gradcheck/examples.h"
#include "core/operator/observer.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/run_context.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::loop_lengths_test {
namespace {

// What has become of the loops of a net that is run.
class Loops : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
  void looped(std::string_view loop, const std::string& how) override { all[std::string(loop)] = how; }

  std::map<std::string, std::string> all;
};

struct Drawn {
  std::string op;  // the RecurrentNetwork
  Feeds feeds;
};

class Generator {
 public:
  Generator(DType dtype, unsigned seed) : random_(seed), dtype_(dtype), seed_(seed) {}

  Drawn make() {
    const int cell = draw(0, 2);
    const bool of_units = cell < 2 && draw(0, 2) > 0;
    steps_ = draw(5, 9), rows_ = of({1, 2, 3, 16, 20, 33}), units_ = of({8, 12, 40, 64});
    groups_ = std::array{4, 3, 1}[static_cast<size_t>(cell)];
    const std::string gates =
        "op { type: 'FC' input: 'h_prev' input: 'W' input: 'b' output: 's' arg { name: 'axis' i: 2 "
        "} } op { type: 'Add' input: 's' input: 'x_t' output: 'gates' } ";
    const std::string step = gates + unit(cell, of_units);
    const bool has_c = cell == 0;
    std::string op = "op { type: 'RecurrentNetwork' input: 'x' input: 'h0' ";
    if (has_c) op += "input: 'c0' ";
    if (!of_units) op += "input: 'len' ";
    op += "output: 'h_all' output: 'h_last' ";
    if (has_c) op += "output: 'c_last' ";
    op += fmt::format("{} [stepnet.recurrent] {{ ", kPasses);
    op +=
        "sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' last: "
        "'h_last' } ";
    if (has_c) op += "state { input: 'c_prev' output: 'c' initial: 'c0' last: 'c_last' } ";
    if (!of_units) op += "lengths: 'len' ";
    if (draw(0, 2) == 0) op += "reverse: true ";
    op += fmt::format("step_net {{ name: 'cell' {} }} }} }}", step);
    return {op, feeds(has_c, of_units)};
  }

  static constexpr const char* kPasses = "PASSES";

 private:
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int64_t of(std::initializer_list<int64_t> all) { return all.begin()[draw(0, static_cast<int>(all.size()) - 1)]; }

  std::string unit(int cell, bool lengths) {
    if (cell == 2) return "op { type: 'Tanh' input: 'gates' output: 'h' }";
    const std::string more =
        lengths ? fmt::format("input: 'len' input: 'timestep' arg {{ name: 'drop_states' i: {} }} ", draw(0, 1))
                : "input: 'timestep' arg { name: 'sequence_lengths' i: 0 } ";
    if (cell == 1) return fmt::format("op {{ type: 'GRUUnit' input: 'h_prev' input: 'gates' output: 'h' {} }}", more);
    return fmt::format(
        "op {{ type: 'LSTMUnit' input: 'h_prev' input: 'c_prev' input: 'gates' output: 'h' output: 'c' {} arg {{ name: "
        "'forget_bias' f: {} }} }}",
        more, draw(0, 1));
  }

  Tensor tensor(const Shape& shape, double size) {
    return in_type(dtype_, normal<float>(shape, seed_ * 100 + ++tensors_, 0, size));
  }

  Feeds feeds(bool has_c, bool of_units) {
    const int64_t width = groups_ * units_;
    Feeds all = {{"x", tensor({steps_, rows_, width}, 0.7)},
                 {"h0", tensor({1, rows_, units_}, 0.5)},
                 {"W", tensor({width, units_}, 1 / std::sqrt(static_cast<double>(units_)))},
                 {"b", tensor({width}, 0.3)},
                 {"dh_all", tensor({steps_, rows_, units_}, 0.5)},
                 {"dh_last", tensor({1, rows_, units_}, 0.5)}};
    if (has_c) all.emplace_back("c0", tensor({1, rows_, units_}, 0.5));
    std::vector<int32_t> lengths(static_cast<size_t>(rows_));
    for (int32_t& n : lengths) n = draw(0, static_cast<int>(steps_) + (of_units ? 2 : 0));
    all.emplace_back("len", Tensor::of<int32_t>({rows_}, lengths));
    return all;
  }

  std::mt19937 random_;
  DType dtype_;
  unsigned seed_, tensors_ = 0;
  int64_t steps_ = 0, rows_ = 0, units_ = 0, groups_ = 0;
};

struct Results {
  std::map<std::string, Tensor> values;
  std::map<std::string, std::string> loops;
};

// Of several runs in a workspace, of which later ones replay graphs, if there are any; all must have the same bits.
Results run(const Drawn& drawn, bool on_gpu_too, const std::string& passes) {
  std::string text = drawn.op;
  text.replace(text.find(Generator::kPasses), std::string(Generator::kPasses).size(), passes);
  NetDef net = parse_net_text((on_gpu_too ? "device_option { device_type: 1 } " : "") + text, "a net");
  expand_recurrent(net);
  GradientRequest request;
  request.targets = {{"h_all", "dh_all"}, {"h_last", "dh_last"}};
  request.wanted = {"x", "h0", "W", "b"};
  const GradientResult result = add_gradient_operators(net, request);
  Workspace blobs;
  for (const auto& [name, value] : drawn.feeds) blobs.tensor(name) = on_gpu_too ? on_gpu(value) : value;
  Net made(net, blobs);
  Results all;
  for (int i = 0; i < 4; ++i) {
    Loops loops;
    RunContext context;
    if (i == 0) context.observer = &loops;
    made.run(context);
    std::map<std::string, Tensor> values;
    const auto fetch = [&](const std::string& name) {
      values[name] = in_type(DType::float64, copied_to(blobs.fetch(name), {}));
    };
    fetch("h_all");
    fetch("h_last");
    for (const std::string& name : request.wanted) fetch(result.gradients.at(name).dense);
    if (i == 0) {
      all = {std::move(values), loops.all};
      continue;
    }
    for (const auto& [name, value] : values) EXPECT_EQ(compare(value, all.values.at(name), 0), "") << name << i;
  }
  return all;
}

std::string compare_all(const Results& is, const Results& should, double tolerance) {
  for (const auto& [name, value] : should.values) {
    const std::string difference = compare(is.values.at(name), value, tolerance, ErrorScale::tensor);
    if (!difference.empty()) return name + ": " + difference;
  }
  return "";
}

void check(DType dtype, unsigned count, double tolerance) {
  for (unsigned seed = 0; seed < count; ++seed) {
    const Drawn drawn = Generator(dtype, seed).make();
    SCOPED_TRACE(fmt::format("{} seed {}: {}", dtype_name(dtype), seed, drawn.op));
    const Results together = run(drawn, true, "");
    const Results apart = run(drawn, true, "arg { name: 'disabled_passes' strings: 'persistent' }");
    const Results there = run(drawn, false, "");
    EXPECT_EQ(together.loops.size(), 2u);
    for (const auto& [loop, how] : together.loops)
      EXPECT_TRUE(how.starts_with("one kernel of ")) << loop << ": " << how;
    for (const auto& [loop, how] : apart.loops)
      EXPECT_EQ(how, "a graph of its operators, and not one kernel: the pass \"persistent\" is left out") << loop;
    ASSERT_EQ(compare_all(together, apart, tolerance), "");
    ASSERT_EQ(compare_all(together, there, tolerance), "");
  }
}

class GpuLoopLengths : public GpuTest {};

TEST_F(GpuLoopLengths, AreInTheKernel) {
  check(DType::float32, 40, 1e-5);
  check(DType::bfloat16, 20, 6e-2);
  check(DType::float16, 20, 8e-3);
}

// A kernel for all timesteps does not look at lengths, so somebody else does.
TEST_F(GpuLoopLengths, MustNotBeNegative) {
  Drawn drawn;
  for (unsigned seed = 0; drawn.op.find("drop_states") == std::string::npos; ++seed)
    drawn = Generator(DType::float32, seed).make();
  for (auto& [name, value] : drawn.feeds)
    if (name == "len") value.data<int32_t>()[0] = -2;
  const std::string text = error_of([&] { run(drawn, true, ""); });
  EXPECT_NE(text.find("a length in seq_lengths is -2"), text.npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::loop_lengths_test
