// Operators that exist to be differentiated: they compute nothing, and their gradients read a known set of blobs.
#include "stepnet/operator.h"

namespace stepnet {
namespace {

std::vector<Gradient> gradients_by(Formula& f, const char* type, std::vector<Value> reads) {
  std::vector<bool> wanted;
  for (int i = 0; i < f.inputs(); ++i) wanted.push_back(f.wants_at(i));
  for (int i = 0; i < f.outputs(); ++i)
    if (f.has_dy_at(i)) reads.push_back(f.dy_at(i));
  std::vector<Gradient> gradients;
  for (const Value& v : f.ops(type, std::move(reads), {}, wanted)) gradients.emplace_back(v);
  return gradients;
}

std::vector<Gradient> direct(Formula& f) { return gradients_by(f, "DirectGradient", {}); }

std::vector<Gradient> use_input(Formula& f) {
  std::vector<Value> reads;
  for (int i = 0; i < f.inputs(); ++i) reads.push_back(f.x_at(i));
  return gradients_by(f, "UseInputGradient", std::move(reads));
}

std::vector<Gradient> use_output(Formula& f) {
  std::vector<Value> reads;
  for (int i = 0; i < f.outputs(); ++i) reads.push_back(f.y_at(i));
  return gradients_by(f, "UseOutputGradient", std::move(reads));
}

OpBuilder<> many_to_many(const char* type) {
  OpBuilder<> builder(type);
  builder.doc("Of tests: no kernel.").input("X", "any").any_type().variadic();
  builder.output("Y", "any").any_type().variadic().in_place("X", "Y");
  return builder;
}

OpBuilder<> gradient_of_many(const char* type) {
  OpBuilder<> builder(type);
  builder.doc("Of tests: no kernel.").input("reads", "what is read, then dY").any_type().variadic();
  builder.output("dX", "gradients").any_type().variadic().in_place("reads", "dX");
  return builder;
}

REGISTER(direct) { return many_to_many("Direct").whole_derivative(direct); }
REGISTER(use_input) { return many_to_many("UseInput").whole_derivative(use_input); }
REGISTER(use_output) { return many_to_many("UseOutput").whole_derivative(use_output); }
REGISTER(no_gradient) { return many_to_many("Nogradient").stop_gradient(); }
REGISTER(refused) { return many_to_many("Refused").no_gradient("it is made for tests"); }
REGISTER(underived) { return many_to_many("Underived"); }

REGISTER(direct_gradient) { return gradient_of_many("DirectGradient"); }
REGISTER(use_input_gradient) { return gradient_of_many("UseInputGradient"); }

// Its dY comes second, and only that may be overwritten.
REGISTER(use_output_gradient) {
  OpBuilder<> builder("UseOutputGradient");
  builder.doc("Of tests: no kernel.").input("Y", "the output").any_type().input("dY", "its gradient").any_type();
  return builder.output("dX", "gradient").any_type().variadic().in_place("dY", "dX");
}

// Rows at places that are only known when it runs: its gradient makes both.
REGISTER(sparse_fun_hash) {
  return op("SparseFunHash")
      .doc("Of tests: no kernel.")
      .input("A", "any")
      .any_type()
      .input("B", "any")
      .any_type()
      .input("C", "any")
      .any_type()
      .input("W", "the table")
      .any_type()
      .output("Y", "any")
      .any_type()
      .derivatives({"A", "B", "C", "W"}, [](Formula& f) {
        if (!f.wants("W")) return std::vector<Gradient>(4);
        const std::vector<Value> made =
            f.ops("SparseFunHashGradient", {f.dy("Y"), f.x("A"), f.x("B"), f.x("C")}, {}, {true, true});
        return std::vector<Gradient>{{}, {}, {}, Gradient::sparse(made[0], made[1])};
      });
}

REGISTER(sparse_fun_hash_gradient) {
  OpBuilder<> builder("SparseFunHashGradient");
  builder.doc("Of tests: no kernel.").input("reads", "dY, A, B, C").any_type().variadic();
  return builder.output("indices", "of rows").any_type().output("values", "of rows").any_type();
}

// Looks at a blob and leaves no output, as Print does.
REGISTER(observe) {
  return op("Observe").doc("Of tests: no kernel.").input("X", "any").any_type().side_effect().stop_gradient();
}

}  // namespace
}  // namespace stepnet
