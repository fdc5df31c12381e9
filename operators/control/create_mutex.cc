// CreateMutex: puts a mutex into a blob, for AtomicIter. No derivative: it is no tensor.
#include "operators/control/create_mutex.h"

#include "stepnet/operator.h"

namespace stepnet::cpu_create_mutex {
namespace {

void create(const NoArgs&, BlobCall& call) { call.out[0]->emplace<BlobMutex>(); }

REGISTER(create_mutex) {
  return op("CreateMutex")
      .doc("Makes a mutex.")
      .output("mutex_ptr", "a blob that holds a mutex")
      .object()
      .blobs(create)
      .runs_dry()
      .stop_gradient()
      .example({});
}

}  // namespace
}  // namespace stepnet::cpu_create_mutex
