// Data for random step nets, and their runs beside those of the unrolled nets.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/compute/threads.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/random.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"
#include "tests/recurrent/random_step_nets_run.h"

namespace stepnet::testing {
namespace {

Shape shape_of(const std::vector<int64_t>& sizes, const NetShape& shape) {
  Shape result;
  for (const int64_t size : sizes) result.push_back(size == kSteps ? shape.steps : size == kBatch ? shape.batch : size);
  return result;
}

// float64 values are those of float32, so that both types have the same data.
Tensor numbers(const Shape& shape, double scale, uint64_t seed, DType dtype) {
  const Tensor narrow = normal<float>(shape, seed, 0, scale);
  return dtype == DType::float32 ? narrow : to_double(narrow);
}

uint64_t seed_of(const std::string& name, const NetShape& shape, uint64_t data) {
  return random_key(data, name, "", shape.steps, shape.batch);
}

Tensor lengths_of(const NetShape& shape, uint64_t seed) {
  return integers<int32_t>({shape.batch}, 0, shape.steps, seed);
}

Tensor value_of(const StepFeed& feed, const NetShape& shape, uint64_t data, DType dtype) {
  const uint64_t seed = seed_of(feed.name, shape, data);
  const Shape sizes = shape_of(feed.sizes, shape);
  if (feed.kind == StepFeed::Kind::lengths) return lengths_of(shape, seed);
  if (feed.kind == StepFeed::Kind::normal) return numbers(sizes, feed.scale, seed, dtype);
  return Tensor::of<int64_t>(sizes, feed.values);
}

bool is_float(const Tensor& t) { return t.dtype() == DType::float64 || t.dtype() == DType::float32; }

Unrolled run_reference(const StepNet& net, const Feeds& feeds, const Feeds& outside) {
  Unrolled reference;
  try {
    reference.results = run_unrolled(net.cell, feeds, outside);
  } catch (const NoDependence&) {
    reference.results = run_unrolled(net.cell, feeds, {});
  } catch (const Error& e) {
    reference.refusal = e.what();
  }
  return reference;
}

}  // namespace

Feeds feeds_of(const StepNet& net, const NetShape& shape, uint64_t data, DType dtype) {
  Feeds feeds;
  for (const StepFeed& feed : net.feeds) feeds.emplace_back(feed.name, value_of(feed, shape, data, dtype));
  return feeds;
}

Feeds outside_of(const StepNet& net, const NetShape& shape, uint64_t data, DType dtype) {
  Feeds outside;
  const auto add = [&](const std::string& name, const std::string& blob, int64_t steps) {
    if (name.empty()) return;
    outside.emplace_back(name,
                         numbers({steps, shape.batch, net.widths.at(blob)}, 1, seed_of(name, shape, data), dtype));
  };
  for (const CellState& s : net.cell.states) {
    add(s.all, s.input, shape.steps);
    add(s.last, s.input, 1);
  }
  for (const CellOutput& o : net.cell.outputs) add(o.outer, o.inner, shape.steps);
  return outside;
}

std::set<std::string> names_of(const Feeds& feeds) {
  std::set<std::string> names;
  for (const auto& [name, value] : feeds) names.insert(name);
  return names;
}

std::set<std::string> some_of(const std::set<std::string>& names, uint64_t part) {
  const auto rank = [part](const std::string& name) { return random_key(part, name, "some", 0, 0); };
  std::set<std::string> some;
  for (const std::string& name : names)
    if (rank(name) % (2 + part % 8) == 0) some.insert(name);
  if (some.empty() && !names.empty()) some.insert(*std::ranges::min_element(names, {}, rank));
  return some;
}

const Unrolled& reference_of(const StepNet& net, const NetShape& shape, uint64_t data, References& known,
                             uint64_t part) {
  const auto [it, is_new] = known.try_emplace({shape, data, part});
  if (!is_new) return it->second;
  Feeds outside = outside_of(net, shape, data);
  if (part != 0) {
    const std::set<std::string> given = some_of(names_of(outside), part);
    std::erase_if(outside, [&](const auto& g) { return given.count(g.first) == 0; });
  }
  it->second = run_reference(net, feeds_of(net, shape, data), outside);
  return it->second;
}

namespace {

// Moves every number along a direction of its own.
Feeds moved(const Feeds& feeds, double by, uint64_t seed, bool relative) {
  Feeds result = feeds;
  for (auto& [name, value] : result) {
    if (!is_float(value)) continue;
    value = value.clone();
    const Tensor direction = normal<double>(value.shape(), random_key(seed, name, "", 0, 0));
    for (int64_t i = 0; i < value.size(); ++i) {
      double& x = value.data<double>()[i];
      x += by * direction.data<double>()[i] * (relative ? std::fabs(x) : 1);
    }
  }
  return result;
}

double dot_of(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

double objective(const StepNet& net, const Feeds& feeds, const Feeds& outside) {
  const CellResults results = run_unrolled(net.cell, feeds, {});
  double sum = 0;
  for (const auto& [name, g] : outside)
    if (const auto it = results.outputs.find(name); it != results.outputs.end()) sum += dot_of(g, it->second);
  return sum;
}

}  // namespace

Finding check_reference(const StepNet& net, const NetShape& shape, uint64_t data, References& known) {
  const Unrolled& reference = reference_of(net, shape, data, known);
  if (!reference.refusal.empty()) return {};
  return check_along_direction(net, reference.results.gradients, shape, data);
}

Finding check_along_direction(const StepNet& net, const std::map<std::string, Tensor>& gradients, const NetShape& shape,
                              uint64_t data) {
  constexpr double kStep = 1e-5;
  const Feeds feeds = feeds_of(net, shape, data), outside = outside_of(net, shape, data);
  const auto difference = [&](double step) {
    const Feeds above = moved(feeds, step, data, false), below = moved(feeds, -step, data, false);
    return (objective(net, above, outside) - objective(net, below, outside)) / (2 * step);
  };
  double exact = 0, scale = 1;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!is_float(feeds[i].second)) continue;
    const Tensor direction = normal<double>(feeds[i].second.shape(), random_key(data, feeds[i].first, "", 0, 0));
    const double part = dot_of(gradients.at(feeds[i].first), direction);
    exact += part;
    scale += std::fabs(part);
  }
  double numeric = difference(kStep);
  // Where the net bends so much that the step is too long, the error falls with its square.
  if (std::fabs(exact - numeric) > 1e-6 * scale) numeric = (4 * difference(kStep / 2) - numeric) / 3;
  if (std::fabs(exact - numeric) <= 1e-6 * scale) return {};
  return {Finding::Kind::wrong,
          fmt::format("along a direction the gradient is {:.9g}, the difference {:.9g}", exact, numeric)};
}

bool is_ill_conditioned(const StepNet& net, const NetShape& shape, uint64_t data, double tol) {
  const Feeds feeds = feeds_of(net, shape, data), outside = outside_of(net, shape, data);
  const Unrolled exact = run_reference(net, feeds, outside);
  const Unrolled other = run_reference(net, moved(feeds, tol * 1e-4, data, true), outside);
  return !compare_results(other.results, exact.results, tol * 0.01).empty();
}

namespace {

// What is added to the outputs' names of the second network.
const std::string kTwin = "_twin";

void add_twin(NetDef& net) {
  OperatorDef twin = net.op(0);
  twin.set_name("twin");
  for (std::string& name : *twin.mutable_output()) name += kTwin;
  RecurrentDef& def = *twin.MutableExtension(recurrent);
  for (StateLink& s : *def.mutable_state()) {
    if (s.has_all()) s.set_all(s.all() + kTwin);
    if (s.has_last()) s.set_last(s.last() + kTwin);
  }
  for (OutputLink& o : *def.mutable_output()) o.set_outer(o.outer() + kTwin);
  *net.add_op() = twin;
}

void make_narrow(NetDef& step) {
  for (OperatorDef& op : *step.mutable_op())
    for (Argument& arg : *op.mutable_arg())
      if (op.type() == "Cast" && arg.name() == "to") arg.set_i(1);
}

}  // namespace

// Pairs of equal width, and what is left over with itself.
std::map<std::string, std::string> carried_states(const StepNet& net) {
  std::map<int64_t, std::vector<const CellState*>> by_width;
  std::map<std::string, int> uses;
  for (const CellState& s : net.cell.states) ++uses[s.initial];
  for (const CellState& s : net.cell.states) {
    if (s.last.empty() || uses[s.initial] != 1) continue;
    for (const StepFeed& feed : net.feeds)
      if (feed.name == s.initial && feed.sizes.size() == 3) by_width[feed.sizes[2]].push_back(&s);
  }
  std::map<std::string, std::string> carried;
  for (const auto& [width, states] : by_width)
    for (size_t i = 0; i < states.size(); ++i) carried[states[i]->initial] = states[(i + 1) % states.size()]->last;
  return carried;
}

NetDef net_of(const StepNet& net, const RunSetting& setting, const Feeds& feeds) {
  Cell cell = net.cell;
  cell.disabled_passes = setting.disabled;
  NetDef def = recurrent_net(cell, feeds);
  OperatorDef& op = *def.mutable_op(0);
  RecurrentDef& form = *op.MutableExtension(recurrent);
  if (setting.forward_only) form.set_forward_only(true);
  if (setting.float32) make_narrow(*form.mutable_step_net());
  if (setting.segment_steps > 0) {
    *op.add_arg() = make_arg("segment_steps", setting.segment_steps);
    *op.add_arg() = make_arg("segment_room", setting.segment_room);
  }
  if (setting.rebuild) *op.add_arg() = make_arg("rebuild_states", true);
  if (setting.twin) add_twin(def);
  return def;
}

}  // namespace stepnet::testing
