// The part of NCCL's C interface that worlds on GPUs use, declared here, so that neither its headers are needed to
// build nor its library to load Stepnet.
//
// Types, numbers and signatures are those of src/nccl.h.in in https://github.com/NVIDIA/nccl (commit
// 021e8045ff77a8a9fba909617a0129d3c3d44def of 2026), where they have stood since version 2.10, from which bfloat16 is.
// Owns: the library, for the life of the process. Threads: as NCCL says: a communicator is for one thread at a time.
// Errors: nccl() throws Error if the library is not there or too old; check() for what a call returns.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace stepnet::gpu {

struct NcclComm;            // struct ncclComm, opaque
using NcclResult = int;     // ncclResult_t: ncclSuccess = 0, ncclInProgress = 7
using NcclDataType = int;   // ncclDataType_t
using NcclReduction = int;  // ncclRedOp_t

struct NcclUniqueId {  // ncclUniqueId, NCCL_UNIQUE_ID_BYTES = 128; passed by value
  char internal[128];
};

namespace nccl_type {  // ncclDataType_t
inline constexpr NcclDataType kInt8 = 0, kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8,
                              kBfloat16 = 9;
}
namespace nccl_reduction {  // ncclRedOp_t
inline constexpr NcclReduction kSum = 0, kMax = 2, kMin = 3;
}

struct Nccl {
  // const char* ncclGetErrorString(ncclResult_t result)
  const char* (*error_string)(NcclResult result);
  // ncclResult_t ncclGetVersion(int* version); 21000 is 2.10.0
  NcclResult (*get_version)(int* version);
  // ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId)
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  // ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank)
  NcclResult (*comm_init_rank)(NcclComm** comm, int ranks, NcclUniqueId id, int rank);
  // ncclResult_t ncclCommDestroy(ncclComm_t comm)
  NcclResult (*comm_destroy)(NcclComm* comm);
  // ncclResult_t ncclCommAbort(ncclComm_t comm): what is queued ends, and the communicator is gone
  NcclResult (*comm_abort)(NcclComm* comm);
  // ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError)
  NcclResult (*comm_get_async_error)(NcclComm* comm, NcclResult* error);
  // ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
  //                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, NcclDataType type, NcclReduction op,
                           NcclComm* comm, cudaStream_t stream);
  // ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
  //                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
  NcclResult (*reduce)(const void* from, void* to, size_t count, NcclDataType type, NcclReduction op, int root,
                       NcclComm* comm, cudaStream_t stream);
  // ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
  //                            ncclComm_t comm, cudaStream_t stream)
  NcclResult (*broadcast)(const void* from, void* to, size_t count, NcclDataType type, int root, NcclComm* comm,
                          cudaStream_t stream);
  // ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
  //                            ncclComm_t comm, cudaStream_t stream)
  NcclResult (*all_gather)(const void* from, void* to, size_t count, NcclDataType type, NcclComm* comm,
                           cudaStream_t stream);
  // ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
  //                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t count, NcclDataType type, NcclReduction op,
                               NcclComm* comm, cudaStream_t stream);
};

// Loads libnccl.so.2 when it is first asked for.
const Nccl& nccl();
// Throws Error unless the call `what` went well.
void check(NcclResult result, const char* what);

}  // namespace stepnet::gpu
