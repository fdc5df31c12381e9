#include "recurrent/train/training_estimate.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/estimate/estimate.h"
#include "core/tensor/tensor.h"
#include "recurrent/train/carried_states.h"

namespace stepnet {
namespace {

std::vector<std::string> unread_outputs(const NetDef& net) {
  std::set<std::string> read;
  for (const OperatorDef& op : net.op()) read.insert(op.input().begin(), op.input().end());
  std::vector<std::string> unread(net.external_output().begin(), net.external_output().end());
  if (!unread.empty()) return unread;
  for (const OperatorDef& op : net.op())
    for (const std::string& name : op.output())
      if (!name.empty() && read.count(name) == 0) unread.push_back(name);
  return unread;
}

void make_zeros(Workspace& blobs, const std::string& name, const TensorType& type, Device device) {
  blobs.create_local(name).tensor() = Tensor::zeros(type.dtype, type.shape, device);
}

class Builder {
 public:
  explicit Builder(const TrainingEstimate& training) : training_(training), model_(training.model) {}

  std::unique_ptr<NetSession> build() {
    make_parameters();
    for (const auto& [name, type] : feeds_) make_zeros(session_->blobs, name, type, training_.device);
    const TrainingNet net =
        build_training_net(model_, parameters_, session_->parameters, training_.optimizer, kIterations);
    for (const auto& [name, value] : net.first_values) {
      session_->blobs.create_local(name).tensor() = on_device(value, training_.device);
      session_->kinds[name] = MemoryKind::optimizer;
    }
    for (const std::string& name : net.gradients) session_->kinds[name] = MemoryKind::gradient;
    session_->differentiated = net.differentiated;
    session_->first_update = first_update(net);
    require_inputs(net.net, session_->blobs, feeds_);
    const NetDef def = training_.net ? *training_.net : with_recomputation(net, model_, session_->blobs);
    session_->net = std::make_unique<Net>(def, session_->blobs,
                                          NetOptions{.release_intermediates = !training_.plan_memory,
                                                     .plan_memory = training_.plan_memory,
                                                     .keep = {},
                                                     .force_cpu = training_.device.kind == DeviceKind::cpu});
    return std::move(session_);
  }

 private:
  static constexpr int64_t kIterations = int64_t{1} << 40;

  void make_parameters() {
    session_->parameters.confine(model_.files);
    RunContext run;
    if (model_.init.op_size() > 0) stepnet::make_parameters(model_.init, session_->parameters, run, training_.device);
    for (const auto& [name, type] : training_.parameters)
      make_zeros(session_->parameters, name, type, training_.device);
    for (const std::string& name : session_->parameters.names()) {
      const Blob& blob = session_->parameters.at(name);
      if (!blob.is_tensor() || !is_floating(blob.tensor().dtype())) continue;
      parameters_.push_back(name);
      session_->kinds[name] = MemoryKind::parameter;
    }
    if (model_.init.op_size() > 0 && training_.parameters.empty())
      parameters_ = parameter_names(model_, session_->parameters);
    if (parameters_.empty())
      throw Error("there are no parameters to train",
                  "name a net that makes them with --init, or each with --parameter");
    add_feeds();
  }

  void add_feeds() {
    feeds_ = training_.feeds;
    if (!model_.input.empty()) {
      feeds_[model_.input] = TensorType::of(DType::int32, {model_.timesteps, model_.batch});
      feeds_[model_.target] = TensorType::of(DType::int32, {model_.timesteps * model_.batch});
    }
    for (const auto& [name, type] : feeds_) session_->kinds[name] = MemoryKind::input;
    if (model_.carry.empty()) return;
    const DType type = session_->parameters.fetch(parameters_.front()).dtype();
    states_ = std::make_shared<CarriedStates>(model_, type, session_->blobs);
    states_->reset(model_.batch);
    session_->advance = [states = states_] { states->advance(); };  // shared with nobody once this has returned
    for (const std::string& name : states_->read()) session_->kinds[name] = MemoryKind::input;
  }

  // The operators behind the gradient pass clip gradients, and change parameters.
  int first_update(const TrainingNet& net) const {
    for (int i = net.differentiated.first_gradient_op; i < net.net.op_size(); ++i) {
      const auto& out = net.net.op(i).output();
      if (std::ranges::find(out, "train/gradient_norm") != out.end() || std::ranges::find(out, net.rate) != out.end())
        return i;
    }
    return net.net.op_size();
  }

  const TrainingEstimate& training_;
  const Model& model_;
  std::unique_ptr<NetSession> session_ = std::make_unique<NetSession>();
  std::vector<std::string> parameters_;
  std::map<std::string, TensorType> feeds_;
  std::shared_ptr<CarriedStates> states_;
};

}  // namespace

Model model_of(const NetDef& net, const NetDef& init, const std::string& loss) {
  Model model;
  model.source = model.forward = net;
  model.forward.clear_external_input();  // training reads more
  model.init = init;
  model.loss = loss;
  if (!loss.empty()) return model;
  const std::vector<std::string> outputs = unread_outputs(net);
  if (outputs.size() != 1)
    throw Error(fmt::format("net \"{}\" has {} outputs, and one is to be differentiated: {}", net.name(),
                            outputs.size(), fmt::join(outputs, ", ")),
                "name it with --loss");
  model.loss = outputs[0];
  return model;
}

void require_training_fits(const Model& model, const OptimizerOptions& optimizer) {
  std::optional<Estimate> estimate;
  try {
    DryScope scope;
    const TrainingEstimate training{.model = model, .optimizer = optimizer};
    const auto session = training_session(training);
    estimate = estimate_session(*session, scope);
  } catch (const Error&) {
    return;  // the run says it, if it is no matter of data
  }
  require_fits(*estimate, cpu_memory_limit() - allocator(Device{}).counters().live,
               fmt::format("a training step of a batch of {} and {} timesteps", model.batch, model.timesteps),
               "use a smaller batch or fewer timesteps");
}

std::unique_ptr<NetSession> training_session(const TrainingEstimate& training) { return Builder(training).build(); }

}  // namespace stepnet
