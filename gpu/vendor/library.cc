#include "gpu/vendor/library.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

std::string own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname) return ".";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

}  // namespace

Library::Library(std::string what, const std::vector<std::string>& files) : what_(std::move(what)) {
  std::string last;
  for (const std::string& file : files)
    for (const std::string& path : {file, own_folder() + "/" + file}) {
      handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_) return;
      last = dlerror();
    }
  throw Error(fmt::format("{} cannot be loaded: {}", what_, last),
              fmt::format("install {} or put {} beside libstepnet.so", what_, fmt::join(files, " or ")));
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  require(found != nullptr, "{} has no function {}: its version is too old", what_, name);
  return found;
}

}  // namespace stepnet::gpu
