// StepCode: what a step net computes, in instructions small enough for a backend to write each as code of its own:
// products (with the weights that stay the same in all timesteps marked, so that they may stay where they are),
// reductions of rows, elementwise arithmetic, and movements of columns. A fused operator (LSTMUnit, LayerNorm, Softmax)
// is taken apart into its body (OpBuilder::composed); a chain of the pass `fuse` into the operators that it came from.
// Instructions that may be one loop over the elements stand together in one kernel, which may have several outputs.
//
// It describes a StepIr after any pass; nothing of it runs. A value is written once: a slot that several operators
// write is as many values. Instructions are in an order in which they may run for one timestep; the phase says which of
// them need no timestep and may run for a block.
// Owns: copies of the operators. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recurrent/step/ir.h"

namespace stepnet {

struct StepCode {
  enum class Kind {
    product,      // of matrices, with what the operator adds to it
    reduction,    // over elements of a row, or over rows
    elementwise,  // each element of the outputs from elements of the inputs; these may repeat (broadcasting)
    columns,      // copies columns
    view,         // the input's elements in the output's shape, whatever shape the operator itself would give them
    whole,        // anything else: a backend calls the operator's kernel
  };
  struct Value {
    std::string name;      // the slot's, or that of the operator's output and a number
    int slot = -1;         // -1: only the instructions of one operator see it
    TensorType type;       // of a timestep; unknown where the shape depends on data
    bool written = false;  // by an instruction; else it is there before the timestep
  };
  struct Instruction {
    Kind kind = Kind::whole;
    BoundOp op;
    std::vector<int> in, out;   // values; -1: absent
    std::vector<int> added_to;  // by output: the value that the result is added to; -1: none
    bool resident = false;      // a product: of a matrix that is the same in all timesteps
  };
  struct Kernel {
    Kind kind = Kind::whole;  // elementwise: columns and views may stand among its instructions
    Schedule::Phase phase = Schedule::Phase::step;
    int stage = 0;
    std::vector<Instruction> code;
    std::vector<int> in, out;  // values that it reads and that it makes for others, in order
  };
  std::string net_name;
  std::vector<Value> values;
  std::vector<Kernel> kernels;
};

StepCode step_code(const StepIr& ir);

// For people and tests: a line for each kernel with its inputs and outputs, and below it one for each instruction.
//
//   step code of "rnn/step"
//     before  product     xw = FC(x, W, b); the weights stay
//     step    elementwise h, t from s
//       t = Tanh(s)
//       h = Sigmoid(t)
std::string to_text(const StepCode& code);

}  // namespace stepnet
