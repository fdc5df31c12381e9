#include "tests/gpu/vendor/stand_in/cublas_lt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "gpu/runtime/accumulate.h"
#include "gpu/vendor/library.h"
#include "stepnet/error.h"

struct StandInHandle {};
struct StandInDesc {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;
};
struct StandInLayout {
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, ld = 0;
  int32_t batch = 1;
  int64_t stride = 0;
  auto operator<=>(const StandInLayout&) const = default;
};
struct StandInPreference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};
};

namespace stepnet::testing {

LtStandIn& lt_stand_in() {
  static auto& all = *new LtStandIn;
  return all;
}

namespace {

std::recursive_mutex& lock_of_all() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

// What an algorithm says of itself, in the bytes that the caller keeps.
struct Algorithm {
  int32_t id, splits;
  int32_t microseconds;
  cublasStatus_t check, call;
  uint32_t epilogue;
  uint32_t alignments[5];  // of A, B, C, D and the vector
  uint32_t type;
  uint64_t workspace;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

uint32_t alignment(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  return bits == 0 ? 256 : uint32_t{1} << std::min(std::countr_zero(bits), 8);
}

cublasStatus_t breaks(const std::string& rule) {
  lt_stand_in().broken.push_back(rule);
  return CUBLAS_STATUS_INVALID_VALUE;
}

bool has_vector(const StandInDesc& desc) {
  return desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT && desc.epilogue != CUBLASLT_EPILOGUE_RELU;
}

template <class T>
void set(T& to, const void* value, size_t bytes) {
  if (bytes == sizeof(T))
    std::memcpy(&to, value, bytes);
  else
    breaks("an attribute has another size");
}

// Column-major, as the library's are.
template <class T>
struct Matrix {
  T* data;
  StandInLayout l;
  bool transposed;
  T& at(int64_t batch, int64_t row, int64_t column) const {
    return data[batch * l.stride + (transposed ? row * l.ld + column : column * l.ld + row)];
  }
};

template <class T>
struct Work {
  Matrix<const T> a, b;
  Matrix<T> c;
  gpu::Accumulate<T> add;
  cublasLtEpilogue_t epilogue;
  T* vector;
  int64_t depth;
  bool from_the_back;

  // The sum of term(0) to term(depth - 1), in the algorithm's order.
  template <class Term>
  gpu::Accumulate<T> sum(const Term& term) const {
    gpu::Accumulate<T> all = 0;
    for (int64_t p = 0; p < depth; ++p) all += term(from_the_back ? depth - 1 - p : p);
    return all;
  }

  // NaN becomes 0, as nothing says what it becomes.
  void run() const {
    const bool biased = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    const bool rectified = epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    for (int64_t at = 0; at < c.l.batch; ++at)
      for (int64_t j = 0; j < c.l.columns; ++j)
        for (int64_t i = 0; i < c.l.rows; ++i) {
          T& to = c.at(at, i, j);
          const auto product =
              sum([&](int64_t p) { return gpu::Accumulate<T>(a.at(at, i, p)) * gpu::Accumulate<T>(b.at(at, p, j)); });
          to = product + (add != 0 ? to : T(0)) + (biased ? vector[i] : T(0));
          if (rectified && !(to > T(0))) to = T(0);
        }
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA)
      for (int64_t i = 0; i < c.l.rows; ++i)
        vector[i] = sum([&](int64_t p) { return gpu::Accumulate<T>(a.at(0, i, p)); });
    if (epilogue == CUBLASLT_EPILOGUE_BGRADB)
      for (int64_t j = 0; j < c.l.columns; ++j)
        vector[j] = sum([&](int64_t p) { return gpu::Accumulate<T>(b.at(0, p, j)); });
  }
};

struct Operands {
  const void *a, *b;
  void* d;
  const void* beta;
};

template <class T>
void enqueue(const StandInDesc& desc, const StandInLayout& a, const StandInLayout& b, const StandInLayout& d,
             const Operands& o, const Algorithm& algorithm, void* workspace, cudaStream_t stream) {
  const bool trans_a = desc.trans_a == CUBLAS_OP_T, trans_b = desc.trans_b == CUBLAS_OP_T;
  gpu::Accumulate<T> add = 0;
  std::memcpy(&add, o.beta, sizeof(add));
  const Work<T> work{{static_cast<const T*>(o.a), a, trans_a},
                     {static_cast<const T*>(o.b), b, trans_b},
                     {static_cast<T*>(o.d), d, false},
                     add,
                     desc.epilogue,
                     static_cast<T*>(desc.vector),
                     trans_a ? a.rows : a.columns,
                     algorithm.id % 2 != 0};
  emulated::enqueue(stream, [work, algorithm, workspace] {
    if (algorithm.workspace > 0) std::memset(workspace, 0xEE, algorithm.workspace);
    work.run();
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(algorithm.microseconds);
    while (std::chrono::steady_clock::now() < until) {
    }
  });
}

std::string broken_rule(const StandInDesc& desc, const StandInLayout& d, const Algorithm& algorithm, const Operands& o,
                        const void* workspace, size_t bytes) {
  if (algorithm.epilogue != static_cast<uint32_t>(desc.epilogue)) return "the algorithm is for another epilogue";
  if (algorithm.type != static_cast<uint32_t>(d.type)) return "the algorithm is for another type";
  const void* addresses[] = {o.a, o.b, o.d, o.d, has_vector(desc) ? desc.vector : nullptr};
  for (size_t i = 0; i < std::size(addresses); ++i)
    if (alignment(addresses[i]) < algorithm.alignments[i])
      return fmt::format("address {} is aligned to {} bytes, but {} were promised", i, alignment(addresses[i]),
                         algorithm.alignments[i]);
  if (bytes < algorithm.workspace || (algorithm.workspace > 0 && (!workspace || alignment(workspace) < 256)))
    return fmt::format("the workspace has {} bytes, but the algorithm takes {}", bytes, algorithm.workspace);
  return "";
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status != cudaStreamCaptureStatusNone;
}

const std::map<std::string, void*>& functions() {
  static const auto& all = *new std::map<std::string, void*>{
      {"cublasLtCreate", reinterpret_cast<void*>(cublasLtCreate)},
      {"cublasLtGetVersion", reinterpret_cast<void*>(cublasLtGetVersion)},
      {"cublasLtGetStatusString", reinterpret_cast<void*>(cublasLtGetStatusString)},
      {"cublasLtMatmulDescCreate", reinterpret_cast<void*>(cublasLtMatmulDescCreate)},
      {"cublasLtMatmulDescDestroy", reinterpret_cast<void*>(cublasLtMatmulDescDestroy)},
      {"cublasLtMatmulDescSetAttribute", reinterpret_cast<void*>(cublasLtMatmulDescSetAttribute)},
      {"cublasLtMatrixLayoutCreate", reinterpret_cast<void*>(cublasLtMatrixLayoutCreate)},
      {"cublasLtMatrixLayoutDestroy", reinterpret_cast<void*>(cublasLtMatrixLayoutDestroy)},
      {"cublasLtMatrixLayoutSetAttribute", reinterpret_cast<void*>(cublasLtMatrixLayoutSetAttribute)},
      {"cublasLtMatmulPreferenceCreate", reinterpret_cast<void*>(cublasLtMatmulPreferenceCreate)},
      {"cublasLtMatmulPreferenceDestroy", reinterpret_cast<void*>(cublasLtMatmulPreferenceDestroy)},
      {"cublasLtMatmulPreferenceSetAttribute", reinterpret_cast<void*>(cublasLtMatmulPreferenceSetAttribute)},
      {"cublasLtMatmulAlgoGetHeuristic", reinterpret_cast<void*>(cublasLtMatmulAlgoGetHeuristic)},
      {"cublasLtMatmulAlgoCheck", reinterpret_cast<void*>(cublasLtMatmulAlgoCheck)},
      {"cublasLtMatmulAlgoConfigGetAttribute", reinterpret_cast<void*>(cublasLtMatmulAlgoConfigGetAttribute)},
      {"cublasLtMatmul", reinterpret_cast<void*>(cublasLtMatmul)}};
  return all;
}

}  // namespace
}  // namespace stepnet::testing

// No library is loaded: one that is installed is not meant.
namespace stepnet::gpu {

Library::Library(std::string what, const std::vector<std::string>&) : what_(std::move(what)) {}

void* Library::symbol(const char* name) const {
  const auto found = testing::functions().find(name);
  require(found != testing::functions().end(), "{}'s stand-in has no function {}", what_, name);
  return found->second;
}

}  // namespace stepnet::gpu

using namespace stepnet;           // NOLINT(google-build-using-namespace): this is no header
using namespace stepnet::testing;  // NOLINT(google-build-using-namespace)

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static StandInHandle one;
  *handle = &one;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an invalid value";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t) {
  *desc = new StandInDesc{.compute = compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  const Lock lock(lock_of_all());
  if (which == CUBLASLT_MATMUL_DESC_TRANSA) set(desc->trans_a, value, bytes);
  if (which == CUBLASLT_MATMUL_DESC_TRANSB) set(desc->trans_b, value, bytes);
  if (which == CUBLASLT_MATMUL_DESC_EPILOGUE) set(desc->epilogue, value, bytes);
  if (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER) set(desc->vector, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new StandInLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t bytes) {
  const Lock lock(lock_of_all());
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) set(layout->batch, value, bytes);
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) set(layout->stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new StandInPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    size_t bytes) {
  const Lock lock(lock_of_all());
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) set(preference->workspace, value, bytes);
  if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) set(preference->reductions, value, bytes);
  if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
    set(preference->alignments[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Lock lock(lock_of_all());
  *found = 0;
  if (has_vector(*desc) && !desc->vector) return breaks("algorithms are asked for before the vector is known");
  LtQuestion question{desc->epilogue, d->type, preference->reductions, {}, wanted};
  std::ranges::copy(preference->alignments, question.alignments);
  question.alignments[4] = has_vector(*desc) ? alignment(desc->vector) : 0;
  LtStandIn& s = lt_stand_in();
  s.questions.push_back(question);
  const std::vector<LtOffer> offers = s.offers(question);
  if (offers.empty()) return s.answer_to_none;
  for (const LtOffer& offer : offers) {
    if (*found == wanted) break;
    Algorithm algorithm{.id = offer.id,
                        .splits = offer.splits,
                        .microseconds = offer.microseconds,
                        .check = offer.check,
                        .call = offer.call,
                        .epilogue = static_cast<uint32_t>(desc->epilogue),
                        .alignments = {},
                        .type = static_cast<uint32_t>(d->type),
                        .workspace = offer.workspace};
    std::ranges::copy(question.alignments, algorithm.alignments);
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
    result.workspaceSize = offer.workspace;
    result.state = offer.state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  Algorithm known{};
  std::memcpy(&known, algorithm, sizeof(known));
  result->workspaceSize = known.workspace;
  return known.check;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, void* value,
                                                    size_t bytes, size_t* written) {
  Algorithm known{};
  std::memcpy(&known, algorithm, sizeof(known));
  *written = bytes;
  std::memset(value, 0, bytes);
  if (which == CUBLASLT_ALGO_CONFIG_ID) std::memcpy(value, &known.id, bytes);
  if (which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) std::memcpy(value, &known.splits, bytes);
  return which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void*, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* given, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Lock lock(lock_of_all());
  Algorithm algorithm{};
  std::memcpy(&algorithm, given, sizeof(algorithm));
  if (algorithm.call != CUBLAS_STATUS_SUCCESS) return algorithm.call;
  const Operands o{a, b, d, beta};
  const std::string rule = c != d || *layout_c != *layout_d
                               ? "C is not D"
                               : broken_rule(*desc, *layout_d, algorithm, o, workspace, workspace_bytes);
  if (!rule.empty()) return breaks(rule);
  lt_stand_in().runs.push_back(
      {algorithm.id, desc->epilogue, d, has_vector(*desc) ? desc->vector : nullptr, is_captured(stream)});
  switch (layout_d->type) {
    case CUDA_R_16F:
      enqueue<float16>(*desc, *layout_a, *layout_b, *layout_d, o, algorithm, workspace, stream);
      break;
    case CUDA_R_16BF:
      enqueue<bfloat16>(*desc, *layout_a, *layout_b, *layout_d, o, algorithm, workspace, stream);
      break;
    case CUDA_R_64F:
      enqueue<double>(*desc, *layout_a, *layout_b, *layout_d, o, algorithm, workspace, stream);
      break;
    default:
      enqueue<float>(*desc, *layout_a, *layout_b, *layout_d, o, algorithm, workspace, stream);
  }
  return CUBLAS_STATUS_SUCCESS;
}
