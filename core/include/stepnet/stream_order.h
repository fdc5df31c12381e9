// The streams of a backward pass: a derivative runs on the stream on which its operator ran forward, and what streams
// hand each other is ordered by events. On the CPU all of this is nothing.
//
// plan_streams says which stream adds a gradient to those that arrived before, who waits for whom, and what is
// recorded: a function of devices and streams alone. A gradient is made by a producer (a node, on a stream of its
// device), added up where the consumer's node will read it, and its memory belongs to the stream that it was allocated
// on. Five cases, by where it lives:
//   1  on the CPU: added by the calling thread; nobody waits
//   2  on the producer's and the consumer's device: on the consumer's stream, after the producer's
//   3  on the consumer's device alone: on the consumer's stream, after the default stream of that device
//   4  on the producer's device alone: on that device's default stream, after the producer's; the consumer waits for it
//   5  on neither: on the default stream of its device; whoever wrote the operator had to see to the rest
// Source: the rules of PyTorch's InputBuffer. Threads: as the tape.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "stepnet/device.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

// A stream of an accelerator; the default one of each device has number 0.
struct StreamId {
  Device device;
  int number = 0;
  bool operator==(const StreamId&) const = default;
};

// Work that is queued on `waiting` from now on runs after what is queued on `first`.
struct StreamWait {
  StreamId waiting, first;
  bool operator==(const StreamWait&) const = default;
};

struct StreamPlan {
  int of_case = 1;
  std::optional<StreamId> adds;       // the stream of the sum; none: the calling thread
  std::vector<StreamWait> before;     // what has to be waited for, also where nothing is added yet
  std::vector<int> recorded;          // parts whose memory must not be reused before `adds` has passed
  std::optional<StreamWait> at_node;  // before the consumer's node runs
};

// `parts`: the devices of what the gradient consists of: one for a dense gradient; indices and values for a sparse
// one, which must be on one device (else Error). `producer`, `consumer`: none where the node runs on the CPU.
StreamPlan plan_streams(std::span<const Device> parts, std::optional<StreamId> producer,
                        std::optional<StreamId> consumer);

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
