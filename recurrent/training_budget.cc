#include "recurrent/training_budget.h"

#include <algorithm>

#include "core/estimate_text.h"
#include "core/passes/recompute.h"
#include "recurrent/scratch.h"

namespace stepnet {
namespace {

// The longest network, and how many there are.
void look_at_networks(const NetSession& session, SegmentQuestion& question) {
  question.networks = 0;
  for (const std::string& name : session.blobs.names()) {
    const Blob& blob = session.blobs.at(name);
    if (!blob.holds<RecurrentScratch>()) continue;
    const Shape& sequence = blob.get<RecurrentScratch>().sequence;
    ++question.networks;
    if (sequence[0] <= question.steps) continue;
    question.steps = sequence[0];
    question.batch = sequence[1];
  }
  question.networks = std::max<int64_t>(question.networks, 1);
}

// Two runs: the first also makes what stays.
SegmentFigures measure_step(TrainingEstimate training, SegmentQuestion* question = nullptr) {
  training.plan_memory = true;
  DryScope scope(training.device.kind);
  const auto session = training_session(training);
  double flops = 0;
  for (int i = 0; i < 2; ++i) {
    flops = scope.flops;
    RunContext run;
    session->net->run(run);
    if (session->advance) session->advance();
  }
  if (question) look_at_networks(*session, *question);
  return {scope.counters().peak, scope.flops - flops};
}

// Of blobs whose types cannot be inferred, a run says the bytes.
void add_unknown_sizes(NetSession& session, MemoryQuestion& question) {
  RunContext run;
  session.net->run(run);
  const auto types = infer_net(session.net->def(), question.feeds);
  for (const OperatorDef& op : session.net->def().op())
    for (const std::string& name : op.output()) {
      const auto type = types.find(name);
      if (name.empty() || (type != types.end() && type->second.known) || question.bytes.count(name) > 0) continue;
      const Blob& blob = session.blobs.at(name);
      const bool is_tensor = blob.is_tensor() && blob.tensor().defined();
      question.bytes[name] =
          is_tensor ? allocated_bytes(TensorType::of(blob.tensor().dtype(), blob.tensor().shape())) : 0;
    }
}

// Of such a run and all later ones, which may take a thousandth more (core/net_arena.h).
SegmentFigures bound_step(TrainingEstimate training) {
  SegmentFigures figures = measure_step(std::move(training));
  figures.peak += figures.peak / 1000;
  return figures;
}

// Runs operators of the forward part again as well; throws Error if that does not fit, either.
FittedTraining recompute_too(TrainingEstimate training, const SegmentAnswer& answer, int64_t budget) {
  training.model.segments = answer.choice;
  DryScope scope(training.device.kind);
  const auto session = training_session(training);
  MemoryQuestion question = training_question(training.model, session->net->def(), session->blobs);
  add_unknown_sizes(*session, question);
  training.model.again.bytes = question.bytes;
  const auto peak_of = [&](const NetDef& net) {
    TrainingEstimate other = training;
    other.net = &net;
    return bound_step(std::move(other)).peak;
  };
  const RecomputePlanner planner(session->net->def(), session->differentiated.first_gradient_op, question, peak_of);
  if (planner.least_bytes() > budget)
    throw Error(fmt::format("a training step takes at least {} bytes ({}), and the budget is {}; with nothing computed "
                            "again it takes {}",
                            planner.least_bytes(), bytes_text(planner.least_bytes()), budget, answer.in_one.peak),
                "give it that many, or use a smaller batch or fewer timesteps");
  const RecomputePlan plan = planner.plan(budget);
  training.model.again.segments = plan.segments;
  return {training.model, {plan.peak, answer.figures.flops + plan.extra_flops}, answer.in_one};
}

}  // namespace

int64_t training_peak(const TrainingEstimate& training) { return measure_step(training).peak; }

FittedTraining fit_training(const TrainingEstimate& training, int64_t budget) {
  require(budget > 0, "the memory budget must be more than 0 bytes, but is {}", budget);
  SegmentQuestion question{.budget = budget};
  measure_step(training, &question);
  const SegmentAnswer answer = best_segments(question, [&](const SegmentChoice& choice) {
    TrainingEstimate other = training;
    other.model.segments = choice;
    return bound_step(std::move(other));
  });
  if (!answer.fits) return recompute_too(training, answer, budget);
  FittedTraining fitted{training.model, answer.figures, answer.in_one};
  fitted.model.segments = answer.choice;
  return fitted;
}

}  // namespace stepnet
