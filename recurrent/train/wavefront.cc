#include "recurrent/train/wavefront.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "core/estimate/session.h"
#include "core/net/dataflow.h"
#include "core/operator/observer.h"
#include "recurrent/form/layer_ops.h"
#include "recurrent/form/spec.h"
#include "recurrent/train/evaluator.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/net.h"

namespace stepnet {
namespace {

constexpr int64_t kForwardTag = 1, kBackwardTag = 2;

bool is_network(const OperatorDef& op) { return op.type() == kRecurrentNetwork; }

std::set<std::string> reads_of(const OperatorDef& op);

// What a step net reads of what stands outside.
std::set<std::string> references_of(const RecurrentDef& def) {
  std::set<std::string> reads, own = {def.timestep()};
  for (const SequenceLink& link : def.sequence()) own.insert(link.inner());
  for (const StateLink& link : def.state()) own.insert(link.input());
  for (const OperatorDef& inner : def.step_net().op()) {
    for (const std::string& name : reads_of(inner))
      if (own.count(name) == 0) reads.insert(name);
    own.insert(inner.output().begin(), inner.output().end());
  }
  return reads;
}

// What an operator reads, its step net included.
std::set<std::string> reads_of(const OperatorDef& op) {
  std::set<std::string> reads(op.input().begin(), op.input().end());
  reads.erase("");
  if (op.HasExtension(recurrent)) reads.merge(references_of(op.GetExtension(recurrent)));
  return reads;
}

// The net, in which no layer's products are joined: each of its operators stays one.
NetDef with_products_apart(NetDef net) {
  for (OperatorDef& op : *net.mutable_op()) {
    if (!is_network(op)) continue;
    const auto found = std::ranges::find(*op.mutable_arg(), "disabled_passes", &Argument::name);
    Argument& disabled = found == op.mutable_arg()->end() ? *op.add_arg() : *found;
    disabled.set_name("disabled_passes");
    disabled.add_strings("merge");
  }
  return net;
}

// The FLOPs of each operator of a net that runs dry.
class OperatorFlops final : public NetObserver {
 public:
  explicit OperatorFlops(const DryScope& scope) : scope_(scope) {}
  void before(const BoundOp&) override { before_ = scope_.flops; }
  void after(const BoundOp&) override { flops.push_back(scope_.flops - before_); }

  std::vector<double> flops;

 private:
  const DryScope& scope_;
  double before_ = 0;
};

// Error about an operator of the net, with its place.
[[noreturn]] void refuse(const NetDef& net, int i, const std::string& what, const std::string& fix) {
  Error e(what, fix);
  add_op_context(e, {net.op(i), nullptr, nullptr, {}, net.name(), i});
  throw Error(std::move(e));
}

int first_reader(const NetDef& net, const std::string& name) {
  for (int i = 0; i < net.op_size(); ++i)
    if (std::ranges::count(net.op(i).input(), name) > 0) return i;
  return net.op_size();
}
int behind_last_writer(const NetDef& net, const std::string& name) {
  for (int i = net.op_size() - 1; i >= 0; --i)
    if (std::ranges::count(net.op(i).output(), name) > 0) return i + 1;
  return 0;
}

class Planner {
 public:
  Planner(const Model& model, int ranks) : model_(model), ranks_(ranks) {}

  WavefrontPlan plan() {
    require(model_.data.empty(), "layers are shared out to ranks of a net that is trained on a text, not on data");
    plan_.net = model_.forward;
    expand_cell_operators(plan_.net);
    plan_.net.clear_external_input();
    plan_.net.clear_external_output();
    for (int i = 0; i < plan_.net.op_size(); ++i) {
      reads_.push_back(reads_of(plan_.net.op(i)));
      if (is_network(plan_.net.op(i))) networks_.push_back(i);
    }
    require(static_cast<int>(networks_.size()) >= ranks_,
            "the net \"{}\" has {} recurrent layer{}, which {} ranks cannot share", plan_.net.name(), networks_.size(),
            networks_.size() == 1 ? "" : "s", ranks_);
    outside_ = metric_blobs(model_);
    outside_.merge(std::set<std::string>{model_.loss, model_.logits});
    for (const CarryLink& link : model_.carry) outside_.insert(link.from());
    infer();
    sort();
    measure();
    cut();
    check_outside();
    find_gradients();
    return std::move(plan_);
  }

 private:
  // Of the net as it is trained.
  void infer() {
    Model whole = model_;
    whole.forward = with_products_apart(plan_.net);
    plan_.types = infer_net(model_.init, {});
    DType dtype = DType::float32;
    for (const OperatorDef& op : model_.init.op())
      for (const std::string& name : op.output())
        if (const auto it = plan_.types.find(name); it != plan_.types.end() && is_floating(it->second.dtype))
          dtype = it->second.dtype;
    for (const auto& [name, type] : batch_types(model_)) plan_.types[name] = feeds_[name] = type;
    for (const CarryLink& link : model_.carry)
      plan_.types[link.to()] = feeds_[link.to()] = TensorType::of(dtype, {1, model_.batch, link.size()});
    expanded_ = expanded_forward(whole, Mode::train);
    require(expanded_.op_size() == plan_.net.op_size(), "the net \"{}\" has {} operators, which become {}",
            plan_.net.name(), plan_.net.op_size(), expanded_.op_size());
    typed_ = infer_ops(expanded_, plan_.types);
  }

  // Which operators run by blocks of timesteps: the layers, and what stands between them and depends on them.
  void sort() {
    plan_.by_block.assign(static_cast<size_t>(plan_.net.op_size()), false);
    for (int i = 0; i <= networks_.back(); ++i) {
      const OperatorDef& op = plan_.net.op(i);
      for (const std::string& name : reads_[i])
        if (last_states_.count(name) > 0)
          refuse(plan_.net, i, fmt::format("\"{}\" is a last state, which another layer reads", name),
                 "only states of all timesteps may go from layer to layer where ranks share layers");
      const bool depends = std::ranges::any_of(reads_[i], [&](const auto& name) { return blocked_.count(name) > 0; });
      if (is_network(op))
        check_network(i);
      else if (depends)
        check_rows(i);
      plan_.by_block[i] = is_network(op) || depends;
      add_outputs(i);
      if (!is_network(op)) continue;
      for (const StateLink& state : op.GetExtension(recurrent).state()) {
        blocked_.erase(state.last());
        if (!state.last().empty()) last_states_.insert(state.last());
      }
    }
  }

  // A name is that of values on all timesteps at once, or of values by blocks.
  void add_outputs(int i) {
    const bool by_block = plan_.by_block[i];
    for (const std::string& name : plan_.net.op(i).output()) {
      if (name.empty()) continue;
      if ((by_block ? whole_ : by_blocks_).count(name) > 0)
        refuse(plan_.net, i, fmt::format("\"{}\" is also the name of another value", name),
               "give it a name of its own");
      (by_block ? by_blocks_ : whole_).insert(name);
      if (by_block) blocked_.insert(name);
    }
    if (by_block) by_blocks_.insert(reads_[i].begin(), reads_[i].end());
  }

  void check_network(int i) {
    const OperatorDef& op = plan_.net.op(i);
    const auto no = [&](bool found, const char* what) {
      if (found)
        refuse(plan_.net, i, fmt::format("ranks cannot share layers of which one {}", what),
               "train it without --pipeline");
    };
    no(!op.HasExtension(recurrent), "is in the full form, not in the short form");
    const RecurrentDef& def = op.GetExtension(recurrent);
    no(def.sequence().empty(), "has no sequence");
    no(def.reverse(), "runs from the last timestep to the first");
    no(!def.lengths().empty(), "has lengths of samples");
    for (const OperatorDef& inner : def.step_net().op()) {
      if (reads_of(inner).count(def.timestep()) == 0) continue;
      const Argument* lengths = find_arg(inner, "sequence_lengths");
      const bool is_unit = inner.type() == "LSTMUnit" || inner.type() == "GRUUnit";
      no(!is_unit || !lengths || lengths->i() != 0, "reads the timestep's number, which starts again in each block");
    }
    for (const std::string& name : references_of(def))
      if (blocked_.count(name) > 0)
        refuse(plan_.net, i, fmt::format("the step net reads all timesteps of \"{}\", which are there by blocks", name),
               "train it without --pipeline, or let the layer read a value that stands in front of the first layer");
    for (const StateLink& state : def.state())
      if (blocked_.count(state.initial()) > 0)
        refuse(plan_.net, i, fmt::format("\"{}\" starts with all timesteps of another layer", state.initial()),
               "train it without --pipeline");
    for (const SequenceLink& link : def.sequence()) {
      check_timesteps(i, link.outer());
      sequences_.insert(link.outer());
    }
  }

  void check_timesteps(int i, const std::string& name) const {
    const auto it = plan_.types.find(name);
    if (it == plan_.types.end() || !it->second.known || it->second.shape.rank() < 1 ||
        it->second.shape[0] != model_.timesteps)
      refuse(plan_.net, i,
             fmt::format("\"{}\" is {}, but to run by blocks of timesteps it must have {} rows", name,
                         it == plan_.types.end() || !it->second.known ? "of no known type" : it->second.str(),
                         model_.timesteps),
             "train it without --pipeline");
  }

  // That rows of the outputs follow from the same rows of what depends on timesteps, and from parameters.
  void check_rows(int i) const {
    const TypedOp& typed = typed_[static_cast<size_t>(i)];
    const OpSpec& spec = *typed.op.spec;
    const std::vector<TensorType> out = read_outputs(i);
    const bool known = std::ranges::all_of(typed.in, [](const TensorType& t) { return t.known || t.absent; });
    bool fits = known && (spec.random || !spec.side_effect) && works_by_rows(typed, out) && fits_more_rows(typed, out);
    for (size_t k = 0; k < typed.in.size() && fits; ++k) {
      const std::string& name = typed.op.def.input(static_cast<int>(k));
      const TensorType& type = typed.in[k];
      if (blocked_.count(name) > 0 || sequences_.count(name) > 0 || type.absent) continue;
      const bool is_column = type.shape.rank() == 1 && !find_arg(typed.op.def, "axis");
      fits = !spec.elementwise || type.shape.size() == 1 || is_column;
      fits = fits && feeds_.count(name) == 0;
    }
    if (!fits)
      refuse(plan_.net, i,
             fmt::format("{} stands between layers, but does not work timestep by timestep", typed.op.def.type()),
             "train it without --pipeline, or put it in front of the layers or behind them");
    for (size_t o = 0; o < out.size(); ++o)
      if (!out[o].absent) check_timesteps(i, typed.op.def.output(static_cast<int>(o)));
  }

  // Those that nobody reads are absent.
  std::vector<TensorType> read_outputs(int i) const {
    std::vector<TensorType> out = typed_[static_cast<size_t>(i)].out;
    for (size_t o = 1; o < out.size(); ++o) {
      const std::string& name = plan_.net.op(i).output(static_cast<int>(o));
      const auto reads = [&](const std::set<std::string>& names) { return names.count(name) > 0; };
      out[o].absent = out[o].absent || (std::ranges::none_of(reads_, reads) && outside_.count(name) == 0);
    }
    return out;
  }

  static bool works_by_rows(const TypedOp& typed, std::vector<TensorType> out) {
    const OpSpec& spec = *typed.op.spec;
    if (spec.type == "Dropout") return true;
    return spec.rowwise && spec.rowwise(typed.op.args.get(), ShapeCall(typed.in, out)) >= 1;
  }

  // That of one timestep more it makes one row more, so that no other input has a row for each.
  bool fits_more_rows(const TypedOp& typed, const std::vector<TensorType>& out) const {
    const auto longer = [&](const TensorType& type) {
      if (type.absent || !type.known || type.shape.rank() < 1 || type.shape[0] != model_.timesteps) return type;
      return TensorType::of(type.dtype, type.shape.with(0, model_.timesteps + 1));
    };
    std::vector<TensorType> in = typed.in, made(out.size());
    for (size_t k = 0; k < in.size(); ++k) {
      const std::string& name = typed.op.def.input(static_cast<int>(k));
      if (blocked_.count(name) > 0 || sequences_.count(name) > 0) in[k] = longer(in[k]);
    }
    for (size_t o = 0; o < out.size(); ++o) made[o].absent = out[o].absent;
    try {
      infer_types(typed.op, in, made);
    } catch (const Error&) {
      return false;
    }
    for (size_t o = 0; o < out.size(); ++o) {
      if (out[o].absent) continue;
      if (!made[o].known || !(made[o].shape == longer(out[o]).shape) || made[o].shape == out[o].shape) return false;
    }
    return true;
  }

  void measure() {
    DryScope scope;
    const auto session =
        forward_session(expanded_, {.feeds = feeds_, .init = model_.init, .keep_all = true, .files = model_.files});
    OperatorFlops seen(scope);
    RunContext run;
    run.observer = &seen;
    session->net->run(run);
    flops_ = std::move(seen.flops);
    for (size_t i = 0; i < flops_.size(); ++i)
      if (!plan_.by_block[i]) plan_.whole += flops_[i];
  }

  // What operators in front of `p` write and others read.
  std::set<std::string> crossing(int p) const {
    std::set<std::string> written, crosses, again;
    for (int i = 0; i < p; ++i) written.insert(plan_.net.op(i).output().begin(), plan_.net.op(i).output().end());
    for (int i = p; i < plan_.net.op_size(); ++i) {
      for (const std::string& name : reads_[i])
        if (written.count(name) > 0 && again.count(name) == 0) crosses.insert(name);
      again.insert(plan_.net.op(i).output().begin(), plan_.net.op(i).output().end());
    }
    return crosses;
  }

  bool is_cut(int p) const {
    const std::set<std::string> crosses = crossing(p);
    return crosses.size() == 1 && blocked_.count(*crosses.begin()) > 0;
  }

  // Whether operators on both sides have a parameter or a carried state.
  bool parts_what_is_shared(int p) const {
    std::set<std::string> written, before, after;
    for (int i = 0; i < plan_.net.op_size(); ++i) {
      for (const std::string& name : reads_[i])
        if (written.count(name) == 0 && name != model_.input && name != model_.target)
          (i < p ? before : after).insert(name);
      written.insert(plan_.net.op(i).output().begin(), plan_.net.op(i).output().end());
    }
    return std::ranges::any_of(before, [&](const std::string& name) { return after.count(name) > 0; }) ||
           std::ranges::any_of(model_.carry, [&](const CarryLink& link) {
             return (behind_last_writer(plan_.net, link.from()) <= p ? after : before).count(link.to()) > 0;
           });
  }

  double work_between(int begin, int end) const {
    double sum = 0;
    for (int i = begin; i < end; ++i) sum += plan_.by_block[i] ? flops_[i] : 0;
    return sum;
  }
  bool has_network(int begin, int end) const {
    return std::ranges::any_of(networks_, [&](int n) { return n >= begin && n < end; });
  }

  // The places at which the most work between two of them is least, by how many ranks have what is in front of each.
  void cut() {
    std::vector<int> all = {0};
    for (int p = networks_.front() + 1; p <= networks_.back(); ++p)
      if (is_cut(p)) all.push_back(p);
    all.push_back(plan_.net.op_size());
    std::vector<int> apart = all;
    std::erase_if(apart, [&](int p) { return parts_what_is_shared(p); });
    // What is cut at a place that is left out is refused by check_outside, which says what is shared.
    if (!cut_at(apart) && !cut_at(all)) refuse_cut(all);
    for (size_t r = 1; r < plan_.first.size(); ++r) plan_.crossing.push_back(*crossing(plan_.first[r]).begin());
  }

  bool cut_at(const std::vector<int>& places) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> least(static_cast<size_t>(ranks_) + 1, std::vector<double>(places.size(), kNever));
    std::vector<std::vector<size_t>> from(least.size(), std::vector<size_t>(places.size(), 0));
    least[0][0] = 0;
    for (size_t r = 1; r < least.size(); ++r)
      for (size_t k = 1; k < places.size(); ++k)
        for (size_t j = 0; j < k; ++j) {
          if (!has_network(places[j], places[k])) continue;
          const double most = std::max(least[r - 1][j], work_between(places[j], places[k]));
          if (most < least[r][k]) least[r][k] = most, from[r][k] = j;
        }
    if (least.back().back() == kNever) return false;
    plan_.first.assign(static_cast<size_t>(ranks_), 0);
    size_t at = places.size() - 1;
    for (size_t r = least.size() - 1; r > 0; --r) {
      plan_.work.insert(plan_.work.begin(), work_between(places[from[r][at]], places[at]));
      at = from[r][at];
      plan_.first[r - 1] = places[at];
    }
    return true;
  }

  [[noreturn]] void refuse_cut(const std::vector<int>& places) const {
    for (size_t n = 1; n < networks_.size(); ++n) {
      const bool any = std::ranges::any_of(places, [&](int p) { return p > networks_[n - 1] && p <= networks_[n]; });
      if (!any)
        refuse(plan_.net, networks_[n],
               fmt::format("{} ranks cannot share the layers: between this one and the one before it, what crosses is "
                           "not one value of all timesteps, but {}",
                           ranks_, fmt::join(crossing(networks_[n]), ", ")),
               "use fewer ranks, or let a layer read the one before it alone");
    }
    throw Error(fmt::format("the net \"{}\" cannot be cut for {} ranks", plan_.net.name(), ranks_), "use fewer ranks");
  }

  int rank_of(int op) const {
    return static_cast<int>(std::ranges::upper_bound(plan_.first, op) - plan_.first.begin()) - 1;
  }

  // Parameters and states are each of one rank.
  void check_outside() const {
    std::map<std::string, int> reader, writer;
    for (int i = 0; i < plan_.net.op_size(); ++i) {
      for (const std::string& name : reads_[i]) {
        if (writer.count(name) > 0 || name == model_.input || name == model_.target) continue;
        const auto [it, is_new] = reader.emplace(name, rank_of(i));
        if (!is_new && it->second != rank_of(i))
          refuse(plan_.net, i, fmt::format("\"{}\" would be read by ranks {} and {}", name, it->second, rank_of(i)),
                 "use fewer ranks: each parameter is of one rank");
      }
      for (const std::string& name : plan_.net.op(i).output()) writer[name] = rank_of(i);
    }
    for (const CarryLink& link : model_.carry)
      require(reader.count(link.to()) > 0 && reader.at(link.to()) == writer.at(link.from()),
              "the state \"{}\" is carried to \"{}\", which another rank reads", link.from(), link.to());
  }

  // Operators of the net as it is trained.
  NetDef part(int begin, int end) const {
    NetDef net = expanded_;
    net.clear_op();
    net.clear_external_output();
    for (int i = begin; i < end; ++i) *net.add_op() = expanded_.op(i);
    return net;
  }

  // Throws NoDependence if the target depends on none of what is wanted.
  void differentiate(NetDef net, const std::string& target, const std::set<std::string>& wanted) const {
    GradientRequest request;
    request.targets.emplace_back(target, target == model_.loss ? "" : received_gradient(target));
    request.wanted = wanted;
    for (const CarryLink& link : model_.carry) request.stop.insert(link.to());
    add_gradient_operators(net, request);
  }

  bool depends(NetDef net, const std::string& target, const std::set<std::string>& wanted) const {
    try {
      differentiate(std::move(net), target, wanted);
    } catch (const NoDependence&) {
      return false;
    }
    return true;
  }

  void find_gradients() {
    for (const OperatorDef& op : model_.init.op())
      for (const std::string& name : op.output()) {
        const auto type = plan_.types.find(name);
        const ParameterGroup* group = group_of(model_, name);
        if (type != plan_.types.end() && is_floating(type->second.dtype) && !(group && group->frozen()))
          trained_.insert(name);
      }
    require(!trained_.empty(), "all parameters of the model are frozen, so there is nothing to train");
    const int end = expanded_.op_size();
    differentiate(part(0, end), model_.loss, trained_);
    for (size_t r = 1; r < plan_.first.size(); ++r) {
      const std::string& sent = plan_.crossing[r - 1];
      plan_.gradients.push_back(depends(part(0, plan_.first[r]), sent, trained_) &&
                                depends(part(plan_.first[r], end), model_.loss, {sent}));
    }
  }

  const Model& model_;
  const int ranks_;
  WavefrontPlan plan_;
  NetDef expanded_;
  std::vector<TypedOp> typed_;
  std::vector<double> flops_;
  std::vector<int> networks_;
  std::vector<std::set<std::string>> reads_;  // by operator
  std::map<std::string, TensorType> feeds_;
  std::set<std::string> outside_;  // what the net's user reads
  std::set<std::string> trained_;  // parameters
  std::set<std::string> blocked_, last_states_, sequences_;
  std::set<std::string> whole_, by_blocks_;  // names that operators of either kind have used
};

// One rank's operators, by blocks.
class StageWriter {
 public:
  StageWriter(const WavefrontPlan& plan, int rank, int64_t blocks)
      : plan_(plan),
        blocks_(blocks),
        begin_(plan.first[static_cast<size_t>(rank)]),
        end_(rank + 1 < static_cast<int>(plan.first.size()) ? plan.first[static_cast<size_t>(rank) + 1]
                                                            : plan.net.op_size()) {
    for (int i = 0; i < plan.net.op_size(); ++i) {
      if (!plan.by_block[i]) continue;
      last_ = i;
      for (const std::string& name : plan.net.op(i).output()) blocked_.insert(name);
      if (is_network(plan.net.op(i)))
        for (const StateLink& state : plan.net.op(i).GetExtension(recurrent).state()) blocked_.erase(state.last());
    }
    net_ = plan.net;
    net_.clear_op();
  }

  std::string block(const std::string& name, int64_t b) const {
    return blocks_ == 1 ? name : fmt::format("{}/block_{}", name, b);
  }

  // Of so many timesteps; 0: of any number, in one block.
  NetDef write(int64_t timesteps) {
    for (int i = begin_; i < std::min(end_, last_ + 1); ++i)
      if (!plan_.by_block[i]) *net_.add_op() = plan_.net.op(i);
    if (blocks_ > 1) add_splits(timesteps);
    for (int64_t b = 0; b < blocks_; ++b)
      for (int i = begin_; i < std::min(end_, last_ + 1); ++i)
        if (plan_.by_block[i]) *net_.add_op() = is_network(plan_.net.op(i)) ? network(i, b) : between(i, b);
    for (int i = last_ + 1; i < end_; ++i) {
      if (blocks_ > 1) join_blocks(plan_.net.op(i));
      *net_.add_op() = plan_.net.op(i);
    }
    return std::move(net_);
  }

 private:
  // Sequences that are there on all timesteps.
  void add_splits(int64_t timesteps) {
    for (int i = begin_; i < std::min(end_, last_ + 1); ++i) {
      if (!is_network(plan_.net.op(i))) continue;
      for (const SequenceLink& link : plan_.net.op(i).GetExtension(recurrent).sequence()) {
        if (blocked_.count(link.outer()) > 0 || !split_.insert(link.outer()).second) continue;
        OperatorDef& op = *net_.add_op();
        op.set_type("Split");
        op.add_input(link.outer());
        for (int64_t b = 0; b < blocks_; ++b) op.add_output(block(link.outer(), b));
        *op.add_arg() = make_arg("axis", 0);
        std::vector<int64_t> sizes;
        for (int64_t b = 0; b < blocks_; ++b) sizes.push_back(timesteps / blocks_ + (b < timesteps % blocks_ ? 1 : 0));
        *op.add_arg() = make_arg("split", sizes);
      }
    }
  }

  void join_blocks(const OperatorDef& reader) {
    for (const std::string& name : reads_of(reader)) {
      if (blocked_.erase(name) == 0) continue;
      OperatorDef& op = *net_.add_op();
      op.set_type("Concat");
      for (int64_t b = 0; b < blocks_; ++b) op.add_input(block(name, b));
      op.add_output(name);
      op.add_output(name + "/blocks");
      *op.add_arg() = make_arg("axis", 0);
    }
  }

  std::string renamed(const std::string& name, int64_t b) const {
    return blocked_.count(name) + split_.count(name) > 0 ? block(name, b) : name;
  }

  OperatorDef between(int i, int64_t b) const {
    OperatorDef op = plan_.net.op(i);
    if (!op.name().empty()) op.set_name(block(op.name(), b));
    for (std::string& name : *op.mutable_input()) name = renamed(name, b);
    for (std::string& name : *op.mutable_output()) name = renamed(name, b);
    return op;
  }

  // The layer on a block starts with the states that the block before left.
  OperatorDef network(int i, int64_t b) const {
    OperatorDef op = between(i, b);
    RecurrentDef& def = *op.MutableExtension(recurrent);
    name_step_nets(def, b);
    for (SequenceLink& link : *def.mutable_sequence()) link.set_outer(renamed(link.outer(), b));
    for (OutputLink& link : *def.mutable_output()) link.set_outer(renamed(link.outer(), b));
    for (int s = 0; s < def.state_size(); ++s) {
      StateLink& state = *def.mutable_state(s);
      if (state.has_all()) state.set_all(renamed(state.all(), b));
      if (b > 0) start_from(last_of(i, s, b - 1), state, op);
      if (b + 1 < blocks_) end_as(last_of(i, s, b), state, op);
    }
    order_inputs(plan_.net.op(i), op);
    return op;
  }

  // By their names blocks draw numbers of their own.
  void name_step_nets(RecurrentDef& def, int64_t b) const {
    NetDef& step = *def.mutable_step_net();
    if (!step.name().empty()) step.set_name(block(step.name(), b));
    for (OperatorDef& op : *step.mutable_op())
      if (op.HasExtension(recurrent)) name_step_nets(*op.MutableExtension(recurrent), b);
  }

  std::string last_of(int i, int s, int64_t b) const {
    const OperatorDef& op = plan_.net.op(i);
    const StateLink& state = op.GetExtension(recurrent).state(s);
    const auto own = std::ranges::find_if(op.output(), [](const std::string& name) { return !name.empty(); });
    return block(state.last().empty() ? fmt::format("{}/state_{}", *own, s) : state.last(), b);
  }

  // Puts initial states behind the first sequence, as the expansion does, and lets the argument that says which inputs
  // are weights name them where they are then.
  static void order_inputs(const OperatorDef& original, OperatorDef& op) {
    const RecurrentDef& def = op.GetExtension(recurrent);
    std::vector<std::string> names = {def.sequence(0).outer()};
    const auto add = [&](const std::string& name) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    };
    for (const StateLink& state : def.state())
      if (state.has_initial()) add(state.initial());
    for (const std::string& name : op.input()) add(name);
    op.clear_input();
    for (const std::string& name : names) op.add_input(name);
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.name() != "layer_weights") continue;
      for (int64_t& id : *arg.mutable_ints())
        if (id >= 0) id = std::ranges::find(names, original.input(static_cast<int>(id))) - names.begin();
    }
  }

  static void start_from(const std::string& name, StateLink& state, OperatorDef& op) {
    const auto old =
        state.initial().empty() ? op.mutable_input()->end() : std::ranges::find(*op.mutable_input(), state.initial());
    if (old != op.mutable_input()->end())
      *old = name;
    else
      op.add_input(name);
    state.set_initial(name);
    state.clear_size();
  }
  static void end_as(const std::string& name, StateLink& state, OperatorDef& op) {
    const auto old =
        state.last().empty() ? op.mutable_output()->end() : std::ranges::find(*op.mutable_output(), state.last());
    if (old != op.mutable_output()->end())
      *old = name;
    else
      op.add_output(name);
    state.set_last(name);
  }

  const WavefrontPlan& plan_;
  const int64_t blocks_;
  const int begin_, end_;
  int last_ = -1;                          // of the whole net, that runs by blocks
  std::set<std::string> blocked_, split_;  // values that are there by blocks, of the second also whole
  NetDef net_;
};

// The operators that make what is wanted.
NetDef init_of(const NetDef& init, std::set<std::string> wanted) {
  std::vector<bool> kept(static_cast<size_t>(init.op_size()), false);
  for (int i = init.op_size() - 1; i >= 0; --i) {
    const OperatorDef& op = init.op(i);
    kept[i] = std::ranges::any_of(op.output(), [&](const std::string& name) { return wanted.count(name) > 0; });
    if (kept[i]) wanted.insert(op.input().begin(), op.input().end());
  }
  NetDef part = init;
  part.clear_op();
  for (int i = 0; i < init.op_size(); ++i)
    if (kept[i]) *part.add_op() = init.op(i);
  return part;
}

// Outputs of the init net that the rank's operators read. What no rank's do belongs to the first one.
std::set<std::string> owned_by(const Model& model, const WavefrontPlan& plan, int rank,
                               const std::set<std::string>& reads) {
  std::set<std::string> all;
  for (const OperatorDef& op : plan.net.op()) all.merge(reads_of(op));
  std::set<std::string> owned;
  for (const OperatorDef& op : model.init.op())
    for (const std::string& name : op.output())
      if (!name.empty() && (reads.count(name) > 0 || (rank == 0 && all.count(name) == 0))) owned.insert(name);
  return owned;
}

// Where messages of all blocks go: in the order in which their tensors are sent on one side and received on the other.
std::vector<int> in_order(std::vector<int> places, bool forward, bool sends) {
  if (!forward) std::ranges::reverse(places);
  for (size_t k = 1; k < places.size() && sends; ++k) places[k] = std::max(places[k], places[k - 1]);
  for (size_t k = places.size(); k-- > 1 && !sends;) places[k - 1] = std::min(places[k - 1], places[k]);
  if (!forward) std::ranges::reverse(places);
  return places;
}

OperatorDef message(const std::string& world, const std::string& blob, bool sends, int other, int64_t tag) {
  OperatorDef op;
  op.set_type(sends ? "SendTensor" : "ReceiveTensor");
  op.add_input(world);
  sends ? op.add_input(blob) : op.add_output(blob);
  *op.add_arg() = make_arg(sends ? "dst" : "src", int64_t{other});
  *op.add_arg() = make_arg("tag", tag);
  return op;
}

}  // namespace

WavefrontPlan plan_wavefront(const Model& model, int ranks) { return Planner(model, ranks).plan(); }

double wavefront_speed_up(const WavefrontPlan& plan, int64_t blocks) {
  const double all = std::accumulate(plan.work.begin(), plan.work.end(), 0.0);
  const double most = *std::ranges::max_element(plan.work);
  const auto b = static_cast<double>(blocks);
  const double together = plan.whole + (all + (b - 1) * most) / b;
  return together > 0 ? (plan.whole + all) / together : 1;
}

Model wavefront_stage(const Model& model, const WavefrontPlan& plan, int rank, int64_t blocks) {
  require(blocks >= 1 && blocks <= model.timesteps, "{} timesteps cannot run in {} blocks", model.timesteps, blocks);
  Model part = model;
  Model::Stage& stage = part.stage.emplace();
  stage.rank = rank;
  stage.ranks = static_cast<int>(plan.first.size());
  stage.in_one = StageWriter(plan, rank, 1).write(0);
  StageWriter writer(plan, rank, blocks);
  const auto add_blobs = [&](const std::string& name, std::string& in_one, std::vector<std::string>& by_block,
                             std::vector<TensorType>& types) {
    in_one = name;
    const TensorType& type = plan.types.at(name);
    for (int64_t b = 0; b < blocks; ++b) {
      by_block.push_back(writer.block(name, b));
      const int64_t rows = model.timesteps / blocks + (b < model.timesteps % blocks ? 1 : 0);
      types.push_back(TensorType::of(type.dtype, type.shape.with(0, rows)));
    }
  };
  stage.gives_gradients = rank > 0 && plan.gradients[static_cast<size_t>(rank) - 1];
  stage.gets_gradients = !stage.is_last() && plan.gradients[static_cast<size_t>(rank)];
  if (rank > 0)
    add_blobs(plan.crossing[static_cast<size_t>(rank) - 1], stage.received_in_one, stage.received,
              stage.received_types);
  if (!stage.is_last())
    add_blobs(plan.crossing[static_cast<size_t>(rank)], stage.sent_in_one, stage.sent, stage.sent_types);
  part.forward = writer.write(model.timesteps);
  std::set<std::string> reads;
  for (const OperatorDef& op : stage.in_one.op()) reads.merge(reads_of(op));
  std::erase_if(part.carry, [&](const CarryLink& link) { return reads.count(link.to()) == 0; });
  stage.owned = owned_by(model, plan, rank, reads);
  part.init = init_of(model.init, stage.owned);
  require(part.init.op_size() > 0, "rank {} has no parameters", rank);
  return part;
}

std::string received_gradient(const std::string& sent) { return "train/" + sent + "_gradient"; }

std::vector<int> add_messages(NetDef& net, const Model::Stage& stage, const StageMessages& messages,
                              const std::string& world) {
  std::vector<std::vector<OperatorDef>> before(static_cast<size_t>(net.op_size()) + 1);
  const auto add = [&](const std::vector<std::string>& blobs, bool forward, bool sends) {
    std::vector<int> places;
    for (const std::string& blob : blobs)
      places.push_back(sends ? behind_last_writer(net, blob) : first_reader(net, blob));
    places = in_order(std::move(places), forward, sends);
    const int other = forward == sends ? stage.rank + 1 : stage.rank - 1;
    for (size_t k = 0; k < blobs.size(); ++k) {
      const size_t b = forward ? k : blobs.size() - 1 - k;
      before[static_cast<size_t>(places[b])].push_back(
          message(world, blobs[b], sends, other, forward ? kForwardTag : kBackwardTag));
    }
  };
  // At one place a rank first lets the others go on.
  add(messages.sent, true, true);
  add(messages.sent_gradients, false, true);
  add(messages.received, true, false);
  add(messages.received_gradients, false, false);
  NetDef all = net;
  all.clear_op();
  std::vector<int> moved;
  for (size_t i = 0; i < before.size(); ++i) {
    for (OperatorDef& op : before[i]) *all.add_op() = std::move(op);
    moved.push_back(all.op_size());
    if (i + 1 < before.size()) *all.add_op() = net.op(static_cast<int>(i));
  }
  net = std::move(all);
  return moved;
}

namespace {

// Operators of the net that write the blob, or read it, from `first` on.
std::vector<int> users(const NetDef& net, const std::string& name, int first, bool write) {
  std::vector<int> found;
  for (int i = first; i < net.op_size(); ++i)
    if (std::ranges::count(write ? net.op(i).output() : net.op(i).input(), name) > 0) found.push_back(i);
  return found;
}

// For each term of the sum but the first the operator behind which it can be added; none if it cannot.
std::vector<std::pair<int, std::string>> terms_of(const NetDef& net, int sum, int first) {
  const OperatorDef& op = net.op(sum);
  std::vector<std::pair<int, std::string>> terms;
  for (const std::string& name : op.input()) {
    const std::vector<int> writers = users(net, name, first, true), readers = users(net, name, first, false);
    const auto own = std::ranges::count_if(writers, [&](int i) { return i < sum; });
    if (own != 1 || std::ranges::any_of(readers, [&](int i) { return i < sum; })) return {};
    if (name != op.output(0) && (writers.size() != 1 || readers.size() != 1)) return {};
    terms.emplace_back(writers.front(), name);
  }
  std::ranges::sort(terms);
  if (terms.front().second != op.output(0)) return {};
  terms.erase(terms.begin());
  return terms;
}

}  // namespace

void add_up_by_blocks(NetDef& net, int first) {
  std::map<int, std::vector<OperatorDef>> behind;
  std::set<int> gone;
  for (int i = first; i < net.op_size(); ++i) {
    const OperatorDef& sum = net.op(i);
    if (sum.type() != "Sum" || sum.output_size() != 1 || sum.input_size() < 3) continue;
    const auto terms = terms_of(net, i, first);
    if (terms.empty()) continue;
    gone.insert(i);
    for (const auto& [writer, name] : terms) {
      OperatorDef& op = behind[writer].emplace_back(sum);
      op.clear_input();
      op.add_input(sum.output(0));
      op.add_input(name);
    }
  }
  NetDef all = net;
  all.clear_op();
  for (int i = 0; i < net.op_size(); ++i) {
    if (gone.count(i) == 0) *all.add_op() = net.op(i);
    for (OperatorDef& op : behind[i]) *all.add_op() = std::move(op);
  }
  net = std::move(all);
}

}  // namespace stepnet
