// What a short form names must be there, once. See recurrent/form/expansion.h.
#include <map>

#include "core/nearest.h"
#include "core/net/versioned_net.h"
#include "core/operator/bound_op.h"
#include "recurrent/form/expansion.h"

namespace stepnet {
namespace {

[[noreturn]] void refuse_operator(const Expansion& e, int op, Error error) {
  add_op_context(error, bind_op(e.step.op(op), e.step.name(), op));
  throw Error(std::move(error));
}

// An input may have another name in the step net at the time when an operator writes that.
void check_is_only_read(const Expansion& e, const VersionedNet& versions, const std::string& name, const char* what) {
  if (!versions.has(name) || versions.last(name) == VersionedBlob{name, 0}) return;
  const BoundOp& writer = *versions.last_writer(name);
  const std::string& output = versions.last(name).name;
  refuse_operator(e, writer.index,
                  Error(fmt::format("it writes another name of the step net's input \"{}\", a {}", name, what),
                        output == name ? "write to another blob"
                                       : fmt::format("write to another blob, or let Copy make \"{}\"", output)));
}

void check_inputs_are_distinct(const Expansion& e) {
  const VersionedNet versions(e.step, true);
  Names seen;
  auto once = [&](const std::string& name, const char* what) {
    require(!name.empty(), "a {} has an empty name", what);
    require(seen.insert(name).second, "the step net's input \"{}\" is given twice, as a {} too", name, what);
    require(e.written.count(name) == 0, "the step net writes its own input \"{}\", a {}", name, what);
    check_is_only_read(e, versions, name, what);
  };
  for (const SequenceLink& s : e.def.sequence()) once(s.inner(), "sequence");
  for (const StateLink& s : e.def.state()) once(s.input(), "state");
  once(e.def.timestep(), "timestep");
}

void check_inputs_outside(const Expansion& e) {
  require(e.def.sequence_size() > 0, "the short form needs at least one sequence");
  require(e.def.state_size() > 0, "the short form needs at least one state");
  const Names inputs(e.op.input().begin(), e.op.input().end());
  auto is_input = [&](const std::string& name, const std::string& what) {
    require(inputs.count(name) > 0, "{} \"{}\" is no input of the operator.{}", what, name, Nearest{name, inputs});
  };
  Names sequences;
  for (const SequenceLink& s : e.def.sequence()) {
    is_input(s.outer(), "the sequence");
    if (!sequences.insert(s.outer()).second)
      throw Error(fmt::format("the sequence \"{}\" is given twice", s.outer()),
                  "let the step net read one input where it needs it");
  }
  for (const StateLink& s : e.def.state())
    if (s.has_initial()) is_input(s.initial(), fmt::format("the initial value of state \"{}\",", s.input()));
  if (!e.def.has_lengths()) return;
  is_input(e.def.lengths(), "the sequence lengths");
  require(e.written.count(e.def.lengths()) == 0, "the step net writes \"{}\", the sequence lengths", e.def.lengths());
}

void check_sizes(const Expansion& e) {
  for (const StateLink& s : e.def.state()) {
    require(!s.has_initial() || s.size_size() == 0, "the state \"{}\" has both \"initial\" and \"size\"", s.input());
    if (!s.has_initial() && s.size_size() == 0)
      throw Error(fmt::format("the state \"{}\" starts at zero, but nothing says what it is like", s.input()),
                  "give its dimensions after the batch's, as in \"size: 128\", or an initial value");
    for (const int64_t size : s.size())
      require(size >= 0, "the state \"{}\" has the size {}, which is negative", s.input(), size);
    require(s.size_size() <= 6, "the state \"{}\" has {} sizes, more than the 6 that fit a tensor beside T and B",
            s.input(), s.size_size());
  }
}

void check_outputs_outside(const Expansion& e) {
  std::map<std::string, int> shown;
  for (const StateLink& s : e.def.state()) {
    if (s.has_all()) ++shown[s.all()];
    if (s.has_last()) ++shown[s.last()];
  }
  const Names outputs(e.op.output().begin(), e.op.output().end());
  for (const auto& [name, count] : shown) {
    require(outputs.count(name) > 0, "\"{}\", a view of a state, is no output of the operator.{}", name,
            Nearest{name, outputs});
    require(count == 1, "the output \"{}\" is the view of two states", name);
  }
  for (const OutputLink& o : e.def.output()) {
    require(outputs.count(o.outer()) > 0, "\"{}\", which is to show \"{}\", is no output of the operator.{}", o.outer(),
            o.inner(), Nearest{o.outer(), outputs});
    require(++shown[o.outer()] == 1, "the output \"{}\" is given twice", o.outer());
  }
  for (const std::string& name : e.op.output())
    require(shown.count(name) > 0, "the output \"{}\" is the \"all\" or \"last\" of no state", name);
}

// A step blob that is to leave the timestep: any that the step net writes or reads.
void check_step_blobs(const Expansion& e) {
  Names known = e.written;
  for (const SequenceLink& s : e.def.sequence()) known.insert(s.inner());
  for (const StateLink& s : e.def.state()) known.insert(s.input());
  known.insert(e.def.timestep());
  for (const OperatorDef& op : e.step.op()) known.insert(op.input().begin(), op.input().end());
  known.erase("");
  auto check = [&](const std::string& name, const std::string& what) {
    require(known.count(name) > 0, "no operator of the step net writes \"{}\", {}.{}", name, what,
            Nearest{name, e.written});
  };
  for (const StateLink& s : e.def.state()) check(s.output(), fmt::format("the output of state \"{}\"", s.input()));
  for (const OutputLink& o : e.def.output()) check(o.inner(), fmt::format("which \"{}\" is to show", o.outer()));
}

}  // namespace

void check_names(const Expansion& e) {
  check_inputs_outside(e);
  check_sizes(e);
  check_outputs_outside(e);
  check_inputs_are_distinct(e);
  check_step_blobs(e);
}

void find_references(Expansion& e) {
  Names inside = {e.def.timestep()};
  for (const SequenceLink& s : e.def.sequence()) inside.insert(s.inner());
  for (const StateLink& s : e.def.state()) inside.insert(s.input());
  const Names listed(e.step.external_input().begin(), e.step.external_input().end());
  Names so_far, found;
  for (int i = 0; i < e.step.op_size(); ++i) {
    for (const std::string& name : e.step.op(i).input()) {
      if (name.empty() || inside.count(name) > 0 || so_far.count(name) > 0 || found.count(name) > 0) continue;
      if (e.written.count(name) > 0)
        refuse_operator(e, i,
                        Error(fmt::format("the step net reads \"{}\" before an operator writes it", name),
                              "make it a state if it is the value of the timestep before"));
      if (!listed.empty() && listed.count(name) == 0)
        refuse_operator(e, i,
                        Error(fmt::format("the step net reads \"{}\", which no operator writes and which is no "
                                          "external_input.{}",
                                          name, suggest(name, {so_far.begin(), so_far.end()}))));
      e.references.push_back(name);
      found.insert(name);
    }
    so_far.insert(e.step.op(i).output().begin(), e.step.op(i).output().end());
  }
}

}  // namespace stepnet
