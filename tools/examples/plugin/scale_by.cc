#include "stepnet/operator.h"
struct ScaleByArgs {
  float factor;
};

template <class T>
void scale_by(const ScaleByArgs& args, stepnet::In<T> x, stepnet::Out<T> y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(args.factor) * x[i];
}

REGISTER(scale_by) {
  return stepnet::op<ScaleByArgs>("ScaleBy")
      .doc("Multiplies every element by a constant.")
      .arg("factor", &ScaleByArgs::factor, 2.0f, "what to multiply by")
      .input("X", "any shape")
      .output("Y", "factor * X", stepnet::like("X"))
      .cpu(scale_by<float>, scale_by<double>)
      .derivative("X", [](stepnet::Formula& f) { return f.op("ScaleBy", {f.dy("Y")}, f.forward_args()); })
      .example({"X=2,3"}, {"factor=3"});
}
