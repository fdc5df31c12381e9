#include "gpu/vendor/nvrtc.h"

#include <nvrtc.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <type_traits>

#include "gpu/runtime/chain_kernel.h"
#include "gpu/runtime/timesteps.h"
#include "gpu/vendor/library.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

struct Nvrtc {
  Library library{"NVRTC", {"libnvrtc.so.13", "libnvrtc.so"}};
  decltype(&nvrtcCreateProgram) create = library.function<decltype(nvrtcCreateProgram)>("nvrtcCreateProgram");
  decltype(&nvrtcDestroyProgram) destroy = library.function<decltype(nvrtcDestroyProgram)>("nvrtcDestroyProgram");
  decltype(&nvrtcCompileProgram) compile = library.function<decltype(nvrtcCompileProgram)>("nvrtcCompileProgram");
  decltype(&nvrtcGetProgramLogSize) log_size =
      library.function<decltype(nvrtcGetProgramLogSize)>("nvrtcGetProgramLogSize");
  decltype(&nvrtcGetProgramLog) log = library.function<decltype(nvrtcGetProgramLog)>("nvrtcGetProgramLog");
  decltype(&nvrtcGetCUBINSize) code_size = library.function<decltype(nvrtcGetCUBINSize)>("nvrtcGetCUBINSize");
  decltype(&nvrtcGetCUBIN) code = library.function<decltype(nvrtcGetCUBIN)>("nvrtcGetCUBIN");
  decltype(&nvrtcGetNumSupportedArchs) count_capabilities =
      library.function<decltype(nvrtcGetNumSupportedArchs)>("nvrtcGetNumSupportedArchs");
  decltype(&nvrtcGetSupportedArchs) capabilities =
      library.function<decltype(nvrtcGetSupportedArchs)>("nvrtcGetSupportedArchs");
  decltype(&nvrtcGetErrorString) text = library.function<decltype(nvrtcGetErrorString)>("nvrtcGetErrorString");
};

const Nvrtc& nvrtc() {
  static const Nvrtc& loaded = *new Nvrtc;
  return loaded;
}

void check(nvrtcResult result, const char* call) {
  require(result == NVRTC_SUCCESS, "NVRTC: {} ({})", nvrtc().text(result), call);
}

class Program {
 public:
  explicit Program(const std::string& source) {
    check(nvrtc().create(&program_, source.c_str(), "chain.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~Program() { nvrtc().destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram get() const { return program_; }

 private:
  nvrtcProgram program_ = nullptr;
};

// A kernel of one device, for the life of the process.
class LoadedChain : public CompiledChain {
 public:
  LoadedChain(const std::vector<char>& code, int lanes) {
    gpu::check(cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    gpu::check(cudaLibraryGetKernel(&kernel_, library_, "chain"));
    if (lanes > 1) gpu::check(cudaLibraryGetKernel(&of_lanes_, library_, "chain_lanes"));
  }
  ~LoadedChain() override { cudaLibraryUnload(library_); }
  LoadedChain(const LoadedChain&) = delete;
  LoadedChain& operator=(const LoadedChain&) = delete;

  void launch(cudaStream_t stream, const FusedOperands& operands, const ChainLaunch& launch) const override {
    constexpr size_t kThreads = 256, kMostBlocks = 1 << 16;
    static_assert(sizeof(Divider) == 16 && std::is_trivially_copyable_v<Divider>);  // as the source declares it
    const size_t blocks = std::min((launch.count + kThreads - 1) / kThreads, kMostBlocks);
    ChainLaunch given = launch;
    void* parameters[] = {const_cast<FusedOperands*>(&operands), &given.groups, &given.count};
    gpu::check(cudaLaunchKernel(reinterpret_cast<const void*>(launch.lanes > 1 ? of_lanes_ : kernel_),
                                dim3(static_cast<unsigned>(blocks)), dim3(kThreads), parameters, 0, stream));
  }

 private:
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr, of_lanes_ = nullptr;
};

// Machine code by capability and source: nets are compiled anew for other shapes, with the same chains.
const std::vector<char>& cached_code(const std::string& source, int capability) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int, std::string>, std::vector<char>>;
  const std::lock_guard lock(mutex);
  std::vector<char>& code = all[{capability, source}];
  if (code.empty()) code = compile_kernel(source, capability);
  return code;
}

// The timesteps' kernel, with all the shared memory that it needs.
class LoadedLoop : public CompiledLoop {
 public:
  LoadedLoop(const std::vector<char>& code, size_t shared_bytes) {
    gpu::check(cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    gpu::check(cudaLibraryGetKernel(&kernel_, library_, "timesteps"));
    gpu::check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
  }
  ~LoadedLoop() override { cudaLibraryUnload(library_); }
  LoadedLoop(const LoadedLoop&) = delete;
  LoadedLoop& operator=(const LoadedLoop&) = delete;

  void launch(cudaStream_t stream, const LoopPlan& plan, void* arrived) const override {
    LoopParameters words = loop_parameters(plan, arrived);
    void* parameters[] = {words.words.data()};
    gpu::check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel_),
                                           dim3(static_cast<unsigned>(plan.blocks)), dim3(kLoopThreads), parameters,
                                           plan.shared_bytes, stream));
  }

 private:
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

std::string log_of(const Program& program) {
  size_t size = 0;
  check(nvrtc().log_size(program.get(), &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  check(nvrtc().log(program.get(), log.data()), "nvrtcGetProgramLog");
  return log;
}

int attribute(int device, cudaDeviceAttr which) {
  int value = 0;
  gpu::check(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

int capability_of(int device) {
  return 10 * attribute(device, cudaDevAttrComputeCapabilityMajor) +
         attribute(device, cudaDevAttrComputeCapabilityMinor);
}

}  // namespace

LoopLimits loop_limits(int device) {
  LoopLimits limits;
  if (attribute(device, cudaDevAttrCooperativeLaunch) == 0) return limits;
  limits.blocks = attribute(device, cudaDevAttrMultiProcessorCount);
  limits.shared_bytes = static_cast<size_t>(attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  limits.tensor_cores = capability_of(device) >= 80;
  return limits;
}

std::shared_ptr<const CompiledLoop> compile_loop(int device, const LoopPlan& plan) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int, std::string>, std::shared_ptr<const CompiledLoop>>;
  const std::string source = loop_source(plan);
  const std::lock_guard lock(mutex);
  std::shared_ptr<const CompiledLoop>& loop = all[{device, source}];
  if (!loop) loop = std::make_shared<LoadedLoop>(compile_kernel(source, capability_of(device)), plan.shared_bytes);
  return loop;
}

std::vector<char> compile_kernel(const std::string& source, int capability, std::string* assembler) {
  const Program program(source);
  const std::string architecture = fmt::format("--gpu-architecture=sm_{}", capability);
  const char* options[] = {architecture.c_str(), "--fmad=true", "--ptxas-options=-v"};
  if (nvrtc().compile(program.get(), assembler ? 3 : 2, options) != NVRTC_SUCCESS)
    fail("NVRTC cannot compile a chain: {}", log_of(program));
  if (assembler) *assembler = log_of(program);
  size_t size = 0;
  check(nvrtc().code_size(program.get(), &size), "nvrtcGetCUBINSize");
  std::vector<char> code(size);
  check(nvrtc().code(program.get(), code.data()), "nvrtcGetCUBIN");
  return code;
}

bool can_compile_for(int capability) {
  try {
    nvrtc();
  } catch (const Error&) {
    return false;
  }
  int count = 0;
  check(nvrtc().count_capabilities(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> all(static_cast<size_t>(count));
  check(nvrtc().capabilities(all.data()), "nvrtcGetSupportedArchs");
  return std::ranges::find(all, capability) != all.end();
}

// Without a compiler for the device the chain is read instruction by instruction; what a compiler refuses is an error,
// as it would be hidden otherwise, and every loop slow.
std::unique_ptr<CompiledChain> compile_chain(int device, const std::string& source, int lanes) {
  const DeviceScope scope(device);
  const int capability = capability_of(device);
  if (!can_compile_for(capability)) return nullptr;
  return std::make_unique<LoadedChain>(cached_code(source, capability), lanes);
}

}  // namespace stepnet::gpu
