// Anomalies: the first operator that makes a value that is not finite of values that are.
//
// Where a RunContext has an AnomalyWatch, each operator that runs is looked at: its floating inputs before, its outputs
// after it. An output that has a NaN while no input has one is an Error of that operator, and so is an infinite output
// of an operator whose inputs are all finite. One that reads no floating tensor (a fill) may give infinities: they
// stand in the net. Recurrent networks that are first run so leave out their passes, so that operators are those that
// somebody wrote, and timesteps have their numbers. Each look reads all elements.
// Errors: name the operator, its place in the file, the element, and the ranges of what it read.
// Threads: a watch may look at operators of several threads at once, if it looks to the end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/operator/observer.h"
#include "stepnet/run_context.h"
#include "stepnet/workspace.h"

namespace stepnet {

// Looks at the operators of runs whose RunContext::anomalies it is. As the observer of a net, too, it stops looking
// once an operator of the net itself has written the blob `last`; "": it looks to the end.
class AnomalyWatch : public NetObserver {
 public:
  explicit AnomalyWatch(std::string last = "") : last_(std::move(last)) {}
  bool looks() const { return looks_; }

  void before(const BoundOp&) override {}
  void after(const BoundOp& op) override;

 private:
  std::string last_;
  bool looks_ = true;
};

// What a tensor's elements are like.
struct ValueRange {
  bool looked = false;  // it has floating elements
  bool nan = false, infinite = false;
  double least = 0, most = 0;  // of those that are no NaN
  int64_t first = -1;          // element that is not finite, NaN before infinite
  double first_value = 0;
  bool finite() const { return !nan && !infinite; }
  std::string str() const;
};
ValueRange range_of(const Tensor& tensor);
std::string index_text(const Shape& shape, int64_t element);  // "[3, 2]"

// Around one operator; does nothing where the run has no watch that looks.
class AnomalyCheck {
 public:
  AnomalyCheck(const BoundOp& op, std::span<const Tensor* const> in, const RunContext& run);
  AnomalyCheck(const BoundOp& op, std::span<Blob* const> in, const RunContext& run);
  void after(std::span<Tensor* const> out) const;  // throws Error
  void after(std::span<Blob* const> out) const;

 private:
  void see_input(size_t index, const Tensor& tensor);
  void see_output(size_t index, const Tensor& tensor) const;

  const BoundOp* op_ = nullptr;      // null: nothing is looked at
  std::vector<std::string> inputs_;  // with their ranges
  bool nan_ = false, infinite_ = false;
};

}  // namespace stepnet
