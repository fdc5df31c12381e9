// CUDA kernel for Copy. Meaning and derivative: see operators/copy.cc.
#include "core/operator.h"
#include "operators/copy_elements.h"

namespace stepnet::gpu_copy {
namespace {

REGISTER(copy_cuda) { return cuda("Copy", copy_values); }

}  // namespace
}  // namespace stepnet::gpu_copy
