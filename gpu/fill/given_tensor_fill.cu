// CUDA kernels for GivenTensorFill and its typed forms. Meaning and derivative: see
// operators/fill/given_tensor_fill.cc.
#include "operators/fill/given_tensor_fill.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_given_tensor_fill {
namespace {

// The values are in the net, on the host. Strings stay there, whatever the operator's device.
void fill(const GivenArgs& args, Call& call) {
  Tensor& y = call.out(0);
  if (y.device().kind == DeviceKind::cpu) return fill_given(args, y);
  Tensor values = Tensor::empty(y.dtype(), y.shape());
  fill_given(args, values);
  y.copy_from(values);
}

REGISTER(given_tensor_fill_cuda) { return cuda<GivenArgs>("GivenTensorFill", fill); }
REGISTER(given_tensor_int_fill_cuda) { return cuda<GivenArgs>("GivenTensorIntFill", fill); }
REGISTER(given_tensor_int64_fill_cuda) { return cuda<GivenArgs>("GivenTensorInt64Fill", fill); }
REGISTER(given_tensor_bool_fill_cuda) { return cuda<GivenArgs>("GivenTensorBoolFill", fill); }
REGISTER(given_tensor_double_fill_cuda) { return cuda<GivenArgs>("GivenTensorDoubleFill", fill); }
REGISTER(given_tensor_string_fill_cuda) { return cuda<GivenArgs>("GivenTensorStringFill", fill); }

}  // namespace
}  // namespace stepnet::gpu_given_tensor_fill
