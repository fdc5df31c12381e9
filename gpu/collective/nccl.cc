#include "gpu/collective/nccl.h"

#include <dlfcn.h>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kLeastVersion = 21000;  // 2.10.0

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  require(function != nullptr, "{} has no function {}", kFile, name);
}

Nccl load() {
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Error(fmt::format("NCCL cannot be loaded: {}", dlerror()),
                "install NCCL 2.10 or later (libnccl2), or name its folder in LD_LIBRARY_PATH");
  Nccl found{};
  find(library, "ncclGetErrorString", found.error_string);
  find(library, "ncclGetVersion", found.get_version);
  int version = 0;
  require(found.get_version(&version) == 0 && version >= kLeastVersion,
          "{} is version {}, but must be {} (2.10.0) or later", kFile, version, kLeastVersion);
  find(library, "ncclGetUniqueId", found.get_unique_id);
  find(library, "ncclCommInitRank", found.comm_init_rank);
  find(library, "ncclCommDestroy", found.comm_destroy);
  find(library, "ncclCommAbort", found.comm_abort);
  find(library, "ncclCommGetAsyncError", found.comm_get_async_error);
  find(library, "ncclAllReduce", found.all_reduce);
  find(library, "ncclReduce", found.reduce);
  find(library, "ncclBroadcast", found.broadcast);
  find(library, "ncclAllGather", found.all_gather);
  find(library, "ncclReduceScatter", found.reduce_scatter);
  return found;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl functions = load();
  return functions;
}

void check(NcclResult result, const char* what) {
  if (result != 0) fail("NCCL: {}: {}", what, nccl().error_string(result));
}

}  // namespace stepnet::gpu
