// NanCheck: Y = X, and an error if an element is NaN or infinite. The gradient is checked likewise:
// dX = NanCheck(dY). Backward reads neither X nor Y.

#include <cmath>

#include "operators/loops/copy_elements.h"
#include "stepnet/gradient_check.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_nan_check {
namespace {

template <class T>
void check_and_copy(const NoArgs&, Call& call) {
  const Tensor& x = call.in(0);
  const T* values = x.data<T>();
  int64_t first = -1, count = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (first < 0) first = i;
    ++count;
  }
  if (count > 0)
    fail("element {} of X is {}; {} of {} elements are not finite", place_text(x.shape(), first), values[first], count,
         x.size());
  copy_values(x, call.out(0));
}

REGISTER(nan_check) {
  return op("NanCheck")
      .doc(
          "Passes a tensor through, or fails with the place of its first element that is NaN or infinite. Its gradient "
          "is checked in the same way.")
      .input("X", "any shape")
      .input("others", "tensors whose types and shapes an error names too; their values are not looked at")
      .any_type()
      .shape_only()
      .variadic(0)
      .output("Y", "the same values", like("X"))
      .in_place("X", "Y")
      .cpu_for<float>(check_and_copy<float>)
      .cpu_for<double>(check_and_copy<double>)
      .example({"X=2,3"})
      .example({"X=1", "others0=int32,2", "others1=2,0"})
      .derivative("X", [](Formula& f) { return f.op("NanCheck", {f.dy("Y")}); })
      .variadic_derivative("others", [](Formula&, int) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_nan_check
