// Matrix products by cuBLASLt, whose matrices are column-major: a row-major C = A B is its C' = B' A'.
//
// For each kind and size the library is asked once for its best algorithm; descriptors and the answer are kept.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>

#include "gpu/loops/products.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/device.h"
#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "gpu/vendor/library.h"
#include "stepnet/device.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

struct CublasLt {
  Library library{"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so"}};
  decltype(&cublasLtCreate) create = library.function<decltype(cublasLtCreate)>("cublasLtCreate");
  decltype(&cublasLtMatmulDescCreate) desc_create =
      library.function<decltype(cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) desc_destroy =
      library.function<decltype(cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) desc_set =
      library.function<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) layout_create =
      library.function<decltype(cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy =
      library.function<decltype(cublasLtMatrixLayoutDestroy)>("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set =
      library.function<decltype(cublasLtMatrixLayoutSetAttribute)>("cublasLtMatrixLayoutSetAttribute");
  decltype(&cublasLtMatmulPreferenceCreate) preference_create =
      library.function<decltype(cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy =
      library.function<decltype(cublasLtMatmulPreferenceDestroy)>("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set =
      library.function<decltype(cublasLtMatmulPreferenceSetAttribute)>("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic =
      library.function<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmul) matmul = library.function<decltype(cublasLtMatmul)>("cublasLtMatmul");
  decltype(&cublasLtGetStatusString) text =
      library.function<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString");
};

const CublasLt& lt() {
  static const CublasLt& loaded = *new CublasLt;
  return loaded;
}

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {} ({})", lt().text(status), call);
}

struct DestroyDesc {
  void operator()(cublasLtMatmulDesc_t d) const { lt().desc_destroy(d); }
};
struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t l) const { lt().layout_destroy(l); }
};
struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t p) const { lt().preference_destroy(p); }
};
using Desc = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, DestroyDesc>;
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, DestroyLayout>;
using Preference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference>;

// A matrix as it is stored, [rows, columns] row-major, is [columns, rows] column-major.
Layout layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(lt().layout_create(&made, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), ld),
        "cublasLtMatrixLayoutCreate");
  Layout l(made);
  const auto count = static_cast<int32_t>(batch);
  if (batch > 1) {
    check(lt().layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "batch count");
    check(lt().layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)), "batch stride");
  }
  return l;
}

struct ProductKind {
  ProductSizes sizes;
  cudaDataType_t type = CUDA_R_32F;
  bool tf32 = false, bias = false;
  std::array<uint32_t, 3> alignments = {};  // bytes that the addresses of A, B and C are multiples of, at most 256
  auto operator<=>(const ProductKind&) const = default;
};

bool is_double(const ProductKind& kind) { return kind.type == CUDA_R_64F; }

struct Prepared {
  Desc desc;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;  // bytes that it takes
};

Desc make_desc(const ProductKind& kind) {
  const cublasComputeType_t compute = is_double(kind) ? CUBLAS_COMPUTE_64F
                                      : kind.tf32     ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t made = nullptr;
  check(lt().desc_create(&made, compute, is_double(kind) ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
  Desc desc(made);
  const cublasOperation_t a = kind.sizes.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t b = kind.sizes.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(lt().desc_set(made, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a)), "transposition");
  check(lt().desc_set(made, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b)), "transposition");
  if (kind.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(lt().desc_set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)), "bias");
  }
  return desc;
}

// Sets the algorithm that the library thinks best, and its workspace. Halves are added up in float32, also where a sum
// is split among blocks.
void choose_algorithm(cublasLtHandle_t handle, const ProductKind& kind, Prepared& p) {
  cublasLtMatmulPreference_t made = nullptr;
  check(lt().preference_create(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value, const char* what) {
    check(lt().preference_set(made, which, &value, sizeof(value)), what);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductWorkspace), "workspace");
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE),
      "reduction");
  const auto [a, b, c] = kind.alignments;
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b, "alignment");  // the library's A is our B
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a, "alignment");
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c, "alignment");
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c, "alignment");
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check(lt().heuristic(handle, p.desc.get(), p.b.get(), p.a.get(), p.c.get(), p.c.get(), made, 1, &result, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  require(found > 0, "cuBLASLt has no algorithm for a product of [{}, {}] and [{}, {}]", kind.sizes.m, kind.sizes.k,
          kind.sizes.k, kind.sizes.n);
  p.algorithm = result.algo;
  p.workspace = result.workspaceSize;
}

// What a device keeps for its products.
struct DeviceProducts {
  cublasLtHandle_t handle = nullptr;
  std::map<ProductKind, Prepared> prepared;
  std::map<cudaStream_t, std::shared_ptr<Storage>> workspaces;
  std::mutex mutex;
};

struct AllProducts {
  std::mutex mutex;
  std::map<int, std::unique_ptr<DeviceProducts>> by_device;
};
AllProducts& all_products() {
  static AllProducts& all = *new AllProducts;
  return all;
}

DeviceProducts& products_of(int device) {
  AllProducts& all = all_products();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<DeviceProducts>& products = all.by_device[device];
  if (!products) {
    products = std::make_unique<DeviceProducts>();
    check(lt().create(&products->handle), "cublasLtCreate");
  }
  return *products;
}

void forget(int device, cudaStream_t stream) {
  AllProducts& all = all_products();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_device.find(device);
  if (found == all.by_device.end() || !found->second) return;
  const std::lock_guard lock_of_device(found->second->mutex);
  found->second->workspaces.erase(stream);
}
const bool forgets = (when_stream_ends(forget), true);

const Prepared& prepare(DeviceProducts& products, const ProductKind& kind) {
  const auto [it, is_new] = products.prepared.try_emplace(kind);
  if (!is_new) return it->second;
  Prepared& p = it->second;
  const ProductSizes& s = kind.sizes;
  p.desc = make_desc(kind);
  p.a = layout(kind.type, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.batch, s.stride_a);
  p.b = layout(kind.type, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.batch, s.stride_b);
  p.c = layout(kind.type, s.m, s.n, s.ldc, s.batch, s.stride_c);
  choose_algorithm(products.handle, kind, p);
  return p;
}

struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// A stream's own, which is kept. What is captured runs again on any stream, also while this one works, and has memory
// of the graph's instead, as much as its product takes.
Workspace workspace_on(DeviceProducts& products, int device, cudaStream_t stream, size_t bytes) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  gpu::check(cudaStreamIsCapturing(stream, &capturing));
  if (capturing != cudaStreamCaptureStatusNone) return {pool_workspace(device, stream, bytes), bytes};
  std::shared_ptr<Storage>& workspace = products.workspaces[stream];
  if (!workspace) {
    const MemoryScope category(MemoryCategory::workspace);
    workspace = std::make_shared<Storage>(static_cast<size_t>(kProductWorkspace),
                                          Device{DeviceKind::cuda, static_cast<int8_t>(device)});
  }
  return {workspace->data(), workspace->bytes()};
}

template <class T>
void run_product(int device, const ProductKind& kind, const T* a, const T* b, T* c, const T* bias) {
  const DeviceScope scope(device);
  const cudaStream_t stream = current_stream(device);
  DeviceProducts& products = products_of(device);
  const std::lock_guard lock(products.mutex);
  const Prepared& p = prepare(products, kind);
  const Workspace workspace = workspace_on(products, device, stream, p.workspace);
  if (kind.bias) check(lt().desc_set(p.desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), "bias");
  const Accumulate<T> one = 1, add = kind.sizes.accumulate ? 1 : 0;
  check(lt().matmul(products.handle, p.desc.get(), &one, b, p.b.get(), a, p.a.get(), &add, c, p.c.get(), c, p.c.get(),
                    &p.algorithm, workspace.data, workspace.bytes, stream),
        "cublasLtMatmul");
}

// Rows of a step's slab may begin anywhere, but kernels that load 16 bytes at a time are much faster: products are told
// apart by what their addresses allow. More than 256 bytes make no difference.
std::array<uint32_t, 3> alignments_of(const void* a, const void* b, const void* c) {
  const auto of = [](const void* address) {
    return uint32_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(address)), 8);
  };
  return {of(a), of(b), of(c)};
}

// A bias that lies across units of 16 bytes is added afterwards.
template <class T>
bool run_half_product(int device, const ProductSizes& s, cudaDataType_t type, const T* a, const T* b, T* c,
                      const T* bias) {
  const bool adds = bias != nullptr && reinterpret_cast<uintptr_t>(bias) % 16 == 0;
  run_product(device, ProductKind{s, type, false, adds, alignments_of(a, b, c)}, a, b, c, bias);
  return adds;
}

}  // namespace

bool run_vendor_product(int device, const ProductSizes& s, const float* a, const float* b, float* c,
                        const float* bias) {
  run_product(device, ProductKind{s, CUDA_R_32F, tf32_allowed(), bias != nullptr, alignments_of(a, b, c)}, a, b, c,
              bias);
  return bias != nullptr;
}
bool run_vendor_product(int device, const ProductSizes& s, const double* a, const double* b, double* c, const double*) {
  run_product<double>(device, ProductKind{s, CUDA_R_64F, false, false, alignments_of(a, b, c)}, a, b, c, nullptr);
  return false;
}
bool run_vendor_product(int device, const ProductSizes& s, const float16* a, const float16* b, float16* c,
                        const float16* bias) {
  return run_half_product(device, s, CUDA_R_16F, a, b, c, bias);
}
bool run_vendor_product(int device, const ProductSizes& s, const bfloat16* a, const bfloat16* b, bfloat16* c,
                        const bfloat16* bias) {
  return run_half_product(device, s, CUDA_R_16BF, a, b, c, bias);
}

}  // namespace stepnet::gpu
