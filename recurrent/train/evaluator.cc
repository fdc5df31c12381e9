#include "recurrent/train/evaluator.h"

#include <algorithm>

#include "core/passes/block_losses.h"
#include "stepnet/matmul.h"
#include "stepnet/profiler.h"
#include "stepnet/tensor.h"

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

NetDef evaluation_net(const Model& model, const Workspace& parameters) {
  std::vector<std::string> written;
  for (const CarryLink& link : model.carry) written.push_back(link.from());
  const std::map<std::string, TensorType> read = batch_types(model);
  for (const std::string& name : metric_blobs(model))
    if (read.count(name) == 0) written.push_back(name);
  const std::map<std::string, TensorType> types = known_types(model, parameters);
  NetDef net = expanded_forward(model, Mode::evaluate, model.stage ? std::map<std::string, TensorType>{} : types);
  if (!model.stage) net = needed_for(net, model.loss, written);  // else the next rank needs more
  net.set_name(model.forward.name() + "_evaluate");
  block_losses(net, nullptr, types);
  return net;
}

std::set<std::string> metric_blobs(const Model& model) {
  std::set<std::string> blobs;
  for (const MetricLink& metric : model.metrics) blobs.insert({metric.prediction(), metric.target(), metric.mask()});
  blobs.erase("");
  return blobs;
}

Evaluator::Running::Running(const Model& model, Workspace& parameters, DType dtype, bool plan_memory)
    : blobs(&parameters),
      states(model, dtype, blobs),
      net((create_inputs(model), evaluation_net(model, parameters)), blobs, NetOptions{.plan_memory = plan_memory}) {}

Evaluator::Running::~Running() { forget_products(); }

void Evaluator::Running::create_inputs(const Model& model) {
  blobs.create_local(model.input);
  blobs.create_local(model.target);
  if (model.ranks && model.stage) model.ranks->enter(blobs);
}

Evaluator::Evaluator(const Model& model, Workspace& parameters, DType dtype, std::string tokens, int64_t batch,
                     int64_t timesteps, std::string_view what, bool plan_memory)
    : model_(model),
      parameters_(parameters),
      dtype_(dtype),
      plan_memory_(plan_memory),
      streams_(make_streams(std::move(tokens), batch, timesteps, what)) {
  const Running tried(model_, parameters_, dtype_, plan_memory_);  // what is wrong with the net shows before training
}

double Evaluator::run(Running& running, int64_t begin, int64_t count, int64_t first, int64_t streams) const {
  auto& blobs = running.batch.blobs;
  streams_.copy(begin, count, first, streams, blobs[model_.input], blobs[model_.target]);
  feed(running.blobs, model_.device, running.batch);
  RunContext context;
  running.net.run(context);
  running.states.advance();
  if (!has_loss(model_)) return 0;
  return on_device(running.blobs.fetch(model_.loss), {}).item<double>() * static_cast<double>(count * streams);
}

double Evaluator::loss() {
  const int64_t batch = streams_.batch(), length = streams_.length(), timesteps = streams_.timesteps();
  Running running(model_, parameters_, dtype_, plan_memory_);
  double sum = 0;
  running.states.reset(batch);
  for (int64_t t = 0; t < length; t += timesteps) sum += run(running, t, std::min(timesteps, length - t), 0, batch);
  // The text's last bytes go on where the last stream stopped.
  const int64_t end = length + streams_.tail();
  const int last = static_cast<int>(batch) - 1;
  if (end > length) running.states.gather({&last, 1});
  for (int64_t t = length; t < end; t += timesteps) sum += run(running, t, std::min(timesteps, end - t), batch - 1, 1);
  return sum / static_cast<double>(predicted());
}

double Evaluator::estimate_seconds() {
  constexpr int64_t kBatches = 4;
  const int64_t timesteps = streams_.timesteps(), batches = std::min(kBatches, streams_.batches() - 1);
  Running running(model_, parameters_, dtype_, plan_memory_);
  running.states.reset(streams_.batch());
  run(running, 0, timesteps, 0, streams_.batch());  // the first run also prepares
  if (batches < 1) return 0;
  const double start = now_seconds();
  for (int64_t k = 1; k <= batches; ++k) run(running, k * timesteps, timesteps, 0, streams_.batch());
  const double seconds = now_seconds() - start;
  return seconds / static_cast<double>(batches) * static_cast<double>(streams_.batches() + 1);
}

}  // namespace stepnet
