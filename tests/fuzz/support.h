// What harnesses share: a folder for files, the rule about Errors, and properties that must hold.
//
// Threads: one harness at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet::testing {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Calls `use`, which may throw Error. Limits the memory of tensors before the first call. Returns 0.
int may_refuse(const std::function<void()>& use);
// Calls `use`; an Error, for which there is no reason, ends the process with it.
void must_work(const std::function<void()>& use);
// Ends the process unless `holds`.
void must(bool holds, const char* what);
// The same type, shape and bytes.
bool same(const Tensor& a, const Tensor& b);

// A folder for this process; what is in it may be replaced at any time. Made at the first call.
const std::string& fuzz_folder();
const FileRootPtr& fuzz_root();  // the same as a root that nets are confined to
// Puts a file there and returns its path.
std::string fuzz_file(const std::string& name, std::string_view content);

// The next bytes of an input that is made of several parts; 0 and "" after its end.
class Parts {
 public:
  Parts(const uint8_t* data, size_t size) : rest_(text_of(data, size)) {}
  bool done() const { return rest_.empty(); }
  uint8_t byte();
  uint16_t pair() { return static_cast<uint16_t>(byte() | byte() << 8); }
  std::string_view text(size_t bytes);  // fewer if there are no more

 private:
  std::string_view rest_;
};

}  // namespace stepnet::testing
