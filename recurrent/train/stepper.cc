#include "recurrent/train/stepper.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "core/operator/anomaly.h"
#include "core/operator/observer.h"
#include "core/passes/block_losses.h"
#include "recurrent/train/text_batches.h"
#include "stepnet/matmul.h"
#include "stepnet/profiler.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

// Of the ranks that train together each draws its own numbers, and the first one those of a run by itself.
uint64_t seed_of(uint64_t seed, const Model& model) {
  constexpr uint64_t kApart = 0x9E3779B97F4A7C15;
  return model.ranks ? seed + kApart * static_cast<uint64_t>(model.ranks->rank()) : seed;
}

constexpr std::string_view kCarry = "carry/";
const std::string kState = "state/";
bool is_carried(const std::string& saved) { return saved.starts_with(kCarry); }

constexpr const char* kPosition = "position";  // iteration and place of the next batch, int64 [2]

const Tensor& saved_as(const std::map<std::string, Tensor>& saved, const std::string& name) {
  const auto it = saved.find(name);
  require(it != saved.end(), "the checkpoint has no \"{}\"", name);
  return it->second;
}

void require_alike(const std::string& name, const Tensor& from, DType dtype, const Shape& shape) {
  require(from.dtype() == dtype && from.shape() == shape, "\"{}\" is {} in the checkpoint, but {} here", name, from,
          TensorType::of(dtype, shape).str());
}

// Shows gradients when all of them are as the updates read them. `other`: what else observes the net, or null.
class GradientWatch final : public NetObserver {
 public:
  GradientWatch(const TrainingNet& net, const Workspace& blobs, const GradientFunction& see, NetObserver* other)
      : net_(net), blobs_(blobs), see_(see), other_(other) {}

  void before(const BoundOp& op) override {
    if (std::ranges::count(op.def.output(), net_.planned_rate) > 0)
      for (size_t i = 0; i < net_.used.size(); ++i) see_(net_.trained[i], blobs_.fetch(net_.used[i]));
    if (other_) other_->before(op);
  }
  void after(const BoundOp& op) override {
    if (other_) other_->after(op);
  }

 private:
  const TrainingNet& net_;
  const Workspace& blobs_;
  const GradientFunction& see_;
  NetObserver* other_;
};

}  // namespace

TrainingSession::TrainingSession(const Model& model, OptimizerOptions optimizer, TextStreams streams, uint64_t seed,
                                 int64_t iterations, bool plan_memory)
    : TrainingSession(model, std::move(optimizer), text_batches(model, std::move(streams)), seed, iterations,
                      plan_memory) {}

TrainingSession::TrainingSession(Model model, OptimizerOptions optimizer, std::unique_ptr<BatchSource> source,
                                 uint64_t seed, int64_t iterations, bool plan_memory)
    : model_(std::move(model)),
      optimizer_(std::move(optimizer)),
      source_(std::move(source)),
      seed_(seed),
      plan_memory_(plan_memory),
      workspace_(&parameters_),
      averages_(&parameters_) {
  check_optimizer(optimizer_);
  parameters_.confine(model_.files);
  RunContext run;
  run.seed = seed_;
  run_net_once(model_.init, parameters_, run, NetOptions{.force_cpu = true});
  keep_own(model_, parameters_);
  for (const std::string& name : parameters_.names())
    if (Blob& blob = parameters_.at(name); blob.is_tensor() && blob.tensor().defined()) {
      if (range_of(blob.tensor()).infinite) infinite_.insert(name);
      blob.tensor() = on_device(blob.tensor(), model_.device);
    }
  names_ = stepnet::parameter_names(model_, parameters_);
  if (model_.ranks && !model_.stage)
    for (const std::string& name : names_) model_.ranks->broadcast(parameters_.at(name).tensor());
  dtype_ = parameters_.fetch(names_.front()).dtype();
  states_ = std::make_unique<CarriedStates>(model_, dtype_, workspace_);
  states_->reset(model_.batch);  // first, for what runs again depends on their types
  build_net(iterations);
}

// Blobs of a net built before are dropped, so that the new net sees them as intermediates of its own.
void TrainingSession::build_net(int64_t iterations) {
  if (model_.ranks) {
    model_.ranks->enter(workspace_);
    set_share(1);
  }
  training_ = build_training_net(model_, names_, parameters_, optimizer_, iterations);
  states_->carry(training_.sensitivities);
  infer_net(training_.net, {});  // what is wrong with an option shows before the first step
  std::set<std::string> stay(states_->read().begin(), states_->read().end());
  for (const auto& [name, value] : training_.first_values) stay.insert(name);
  if (model_.ranks) stay.insert({model_.ranks->blob(), training_.share});
  for (const std::string& name : workspace_.names())
    if (stay.count(name) == 0) workspace_.remove(name);
  for (const auto& [name, value] : training_.first_values)
    if (!workspace_.find(name)) workspace_.create_local(name).tensor() = on_device(value, model_.device);
  for (const std::string& name : states_->written()) workspace_.create_local(name);
  for (const auto& [name, type] : batch_types(model_)) workspace_.create_local(name);
  const int64_t runs = net_ ? net_->runs() : 0;
  NetDef def = with_recomputation(training_, model_, workspace_);
  leave_gradients_in_place(def, training_.differentiated);
  NetOptions options{.plan_memory = plan_memory_};
  if (const int begin = update_begin(def); begin >= 0) {
    const NetDef second = take_update(def, begin, training_);
    options.keep = left_for_update(training_);
    if (training_.scaled) options.keep.insert(training_.finite);
    net_ = std::make_unique<Net>(def, workspace_, options);
    // What it makes besides is small, and a block of its own would be there while the first part runs.
    update_ = std::make_unique<Net>(second, workspace_, NetOptions{.release_intermediates = plan_memory_});
  } else {
    net_ = std::make_unique<Net>(def, workspace_, options);
  }
  net_->set_runs(runs);
}

void TrainingSession::let_go_of_memory() {
  net_->let_go_of_memory();
  if (update_) update_->let_go_of_memory();
  std::set<std::string> stay(states_->read().begin(), states_->read().end());
  for (const auto& [name, value] : training_.first_values) stay.insert(name);
  for (const std::string& name : {training_.rate, training_.finite, model_.loss}) stay.insert(name);
  if (model_.ranks) stay.insert({model_.ranks->blob(), training_.share});
  for (const std::string& name : workspace_.names())
    if (stay.count(name) == 0) workspace_.at(name).clear();
  forget_products();
}

void TrainingSession::set_schedule_end(int64_t iterations) { build_net(iterations); }

// Gradients of a scaled loss may overflow; of one whose scale has been halved below 1 they should not.
bool TrainingSession::may_overflow() const {
  return training_.scaled && !(optimizer_.dynamic_scale && loss_scale() < 1);
}

// Runs the net on the next batch, and returns its loss; of several ranks its part of theirs.
double TrainingSession::run_batch(RunContext& run) {
  const double before = now_seconds();
  source_->next(batch_);
  if (run.profiler) run.profiler->record("next batch", now_seconds() - before, 0, 0);
  if (batch_.starts) states_->reset(model_.batch);
  feed(workspace_, model_.device, batch_);
  if (model_.ranks) set_share(batch_.share);
  net_->run(run);
  states_->advance();
  const double loss = has_loss(model_) ? on_device(workspace_.fetch(model_.loss), {}).item<double>() : 0;
  if (!model_.ranks) return loss;
  return batch_.share > 0 ? batch_.share * loss : 0;
}

double TrainingSession::sum_over_ranks(double loss) {
  std::vector<double> values = {loss};
  if (beside_) std::ranges::copy(beside_(), std::back_inserter(values));
  if (model_.ranks) values = model_.ranks->sum(values);
  summed_.assign(values.begin() + 1, values.end());
  return values[0];
}

// Where it is: a second tensor would come on top of the block that a planned net has all the time.
void TrainingSession::set_share(double share) {
  Tensor& value = workspace_.create_local(training_.share).tensor();
  if (model_.device.kind != DeviceKind::cpu) {
    value = on_device(dtype_ == DType::float64 ? Tensor::of<double>({1}, {share})
                                               : Tensor::of<float>({1}, {static_cast<float>(share)}),
                      model_.device);
    return;
  }
  value.resize(dtype_, {1});
  if (dtype_ == DType::float64)
    *value.data<double>() = share;
  else
    *value.data<float>() = static_cast<float>(share);
  value.mark_written();
}

double TrainingSession::step(Profiler* profiler, TensorPacker* packer, bool detect_anomaly,
                             const GradientFunction& gradients) {
  RunContext run;
  run.seed = seed_of(seed_, model_);
  run.profiler = profiler;
  run.packer = packer;
  if (warn_) run.warn = &warn_;
  std::optional<AnomalyWatch> watch;
  if (detect_anomaly) run.anomalies = &watch.emplace(may_overflow() ? model_.loss : "");
  if (detect_anomaly) run.observer = &*watch;
  GradientWatch gradient_watch(training_, workspace_, gradients, run.observer);
  if (gradients) run.observer = &gradient_watch;
  double loss = 0;
  for (int64_t i = 0; i < optimizer_.accumulate; ++i) loss += run_batch(run);
  loss = sum_over_ranks(loss);
  loss /= static_cast<double>(optimizer_.accumulate);
  if (update_) update(run);
  // A scale below 1 has been halved so often that it is not at fault.
  const bool may_be_scale = skipped_ && optimizer_.dynamic_scale && loss_scale() >= 1;
  if (!std::isfinite(loss) && !may_be_scale)
    throw Error(fmt::format("the loss is {} in iteration {}", std::isnan(loss) ? NAN : loss, iteration()), kFiniteFix);
  return loss;
}

void TrainingSession::update(RunContext& run) {
  skipped_ = training_.scaled && !*on_device(workspace_.fetch(training_.finite), {}).data<bool>();
  if (!skipped_) update_->run(run);
  // Kept for the second part alone; in a step of one part they would be gone as well.
  for (const std::string& name : left_for_update(training_)) workspace_.at(name).tensor().drop_bytes();
}

double TrainingSession::loss_scale() const {
  return training_.scaled ? on_device(workspace_.fetch(training_.scale), {}).item<double>() : 0;
}

// Until an update has made it, that of the options.
double TrainingSession::learning_rate() const {
  const Blob* rate = workspace_.find(training_.rate);
  const bool made = iteration() > 0 && rate && rate->is_tensor() && !rate->empty() && rate->tensor().defined();
  return made ? std::abs(on_device(rate->tensor(), {}).item<double>()) : optimizer_.lr;
}

void TrainingSession::multiply_rate(double factor) {
  Tensor& own = workspace_.at(training_.factor).tensor();
  own.copy_from(Tensor::scalar(static_cast<float>(on_device(own, {}).item<double>() * factor)));
}

Workspace& TrainingSession::parameters_to_use() {
  for (const auto& [parameter, average] : training_.averages)
    averages_.create_local(parameter).tensor() = workspace_.at(average).tensor();
  return training_.averages.empty() ? parameters_ : averages_;
}

std::map<std::string, Blob*> TrainingSession::saved_blobs() const {
  std::map<std::string, Blob*> blobs;
  for (const std::string& name : names_) blobs["parameter/" + name] = &parameters_.at(name);
  for (const auto& [name, value] : training_.first_values)
    if (training_.shared_states.count(name) == 0) blobs[kState + name] = &workspace_.at(name);
  for (const std::string& name : states_->read()) blobs[std::string(kCarry) + name] = &workspace_.at(name);
  return blobs;
}

std::string TrainingSession::not_finite() const {
  const auto text = [&](const char* what, const std::string& name, const Tensor& value) {
    const ValueRange range = range_of(value);
    if (range.finite() || (!range.nan && infinite_.count(name) > 0)) return std::string();
    return fmt::format("the {} \"{}\" is {} at {}", what, name, range.first_value,
                       index_text(value.shape(), range.first));
  };
  for (const std::string& name : names_)
    if (std::string found = text("parameter", name, parameters_.at(name).tensor()); !found.empty()) return found;
  for (const auto& [name, value] : training_.first_values)
    if (std::string found = text("optimizer's state", name, workspace_.at(name).tensor()); !found.empty()) return found;
  for (const std::string& name : states_->read())
    if (std::string found = text("carried state", name, workspace_.at(name).tensor()); !found.empty()) return found;
  return "";
}

std::map<std::string, Tensor> TrainingSession::save() const {
  std::map<std::string, Tensor> saved;
  for (const auto& [name, blob] : saved_blobs())
    saved[name] =
        shares_batch() && is_carried(name) ? model_.ranks->gather(blob->tensor()) : on_device(blob->tensor(), {});
  for (const auto& [name, state] : training_.shared_states) save_shared(name, state, saved);
  if (model_.ranks && model_.stage) model_.ranks->collect(saved);
  saved[kPosition] = Tensor::of<int64_t>({2}, {iteration(), source_->position()});
  return saved;
}

// As one process has it: the state of each parameter.
void TrainingSession::save_shared(const std::string& name, const TrainingNet::SharedState& state,
                                  std::map<std::string, Tensor>& saved) const {
  const Tensor part = workspace_.at(name).tensor();
  const Tensor all = model_.ranks->gather(part.reshaped({1, part.size()}));
  const Tensor elements = all.reshaped({all.size()});
  int64_t at = 0;
  for (const std::string& p : state.parameters) {
    const Shape& shape = parameters_.fetch(p).shape();
    Tensor& own = saved[kState + "train/" + p + state.suffix];
    own = Tensor::empty(part.dtype(), shape);
    own.copy_from(elements.rows(at, shape.size()).reshaped(shape));
    at += shape.size();
  }
}

void TrainingSession::restore_shared(const std::string& name, const TrainingNet::SharedState& state,
                                     const std::map<std::string, Tensor>& saved) {
  Tensor& part = workspace_.at(name).tensor();
  Tensor all = Tensor::zeros(part.dtype(), {part.size() * model_.ranks->size()});
  int64_t at = 0;
  for (const std::string& p : state.parameters) {
    const Shape& shape = parameters_.fetch(p).shape();
    const std::string own = kState + "train/" + p + state.suffix;
    const Tensor& from = saved_as(saved, own);
    require_alike(own, from, part.dtype(), shape);
    Tensor to = all.rows(at, shape.size());
    to.copy_from(from.reshaped({shape.size()}));
    at += shape.size();
  }
  part.copy_from(all.rows(part.size() * model_.ranks->rank(), part.size()));
}

// Of carried states [1, B, ...] the rank's own rows.
Tensor TrainingSession::part_of(const Tensor& all, const Tensor& part) const {
  const int64_t rows = part.dim(1);
  if (all.rank() != part.rank() || all.dim(0) != 1 || all.dim(1) != rows * model_.ranks->size()) return all;
  Tensor row = all.reshaped(all.shape().from(1)).rows(rows * model_.ranks->rank(), rows);
  return row.reshaped(part.shape());
}

void TrainingSession::restore(const std::map<std::string, Tensor>& saved) {
  for (const auto& [name, blob] : saved_blobs()) {
    Tensor from = saved_as(saved, name);
    Tensor& to = blob->tensor();
    if (shares_batch() && is_carried(name)) from = part_of(from, to);
    require_alike(name, from, to.dtype(), to.shape());
    to.copy_from(from);
  }
  for (const auto& [name, state] : training_.shared_states) restore_shared(name, state, saved);
  const Tensor& position = saved_as(saved, kPosition);
  require(position.dtype() == DType::int64 && position.size() == 2, "\"{}\" is {} in the checkpoint", kPosition,
          position);
  const auto values = position.span<int64_t>();
  require(values[0] >= 0 && values[0] < std::numeric_limits<int64_t>::max(),
          "the checkpoint's iteration is {}, from which no run can go on", values[0]);
  net_->set_runs(values[0] * optimizer_.accumulate);
  source_->set_position(values[1]);
}

}  // namespace stepnet
