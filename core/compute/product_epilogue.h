// What an executor would like the one product of an operator to do with its result before it is stored, so that the
// operator behind it has nothing left to do. A kernel that can does so and says it; any other takes no notice.
//
// Threads: per thread.
#pragma once

#include <cstdint>

namespace stepnet {

enum class ProductEpilogue : uint8_t { none, relu };

// What the calling thread's kernels are asked for while the scope lives.
class EpilogueScope {
 public:
  explicit EpilogueScope(ProductEpilogue wanted);
  ~EpilogueScope();
  EpilogueScope(const EpilogueScope&) = delete;
  EpilogueScope& operator=(const EpilogueScope&) = delete;

  bool is_done() const { return done_; }  // a kernel has queued it with its product

 private:
  friend ProductEpilogue wanted_epilogue();
  friend void epilogue_is_done();
  EpilogueScope* before_;
  ProductEpilogue wanted_;
  bool done_ = false;
};

ProductEpilogue wanted_epilogue();  // none outside of a scope
void epilogue_is_done();            // what is wanted now

}  // namespace stepnet
