// And, Or, Xor of two tensors of bools, with broadcasting, and Not of one. Gradients end here.
#include "operators/pointwise/activation.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet::cpu_logic {
namespace {

template <class Op>
void forward(const BroadcastArgs& args, In<bool> a, In<bool> b, Out<bool> c, Call& call) {
  elementwise_binary<Op>(args, a, b, c, call);
}

template <class Op>
OpBuilder<BroadcastArgs> logic(const char* type, const char* sign, const std::string& says) {
  OpBuilder<BroadcastArgs> b = predicate_op(type, sign, kBoolExamples);
  b.doc("Where " + says + ", element by element.").in_place("A", "C").in_place("B", "C").cpu(forward<Op>);
  return b;
}

REGISTER(logical_and) { return logic<std::logical_and<>>("And", "and", "both A and B are true"); }
REGISTER(logical_or) { return logic<std::logical_or<>>("Or", "or", "A or B or both are true"); }
REGISTER(logical_xor) { return logic<std::not_equal_to<>>("Xor", "xor", "one of A and B is true, and not both"); }

void forward_not(In<bool> x, Out<bool> y) {
  each_element(x, y, 0.1, [](bool v) { return !v; });
}

REGISTER(logical_not) {
  return op("Not")
      .doc("Where X is false, element by element.")
      .input("X", "bools, any shape")
      .output("Y", "true where X is false", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .example({"X=bool,3,4"})
      .cpu(forward_not)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_logic
