// The streams of a backward pass: a derivative runs on the stream on which its operator ran forward, and what streams
// hand each other is ordered by events as core/autograd/stream_plan.h says.
//
// On the CPU all of this is nothing. Threads: as the tape.
#pragma once

#include <optional>
#include <set>

#include "core/autograd/stream_plan.h"
#include "core/autograd/variable.h"

namespace stepnet::autograd {

// The calling thread's current stream of the device; none on the CPU.
std::optional<StreamId> stream_now(Device device);
// The device of an operator's inputs: the first that is not the CPU, or else `otherwise`.
Device device_of_inputs(std::span<const Tensor* const> inputs, Device otherwise);
Device device_of_gradient(const VariableGradient& gradient);

void set_stream(const StreamId& stream);  // is the calling thread's current one, without any waiting

// The stream is the calling thread's current one for a scope, without any waiting; none: nothing changes.
class OnStream {
 public:
  explicit OnStream(std::optional<StreamId> stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  std::optional<StreamId> before_;
};

void wait(const StreamWait& wait);
// What has to come before the gradient is read on the plan's stream.
void prepare_to_add(const StreamPlan& plan, const VariableGradient& gradient);

}  // namespace stepnet::autograd
