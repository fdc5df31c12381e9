// Anomalies: the first operator that makes a value that is not finite of values that are.
//
// While a thread has an AnomalyWatch, each operator that it runs is looked at: its floating inputs before, its outputs
// behind it. An output that has a NaN while no input has one is an Error of that operator, and so is an infinite output
// of an operator whose inputs are all finite. One that reads no floating tensor (a fill) may give infinities: they
// stand in the net. Recurrent networks that are first run so leave out their passes, so that operators are those that
// somebody wrote, and timesteps have their numbers. Each look reads all elements.
// Errors: name the operator, its place in the file, the element, and the ranges of what it read.
// Threads: a watch is of its thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/operator/observer.h"
#include "stepnet/workspace.h"

namespace stepnet {

// A net's observer as well, which tells it where the net is.
class AnomalyWatch : public NetObserver {
 public:
  // Looks until an operator of the observed net itself has written the blob `last`; "": to the end.
  explicit AnomalyWatch(std::string last = "");
  ~AnomalyWatch() override;
  AnomalyWatch(const AnomalyWatch&) = delete;
  AnomalyWatch& operator=(const AnomalyWatch&) = delete;
  static bool here();   // whether this thread has one
  static bool looks();  // whether it has one that still looks

  void before(const BoundOp&) override {}
  void after(const BoundOp& op) override;

 private:
  std::string last_;
  bool looks_ = true;
  const AnomalyWatch* before_;
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

// Around one operator; does nothing where nobody looks.
class AnomalyCheck {
 public:
  AnomalyCheck(const BoundOp& op, std::span<const Tensor* const> in);
  AnomalyCheck(const BoundOp& op, std::span<Blob* const> in);
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
