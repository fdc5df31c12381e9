// Steps of an optimizer against naive ones in double: of a dense one on all elements, of a sparse one on the rows of a
// table, one after the other.
//
// Threads: not for concurrent use.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/operators/op_test.h"

namespace stepnet::testing {

using Values = std::vector<double>;
std::vector<double> values_of(const Tensor& t);

struct OptimizerSteps {
  OperatorDef def;                  // reads the gradient "g", indices "i" if it is sparse, and perhaps a counter "iter"
  Feeds feeds;                      // all others: parameter or table, and what is kept of it, in float64
  std::vector<std::string> states;  // what the operator changes in place
  int64_t row = 6;                  // elements of a row of the table, which has 5; of a dense one, all elements
  // The step of one row of the table in those states, by its formula; a dense one is row 0. `step` counts from 0.
  std::function<void(int step, int64_t at, std::span<const double> grad, std::map<std::string, Values>&)> naive = {};
};

// In float and double, several dense steps agree with the naive ones, and a step into other blobs with one in place.
// The gradient is of this shape. Returns "" or what is wrong.
std::string check_dense_steps(const OptimizerSteps& steps, const Shape& shape);

// In float and double and with both types of indices: several steps, with repeated indices and with none, agree with
// the naive ones, and rows that no index names keep their bits.
std::string check_table_steps(const OptimizerSteps& steps);

// The same for a table of many rows that threads share out: the bits do not depend on their number.
std::string check_table_threads(const OptimizerSteps& steps, const Shape& table);

// The first line of the Error that the operator throws with this feed in place of its own; nothing may be written.
std::string step_error(const OptimizerSteps& steps, const std::string& feed, const Tensor& value);

}  // namespace stepnet::testing
