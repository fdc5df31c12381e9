#include "tests/recurrent/random_half_nets.h"

#include <algorithm>

#include "stepnet/random.h"
#include "tests/core/gradient_testing.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {
namespace {

TensorType floats(std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); }

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(random_key(seed, "half nets", "", 0, 0)) {}
  int64_t from(int64_t low, int64_t high) { return random_int(key_, next_++, low, high); }
  double share() { return random_uniform(key_, next_++); }
  bool chance(double p) { return share() < p; }
  template <class T>
  const T& pick(const std::vector<T>& from_these) {
    return from_these[static_cast<size_t>(from(0, static_cast<int64_t>(from_these.size()) - 1))];
  }

 private:
  uint64_t key_, next_ = 0;
};

// Lines of a net, whose values are named in turn.
class Draft {
 public:
  Draft(Dice& dice, EstimateNet& net, std::string prefix) : dice_(dice), net_(net), prefix_(std::move(prefix)) {}

  std::string fresh() { return prefix_ + std::to_string(next_++); }
  std::string line(const std::string& call) {
    const std::string name = fresh();
    lines.push_back(name + " = " + call);
    return name;
  }
  // `inputs` to `outputs` numbers in the last dimension.
  std::string fc(const std::string& x, int64_t inputs, int64_t outputs, int axis) {
    const std::string w = "W_" + fresh(), b = "b_" + fresh();
    net_.parameters[w] = floats({outputs, inputs});
    net_.parameters[b] = floats({outputs});
    return line(fmt::format("FC({}, {}, {}) axis={}", x, w, b, axis));
  }
  // One that works element by element.
  std::string elementwise(const std::vector<std::string>& from) {
    static const std::vector<std::string> kUnary = {"Tanh", "Sigmoid", "Relu",     "Negative", "Gelu",    "Swish",
                                                    "Sqr",  "Abs",     "Softplus", "Sin",      "Softsign"};
    static const std::vector<std::string> kBinary = {"Mul", "Add", "Sub", "Sum", "Max"};
    if (dice_.chance(0.5)) return line(fmt::format("{}({})", dice_.pick(kUnary), dice_.pick(from)));
    return line(fmt::format("{}({}, {})", dice_.pick(kBinary), dice_.pick(from), dice_.pick(from)));
  }

  Lines lines;

 private:
  Dice& dice_;
  EstimateNet& net_;
  std::string prefix_;
  int next_ = 0;
};

// --- Static nets ---

class StaticNet {
 public:
  explicit StaticNet(Dice& dice) : dice_(dice), draft_(dice, net_, "v") {}

  EstimateNet make() {
    batch_ = dice_.from(1, 200);
    width_ = dice_.from(1, 80);
    net_.data["X"] = floats({batch_, width_});
    values_ = {"X"};
    for (int64_t i = dice_.from(3, 14); i > 0; --i) add();
    if (net_.parameters.empty()) widen();
    // The loss depends on all of the last width's values.
    const std::string sum =
        values_.size() > 1 ? draft_.line(fmt::format("Sum({})", fmt::join(values_, ", "))) : values_[0];
    draft_.lines.push_back(fmt::format("loss = AveragedLoss({})", sum));
    net_.net = net_of_lines(draft_.lines);
    net_.name = "static";
    net_.net.set_name(net_.name);
    net_.net.add_external_output("loss");
    net_.loss = "loss";
    return net_;
  }

 private:
  // Another width: values of the old one are done with.
  void widen() {
    const int64_t width = dice_.from(1, 120);
    values_ = {draft_.fc(dice_.pick(values_), width_, width, 1)};
    width_ = width;
  }

  void add() {
    const double kind = dice_.share();
    const std::string x = dice_.pick(values_);
    if (kind < 0.2) return widen();
    if (kind < 0.6) return values_.push_back(draft_.elementwise(values_));
    if (kind < 0.66) return values_.push_back(draft_.line(fmt::format("Softmax({}) axis=1", x)));
    if (kind < 0.72) return values_.push_back(draft_.line(fmt::format("Alias({})", x)));
    if (kind < 0.80) return dropout(x);
    if (kind < 0.86) return layer_norm(x);
    if (kind < 0.93) return concat(x);
    squares(x);
  }

  void dropout(const std::string& x) {
    const std::string y = draft_.fresh();
    draft_.lines.push_back(fmt::format("{0}, {0}_mask = Dropout({1})", y, x));
    values_.push_back(y);
  }
  void layer_norm(const std::string& x) {
    const std::string y = draft_.fresh();
    draft_.lines.push_back(fmt::format("{0}, {0}_mean, {0}_std = LayerNorm({1}) axis=1", y, x));
    values_.push_back(y);
  }
  void concat(const std::string& x) {
    const std::string y = draft_.fresh();
    draft_.lines.push_back(fmt::format("{0}, {0}_sizes = Concat({1}, {2}) axis=1", y, x, dice_.pick(values_)));
    values_ = {y};
    width_ *= 2;
    if (dice_.chance(0.6)) widen();
  }
  // x^T x, and x times that: the same width.
  void squares(const std::string& x) {
    const std::string square = draft_.line(fmt::format("MatMul({}, {}) trans_a=1", x, x));
    values_.push_back(draft_.line(fmt::format("MatMul({}, {})", x, square)));
  }

  Dice& dice_;
  EstimateNet net_;
  Draft draft_;
  int64_t batch_ = 0, width_ = 0;
  std::vector<std::string> values_;  // [batch_, width_]
};

// --- Recurrent nets ---

class RecurrentNet {
 public:
  explicit RecurrentNet(Dice& dice) : dice_(dice), step_(dice, net_, "s") {}

  EstimateNet make() {
    steps_ = dice_.chance(0.2) ? dice_.from(1, 6) : dice_.from(20, 160);
    batch_ = dice_.from(1, 40);
    const int64_t inputs = dice_.from(1, 24);
    net_.data["X"] = floats({steps_, batch_, inputs});
    std::string x = "x";
    int64_t width = inputs;
    const int64_t cells = dice_.chance(0.3) ? 2 : 1;
    for (int64_t c = 0; c < cells; ++c) x = add_cell(c, x, width);
    cell_.states[static_cast<size_t>(last_)].all = "h_all";
    cell_.step = step_.lines;
    Feeds feeds;
    for (const auto* types : {&net_.data, &net_.parameters})
      for (const auto& [name, type] : *types) feeds.emplace_back(name, Tensor::zeros(type.dtype, type.shape));
    net_.net = recurrent_net(cell_, feeds);
    net_.net.clear_external_input();
    net_.net.clear_external_output();
    finish(width);
    return net_;
  }

 private:
  // Projects, and takes the loss of it.
  void finish(int64_t width) {
    Draft behind(dice_, net_, "y");
    std::string y = "h_all";
    if (dice_.chance(0.7)) y = behind.fc(y, width, dice_.from(1, 60), 2);
    if (dice_.chance(0.5)) y = behind.elementwise({y});
    behind.lines.push_back(fmt::format("loss = AveragedLoss({})", y));
    net_.net.MergeFrom(net_of_lines(behind.lines));
    net_.name = "recurrent";
    net_.net.set_name(net_.name);
    net_.net.add_external_output("loss");
    net_.loss = "loss";
  }

  std::string state(const std::string& name, int64_t width) {
    const std::string initial = name + "_0";
    net_.data[initial] = floats({1, batch_, width});
    cell_.states.push_back({name + "_prev", name, initial, "", name + "_last"});
    return name + "_prev";
  }

  // Returns its h; `width` was that of x, and becomes that of h.
  std::string add_cell(int64_t index, const std::string& x, int64_t& width) {
    const int64_t h = 2 * dice_.from(1, 20);
    const std::string name = "h" + std::to_string(index), c = "c" + std::to_string(index);
    last_ = static_cast<int>(cell_.states.size());
    const std::string before = state(name, h);
    const int64_t kind = dice_.from(0, 5);
    if (kind <= 1) lstm(x, width, h, before, name, state(c, h), c, kind == 1);
    if (kind == 2) composed(x, width, h, before, name);
    if (kind == 3) normed(x, width, h, before, name);
    if (kind == 4) joined(x, width, h, before, name);
    if (kind == 5) reshaped(x, width, h, before, name);
    width = h;
    return name;
  }

  void end(const std::string& call, const std::string& name) { step_.lines.push_back(name + " = " + call); }

  void lstm(const std::string& x, int64_t in, int64_t h, const std::string& before, const std::string& name,
            const std::string& c_before, const std::string& c, bool joins) {
    std::string gates;
    if (joins) {
      const std::string both = step_.fresh();
      step_.lines.push_back(fmt::format("{0}, {0}_sizes = Concat({1}, {2}) axis=2", both, x, before));
      gates = step_.fc(both, in + h, 4 * h, 2);
    } else {
      const std::string a = step_.fc(x, in, 4 * h, 2);
      gates = step_.line(fmt::format("Sum({}, {})", a, step_.fc(before, h, 4 * h, 2)));
    }
    step_.lines.push_back(
        fmt::format("{}, {} = LSTMUnit({}, {}, {}, timestep) sequence_lengths=0", name, c, before, c_before, gates));
  }

  std::string sum_of_products(const std::string& x, int64_t in, int64_t h, const std::string& before) {
    const std::string a = step_.fc(x, in, h, 2);
    return step_.line(fmt::format("Sum({}, {})", a, step_.fc(before, h, h, 2)));
  }

  // A few operators that work element by element.
  void composed(const std::string& x, int64_t in, int64_t h, const std::string& before, const std::string& name) {
    const std::string products = sum_of_products(x, in, h, before);
    std::vector<std::string> values = {before, products};
    for (int64_t i = dice_.from(1, 8); i > 0; --i) values.push_back(step_.elementwise(values));
    end(fmt::format("Tanh({})", step_.line(fmt::format("Add({}, {})", values.back(), products))), name);
  }
  void normed(const std::string& x, int64_t in, int64_t h, const std::string& before, const std::string& name) {
    const std::string y = step_.fresh();
    step_.lines.push_back(
        fmt::format("{0}, {0}_mean, {0}_std = LayerNorm({1}) axis=2", y, sum_of_products(x, in, h, before)));
    end(fmt::format("Tanh({})", y), name);
  }
  // A Concat that no product reads.
  void joined(const std::string& x, int64_t in, int64_t h, const std::string& before, const std::string& name) {
    const std::string y = step_.fresh(), a = step_.fc(x, in, h / 2, 2), b = step_.fc(before, h, h - h / 2, 2);
    step_.lines.push_back(fmt::format("{0}, {0}_sizes = Concat({1}, {2}) axis=2", y, a, b));
    end(fmt::format("Tanh({})", y), name);
  }
  void reshaped(const std::string& x, int64_t in, int64_t h, const std::string& before, const std::string& name) {
    const std::string y = step_.fresh(), sum = sum_of_products(x, in, h, before);
    step_.lines.push_back(fmt::format("{0}, {0}_old = Reshape({1}) shape=1/-1/{2}", y, sum, h / 2));
    step_.lines.push_back(fmt::format("{0}_back, {0}_wide = Reshape({0}) shape=1/-1/{1}", y, h));
    end(fmt::format("Tanh({}_back)", y), name);
  }

  Dice& dice_;
  EstimateNet net_;
  Draft step_;
  Cell cell_;
  int64_t steps_ = 0, batch_ = 0;
  int last_ = 0;  // the state that is read outside
};

}  // namespace

HalfNet random_half_net(uint64_t seed) {
  constexpr DType kTypes[] = {DType::bfloat16, DType::float16, DType::float32};
  Dice dice(seed);
  HalfNet net;
  net.type = kTypes[seed % 3];
  net.threads = 1 + static_cast<int>(seed / 3 % 2);
  net.is_recurrent = dice.chance(0.5);
  net.net = net.is_recurrent ? RecurrentNet(dice).make() : StaticNet(dice).make();
  return net;
}

}  // namespace stepnet::testing
