// AtomicIter: Iter under a mutex, for counters that substeps running at the same time share. No derivative: it is an
// integer.

#include "core/operator/operator.h"
#include "operators/control/create_mutex.h"
#include "operators/optimizer/iter.h"

namespace stepnet {
namespace {

void shape(const NoArgs&, ShapeCall& call) { call.set(0, DType::int64, call.known(1) ? call.shape(1) : Shape{1}); }

void iter(const NoArgs&, BlobCall& call) {
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
      .shape(shape)
      .blobs(iter)
      .runs_dry()
      .stop_gradient()
      .example_net(kExample, {"iter=int64,1:4"});
}

}  // namespace
}  // namespace stepnet
