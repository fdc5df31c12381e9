#include "recurrent/train/memory_budget.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/estimate/estimate.h"
#include "core/estimate/report.h"
#include "core/net/liveness.h"
#include "core/operator/observer.h"
#include "core/passes/block_losses.h"
#include "core/passes/recompute.h"
#include "recurrent/network/kept.h"
#include "recurrent/train/carried_states.h"
#include "recurrent/train/evaluator.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/tensor.h"

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
    if (model_.ranks) enter_ranks();
    if (model_.stage) bound_messages();
    for (const auto& [name, type] : feeds_) make_zeros(session_->blobs, name, type, training_.device);
    const TrainingNet net =
        build_training_net(model_, parameters_, session_->parameters, training_.optimizer, kIterations, feeds_);
    if (states_) states_->carry(net.sensitivities);
    for (const CarriedSensitivity& carried : net.sensitivities.carried)
      session_->kinds[carried.first] = MemoryKind::input;
    for (const auto& [name, value] : net.first_values) {
      session_->blobs.create_local(name).tensor() = on_device(value, training_.device);
      session_->kinds[name] = MemoryKind::optimizer;
    }
    for (const std::string& name : net.gradients) session_->kinds[name] = MemoryKind::gradient;
    session_->differentiated = net.differentiated;
    session_->first_update = first_update(net);
    require_inputs(net.net, session_->blobs, feeds_);
    NetDef def = training_.net ? *training_.net : with_recomputation(net, model_, session_->blobs);
    if (!training_.to_be_planned) leave_gradients_in_place(def, session_->differentiated);
    NetOptions options{.release_intermediates = !training_.plan_memory,
                       .plan_memory = training_.plan_memory,
                       .keep = {},
                       .force_cpu = training_.device.kind == DeviceKind::cpu};
    const int begin = training_.in_parts ? update_begin(def) : -1;
    const NetDef second = begin < 0 ? NetDef() : take_update(def, begin, net);
    if (begin >= 0) options.keep = left_for_update(net);
    if (begin >= 0 && net.scaled) options.keep.insert(net.finite);
    session_->net = std::make_unique<Net>(def, session_->blobs, options);
    if (begin >= 0) add_update(second, left_for_update(net));
    return std::move(session_);
  }

 private:
  static constexpr int64_t kIterations = int64_t{1} << 40;

  // The second part of a step, as TrainingSession has it.
  void add_update(const NetDef& def, const std::set<std::string>& read) {
    const NetOptions options{.release_intermediates = true,
                             .plan_memory = false,
                             .keep = {},
                             .force_cpu = training_.device.kind == DeviceKind::cpu};
    auto net = std::make_shared<Net>(def, session_->blobs, options);  // shared with nobody once this has returned
    session_->update = [net, read, &blobs = session_->blobs] {
      RunContext run;
      net->run(run);
      for (const std::string& name : read) blobs.at(name).tensor().drop_bytes();
    };
  }

  void make_parameters() {
    session_->parameters.confine(model_.files);
    RunContext run;
    if (model_.init.op_size() > 0) stepnet::make_parameters(model_.init, session_->parameters, run, training_.device);
    keep_own(model_, session_->parameters);
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
    for (const auto& [name, type] : batch_types(model_)) feeds_[name] = type;
    for (const auto& [name, type] : feeds_) session_->kinds[name] = MemoryKind::input;
    if (model_.carry.empty()) return;
    const DType type = session_->parameters.fetch(parameters_.front()).dtype();
    states_ = std::make_shared<CarriedStates>(model_, type, session_->blobs);
    states_->reset(model_.batch);
    session_->advance = [states = states_] { states->advance(); };  // shared with nobody once this has returned
    for (const std::string& name : states_->read()) session_->kinds[name] = MemoryKind::input;
  }

  void enter_ranks() {
    const DType type = session_->parameters.fetch(parameters_.front()).dtype();
    const std::string share = TrainingNet().share;
    model_.ranks->enter(session_->blobs);
    make_zeros(session_->blobs, share, TensorType::of(type, {1}), training_.device);
    session_->kinds[share] = MemoryKind::input;
  }

  // The types of what a stage receives, which a run without data cannot know.
  void bound_messages() const {
    DryScope* dry = DryScope::now();
    if (!dry) return;
    const Model::Stage& stage = *model_.stage;
    const auto bound = [&](const std::string& name, const TensorType& type) {
      dry->bounds[name] = {type.dtype, type.shape};
    };
    for (size_t b = 0; b < stage.received.size(); ++b) bound(stage.received[b], stage.received_types[b]);
    for (size_t b = 0; b < stage.sent.size() && stage.gets_gradients; ++b)
      bound(received_gradient(stage.sent[b]), stage.sent_types[b]);
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
    const auto session = training_net_session(training);
    estimate = estimate_session(*session, scope);
  } catch (const Error&) {
    return;  // the run says it, if it is no matter of data
  }
  require_fits(*estimate, cpu_memory_limit() - allocator(Device{}).counters().live,
               fmt::format("a training step of a batch of {} and {} timesteps", model.batch, model.timesteps),
               "use a smaller batch or fewer timesteps");
}

std::unique_ptr<NetSession> training_net_session(const TrainingEstimate& training) { return Builder(training).build(); }

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

// Two steps: the first also makes what stays. Of a step in two parts the second one runs beside the block of the first,
// which is there from the third run on (core/net/net_arena.h), and which dry runs do not have.
SegmentFigures measure_step(TrainingEstimate training, SegmentQuestion* question = nullptr) {
  training.plan_memory = training.in_parts = true;
  DryScope scope(training.device.kind);
  const auto session = training_net_session(training);
  const int64_t batches = training.optimizer.accumulate;
  int64_t peak = 0;
  double passes = 0, update = 0;
  for (int i = 0; i < 2; ++i) {
    for (int64_t n = 0; n < std::min<int64_t>(batches, 2); ++n) {
      passes = scope.flops;
      RunContext run;
      session->net->run(run);
      passes = scope.flops - passes;
      if (session->advance) session->advance();
    }
    peak = std::max(peak, scope.counters().peak);
    if (!session->update) continue;
    scope.reset_peak();
    update = scope.flops;
    session->update();
    update = scope.flops - update;
    const NetMemory planned = session->net->memory();
    peak = std::max(peak, scope.counters().peak + (planned.planned ? allocated_bytes(planned.block) : 0));
  }
  if (question) look_at_networks(*session, *question);
  return {peak, passes * static_cast<double>(batches) + update};
}

// The most bytes that each output of the net has in a run; those of objects are none.
class OutputBytes : public NetObserver {
 public:
  OutputBytes(const Workspace& blobs, std::map<std::string, int64_t>& bytes) : blobs_(blobs), bytes_(bytes) {}
  void before(const BoundOp&) override {}
  void after(const BoundOp& op) override {
    for (const std::string& name : op.def.output()) {
      const Blob* blob = name.empty() ? nullptr : blobs_.find(name);
      if (!blob) continue;
      int64_t& most = bytes_[name];
      if (blob->is_tensor() && blob->tensor().defined())
        most = std::max(most, allocated_bytes(TensorType::of(blob->tensor().dtype(), blob->tensor().shape())));
    }
  }

 private:
  const Workspace& blobs_;
  std::map<std::string, int64_t>& bytes_;
};

// Where types cannot be inferred, a run says the bytes. A name may be one of several values, of which only some can be.
void add_unknown_sizes(NetSession& session, MemoryQuestion& question) {
  OutputBytes sizes(session.blobs, question.bytes);
  RunContext run;
  run.observer = &sizes;
  session.net->run(run);
}

// Of such a run and all later ones, which may take a thousandth more (core/net/net_arena.h).
int64_t with_later_runs(int64_t peak) { return peak + peak / 1000; }

SegmentFigures bound_step(TrainingEstimate training) {
  SegmentFigures figures = measure_step(std::move(training));
  figures.peak = with_later_runs(figures.peak);
  return figures;
}

// Runs operators of the forward part again as well; throws Error if that does not fit, either.
FittedTraining recompute_too(TrainingEstimate training, const SegmentAnswer& answer, int64_t budget, int64_t said) {
  training.model.segments = answer.choice;
  DryScope scope(training.device.kind);
  training.to_be_planned = true;
  const auto session = training_net_session(training);
  training.to_be_planned = false;
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
                            planner.least_bytes(), bytes_text(planner.least_bytes()), said, answer.in_one.peak),
                "give it that many, or use a smaller batch or fewer timesteps");
  const RecomputePlan plan = planner.plan(budget);
  training.model.again.segments = plan.segments;
  return {training.model, {plan.peak, answer.figures.flops + plan.extra_flops}, answer.in_one};
}

}  // namespace

int64_t training_peak(const TrainingEstimate& training) { return measure_step(training).peak; }

int64_t validation_peak(const TrainingEstimate& training) {
  DryScope scope(training.device.kind);
  const auto session = training_net_session(training);
  const Model& model = training.model;
  Workspace blobs(&session->parameters);
  CarriedStates states(model, session->parameters.fetch(parameter_names(model, session->parameters).front()).dtype(),
                       blobs);
  states.reset(model.batch);
  for (const auto& [name, type] : batch_types(model))
    blobs.create_local(name).tensor() = Tensor(session->blobs.fetch(name));
  Net net(evaluation_net(model, session->parameters), blobs,
          {.plan_memory = true, .keep = metric_blobs(model), .force_cpu = training.device.kind == DeviceKind::cpu});
  for (int i = 0; i < 2; ++i) {
    RunContext run;
    net.run(run);
    states.advance();
  }
  return with_later_runs(scope.counters().peak);
}

namespace {

// `said`: the budget for the message.
FittedTraining fit_steps(const TrainingEstimate& training, int64_t budget, int64_t said) {
  SegmentQuestion question{.budget = budget};
  measure_step(training, &question);
  const SegmentAnswer answer = best_segments(question, [&](const SegmentChoice& choice) {
    TrainingEstimate other = training;
    other.model.segments = choice;
    return bound_step(std::move(other));
  });
  if (!answer.fits) return recompute_too(training, answer, budget, said);
  FittedTraining fitted{training.model, answer.figures, answer.in_one};
  fitted.model.segments = answer.choice;
  return fitted;
}

}  // namespace

FittedTraining fit_training(const TrainingEstimate& training, int64_t budget, bool validates) {
  require(budget > 0, "the memory budget must be more than 0 bytes, but is {}", budget);
  const int64_t validation = validates ? validation_peak(training) : 0;
  FittedTraining fitted = fit_steps(training, std::max(budget, validation), budget);
  if (validation <= budget) return fitted;
  throw Error(fmt::format("a training run takes at least {} bytes ({}), for its validations, and the budget is {}",
                          validation, bytes_text(validation), budget),
              "give it that many, hold out nothing, or use a smaller batch or fewer timesteps");
}

}  // namespace stepnet
