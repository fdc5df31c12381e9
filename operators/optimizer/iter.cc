// Iter: the counter of iterations, raised by one in each run, in place. Without an input it starts by itself at 0 and
// keeps its value between runs. No derivative: it is an integer.
#include "operators/optimizer/iter.h"

#include <limits>

#include "operators/control/create_mutex.h"
#include "stepnet/operator.h"

namespace stepnet {

RaiseOnDevice& raise_on_device() {
  static RaiseOnDevice raise = nullptr;
  return raise;
}

void raise_counter(Blob& blob, bool may_start) {
  require(may_start || !blob.empty(), "the counter holds nothing yet");
  Tensor& counter = blob.tensor();
  if (counter.device().kind != DeviceKind::cpu && !counter.is_dry() && raise_on_device()) {
    require(counter.size() == 1, "{} is not a single value", counter);
    raise_on_device()(counter);
    return counter.mark_written();
  }
  int64_t value = 0;
  Shape shape{1};
  if (counter.defined()) {
    value = counter.is_dry() ? 0 : counter.item<int64_t>();
    shape = counter.shape();
  }
  require(value < std::numeric_limits<int64_t>::max(), "the counter cannot go beyond {}", value);
  if (counter.is_dry() && counter.device().kind != DeviceKind::cpu)  // a new tensor, as gpu/optimizer/iter.cu makes it
    counter = Tensor::empty(DType::int64, shape, counter.device());
  counter.resize(DType::int64, shape, counter.device());
  if (!counter.is_dry()) *counter.data<int64_t>() = value + 1;
  counter.mark_written();
}

namespace {

void shape(const NoArgs&, ShapeCall& call) {
  call.set(0, DType::int64, call.known(0) ? call.shape(0) : Shape{1});
  if (call.has(0) && call.known(0))
    require(call.shape(0).size() == 1, "the counter must be one value, but has shape {}", call.shape(0));
}

void iter(const NoArgs&, BlobCall& call) { raise_counter(*call.out[0], call.in.empty()); }

REGISTER(iter) {
  return op("Iter")
      .doc("Adds one to a counter in place; without an input, a counter that starts at 0 by itself.")
      .input("iter", "one number; becomes int64")
      .any_type()
      .optional()
      .output("iter", "int64, one more")
      .types({DType::int64})
      .must_be_in_place("iter", "iter")
      .shape(shape)
      .blobs(iter)
      .runs_dry()
      .stop_gradient()
      .example({"iter=int64,1:4"})
      .example({"iter=int32,:4"})
      .example({});
}

// AtomicIter: Iter under a mutex, for counters that substeps running at the same time share. No derivative: it is an
// integer.

void atomic_shape(const NoArgs&, ShapeCall& call) {
  call.set(0, DType::int64, call.known(1) ? call.shape(1) : Shape{1});
}

void atomic_iter(const NoArgs&, BlobCall& call) {
  const std::lock_guard lock(call.in[0]->get<BlobMutex>());
  raise_counter(*call.out[0], false);
}

const std::string kExample = R"(op { type: "CreateMutex" output: "mutex" }
                                op { type: "AtomicIter" input: "mutex" input: "iter" output: "iter" })";

REGISTER(atomic_iter) {
  return op("AtomicIter")
      .doc("Adds one to a counter in place while it holds a mutex.")
      .input("mutex", "a blob made by CreateMutex")
      .object()
      .input("iter", "one number; becomes int64")
      .any_type()
      .output("iter", "int64, one more")
      .types({DType::int64})
      .must_be_in_place("iter", "iter")
      .shape(atomic_shape)
      .blobs(atomic_iter)
      .runs_dry()
      .stop_gradient()
      .example_net(kExample, {"iter=int64,1:4"});
}

}  // namespace
}  // namespace stepnet
