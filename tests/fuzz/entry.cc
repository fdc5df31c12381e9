// What libFuzzer calls; STEPNET_HARNESS is the harness's function.
#include "tests/fuzz/harness.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stepnet::testing::STEPNET_HARNESS(data, size);
}
