#include "recurrent/train/model.h"
#include "core/passes/mixed_precision.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "core/passes/block_losses.h"
#include "core/passes/defined_operators.h"
#include "recurrent/form/attention_chunks.h"
#include "recurrent/form/short_form.h"
#include "recurrent/network/segment_budget.h"
#include "recurrent/report/scores.h"
#include "recurrent/train/carried_states.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/net.h"

namespace stepnet {

std::string shown_name(const MetricLink& metric) { return metric.has_shown_as() ? metric.shown_as() : metric.name(); }

namespace {

struct Names {
  std::set<std::string> read_first;  // by an operator before any writes it
  std::set<std::string> written;
};

Names names_of(const NetDef& net) {
  const std::vector<std::string> read = read_from_outside(net);
  return {{read.begin(), read.end()}, written_names(net)};
}

void require_written(const Names& names, const std::string& blob, std::string_view role) {
  require(!blob.empty(), "the model names no {}", role);
  require(names.written.count(blob) > 0, "no operator of the net writes \"{}\", which the model names as the {}.{}",
          blob, role, Nearest{blob, names.written});
}

void require_read(const Names& names, const std::string& blob, std::string_view role) {
  require(!blob.empty(), "the model names no {}", role);
  require(names.read_first.count(blob) > 0,
          "\"{}\", which the model names as the {}, is not read by the net before it is written.{}", blob, role,
          Nearest{blob, names.read_first});
}

std::string blob_of(const DataLink& link) { return link.blob().empty() ? link.column() : link.blob(); }

// Samples in place of a text.
void check_data(Model& model, const Names& names) {
  require(model.input.empty() && model.target.empty() && model.logits.empty(),
          "the model has data, so that it has no input, target and logits of a text");
  std::set<std::string> seen;
  for (DataLink& link : model.data) {
    link.set_blob(blob_of(link));
    require_read(names, link.blob(), "blob of the column \"" + link.column() + "\"");
    require(seen.insert(link.blob()).second, "\"{}\" is fed by two columns", link.blob());
    require(names.written.count(link.blob()) == 0, "\"{}\", which data are fed to, is also written by the net",
            link.blob());
    if (link.has_type()) dtype_from_name(link.type());
    for (const std::string& beside : {link.lengths(), link.mask()}) {
      if (beside.empty()) continue;
      require_read(names, beside, "blob of the lengths or the mask of \"" + link.column() + "\"");
      require(seen.insert(beside).second && names.written.count(beside) == 0,
              "\"{}\" is fed the lengths or the mask of \"{}\" and something else, too", beside, link.column());
    }
    require(link.has_window() || (!link.has_stride() && !link.has_shift()),
            "\"{}\" has a stride or a shift, but no window", link.column());
  }
}

// Blobs that the net writes or reads.
void check_metrics(const Model& model, const Names& names) {
  std::set<std::string> shown = {"loss"};
  for (const MetricLink& metric : model.metrics) {
    require(!model.data.empty(), "the model has metrics, which are for data; a text has none");
    check_metric_name(metric.name());
    require(shown.insert(shown_name(metric)).second,
            "two figures of the model are called \"{}\"; give a metric another name by shown_as", shown_name(metric));
    require(metric.has_target() != is_mean(metric.name()), "the metric {} {}", metric.name(),
            metric.has_target() ? "is a blob's mean, so it has no target" : "needs a target");
    for (const std::string& blob : {metric.prediction(), metric.target(), metric.mask()})
      require(blob.empty() || names.written.count(blob) + names.read_first.count(blob) > 0,
              "the net has no blob \"{}\" for {}.{}", blob, metric.name(), Nearest{blob, names.written});
  }
}

// Whether the name fits a pattern in which * stands for any letters.
bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*')
    return !name.empty() && pattern.front() == name.front() && fits(pattern.substr(1), name.substr(1));
  while (pattern.size() > 1 && pattern[1] == '*') pattern.remove_prefix(1);
  for (size_t skipped = 0; skipped <= name.size(); ++skipped)
    if (fits(pattern.substr(1), name.substr(skipped))) return true;
  return false;
}

void check_groups(const Model& model) {
  const std::set<std::string> made = written_names(model.init);
  for (const ParameterGroup& group : model.groups) {
    require(std::ranges::any_of(made, [&](const std::string& name) { return fits(group.parameters(), name); }),
            "no parameter of the net fits the group \"{}\".{}", group.parameters(), Nearest{group.parameters(), made});
    require(std::isfinite(group.rate()) && group.rate() >= 0,
            "the rate of the group \"{}\" is multiplied by {}, but must be by at least 0", group.parameters(),
            group.rate());
    require(std::isfinite(group.weight_decay()) && group.weight_decay() >= 0,
            "the weight decay of the group \"{}\" must be at least 0, but is {}", group.parameters(),
            group.weight_decay());
    require(!group.frozen() || (!group.has_rate() && !group.has_weight_decay()),
            "the group \"{}\" is frozen, so that it has neither a rate nor a weight decay", group.parameters());
  }
}

// The operators that add up the terms, and a figure for each.
void add_terms(Model& model, const ModelDef& def) {
  if (def.term().empty()) return;
  require(!model.data.empty(), "the model has terms of its loss, which are for data; a text has one loss");
  OperatorDef sum;
  sum.set_type("Sum");
  sum.add_output(model.loss);
  const Names names = names_of(model.forward);
  for (const LossTerm& term : def.term()) {
    require_written(names, term.blob(), "term of the loss");
    require(std::isfinite(term.weight()), "the term \"{}\" of the loss has the weight {}", term.blob(), term.weight());
    OperatorDef& scale = *model.forward.add_op();
    scale.set_type("Scale");
    scale.add_input(term.blob());
    scale.add_output(model.loss + "/" + term.blob());
    Argument& arg = *scale.add_arg();
    arg.set_name("scale");
    arg.set_f(term.weight());
    sum.add_input(scale.output(0));
    MetricLink& metric = model.metrics.emplace_back();
    metric.set_name("mean");
    metric.set_prediction(term.blob());
    metric.set_shown_as(term.blob());
  }
  *model.forward.add_op() = sum;
}

void check_carry(const Model& model, const Names& names) {
  std::set<std::string> seen = {model.input, model.target};
  for (const CarryLink& link : model.carry) {
    require_written(names, link.from(), "end of a carry");
    require_read(names, link.to(), "start of a carry");
    require(seen.insert(link.to()).second, "\"{}\" has two roles in the model", link.to());
    require(names.written.count(link.to()) == 0, "the carried state \"{}\" is also written by the net", link.to());
    require(link.size() >= 1, "the carried state \"{}\" must have a size of at least 1, but has {}", link.to(),
            link.size());
  }
}

// Everything that the net reads first must come from the init net, the reader or a carry.
void check_sources(const Model& model, const Names& names) {
  std::set<std::string> known = {model.input, model.target};
  for (const DataLink& link : model.data) {
    known.insert({link.blob(), link.lengths(), link.mask()});
  }
  known.merge(written_names(model.init));
  for (const CarryLink& link : model.carry) known.insert(link.to());
  std::set<std::string> near = names.written;
  near.insert(known.begin(), known.end());
  for (const std::string& name : names.read_first) {
    if (known.count(name) > 0) continue;
    Error error(fmt::format("the net reads \"{}\", but neither the init net nor a carry of the model gives it.{}", name,
                            suggest(name, {near.begin(), near.end()})));
    for (int i = 0; i < model.forward.op_size(); ++i)
      if (std::ranges::count(model.forward.op(i).input(), name) > 0) {
        add_op_context(error, {model.forward.op(i), nullptr, nullptr, {}, model.forward.name(), i});
        break;
      }
    throw Error(std::move(error));
  }
}

bool declares_is_test(const OpSpec& spec) {
  return std::any_of(spec.args.begin(), spec.args.end(), [](const ArgSpec& a) { return a.name == "is_test"; });
}

// What an operator updates in place, running statistics, and what it saves behind them, it gives in training only.
void drop_updated(const OpSpec& spec, OperatorDef& op) {
  int kept = op.output_size();
  for (const InPlaceRule& rule : spec.in_place)
    if (rule.enforced)
      kept = std::min(
          kept, static_cast<int>(std::ranges::find(spec.outputs, rule.out, &ParamSpec::name) - spec.outputs.begin()));
  op.mutable_output()->DeleteSubrange(kept, op.output_size() - kept);
}

void set_is_test(NetDef& net) {
  for (OperatorDef& op : *net.mutable_op()) {
    if (const OpSpec* spec = find_op(op.type()); spec && declares_is_test(*spec)) {
      drop_updated(*spec, op);
      Argument* arg = nullptr;
      for (Argument& a : *op.mutable_arg())
        if (a.name() == "is_test") arg = &a;
      if (!arg) arg = op.add_arg();
      *arg = make_arg("is_test", true);
    }
    for (Argument& arg : *op.mutable_arg())
      if (arg.has_n()) set_is_test(*arg.mutable_n());
    if (op.HasExtension(recurrent)) set_is_test(*op.MutableExtension(recurrent)->mutable_step_net());
  }
}

}  // namespace

const ParameterGroup* group_of(const Model& model, const std::string& parameter) {
  const auto found = std::ranges::find_if(
      model.groups, [&](const ParameterGroup& group) { return fits(group.parameters(), parameter); });
  return found == model.groups.end() ? nullptr : &*found;
}

Model read_model(const NetDef& written) {
  NetDef net = written;
  expand_defined_operators(net);
  if (!net.HasExtension(stepnet::model))
    throw Error(fmt::format("the net \"{}\" does not say how it is trained", net.name()),
                "add arg { name: \"stepnet.model\" n { arg { name: \"init\" n { ... } } arg { name: \"loss\" s: ... } "
                "... } } with loss, input, target and logits, or loss and data");
  const ModelDef& def = net.GetExtension(stepnet::model);
  Model m;
  m.source = m.forward = net;
  m.forward.ClearExtension(stepnet::model);
  m.init = def.init();
  if (m.init.name().empty()) m.init.set_name(net.name() + "_init");
  m.loss = def.loss();
  m.input = def.input();
  m.target = def.target();
  m.logits = def.logits();
  m.carry.assign(def.carry().begin(), def.carry().end());
  m.data.assign(def.data().begin(), def.data().end());
  m.metrics.assign(def.metric().begin(), def.metric().end());
  m.groups.assign(def.group().begin(), def.group().end());
  m.timesteps = def.timesteps();
  m.batch = def.batch();
  m.device = device_of(OperatorDef(), net);
  add_terms(m, def);
  const Names names = names_of(m.forward);
  require_written(names, m.loss, "loss");
  if (m.data.empty()) {
    require_written(names, m.logits, "logits");
    require_read(names, m.input, "input");
    require_read(names, m.target, "target");
  } else {
    check_data(m, names);
  }
  check_metrics(m, names);
  require(m.timesteps >= 1, "the model's timesteps must be at least 1, but are {}", m.timesteps);
  require(m.batch >= 1, "the model's batch must be at least 1, but is {}", m.batch);
  check_carry(m, names);
  check_sources(m, names);
  check_groups(m);
  return m;
}

std::map<std::string, TensorType> batch_types(const Model& model) {
  if (model.input.empty()) return model.fed;
  return {{model.input, TensorType::of(DType::int32, {model.timesteps, model.batch})},
          {model.target, TensorType::of(DType::int32, {model.timesteps * model.batch})}};
}

std::map<std::string, TensorType> known_types(const Model& model, const Workspace& blobs) {
  std::map<std::string, TensorType> types = batch_types(model);
  for (const Workspace* w = &blobs; w; w = w->parent())
    for (const std::string& name : w->names()) {
      const Blob& blob = w->at(name);
      if (!blob.is_tensor() || !blob.tensor().defined()) continue;
      types.emplace(name, TensorType::of(blob.tensor().dtype(), blob.tensor().shape()));
    }
  return types;
}

NetDef expanded_forward(const Model& model, Mode mode, const std::map<std::string, TensorType>& types) {
  const bool in_one = mode == Mode::evaluate && model.stage;
  NetDef net = in_one ? model.stage->in_one : model.forward;
  if (mode == Mode::evaluate) {
    set_is_test(net);
    for (OperatorDef& op : *net.mutable_op())
      if (op.HasExtension(recurrent)) op.MutableExtension(recurrent)->set_forward_only(true);
  }
  attend_in_chunks(net, types);
  expand_recurrent(net);
  if (mode == Mode::train && model.segments.steps > 0) apply_segments(net, model.segments);
  net.clear_external_output();
  for (const CarryLink& link : model.carry) net.add_external_output(link.from());
  if (has_loss(model)) net.add_external_output(model.loss);
  if (in_one && model.ranks) {
    StageMessages messages;
    if (const std::string& name = model.stage->received_in_one; !name.empty()) messages.received = {name};
    if (const std::string& name = model.stage->sent_in_one; !name.empty()) messages.sent = {name};
    add_messages(net, *model.stage, messages, model.ranks->blob());
  }
  return net;
}

NetDef needed_for(const NetDef& net, const std::string& output, const std::vector<std::string>& also) {
  std::set<std::string> wanted = {output};
  wanted.insert(also.begin(), also.end());
  std::vector<const OperatorDef*> kept;
  for (int i = net.op_size() - 1; i >= 0; --i) {
    const OperatorDef& op = net.op(i);
    const bool needed = std::any_of(op.output().begin(), op.output().end(),
                                    [&](const std::string& name) { return !name.empty() && wanted.count(name) > 0; });
    if (!needed) continue;
    wanted.insert(op.input().begin(), op.input().end());
    kept.push_back(&op);
  }
  NetDef result = net;
  result.clear_op();
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) *result.add_op() = **it;
  result.clear_external_output();
  result.add_external_output(output);
  for (const std::string& name : also) result.add_external_output(name);
  return result;
}

void keep_own(const Model& model, Workspace& parameters) {
  if (!model.stage) return;
  for (const std::string& name : parameters.names())
    if (model.stage->owned.count(name) == 0) parameters.remove(name);
}

std::vector<std::string> parameter_names(const Model& model, const Workspace& workspace) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const OperatorDef& op : model.init.op())
    for (const std::string& name : op.output()) {
      const Blob* blob = workspace.find(name);
      const bool floating = blob && blob->is_tensor() && is_floating(blob->tensor().dtype());
      if (floating && seen.insert(name).second) names.push_back(name);
    }
  require(!names.empty(), "the model's init net makes no parameters");
  return names;
}

int64_t check_by_running(const Model& model, Workspace& workspace, DType dtype, int64_t tokens) {
  Workspace own(&workspace);
  CarriedStates states(model, dtype, own);
  states.reset(model.batch);
  if (model.ranks && model.stage) model.ranks->enter(own);
  for (const auto& [name, type] : batch_types(model))
    own.create_local(name).tensor() = Tensor::zeros(type.dtype, type.shape, model.device);
  RunContext run;
  NetOptions options{.release_intermediates = true, .keep = {model.loss}};
  const NetDef whole = expanded_forward(model, Mode::evaluate);
  if (!has_loss(model)) {
    run_net_once(whole, own, run, {.release_intermediates = true});
    return 0;
  }
  const std::map<std::string, TensorType> types = known_types(model, own);
  NetDef net = whole;
  TensorType logits;
  // Scores that training does not make whole may be more than there is room for.
  if (block_losses(net, nullptr, types) > 0 && !model.logits.empty()) logits = infer_net(whole, types)[model.logits];
  if (!logits.known) {
    net = whole;
    if (!model.logits.empty()) options.keep.insert(model.logits);
  }
  run_net_once(net, own, run, options);
  const Tensor& loss = own.fetch(model.loss);
  require(loss.size() == 1 && is_floating(loss.dtype()), "the loss \"{}\" must be one floating value, but is {}",
          model.loss, loss);
  if (model.logits.empty()) return 0;
  if (!logits.known) logits = TensorType::of(own.fetch(model.logits).dtype(), own.fetch(model.logits).shape());
  require(logits.shape.rank() >= 1 && is_floating(logits.dtype),
          "the logits \"{}\" must be floating with one score per class in the last dimension, but are {}", model.logits,
          logits.str());
  const int64_t classes = logits.shape[logits.shape.rank() - 1];
  if (classes < tokens)
    throw Error(fmt::format("the text has {} different bytes, but the net gives scores to {} classes ({} is {})",
                            tokens, classes, model.logits, logits.str()),
                fmt::format("give \"{}\" at least {} classes", model.logits, tokens));
  return classes;
}

void use_precision(Model& model, DType type, const std::map<std::string, TensorType>& more) {
  if (type == DType::float32) return;
  MixedPrecision how{.type = type, .known = infer_net(model.init, more), .outside = {}};
  const bool any = std::ranges::any_of(how.known, [](const auto& blob) { return blob.second.dtype == DType::float32; });
  require(any, "the model has no float parameters, and no others can be trained in {}", dtype_name(type));
  for (const auto& [name, type] : batch_types(model)) how.known[name] = type;
  for (const CarryLink& link : model.carry) {
    how.known[link.to()] = TensorType::of(DType::float32, {1, model.batch, link.size()});
    how.outside.insert(link.from());
  }
  for (const std::string& name : {model.loss, model.logits})
    if (!name.empty()) how.outside.insert(name);
  model.forward = mixed_precision(model.forward, how);
}

}  // namespace stepnet
