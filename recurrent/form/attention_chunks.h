// attention, over a net with networks in short form: a recurrent network whose step is linear attention is taken apart,
// and the loop over its matrix state becomes one operator, LinearAttention, which takes timesteps in chunks, by
// products of matrices (operators/products/linear_attention.cc).
//
// A state S of the network, [1, B, P, R] or, with N heads, [1, B, N, P, R], is found where
//   S = f S_prev + a b^T      by Sum or Add, of Mul or Scale, or S_prev itself, and BatchMatMul or Mul of a column and
//   a
//                             row
//   y = S q                   by the only BatchMatMul that reads S, of one vector for each matrix, on either side
// and f is one positive number for each matrix: made by Exp or Sigmoid, in the step net or before the network, the same
// in all timesteps or not, or Scale's. What a, b, q and f are computed from reads no S and no y. Then
//   - operators that depend on no state run for all timesteps at once, if what they say of their rows proves that this
//     is the same; so do all that depend on y;
//   - what depends on other states, which y must not reach, stays in a network, whose outputs the others read;
//   - the operators write the outputs that the network had, under their names.
//
// The network stays as it is where anything is left to doubt: where types are not known, or half types; on a GPU; with
// lengths, values that are computed again, arguments beside `disabled_passes`, random operators, nets in the step net;
// if a blob of the step net is written twice, or an input or output of the network by another operator after it or as
// well; if another operator reads a factor that is made before the network, by whose exponent it is passed by, or
// overwrites that; if another state is neither shown nor read, of whose initial value nobody could ask for zeros; if
// somebody names the network's own blobs, or sees S in all timesteps. What the result is does not depend on
// the types that were given for a number of timesteps or samples: those may change from run to run, though not to no
// timestep where a Reshape of other dimensions than T and B in front leaves a size to be found. Results differ by
// roundings; infinite and NaN values of a timestep reach others of its chunk.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "stepnet/op_spec.h"

namespace stepnet {

// What a network must have for chunks to be faster than its loop: timesteps, and elements of the matrix.
struct AttentionSize {
  int64_t timesteps = 16, state = 256;
};

// What LinearAttention has for a name where it stands for a loop.
inline constexpr const char* kAttentionName = "stepnet/attention";

// Returns how many states have become such operators. `types`: of blobs that are there before the net runs.
int attend_in_chunks(NetDef& net, const std::map<std::string, TensorType>& types, AttentionSize least = {});

}  // namespace stepnet
