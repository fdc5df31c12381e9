// CreateScope: puts an empty scope into a blob, for Do. No derivative: it is no tensor.
#include "operators/control/scope.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_create_scope {
namespace {

// What is in the scope stays for nets that write before they read, so that these allocate nothing.
void create(const NoArgs&, BlobCall& call) {
  Blob& blob = *call.out[0];
  if (blob.holds<Scope>())
    blob.get<Scope>().state->emptied = true;
  else
    blob.emplace<Scope>();
}

REGISTER(create_scope) {
  return op("CreateScope")
      .doc("Makes a scope for Do. Running it again empties the scope.")
      .output("scope", "a blob that holds a scope")
      .object()
      .blobs(create)
      .runs_dry()
      .stop_gradient()
      .example({});
}

}  // namespace
}  // namespace stepnet::cpu_create_scope
