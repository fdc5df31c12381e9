// Wavefront: a stack of recurrent layers shared out to ranks, each of which runs its layers on a block of timesteps
// while the rank before it runs the next block.
//
// The forward net is a chain: operators in front of the first layer, which the first rank runs on all timesteps at
// once; layers with what stands between them, by blocks; and operators behind the last layer, which the last rank runs
// on all timesteps again. Between two ranks one value [T, B, ...] crosses, block by block. States stay within a rank,
// from block to block; in the backward pass gradients of blocks come back in reverse order. A rank has the parameters
// of its operators only, and what their optimizer and carried states take. Source: this is pipeline parallelism (Y.
// Huang et al., GPipe, 2019) with blocks of timesteps, not samples, as its pieces. Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "recurrent/train/model.h"
#include "stepnet/gradients.h"

namespace stepnet {

struct WavefrontPlan {
  NetDef net;                  // the model's forward net, of whose layers each is a RecurrentNetwork
  std::vector<bool> by_block;  // by operator; else it runs once, on all timesteps
  std::vector<int> first;      // by rank: its first operator
  // By rank but the last one: the value that it hands on.
  std::vector<std::string> crossing;
  // Whether its gradient comes back: the loss depends on it, and it on a parameter that is trained.
  std::vector<bool> gradients;
  std::map<std::string, TensorType> types;  // of all blobs, on all timesteps
  // FLOPs of the forward pass: by rank of its operators that run by blocks; of those in front of the layers and behind.
  std::vector<double> work;
  double whole = 0;
};

// Cuts the net so that the rank with most arithmetic between two messages has as little as can be. Throws Error: the
// net is no such chain, or cannot be cut so often.
WavefrontPlan plan_wavefront(const Model& model, int ranks);

// How many times as fast a step is as on one rank, if messages took no time: a step of B blocks on R ranks that have
// equally much to do, and nothing on all timesteps at once, takes (B + R - 1) / (B R) of it.
double wavefront_speed_up(const WavefrontPlan& plan, int64_t blocks);

// The part of the model that a rank has: its operators, its parameters, the states that it carries.
Model wavefront_stage(const Model& model, const WavefrontPlan& plan, int rank, int64_t blocks);

// What a stage's net exchanges with its neighbours, each in the order of blocks.
struct StageMessages {
  std::vector<std::string> received = {}, sent = {};                      // from the rank before, to the one behind
  std::vector<std::string> received_gradients = {}, sent_gradients = {};  // of what was sent, of what was received
};
// Lets each be received in front of its first reader, and sent behind its last writer. Returns where the net's
// operators have gone, and its end.
std::vector<int> add_messages(NetDef& net, const Model::Stage& stage, const StageMessages& messages,
                              const std::string& world);

// The name that the gradient of a value has that another rank computes.
std::string received_gradient(const std::string& sent);

// Lets gradients of parameters that are sums over blocks be added up block by block, in one tensor each, in place of
// all at the end. `first`: the net's first gradient operator.
void add_up_by_blocks(NetDef& net, int first);

}  // namespace stepnet
