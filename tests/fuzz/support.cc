// See the header.
#include "tests/fuzz/support.h"

#include <google/protobuf/stubs/logging.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "core/io/files.h"
#include "stepnet/device.h"
#include "stepnet/error.h"

namespace stepnet::testing {
namespace {

constexpr int64_t kMemory = int64_t{64} << 20;  // of tensors

// Once in a process. What protobuf prints of bytes that are no UTF-8, in builds with assertions, helps nobody here.
void prepare() {
  static const bool prepared = [] {
    limit_cpu_memory(allocator(Device{}).counters().live + kMemory);
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  (void)prepared;
}

}  // namespace

int may_refuse(const std::function<void()>& use) {
  prepare();
  try {
    use();
  } catch (const Error& e) {
    must(!e.fact().empty(), "an Error says what is wrong");
  }
  return 0;
}

void must_work(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& e) {
    must(false, e.what());
  }
}

void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "this does not hold: %s\n", what);
  std::abort();
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() != DType::string) return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.data<std::string>()[i] != b.data<std::string>()[i]) return false;
  return true;
}

const std::string& fuzz_folder() {
  static const TemporaryFolder folder;
  return folder.path();
}

const FileRootPtr& fuzz_root() {
  static const FileRootPtr root = std::make_shared<const FileRoot>(fuzz_folder());
  return root;
}

std::string fuzz_file(const std::string& name, std::string_view content) {
  const std::string path = fuzz_folder() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

uint8_t Parts::byte() {
  const std::string_view one = text(1);
  return one.empty() ? 0 : static_cast<uint8_t>(one[0]);
}

std::string_view Parts::text(size_t bytes) {
  const std::string_view part = rest_.substr(0, bytes);
  rest_.remove_prefix(part.size());
  return part;
}

}  // namespace stepnet::testing
