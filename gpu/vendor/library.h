// A shared library of NVIDIA's, loaded when it is first needed, so that Stepnet starts where it is not installed.
// Threads: may be used from several threads; a library is never unloaded.
#pragma once

#include <string>
#include <vector>

namespace stepnet::gpu {

class Library {
 public:
  // The first of these files that can be loaded, from where the system looks or from the folder of libstepnet itself.
  // `what`: its name in messages. Throws Error if there is none.
  Library(std::string what, const std::vector<std::string>& files);

  // A function of the library, of the type that its header declares. Throws Error if there is none of that name.
  template <class Fn>
  Fn* function(const char* name) const {
    return reinterpret_cast<Fn*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;
  std::string what_;
  void* handle_ = nullptr;
};

}  // namespace stepnet::gpu
