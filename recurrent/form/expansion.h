// Expansion: one RecurrentNetwork while its short form becomes the full form (see recurrent/form/short_form.h).
//
// Each function below does one part of that and stands in a file of its topic; expand_op in short_form.cc calls them in
// turn. Nothing else uses this. Threads: a value type.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

using Names = std::set<std::string>;

template <class Range>
bool contains(const Range& range, const std::string& name) {
  return std::find(range.begin(), range.end(), name) != range.end();
}

struct BuiltLink {
  std::string internal, external;
  int offset = 0;
};

// An output of the operator that shows rows of a state.
struct BuiltView {
  std::string state, output;
  int offset = 0;
};

// An output of the operator that the step net writes row by row.
struct BuiltOutput {
  std::string internal, output;
  std::string gradient = {};  // in the backward step net, what arrives from outside; "" if it has no gradient
};

struct Expansion {
  OperatorDef& op;
  RecurrentDef def = {};
  std::string scope = {};
  bool nested = false;  // in the step net of another one
  NetDef step = {};
  Names written = {};                          // by the step net
  Names taken = {};                            // every name in either step net, none of which gets free again
  std::map<std::string, int> numbers = {};     // by base: the last number that fresh() has tried
  std::vector<std::string> references = {};    // read by the step net, provided by nobody inside
  std::vector<std::string> state_output = {};  // per state, the step blob linked to the state after the step
  std::vector<BuiltView> views = {};
  std::vector<BuiltOutput> outputs = {};
  std::vector<BuiltLink> links = {}, backward_links = {};
  Names spread = {};  // step blobs that only write a state's output once more
  NetDef backward = {};
  std::vector<OperatorDef> before = {};  // operators of the net outside that run before this one
  std::vector<std::pair<std::string, std::string>> params = {};  // reference, its gradient in the backward step net

  std::string state_name(int i) const { return scope + "/" + def.state(i).input() + "_states"; }
  // The row of a state before and after timestep t, less t.
  int row_before() const { return def.reverse() ? 1 : 0; }
  int row_after() const { return def.reverse() ? 0 : 1; }
  std::string fresh(const std::string& base) {
    std::string name = base;
    for (int& n = numbers[base]; taken.count(name) > 0;) name = fmt::format("{}_{}", base, ++n);
    taken.insert(name);
    return name;
  }
};

// short_form.cc: the names that the short form gives. Throws Error.
void check_names(const Expansion& e);
// What the step net reads and nobody inside provides: parameters, lengths, an encoder's output.
void find_references(Expansion& e);

// links.cc: links of the sequences, states and outputs.
void link_states(Expansion& e);
void link_outputs(Expansion& e);
void declare_step_net(Expansion& e);
OperatorDef copy_op(const std::string& from, const std::string& to);
// The same as a write that the builder has added (kSpreadName).
OperatorDef spread_op(const std::string& from, const std::string& to);

// links.cc: puts operators into the step net that keep timesteps beyond a sample's length apart.
void mask_by_lengths(Expansion& e);

// backward_net.cc: the backward step net and its links.
void build_backward(Expansion& e);

// full_form.cc: the operator's inputs, outputs and arguments.
void write_full_form(Expansion& e);

}  // namespace stepnet
