// Trials: one Net over several shapes of data in turn, and what its results differ in.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/compute/threads.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"
#include "tests/recurrent/random_step_nets_run.h"

namespace stepnet::testing {
namespace {

bool is_float(const Tensor& t) { return t.dtype() == DType::float64 || t.dtype() == DType::float32; }

std::string given(const std::string& output) { return output + "_given"; }
std::string seen(const std::string& output) { return output + "_seen"; }

class ThreadScope {
 public:
  explicit ThreadScope(int count) : before_(threads()) { set_threads(count); }
  ~ThreadScope() { set_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

// On a GPU to the same places, so that graphs which were captured are replayed, unless other blobs show them too.
void feed(Workspace& workspace, const std::string& name, const Tensor& value, bool anew) {
  Tensor& blob = workspace.tensor(name);
  if (anew || test_device() == Device{}) blob = Tensor();
  blob.resize(value.dtype(), value.shape(), test_device());
  blob.copy_from(value);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// Adds `factor` times the second to the first; undefined ones are zero.
void add_scaled(Tensor& sum, const Tensor& more, double factor) {
  for (int64_t i = 0; i < sum.size(); ++i) sum.data<double>()[i] += factor * more.data<double>()[i];
}

// As programs of the public format write it: step nets are text inside of text.
NetDef as_public_text(NetDef net) {
  for (OperatorDef& op : *net.mutable_op())
    for (Argument& arg : *op.mutable_arg())
      if (arg.has_n()) *arg.mutable_s() = to_text(arg.n()), arg.clear_n();
  return parse_net_text(to_text(net));
}

constexpr double kTwinFactor = 0.5;

// One Net and its data.
class Runner {
 public:
  Runner(const StepNet& net, const Trial& trial, int64_t budget)
      : net_(net), trial_(trial), type_(trial.setting.float32 ? DType::float32 : DType::float64) {
    load(trial.shapes.at(0));
    NetDef def = net_of(net, trial.setting, feeds_);
    if (budget > 0)
      for (OperatorDef& op : *def.mutable_op()) *op.add_arg() = make_arg("memory_budget_bytes", budget);
    expand_recurrent(def);
    if (const auto delayed = delayed_state(net); trial.setting.two_rows && delayed) merge_rows(def, *delayed);
    if (trial.setting.full_form) def = as_public_text(def);
    if (trial.setting.part != 0) {
      differentiate_part(def);
    } else if (has_gradients()) {
      differentiate(def);
    }
    NetOptions options;
    options.plan_memory = trial.setting.planned;
    for (const auto& [name, g] : outside_)
      for (const std::string& output : {shown(name), name + "_twin"}) options.keep.insert(output);
    for (const auto& [name, gradient] : gradients_.gradients) options.keep.insert(gradient.dense);
    use_test_device(def);
    feed_all();
    bound_.emplace(def, workspace_, options);
  }

  bool has_gradients() const { return !trial_.setting.forward_only && !trial_.setting.carried; }
  const Feeds& outside() const { return outside_; }

  void load(const NetShape& shape) {
    feeds_ = feeds_of(net_, shape, trial_.data, type_);
    if (trial_.setting.bad_padding) feeds_ = with_bad_padding(net_.cell, feeds_);
    outside_ = outside_of(net_, shape, trial_.data, type_);
  }

  void poison() {
    for (Feeds* all : {&feeds_, &outside_})
      for (auto& [name, value] : *all) value = poisoned(value);
  }

  void feed_all() {
    for (const auto& [name, value] : feeds_) feed(workspace_, name, value, trial_.setting.carried);
    if (!has_gradients()) return;
    for (const auto& [name, value] : outside_) {
      feed(workspace_, given(name), value, false);
      if (!trial_.setting.twin) continue;
      Tensor half = value.clone();
      for (int64_t i = 0; i < half.size(); ++i)
        if (type_ == DType::float64)
          half.data<double>()[i] *= kTwinFactor;
        else
          half.data<float>()[i] *= static_cast<float>(kTwinFactor);
      feed(workspace_, given(name + "_twin"), half, false);
    }
  }

  // An output that was overwritten and then written again, or "".
  std::string restored_output() const {
    if (trial_.setting.planned) return "";  // its bytes may be others' by now
    for (const auto& [name, g] : outside_) {
      if (overwritten_.count(name) == 0) continue;
      const Tensor wide = to_double(copied_to(workspace_.fetch(name), {}));
      if (!std::all_of(wide.data<double>(), wide.data<double>() + wide.size(), [](double v) { return std::isnan(v); }))
        return name;
    }
    return "";
  }

  void feed_overwritten() {
    for (const auto& [name, value] : feeds_)
      if (overwritten_.count(name) > 0) feed(workspace_, name, value, false);
  }

  // Lets states start from what others have ended with, where it lies.
  void carry() {
    for (const auto& [initial, last] : carried_states(net_)) workspace_.tensor(initial) = workspace_.fetch(last);
  }

  void run() {
    RunContext run;
    bound_->run(run);
  }

  CellResults results() const {
    CellResults results;
    for (const auto& [name, g] : outside_) {
      results.outputs[name] = copied_to(workspace_.fetch(shown(name)), {}).clone();
      if (trial_.setting.twin)
        results.outputs[name + "_twin"] = copied_to(workspace_.fetch(name + "_twin"), {}).clone();
    }
    if (!has_gradients()) return results;
    for (const auto& [name, value] : feeds_) {
      if (wanted_.count(name) == 0) continue;
      const auto it = gradients_.gradients.find(name);
      results.gradients[name] = it != gradients_.gradients.end() && it->second.defined()
                                    ? copied_to(workspace_.fetch(it->second.dense), {}).clone()
                                    : Tensor::zeros(value.dtype(), value.shape());
    }
    return results;
  }

  // An input whose bytes are not those that were fed, or "".
  std::string changed_input() const {
    for (const auto& [name, value] : feeds_)
      if (overwritten_.count(name) == 0 && !same_bits(copied_to(workspace_.fetch(name), {}), value)) return name;
    if (!has_gradients()) return "";
    for (const auto& [name, value] : outside_)
      if (!same_bits(copied_to(workspace_.fetch(given(name)), {}), value)) return given(name);
    return "";
  }

 private:
  std::string shown(const std::string& output) const { return trial_.setting.part != 0 ? seen(output) : output; }

  std::set<std::string> floating_feeds() const {
    std::set<std::string> names;
    for (const auto& [name, value] : feeds_)
      if (is_float(value)) names.insert(name);
    return names;
  }

  // Writes NaN over each of the network's inputs and outputs that these gradients let anyone overwrite.
  void differentiate_part(NetDef& def) {
    const uint64_t part = trial_.setting.part;
    GradientRequest request;
    request.wanted = wanted_ = some_of(floating_feeds(), part);
    std::set<std::string> blobs = floating_feeds();
    for (const std::string& name : wanted_) blobs.erase(name);
    for (const std::string& name : names_of(outside_)) {
      *def.add_op() = make_op("Copy", {name}, {seen(name)});
      blobs.insert(name);
    }
    for (const std::string& name : some_of(names_of(outside_), part)) {
      request.targets.emplace_back(seen(name), given(name));
      def.add_external_input(given(name));
    }
    NetDef whole = def;
    gradients_ = add_gradient_operators(whole, request);
    for (const std::string& name : blobs) {
      NetDef more = def;
      *more.add_op() = make_op("Scale", {name}, {name}, {make_arg("scale", std::numeric_limits<float>::quiet_NaN())});
      try {
        NetDef candidate = more;
        gradients_ = add_gradient_operators(candidate, request);
        def = std::move(more);
        whole = std::move(candidate);
        overwritten_.insert(name);
      } catch (const Error&) {  // the gradients read it
      }
    }
    def = std::move(whole);
  }

  void differentiate(NetDef& def) {
    GradientRequest request;
    for (const auto& [name, value] : outside_)
      for (const std::string& output : trial_.setting.twin ? std::vector{name, name + "_twin"} : std::vector{name}) {
        request.targets.emplace_back(output, given(output));
        def.add_external_input(given(output));
      }
    request.wanted = wanted_ = floating_feeds();
    gradients_ = add_gradient_operators(def, request);
  }

  const StepNet& net_;
  const Trial& trial_;
  DType type_;
  Feeds feeds_, outside_;
  GradientResult gradients_;
  std::set<std::string> wanted_, overwritten_;
  Workspace workspace_;
  std::optional<Net> bound_;
};

double tolerance_of(const Trial& trial) { return trial.setting.float32 ? 2e-4 : 1e-10; }

// What the unrolled net's results are in this setting.
CellResults expected_of(const Trial& trial, const CellResults& reference) {
  CellResults expected;
  for (const auto& [name, value] : reference.outputs) expected.outputs[name] = value;
  if (trial.setting.twin)
    for (const auto& [name, value] : reference.outputs) expected.outputs[name + "_twin"] = value;
  if (trial.setting.forward_only || trial.setting.carried) return expected;
  std::set<std::string> wanted;
  for (const auto& [name, value] : reference.gradients) wanted.insert(name);
  if (trial.setting.part != 0) wanted = some_of(wanted, trial.setting.part);
  for (const auto& [name, value] : reference.gradients) {
    if (wanted.count(name) == 0) continue;
    expected.gradients[name] = value.clone();
    if (trial.setting.twin) add_scaled(expected.gradients[name], value, kTwinFactor);
  }
  return expected;
}

CellResults in_double(const CellResults& results) {
  CellResults wide;
  for (const auto& [name, value] : results.outputs) wide.outputs[name] = to_double(value);
  for (const auto& [name, value] : results.gradients) wide.gradients[name] = to_double(value);
  return wide;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The smallest budget that is accepted, as the error says it; 0 if the net cannot have one.
int64_t least_budget(const StepNet& net, const Trial& trial) {
  try {
    Runner runner(net, trial, 1);
    runner.run();
  } catch (const Error& e) {
    const std::string text = e.what(), before = "takes at least ";
    if (text.find(before) == text.npos) return 0;
    return std::stoll(text.substr(text.find(before) + before.size()));
  }
  return 0;
}

std::string difference_at(const StepNet& net, const Trial& trial, const NetShape& shape, const CellResults& made,
                          const CellResults& reference) {
  const double tol = tolerance_of(trial);
  const std::string wrong = compare_results(in_double(made), expected_of(trial, reference), tol);
  if (wrong.empty() || is_ill_conditioned(net, shape, trial.data, tol)) return "";
  return fmt::format("{} (T {}, B {})", first_line(wrong), shape.steps, shape.batch);
}

// The same inputs once more: the same bits, in the outputs and in the inputs.
std::string check_again(Runner& runner, const CellResults& first) {
  if (const std::string name = runner.changed_input(); !name.empty())
    return fmt::format("the input {} is changed by a run", name);
  if (const std::string name = runner.restored_output(); !name.empty())
    return fmt::format("{} is written again after it was overwritten", name);
  runner.feed_overwritten();
  runner.run();
  const CellResults second = runner.results();
  for (const auto& [name, value] : first.outputs)
    if (!same_bits(value, second.outputs.at(name))) return fmt::format("{} has other bits in a second run", name);
  for (const auto& [name, value] : first.gradients)
    if (!same_bits(value, second.gradients.at(name)))
      return fmt::format("the gradient of {} has other bits in a second run", name);
  if (const std::string name = runner.changed_input(); !name.empty())
    return fmt::format("the input {} is changed by a second run", name);
  return "";
}

// A net that writes over what it is given must be refused, or leave its inputs as they are.
Finding check_overwriting(const StepNet& net, const Trial& trial) {
  try {
    Runner runner(net, trial, 0);
    for (const NetShape& shape : trial.shapes) {
      runner.load(shape);
      runner.feed_all();
      runner.run();
      if (const std::string name = runner.changed_input(); !name.empty())
        return {Finding::Kind::wrong, fmt::format("the input {} is changed by a run", name)};
    }
  } catch (const Error&) {
  }
  return {};
}

std::string run_shapes(const StepNet& net, const Trial& trial, Runner& runner, References& known) {
  if (trial.setting.poison_first) {
    runner.poison();
    runner.feed_all();
    runner.run();
  }
  for (const NetShape& shape : trial.shapes) {
    runner.load(shape);
    runner.feed_all();
    runner.run();
    const CellResults made = runner.results();
    const Unrolled& reference = reference_of(net, shape, trial.data, known, trial.setting.part);
    std::string wrong = difference_at(net, trial, shape, made, reference.results);
    if (wrong.empty()) wrong = check_again(runner, made);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Each run starts from what the one before has left in the outputs.
std::string run_carried(const StepNet& net, const Trial& trial, Runner& runner) {
  const std::map<std::string, std::string> carried = carried_states(net);
  std::map<std::string, Tensor> last;
  for (const NetShape& shape : trial.shapes) {
    runner.load(shape);
    runner.feed_all();
    if (!last.empty()) runner.carry();
    runner.run();
    const CellResults made = runner.results();
    Feeds feeds = feeds_of(net, shape, trial.data);
    for (auto& [name, value] : feeds)
      if (const auto it = carried.find(name); it != carried.end() && !last.empty()) value = last.at(it->second);
    const CellResults reference = run_unrolled(net.cell, feeds, {});
    const std::string wrong = difference_at(net, trial, shape, made, reference);
    if (!wrong.empty()) return wrong;
    for (const auto& [initial, output] : carried) last[output] = to_double(made.outputs.at(output));
  }
  return "";
}

// Whether the net has a meaning for one timestep alone: one that shows a value which is there a timestep late.
bool is_for_one_timestep(const StepNet& net, const Trial& trial, References& known) {
  NetShape longer = trial.shapes[0];
  longer.steps += 2;
  return !reference_of(net, longer, trial.data, known).refusal.empty();
}

// Whether all gradients that a part of them is asked for are zero.
bool is_independent(const StepNet& net, const Trial& trial, References& known) {
  const Unrolled& reference = reference_of(net, trial.shapes[0], trial.data, known, trial.setting.part);
  for (const auto& [name, g] : expected_of(trial, reference.results).gradients)
    for (int64_t i = 0; i < g.size(); ++i)
      if (g.data<double>()[i] != 0) return false;
  return true;
}

// A net whose unrolled form is refused must be refused, too, or be right.
Finding check_refused(const StepNet& net, const Trial& trial, const std::string& refusal) {
  Trial plain = trial;
  plain.setting.part = 0;
  plain.setting.twin = plain.setting.float32 = plain.setting.bad_padding = false;
  if (net.has_kinks || plain.setting.carried || plain.setting.forward_only) return {};
  try {
    Runner runner(net, plain, 0);
    const NetShape& shape = plain.shapes[0];
    runner.load(shape);
    runner.feed_all();
    runner.run();
    Finding finding = check_along_direction(net, runner.results().gradients, shape, plain.data);
    if (finding.kind == Finding::Kind::wrong && !is_ill_conditioned(net, shape, plain.data, 1e-7))
      return {Finding::Kind::wrong, fmt::format("{}; unrolled it is refused: {}", finding.text, first_line(refusal))};
  } catch (const Error&) {
  }
  return {};
}

}  // namespace

Finding check_trial(const StepNet& net, const Trial& trial, References& known) {
  const ThreadScope threads(trial.setting.threads);
  if (net.overwrites_input) return check_overwriting(net, trial);
  for (NetShape shape : trial.shapes) {
    shape.steps = std::max<int64_t>(shape.steps, 1);  // no step has nothing that could be refused
    const std::string& refusal = reference_of(net, shape, trial.data, known).refusal;
    if (!refusal.empty()) return check_refused(net, trial, refusal);
  }
  try {
    int64_t budget = 0;
    if (trial.setting.budget) {
      budget = least_budget(net, trial);
      if (budget == 0) return {};
    }
    Runner runner(net, trial, budget);
    const std::string wrong =
        trial.setting.carried ? run_carried(net, trial, runner) : run_shapes(net, trial, runner, known);
    return {wrong.empty() ? Finding::Kind::none : Finding::Kind::wrong, wrong};
  } catch (const Error& e) {
    const bool has_part = trial.setting.part != 0 && dynamic_cast<const NoDependence*>(&e) != nullptr;
    if ((has_part && is_independent(net, trial, known)) || is_for_one_timestep(net, trial, known)) return {};
    return {Finding::Kind::refused, e.what()};
  }
}

Finding check_second_order(const StepNet& net, const NetShape& shape, uint64_t data) {
  constexpr double kTolerance = 1e-8;
  const Feeds feeds = feeds_of(net, shape, data), outside = outside_of(net, shape, data);
  const Feeds directions = directions_of(feeds, data + 3);
  CellResults expected;
  try {
    expected = run_unrolled_hessian(net.cell, feeds, outside, directions);
  } catch (const Error&) {
    return {};
  }
  const auto check = [&](const char* way, const auto& run) -> Finding {
    try {
      NetDef def = net_of(net, {}, feeds);
      expand_recurrent(def);
      const CellResults made = run(def);
      for (const auto& [name, value] : expected.gradients)
        if (const std::string wrong = compare(made.gradients.at(name), value, kTolerance); !wrong.empty())
          return {Finding::Kind::wrong, fmt::format("second order, {}, {}: {}", way, name, first_line(wrong))};
    } catch (const Error& e) {
      return {Finding::Kind::refused, fmt::format("second order, {}: {}", way, e.what())};
    }
    return {};
  };
  Finding finding =
      check("reverse over reverse", [&](const NetDef& def) { return run_hessian(def, feeds, outside, directions); });
  const auto check_mixed = [&](const char* way, MixedMode mode) {
    if (finding.kind != Finding::Kind::none) return;
    finding = check(way, [&](const NetDef& def) { return run_mixed_hessian(def, feeds, outside, directions, mode); });
  };
  check_mixed("reverse over forward", MixedMode::reverse_over_forward);
  check_mixed("forward over reverse", MixedMode::forward_over_reverse);
  if (finding.kind == Finding::Kind::wrong && is_ill_conditioned(net, shape, data, kTolerance)) return {};
  return finding;
}

}  // namespace stepnet::testing
