// Half types where an operator has no kernel for them: its float32 kernel runs on casts.
//
// The inputs that are float16 or bfloat16 are cast to float32 temporaries, the kernel writes float32 temporaries, and
// these are cast to the type that the outputs are to have. So each result is rounded once, and sums inside the kernel
// are float32's. An output that is written in place of an input is so in the temporaries, and what the kernel adds to
// is cast there before. Temporaries live as long as the call; a dry run counts them. Elementwise operators on the CPU
// do without (core/operator/half_pieces.h). Threads: kernels may run on several threads, on different tensors.
#pragma once

#include <optional>
#include <vector>

#include "stepnet/bound_op.h"
#include "stepnet/half.h"

namespace stepnet {

// `to` gets the elements of `from` in its type; both have the same number of them, and are on one device. By the
// device's kernel of the operator whose role is to cast.
void cast_elements(const Tensor& from, Tensor& to, RunContext& run);

// Whether the operator may have inputs of this type: it has a kernel for it, or for float32, on some device.
bool has_kernel_for(const OpSpec& spec, DType dtype);
// Whether an input that must have one of these types may be of that one.
bool is_one_of(const std::vector<DType>& types, DType dtype);

// The kernel that runs this device's float32 one on casts; null if there is none.
const Kernel* kernel_on_casts(const OpSpec& spec, DeviceKind device);
// Whether no other kernel takes these inputs: one that must be float32 is of a half type.
bool needs_casts(const OpSpec& spec, std::span<const TensorType> in);
bool is_on_casts(const Kernel& kernel);

// A call in float32 in place of one in a half type.
class FloatCall {
 public:
  FloatCall(const OpSpec& spec, const Call& half);
  Call& call() { return *floats_; }
  void cast_results();  // to the half call's outputs

 private:
  void add_inputs(const OpSpec& spec);
  void add_output(const OpSpec& spec, int o);
  Tensor cast(const Tensor& from);

  const Call& half_;
  std::vector<Tensor> in_, out_;  // temporaries
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  std::optional<Call> floats_;
};

}  // namespace stepnet
