// Gradients: stands for the gradient operators of the operators before it (core/passes/inner_gradients.h), and is
// replaced by them before anything runs or is differentiated. So it has no kernel and no derivative.

#include "core/passes/inner_gradients.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_gradients {
namespace {

void refuse(const NoArgs&, BlobCall&) {
  throw Error("Gradients stands for several operators and does not run itself",
              "expand the net first, with expand_recurrent or `stepnet expand`");
}

// One step of a linear memory that learns; and, of a penalty on a gradient, the gradient.
constexpr const char* kLearningExample = R"(
  op { type: 'FC' input: 'k' input: 'W' input: 'b' output: 'read' }
  op { type: 'Sub' input: 'read' input: 'v' output: 'error' }
  op { type: 'Mul' input: 'error' input: 'error' output: 'loss' }
  op { type: 'Gradients' input: 'loss' input: 'W' input: 'b' output: 'dW' output: 'db' }
  op { type: 'Sub' input: 'W' input: 'dW' output: 'W_new' }
  op { type: 'Sub' input: 'b' input: 'db' output: 'b_new' })";

constexpr const char* kPenaltyExample = R"(
  op { type: 'Tanh' input: 'x' output: 'y' }
  op { type: 'Gradients' input: 'y' input: 'x' output: 'slope' }
  op { type: 'Mul' input: 'slope' input: 'slope' output: 'penalty' }
  op { type: 'Gradients' input: 'penalty' input: 'x' output: 'dx' })";

REGISTER(gradients) {
  return op(kGradients)
      .own()
      .doc(
          "The gradients of a loss with respect to blobs that it depends on, by the operators before this one in the "
          "same net: it stands for their gradient operators, which can be differentiated in turn. A loss of several "
          "elements means their sum. Each name means what it holds in this place, and each gradient is a blob of its "
          "own. In a step net it is a learning rule.")
      .input("loss", "a tensor of floating point that operators before this one have computed")
      .object()
      .input("wrt", "what to differentiate with respect to: blobs of floating point that the loss depends on")
      .object()
      .variadic(1)
      .output("gradients", "of each of these, dense and of its shape")
      .object()
      .variadic(1)
      .blobs(refuse)
      .no_gradient("it must be expanded first, with expand_recurrent or `stepnet expand`")
      .example_net(kLearningExample, {"k=2,3", "W=2,3", "b=2", "v=2,2"}, {"W_new", "b_new"})
      .example_net(kPenaltyExample, {"x=2,3"}, {"penalty", "dx"});
}

}  // namespace
}  // namespace stepnet::cpu_gradients
