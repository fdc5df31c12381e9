// Runs of a net under a gradient check: its outputs at moved inputs, and its gradients.
//
// Threads: not for concurrent use.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/gradient_check.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/tensor.h"
#include "stepnet/workspace.h"

namespace stepnet {

using NamedTensors = std::map<std::string, Tensor>;

// Runs the net as if for the first time; what it prints is dropped. `keep`: gradients of networks in the net leave what
// these kept for others in another net.
void run_once(Net& net, uint64_t seed, bool keep = false);
void run_once(const NetDef& net, Workspace& workspace, uint64_t seed);

// A net with its gradients for given ones of its outputs (given_gradient).
struct Differentiated {
  NetDef net;
  GradientResult result;
};

// Throws Error as add_gradient_operators does.
Differentiated differentiate(const GradientSubject& subject, const std::vector<std::string>& inputs);
// Sparse ones made dense, on the CPU.
Tensor gradient_value(const Workspace& workspace, const GradientName& name, const Shape& shape);

// The net bound once, run again and again on its feeds with one of them moved.
class MovedRuns {
 public:
  MovedRuns(const GradientSubject& subject, uint64_t seed);

  // The outputs where `move` has changed the input's values.
  std::vector<Tensor> at(const std::string& input, const std::function<void(std::span<double>)>& move);
  // The sum of w .* (above - below), outputs by the same seed's weights.
  double difference(const std::vector<Tensor>& above, const std::vector<Tensor>& below) const;
  const NamedTensors& weights() const { return weights_; }

 private:
  void feed(const std::string& name);
  std::vector<Tensor> run();

  const GradientSubject& subject_;
  uint64_t seed_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
  std::vector<std::string> overwritten_;  // feeds that the net writes
  NamedTensors weights_;
};

// How often, and by what, h is made smaller where differences do not agree with a derivative.
inline constexpr int kRefinements = 3;
inline constexpr double kRefinement = 8;

// The slopes on both sides of a point, by differences.
struct SideSlopes {
  double below, above;
  double apart() const { return std::fabs(above - below); }
};
// True if the slopes stay apart as h shrinks from `wide` to `near`, and the derivative is one from the one to the
// other: at a kink any of these is right.
bool is_between_slopes(const SideSlopes& near, const SideSlopes& wide, double derivative, double slack);

struct GradientRun {
  NamedTensors gradients;            // of those of `inputs` that have one; sparse ones made dense
  std::vector<std::string> unasked;  // what the backward pass writes for nobody
  std::set<std::string> operators;   // types of both passes
};

// The gradients of L for some of the subject's inputs, by its derivatives. Before the backward pass runs, every value
// that it does not say it reads is NaN, and so is everything that it will write.
GradientRun run_gradients(const GradientSubject& subject, const NamedTensors& weights, uint64_t seed,
                          const std::vector<std::string>& inputs);

// The net with its gradients as another subject: its outputs are the gradients, its inputs what they depend on.
// `of`: gets, for each output, the input that it is the gradient of.
GradientSubject gradients_as_subject(const GradientSubject& subject, const NamedTensors& weights,
                                     std::vector<std::string>* of = nullptr);
// What the gradient of an output is called there, and where else it is given.
std::string given_gradient(const std::string& output);

// The net with its tangents for random directions of the inputs as another subject: its outputs are tangents, its
// inputs the subject's and the directions.
GradientSubject tangents_as_subject(const GradientSubject& subject, const std::vector<std::string>& inputs,
                                    uint64_t seed, std::vector<std::string>* of = nullptr);
// What the direction of an input is called there.
std::string given_tangent(const std::string& input);
// The sum of w .* J v: the derivative of L where the input moves along its direction, by the net's tangents.
double run_tangents(const GradientSubject& subject, const NamedTensors& weights, uint64_t seed,
                    const std::string& input, int number = 0);
// The direction v of an input, one for each number.
Tensor direction_of(const GradientSubject& subject, const std::string& input, uint64_t seed, int number = 0);

// Why there is no gradient of L with respect to this input; "" if there is one, or if L does not depend on it.
std::string refusal(const GradientSubject& subject, const std::string& input);

// If its net is one operator that may work in place: the same computed in place on a copy of the input, for each rule.
std::vector<std::pair<std::string, GradientSubject>> in_place_subjects(const GradientSubject& subject);

}  // namespace stepnet
