// Do: runs a net in a scope of its own, where names are its own but for those that are bound to blobs outside.
//
// A scope keeps its blobs from run to run, so that a net that runs again allocates nothing. There is no derivative yet:
// what the public format's gradient does with a stack of scopes is not implemented.

#include <algorithm>
#include <set>

#include "core/net/dataflow.h"
#include "core/net/inner_net.h"
#include "operators/control/scope.h"
#include "stepnet/operator.h"
#include "stepnet/random.h"

namespace stepnet::cpu_do {
namespace {

struct DoArgs {
  NetArg net;
  std::vector<std::string> inner_blobs;
  std::vector<int64_t> outer_blobs_idx;
  bool reuse_workspace = false;
  InnerNet runs;
};

// A blob outside, by its place among the inputs and outputs, the scope left out of each.
struct Outside {
  bool output;
  int index;
};

Outside outside(const OperatorDef& def, int64_t place) {
  const int inputs = def.input_size() - 1;
  return place < inputs ? Outside{false, static_cast<int>(place)} : Outside{true, static_cast<int>(place) - inputs};
}

const std::string& outer_name(const OperatorDef& def, int64_t place) {
  const Outside at = outside(def, place);
  return at.output ? def.output(at.index) : def.input(at.index);
}

void check_scope(const OperatorDef& def) {
  const bool has_scope = def.input_size() > 0 && def.output_size() > 0 &&
                         def.input(def.input_size() - 1) == def.output(def.output_size() - 1);
  require(has_scope, "the last input and the last output must be the same scope, which CreateScope makes");
}

// Throws Error unless each inner name is bound once, to a blob of its own, and every blob outside is bound.
void check_bindings(const DoArgs& a, const OperatorDef& def) {
  require(a.inner_blobs.size() == a.outer_blobs_idx.size(),
          "inner_blobs has {} names, but outer_blobs_idx {} places; there must be as many", a.inner_blobs.size(),
          a.outer_blobs_idx.size());
  const int64_t places = def.input_size() + def.output_size() - 2;
  std::set<std::string> inner, outer, all;
  for (size_t i = 0; i < a.inner_blobs.size(); ++i) {
    const int64_t place = a.outer_blobs_idx[i];
    require(place >= 0 && place < places,
            "outer_blobs_idx has {}, but there are {} inputs and outputs beside the scope", place, places);
    require(inner.insert(a.inner_blobs[i]).second, "inner_blobs has \"{}\" twice", a.inner_blobs[i]);
    require(outer.insert(outer_name(def, place)).second, "outer_blobs_idx binds \"{}\" twice", outer_name(def, place));
  }
  for (int64_t place = 0; place < places; ++place) all.insert(outer_name(def, place));
  for (const std::string& name : all)
    require(outer.contains(name), "no name of the net is bound to \"{}\"; add one to inner_blobs and outer_blobs_idx",
            name);
}

bool is_bound(const DoArgs& a, const std::string& name) { return std::ranges::count(a.inner_blobs, name) > 0; }

// Calls `fn` for the operators of the net and of the nets in it, but for those that have names of their own.
template <class Fn>
void for_each_op(const NetDef& net, const Fn& fn) {
  for (const OperatorDef& op : net.op()) {
    fn(op);
    if (op.type() == "Do") continue;
    for (const Argument& arg : op.arg()) {
      if (arg.has_n()) for_each_op(arg.n(), fn);
      for (const NetDef& inner : arg.nets()) for_each_op(inner, fn);
    }
  }
}

// What others know to be written are the outputs.
void check_writes(const DoArgs& a, const OperatorDef& def) {
  std::set<std::string> read_only;
  for (size_t i = 0; i < a.inner_blobs.size(); ++i)
    if (std::ranges::count(def.output(), outer_name(def, a.outer_blobs_idx[i])) == 0)
      read_only.insert(a.inner_blobs[i]);
  for_each_op(a.net.net, [&](const OperatorDef& op) {
    for (const std::string& name : op.output())
      if (read_only.contains(name))
        throw Error(fmt::format("the net writes \"{}\", which is bound to an input that is no output", name),
                    "name that blob among the outputs, too");
  });
}

// Without reuse_workspace each run starts with nothing in the scope.
void check_reads(const DoArgs& a) {
  if (a.reuse_workspace) return;
  for (const std::string& name : read_from_outside(a.net.net))
    require(is_bound(a, name),
            "the net reads \"{}\", which it does not write before and which is bound to no blob outside; a net in a "
            "scope sees those that inner_blobs names alone",
            name);
}

void check(const DoArgs& a, const OperatorDef& def, const Workspace&) {
  require(a.net.present, "argument \"net\" holds no net");
  check_scope(def);
  check_bindings(a, def);
  check_reads(a);
  check_writes(a, def);
  check_inner_net("net", a.net);
}

std::shared_ptr<ScopeState> scope_of(const BlobCall& c) {
  Blob* const blob = c.in.back();
  if (!blob || !blob->holds<Scope>())
    fail("\"{}\" must hold a scope, which CreateScope makes, but holds {}", c.def.input(c.def.input_size() - 1),
         blob ? blob->type_str() : "nothing");
  return blob->get<Scope>().state;
}

// Throws Error if a name stands for a blob outside here and for one of the scope's own in another Do: nets that are
// bound to either would see what belongs to the other.
void check_shared_names(const DoArgs& a, const ScopeState& scope) {
  constexpr const char* kFix = "give each its own scope";
  for (const std::string& name : a.inner_blobs)
    if (scope.blobs.find(name))
      throw Error(fmt::format("\"{}\" is bound here, but another Do has it as a name of its own in the scope", name),
                  kFix);
  std::set<std::string> others = scope.bound;
  for (const std::string& name : a.inner_blobs) others.erase(name);
  if (others.empty()) return;
  for_each_op(a.net.net, [&](const OperatorDef& op) {
    for (const auto* names : {&op.input(), &op.output()})
      for (const std::string& name : *names)
        if (others.contains(name))
          throw Error(fmt::format("\"{}\" is not bound here, but another Do binds it in the scope", name), kFix);
  });
}

// The scope for one run of a net, with the blobs outside under their inner names: these may not live as long as it.
class Inside {
 public:
  Inside(const DoArgs& a, const BlobCall& c) : args_(a), scope_(scope_of(c)) {
    require(!scope_->in_use.test_and_set(), "another Do runs in the scope \"{}\"", c.def.input(c.def.input_size() - 1));
    try {
      check_shared_names(a, *scope_);
      if (a.reuse_workspace && scope_->emptied)
        for (const std::string& name : scope_->blobs.names()) scope_->blobs.at(name).clear();
      scope_->emptied = false;
      show_outside(c);
    } catch (...) {
      leave();
      throw;
    }
  }
  ~Inside() { leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  // Shares the scope.
  std::shared_ptr<Workspace> blobs() const { return {scope_, &scope_->blobs}; }

 private:
  void show_outside(const BlobCall& c) {
    scope_->blobs.root_folder = c.workspace.root_folder;
    scope_->blobs.confine(c.workspace.file_root());
    for (size_t i = 0; i < args_.inner_blobs.size(); ++i) {
      const std::string& name = args_.inner_blobs[i];
      const Outside at = outside(c.def, args_.outer_blobs_idx[i]);
      Blob* const blob = at.output ? c.out[static_cast<size_t>(at.index)] : c.in[static_cast<size_t>(at.index)];
      require(blob != nullptr, "\"{}\" is bound to an input or output without a name", name);
      scope_->blobs.show(name, *blob);
      scope_->bound.insert(name);
      shown_.push_back(name);
    }
  }
  void leave() {
    for (const std::string& name : shown_) scope_->blobs.remove(name);
    scope_->in_use.clear();
  }

  const DoArgs& args_;
  std::shared_ptr<ScopeState> scope_;
  std::vector<std::string> shown_;
};

// Names inside are the net's own, so that those outside tell the draws of two nets apart.
uint64_t seed_of(const BlobCall& c) {
  return random_key(c.run.seed, c.net.name(), fmt::format("{}", fmt::join(c.def.output(), "/")), c.run.iteration,
                    c.run.timestep);
}

void run(const DoArgs& a, BlobCall& c) {
  forget_released_outputs(c);
  const Inside inside(a, c);
  RunContext context = c.run;
  context.seed = seed_of(c);
  a.runs.run("net", a.net, c, context, c.run.iteration, inside.blobs());
}

constexpr const char* kExample = R"(
  op { type: 'CreateScope' output: 'scope' }
  op { type: 'Do' input: 'X' input: 'scope' output: 'Y' output: 'scope'
       arg { name: 'inner_blobs' strings: 'a' strings: 'b' } arg { name: 'outer_blobs_idx' ints: 0 ints: 1 }
       arg { name: 'net' n { op { type: 'Sqr' input: 'a' output: 'X' }
                             op { type: 'Negative' input: 'X' output: 'b' } } } })";

constexpr const char* kInPlaceExample = R"(
  op { type: 'CreateScope' output: 'scope' }
  op { type: 'Do' input: 'X' input: 'W' input: 'scope' output: 'X' output: 'scope'
       arg { name: 'inner_blobs' strings: 'x' strings: 'w' } arg { name: 'outer_blobs_idx' ints: 0 ints: 1 }
       arg { name: 'net' n { op { type: 'Mul' input: 'x' input: 'w' output: 'x' } } } })";

REGISTER(do) {
  return op<DoArgs>("Do")
      .doc(
          "Runs a net in a scope: its names are its own, apart from those that inner_blobs binds to inputs and outputs "
          "of this operator. The last input and the last output are the scope. It has no gradient and cannot stand in "
          "a step net.")
      .required_arg("net", &DoArgs::net, "what runs")
      .arg("inner_blobs", &DoArgs::inner_blobs, {}, "names in the net that stand for blobs outside")
      .arg("outer_blobs_idx", &DoArgs::outer_blobs_idx, {},
           "for each of them, which blob: its place among the inputs and then the outputs, the scope not counted")
      .arg("reuse_workspace", &DoArgs::reuse_workspace, false, "let the net read what an earlier run left in the scope")
      .accepts("copy_external_blobs", "the gradient reads it, which is not implemented")
      .accepts("saved_fwd_blobs", "the gradient reads it, which is not implemented")
      .input("externals", "what the net reads; last the scope")
      .object()
      .variadic()
      .output("results", "what the net writes; last the scope")
      .object()
      .variadic()
      .in_place_anywhere("externals", "results")
      .side_effect()
      .blobs(run)
      .runs_dry()
      .preflight(check)
      .example_net(kExample, {"X=2,3"})
      .example_net(kInPlaceExample, {"X=2,0", "W=2,0"})
      .no_gradient("what the public format's gradient of it does is not implemented");
}

}  // namespace
}  // namespace stepnet::cpu_do
