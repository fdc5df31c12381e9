// The trials of a random step net: which passes, shapes, threads and settings.
#include <algorithm>
#include <cstdlib>

#include "recurrent/form/passes.h"
#include "recurrent/form/spec.h"
#include "tests/recurrent/random_step_nets_draft.h"
#include "tests/recurrent/random_step_nets_run.h"

namespace stepnet::testing {
namespace {

bool nests(const StepNet& net) {
  return std::ranges::any_of(net.cell.step_net.op(), [](const auto& op) { return op.type() == "RecurrentNetwork"; });
}

NetShape small_shape(Dice& dice) { return {dice.between(dice.chance(0.2) ? 0 : 1, 6), dice.between(1, 5)}; }

// Blocks of operators that are hoisted have at least 128 rows, those that are deferred 256: the shapes are for one
// block, a few of them, and parts of one.
std::vector<NetShape> random_shapes(const StepNet& net, Dice& dice) {
  // An imitated device takes seconds for what has thousands of rows.
  const int64_t kinds = std::getenv("STEPNET_EMULATED_GPUS") ? 12 : 20;
  const bool is_large = std::ranges::any_of(net.widths, [](const auto& width) { return width.second > 200; });
  const int64_t kind = net.grows || nests(net) || is_large ? dice.below(6) : dice.below(kinds);
  if (kind < 11) return {small_shape(dice), small_shape(dice)};
  static const std::vector<int64_t> wide = {64, 70, 128, 130};
  if (kind < 16) {
    const int64_t batch = dice.pick(wide);
    return {{dice.between(2, 7), batch}, {dice.between(1, 9), dice.chance(0.3) ? 3 : batch}};
  }
  if (kind < 18) return {{dice.between(5, 14), dice.between(16, 40)}, small_shape(dice)};
  if (kind < 19) return {{dice.between(33, 70), dice.between(4, 8)}, small_shape(dice)};
  if (dice.chance(0.5)) return {{dice.between(60, 150), dice.between(2, 3)}};
  return {{dice.between(130, 300), 1}};
}

std::vector<std::string> random_passes(Dice& dice) {
  std::vector<std::string> passes;
  for (const std::string& pass : pass_names())
    if (dice.chance(0.5)) passes.push_back(pass);
  return passes;
}

RunSetting random_setting(const StepNet& net, const std::vector<NetShape>& shapes, Dice& dice) {
  RunSetting s;
  s.threads = static_cast<int>(dice.chance(0.6) ? 1 : dice.between(2, 3));
  if (dice.chance(0.2)) {
    s.segment_steps = dice.between(1, std::max<int64_t>(shapes[0].steps, 1));
    s.segment_room = dice.chance(0.5) ? -1 : dice.chance(0.5) ? 0 : dice.between(1, 20000);
  } else if (dice.chance(0.05)) {
    s.budget = true;
  }
  s.planned = dice.chance(0.15);
  s.full_form = dice.chance(0.2);
  s.float32 = dice.chance(0.1);
  s.twin = dice.chance(0.1);
  s.forward_only = dice.chance(0.15) || net.forward_only;
  s.poison_first = dice.chance(0.2);
  s.bad_padding = !net.cell.lengths.empty() && dice.chance(0.4);
  s.carried = dice.chance(0.15) && !carried_states(net).empty();
  // Forward-only states take their rows in turn, so where the last one lies depends on how many timesteps there were.
  if (s.carried && dice.chance(0.5)) s.forward_only = true;
  if (dice.chance(0.3) && delayed_state(net)) {
    s.two_rows = s.forward_only = true;
    s.carried = s.twin = false;
  }
  if (s.forward_only || s.budget) s.segment_steps = 0, s.segment_room = -1;
  if (s.forward_only) s.budget = false;
  if (s.carried) s.poison_first = s.float32 = s.twin = s.budget = s.bad_padding = false;
  return s;
}

Trial random_trial(const StepNet& net, const std::vector<NetShape>& shapes, Dice& dice) {
  Trial trial;
  trial.setting = random_setting(net, shapes, dice);
  trial.shapes = shapes;
  if (shapes.size() > 1 && dice.chance(0.3)) std::swap(trial.shapes[0], trial.shapes[1]);
  if (trial.setting.budget || dice.chance(0.5)) trial.shapes.resize(1);
  if (trial.shapes.size() > 1 && dice.chance(0.3)) trial.shapes.push_back(trial.shapes[0]);
  if (!trial.setting.carried) return trial;
  trial.shapes = {shapes[0], shapes[0], shapes[0]};
  if (dice.chance(0.5)) trial.shapes[1].steps = shapes.back().steps;
  return trial;
}

bool may_rebuild(const StepNet& net) {
  if (net.grows || net.forward_only || nests(net) || std::getenv("STEPNET_EMULATED_GPUS")) return false;
  return std::ranges::any_of(net.cell.step_net.op(), [](const auto& op) { return op.type() == "LSTMUnit"; });
}

// States are made again where several segments take less.
Trial rebuilding_trial(const StepNet& net, uint64_t seed, Dice& dice) {
  static const std::vector<int64_t> wide = {50, 64, 128};
  const int64_t batch = dice.pick(wide);
  Trial trial = random_trial(net, {{dice.between(14, 24), batch}, {dice.between(1, 14), batch}}, dice);
  RunSetting& setting = trial.setting;
  setting.rebuild = true;
  setting.budget = setting.forward_only = setting.two_rows = setting.carried = false;
  setting.segment_steps = 0;
  setting.segment_room = -1;
  if (dice.chance(0.5)) setting.disabled = {dice.pick(pass_names())};
  if (!setting.twin && dice.chance(0.3)) setting.part = seed;
  trial.data = seed;
  return trial;
}

// Of nets that have gradients.
Trial partial_trial(const StepNet& net, const std::vector<NetShape>& shapes, uint64_t seed, Dice& dice) {
  Trial trial = random_trial(net, shapes, dice);
  RunSetting& setting = trial.setting;
  setting.forward_only = setting.two_rows = setting.carried = setting.twin = false;
  setting.part = seed;
  if (dice.chance(0.3)) setting.disabled = random_passes(dice);
  trial.data = seed;
  return trial;
}

}  // namespace

std::vector<Trial> random_trials(const StepNet& net, uint64_t seed) {
  Dice dice(random_key(seed, "trials", "", 0, 0));
  const std::vector<NetShape> shapes = random_shapes(net, dice);
  std::vector<Trial> trials = {{.setting = {.forward_only = net.forward_only}, .shapes = {shapes[0]}, .data = seed}};
  const auto add = [&](std::vector<std::string> passes) {
    trials.push_back(random_trial(net, shapes, dice));
    trials.back().setting.disabled = std::move(passes);
    trials.back().data = seed;
  };
  add({});
  add({dice.pick(pass_names())});
  if (dice.chance(0.5)) add({dice.pick(pass_names())});
  if (dice.chance(0.3)) add(pass_names());
  add(random_passes(dice));
  if (may_rebuild(net)) trials.push_back(rebuilding_trial(net, seed, dice));
  if (!net.forward_only) trials.push_back(partial_trial(net, shapes, seed, dice));
  return trials;
}

}  // namespace stepnet::testing
