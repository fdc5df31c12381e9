#include "recurrent/training_budget.h"

#include <algorithm>

#include "core/estimate.h"
#include "core/estimate_text.h"

namespace stepnet {
namespace {

SegmentFigures measure_step(Model model, const OptimizerOptions& optimizer, const SegmentChoice& choice) {
  model.segments = choice;
  DryScope scope;
  const auto session = training_session({.model = std::move(model), .optimizer = optimizer});
  const Estimate estimate = estimate_session(*session, scope);
  return {estimate.peak, estimate.flops};
}

}  // namespace

SegmentAnswer fit_training(const Model& model, const OptimizerOptions& optimizer, int64_t budget) {
  require(budget > 0, "the memory budget must be more than 0 bytes, but is {}", budget);
  const NetDef forward = expanded_forward(model, Mode::train);
  const auto networks =
      std::ranges::count_if(forward.op(), [](const OperatorDef& op) { return op.type() == "RecurrentNetwork"; });
  const SegmentQuestion question{
      .budget = budget, .steps = model.timesteps, .batch = model.batch, .networks = std::max<int64_t>(networks, 1)};
  const SegmentAnswer answer =
      best_segments(question, [&](const SegmentChoice& choice) { return measure_step(model, optimizer, choice); });
  if (!answer.fits)
    throw Error(
        fmt::format("a training step of a batch of {} and {} timesteps takes at least {} bytes ({}), and the "
                    "budget is {}; with nothing computed again it takes {}",
                    model.batch, model.timesteps, answer.least, bytes_text(answer.least), budget, answer.in_one.peak),
        "give it that many, or use a smaller batch or fewer timesteps");
  return answer;
}

}  // namespace stepnet
