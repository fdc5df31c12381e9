#include "recurrent/training_budget.h"

#include <algorithm>

#include "core/estimate_text.h"
#include "recurrent/scratch.h"

namespace stepnet {
namespace {

// Also says how many networks there are, and the sizes of the longest. The first run is watched, the second makes the
// block, and the third is like all later ones.
SegmentFigures measure_step(TrainingEstimate training, const SegmentChoice& choice, SegmentQuestion& question) {
  training.model.segments = choice;
  training.plan_memory = true;
  DryScope scope;
  const auto session = training_session(training);
  double flops = 0;
  for (int i = 0; i < 3; ++i) {
    flops = scope.flops;
    RunContext run;
    session->net->run(run);
    if (session->advance) session->advance();
  }
  question.networks = 0;
  for (const std::string& name : session->blobs.names()) {
    const Blob& blob = session->blobs.at(name);
    if (!blob.holds<RecurrentScratch>()) continue;
    const Shape& sequence = blob.get<RecurrentScratch>().sequence;
    ++question.networks;
    if (sequence[0] <= question.steps) continue;
    question.steps = sequence[0];
    question.batch = sequence[1];
  }
  question.networks = std::max<int64_t>(question.networks, 1);
  return {scope.counters().peak, scope.flops - flops};
}

}  // namespace

int64_t training_peak(const TrainingEstimate& training) {
  SegmentQuestion question;
  return measure_step(training, training.model.segments, question).peak;
}

SegmentAnswer fit_training(const TrainingEstimate& training, int64_t budget) {
  require(budget > 0, "the memory budget must be more than 0 bytes, but is {}", budget);
  SegmentQuestion question{.budget = budget};
  measure_step(training, {}, question);
  const SegmentAnswer answer =
      best_segments(question, [&](const SegmentChoice& choice) { return measure_step(training, choice, question); });
  if (!answer.fits)
    throw Error(fmt::format("a training step takes at least {} bytes ({}), and the budget is {}; with nothing computed "
                            "again it takes {}",
                            answer.least, bytes_text(answer.least), budget, answer.in_one.peak),
                "give it that many, or use a smaller batch or fewer timesteps");
  return answer;
}

}  // namespace stepnet
