#include "recurrent/train/training_net.h"

#include <algorithm>
#include <cmath>

#include "core/passes/block_losses.h"
#include "core/passes/recompute.h"
#include "recurrent/form/keep_bits.h"
#include "recurrent/form/per_sample.h"
#include "recurrent/form/spec.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

constexpr const char* kOne = "train/one";
constexpr const char* kNorm = "train/gradient_norm";
constexpr const char* kGoodSteps = "train/good_steps";
constexpr const char* kUpdateScale = "UpdateLossScale";

void add_op(NetDef& net, const std::string& type, const std::vector<std::string>& inputs,
            const std::vector<std::string>& outputs, const std::vector<Argument>& args = {}) {
  OperatorDef& op = *net.add_op();
  op.set_type(type);
  op.mutable_input()->Add(inputs.begin(), inputs.end());
  op.mutable_output()->Add(outputs.begin(), outputs.end());
  op.mutable_arg()->Add(args.begin(), args.end());
}

// The name of an optimizer in the public format's form is that of PyTorch's with this before it.
constexpr std::string_view kPublic = "caffe2-";
bool is_public(const std::string& optimizer) { return optimizer.starts_with(kPublic); }
std::string rule_of(const std::string& optimizer) {
  return is_public(optimizer) ? optimizer.substr(kPublic.size()) : optimizer;
}
constexpr const char* kRounded = "bfloat16";
constexpr const char* kSynchronized = "synchronized";
constexpr const char* kOneCycle = "oneCycle";
constexpr const char* kPlateau = "plateau";
constexpr const char* kCounted = "train/batches";  // whose gradients have been added up

bool is_momentum(const std::string& optimizer) {
  return rule_of(optimizer) == "momentum" || rule_of(optimizer) == "nesterov";
}

Argument number(const std::string& name, double value) { return make_arg(name, static_cast<float>(value)); }

// Half a cosine from the rate to `least` of it at the end, after a warm-up that begins at `start` of it.
void add_cosine(int64_t warmup, int64_t iterations, double start, double least, std::vector<Argument>& args) {
  const std::string prefix = warmup > 0 ? "cosine_" : "";
  args.push_back(make_arg("policy", warmup > 0 ? "compositeCosine" : "cosine"));
  if (warmup > 0) {
    args.push_back(number("start_warmup_multiplier", start));
    args.push_back(make_arg("constant_warmup_num_iter", int64_t{0}));
    args.push_back(make_arg("linear_warmup_num_iter", warmup));
  }
  args.push_back(number(prefix + "max_lr", 1));
  args.push_back(number(prefix + "min_lr", least));
  args.push_back(number(prefix + "lr_shrink", 1));
  args.push_back(make_arg(prefix + "period", std::max<int64_t>(1, iterations - warmup)));
}

std::vector<Argument> rate_args(const OptimizerOptions& o, int64_t iterations) {
  const bool positive = is_momentum(o.optimizer);
  std::vector<Argument> args = {number("base_lr", positive ? o.lr : -o.lr)};
  if (o.lr_policy == "cosine" || o.lr_policy == "warmupCosine") {
    add_cosine(o.lr_policy == "cosine" ? 0 : o.lr_warmup, iterations, 0, 0, args);
    return args;
  }
  if (o.lr_policy == kOneCycle) {
    const auto rising = std::max<int64_t>(1, std::llround(0.3 * static_cast<double>(iterations)));
    add_cosine(rising, iterations, 1.0 / 25, 1.0 / 25e4, args);
    return args;
  }
  args.push_back(make_arg("policy", o.lr_policy == kPlateau ? "fixed" : o.lr_policy));
  auto for_policies = [&](std::initializer_list<const char*> policies, const Argument& arg) {
    if (std::any_of(policies.begin(), policies.end(), [&](const char* p) { return o.lr_policy == p; }))
      args.push_back(arg);
  };
  for_policies({"step", "exp", "inv"}, number("gamma", o.lr_gamma));
  for_policies({"inv", "poly"}, number("power", o.lr_power));
  for_policies({"step"}, make_arg("stepsize", o.lr_stepsize));
  for_policies({"poly"}, make_arg("max_iter", iterations));
  for_policies({"linearWarmup"}, number("start_multiplier", 0));
  for_policies({"linearWarmup", "constantWarmup"}, make_arg("num_iter", o.lr_warmup));
  return args;
}

class Builder {
 public:
  Builder(const Model& model, const Workspace& workspace, const OptimizerOptions& options,
          const std::map<std::string, TensorType>& fed)
      : model_(model), workspace_(workspace), options_(own_numbers(options)), fed_(fed) {}

  TrainingNet build(std::vector<std::string> parameters, int64_t iterations) {
    std::erase_if(parameters, [&](const std::string& p) { return group(p).frozen(); });
    // Of ranks that share layers all together have some, which their plan sees to.
    require(!parameters.empty() || model_.stage,
            "all parameters of the model are frozen, so there is nothing to train");
    make_forward(parameters);
    std::vector<std::string> gradients = options_.dp_clip > 0 ? clip_by_stream(parameters) : differentiate(parameters);
    const bool shares = model_.ranks && !model_.stage;  // the batch
    if (shares && options_.accumulate == 1) add_over_ranks(gradients);
    if (options_.loss_scale > 0) unscale(gradients);
    if (options_.accumulate > 1) accumulate(gradients);
    if (shares && options_.accumulate > 1) add_over_ranks(gradients);
    if (shards_out()) {
      clip_shards();
      add_rate(iterations);
      for (size_t i = 0; i < shards_.size(); ++i) update_shard(i);
    } else {
      if (options_.clip > 0) clip(gradients);
      result_.used = gradients;
      add_rate(iterations);
      for (size_t i = 0; i < gradients.size(); ++i) {
        rate_ = rate_for(result_.trained[i]);
        update(result_.trained[i], gradients[i]);
      }
    }
    if (options_.average > 0) add_averages();
    for (const std::string& sum : sums_) add_op(result_.net, "Scale", {sum}, {sum}, {number("scale", 0)});
    add_op(result_.net, "Iter", {result_.iteration}, {result_.iteration});
    result_.net.add_external_output(result_.rate);
    result_.first_values.emplace_back(result_.iteration, Tensor::zeros(DType::int64, {1}));
    if (rule_ == "sgd" || rule_ == "rmsprop" || rule_ == "lion")
      result_.first_values.emplace_back(kOne, Tensor::of<float>({1}, {1.0f}));
    return std::move(result_);
  }

 private:
  void add_rate(int64_t iterations) {
    const bool changes = options_.lr_policy == kPlateau;
    if (changes) result_.planned_rate = "train/planned_rate";
    const std::string& planned = result_.planned_rate;
    add_op(result_.net, "LearningRate", {result_.iteration}, {planned}, rate_args(options_, iterations));
    if (!changes) return;
    result_.factor = "train/rate_factor";
    result_.first_values.emplace_back(result_.factor, Tensor::scalar(1.0f));
    add_op(result_.net, "Mul", {planned, result_.factor}, {result_.rate});
  }

  // In place of each gradient the mean over batches, of which the last is the one that the update follows.
  void accumulate(std::vector<std::string>& gradients) {
    const std::string counted = kCounted;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::string sum = zeros_like(result_.trained[i], "_gradient_sum");
      add_op(result_.net, "Add", {sum, gradients[i]}, {sum});
      sums_.push_back(sum);
    }
    result_.first_values.emplace_back(counted, Tensor::zeros(DType::int64, {1}));
    add_op(result_.net, "Iter", {counted}, {counted});
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = "train/" + result_.trained[i] + "_mean_gradient";
      add_op(result_.net, "Scale", {sums_[i]}, {gradients[i]},
             {number("scale", 1 / static_cast<double>(options_.accumulate))});
    }
  }

  // Of what each update leaves.
  void add_averages() {
    const std::string kept = "train/average_kept", added = "train/average_added";
    const auto share = static_cast<float>(options_.average);
    result_.first_values.emplace_back(kept, Tensor::of<float>({1}, {share}));
    result_.first_values.emplace_back(added, Tensor::of<float>({1}, {1 - share}));
    for (const std::string& p : result_.trained) {
      const std::string average = result_.averages[p] = "train/" + p + "_average";
      const Tensor& now = workspace_.fetch(p);
      Tensor first = Tensor::empty(now.dtype(), now.shape());
      first.copy_from(on_device(now, {}));
      result_.first_values.emplace_back(average, first);
      add_op(result_.net, "WeightedSum", {average, kept, p, added}, {average});
    }
  }

  void add_over_ranks(const std::vector<std::string>& gradients) {
    std::vector<ReducedGradient> reduced;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Tensor& p = workspace_.fetch(result_.trained[i]);
      ReducedGradient g{gradients[i], result_.trained[i], TensorType::of(p.dtype(), p.shape()),
                        group(result_.trained[i]).parameters()};
      if (const auto rows = rows_.find(g.parameter); rows != rows_.end()) {
        g.indices = rows->second.indices;
        g.values = rows->second.values;
      }
      reduced.push_back(std::move(g));
    }
    const DType move_as = is_rounded() ? DType::bfloat16 : DType::float32;
    if (shards_out())
      shards_ = model_.ranks->add_sharded_reductions(result_.net, reduced, move_as);
    else
      model_.ranks->add_reductions(result_.net, reduced, move_as);
  }

  bool is_rounded() const { return options_.reduce == kRounded; }

  // True if all ranks' rows are fewer bytes than what moves of the dense gradient: a rank gets the others' rows once,
  // and what it has of the dense one goes around and comes back as a sum, or where it is sharded does not come back.
  // Where the number of rows depends on data, a table whose rows are looked up is taken to be large. Rows are gathered
  // on the CPU, and a rank of a wavefront has its gradients for itself.
  bool moves_as_rows(const std::string& p, const GradientName& name) {
    if (!model_.ranks || model_.stage || model_.device.kind != DeviceKind::cpu || options_.accumulate > 1) return false;
    if (types_.empty()) types_ = infer_net(result_.net, types());
    const auto indices = types_.find(name.indices);
    if (indices == types_.end() || !indices->second.known) return true;
    const Tensor& table = workspace_.fetch(p);
    const auto element = static_cast<double>(dtype_size(is_rounded() ? DType::bfloat16 : table.dtype()));
    const double row = element * static_cast<double>(table.shape().from(1).size()) +
                       static_cast<double>(dtype_size(indices->second.dtype));
    const double rows = static_cast<double>(indices->second.shape.size()) * model_.ranks->size();
    return rows * row < (shards_out() ? 1 : 2) * element * static_cast<double>(table.size());
  }

  // Each rank updates its part of the parameters, and has the optimizer's state of that alone.
  // Source: S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, stage 1.
  bool shards_out() const { return options_.shard && model_.ranks; }

  // Each rank of a wavefront has gradients of its own, whose norm together is clipped; or none, which are as 0.
  void clip(std::vector<std::string> gradients) {
    const bool over_ranks = model_.stage && model_.ranks;
    if (over_ranks && gradients.empty()) {
      gradients = {"train/no_gradient"};
      add_op(result_.net, "ConstantFill", {}, gradients, {make_arg("shape", std::vector<int64_t>{1})});
    }
    std::vector<std::string> inputs = gradients, outputs = gradients;
    outputs.emplace_back(kNorm);
    if (over_ranks) inputs.insert(inputs.begin(), model_.ranks->blob());
    add_op(result_.net, over_ranks ? "ShardedNormClip" : "GlobalNormClip", inputs, outputs,
           {number("max_norm", options_.clip)});
  }

  void clip_shards() {
    if (options_.clip == 0) return;
    std::vector<std::string> inputs = {model_.ranks->blob()}, outputs;
    for (const ParameterShard& shard : shards_) {
      inputs.push_back(shard.gradient);
      outputs.push_back(shard.gradient);
    }
    outputs.emplace_back(kNorm);
    add_op(result_.net, "ShardedNormClip", inputs, outputs, {number("max_norm", options_.clip)});
  }

  void update_shard(size_t i) {
    const ParameterShard& shard = shards_[i];
    const std::string own = fmt::format("shard_{}", i);
    std::vector<std::string> taken = {model_.ranks->blob()}, gathered = {model_.ranks->blob(), own};
    for (const std::string& p : shard.parameters) {
      taken.push_back(p);
      gathered.push_back(p);
    }
    add_op(result_.net, "TakeShard", taken, {own});
    rate_ = rate_for(shard.parameters.front());
    shard_ = &shard;
    update(own, shard.gradient);
    shard_ = nullptr;
    add_op(result_.net, "GatherShards", gathered, shard.parameters);
  }

  // Of the parameter, or of all those of the shard that is updated.
  const ParameterGroup& group(const std::string& p) const {
    static const ParameterGroup none;
    const ParameterGroup* found = group_of(model_, shard_ ? shard_->parameters.front() : p);
    return found ? *found : none;
  }

  // The learning rate, times what the parameter's group says.
  std::string rate_for(const std::string& p) {
    const ParameterGroup& own = group(p);
    require(!own.has_weight_decay() || rule_ == "adamw" || rule_ == "lion" || rule_ == "lamb",
            "the group \"{}\" has a weight decay, which the optimizer {} does not have", own.parameters(),
            options_.optimizer);
    if (!own.has_rate()) return result_.rate;
    const std::string name = "train/" + own.parameters() + "_rate";
    if (rates_.insert(name).second) add_op(result_.net, "Scale", {result_.rate}, {name}, {number("scale", own.rate())});
    return name;
  }

  double weight_decay(const std::string& p) const {
    const ParameterGroup& own = group(p);
    return own.has_weight_decay() ? own.weight_decay() : options_.weight_decay;
  }

  // What the net reads; streams are the batch's samples.
  SampleRequest samples_of(const Model& model) const {
    require(!model.input.empty(),
            "gradients are told by the streams of a text, but the model does not say what holds them");
    SampleRequest request{.loss = model.loss, .parameters = {}, .types = {}, .batch_axes = {}, .samples = model.batch};
    std::vector<std::string> names = parameter_names(model, workspace_);
    std::erase_if(names, [&](const std::string& p) { return group(p).frozen(); });
    DType dtype = DType::float32;
    for (const std::string& name : workspace_.names()) {
      const Blob& blob = workspace_.at(name);
      if (!blob.is_tensor() || !blob.tensor().defined()) continue;
      request.types[name] = TensorType::of(blob.tensor().dtype(), blob.tensor().shape());
      if (std::ranges::count(names, name) > 0) dtype = blob.tensor().dtype();
    }
    request.parameters.insert(names.begin(), names.end());
    const auto holds = [&](const std::string& name, DType type, const Shape& shape, int axis) {
      request.types[name] = TensorType::of(type, shape);
      request.batch_axes[name] = axis;
    };
    holds(model.input, DType::int32, {model.timesteps, model.batch}, 1);
    holds(model.target, DType::int32, {model.timesteps * model.batch}, 0);
    for (const CarryLink& link : model.carry) holds(link.to(), dtype, {1, model.batch, link.size()}, 1);
    return request;
  }

  // The sum of the streams' gradients, each clipped, with noise, divided by their number. The loss is the mean of the
  // streams' losses, so a stream's gradient is as many times what it adds to that of the loss.
  // Source: M. Abadi et al., Deep learning with differential privacy, 2016, algorithm 1.
  std::vector<std::string> clip_by_stream(const std::vector<std::string>& parameters) {
    std::set<std::string> stop;
    for (const CarryLink& link : model_.carry) stop.insert(link.to());
    result_.differentiated = differentiate_taps(result_.net, taps_, model_.loss, "", stop);
    const std::string squares = add_squared_norms(result_.net, taps_);
    const auto streams = static_cast<double>(model_.batch);
    add_op(result_.net, "Sqrt", {squares}, {"train/stream_norms"});
    add_op(result_.net, "Scale", {"train/stream_norms"}, {"train/stream_excess"},
           {number("scale", streams / options_.dp_clip)});
    add_op(result_.net, "Clip", {"train/stream_excess"}, {"train/stream_divisors"}, {number("min", 1)});
    add_op(result_.net, "Pow", {"train/stream_divisors"}, {"train/stream_factors"}, {number("exponent", -1)});
    const auto sums = add_weighted_gradients(result_.net, taps_, "train/stream_factors");
    for (const std::string& p : parameters) {
      const auto sum = sums.find(p);
      if (sum == sums.end()) continue;  // the loss does not depend on it
      result_.trained.push_back(p);
      result_.gradients.push_back(with_noise(p, sum->second, options_.dp_noise * options_.dp_clip / streams));
    }
    return result_.gradients;
  }

  std::string with_noise(const std::string& p, const std::string& sum, double deviation) {
    if (deviation == 0) return sum;
    const std::string noise = "train/" + p + "_noise", noisy = "train/" + p + "_gradient";
    add_op(result_.net, "GaussianFill", {p}, {noise}, {number("std", deviation)});
    add_op(result_.net, "Add", {sum, noise}, {noisy});
    return noisy;
  }

  void make_forward(const std::vector<std::string>& parameters) {
    Model model = model_;
    // From the net as it is written: what networks become may be no net that sensitivities are carried through.
    if (model.learning)
      result_.sensitivities =
          add_sensitivities(model.forward, {*model.learning, {parameters.begin(), parameters.end()}});
    for (const CarriedSensitivity& carried : result_.sensitivities.carried) check_carried(carried);
    if (options_.dp_clip > 0) taps_ = tap_parameters(model.forward, samples_of(model));
    // What is carried through a network, or told by samples, is known by the network's own operators; a stage's blocks
    // are cut already.
    const bool whole = model.learning || options_.dp_clip > 0 || model.stage;
    result_.net = expanded_forward(model, Mode::train, whole ? std::map<std::string, TensorType>{} : types());
    if (model_.ranks && options_.batch_norm == kSynchronized)
      model_.ranks->synchronize_batch_norms(result_.net, result_.share);
    result_.net.set_name(model.forward.name() + "_train");
    for (const CarriedSensitivity& carried : result_.sensitivities.carried)
      result_.net.add_external_output(carried.last);
  }

  // A sensitivity is that of the state which the next window starts with.
  void check_carried(const CarriedSensitivity& carried) const {
    const auto link = std::ranges::find(model_.carry, carried.state, &CarryLink::to);
    if (link == model_.carry.end() || carried.last_state.empty() || link->from() != carried.last_state)
      throw Error(
          fmt::format("the state that starts with \"{}\" has sensitivities, but the model does not carry what "
                      "the network leaves as its last value{}",
                      carried.state, carried.last_state.empty() ? "" : fmt::format(", \"{}\"", carried.last_state)),
          "let a carry lead from there to the initial value, or learn by bptt");
  }

  std::map<std::string, TensorType> types() const {
    std::map<std::string, TensorType> types = known_types(model_, workspace_);
    types.insert(fed_.begin(), fed_.end());
    for (size_t b = 0; model_.stage && b < model_.stage->received.size(); ++b)
      types[model_.stage->received[b]] = model_.stage->received_types[b];
    return types;
  }

  std::vector<std::string> differentiate(const std::vector<std::string>& parameters) {
    GradientRequest request;
    if (has_loss(model_)) request.targets.emplace_back(model_.loss, first_gradient());
    request.wanted.insert(parameters.begin(), parameters.end());
    if (model_.stage) ask_for_messages(request);
    if (request.targets.empty()) return leave_undifferentiated();
    for (const CarryLink& link : model_.carry) request.stop.insert(link.to());
    for (const CarriedSensitivity& carried : result_.sensitivities.carried) request.stop.insert(carried.first);
    block_losses(result_.net, &request, types());
    keep_bits(result_.net, request);
    for (OperatorDef& op : *result_.net.mutable_op())
      if (op.type() == kRecurrentNetwork && !find_arg(op, "rebuild_states"))
        *op.add_arg() = make_arg("rebuild_states", true);
    const GradientResult& result = result_.differentiated = add_gradient_operators(result_.net, request);
    if (model_.stage) exchange();
    std::vector<std::string> gradients;
    for (const std::string& p : parameters) {
      const auto found = result.gradients.find(p);
      if (found == result.gradients.end() || !found->second.defined()) continue;  // the loss does not depend on it
      const GradientName& name = found->second;
      gradients.push_back(own_gradient(p, name, gradients));
      result_.trained.push_back(p);
    }
    return result_.gradients = gradients;
  }

  // A rank's gradients start with those that the next one sends back.
  void ask_for_messages(GradientRequest& request) const {
    const Model::Stage& stage = *model_.stage;
    if (stage.gets_gradients)
      for (const std::string& sent : stage.sent) request.targets.emplace_back(sent, received_gradient(sent));
    if (stage.gives_gradients) request.wanted.insert(stage.received.begin(), stage.received.end());
    if (request.wanted.empty()) request.targets.clear();
  }

  // A rank that no gradient reaches, or that has nothing to train, only runs forward.
  std::vector<std::string> leave_undifferentiated() {
    result_.differentiated.first_gradient_op = result_.net.op_size();
    exchange();
    return {};
  }

  void exchange() {
    const Model::Stage& stage = *model_.stage;
    GradientResult& result = result_.differentiated;
    add_up_by_blocks(result_.net, result.first_gradient_op);
    if (!model_.ranks) return;
    StageMessages messages{.received = stage.received, .sent = stage.sent};
    if (stage.gets_gradients)
      for (const std::string& sent : stage.sent) messages.received_gradients.push_back(received_gradient(sent));
    if (stage.gives_gradients)
      for (const std::string& received : stage.received)
        messages.sent_gradients.push_back(result.gradients.at(received).dense);
    const std::vector<int> moved = add_messages(result_.net, stage, messages, model_.ranks->blob());
    result.first_gradient_op = moved[static_cast<size_t>(result.first_gradient_op)];
    for (DifferentiatedOp& op : result.differentiated) op.op = moved[static_cast<size_t>(op.op)];
  }

  // What the backward pass starts with in place of 1; "" for 1. Of several ranks each has a part of the batch, and adds
  // as much to the mean.
  std::string first_gradient() {
    std::string gradient;
    const auto multiply = [&](const std::string& factor, const std::string& name) {
      if (gradient.empty()) {
        gradient = "train/loss_gradient_one";
        add_op(result_.net, "ConstantFill", {model_.loss}, {gradient}, {number("value", 1)});
      }
      add_op(result_.net, "Mul", {gradient, factor}, {name}, {make_arg("broadcast", true)});
      gradient = name;
    };
    if (model_.ranks && !model_.stage) multiply(result_.share, "train/loss_gradient_share");
    if (options_.loss_scale == 0) return gradient;
    result_.scaled = true;
    result_.first_values.emplace_back(result_.scale, Tensor::scalar(static_cast<float>(options_.loss_scale)));
    result_.first_values.emplace_back(kGoodSteps, Tensor::scalar(int32_t{0}));
    multiply(result_.scale, "train/loss_gradient");
    return gradient;
  }

  void unscale(const std::vector<std::string>& gradients) {
    std::vector<std::string> inputs = gradients, outputs = gradients;
    inputs.insert(inputs.begin(), result_.scale);
    outputs.insert(outputs.begin(), result_.finite);
    add_op(result_.net, "UnscaleGradients", inputs, outputs);
    std::vector<Argument> args;
    if (!options_.dynamic_scale) args = {number("growth_factor", 1), number("backoff_factor", 1)};
    add_op(result_.net, kUpdateScale, {result_.scale, kGoodSteps, result_.finite}, {result_.scale, kGoodSteps}, args);
  }

  // A dense gradient under a name that no other parameter's gradient has: clipping and momentum write to it. One whose
  // rows are gathered is made behind that.
  std::string own_gradient(const std::string& p, const GradientName& name, const std::vector<std::string>& others) {
    const std::string own = "train/" + p + "_gradient";
    if (name.is_sparse() && moves_as_rows(p, name)) {
      rows_[p] = name;
    } else if (name.is_sparse()) {
      add_op(result_.net, "SparseToDense", {name.indices, name.values, p}, {own});
    } else if (std::find(others.begin(), others.end(), name.dense) != others.end()) {
      add_op(result_.net, "Copy", {name.dense}, {own});
    } else {
      return name.dense;
    }
    return own;
  }

  std::string zeros_like(const std::string& parameter, const std::string& name) {
    const std::string blob = "train/" + parameter + name;
    if (shard_) {
      result_.first_values.emplace_back(blob, Tensor::zeros(shard_->type.dtype, shard_->type.shape));
      result_.shared_states[blob] = {name, shard_->parameters};
      return blob;
    }
    const Tensor& p = workspace_.fetch(parameter);
    result_.first_values.emplace_back(blob, Tensor::zeros(p.dtype(), p.shape()));
    return blob;
  }

  void update(const std::string& p, const std::string& gradient) {
    if (rule_ == "adam" || rule_ == "adamw") {
      adam(p, gradient);
    } else if (rule_ == "lion") {
      lion(p, gradient);
    } else if (rule_ == "nadam") {
      nadam(p, gradient);
    } else if (rule_ == "lamb") {
      lamb(p, gradient);
    } else if (is_momentum(rule_)) {
      const std::string m = zeros_like(p, "_momentum");
      add_op(result_.net, "MomentumSGDUpdate", {gradient, m, rate_, p}, {gradient, m, p},
             {number("momentum", options_.momentum), make_arg("nesterov", rule_ == "nesterov"),
              make_arg("rate_last", !is_public_)});
    } else if (rule_ == "adagrad") {
      const std::string h = zeros_like(p, "_moment");
      add_op(result_.net, "Adagrad", {p, h, gradient, rate_}, {p, h}, {number("epsilon", options_.epsilon)});
    } else if (rule_ == "rmsprop") {
      const std::string ms = zeros_like(p, "_mean_squares"), m = zeros_like(p, "_momentum");
      add_op(result_.net, "RmsProp", {gradient, ms, m, rate_}, {gradient, ms, m},
             {number("epsilon", options_.epsilon), number("decay", options_.mean_decay),
              make_arg("rate_last", !is_public_)});
      add_op(result_.net, "WeightedSum", {p, kOne, gradient, kOne}, {p});
    } else {
      add_op(result_.net, "WeightedSum", {p, kOne, gradient, rate_}, {p});
    }
  }

  void adam(const std::string& p, const std::string& gradient) {
    const bool decays = rule_ == "adamw";
    const std::string m1 = zeros_like(p, "_moment_1"), m2 = zeros_like(p, "_moment_2");
    std::vector<Argument> args = {number("beta1", options_.beta1), number("beta2", options_.beta2),
                                  number("epsilon", options_.epsilon), make_arg("corrected_epsilon", !is_public_)};
    if (decays) args.push_back(number("weight_decay", weight_decay(p)));
    add_op(result_.net, decays ? "AdamW" : "Adam", {p, m1, m2, gradient, rate_, result_.iteration}, {p, m1, m2}, args);
  }

  void nadam(const std::string& p, const std::string& gradient) {
    const std::string m1 = zeros_like(p, "_moment_1"), m2 = zeros_like(p, "_moment_2"),
                      product = "train/" + p + "_product";
    const bool wide = workspace_.fetch(p).dtype() == DType::float64;
    const Tensor one = wide ? Tensor::of<double>({1}, {1.0}) : Tensor::of<float>({1}, {1.0F});
    result_.first_values.emplace_back(product, one);
    add_op(result_.net, "NAdam", {p, m1, m2, product, gradient, rate_, result_.iteration}, {p, m1, m2, product},
           {number("beta1", options_.beta1), number("beta2", options_.beta2), number("epsilon", options_.epsilon)});
  }

  void lamb(const std::string& p, const std::string& gradient) {
    const std::string m1 = zeros_like(p, "_moment_1"), m2 = zeros_like(p, "_moment_2");
    add_op(result_.net, "Lamb", {p, m1, m2, gradient, rate_, result_.iteration}, {p, m1, m2},
           {number("beta1", options_.beta1), number("beta2", options_.beta2), number("epsilon", options_.epsilon),
            number("weight_decay", weight_decay(p))});
  }

  // The sign of a mean of the momentum and the gradient, beside decoupled weight decay.
  // Source: X. Chen et al., Symbolic discovery of optimization algorithms, 2023, algorithm 2.
  void lion(const std::string& p, const std::string& gradient) {
    const std::string m = zeros_like(p, "_momentum"), name = "train/" + p;
    const auto mean = [&](double beta, const std::string& to) {
      add_op(result_.net, "Scale", {m}, {name + "_kept"}, {number("scale", beta)});
      add_op(result_.net, "Scale", {gradient}, {name + "_added"}, {number("scale", 1 - beta)});
      add_op(result_.net, "Add", {name + "_kept", name + "_added"}, {to});
    };
    mean(options_.beta1, name + "_mean");
    add_op(result_.net, "Sign", {name + "_mean"}, {name + "_sign"});
    add_op(result_.net, "Scale", {p}, {name + "_decay"}, {number("scale", weight_decay(p))});
    mean(options_.beta2, m);
    add_op(result_.net, "Add", {name + "_sign", name + "_decay"}, {name + "_step"});
    add_op(result_.net, "WeightedSum", {p, kOne, name + "_step", rate_}, {p});
  }

  const Model& model_;
  const Workspace& workspace_;
  const OptimizerOptions options_;
  const std::map<std::string, TensorType>& fed_;
  SampleTaps taps_;
  const std::string rule_ = rule_of(options_.optimizer);
  const bool is_public_ = is_public(options_.optimizer);
  TrainingNet result_;
  std::string rate_;  // of the parameter that is updated
  std::vector<ParameterShard> shards_;
  const ParameterShard* shard_ = nullptr;     // that is updated
  std::set<std::string> rates_;               // of groups, as far as they are made
  std::vector<std::string> sums_;             // of gradients, if they are accumulated
  std::map<std::string, GradientName> rows_;  // by parameter, of gradients whose rows all ranks gather
  std::map<std::string, TensorType> types_;   // of the passes' blobs; empty until they are asked for
};

}  // namespace

std::vector<std::string> optimizer_names() {
  return {"adam",
          "adamw",
          "adagrad",
          "rmsprop",
          "sgd",
          "momentum",
          "nesterov",
          "lion",
          "nadam",
          "lamb",
          "caffe2-adam",
          "caffe2-rmsprop",
          "caffe2-momentum",
          "caffe2-nesterov"};
}

std::vector<std::string> reduction_names() { return {"float32", kRounded}; }

std::vector<std::string> batch_norm_names() { return {"by-rank", kSynchronized}; }

OptimizerOptions own_numbers(OptimizerOptions o) {
  const bool is_lion = o.optimizer == "lion";
  const double mean_decay = is_public(o.optimizer) ? 0.9 : 0.99;
  const double epsilon = o.optimizer == "adagrad" ? 1e-10 : o.optimizer == "lamb" ? 1e-6 : 1e-8;
  if (o.beta1 < 0) o.beta1 = 0.9;
  if (o.beta2 < 0) o.beta2 = is_lion ? 0.99 : 0.999;
  if (o.epsilon < 0) o.epsilon = epsilon;
  if (o.mean_decay < 0) o.mean_decay = mean_decay;
  return o;
}

namespace {

// What takes more than the elements of its part of a gradient.
void check_sharded(const OptimizerOptions& o) {
  const std::string rule = rule_of(o.optimizer);
  require(rule != "lamb" && rule != "nadam", "the state of the optimizer {} is not shared out to ranks", o.optimizer);
  require(o.loss_scale == 0 && o.dp_clip == 0,
          "an optimizer's state that ranks share goes together neither with a scale of the loss nor with clipping by "
          "streams");
}

}  // namespace

void check_optimizer(const OptimizerOptions& o) {
  const std::vector<std::string> known = optimizer_names();
  require(std::find(known.begin(), known.end(), o.optimizer) != known.end(),
          "there is no optimizer \"{}\"; there are {}.{}", o.optimizer, fmt::join(known, ", "),
          suggest(o.optimizer, known));
  require(std::isfinite(o.lr) && o.lr > 0, "the learning rate must be greater than 0, but is {}", o.lr);
  require(std::isfinite(o.clip) && o.clip >= 0, "the clipping norm must be at least 0, but is {}", o.clip);
  require(std::isfinite(o.dp_clip) && o.dp_clip >= 0,
          "the norm that streams' gradients are clipped at must be above 0, "
          "but is {}",
          o.dp_clip);
  require(std::isfinite(o.dp_noise) && o.dp_noise >= 0, "the noise must be at least 0, but is {}", o.dp_noise);
  require(o.dp_noise == 0 || o.dp_clip > 0,
          "noise is a multiple of the norm that streams' gradients are clipped at, "
          "which is not given");
  require(o.dp_clip == 0 || o.loss_scale == 0, "gradients are told by streams without a scale of the loss");
  require(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "the weight decay must be at least 0, but is {}",
          o.weight_decay);
  require(std::isfinite(o.loss_scale) && o.loss_scale >= 0, "the scale of the loss must be above 0, but is {}",
          o.loss_scale);
  for (const auto& [name, value] : {std::pair{"beta1", o.beta1}, {"beta2", o.beta2}, {"mean-decay", o.mean_decay}})
    require(value < 1, "{} must be less than 1, but is {}", name, value);
  require(!std::isnan(o.epsilon) && !std::isinf(o.epsilon), "the epsilon must be a number, but is {}", o.epsilon);
  require(o.average >= 0 && o.average < 1,
          "what remains of the parameters' average must be from 0 to less than 1, but is {}", o.average);
  require(o.accumulate >= 1, "an iteration needs the gradients of at least 1 batch, but is to have those of {}",
          o.accumulate);
  require(o.accumulate == 1 || (o.loss_scale == 0 && o.dp_clip == 0),
          "gradients of several batches go together neither with a scale of the loss nor with clipping by streams");
  const std::vector<std::string> reductions = reduction_names();
  require(std::ranges::count(reductions, o.reduce) > 0, "gradients cannot be added up in \"{}\"; there are {}.{}",
          o.reduce, fmt::join(reductions, ", "), suggest(o.reduce, reductions));
  const std::vector<std::string> norms = batch_norm_names();
  require(std::ranges::count(norms, o.batch_norm) > 0, "batch norm cannot be \"{}\"; it is {}.{}", o.batch_norm,
          fmt::join(norms, " or "), suggest(o.batch_norm, norms));
  if (o.shard) check_sharded(o);
  require(o.lr_patience >= 1, "the rate waits for at least 1 validation, but is to wait for {}", o.lr_patience);
  require(o.lr_policy != kPlateau || (o.lr_gamma > 0 && o.lr_gamma < 1),
          "the rate is multiplied by {} on a plateau, but must be by a number between 0 and 1", o.lr_gamma);
  require(o.momentum >= 0 && o.momentum < 1, "the momentum must be from 0 to less than 1, but is {}", o.momentum);
}

int update_begin(const NetDef& net) {
  for (int i = net.op_size() - 1; i >= 0; --i)
    if (net.op(i).type() == kUpdateScale || (net.op(i).output_size() == 1 && net.op(i).output(0) == kCounted))
      return i + 1;
  return -1;
}

NetDef take_update(NetDef& net, int begin, const TrainingNet& training) {
  NetDef update = net;
  update.mutable_op()->DeleteSubrange(0, begin);
  net.mutable_op()->DeleteSubrange(begin, net.op_size() - begin);
  auto& outputs = *net.mutable_external_output();
  outputs.erase(std::remove(outputs.begin(), outputs.end(), training.rate), outputs.end());
  update.clear_external_output();
  update.add_external_output(training.rate);
  return update;
}

std::set<std::string> left_for_update(const TrainingNet& training) {
  if (!training.scaled) return {};
  return {training.gradients.begin(), training.gradients.end()};
}

TrainingNet build_training_net(const Model& model, const std::vector<std::string>& parameters,
                               const Workspace& workspace, const OptimizerOptions& options, int64_t iterations,
                               const std::map<std::string, TensorType>& fed) {
  check_optimizer(options);
  return Builder(model, workspace, options, fed).build(parameters, iterations);
}

MemoryQuestion training_question(const Model& model, const NetDef& net, const Workspace& blobs) {
  MemoryQuestion question{.feeds = known_types(model, blobs)};
  question.bytes = model.again.bytes;
  if (model.ranks) question.bytes[model.ranks->blob()] = 0;
  // What they keep is in no blob's size; runs say what it takes.
  for (const OperatorDef& op : net.op())
    if (op.type() == kRecurrentNetwork) question.bytes[op.output(op.output_size() - 1)] = 0;
  return question;
}

NetDef with_recomputation(const TrainingNet& training, const Model& model, const Workspace& blobs) {
  if (model.again.segments.empty()) return training.net;
  const int forward = training.differentiated.first_gradient_op;
  const MemoryQuestion question = training_question(model, training.net, blobs);
  return with_segments_again(training.net, value_net(training.net, forward, question), model.again.segments);
}

}  // namespace stepnet
