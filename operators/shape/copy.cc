// The same values under another name, in storage of their own, or on another device.
#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_copy {
namespace {

// Alias: Y is another name for X's storage; nothing is copied. The gradient of X is the gradient of Y itself.

void share(const Tensor& x, Tensor& y) { y = x; }

REGISTER(alias) {
  return op("Alias")
      .doc("Another name for the same storage: writing one in place changes the other.")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "the same storage", like("input"))
      .any_type()
      .alias("input", "output")
      .role(Role::alias)
      .example({"input=2,3"})
      .cpu(share)
      .derivative("input", [](Formula& f) { return f.dy("output"); });
}

// Copy: Y = X, in storage of its own. dX = Copy(dY).

REGISTER(copy) {
  return op("Copy")
      .doc("A copy of a tensor of any type.")
      .input("input", "the tensor")
      .any_type()
      .output("output", "its copy", like("input"))
      .any_type()
      .in_place("input", "output")
      .elementwise()
      .role(Role::copy)
      .example({"input=2,3"})
      .example({"input=string,2:one,two"})
      .cpu(copy_values)
      .derivative("input", [](Formula& f) { return f.op("Copy", {f.dy("output")}); });
}

// CopyCPUToGPU, CopyGPUToCPU, CopyFromCPUInput, EnsureCPUOutput: Y = X, on the device that the name says. On the CPU,
// where both sides are the same, they are copies, so that nets written for a GPU run.
//
// Each one's derivative is the copy in the other direction.

OpBuilder<> copy_op(const char* type, const char* back, const char* doc) {
  auto spec = op(type);
  spec.doc(doc)
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "its copy", like("input"))
      .any_type()
      .example({"input=2,3"})
      .cpu(copy_values)
      .derivative("input", [back](Formula& f) { return f.op(back, {f.dy("output")}); });
  return spec;
}

REGISTER(copy_cpu_to_gpu) {
  return copy_op("CopyCPUToGPU", "CopyGPUToCPU", "A copy on the accelerator of a tensor on the CPU.");
}
REGISTER(copy_gpu_to_cpu) {
  return copy_op("CopyGPUToCPU", "CopyCPUToGPU", "A copy on the CPU of a tensor on the accelerator.");
}
REGISTER(copy_from_cpu_input) {
  return copy_op("CopyFromCPUInput", "EnsureCPUOutput", "A copy on the operator's device of a tensor on the CPU.");
}
REGISTER(ensure_cpu_output) {
  return copy_op("EnsureCPUOutput", "CopyFromCPUInput", "A copy on the CPU of a tensor on any device.");
}

// CopyOnDeviceLike: Y = X, on the device of another tensor. Nets of the public format have it as the gradient of Copy.
// dX = CopyOnDeviceLike(dY, X), which reads of X where it is, and nothing else; or `origin` if that is an output, as it
// is on the tape.

REGISTER(copy_on_device_like) {
  return op("CopyOnDeviceLike")
      .doc(
          "A copy on the CPU if another tensor is there, and else on the operator's device. The gradient goes to the "
          "device that input is on; it reads origin in place of input if that is an output.")
      .input("input", "a tensor of any type")
      .any_type()
      .input("dst", "a tensor of any type and shape on that device")
      .any_type()
      .output("output", "input's copy", like("input"))
      .any_type()
      .output("origin", "no elements, on the device that input is on")
      .types({DType::uint8})
      .optional()
      .shape([](const auto&, ShapeCall& c) { c.set(1, DType::uint8, Shape{0}); })
      .example({"input=2,3", "dst=2"})
      .cpu(copy_values)
      .derivative("input",
                  [](Formula& f) {
                    const Value origin = f.y("origin");
                    return f.op("CopyOnDeviceLike", {f.dy("output"), origin.defined() ? origin : f.x("input")});
                  })
      .derivative("dst", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_copy
