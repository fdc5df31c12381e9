#include "core/passes/gradients.h"

#include <algorithm>

#include "core/bound_op.h"
#include "core/passes/gradient_names.h"

namespace stepnet {
namespace {

// One version of a blob: every write makes a new one; version 0 exists before the net runs.
using Ref = std::pair<std::string, int>;

struct ForwardOp {
  BoundOp op;
  std::vector<Ref> inputs;   // versions as read
  std::vector<Ref> outputs;  // versions as written
  std::vector<bool> wanted;  // per input
};

// True if the step's output `slot` may have the name of its input `i`.
bool works_in_place(const GradientProgram::Step& step, int i, int slot) {
  const OpSpec& spec = op_spec(step.type);
  const ParamSpec* in = spec.input_spec(i);
  return in && std::any_of(spec.in_place.begin(), spec.in_place.end(), [&](const InPlaceRule& r) {
           const int o = spec.output_index(r.out);
           return r.in == in->name && o < static_cast<int>(step.outputs.size()) && step.outputs[o] == slot;
         });
}

class GradientPass {
 public:
  GradientPass(NetDef& net, const GradientRequest& request) : net_(net), request_(request), names_(net) {}

  GradientResult run() {
    result_.first_gradient_op = net_.op_size();
    read_forward();
    seed_targets();
    for (int i = static_cast<int>(forward_.size()) - 1; i >= 0; --i) {
      differentiate(forward_[i]);
      finish_blobs_first_read_by(i);
    }
    for (auto& [ref, list] : pending_) finish(ref);
    name_results();
    return std::move(result_);
  }

 private:
  void read_forward();
  void mark_wanted();
  void seed_targets();
  void differentiate(ForwardOp& f);
  void emit(ForwardOp& f, const GradientProgram& program);
  std::map<int, std::string> name_slots(ForwardOp& f, const GradientProgram& program);
  bool may_write(const ForwardOp& f, const GradientProgram& program, size_t s, int slot, const std::string& name,
                 const std::map<int, std::string>& named) const;
  std::string name_output(const ForwardOp& f, const GradientProgram& program, size_t s, int slot,
                          const std::map<int, std::string>& named);
  std::string slot_name(const ForwardOp& f, const GradientProgram::Slot& slot) const;
  void check_versions(const ForwardOp& f, const GradientProgram& program);
  void check_in_place(const ForwardOp& f) const;
  void contribute(ForwardOp& f, const GradientProgram& program, const std::map<int, std::string>& named);
  void finish_blobs_first_read_by(int op);
  const GradientName& finish(const Ref& ref);
  GradientName add_up(const Ref& ref, std::vector<GradientName>& list);
  GradientName add_up_sparse(const Ref& ref, const std::vector<GradientName>& list);
  OperatorDef& append(const std::string& type, const OperatorDef& like);
  void name_results();
  void add_contribution(const Ref& ref, GradientName c);

  NetDef& net_;
  const GradientRequest& request_;
  GradientNames names_;
  GradientResult result_;
  std::vector<ForwardOp> forward_;
  std::map<std::string, int> version_;             // the last of each blob
  std::map<std::string, const BoundOp*> writer_;   // of the last version
  std::map<Ref, int> first_reader_;                // smallest index of an operator that reads the version
  std::map<Ref, const OperatorDef*> some_reader_;  // whose device a Sum gets
  std::set<Ref> needs_;
  std::map<Ref, std::vector<GradientName>> pending_;
  std::map<Ref, GradientName> done_;
};

void GradientPass::read_forward() {
  for (int i = 0; i < net_.op_size(); ++i) {
    ForwardOp f;
    f.op = bind_op(net_.op(i), net_.name(), i);
    for (const std::string& name : net_.op(i).input()) f.inputs.emplace_back(name, version_[name]);
    for (const std::string& name : net_.op(i).output())
      f.outputs.emplace_back(name, name.empty() ? 0 : ++version_[name]);
    forward_.push_back(std::move(f));
  }
  for (size_t i = 0; i < forward_.size(); ++i) {
    for (const Ref& ref : forward_[i].inputs) {
      first_reader_.emplace(ref, static_cast<int>(i));
      some_reader_[ref] = &forward_[i].op.def;
    }
    for (const Ref& ref : forward_[i].outputs) writer_[ref.first] = &forward_[i].op;
  }
  mark_wanted();
}

// A gradient is needed for what is wanted, and for everything on the way from there to the end.
void GradientPass::mark_wanted() {
  auto starts = [&](const Ref& ref) {
    if (ref.first.empty() || request_.stop.count(ref.first) > 0) return false;
    return request_.wanted.empty() ? ref.second == 0 : request_.wanted.count(ref.first) > 0;
  };
  for (ForwardOp& f : forward_) {
    bool any = false;
    for (const Ref& ref : f.inputs) {
      if (starts(ref)) needs_.insert(ref);
      f.wanted.push_back(needs_.count(ref) > 0);
      any = any || f.wanted.back();
    }
    if (f.op.spec->gradient_rule == GradientRule::stop) any = false;
    for (const Ref& ref : f.outputs)
      if ((any || starts(ref)) && !ref.first.empty() && request_.stop.count(ref.first) == 0) needs_.insert(ref);
  }
}

OperatorDef& GradientPass::append(const std::string& type, const OperatorDef& like) {
  OperatorDef* op = net_.add_op();
  op->set_type(type);
  op->set_name("");
  op->set_is_gradient_op(true);
  if (like.has_device_option()) *op->mutable_device_option() = like.device_option();
  if (like.has_engine()) op->set_engine(like.engine());
  if (like.HasExtension(source)) *op->MutableExtension(source) = like.GetExtension(source);
  return *op;
}

void GradientPass::seed_targets() {
  bool any = false;
  for (const auto& [blob, given] : request_.targets) {
    const auto it = version_.find(blob);
    if (it == version_.end()) {
      std::vector<std::string> all;
      for (const auto& [name, version] : version_) all.push_back(name);
      fail("there is no blob \"{}\" in net \"{}\" to differentiate.{}", blob, net_.name(), suggest(blob, all));
    }
    const Ref ref{blob, it->second};
    GradientName name{.dense = given, .indices = "", .values = ""};
    if (given.empty()) {
      name.dense = names_.fresh(names_.gradient_of(blob, "_autogen_grad"));
      const auto writer = writer_.find(blob);
      const OperatorDef like = writer == writer_.end() ? OperatorDef() : writer->second->def;
      OperatorDef& fill = append(op_with_role(Role::fill_like).type, like);
      fill.add_input(blob);
      fill.add_output(name.dense);
      *fill.add_arg() = make_arg("value", 1.0f);
    }
    names_.take(name.dense);
    add_contribution(ref, name);
    any = any || needs_.count(ref) > 0;
  }
  if (any || request_.targets.empty() || request_.wanted.empty()) return;
  std::vector<std::string> targets;
  for (const auto& [blob, given] : request_.targets) targets.push_back(blob);
  fail("{} of net \"{}\" depends on none of the blobs whose gradients are wanted: {}", fmt::join(targets, ", "),
       net_.name(), fmt::join(request_.wanted, ", "));
}

void GradientPass::add_contribution(const Ref& ref, GradientName c) {
  for (const std::string& name : {c.dense, c.indices, c.values})
    if (!name.empty()) names_.hold(name);
  pending_[ref].push_back(std::move(c));
}

void GradientPass::differentiate(ForwardOp& f) {
  if (std::find(f.wanted.begin(), f.wanted.end(), true) == f.wanted.end()) return;
  std::vector<bool> present;
  bool any = f.outputs.empty();
  for (const Ref& ref : f.outputs) {
    const bool has = !ref.first.empty() && (done_.count(ref) > 0 || pending_.count(ref) > 0);
    present.push_back(has && finish(ref).defined());
    any = any || present.back();
  }
  if (!any) return;
  try {
    for (const Ref& ref : f.outputs)
      if (const auto it = done_.find(ref); it != done_.end() && it->second.is_sparse())
        fail("the gradient of \"{}\" is sparse, which {} cannot take", ref.first, f.op.def.type());
    const GradientProgram program = record_gradient(*f.op.spec, f.op.def, f.op.args.get(), f.wanted, present);
    check_in_place(f);
    check_versions(f, program);
    emit(f, program);
  } catch (Error& e) {
    add_op_context(e, f.op);
    throw;
  }
  // The gradients of this operator's outputs have been read for the last time.
  for (const Ref& ref : f.outputs)
    if (const auto it = done_.find(ref); it != done_.end()) names_.release(it->second);
}

void GradientPass::check_in_place(const ForwardOp& f) const {
  const OpSpec& spec = *f.op.spec;
  for (const InPlaceRule& rule : spec.in_place) {
    const int i = spec.input_index(rule.in);
    const int o = spec.output_index(rule.out);
    if (i >= f.op.def.input_size() || o >= f.op.def.output_size() || f.op.def.input(i) != f.op.def.output(o)) continue;
    for (const std::string& other : rule.forbidden_if_wanted) {
      const int at = spec.input_index(other);
      if (at < static_cast<int>(f.wanted.size()) && f.wanted[at])
        throw Error(fmt::format("\"{}\" is overwritten in place, but the gradient of \"{}\" is computed from it",
                                f.op.def.input(i), f.op.def.input(at)),
                    "write the output to another blob");
    }
  }
}

void GradientPass::check_versions(const ForwardOp& f, const GradientProgram& program) {
  auto check = [&](const Ref& ref) {
    const int now = version_.at(ref.first);
    result_.kept.insert(ref.first);
    if (now == ref.second) return;
    const BoundOp& writer = *writer_.at(ref.first);
    throw Error(fmt::format("the gradient reads version {} of \"{}\", but operator {} ({}) has made it version {}",
                            ref.second, ref.first, writer.index, writer.def.type(), now),
                fmt::format("let {} write to another blob than \"{}\"", writer.def.type(), ref.first));
  };
  for (size_t i = 0; i < f.inputs.size(); ++i)
    if (program.reads_input[i]) check(f.inputs[i]);
  for (size_t o = 0; o < f.outputs.size(); ++o)
    if (program.reads_output[o]) check(f.outputs[o]);
}

std::string GradientPass::slot_name(const ForwardOp& f, const GradientProgram::Slot& slot) const {
  switch (slot.kind) {
    case GradientProgram::SlotKind::input:
      return f.op.def.input(slot.index);
    case GradientProgram::SlotKind::output:
      return f.op.def.output(slot.index);
    case GradientProgram::SlotKind::output_gradient:
      return done_.at(f.outputs[slot.index]).dense;
    case GradientProgram::SlotKind::temporary:
      break;
  }
  return "";
}

// May step `s` write its output `slot` to `name`? Not if another gradient holds what is there, a later step or a result
// reads it, or step `s` itself reads it and does not work in place.
bool GradientPass::may_write(const ForwardOp& f, const GradientProgram& program, size_t s, int slot,
                             const std::string& name, const std::map<int, std::string>& named) const {
  int holders = names_.holders(name);
  for (const Ref& ref : f.outputs)  // this operator's own output gradients are read here for the last time
    if (const auto it = done_.find(ref); it != done_.end() && it->second.dense == name) --holders;
  if (holders > 0 || names_.is_foreign(name)) return false;
  auto holds_name = [&](const Value& v) {
    const auto it = named.find(v.slot);
    return v.slot != slot && it != named.end() && it->second == name;
  };
  for (const Gradient& g : program.results)
    if (holds_name(g.dense) || holds_name(g.indices) || holds_name(g.values)) return false;
  for (size_t later = s; later < program.steps.size(); ++later)
    for (size_t i = 0; i < program.steps[later].inputs.size(); ++i) {
      if (!holds_name({program.steps[later].inputs[i]})) continue;
      if (later > s || !works_in_place(program.steps[s], static_cast<int>(i), slot)) return false;
    }
  return true;
}

std::string GradientPass::name_output(const ForwardOp& f, const GradientProgram& program, size_t s, int slot,
                                      const std::map<int, std::string>& named) {
  for (size_t i = 0; i < program.results.size(); ++i) {
    const Gradient& g = program.results[i];
    if (g.dense.slot != slot && g.indices.slot != slot && g.values.slot != slot) continue;
    const std::string suffix = g.dense.slot == slot ? "" : g.values.slot == slot ? "_values" : "_indices";
    const std::string base = names_.gradient_of(f.inputs[i].first) + suffix;
    if (may_write(f, program, s, slot, base, named)) return base;
    return names_.split(base, [&](const std::string& name) {
      return !names_.taken(name) || may_write(f, program, s, slot, name, named);
    });
  }
  return names_.temporary(f.op.def.output_size() > 0 ? f.op.def.output(0) : f.op.def.type());
}

std::map<int, std::string> GradientPass::name_slots(ForwardOp& f, const GradientProgram& program) {
  std::map<int, std::string> named;
  for (size_t i = 0; i < program.slots.size(); ++i)
    if (program.slots[i].kind != GradientProgram::SlotKind::temporary)
      named[static_cast<int>(i)] = slot_name(f, program.slots[i]);
  for (size_t s = 0; s < program.steps.size(); ++s)
    for (const int out : program.steps[s].outputs)
      if (out >= 0) {
        named[out] = name_output(f, program, s, out, named);
        names_.take(named[out]);
      }
  return named;
}

void GradientPass::emit(ForwardOp& f, const GradientProgram& program) {
  const std::map<int, std::string> named = name_slots(f, program);
  for (const GradientProgram::Step& step : program.steps) {
    OperatorDef& op = append(step.type, f.op.def);
    for (const Argument& arg : step.args) *op.add_arg() = arg;
    for (const int in : step.inputs) op.add_input(in < 0 ? "" : named.at(in));
    int last = static_cast<int>(step.outputs.size());
    while (last > 0 && step.outputs[last - 1] < 0) --last;  // unwanted outputs at the end are left out
    for (int o = 0; o < last; ++o) op.add_output(step.outputs[o] < 0 ? "" : named.at(step.outputs[o]));
  }
  contribute(f, program, named);
}

void GradientPass::contribute(ForwardOp& f, const GradientProgram& program, const std::map<int, std::string>& named) {
  for (size_t i = 0; i < program.results.size(); ++i) {
    const Gradient& g = program.results[i];
    if (!f.wanted[i] || !g.defined()) continue;
    GradientName c;
    if (g.is_sparse()) {
      c.indices = named.at(g.indices.slot);
      c.values = named.at(g.values.slot);
    } else {
      c.dense = named.at(g.dense.slot);
    }
    add_contribution(f.inputs[i], std::move(c));
  }
}

void GradientPass::finish_blobs_first_read_by(int op) {
  const ForwardOp& f = forward_[op];
  for (const Ref& ref : f.inputs)
    if (first_reader_.at(ref) == op && pending_.count(ref) > 0) finish(ref);
}

const GradientName& GradientPass::finish(const Ref& ref) {
  if (const auto it = done_.find(ref); it != done_.end()) return it->second;
  std::vector<GradientName>& list = pending_[ref];
  if (list.size() == 1) return done_[ref] = list[0];
  return done_[ref] = add_up(ref, list);
}

GradientName GradientPass::add_up(const Ref& ref, std::vector<GradientName>& list) {
  const bool sparse = list[0].is_sparse();
  for (const GradientName& c : list)
    if (c.is_sparse() != sparse)
      throw Error(fmt::format("the gradients of \"{}\" are partly sparse and partly dense", ref.first),
                  "give the operators that make sparse ones the argument dense_gradient: 1");
  if (sparse) return add_up_sparse(ref, list);
  // A gradient that nobody else holds is added to in place; it comes first.
  const std::string base = names_.gradient_of(ref.first);
  auto own = std::find_if(list.begin(), list.end(),
                          [&](const GradientName& c) { return c.dense == base && names_.holders(base) == 1; });
  if (own != list.end()) std::rotate(list.begin(), own, own + 1);
  std::string total = base;
  if (own == list.end() && (names_.taken(base) || names_.is_foreign(base)))
    total = names_.split(base, [&](const std::string& name) { return !names_.taken(name); });
  const auto reader = some_reader_.find(ref);
  OperatorDef& sum =
      append(op_with_role(Role::sum).type, reader == some_reader_.end() ? OperatorDef() : *reader->second);
  sum.clear_engine();
  for (const GradientName& c : list) sum.add_input(c.dense);
  sum.add_output(total);
  for (const GradientName& c : list) names_.release(c);
  names_.take(total);
  names_.hold(total);
  return {.dense = total, .indices = "", .values = ""};
}

GradientName GradientPass::add_up_sparse(const Ref& ref, const std::vector<GradientName>& list) {
  GradientName total;
  const auto reader = some_reader_.find(ref);
  const OperatorDef like = reader == some_reader_.end() ? OperatorDef() : *reader->second;
  for (const bool values : {false, true}) {
    OperatorDef& concat = append(op_with_role(Role::concat_rows).type, like);
    concat.clear_engine();
    for (const GradientName& c : list) concat.add_input(values ? c.values : c.indices);
    const std::string out =
        names_.fresh(names_.gradient_of(ref.first) + (values ? "_values_concat" : "_indices_concat"));
    concat.add_output(out);
    concat.add_output(out + "_split");
    *concat.add_arg() = make_arg("axis", 0);
    (values ? total.values : total.indices) = out;
    names_.take(out);
    names_.hold(out);
  }
  return total;
}

void GradientPass::name_results() {
  // Later versions first, so that for a blob with several the one that is wanted stays: of an external input the first,
  // of anything else the last.
  std::set<std::string> external;
  for (const ForwardOp& f : forward_)
    for (const Ref& ref : f.inputs)
      if (ref.second == 0) external.insert(ref.first);
  for (const auto& [ref, name] : done_) {
    if (!name.defined()) continue;
    if (external.count(ref.first) > 0 ? ref.second == 0 : ref.second == version_[ref.first])
      result_.gradients[ref.first] = name;
  }
}

}  // namespace

GradientResult add_gradient_operators(NetDef& net, const GradientRequest& request) {
  return GradientPass(net, request).run();
}

}  // namespace stepnet
