// RecurrentScratch: what a RecurrentNetwork keeps between its forward and its backward pass, and between runs.
//
// It is the object in the operator's last output. Compiled programs are reused while the shapes stay the same.
// Threads: one run at a time.
#pragma once

#include <memory>
#include <vector>

#include "recurrent/form/backward_reads.h"
#include "recurrent/form/spec.h"
#include "recurrent/network/segments.h"
#include "recurrent/step/program.h"
#include "stepnet/bound_op.h"

namespace stepnet {

// The dtype and shape of every tensor that a program was compiled for.
using ShapeKey = std::vector<std::pair<DType, Shape>>;

// A state of which only the latest rows are kept.
struct StateInTurn {
  Tensor latest;     // the first `kept` rows, and behind them the others in turn
  int64_t rows = 0;  // T + L
  int64_t kept = 0;
  int64_t place(int64_t row) const { return row < kept ? row : kept + (row - kept) % (latest.dim(0) - kept); }
};

// The operator type that fetches step blobs. Where one reads the scratch in the same net, all are kept.
inline constexpr const char* kBlobFetcher = "RecurrentNetworkBlobFetcher";

// The names of gradients that the backward step net and its links use, made once.
struct StepGradientNames {
  std::vector<std::string> states, sequences, outputs;  // in the order of states, input by input, and of outputs
};

struct RecurrentScratch : KeptState {
  // Of the forward run: what the step net's blob was over time, [T, ...]; undefined if it was not kept.
  Tensor slab(const std::string& name) const;
  bool has_run() const { return forward || is_settled; }
  // The same of all values that were kept; where the network runs by segments, of the segment at work.
  std::map<std::string, Tensor> slabs() const;
  // Drops the compiled programs and keeps what a backward pass reads, in `forward_slabs` and `segments`.
  std::vector<Tensor*> settle() override;
  void drop_programs();  // the first part of it

  Shape sequence;  // [T, B, ...] of the last forward run
  std::unique_ptr<StepProgram> forward, backward;
  std::unique_ptr<StepProgram> rebuilder;  // between them, see recurrent/network/rebuild.h
  std::vector<Link> rebuilder_links;
  std::set<std::string> rebuilt;        // states that it can make
  std::set<int> outer_products;         // operators of the step net, when the network first ran
  KeptBytes kept;                       // the forward program's slabs
  bool overwritten = false;             // the backward run has left other values in them
  std::map<std::string, Tensor> zeros;  // gradients of outputs of the step net that nobody gives
  std::map<std::string, StateInTurn> in_turn;
  std::set<std::string> read_ahead;                      // states that the step net reads where it makes them
  std::map<std::string, StateInTurn> gradients_in_turn;  // of states
  // Gradient tensors of which the backward step writes row t + offset in every timestep t.
  std::set<std::pair<std::string, int64_t>> written_rows;
  Device device;  // the sequence's, and of all that the network makes
  bool is_fetched = false, is_settled = false;
  bool is_read_again = false;                   // by another gradient of the network
  std::map<std::string, Tensor> forward_slabs;  // once it is settled
  Segments segments;
  // Of both programs, which take turns; between segments, too.
  std::shared_ptr<PackMemory> packs = std::make_shared<PackMemory>();
  SegmentChoice choice;  // for this run
  ShapeKey choice_key;   // what it was made for by a budget
  ShapeKey forward_key, backward_key;
  std::map<std::string, TensorType> types;  // of the forward step net's values
  RecurrentSpec forward_spec, backward_spec;
  StepGradientNames gradient_names;  // of backward_spec
  // Whose arguments these were parsed from; two nets may use one scratch blob.
  std::shared_ptr<const int> forward_of, backward_of;
};

std::string place_of(const BlobCall& call);  // such as `RecurrentNetwork "lstm" of net "decoder"`
// Runs `fn`; an error of the step net's operators gets the place of the operator that runs the step net.
template <class Fn>
void with_place(const BlobCall& call, Fn fn) {
  try {
    fn();
  } catch (Error& e) {
    if (e.has("op")) e.add("in", place_of(call));
    throw;
  }
}

// What the operator does to its step nets where it first runs (recurrent/form/passes.h); the forward and the gradient
// operator do it alike. On a GPU nothing is made again: that has not been measured there.
void adapt_step_nets(RecurrentSpec& spec, const RecurrentScratch& scratch);

// The tensor outside that a link leads to; throws Error that names the argument with the link's external name.
const Tensor& linked_tensor(const Workspace& workspace, const std::string& argument, const std::string& internal,
                            const std::string& external);

// Whether it is the name of one; without allocating, as it is asked in every run.
bool is_state(const RecurrentSpec& spec, const std::string& name);

// Row `index` of a state tensor is what its name says; the tensor's number of rows is T + L.
int64_t initial_rows(const Tensor& initial);  // L: 1 for [D] and [B, D], dim 0 for [L, B, ...]
// A GPU needs more rows to be busy: so many blocks are one there, but in segments, which are whole blocks.
int64_t blocks_at_once(const RecurrentScratch& scratch);
// The timesteps of a block of the forward program, unless there are fewer in all.
int64_t forward_block(const RecurrentScratch& scratch, int64_t batch);
Shape state_shape(const Shape& initial, int64_t steps, int64_t batch);

}  // namespace stepnet
