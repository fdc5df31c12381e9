// CUDA kernel for Copy. Meaning and derivative: see operators/shape/copy.cc.
#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet::gpu_copy {
namespace {

REGISTER(copy_cuda) { return cuda("Copy", copy_values); }

}  // namespace
}  // namespace stepnet::gpu_copy
