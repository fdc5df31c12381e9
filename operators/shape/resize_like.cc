// ResizeLike: the elements of `data` in the shape of `shape_tensor`, whose values are not read. Operators that only
// rename dimensions use it for their gradient.
//   d data = ResizeLike(dY, data), which reads the shape of data only; shape_tensor has no derivative.

#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

void shape(const NoArgs&, ShapeCall& call) {
  if (!call.known(0) || !call.known(1)) return;
  require(call.shape(0).size() == call.shape(1).size(),
          "data {} has {} elements, which do not fit the shape {} of shape_tensor", call.shape(0), call.shape(0).size(),
          call.shape(1));
  call.set(0, call.dtype(0), call.shape(1));
}

void resize(Call& call) { copy_values(call.in(0), call.out(0)); }

REGISTER(resize_like) {
  return op("ResizeLike")
      .doc("The elements of one tensor in the shape of another.")
      .input("data", "a tensor of any type")
      .any_type()
      .input("shape_tensor", "a tensor with the new shape and as many elements; its values are not read")
      .any_type()
      .shape_only()
      .output("output", "the elements in the new shape")
      .any_type()
      .in_place("data", "output", {"data"})
      .shape(shape)
      .example({"data=2,6", "shape_tensor=3,4"})
      .example({"data=1", "shape_tensor=double,1,1"})
      .cpu(resize)
      .derivative("data",
                  [](Formula& f) {
                    return f.op("ResizeLike", {f.dy("output"), f.x("data")});
                  })
      .derivative("shape_tensor", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
