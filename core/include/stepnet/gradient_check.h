// Whether gradients are right: a net's own derivatives against central differences in float64, and what else a
// derivative promises.
//
// What is differentiated is L = sum of w .* y over the outputs, with random weights w: a plain sum hides mistakes that
// are symmetric. For an element x of an input the differences are (L(x + h) - L(x - h)) / 2h with h = step max(1, |x|).
// Where that disagrees with the derivative, h is made smaller, as x may be next to a kink; and where the slopes
// on both sides stay apart as h shrinks, x is a kink itself (Relu at 0), and any derivative from one slope to the other
// is right. With `directions`, random directions v of each input are tried instead of its elements:
// (L(x + h v) - L(x - h v)) / 2h against the sum of v .* dL/dx; a wrong one is then looked for element by element, or,
// in an input of many elements, by halves.
//
// Of the Hessian H of L by all inputs at once (`hessian`): H v is computed by reverse mode over reverse mode, by
// reverse over forward and by forward over reverse, which must agree to rounding, and agree with differences of the
// gradient; and u.(H v) = v.(H u), for random u and v.
//
// Where something is wrong in a net of several operators, the net is run operator by operator, and each is checked
// alone at the values that it has there, those of step nets included: the report names the ones that are wrong.
//
// The promises: gradients asked for one at a time equal those asked for together; in place equals out of place;
// nothing is computed that nobody asked for; the backward pass reads only the values that it says it keeps (all others
// are NaN by then); and everything that is written is written whole (it was NaN before). An operator that has a body
// (OpBuilder::composed) computes what the body does, to rounding; forward and gradients' operators are compared so.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/file_place.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tensor.h"

namespace stepnet {

struct GradientSubject {
  NetDef net;                           // one operator or many, without the gradients' operators
  std::map<std::string, Tensor> feeds;  // all that the net reads
  std::vector<std::string> outputs;     // that L is made of: float64
  std::vector<std::string> inputs;      // whose gradients are checked: feeds, float64
  Device device = {};                   // that the net runs on; feeds are given on the CPU
  FileRootPtr files = {};               // below which the net may open files; null: anywhere
};

struct GradientCheckOptions {
  double tolerance = 1e-7;  // of the largest gradient of the same input, or of 1 if that is more
  double step = 1e-5;
  // How many of each input; 0: all its elements. Without a number all elements of an input that has at most
  // `many_elements`, and kManyDirections of a larger one.
  std::optional<int> directions = {};
  int64_t many_elements = 2000;
  int order = 1;  // 2: also the gradients of the gradients; 3: also the gradients of these
  // Of higher orders: leave out, and name in the report, what has no such derivative, which is an Error otherwise.
  bool where_possible = false;
  // Check forward mode instead: the derivative along a random direction v of each input, against differences,
  // (L(x + h v) - L(x - h v)) / 2h, and against reverse mode, v .* dL/dx, which it must be to rounding. Of order 2 also
  // the gradients of these derivatives; of order 3 the gradients of these.
  bool forward = false;
  // Check the Hessian too, along as many pairs of directions as are given, or kHessianDirections.
  bool hessian = false;
  // Of outputs of float on another device, the largest difference from the CPU's, of their largest element.
  double device_float_error = 1e-5;
  uint64_t seed = 1;  // of weights, directions and what the net draws
};

inline constexpr int kManyDirections = 16, kHessianDirections = 2;

struct GradientRow {
  // Of a Hessian what is compared: "symmetry", "reverse over forward", "forward over reverse" (each with reverse over
  // reverse), or "differences".
  std::string input;
  int order = 1;
  bool right = true;
  double error = 0;                        // the largest difference, relative as the tolerance is
  std::string where = {};                  // "[1, 2]" or "direction 3"
  double derivative = 0, differences = 0;  // there
  int64_t tried = 0, kinks = 0;            // elements or directions; kinks of a Hessian are elements of H v
  std::string check = "gradient";          // or "forward", "hessian"
  int64_t elements = 0;                    // of the input; where fewer were tried than there are, these are directions
};

// An operator whose own derivatives are wrong, where the net is run.
struct BlamedOperator {
  std::string
      path;  // `op 3 (RecurrentNetwork) "rnn", step net op 5 (Tanh) "h"`: numbers, types, names or first outputs
  std::string type;
  std::string what;  // what is wrong with it alone, as GradientReport::str says it
};

struct GradientReport {
  std::vector<GradientRow> rows;
  std::vector<std::string> broken;             // promises that do not hold, a sentence each
  std::map<std::string, std::string> refused;  // inputs, or ways to a Hessian, without a higher derivative, and why
  std::set<std::string> operators;             // types that ran, gradients' included
  bool searched = false;                       // each operator was checked alone, because something is wrong
  std::vector<BlamedOperator> blamed;
  std::map<std::string, std::string> unsearched;  // paths of operators that cannot be checked alone, and why
  bool right() const;
  std::string str() const;          // what is wrong, a line each; "" if nothing is
  std::string blamed_text() const;  // of that, which operators are to blame
};

// Where element `i` of a tensor stands: "[1, 2]".
std::string place_text(const Shape& shape, int64_t i);

// Throws Error where there is nothing to compare: no derivative, an input that is not float64, a net that fails.
GradientReport check_gradients(const GradientSubject& subject, const GradientCheckOptions& options = {});

}  // namespace stepnet
