#include "recurrent/evaluator.h"

#include <algorithm>

#include "core/placement.h"
#include "core/profile.h"

namespace stepnet {
namespace {

// As many streams and timesteps as asked for, unless the text is too short for them.
TextStreams make_streams(std::string tokens, int64_t batch, int64_t timesteps, std::string_view what) {
  const auto size = static_cast<int64_t>(tokens.size());
  if (size < 2)
    throw Error(fmt::format("{} has {} bytes, but predicting needs at least 2", what, size),
                "hold out more of the text, or nothing");
  const int64_t t = std::min(timesteps, size - 1);
  return TextStreams(std::move(tokens), std::clamp<int64_t>((size - 1) / t, 1, batch), t, what);
}

}  // namespace

Evaluator::Evaluator(const Model& model, Workspace& parameters, DType dtype, std::string tokens, int64_t batch,
                     int64_t timesteps, std::string_view what, bool plan_memory)
    : workspace_(&parameters),
      model_(model),
      streams_(make_streams(std::move(tokens), batch, timesteps, what)),
      states_(model, dtype, workspace_) {
  workspace_.create_local(model.input);
  workspace_.create_local(model.target);
  NetDef def = needed_for(expanded_forward(model, Mode::evaluate), model.loss, states_.written());
  def.set_name(model.forward.name() + "_evaluate");
  net_ = std::make_unique<Net>(def, workspace_, NetOptions{.plan_memory = plan_memory});
}

double Evaluator::run(int64_t begin, int64_t count, int64_t first, int64_t streams) {
  streams_.copy(begin, count, first, streams, input_, target_);
  feed(workspace_, model_, input_, target_);
  RunContext context;
  net_->run(context);
  states_.advance();
  return available(workspace_.fetch(model_.loss), {}).item<double>() * static_cast<double>(count * streams);
}

double Evaluator::loss() {
  const int64_t batch = streams_.batch(), length = streams_.length(), timesteps = streams_.timesteps();
  double sum = 0;
  states_.reset(batch);
  for (int64_t t = 0; t < length; t += timesteps) sum += run(t, std::min(timesteps, length - t), 0, batch);
  // The text's last bytes go on where the last stream stopped.
  const int64_t end = length + streams_.tail();
  const int last = static_cast<int>(batch) - 1;
  if (end > length) states_.gather({&last, 1});
  for (int64_t t = length; t < end; t += timesteps) sum += run(t, std::min(timesteps, end - t), batch - 1, 1);
  net_->let_go_of_memory();
  return sum / static_cast<double>(predicted());
}

double Evaluator::estimate_seconds() {
  constexpr int64_t kBatches = 4;
  const int64_t timesteps = streams_.timesteps(), batches = std::min(kBatches, streams_.batches() - 1);
  states_.reset(streams_.batch());
  run(0, timesteps, 0, streams_.batch());  // the first run also prepares
  if (batches < 1) return 0;
  const double start = now_seconds();
  for (int64_t k = 1; k <= batches; ++k) run(k * timesteps, timesteps, 0, streams_.batch());
  const double seconds = now_seconds() - start;
  net_->let_go_of_memory();
  return seconds / static_cast<double>(batches) * static_cast<double>(streams_.batches() + 1);
}

}  // namespace stepnet
