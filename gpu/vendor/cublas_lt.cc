#include "gpu/vendor/cublas_lt.h"

#include <array>
#include <utility>

#include "stepnet/error.h"

namespace stepnet::gpu {

const CublasLt& lt() {
  static const CublasLt& loaded = *new CublasLt;
  return loaded;
}

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {} ({})", lt().text(status), call);
}

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return CUDA_R_16F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    case DType::float64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

MatrixLayout matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                           int64_t stride) {
  require(batch <= INT32_MAX, "cuBLASLt cannot count to {} products; multiply fewer matrices at a time", batch);
  cublasLtMatrixLayout_t made = nullptr;
  check(lt().layout_create(&made, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), ld),
        "cublasLtMatrixLayoutCreate");
  MatrixLayout layout(made);
  const auto count = static_cast<int32_t>(batch);
  if (batch > 1) {
    check(lt().layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "batch count");
    check(lt().layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)), "batch stride");
  }
  return layout;
}

MatmulPreference matmul_preference() {
  cublasLtMatmulPreference_t made = nullptr;
  check(lt().preference_create(&made), "cublasLtMatmulPreferenceCreate");
  return MatmulPreference(made);
}

std::string name_of(const cublasLtMatmulAlgo_t& algorithm) {
  constexpr std::array<std::pair<cublasLtMatmulAlgoConfigAttributes_t, size_t>, 9> kAttributes = {
      {{CUBLASLT_ALGO_CONFIG_ID, 4},
       {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
       {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
       {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
       {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
       {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
       {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
       {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
       {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}}};
  std::string name;
  for (const auto& [attribute, bytes] : kAttributes) {
    uint32_t value = 0;  // the bytes of a shorter one are its lower ones
    size_t written = 0;
    const cublasStatus_t got = lt().algorithm_get(&algorithm, attribute, &value, bytes, &written);
    name += fmt::format("{}{}", name.empty() ? "" : " ",
                        got == CUBLAS_STATUS_SUCCESS ? std::to_string(value) : std::string("none"));
  }
  return name;
}

}  // namespace stepnet::gpu
