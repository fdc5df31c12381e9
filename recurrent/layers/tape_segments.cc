#include "recurrent/layers/tape_segments.h"

#include <algorithm>

#include "stepnet/arguments.h"
#include "stepnet/net_function.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kWeights = 4;  // of a layer

// A layer operator, run on one segment after the other.
class Segments {
 public:
  Segments(const std::string& type, std::vector<Variable> inputs, const std::vector<Argument>& args,
           const SegmentOptions& options, Place place)
      : type_(type), inputs_(std::move(inputs)), options_(options), place_(place), states_(type == "LSTM" ? 2 : 1) {
    int64_t layers = 1;
    for (const Argument& arg : args) {
      if (arg.name() == "layers") layers = arg.i();
      require(arg.name() != "bidirectional" || arg.i() == 0,
              "{} in both directions cannot run in segments: one of them starts at the end", type);
      *op_.add_arg() = arg;
    }
    require(type == "RNN" || type == "GRU" || type == "LSTM", "{} is not a layer that can run in segments", type);
    require(options.steps >= 1, "a segment must have at least one timestep, not {}", options.steps);
    const size_t least = 1 + states_ + kWeights * static_cast<size_t>(layers);
    require(inputs_.size() >= least && inputs_[0].defined() && inputs_[0].shape().rank() == 3,
            "{} of {} layers takes a sequence [T, B, I] and {} more inputs, and gets {} inputs", type, layers,
            least - 1, inputs_.size());
    if (inputs_.size() > least) lengths_ = inputs_[least];
    op_.set_type(type);
  }

  std::vector<Variable> run_all() {
    const int64_t steps = inputs_[0].shape()[0];
    const Variable sequence = inputs_[0];
    for (int64_t first = 0; first < std::max<int64_t>(steps, 1); first += options_.steps)
      run_one(sequence, first, std::min(options_.steps, steps - first));
    std::vector<Variable> outputs = {joined()};
    for (size_t s = 0; s < states_; ++s) outputs.push_back(inputs_[1 + s]);
    return outputs;
  }

 private:
  // Rows of the sequence; where its gradient is needed, of a node that puts the segments' gradients together.
  Variable part_of(const Variable& sequence, int64_t first, int64_t count) {
    if (!is_recorded({&sequence, 1})) return Variable(sequence.value().rows(first, count));
    if (parts_.empty()) {
      std::vector<int64_t> sizes;
      const int64_t steps = sequence.shape()[0];
      for (int64_t at = 0; at < std::max<int64_t>(steps, 1); at += options_.steps)
        sizes.push_back(std::min(options_.steps, steps - at));
      parts_ = run("Split", {sequence}, {make_arg("axis", 0), make_arg("split", sizes)},
                   {.outputs = static_cast<int>(sizes.size())}, place_);
    }
    return std::move(parts_[static_cast<size_t>(first / options_.steps)]);
  }

  // The samples' lengths inside the segment.
  Variable lengths_in(int64_t first, int64_t count) const {
    require(lengths_.dtype() == DType::int32, "the lengths must be int32, but are {}", lengths_.value());
    Tensor inside = lengths_.value().clone();
    for (int32_t& length : inside.span<int32_t>())
      length = static_cast<int32_t>(std::clamp<int64_t>(length - first, 0, count));
    return Variable(std::move(inside));
  }

  void run_one(const Variable& sequence, int64_t first, int64_t count) {
    inputs_[0] = part_of(sequence, first, count);
    if (lengths_.defined()) inputs_.back() = lengths_in(first, count);
    OperatorDef op = op_;
    for (size_t i = 0; i < inputs_.size(); ++i) op.add_input(inputs_[i].defined() ? fmt::format("in{}", i) : "");
    op.add_output(std::string(options_.sequence_wanted ? "Y" : ""));
    for (size_t s = 0; s < states_; ++s) op.add_output(fmt::format("last{}", s));
    std::vector<Variable> made = run(op, inputs_, place_);
    if (options_.sequence_wanted) sequences_.push_back(std::move(made[0]));
    for (size_t s = 0; s < states_; ++s) inputs_[1 + s] = std::move(made[1 + s]);
  }

  Variable joined() {
    if (sequences_.empty()) return {};
    if (sequences_.size() == 1) return sequences_[0];
    return run("Concat", sequences_, {make_arg("axis", 0)}, {.outputs = 2}, place_)[0];
  }

  std::string type_;
  std::vector<Variable> inputs_;
  SegmentOptions options_;
  Place place_;
  size_t states_;
  OperatorDef op_;
  Variable lengths_;
  std::vector<Variable> parts_, sequences_;
};

}  // namespace

std::vector<Variable> run_in_segments(const std::string& type, const std::vector<Variable>& inputs,
                                      const std::vector<Argument>& args, const SegmentOptions& options, Place place) {
  try {
    return Segments(type, inputs, args, options, place).run_all();
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

}  // namespace stepnet::autograd
