// Asks the driver and the libraries by their plain C functions, loaded here, so that nothing is missed where one of
// them is not installed.
#include "tools/bench/gpu/machine.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <array>
#include <fstream>
#include <initializer_list>
#include <vector>

namespace stepnet::bench {
namespace {

// Libraries stay loaded.
template <class Fn>
Fn* function(std::initializer_list<const char*> files, const char* name) {
  for (const char* file : files)
    if (void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL)) return reinterpret_cast<Fn*>(dlsym(library, name));
  return nullptr;
}

std::string device_name() {
  const std::initializer_list<const char*> kDriver = {"libcuda.so.1"};
  auto* init = function<int(unsigned)>(kDriver, "cuInit");
  auto* name_of = function<int(char*, int, int)>(kDriver, "cuDeviceGetName");
  std::array<char, 256> name{};
  const bool known = init && name_of && init(0) == 0 && name_of(name.data(), static_cast<int>(name.size()), 0) == 0;
  return known ? name.data() : "a device without a name";
}

// NVIDIA's number of the driver; "" if the system does not say.
std::string driver_version() {
  std::ifstream in("/sys/module/nvidia/version");
  std::string version;
  in >> version;
  return version;
}

}  // namespace

std::string machine_line() {
  std::vector<std::string> parts = {device_name()};
  if (const std::string version = driver_version(); !version.empty()) parts.push_back("driver " + version);
  int cuda = 0;
  if (auto* get = function<int(int*)>({"libcuda.so.1"}, "cuDriverGetVersion"); get && get(&cuda) == 0)
    parts.push_back(fmt::format("CUDA of the driver {}.{}", cuda / 1000, cuda % 1000 / 10));
  int major = 0, minor = 0;
  if (auto* get = function<int(int*, int*)>({"libnvrtc.so.13", "libnvrtc.so"}, "nvrtcVersion");
      get && get(&major, &minor) == 0)
    parts.push_back(fmt::format("NVRTC {}.{}", major, minor));
  if (auto* get = function<size_t()>({"libcublasLt.so.13", "libcublasLt.so"}, "cublasLtGetVersion"))
    parts.push_back(fmt::format("cuBLASLt {}", get()));
  if (auto* get = function<size_t()>({"libcudnn.so.9", "libcudnn.so"}, "cudnnGetVersion"))
    parts.push_back(fmt::format("cuDNN {}", get()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace stepnet::bench
