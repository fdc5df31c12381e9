// Loops with operators on whole rows in a timestep are one kernel, too, forward and backward: random step nets, against
// the CPU and against the same loop operator by operator.
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

namespace stepnet::testing::loop_rows_test {
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
  std::vector<std::string> parameters;
};

constexpr const char* kPasses = "PASSES";

class Generator {
 public:
  Generator(DType dtype, unsigned seed) : random_(seed), dtype_(dtype), seed_(seed) {}

  Drawn make() {
    steps_ = draw(5, 8), rows_ = of({1, 2, 3, 16, 20}), units_ = of({8, 12, 40});
    const bool is_lstm = draw(0, 1) == 0;
    groups_ = is_lstm ? 4 : of({1, 2, 3});
    const std::string products = normed(fc("h_prev", groups_), groups_);
    const std::string gates = add(normed("x_t", groups_), products);
    const std::string h = is_lstm ? lstm(gates) : rest(gates);
    std::string op = "op { type: 'RecurrentNetwork' input: 'x' input: 'h0' ";
    if (is_lstm) op += "input: 'c0' ";
    op += fmt::format("output: 'h_all' output: 'h_last' {} [stepnet.recurrent] {{ ", kPasses);
    op += fmt::format(
        "sequence {{ outer: 'x' inner: 'x_t' }} state {{ input: 'h_prev' output: '{}' initial: 'h0' all: 'h_all' last: "
        "'h_last' }} ",
        h);
    if (is_lstm) op += fmt::format("state {{ input: 'c_prev' output: '{}' initial: 'c0' }} ", c_);
    if (draw(0, 2) == 0) op += "reverse: true ";
    op += fmt::format("step_net {{ name: 'cell' {} }} }} }}", step_);
    feed("x", {steps_, rows_, groups_ * units_}, 0.7);
    feed("h0", {1, rows_, units_}, 0.5);
    feed("dh_all", {steps_, rows_, units_}, 0.5);
    feed("dh_last", {1, rows_, units_}, 0.5);
    if (is_lstm) feed("c0", {1, rows_, units_}, 0.5);
    return {op, std::move(feeds_), std::move(parameters_)};
  }

 private:
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int64_t of(std::initializer_list<int64_t> all) { return all.begin()[draw(0, static_cast<int>(all.size()) - 1)]; }

  void feed(const std::string& name, const Shape& shape, double size, double mean = 0) {
    feeds_.emplace_back(name, in_type(dtype_, normal<float>(shape, seed_ * 100 + ++tensors_, mean, size)));
  }
  std::string parameter(const Shape& shape, double size, double mean = 0) {
    parameters_.push_back(fmt::format("p{}", parameters_.size()));
    feed(parameters_.back(), shape, size, mean);
    return parameters_.back();
  }

  // Adds an operator; returns its first output.
  std::string emit(const std::string& type, const std::vector<std::string>& inputs, const std::string& arguments = "",
                   int more_outputs = 0) {
    const std::string y = fmt::format("v{}", ++values_);
    step_ += fmt::format("op {{ type: '{}' ", type);
    for (const std::string& x : inputs) step_ += fmt::format("input: '{}' ", x);
    step_ += fmt::format("output: '{}' ", y);
    for (int i = 0; i < more_outputs; ++i) step_ += fmt::format("output: '{}_{}' ", y, i);
    step_ += arguments + "} ";
    return y;
  }
  static std::string axis(int axis) { return fmt::format("arg {{ name: 'axis' i: {} }} ", axis); }

  std::string add(const std::string& a, const std::string& b) { return emit("Add", {a, b}); }
  std::string fc(const std::string& x, int64_t groups) {
    const std::string w = parameter({groups * units_, units_}, 1 / std::sqrt(static_cast<double>(units_)));
    return emit("FC", {x, w, parameter({groups * units_}, 0.3)}, axis(2));
  }
  // Of all columns together.
  std::string layer_norm(const std::string& x, int64_t groups) {
    const std::string epsilon = "arg { name: 'epsilon' f: 0.001 } ";
    if (draw(0, 1) == 0) return emit("LayerNorm", {x}, axis(2) + epsilon, 2);
    const std::string scale = parameter({groups * units_}, 0.2, 0.7), bias = parameter({groups * units_}, 0.2);
    return emit("LayerNorm", {x, scale, bias}, axis(2) + epsilon + "arg { name: 'elementwise_affine' i: 1 } ", 2);
  }
  std::string softmax(const std::string& x) { return emit("Softmax", {x}, axis(2)); }

  std::string normed(const std::string& x, int64_t groups) { return draw(0, 2) == 0 ? layer_norm(x, groups) : x; }
  // Of values as wide as the state.
  std::string changed(const std::string& x) {
    switch (draw(0, 4)) {
      case 4:
        return over_rows(x);
      case 0:
        return layer_norm(x, 1);
      case 1:
        return emit("Mul", {softmax(x), x});
      case 2:
        return softmax(x);
      default:
        return emit("Tanh", {x});
    }
  }

  // x in shares of its row, as a normalised gate is, or less its mean.
  std::string over_rows(const std::string& x) {
    const std::string dims = "arg { name: 'axes' ints: 2 } arg { name: 'keepdims' i: 1 } ";
    if (draw(0, 1) == 0) return emit("Sub", {x, emit("ReduceMean", {x}, dims)});
    const std::string power = emit("Exp", {emit("Tanh", {x})});
    return emit("Div", {power, emit("ReduceSum", {power}, dims)});
  }

  std::vector<std::string> parts(const std::string& gates) {
    std::vector<std::string> all;
    for (int64_t g = 0; g < groups_; ++g) all.push_back(fmt::format("part{}_{}", ++values_, g));
    step_ += fmt::format("op {{ type: 'Split' {} input: '{}' ", axis(2), gates);
    for (const std::string& part : all) step_ += fmt::format("output: '{}' ", part);
    step_ += "} ";
    return all;
  }

  std::string lstm(const std::string& gates) {
    const std::vector<std::string> g = parts(gates);
    std::string i = emit("Sigmoid", {g[0]}), f = emit("Sigmoid", {g[1]}), o = emit("Sigmoid", {g[2]});
    const std::string kept = emit("Mul", {f, "c_prev"}), fresh = emit("Mul", {i, emit("Tanh", {g[3]})});
    c_ = add(kept, fresh);
    return emit("Mul", {o, emit("Tanh", {draw(0, 3) > 0 ? layer_norm(c_, 1) : changed(c_)})});
  }

  std::string rest(const std::string& gates) {
    std::string h = "h_prev";
    for (const std::string& part : groups_ > 1 ? parts(gates) : std::vector<std::string>{gates})
      h = add(emit("Mul", {h, emit("Sigmoid", {part})}), changed(part));
    return emit("Tanh", {h});
  }

  std::mt19937 random_;
  DType dtype_;
  unsigned seed_, tensors_ = 0;
  int values_ = 0;
  int64_t steps_ = 0, rows_ = 0, units_ = 0, groups_ = 0;
  std::string step_, c_;
  Feeds feeds_;
  std::vector<std::string> parameters_;
};

struct Results {
  std::map<std::string, Tensor> values;
  std::map<std::string, std::string> loops;
};

// Of several runs in a workspace, of which later ones replay graphs, if there are any; all must have the same bits.
Results run(const Drawn& drawn, bool on_gpu_too, const std::string& passes) {
  std::string text = drawn.op;
  text.replace(text.find(kPasses), std::string(kPasses).size(), passes);
  NetDef net = parse_net_text((on_gpu_too ? "device_option { device_type: 1 } " : "") + text, "a net");
  expand_recurrent(net);
  GradientRequest request;
  request.targets = {{"h_all", "dh_all"}, {"h_last", "dh_last"}};
  request.wanted = {"x", "h0"};
  request.wanted.insert(drawn.parameters.begin(), drawn.parameters.end());
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
    for (const std::string& name : request.wanted) {
      if (!result.gradients.count(name)) {
        ADD_FAILURE() << name;
        continue;
      }
      fetch(result.gradients.at(name).dense);
    }
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
    EXPECT_EQ(compare_all(together, apart, tolerance), "");
    EXPECT_EQ(compare_all(together, there, tolerance), "");
  }
}

class GpuLoopRows : public GpuTest {};

TEST_F(GpuLoopRows, AreInTheKernel) {
  check(DType::float32, 20, 2e-5);
  check(DType::bfloat16, 10, 6e-2);
  check(DType::float16, 10, 1e-2);
}

}  // namespace
}  // namespace stepnet::testing::loop_rows_test
