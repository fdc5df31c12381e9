// Tensors in NumPy's format.
#include "core/io/npy.h"

#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {

int fuzz_npy(const uint8_t* data, size_t size) {
  const std::string path = fuzz_file("input.npy", text_of(data, size));
  return may_refuse([&] {
    const Tensor tensor = read_npy(path);
    must_work([&] {
      write_npy(path, tensor);
      must(same(tensor, read_npy(path)), "a tensor is written as it is");
    });
  });
}

}  // namespace stepnet::testing
