#include "tests/core/random_nets_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/compute/threads.h"
#include "core/passes/recompute.h"
#include "stepnet/gradients.h"
#include "tests/core/random_nets_reference.h"

namespace stepnet::testing {
namespace {

// One run: what is fed before it.
struct Stage {
  int64_t batch = 0;
  Feeds feeds;
};

struct Subject {
  NetDef net;
  std::vector<Stage> stages;
  std::vector<std::string> shown;  // to be compared after every run
  std::set<std::string> keep;
};

// Runs with changing batches; where the batch stays, some feeds stay too, with what the net has made of them.
std::vector<Stage> draw_stages(const std::vector<NetFeed>& feeds, const std::vector<int64_t>& batches, uint64_t seed) {
  NetDice dice(seed + 17);
  std::vector<Stage> stages;
  int64_t before = -1;
  for (const int runs : {4, 1, 3, 1, 1}) {
    const int64_t batch = dice.pick(batches);
    for (int i = 0; i < runs; ++i) {
      Stage stage{.batch = batch, .feeds = {}};
      for (const NetFeed& feed : feeds)
        if (batch != before || dice.chance(0.6))
          stage.feeds.emplace_back(feed.name, feed_value(feed, batch, seed + stages.size()));
      before = batch;
      stages.push_back(std::move(stage));
    }
  }
  return stages;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.dtype() == DType::string) return std::ranges::equal(a.span<std::string>(), b.span<std::string>());
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// The same but for rounding: parts of an operator's work are added up in another order by another number of threads.
bool are_close(const Tensor& a, const Tensor& b) {
  if (a.dtype() != DType::float64 || b.dtype() != DType::float64 || !(a.shape() == b.shape())) return same_bits(a, b);
  double most = 1;
  for (const double v : b.span<double>())
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    // Infinities are equal to themselves, and NaN is only where the reference has it.
    const bool close = x == y || (std::isnan(y) ? std::isnan(x) : std::abs(x - y) <= 1e-10 * most);
    if (!close) return false;
  }
  return true;
}

std::string values_text(const Tensor& t) {
  if (t.dtype() == DType::string || t.size() > 64) return t.str();
  const Tensor values = to_double(t);
  return fmt::format("{} {}", t.str(), fmt::join(values.span<double>(), " "));
}

// What the reference shows after each run; nothing for a run that it refuses, which is the last.
using Shown = std::vector<std::map<std::string, Tensor>>;

Shown run_reference(const Subject& s, std::string& refusal) {
  Shown shown;
  ReferenceBlobs blobs;
  for (size_t i = 0; i < s.stages.size(); ++i) {
    for (const auto& [name, value] : s.stages[i].feeds) blobs.feed(name, value);
    try {
      blobs.run(s.net, static_cast<int64_t>(i));
    } catch (const Error& e) {
      refusal = e.what();
      return shown;
    }
    auto& now = shown.emplace_back();
    for (const std::string& name : blobs.names()) now[name] = blobs.at(name).clone();
  }
  return shown;
}

struct Way {
  const char* name;
  NetOptions options = {};
  int threads = 1;
};

// "" or the first blob that differs, after which run.
std::string compare_runs(const Subject& s, const Way& way, const std::vector<std::string>& names, const Shown& expected,
                         NetCounts& counts) {
  set_threads(way.threads);
  Workspace workspace;
  std::unique_ptr<Net> net;
  for (size_t i = 0; i < s.stages.size(); ++i) {
    for (const auto& [name, value] : s.stages[i].feeds) workspace.tensor(name) = value.clone();
    RunContext run;
    try {
      if (!net) net = std::make_unique<Net>(s.net, workspace, way.options);
      net->run(run);
    } catch (const Error& e) {
      if (i < expected.size()) return fmt::format("{}: run {} fails: {}", way.name, i, e.what());
      ++counts.threw;
      return "";
    }
    if (i >= expected.size()) return fmt::format("{}: run {} does not fail", way.name, i);
    ++counts.runs;
    counts.planned_runs += net->memory().planned ? 1 : 0;
    for (const std::string& name : names) {
      const Tensor &value = workspace.fetch(name), &right = expected[i].at(name);
      if (way.threads == 1 ? same_bits(value, right) : are_close(value, right)) continue;
      return fmt::format("{}: {} after run {} (batch {}) is\n  {}\nand not\n  {}", way.name, name, i, s.stages[i].batch,
                         values_text(value), values_text(right));
    }
  }
  return "";
}

std::string check_runs(const Subject& s, const std::string& what, uint64_t seed, NetCounts& counts) {
  std::string refusal;
  const Shown expected = run_reference(s, refusal);
  std::set<std::string> all;
  if (!expected.empty())
    for (const auto& [name, value] : expected[0]) all.insert(name);
  const int threads = 2 + static_cast<int>(seed % 2);
  const Way ways[] = {{"as it is"},
                      {"released", {.release_intermediates = true, .keep = s.keep}},
                      {"planned", {.plan_memory = true, .keep = s.keep}},
                      {"planned, by threads", {.plan_memory = true, .keep = s.keep}, threads}};
  for (const Way& way : ways) {
    const bool whole = !way.options.release_intermediates && !way.options.plan_memory;
    const std::vector<std::string> names = whole ? std::vector<std::string>(all.begin(), all.end()) : s.shown;
    const std::string wrong = compare_runs(s, way, names, expected, counts);
    set_threads(1);
    if (!wrong.empty()) return what + ", " + wrong + (refusal.empty() ? "" : "\nreference: " + refusal);
  }
  return "";
}

// True if a gradient needs the shape of an operand that is overwritten, and the operands' shapes are not equal.
bool needs_equal_shapes(const std::string& text) {
  return text.find("the argument equal_shapes says") != std::string::npos;
}

// That there is a backward pass wherever the forward net runs, with that exception.
std::string check_gradients_run(const Subject& differentiated) {
  std::string refusal;
  run_reference(differentiated, refusal);
  return refusal.empty() || needs_equal_shapes(refusal) ? "" : "the backward pass fails: " + refusal;
}

struct Differentiated {
  NetDef net;
  GradientResult result;
};

// True if the pass says why there is no gradient, in one of the ways in which it may.
bool is_refusal(const std::string& text) {
  for (const char* part : {"version", "in place", "depends on none", "no derivative", "no gradient", "not known",
                           "has no", "which this Recurrent does not have", "must have one type",
                           "cannot be differentiated", "overwritten under another name"})
    if (text.find(part) != std::string::npos) return true;
  return false;
}

double weighted(const ReferenceBlobs& blobs, const RandomNet& r, const std::map<std::string, Tensor>& weights) {
  double sum = 0;
  for (size_t t = 0; t < r.targets.size(); ++t) {
    const Tensor value = blobs.at(r.targets[t]);
    const auto y = value.span<double>();
    const auto w = weights.find(r.given[t]);
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * (w == weights.end() ? 1 : w->second.span<double>()[i]);
  }
  return sum;
}

// Along a random direction of a feed, at steps one of which is small enough to be on one side of kinks.
std::string check_direction(const RandomNet& r, const std::map<std::string, Tensor>& feeds, const std::string& input,
                            const Tensor& gradient, const std::map<std::string, Tensor>& weights, uint64_t seed) {
  const Tensor direction = normal<double>(feeds.at(input).shape(), seed + 5);
  double expected = 0, scale = 1;
  for (int64_t i = 0; i < direction.size(); ++i) expected += direction.data<double>()[i] * gradient.data<double>()[i];
  for (const double g : gradient.span<double>()) scale = std::max(scale, std::abs(g));
  if (!std::isfinite(expected)) return "";
  std::string wrong;
  for (const double step : {1e-5, 1e-6, 1e-4, 1e-7}) {
    double values[2];
    for (const int side : {0, 1}) {
      ReferenceBlobs blobs;
      for (const auto& [name, value] : feeds) blobs.feed(name, value);
      Tensor moved = feeds.at(input).clone();
      for (int64_t i = 0; i < moved.size(); ++i)
        moved.data<double>()[i] += (side ? step : -step) * direction.data<double>()[i];
      blobs.feed(input, moved);
      blobs.run(r.net, 0);
      values[side] = weighted(blobs, r, weights);
    }
    const double found = (values[1] - values[0]) / (2 * step);
    if (!std::isfinite(found)) return "";
    if (std::abs(found - expected) <= 1e-5 * scale) return "";
    wrong = fmt::format("the gradient of {} along a direction is {} and not {}", input, expected, found);
  }
  return wrong;
}

// True if the gradient is not the derivative: where gradients end though the output depends on the input, and where the
// public format's goes on beyond the probability at which the loss is cut off.
bool stops_gradients(const OperatorDef& op) {
  static const std::set<std::string> types = {"StopGradient", "ZeroGradient", "Range", "LabelCrossEntropy",
                                              "CrossEntropy"};
  return types.count(op.type()) > 0;
}

// Then its gradient means that of what the net leaves behind.
bool is_overwritten_first(const NetDef& net, const std::string& name) {
  for (const OperatorDef& op : net.op()) {
    if (std::ranges::find(op.input(), name) != op.input().end()) return false;
    if (std::ranges::find(op.output(), name) != op.output().end()) return true;
  }
  return false;
}

std::string check_differences(const RandomNet& r, const Differentiated& d, const Stage& stage, uint64_t seed,
                              NetCounts& counts) {
  ReferenceBlobs blobs;
  std::map<std::string, Tensor> feeds, weights;
  for (const auto& [name, value] : stage.feeds) {
    const bool given = std::ranges::find(r.given, name) != r.given.end();
    (given ? weights : feeds)[name] = value;
    blobs.feed(name, value);
  }
  try {
    blobs.run(d.net, 0);
  } catch (const Error&) {
    return "";  // reported where all ways run
  }
  if (std::ranges::any_of(r.net.op(), [](const OperatorDef& op) { return stops_gradients(op); })) return "";
  for (const NetFeed& feed : r.feeds) {
    if (is_overwritten_first(r.net, feed.name)) continue;
    const auto found = d.result.gradients.find(feed.name);
    const bool wanted = std::ranges::find(r.wanted, feed.name) != r.wanted.end();
    if (!wanted) continue;
    Tensor gradient = Tensor::zeros(DType::float64, feeds.at(feed.name).shape());
    if (found != d.result.gradients.end()) {
      if (found->second.is_sparse()) continue;
      gradient = blobs.at(found->second.dense);
      if (!(gradient.shape() == feeds.at(feed.name).shape()))
        return fmt::format("the gradient of {} is {}, but that is {}", feed.name, gradient.str(),
                           feeds.at(feed.name).str());
    }
    ++counts.differences;
    try {
      const std::string wrong = check_direction(r, feeds, feed.name, gradient, weights, seed);
      if (!wrong.empty()) return wrong;
    } catch (const Error&) {
      continue;  // a step outside of what an operator takes
    }
  }
  return "";
}

// The sum of w .* J v over the targets by forward mode, where feeds move along random directions v, against that of
// v .* gradient over these feeds.
std::string check_tangents(const RandomNet& r, const Differentiated& d, const Stage& stage, uint64_t seed,
                           NetCounts& counts) {
  NetDef net = r.net;
  TangentRequest request;
  request.wanted = {r.targets.begin(), r.targets.end()};
  std::map<std::string, Tensor> directions, weights;
  ReferenceBlobs blobs, moved;
  for (const auto& [name, value] : stage.feeds) {
    blobs.feed(name, value);
    moved.feed(name, value);
    const auto gradient = d.result.gradients.find(name);
    const bool is_sparse = gradient != d.result.gradients.end() && gradient->second.is_sparse();
    if (std::ranges::find(r.given, name) != r.given.end()) weights[name] = value;
    if (std::ranges::find(r.wanted, name) == r.wanted.end() || is_sparse || value.dtype() != DType::float64) continue;
    if (is_overwritten_first(r.net, name)) continue;
    directions[name] = normal<double>(value.shape(), seed + 7 + directions.size());
    request.given[name] = "direction/" + name;
    moved.feed(request.given[name], directions[name]);
  }
  if (directions.empty()) return "";
  TangentResult result;
  try {
    result = add_tangent_operators(net, request);
  } catch (const Error& e) {
    return is_refusal(e.what()) ? "" : fmt::format("the tangent pass says: {}", e.what());
  }
  try {
    blobs.run(d.net, 0);
    moved.run(net, 0);
  } catch (const Error& e) {
    return needs_equal_shapes(e.what()) ? "" : fmt::format("the net with tangents fails: {}", e.what());
  }
  double expected = 0, found = 0, scale = 1;
  const auto add = [&](const Tensor& a, const Tensor* b, double& sum) {
    for (int64_t i = 0; i < a.size(); ++i) {
      const double term = a.data<double>()[i] * (b ? b->data<double>()[i] : 1);
      sum += term;
      scale += std::abs(term);
    }
  };
  for (const auto& [name, direction] : directions)
    if (const auto g = d.result.gradients.find(name); g != d.result.gradients.end()) {
      const Tensor gradient = blobs.at(g->second.dense);
      add(gradient, &direction, expected);
    }
  for (size_t t = 0; t < r.targets.size(); ++t)
    if (const auto tangent = result.tangents.find(r.targets[t]); tangent != result.tangents.end()) {
      const auto w = weights.find(r.given[t]);
      add(moved.at(tangent->second), w == weights.end() ? nullptr : &w->second, found);
    }
  if (!std::isfinite(expected) || std::abs(found - expected) <= 1e-9 * scale) return ++counts.tangents, "";
  return fmt::format("forward mode gives {} along a direction, and reverse mode {}", found, expected);
}

Subject differentiated_subject(const RandomNet& r, const Differentiated& d, uint64_t seed) {
  Subject s{.net = d.net, .stages = {}, .shown = {}, .keep = {}};
  std::vector<NetFeed> feeds = r.feeds;
  s.stages = draw_stages(feeds, r.batches, seed);
  s.shown.assign(r.net.external_output().begin(), r.net.external_output().end());
  for (const NetFeed& feed : r.feeds) s.shown.push_back(feed.name);
  for (const auto& [blob, gradient] : d.result.gradients)
    for (const std::string& name : {gradient.dense, gradient.indices, gradient.values})
      if (!name.empty()) s.keep.insert(name);
  s.shown.insert(s.shown.end(), s.keep.begin(), s.keep.end());
  return s;
}

// Given gradients have the shapes that their targets have after each run.
void add_given(const RandomNet& r, Subject& s, uint64_t seed) {
  Subject forward = s;
  forward.net = r.net;
  std::string refusal;
  const Shown shown = run_reference(forward, refusal);
  s.stages.resize(shown.size());
  for (size_t i = 0; i < s.stages.size(); ++i)
    for (size_t t = 0; t < r.targets.size(); ++t)
      if (!r.given[t].empty())
        s.stages[i].feeds.emplace_back(r.given[t],
                                       normal<double>(shown[i].at(r.targets[t]).shape(), seed + 31 * t + i));
}

std::string check_recomputed(const Subject& s, int first_gradient_op, uint64_t seed, NetCounts& counts) {
  MemoryQuestion question;
  for (const auto& [name, value] : s.stages[0].feeds)
    question.feeds[name] = TensorType::of(value.dtype(), value.shape());
  question.keep = s.keep;
  std::vector<RecomputePlan> plans;
  try {
    plans = RecomputePlanner(s.net, first_gradient_op, question).curve(4);
  } catch (const Error& e) {
    const std::string text = e.what();
    return text.find("bytes of") != std::string::npos || needs_equal_shapes(text) ? "" : "recompute: " + text;
  }
  for (const RecomputePlan& plan : plans) {
    if (plan.segments.empty()) continue;
    ++counts.recomputed;
    Subject again = s;
    again.net = plan.net;
    std::string refusal;
    const Shown expected = run_reference(s, refusal);
    const Way ways[] = {{"released", {.release_intermediates = true, .keep = s.keep}},
                        {"planned", {.plan_memory = true, .keep = s.keep}}};
    for (const Way& way : ways)
      if (const std::string wrong = compare_runs(again, way, s.shown, expected, counts); !wrong.empty())
        return fmt::format("recomputed for {} bytes, {}", plan.peak, wrong) + plan.net.DebugString();
  }
  (void)seed;
  return "";
}

}  // namespace

std::string check_random_net(const RandomNet& r, uint64_t seed, NetCounts& counts) {
  Subject forward{.net = r.net, .stages = draw_stages(r.feeds, r.batches, seed), .shown = {}, .keep = {}};
  forward.shown.assign(r.net.external_output().begin(), r.net.external_output().end());
  for (const NetFeed& feed : r.feeds) forward.shown.push_back(feed.name);
  if (std::string wrong = check_runs(forward, "forward", seed, counts); !wrong.empty()) return wrong;
  if (r.targets.empty()) return "";
  Differentiated d{.net = r.net, .result = {}};
  GradientRequest request;
  for (size_t t = 0; t < r.targets.size(); ++t) {
    request.targets.emplace_back(r.targets[t], r.given[t]);
    if (!r.given[t].empty()) d.net.add_external_input(r.given[t]);
  }
  request.wanted = {r.wanted.begin(), r.wanted.end()};
  try {
    d.result = add_gradient_operators(d.net, request);
  } catch (const Error& e) {
    ++counts.refused;
    return is_refusal(e.what()) ? "" : fmt::format("the gradient pass says: {}", e.what());
  }
  ++counts.differentiated;
  Subject s = differentiated_subject(r, d, seed);
  add_given(r, s, seed);
  if (std::string wrong = check_gradients_run(s); !wrong.empty()) return wrong;
  if (std::string wrong = check_runs(s, "with gradients", seed, counts); !wrong.empty()) return wrong;
  if (std::string wrong = check_differences(r, d, s.stages[0], seed, counts); !wrong.empty()) return wrong;
  if (std::string wrong = check_tangents(r, d, s.stages[0], seed, counts); !wrong.empty()) return wrong;
  return check_recomputed(s, d.result.first_gradient_op, seed, counts);
}

}  // namespace stepnet::testing
