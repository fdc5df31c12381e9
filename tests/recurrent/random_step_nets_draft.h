// A step net while it is being generated: values that operators may read, and what may be overwritten.
//
// Used by the files random_step_nets_*.cc alone. Threads: not for concurrent use.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "stepnet/random.h"
#include "tests/recurrent/random_step_nets.h"

namespace stepnet::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return random_int(seed_, next_++, 0, n - 1); }
  int64_t between(int64_t low, int64_t high) { return random_int(seed_, next_++, low, high); }
  bool chance(double p) { return random_uniform(seed_, next_++) < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(static_cast<int64_t>(from.size()))];
  }

 private:
  uint64_t seed_, next_ = 0;
};

// A blob of the step, [1, B, width].
struct StepValue {
  std::string name;
  int64_t width = 1;
};

struct Draft {
  explicit Draft(uint64_t seed) : dice(seed) {}

  Dice dice;
  StepNet net;
  std::vector<StepValue> pool;
  std::vector<int64_t> widths;                 // to choose from
  std::map<std::string, std::string> storage;  // of aliases: the blob that they are another name of
  std::set<std::string> own;                   // blobs that an operator of the step net has made
  std::set<std::string> needed;                // blobs whose present values some gradient reads
  std::set<std::string> unknown;               // blobs whose shapes depend on data
  double in_place = 0;                         // how often an operator writes over an input
  int names = 0, parameters = 0;
};

// The blob whose storage the name shows.
std::string root_of(const Draft& d, std::string name);

// Inputs of the step net.
std::string add_feed(Draft& d, const std::string& prefix, std::vector<int64_t> sizes, double scale = 1);
std::string add_integers(Draft& d, std::vector<int64_t> values);
// A product's weights [n, k] and bias [n]; sometimes those of an earlier one.
std::string add_weights(Draft& d, int64_t n, int64_t k);
std::string add_bias(Draft& d, int64_t n);

// Values to read: any, one of that width (made if there is none), and the newest.
StepValue any_value(Draft& d);
StepValue value_of_width(Draft& d, int64_t width);
// Names what is made from now on.
std::string fresh(Draft& d);

// Adds an operator with one output, [1, B, width], which may be one of the inputs; returns its name.
std::string emit(Draft& d, const std::string& type, const std::vector<std::string>& inputs, int64_t width,
                 const std::vector<Argument>& args = {});
// Adds an operator with these outputs; those with a width are values.
void emit_to(Draft& d, const std::string& type, const std::vector<std::string>& inputs,
             const std::vector<StepValue>& outputs, const std::vector<Argument>& args = {});

// Adds an FC.
std::string emit_product(Draft& d, const StepValue& x, int64_t width);

// Adds one random operator or a few that belong together.
void add_random_operators(Draft& d);
// Of these some also serve in cells.
std::string emit_joined(Draft& d, const std::vector<StepValue>& parts, int64_t axis);
void add_nested(Draft& d);

// Adds a state, whose output is given later, and a cell that has one or two of them; returns what it makes.
CellState& add_state(Draft& d, int64_t width);
StepValue add_cell(Draft& d, const StepValue& x);

}  // namespace stepnet::testing
