// Data, arguments and passes for a Cell: gradients from outside, padding, and central differences.
#include <algorithm>
#include <functional>
#include <limits>

#include "recurrent/form/passes.h"
#include "recurrent/form/spec.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {
namespace {

bool is_sequence(const Cell& cell, const std::string& name) {
  return std::ranges::any_of(cell.sequences, [&](const CellSequence& s) { return s.outer == name; });
}

// The data with what `fill` makes of the rows of sequences that are beyond their samples' lengths.
Feeds with_padding(const Cell& cell, const Feeds& feeds, const std::function<void(Tensor)>& fill) {
  if (cell.lengths.empty()) return feeds;
  Feeds result = feeds;
  const auto lengths = std::ranges::find_if(feeds, [&](const auto& f) { return f.first == cell.lengths; });
  for (auto& [name, value] : result) {
    if (!is_sequence(cell, name)) continue;
    value = value.clone();
    for (int64_t b = 0; b < value.dim(1); ++b)
      for (int64_t t = lengths->second.data<int32_t>()[b]; t < value.dim(0); ++t) fill(value.row(t).rows(b, 1));
  }
  return result;
}

double value_of(const Tensor& t, int64_t i) {
  return t.dtype() == DType::float64 ? t.data<double>()[i] : t.data<float>()[i];
}

// The product of the outputs with their gradients.
double objective(const Cell& cell, const Feeds& feeds, const Feeds& outside) {
  const CellResults results = run_in_turn(expanded_net(cell, feeds), {{feeds, {}}})[0];
  double sum = 0;
  for (const auto& [name, g] : outside)
    for (int64_t i = 0; i < g.size(); ++i) sum += value_of(g, i) * value_of(results.outputs.at(name), i);
  return sum;
}

}  // namespace

const std::vector<std::vector<std::string>>& pass_choices() {
  static const std::vector<std::vector<std::string>> choices = [] {
    std::vector<std::vector<std::string>> made = {{}};
    for (const std::string& pass : pass_names()) made.push_back({pass});
    made.push_back(pass_names());
    return made;
  }();
  return choices;
}

OperatorDef& network_in(NetDef& net) {
  for (OperatorDef& op : *net.mutable_op())
    if (op.type() == "RecurrentNetwork") return op;
  fail("the test's net has no RecurrentNetwork");
}

Argument& arg_of(NetDef& net, const std::string& name) {
  for (Argument& arg : *network_in(net).mutable_arg())
    if (arg.name() == name) return arg;
  throw Error(fmt::format("the test's net has no argument \"{}\"", name));
}

void remove_arg(NetDef& net, const std::string& name) {
  auto& args = *network_in(net).mutable_arg();
  for (int i = args.size() - 1; i >= 0; --i)
    if (args[i].name() == name) args.DeleteSubrange(i, 1);
}

Tensor poisoned(const Tensor& like) {
  Tensor t = like.clone();
  if (t.dtype() == DType::float64) std::ranges::fill(t.span<double>(), std::numeric_limits<double>::quiet_NaN());
  if (t.dtype() == DType::float32) std::ranges::fill(t.span<float>(), std::numeric_limits<float>::quiet_NaN());
  return t;
}

Feeds without_padding(const Cell& cell, const Feeds& feeds) {
  return with_padding(cell, feeds, [](Tensor row) { row.fill_zero(); });
}

Feeds with_bad_padding(const Cell& cell, const Feeds& feeds) {
  return with_padding(cell, feeds, [](Tensor row) {
    if (row.dtype() == DType::int32) std::ranges::fill(row.span<int32_t>(), -1);
    row.copy_from(poisoned(row));
  });
}

Feeds outside_gradients(const Cell& cell, const Feeds& feeds) {
  Feeds outside;
  const CellResults results = run_in_turn(expanded_net(cell, feeds), {{feeds, {}}})[0];
  auto add = [&](const std::string& name) {
    const auto& some = cell.differentiated;
    if (name.empty() || (!some.empty() && std::ranges::find(some, name) == some.end())) return;
    const Tensor& output = results.outputs.at(name);
    const uint64_t seed = 500 + outside.size();
    outside.emplace_back(name, output.dtype() == DType::float64 ? normal<double>(output.shape(), seed)
                                                                : normal<float>(output.shape(), seed));
  };
  for (const CellState& s : cell.states) {
    add(s.all);
    add(s.last);
  }
  for (const CellOutput& o : cell.outputs) add(o.outer);
  return outside;
}

std::string check_differences(const Cell& cell, const Feeds& feeds, double tol) {
  const Feeds outside = outside_gradients(cell, feeds);
  // A first run, as those of the objective are: it draws the same numbers.
  const CellResults results = run_in_turn(expanded_net(cell, feeds), {{feeds, outside}})[0];
  std::string text;
  constexpr double kStep = 1e-5;
  for (size_t f = 0; f < feeds.size(); ++f) {
    if (feeds[f].second.dtype() != DType::float64) continue;
    Tensor numeric = Tensor::zeros(DType::float64, feeds[f].second.shape());
    Feeds moved = feeds;
    for (int64_t i = 0; i < numeric.size(); ++i) {
      double at[2];
      for (const int side : {0, 1}) {
        moved[f].second = feeds[f].second.clone();
        moved[f].second.data<double>()[i] += side == 0 ? -kStep : kStep;
        at[side] = objective(cell, moved, outside);
      }
      numeric.data<double>()[i] = (at[1] - at[0]) / (2 * kStep);
    }
    const std::string wrong = compare(results.gradients.at(feeds[f].first), numeric, tol);
    if (!wrong.empty()) text += fmt::format("gradient of {} by differences: {}\n", feeds[f].first, wrong);
  }
  return text;
}

}  // namespace stepnet::testing
