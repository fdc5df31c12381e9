// BoundOp: an operator resolved once, to be run many times without looking anything up.
//
// Binding finds the registration, parses the arguments and checks the operator against its schema (number of inputs and
// outputs, in-place rules, empty names). `run_op` then infers and checks types, allocates outputs, picks the kernel by
// element type and calls it. Errors carry the operator, its blobs and their shapes.
// Threads: immutable after binding; run_op may be called from several threads on different tensors.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/op_spec.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

struct BoundOp {
  OperatorDef def;
  const OpSpec* spec = nullptr;
  std::shared_ptr<const void> args;
  Device device;
  std::string net_name;  // of the net it stands in, for random draws and messages
  int index = 0;         // position in that net
};

// Throws Error if the operator is unknown or does not fit its schema.
BoundOp bind_op(const OperatorDef& def, const std::string& net_name, int index, Device device = {},
                std::vector<std::string>* warnings = nullptr);

// Types of the outputs; throws Error if the inputs cannot be right. Outputs may stay unknown.
// `in`: per actual input; `out`: `absent` marks outputs that are not wanted.
void infer_types(const BoundOp& op, std::span<const TensorType> in, std::span<TensorType> out);

// The kernel for these inputs' element type on the operator's device; throws Error that lists those that exist.
const Kernel& pick_kernel(const BoundOp& op, std::span<const TensorType> in, std::span<const TensorType> out);

// Runs on tensors: infers, resizes outputs, calls the kernel. Absent inputs and outputs are null.
void run_op(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out, RunContext& run,
            uint32_t accumulate_mask = 0);

// The operator whose kernel the calling thread is in, if it is one of a GPU; null otherwise. What the kernel queues may
// fail later, when only its name can still be told.
const BoundOp* running_op();

// Adds "op  y = Mul(a, b), a is float[2, 3], ..." and the operator's place to an error on its way up.
void add_op_context(Error& error, const BoundOp& op, std::span<const std::string> shapes = {});

// "file.pbtxt:14:3" if the position is known, else "".
std::string source_text(const OperatorDef& def);

// The output name that an operator's random draws are made from: its first, or the one that it says.
std::string_view draw_name(const OperatorDef& def);

// Which device an operator asks for; `fallback` if it does not say.
Device device_of(const OperatorDef& def, const NetDef& net);

}  // namespace stepnet
