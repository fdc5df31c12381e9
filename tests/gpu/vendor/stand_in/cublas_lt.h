// A stand-in for cuBLASLt on the imitated device, whose memory is the host's: what it offers is for tests to say, and
// it notes what the real one might answer by a wrong result or a fault.
//
// It insists on: a vector for each epilogue that has one, set before algorithms are asked for; addresses, a vector's
// too, that are as aligned as was promised then; a workspace of the bytes that the algorithm asked for; and algorithms
// that it has offered for the same product. Threads: one lock for all.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <string>
#include <vector>

namespace stepnet::testing {

// One of the algorithms. `id` is its number; sums of even ones go from the front, those of odd ones from the back.
struct LtOffer {
  int32_t id = 0;
  int32_t splits = 1;  // another part of its configuration
  size_t workspace = 0;
  int microseconds = 0;  // that it takes on the device beside the sums
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS, check = CUBLAS_STATUS_SUCCESS, call = CUBLAS_STATUS_SUCCESS;
};

// How algorithms are asked for; alignments are those of the library's A, B, C and D, and of the vector.
struct LtQuestion {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t type = CUDA_R_32F;
  uint32_t reductions = 0;
  uint32_t alignments[5] = {};
  int wanted = 0;
};

// What it does from now on, and what has been seen since.
struct LtStandIn {
  std::function<std::vector<LtOffer>(const LtQuestion&)> offers = [](const LtQuestion&) {
    return std::vector<LtOffer>{{}};
  };
  cublasStatus_t answer_to_none = CUBLAS_STATUS_SUCCESS;  // where there are no offers
  std::vector<LtQuestion> questions;
  struct Run {
    int32_t id = 0;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *to = nullptr, *vector = nullptr;
    bool captured = false;
  };
  std::vector<Run> runs;            // calls that went well
  std::vector<std::string> broken;  // rules
};
LtStandIn& lt_stand_in();

}  // namespace stepnet::testing
