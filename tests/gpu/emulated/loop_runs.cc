#include "tests/gpu/emulated/loop_runs.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "gpu/runtime/chain_kernel.h"
#include "stepnet/error.h"

namespace emulated {
namespace {

namespace fs = std::filesystem;
using stepnet::DType;
using stepnet::require;

// A folder of one's own, for as long as something is compiled.
class Folder {
 public:
  Folder() {
    std::string made = (fs::temp_directory_path() / "stepnet_loop_XXXXXX").string();
    require(mkdtemp(made.data()), "cannot make a folder like {}", made);
    path = made;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path path;
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// As a variable of this process would be: the library stays loaded.
template <class Function>
Function* function_of(void* library, const char* name) {
  void* const found = dlsym(library, name);
  require(found, "a compiled loop has no {}", name);
  return reinterpret_cast<Function*>(found);
}

std::string host_source(const stepnet::gpu::LoopPlan& plan, const std::string& body) {
  std::string source = "#include \"tests/gpu/emulated/loop_device.h\"\n";
  source +=
      plan.dtype == DType::float16 ? "using namespace float16_elements;\n" : stepnet::gpu::element_source(plan.dtype);
  if (plan.dtype != DType::float32)
    source += R"(
inline void add_product(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  add_product_of(load, sums, a0, a1, a2, a3, b0, b1);
}
)";
  return source + body + R"(
extern "C" __attribute__((visibility("default"), no_sanitize_thread)) void emulated_run(const void* parameters) {
  timesteps(*(const Parameters*)parameters);
}
)";
}

std::shared_ptr<const LoopKernel> compile(const std::string& source) {
  const Folder folder;
  const std::string file = (folder.path / "loop").string();
  std::ofstream(file + ".cc") << source;
#if defined(__FMA__)
  const char* const fma = "-mfma";  // as the library's own products
#else
  const char* const fma = "";
#endif
  const std::string command = fmt::format(
      "{0} -std=c++20 -O1 {1} -fPIC -fvisibility=hidden -fno-exceptions -fsanitize=thread,alignment,bounds -w "
      "'-D__launch_bounds__(...)=' -I{2} "
      "-I{2}/core/include "
      "-c "
      "{3}.cc -o {3}.o 2>{3}.log && {0} -shared {3}.o -o {3}.so 2>>{3}.log",
      STEPNET_HOST_COMPILER, fma, STEPNET_SOURCES, file);
  require(std::system(command.c_str()) == 0, "a loop's source does not compile:\n{}\n{}", command,
          text_of(file + ".log"));
  void* const library = dlopen((file + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  require(library, "a compiled loop cannot be loaded: {}", dlerror());
  return std::make_shared<const LoopKernel>(LoopKernel{.enter = function_of<LoopEnter>(library, "emulated_enter"),
                                                       .run = function_of<LoopRun>(library, "emulated_run")});
}

}  // namespace

LoopRuns& loop_runs() {
  static auto& runs = *new LoopRuns;
  return runs;
}

bool runs_by_source() {
  const char* const text = std::getenv("STEPNET_EMULATED_LOOPS");
  return loop_runs().by_source || (text && std::string_view(text).starts_with("source"));
}

unsigned order_of_threads() {
  const char* const text = std::getenv("STEPNET_EMULATED_LOOPS");
  const char* const number = text ? std::strchr(text, ':') : nullptr;
  return number ? static_cast<unsigned>(std::strtoul(number + 1, nullptr, 10)) : loop_runs().seed;
}

std::shared_ptr<const LoopKernel> compile_for_host(const stepnet::gpu::LoopPlan& plan) {
  static auto& all = *new std::map<std::string, std::shared_ptr<const LoopKernel>>;
  std::string body = stepnet::gpu::loop_body(plan);
  if (loop_runs().change) loop_runs().change(body);
  const std::string source = host_source(plan, body);
  std::shared_ptr<const LoopKernel>& kernel = all[source];
  if (!kernel) kernel = compile(source);
  return kernel;
}

}  // namespace emulated
