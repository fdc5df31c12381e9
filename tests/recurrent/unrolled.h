// A recurrent cell of a test, run by RecurrentNetwork and, as the reference, unrolled by hand in one flat net.
//
// The flat net has the step's operators once per timestep with names "s@t"; parameters are shared, every timestep's row
// of the sequence is a blob of its own, and a Copy hands each state on; lengths are products with masks. It knows
// nothing of links, views or slabs.
// Both ways run twice, first on feeds full of NaN, so that a row which is not written shows.
// Threads: not for concurrent use.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/proto/recurrent.pb.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct CellState {
  std::string input, output;
  std::string initial;              // "": zeros of `size`
  std::string all = "", last = "";  // outputs of the RecurrentNetwork; "" if there is none
  std::vector<int64_t> size = {};
};

struct CellSequence {
  std::string outer, inner;
};

struct CellOutput {
  std::string inner, outer;
};

struct Cell {
  Lines step;
  std::vector<CellState> states;
  std::vector<std::string> recompute = {};
  std::vector<std::string> differentiated = {};  // outputs with a gradient from outside; empty: all
  std::vector<std::string> disabled_passes = {};
  std::vector<CellSequence> sequences = {{"X", "x"}};
  std::vector<CellOutput> outputs = {};
  bool reverse = false;
  std::string lengths = "";
  // Take the places of the lines "= Nested()" in turn: networks in short form (op 0 of recurrent_net) that stand in the
  // step. Their names must not be the step's.
  std::vector<OperatorDef> nested = {};
  NetDef step_net = {};  // instead of `step`
};

// Passes to run without: none, each alone, all.
const std::vector<std::vector<std::string>>& pass_choices();

NetDef step_net_of(const Cell& cell);

// A net with the one operator in short form; its external inputs are the feeds.
NetDef recurrent_net(const Cell& cell, const Feeds& feeds);
// The same operator in full form.
NetDef expanded_net(const Cell& cell, const Feeds& feeds);

// The net's RecurrentNetwork; operators that join its weights may stand before it.
OperatorDef& network_in(NetDef& net);
// Its arguments: the one of that name, which must be there; and its removal.
Argument& arg_of(NetDef& net, const std::string& name);
void remove_arg(NetDef& net, const std::string& name);

struct CellResults {
  std::map<std::string, Tensor> outputs;    // and everything else that the net wrote
  std::map<std::string, Tensor> gradients;  // of every floating feed; zeros where there is none
  int64_t copied = 0, spread = 0;  // bytes that recurrent operators copied in the last forward and backward run
  int64_t allocations = 0;         // of the last run
};

struct CellData {
  Feeds feeds;
  Feeds outside;  // gradients, by the output's name; the others have none
};

// Runs a forward net and its gradients on each data in turn, in one workspace. The first says what is differentiated.
std::vector<CellResults> run_in_turn(const NetDef& net, const std::vector<CellData>& data, const RunContext& run = {});
// The second of two runs, of which the first was on NaN.
CellResults run_with_gradients(const NetDef& net, const Feeds& feeds, const Feeds& outside);
CellResults run_recurrent(const Cell& cell, const Feeds& feeds, const Feeds& outside);
CellResults run_unrolled(const Cell& cell, const Feeds& feeds, const Feeds& outside);

// The derivative of the gradients along the directions, by the gradients of their product with the directions: the
// Hessian of the outputs' product with `outside` times the directions. Results have these as gradients.
CellResults run_hessian(const NetDef& net, const Feeds& feeds, const Feeds& outside, const Feeds& directions);
CellResults run_unrolled_hessian(const Cell& cell, const Feeds& feeds, const Feeds& outside, const Feeds& directions);
// The same by forward mode, over which reverse mode goes, or which goes over reverse mode.
enum class MixedMode { reverse_over_forward, forward_over_reverse };
CellResults run_mixed_hessian(const NetDef& net, const Feeds& feeds, const Feeds& outside, const Feeds& directions,
                              MixedMode mode);
// A direction for each floating feed.
Feeds directions_of(const Feeds& feeds, uint64_t seed);

// Reproducible gradients for the outputs that the cell differentiates.
Feeds outside_gradients(const Cell& cell, const Feeds& feeds);

// Outputs and gradients, one by one. Returns "" or every difference.
std::string compare_results(const CellResults& a, const CellResults& b, double tol);

// RecurrentNetwork against the unrolled net; also, that nothing but what must be was copied.
std::string check_against_unrolled(const Cell& cell, const Feeds& feeds, double tol = 1e-10);

// The data with zeros in the timesteps of sequences that are beyond their samples' lengths.
Feeds without_padding(const Cell& cell, const Feeds& feeds);
// With NaN there, and indices that no table has.
Feeds with_bad_padding(const Cell& cell, const Feeds& feeds);

// Central differences of the outputs' product with `outside_gradients` against all gradients of floating feeds.
// Returns "" or what is wrong.
std::string check_differences(const Cell& cell, const Feeds& feeds, double tol = 1e-7);

// A tensor of NaN, if it is floating; else the tensor.
Tensor poisoned(const Tensor& like);

}  // namespace stepnet::testing
