// Matrix products by cuBLASLt, whose matrices are column-major: a row-major C = A B is its C' = B' A'.
//
// For each kind and size the library is asked once for algorithms, in several ways if need be; descriptors and what was
// chosen (product_choices.h) are kept, so that a product has the same bits whenever it runs. An algorithm that the
// library refuses where it is called gives way to the next.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "gpu/loops/products.h"
#include "gpu/runtime/device.h"
#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "gpu/vendor/cublas_lt.h"
#include "gpu/vendor/product_choices.h"
#include "gpu/vendor/product_kind.h"
#include "stepnet/device.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

constexpr size_t kMostCandidates = 8;

struct Candidate {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;  // bytes that it takes
  std::string name;
};

struct Prepared {
  MatmulDesc desc;
  MatrixLayout a, b, c;
  size_t attempt = 0;                 // of attempts_for(kind), from which the candidates are
  bool has_epilogue = false;          // in that attempt
  bool has_vector = false;            // which it reads or writes
  std::vector<Candidate> candidates;  // the first one is taken
  std::string refusal;                // what the library has said last
};

// `vector`: what the epilogue reads or writes.
struct Operands {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* vector = nullptr;
};

// Queues the product and what its epilogue would do, the sums or Relu, one after the other.
using Separately = std::function<void(void* c, void* sums)>;

// What a device keeps for its products. The mutex is recursive, as a product that is timed may run another one.
struct DeviceProducts {
  cublasLtHandle_t handle = nullptr;
  std::map<ProductKind, Prepared> prepared;
  std::map<cudaStream_t, std::shared_ptr<Storage>> workspaces;
  std::recursive_mutex mutex;
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

MatmulDesc make_desc(const ProductKind& kind) {
  const bool is_double = kind.dtype == DType::float64;
  const cublasComputeType_t compute = is_double   ? CUBLAS_COMPUTE_64F
                                      : kind.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t made = nullptr;
  check(lt().desc_create(&made, compute, is_double ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
  MatmulDesc desc(made);
  set_attribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, kind.sizes.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, "transposition");
  set_attribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, kind.sizes.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, "transposition");
  return desc;
}

// The library's A is our B.
cublasLtEpilogue_t epilogue_of(const ProductKind& kind, const Attempt& attempt) {
  if (!attempt.epilogue) return CUBLASLT_EPILOGUE_DEFAULT;
  switch (kind.epilogue) {
    case Epilogue::add_bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::sums_of_a:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::sums_of_b:
      return CUBLASLT_EPILOGUE_BGRADA;
    case Epilogue::relu:
      return CUBLASLT_EPILOGUE_RELU;
    case Epilogue::bias_and_relu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// Halves are added up in float32, also where a sum is split among blocks.
MatmulPreference preference_for(const ProductKind& kind, const Attempt& attempt) {
  MatmulPreference preference = matmul_preference();
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductWorkspace),
                "workspace");
  const uint32_t reduction =
      attempt.any_reduction ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set_attribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction, "reduction");
  auto [a, b, c, vector] = kind.alignments;
  if (!attempt.real_alignments) a = b = c = static_cast<uint32_t>(dtype_size(kind.dtype));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b, "alignment");
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a, "alignment");
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c, "alignment");
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c, "alignment");
  return preference;
}

// The algorithms that the library offers if it is asked in this way, the best first by its own estimate. What it does
// not answer to, or refuses when an algorithm is checked, is none.
std::vector<Candidate> ask(cublasLtHandle_t handle, const ProductKind& kind, const Attempt& attempt, const void* vector,
                           Prepared& p) {
  const cublasLtEpilogue_t epilogue = epilogue_of(kind, attempt);
  set_attribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, "epilogue");
  p.has_epilogue = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  p.has_vector = p.has_epilogue && kind.epilogue != Epilogue::relu;
  // Known before algorithms are asked for, which depend on its alignment; its type is C's unless something else is
  // said.
  if (p.has_vector) set_attribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector, "vector");
  const MatmulPreference preference = preference_for(kind, attempt);
  std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> results{};
  int found = 0;
  const cublasStatus_t status =
      lt().heuristic(handle, p.desc.get(), p.b.get(), p.a.get(), p.c.get(), p.c.get(), preference.get(),
                     static_cast<int>(results.size()), results.data(), &found);
  if (is_refusal(status)) {
    p.refusal = lt().text(status);
    return {};
  }
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Candidate> candidates;
  for (const auto& result : std::span(results).first(static_cast<size_t>(found))) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    cublasLtMatmulHeuristicResult_t checked{};
    const cublasStatus_t runs =
        lt().algorithm_check(handle, p.desc.get(), p.b.get(), p.a.get(), p.c.get(), p.c.get(), &result.algo, &checked);
    const size_t workspace = std::max(result.workspaceSize, checked.workspaceSize);
    if (runs != CUBLAS_STATUS_SUCCESS || workspace > static_cast<size_t>(kProductWorkspace)) continue;
    Candidate candidate{result.algo, workspace, name_of(result.algo)};
    if (std::ranges::find(candidates, candidate.name, &Candidate::name) == candidates.end())
      candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// The candidates of the first attempt from this one on that has any; false if none has.
bool find_candidates(cublasLtHandle_t handle, const ProductKind& kind, const void* vector, size_t from, Prepared& p) {
  const std::vector<Attempt> attempts = attempts_for(kind);
  for (p.attempt = from; p.attempt < attempts.size(); ++p.attempt) {
    p.candidates = ask(handle, kind, attempts[p.attempt], vector, p);
    if (!p.candidates.empty()) return true;
  }
  return false;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  gpu::check(cudaStreamIsCapturing(stream, &capturing));
  return capturing != cudaStreamCaptureStatusNone;
}

struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// A stream's own, which is kept. What is captured runs again on any stream, also while this one works, and has memory
// of the graph's instead, as much as its product takes.
Workspace workspace_on(DeviceProducts& products, int device, cudaStream_t stream, size_t bytes) {
  if (is_capturing(stream)) return {pool_workspace(device, stream, bytes), bytes};
  std::shared_ptr<Storage>& workspace = products.workspaces[stream];
  if (!workspace) {
    const MemoryScope category(MemoryCategory::workspace);
    workspace = std::make_shared<Storage>(static_cast<size_t>(kProductWorkspace),
                                          Device{DeviceKind::cuda, static_cast<int8_t>(device)});
  }
  return {workspace->data(), workspace->bytes()};
}

// Where a product runs.
struct Place {
  int device;
  cudaStream_t stream;
  DeviceProducts& products;
};

cublasStatus_t queue(const Place& at, const ProductKind& kind, const Prepared& p, const Candidate& candidate,
                     const Operands& o) {
  const Workspace workspace = workspace_on(at.products, at.device, at.stream, candidate.workspace);
  if (p.has_vector) set_attribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.vector, "vector");
  const double one64 = 1, add64 = kind.sizes.accumulate ? 1 : 0;
  const auto one32 = static_cast<float>(one64), add32 = static_cast<float>(add64);
  const bool is_double = kind.dtype == DType::float64;
  const void* one = is_double ? static_cast<const void*>(&one64) : &one32;
  const void* add = is_double ? static_cast<const void*>(&add64) : &add32;
  return lt().matmul(at.products.handle, p.desc.get(), one, o.b, p.b.get(), o.a, p.a.get(), add, o.c, p.c.get(), o.c,
                     p.c.get(), &candidate.algorithm, workspace.data, workspace.bytes, at.stream);
}

// Queues the product by the first algorithm that the library does not refuse now; false if there is none.
bool queue_first(const Place& at, const ProductKind& kind, Prepared& p, const Operands& o) {
  do {
    while (!p.candidates.empty()) {
      const cublasStatus_t status = queue(at, kind, p, p.candidates.front(), o);
      if (!is_refusal(status)) {
        check(status, "cublasLtMatmul");
        return true;
      }
      p.refusal = lt().text(status);
      p.candidates.erase(p.candidates.begin());
    }
  } while (find_candidates(at.products.handle, kind, o.vector, p.attempt + 1, p));
  return false;
}

// The least time of some rounds, each of several runs where one is short; the first two rounds only warm up. Nothing if
// the work cannot be queued.
std::optional<double> milliseconds_of(cudaStream_t stream, const std::function<bool()>& work) {
  constexpr int kRounds = 5, kShortRuns = 10;
  constexpr double kShort = 1;
  double last = 0, least = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int runs = round >= 2 && last < kShort ? kShortRuns : 1;
    Event start(true), end(true);
    start.record(stream);
    for (int i = 0; i < runs; ++i)
      if (!work()) return std::nullopt;
    end.record(stream);
    end.wait();
    last = static_cast<double>(end.milliseconds_since(start)) / runs;
    least = round <= 2 ? last : std::min(least, last);
  }
  return least;
}

// Memory in C's place and the vector's while products are timed; null if there is no room.
std::shared_ptr<Storage> scratch(const Place& at, int64_t elements, DType dtype) {
  const MemoryScope category(MemoryCategory::workspace);
  const size_t bytes = static_cast<size_t>(elements) * dtype_size(dtype);
  try {
    auto made = std::make_shared<Storage>(bytes, Device{DeviceKind::cuda, static_cast<int8_t>(at.device)});
    gpu::check(cudaMemsetAsync(made->data(), 0, bytes, at.stream));
    return made;
  } catch (const Error&) {
    return nullptr;
  }
}

ChoiceKey key_of(const Place& at, const ProductKind& kind) {
  cudaDeviceProp properties{};
  gpu::check(cudaGetDeviceProperties(&properties, at.device));
  return {fmt::format("{}, {}.{}, {} multiprocessors", properties.name, properties.major, properties.minor,
                      properties.multiProcessorCount),
          std::to_string(lt().version()), text_of(kind)};
}

constexpr const char* kSeparately = "separately";

// Puts the candidate that is to be taken first. What writes sums or applies Relu is compared with `separately`: if that
// is chosen, no candidates are left. What is timed writes to other memory than C, and a bias is only read.
void choose_among(const Place& at, const ProductKind& kind, const Operands& o, const Separately* separately,
                  Prepared& p) {
  const std::optional<ProductChoices> choices = choices_of_environment();
  std::vector<std::string> names;
  if (separately) names.emplace_back(kSeparately);
  for (const Candidate& candidate : p.candidates) names.push_back(candidate.name);
  const size_t others = separately ? 1 : 0;
  if (!choices || names.size() < 2) return;
  std::shared_ptr<Storage> c, vector;
  const ProductSizes& s = kind.sizes;
  Operands instead = o;
  const Milliseconds time = [&](size_t i) -> std::optional<double> {
    if (!c) c = scratch(at, (s.batch - 1) * s.stride_c + (s.m - 1) * s.ldc + s.n, kind.dtype);
    if (!vector) vector = scratch(at, std::max(s.m, s.n), kind.dtype);
    if (!c || !vector) return std::nullopt;
    instead.c = c->data();
    if (writes_sums(kind.epilogue)) instead.vector = vector->data();
    return milliseconds_of(at.stream, [&] {
      if (i >= others) return queue(at, kind, p, p.candidates[i - others], instead) == CUBLAS_STATUS_SUCCESS;
      (*separately)(c->data(), vector->data());
      return true;
    });
  };
  const size_t chosen = choose(names, key_of(at, kind), &*choices, is_capturing(at.stream) ? nullptr : &time);
  if (chosen < others) return p.candidates.clear();
  const auto first = p.candidates.begin(), it = first + static_cast<ptrdiff_t>(chosen - others);
  std::rotate(first, it, it + 1);
}

Prepared& prepare(const Place& at, const ProductKind& kind, const Operands& o, const Separately* separately) {
  std::map<ProductKind, Prepared>& all = at.products.prepared;
  if (const auto found = all.find(kind); found != all.end()) return found->second;
  const ProductSizes& s = kind.sizes;
  const cudaDataType_t type = cublas_type(kind.dtype);
  Prepared p;
  p.desc = make_desc(kind);
  p.a = matrix_layout(type, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.batch, s.stride_a);
  p.b = matrix_layout(type, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.batch, s.stride_b);
  p.c = matrix_layout(type, s.m, s.n, s.ldc, s.batch, s.stride_c);
  if (find_candidates(at.products.handle, kind, o.vector, 0, p)) choose_among(at, kind, o, separately, p);
  return all.emplace(kind, std::move(p)).first->second;
}

// Returns whether the epilogue is done, too.
bool run_product(int device, const ProductKind& kind, const Operands& o) {
  const DeviceScope scope(device);
  const cudaStream_t stream = current_stream(device);
  DeviceProducts& products = products_of(device);
  const std::lock_guard lock(products.mutex);
  const Place at{device, stream, products};
  Prepared& p = prepare(at, kind, o, nullptr);
  if (!queue_first(at, kind, p, o))
    throw Error(fmt::format("cuBLASLt {} has no algorithm for the product of {}{}{}", lt().version(), text_of(kind),
                            p.refusal.empty() ? "" : ": ", p.refusal),
                "report it with the name of the GPU; operands whose addresses are multiples of 16 bytes may have one");
  return p.has_epilogue;
}

// Kernels may load a vector 16 bytes at a time, whatever the library is told.
bool is_aligned(const void* vector) { return alignment_of(vector) >= 16; }

// Returns whether the bias has been added. One that lies across units of 16 bytes is added afterwards.
template <class T>
bool run_with_bias(int device, const ProductSizes& s, const T* a, const T* b, T* c, const T* bias) {
  const bool adds = bias && is_aligned(bias);
  ProductKind kind{s, dtype_of<T>(), std::is_same_v<T, float> && tf32_allowed(),
                   adds ? Epilogue::add_bias : Epilogue::none};
  kind.alignments = {alignment_of(a), alignment_of(b), alignment_of(c), adds ? alignment_of(bias) : 0};
  return run_product(device, kind, {a, b, c, adds ? bias : nullptr}) && adds;
}

// Returns whether the product is queued, with its epilogue, where that was found to be the fastest way.
bool run_or_leave(int device, const ProductKind& kind, const Operands& o, const Separately& separately) {
  const DeviceScope scope(device);
  const cudaStream_t stream = current_stream(device);
  DeviceProducts& products = products_of(device);
  const std::lock_guard lock(products.mutex);
  const Place at{device, stream, products};
  return queue_first(at, kind, prepare(at, kind, o, &separately), o);
}

// A sum of factors that are rounded to TF32 is another one than that of the factors.
template <class T>
bool run_with_sums(int device, const ProductSizes& s, const T* a, const T* b, T* c, SummedOperand summed, T* sums,
                   const std::function<void(T* c, T* sums)>& separately) {
  if (!is_aligned(sums) || (std::is_same_v<T, float> && tf32_allowed()) || !choices_of_environment()) return false;
  const ProductKind kind{s,
                         dtype_of<T>(),
                         false,
                         summed == SummedOperand::a ? Epilogue::sums_of_a : Epilogue::sums_of_b,
                         {alignment_of(a), alignment_of(b), alignment_of(c), alignment_of(sums)}};
  return run_or_leave(device, kind, {a, b, c, sums},
                      [&](void* to_c, void* to_sums) { separately(static_cast<T*>(to_c), static_cast<T*>(to_sums)); });
}

template <class T>
bool run_with_relu(int device, const ProductSizes& s, const T* a, const T* b, T* c, const T* bias,
                   const std::function<void(T* c)>& separately) {
  if ((bias && !is_aligned(bias)) || !choices_of_environment()) return false;
  const ProductKind kind{s,
                         dtype_of<T>(),
                         std::is_same_v<T, float> && tf32_allowed(),
                         bias ? Epilogue::bias_and_relu : Epilogue::relu,
                         {alignment_of(a), alignment_of(b), alignment_of(c), alignment_of(bias)}};
  return run_or_leave(device, kind, {a, b, c, bias}, [&](void* to_c, void*) { separately(static_cast<T*>(to_c)); });
}

}  // namespace

bool run_vendor_product(int device, const ProductSizes& s, const float* a, const float* b, float* c,
                        const float* bias) {
  return run_with_bias(device, s, a, b, c, bias);
}
bool run_vendor_product(int device, const ProductSizes& s, const double* a, const double* b, double* c,
                        const double* bias) {
  return run_with_bias(device, s, a, b, c, bias);
}
bool run_vendor_product(int device, const ProductSizes& s, const float16* a, const float16* b, float16* c,
                        const float16* bias) {
  return run_with_bias(device, s, a, b, c, bias);
}
bool run_vendor_product(int device, const ProductSizes& s, const bfloat16* a, const bfloat16* b, bfloat16* c,
                        const bfloat16* bias) {
  return run_with_bias(device, s, a, b, c, bias);
}

bool run_vendor_product_with_sums(int device, const ProductSizes& s, const float* a, const float* b, float* c,
                                  SummedOperand summed, float* sums, const std::function<void(float*, float*)>& apart) {
  return run_with_sums(device, s, a, b, c, summed, sums, apart);
}
bool run_vendor_product_with_sums(int device, const ProductSizes& s, const double* a, const double* b, double* c,
                                  SummedOperand summed, double* sums,
                                  const std::function<void(double*, double*)>& apart) {
  return run_with_sums(device, s, a, b, c, summed, sums, apart);
}
bool run_vendor_product_with_sums(int device, const ProductSizes& s, const float16* a, const float16* b, float16* c,
                                  SummedOperand summed, float16* sums,
                                  const std::function<void(float16*, float16*)>& apart) {
  return run_with_sums(device, s, a, b, c, summed, sums, apart);
}
bool run_vendor_product_with_sums(int device, const ProductSizes& s, const bfloat16* a, const bfloat16* b, bfloat16* c,
                                  SummedOperand summed, bfloat16* sums,
                                  const std::function<void(bfloat16*, bfloat16*)>& apart) {
  return run_with_sums(device, s, a, b, c, summed, sums, apart);
}

bool run_vendor_product_with_relu(int device, const ProductSizes& s, const float* a, const float* b, float* c,
                                  const float* bias, const std::function<void(float*)>& apart) {
  return run_with_relu(device, s, a, b, c, bias, apart);
}
bool run_vendor_product_with_relu(int device, const ProductSizes& s, const double* a, const double* b, double* c,
                                  const double* bias, const std::function<void(double*)>& apart) {
  return run_with_relu(device, s, a, b, c, bias, apart);
}
bool run_vendor_product_with_relu(int device, const ProductSizes& s, const float16* a, const float16* b, float16* c,
                                  const float16* bias, const std::function<void(float16*)>& apart) {
  return run_with_relu(device, s, a, b, c, bias, apart);
}
bool run_vendor_product_with_relu(int device, const ProductSizes& s, const bfloat16* a, const bfloat16* b, bfloat16* c,
                                  const bfloat16* bias, const std::function<void(bfloat16*)>& apart) {
  return run_with_relu(device, s, a, b, c, bias, apart);
}

}  // namespace stepnet::gpu
