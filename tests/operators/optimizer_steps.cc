#include "tests/operators/optimizer_steps.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/compute/threads.h"

namespace stepnet::testing {
namespace {

constexpr int64_t kRows = 5;
using Lists = std::vector<std::pair<Shape, std::vector<int64_t>>>;

Tensor as(DType type, const Tensor& value) {
  if (value.dtype() != DType::float64 || type == DType::float64) return value.clone();
  Tensor narrow = Tensor::empty(DType::float32, value.shape());
  std::ranges::transform(value.span<double>(), narrow.data<float>(), [](double v) { return static_cast<float>(v); });
  return narrow;
}

Tensor index_tensor(DType type, const Shape& shape, const std::vector<int64_t>& values) {
  Tensor t = Tensor::empty(type, shape);
  for (size_t k = 0; k < values.size(); ++k)
    if (type == DType::int32)
      t.data<int32_t>()[k] = static_cast<int32_t>(values[k]);
    else
      t.data<int64_t>()[k] = values[k];
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b, size_t from, size_t bytes) {
  return bytes == 0 || std::memcmp(a.raw() + from, b.raw() + from, bytes) == 0;
}

// The operator in a workspace of its own, in one type of values.
class Run {
 public:
  Run(const OptimizerSteps& steps, DType type) : type_(type) {
    for (const auto& [name, value] : steps.feeds) workspace_.tensor(name) = as(type, value);
    for (const char* name : {"g", "i"}) workspace_.create(name);  // fed with each step
    NetDef def;
    *def.add_op() = steps.def;
    net_ = std::make_unique<Net>(def, workspace_);
  }

  // Returns the gradient, in double.
  Tensor step(int number, const Shape& shape) {
    const Tensor grad = as(type_, normal<double>(shape, 10 + static_cast<uint64_t>(number)));
    workspace_.tensor("g") = grad.clone();
    if (workspace_.find("iter")) workspace_.tensor("iter") = Tensor::of<int64_t>({1}, {number});
    RunContext run;
    net_->run(run);
    return to_double(grad);
  }
  Tensor step(int number, Shape rows, int64_t row, const Tensor& indices) {
    workspace_.tensor("i") = indices;
    rows.push_back(row);
    return step(number, rows);
  }
  const Tensor& state(const std::string& name) const { return workspace_.fetch(name); }

 private:
  DType type_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

std::map<std::string, Values> states_of(const OptimizerSteps& steps, const Run& run) {
  std::map<std::string, Values> values;
  for (const std::string& name : steps.states) values[name] = values_of(to_double(run.state(name)));
  return values;
}

std::string compare_states(const Run& run, const std::map<std::string, Values>& naive) {
  for (const auto& [name, values] : naive) {
    const Tensor& now = run.state(name);
    const double tolerance = now.dtype() == DType::float64 ? 1e-13 : 1e-5;
    const std::string wrong = compare(to_double(now), Tensor::of<double>(now.shape(), std::span(values)), tolerance);
    if (!wrong.empty()) return now.str() + " " + name + ": " + wrong;
  }
  return "";
}

// "" or a row that changed although nobody named it.
std::string compare_rows(const Run& run, const Run& before, const std::string& name, const std::vector<bool>& named) {
  const size_t row = run.state(name).bytes() / named.size();
  for (size_t r = 0; r < named.size(); ++r)
    if (!named[r] && !same_bits(run.state(name), before.state(name), r * row, row))
      return fmt::format("{} {}: row {} changed", run.state(name).str(), name, r);
  return "";
}

std::string check_lists(const OptimizerSteps& steps, int64_t rows, const Lists& lists, DType type, DType index_type) {
  Run table(steps, type);
  const Run before(steps, type);
  std::map<std::string, Values> naive = states_of(steps, table);
  std::vector<bool> named(static_cast<size_t>(rows));
  const auto row = static_cast<size_t>(steps.row);
  for (size_t s = 0; s < lists.size(); ++s) {
    const auto& [shape, indices] = lists[s];
    const Tensor grad = table.step(static_cast<int>(s), shape, steps.row, index_tensor(index_type, shape, indices));
    for (size_t k = 0; k < indices.size(); ++k) {
      named[static_cast<size_t>(indices[k])] = true;
      steps.naive(static_cast<int>(s), indices[k], grad.span<double>().subspan(k * row, row), naive);
    }
  }
  std::string wrong = compare_states(table, naive);
  for (size_t i = 0; i < steps.states.size() && wrong.empty(); ++i)
    wrong = compare_rows(table, before, steps.states[i], named);
  return wrong;
}

}  // namespace

std::vector<double> values_of(const Tensor& t) {
  const auto values = t.span<double>();
  return {values.begin(), values.end()};
}

std::string check_dense_steps(const OptimizerSteps& steps, const Shape& shape) {
  OptimizerSteps apart = steps;
  for (std::string& name : *apart.def.mutable_output()) name += "_apart";
  for (const DType type : {DType::float32, DType::float64}) {
    Run run(steps, type), other(apart, type);
    std::map<std::string, Values> naive = states_of(steps, run);
    for (int s = 0; s < 3; ++s) {
      const Tensor grad = run.step(s, shape);
      steps.naive(s, 0, grad.span<double>(), naive);
      if (const std::string wrong = compare_states(run, naive); !wrong.empty()) return wrong;
      if (s > 0) continue;
      other.step(s, shape);
      for (const std::string& name : steps.states)
        if (!same_bits(run.state(name), other.state(name + "_apart"), 0, run.state(name).bytes()))
          return name + " differs from that in another blob";
    }
  }
  return "";
}

std::string check_table_steps(const OptimizerSteps& steps) {
  const Lists lists = {{{2}, {4, 1}}, {{2, 2}, {1, 0, 1, 1}}, {{0}, {}}, {{}, {4}}, {{1, 3, 1}, {0, 4, 0}}};
  for (const DType type : {DType::float32, DType::float64})
    for (const DType index_type : {DType::int32, DType::int64})
      if (const std::string wrong = check_lists(steps, kRows, lists, type, index_type); !wrong.empty()) return wrong;
  return "";
}

std::string check_table_threads(const OptimizerSteps& steps, const Shape& table) {
  std::vector<int64_t> indices(3000);
  for (size_t k = 0; k < indices.size(); ++k) indices[k] = static_cast<int64_t>(k * k) % table[0];
  const Lists lists = {{{3000}, indices}};
  if (const std::string wrong = check_lists(steps, table[0], lists, DType::float64, DType::int64); !wrong.empty())
    return wrong;
  Run threaded(steps, DType::float32), alone(steps, DType::float32);
  threaded.step(0, {3000}, steps.row, index_tensor(DType::int32, {3000}, indices));
  const SerialScope serial;
  alone.step(0, {3000}, steps.row, index_tensor(DType::int32, {3000}, indices));
  for (const std::string& name : steps.states)
    if (const std::string wrong = compare(threaded.state(name), alone.state(name), 0); !wrong.empty())
      return name + " depends on threads: " + wrong;
  return "";
}

std::string step_error(const OptimizerSteps& steps, const std::string& feed, const Tensor& value) {
  Feeds feeds = steps.feeds;
  const bool sparse = std::ranges::count(steps.def.input(), "i") > 0;
  if (sparse) feeds.emplace_back("i", Tensor::of<int64_t>({2}, {0, 1}));
  std::erase_if(feeds, [](const auto& fed) { return fed.first == "g"; });
  feeds.emplace_back("g", normal<double>(sparse ? Shape{2, steps.row} : Shape{steps.row}));
  for (auto& [name, tensor] : feeds)
    if (name == feed) tensor = value;
  Workspace workspace;
  for (const auto& [name, tensor] : feeds) workspace.tensor(name) = tensor.clone();
  NetDef net;
  *net.add_op() = steps.def;
  RunContext run;
  const std::string text = error_of([&] { run_net_once(net, workspace, run); });
  for (const auto& [name, tensor] : feeds)
    EXPECT_TRUE(same_bits(workspace.fetch(name), tensor, 0, tensor.bytes())) << name << " was written to";
  return text.substr(0, text.find('\n'));
}

}  // namespace stepnet::testing
