// Free: empties blobs, whatever they hold. There is no derivative: nothing is left.

#include "stepnet/operator.h"

namespace stepnet::cpu_free {
namespace {

void check(const NoArgs&, const OperatorDef& def, const Workspace&) {
  require(def.input_size() == def.output_size(), "it has {} inputs and {} outputs; each input is an output too",
          def.input_size(), def.output_size());
  for (int i = 0; i < def.input_size(); ++i)
    require(def.input(i) == def.output(i), "output {} must be the same blob as input {}, \"{}\", not \"{}\"", i, i,
            def.input(i), def.output(i));
}

void run(const NoArgs&, BlobCall& c) {
  for (Blob* blob : c.out)
    if (blob) blob->clear();
}

REGISTER(free) {
  return op("Free")
      .doc("Empties blobs, which gives their memory back. They can be written again, but not read before.")
      .input("blobs", "tensors or other objects, or nothing at all")
      .object()
      .variadic()
      .output("emptied", "the same blobs in the same order")
      .object()
      .variadic()
      .must_be_in_place("blobs", "emptied")
      .blobs(run)
      .runs_dry()
      .preflight(check)
      .side_effect()
      .example_net(
          "op { type: 'Copy' input: 'X' output: 'Y' } op { type: 'Free' input: 'X' input: 'Y' output: 'X' "
          "output: 'Y' }",
          {"X=2,3"})
      .no_gradient("nothing is left of its inputs");
}

}  // namespace
}  // namespace stepnet::cpu_free
