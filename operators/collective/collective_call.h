// What the operators of this folder share: the common world that they are given, and tensors as it takes them.
//
// Threads: pure functions but for what they do to blobs. Errors: Error for what is no world, or no tensor of the CPU.
#pragma once

#include <optional>
#include <string>

#include "core/tensor/dry_device.h"
#include "operators/collective/world.h"
#include "stepnet/operator.h"

namespace stepnet::collective {

// Throws Error unless the operator's engine is one that there is, or none.
inline void check_engine(const OperatorDef& def) {
  const std::string& engine = def.engine();
  if (engine.empty() || engine == "MPI" || engine == "NCCL") return;
  fail("the engine is \"{}\", but must be \"MPI\", \"NCCL\" or left out", engine);
}

template <class Args>
void check_engine_before(const Args&, const OperatorDef& def, const Workspace&) {
  check_engine(def);
}

// Returns the world that input 0 holds.
inline World& world_of(const BlobCall& c) {
  check_engine(c.def);
  require(c.in[0] != nullptr, "the common world has an empty name");
  if (!c.in[0]->holds<WorldPtr>())
    throw Error(fmt::format("\"{}\" must be a common world, but holds {}", c.def.input(0),
                            c.in[0]->empty() ? "nothing" : c.in[0]->type_str()),
                "make one with CreateCommonWorld");
  return *c.in[0]->get<WorldPtr>();
}

// The operator moves nothing, and its outputs need no more than their shapes.
inline bool is_dry() { return DryScope::now() != nullptr; }

inline void check_values(const std::string& name, const Tensor& t) {
  require(t.dtype() != DType::string, "\"{}\" is {}; strings cannot be sent to other ranks", name, t);
  require(is_dry() || t.size() == 0 || t.raw() != nullptr, "\"{}\" holds no values any more", name);
}

// Returns input `i`, which must be a tensor that ranks can send.
inline const Tensor& sent_input(const BlobCall& c, int i) {
  require(c.in[i] != nullptr, "input {} has an empty name", i);
  const Tensor& t = std::as_const(*c.in[i]).tensor();
  require(t.defined(), "the input \"{}\" holds nothing yet; it must have its type and shape on every rank",
          c.def.input(i));
  check_values(c.def.input(i), t);
  return t;
}

// Returns the part of the world that moves tensors where this one is, by the operator's engine if it names one.
inline World& world_on(World& world, const OperatorDef& def, const std::string& name, const Tensor& t) {
  const bool on_gpu = t.device().kind != DeviceKind::cpu;
  World* part = is_dry() ? &world : world.on(t.device());
  if (!part || (on_gpu && def.engine() == "MPI"))
    throw Error(fmt::format("\"{}\" is on {}, where {} does not move tensors", name, t.device(),
                            def.engine() == "MPI" ? "the engine \"MPI\"" : "the common world"),
                "bring it to the CPU with CopyGPUToCPU, or make the common world of this GPU, with engine \"NCCL\"");
  if (def.engine() == "NCCL" && !on_gpu)
    throw Error(fmt::format("\"{}\" is on the CPU, but the engine \"NCCL\" moves tensors of GPUs", name),
                "leave the engine out, and the world takes the one that fits");
  return *part;
}
// The same of what input 0 holds and input `i` is.
inline World& world_of(const BlobCall& c, int i) {
  return world_on(world_of(c), c.def, c.def.input(i), std::as_const(*c.in[i]).tensor());
}

// The same of an operator that works on the CPU alone.
inline const Tensor& cpu_input(const BlobCall& c, int i) {
  const Tensor& t = sent_input(c, i);
  if (!is_dry() && t.device().kind != DeviceKind::cpu)
    throw Error(fmt::format("\"{}\" is on {}, but must be on the CPU", c.def.input(i), t.device()),
                "bring it there with CopyGPUToCPU");
  return t;
}

// Returns output `o` with the type and the shape, on the CPU.
inline Tensor& made_output(BlobCall& c, int o, DType dtype, const Shape& shape) {
  Tensor& t = c.out[o]->tensor();
  t.resize(dtype, shape);
  return t;
}
// Returns output `o` with the type and the shape, on the device of the tensor that it is made from.
inline Tensor& made_output(BlobCall& c, int o, const Tensor& from, const Shape& shape) {
  Tensor& t = c.out[o]->tensor();
  t.resize(from.dtype(), shape, from.device());
  return t;
}

// Throws Error unless `root` is a rank.
inline void check_root(int64_t root, const World& world) {
  require(root >= 0 && root < world.size(), "argument \"root\" is {}, but the common world has ranks 0 to {}", root,
          world.size() - 1);
}

// Waits for what has been started. The tensors' bytes stay for as long as MPI may touch them, also if it fails.
inline void wait_for(const PendingPtr& pending, std::initializer_list<const Tensor*> touched) {
  for (const Tensor* t : touched) pending->hold(t->storage());
  pending->wait();
}

// Arguments that several operators of the public format have.
template <class Args>
OpBuilder<Args>& declare(OpBuilder<Args>& builder) {
  return builder.input("comm_world", "a common world, from CreateCommonWorld").object();
}
template <class Args>
OpBuilder<Args>& finish_declaring(OpBuilder<Args>& builder) {
  return builder.refuses("status_blob", "", "would take the error in place of the caller")
      .preflight(check_engine_before<Args>)
      .side_effect();
}

// The text of a net that makes a world and runs one operator on it, for examples.
inline std::string on_world(const std::string& op) {
  return "op { type: 'CreateCommonWorld' output: 'world' } op { input: 'world' " + op + " }";
}

}  // namespace stepnet::collective
