// What each sample of a batch adds to the gradient of a loss: these gradients one by one, their norms without them, and
// sums of them by weights, all from one backward pass.
//
// Where y = x W^T, sample s adds dy_s^T x_s to the gradient of W, over the rows (timesteps) of the sample. So the
// gradients are products of matrices, one for each sample, and the norm of one is
//   |dy_s^T x_s|^2 = <x_s x_s^T, dy_s dy_s^T>
// whose matrices are as large as a sample has rows, however large W is. A sum by weights is the ordinary gradient for
// dy times the weights. What a table of rows (Gather) adds is the same with x_s x_s^T = 1 where two indices are equal.
// Of elementwise operators, a parameter is replaced by a copy for each sample, whose gradient is the sample's.
// In a step net, the products' inputs become an output of the network, and zeros, as a sequence, are added to what they
// give: the gradient of these is dy of all timesteps.
// Source: I. Goodfellow, Efficient per-example gradient computations, 2015, arXiv 1510.01799; X. Li et al., Large
// language models can be strong differentially private learners, 2022, arXiv 2110.05679; Z. Bu et al., Differentially
// private optimization on large model at small cost, 2023, arXiv 2210.00038.
//
// Threads: pure functions; SampleTaps is a value.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "recurrent/form/sample_rows.h"
#include "stepnet/gradients.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct SampleRequest {
  // What is differentiated: written by the operator that adds up or averages what the samples have.
  std::string loss;
  std::set<std::string> parameters;
  std::map<std::string, TensorType> types;  // of all that the net reads
  std::map<std::string, int> batch_axes;    // of what holds samples among it: which dimension has one place for each
  int64_t samples = 0;
};

// An operator that reads a parameter, with what tells its gradient by samples.
struct SampleReader {
  enum class Kind { product, table, copies };
  Kind kind = Kind::product;
  OperatorDef op;             // without names of the step net that it may stand in
  std::string weights, bias;  // those of the request's parameters that it reads as such; "" for none
  std::string x;              // what the weights are multiplied by, or the table's indices
  std::string shown;          // whose gradient is that of the output; of copies, these
  std::string gradient = {};  // of that
  // [groups, samples, rows]: the rows of x and of the output, each of `in` and `out` elements; of copies, rows are 1
  int64_t groups = 1, rows = 1, in = 1, out = 1;
};

struct SampleTaps {
  int64_t samples = 0;
  DType dtype = DType::undefined;
  std::vector<SampleReader> readers;
  std::map<std::string, Shape> shapes;  // of the parameters
};

// Prepares a net whose networks are in short form, and stay so. Throws Error, with the operator's place: an operator
// that reads a parameter and has no rule; samples that are not apart where one is read; a loss that is more than a sum
// over samples.
SampleTaps tap_parameters(NetDef& net, const SampleRequest& request);

// Appends the gradient operators of the loss to the net, which has been expanded since; readers that the loss does not
// depend on are left out of the taps. `given`: the gradient to start with, "" for ones. Throws Error: the loss depends
// on no parameter (NoDependence), and what add_gradient_operators refuses.
GradientResult differentiate_taps(NetDef& net, SampleTaps& taps, const std::string& loss, const std::string& given,
                                  const std::set<std::string>& stop);

// Append operators; all but the first return names by parameter.
std::string add_squared_norms(NetDef& net, const SampleTaps& taps);  // [samples], over all parameters
std::map<std::string, std::string> add_sample_gradients(NetDef& net, const SampleTaps& taps);  // [samples, ...]
// The samples' gradients times the weights, [samples], added up.
std::map<std::string, std::string> add_weighted_gradients(NetDef& net, const SampleTaps& taps,
                                                          const std::string& weights);

}  // namespace stepnet
