// What gpu/collective/nccl.h declares is what NCCL's own header declares, where that is installed; and the installed
// library has it. No GPU is needed.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>

#include "gpu/collective/nccl.h"

namespace stepnet::testing::nccl_header_test {
namespace {

// The sizes of what a function takes.
template <class Result, class... Args>
constexpr std::array<size_t, sizeof...(Args)> sizes(Result (*)(Args...)) {
  return {sizeof(Args)...};
}

using gpu::Nccl;
static_assert(sizes(&ncclGetErrorString) == sizes(decltype(Nccl::error_string)(nullptr)));
static_assert(sizes(&ncclGetVersion) == sizes(decltype(Nccl::get_version)(nullptr)));
static_assert(sizes(&ncclGetUniqueId) == sizes(decltype(Nccl::get_unique_id)(nullptr)));
static_assert(sizes(&ncclCommInitRank) == sizes(decltype(Nccl::comm_init_rank)(nullptr)));
static_assert(sizes(&ncclCommDestroy) == sizes(decltype(Nccl::comm_destroy)(nullptr)));
static_assert(sizes(&ncclCommAbort) == sizes(decltype(Nccl::comm_abort)(nullptr)));
static_assert(sizes(&ncclCommGetAsyncError) == sizes(decltype(Nccl::comm_get_async_error)(nullptr)));
static_assert(sizes(&ncclAllReduce) == sizes(decltype(Nccl::all_reduce)(nullptr)));
static_assert(sizes(&ncclReduce) == sizes(decltype(Nccl::reduce)(nullptr)));
static_assert(sizes(&ncclBroadcast) == sizes(decltype(Nccl::broadcast)(nullptr)));
static_assert(sizes(&ncclAllGather) == sizes(decltype(Nccl::all_gather)(nullptr)));
static_assert(sizes(&ncclReduceScatter) == sizes(decltype(Nccl::reduce_scatter)(nullptr)));

static_assert(sizeof(ncclUniqueId) == sizeof(gpu::NcclUniqueId));
static_assert(ncclSuccess == 0 && sizeof(ncclResult_t) == sizeof(gpu::NcclResult));
static_assert(ncclInt8 == gpu::nccl_type::kInt8 && ncclUint8 == gpu::nccl_type::kUint8 &&
              ncclInt32 == gpu::nccl_type::kInt32 && ncclInt64 == gpu::nccl_type::kInt64 &&
              ncclFloat16 == gpu::nccl_type::kFloat16 && ncclFloat32 == gpu::nccl_type::kFloat32 &&
              ncclFloat64 == gpu::nccl_type::kFloat64 && ncclBfloat16 == gpu::nccl_type::kBfloat16);
static_assert(ncclSum == gpu::nccl_reduction::kSum && ncclMax == gpu::nccl_reduction::kMax &&
              ncclMin == gpu::nccl_reduction::kMin);

// This calls the library, which needs no GPU to tell its version.
TEST(NcclHeader, TheLibraryHasWhatIsDeclared) {
  void* found = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!found) GTEST_SKIP() << "this machine has NCCL's header, but not NCCL";
  const Nccl& library = gpu::nccl();
  int version = 0;
  EXPECT_EQ(library.get_version(&version), ncclSuccess);
  EXPECT_GE(version, 21000);
  EXPECT_STRNE(library.error_string(ncclInvalidArgument), "");
}

}  // namespace
}  // namespace stepnet::testing::nccl_header_test
