// The functions of cuBLASLt that products use, loaded when they are first needed, and its descriptors, which free
// themselves.
//
// Errors: a call that fails throws Error with cuBLASLt's words. Threads: the functions may be called from several
// threads; descriptors belong to one thread at a time.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "gpu/vendor/library.h"
#include "stepnet/shape.h"

namespace stepnet::gpu {

struct CublasLt {
  Library library{"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so"}};
  decltype(&cublasLtCreate) create = library.function<decltype(cublasLtCreate)>("cublasLtCreate");
  decltype(&cublasLtGetVersion) version = library.function<decltype(cublasLtGetVersion)>("cublasLtGetVersion");
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
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check =
      library.function<decltype(cublasLtMatmulAlgoCheck)>("cublasLtMatmulAlgoCheck");
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get =
      library.function<decltype(cublasLtMatmulAlgoConfigGetAttribute)>("cublasLtMatmulAlgoConfigGetAttribute");
  decltype(&cublasLtMatmul) matmul = library.function<decltype(cublasLtMatmul)>("cublasLtMatmul");
  decltype(&cublasLtGetStatusString) text =
      library.function<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString");
};

const CublasLt& lt();

// Throws Error unless the call went well.
void check(cublasStatus_t status, const char* call);

// Whether what was asked for is nothing that the library does, as opposed to a device that fails.
constexpr bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
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
using MatmulDesc = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, DestroyDesc>;
using MatrixLayout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, DestroyLayout>;
using MatmulPreference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference>;

cudaDataType_t cublas_type(DType dtype);  // of a floating type

// A matrix as it is stored, [rows, columns] row-major, is [columns, rows] column-major.
MatrixLayout matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                           int64_t stride);

void set_attribute(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t which, const auto& value, const char* what) {
  check(lt().desc_set(desc.get(), which, &value, sizeof(value)), what);
}
void set_attribute(const MatmulPreference& preference, cublasLtMatmulPreferenceAttributes_t which, const auto& value,
                   const char* what) {
  check(lt().preference_set(preference.get(), which, &value, sizeof(value)), what);
}
MatmulPreference matmul_preference();

// What an algorithm is configured to do, by the library's numbers.
std::string name_of(const cublasLtMatmulAlgo_t& algorithm);

}  // namespace stepnet::gpu
