#include "stepnet/stream_order.h"

#include <array>

#include "core/compute/backend.h"
#include "stepnet/error.h"

namespace stepnet::autograd {
namespace {

// `adds` follows `first`, whose memory the gradient's parts are.
void follow(StreamPlan& plan, const StreamId& first, size_t parts) {
  if (*plan.adds == first) return;
  plan.before.push_back({*plan.adds, first});
  for (size_t i = 0; i < parts; ++i) plan.recorded.push_back(static_cast<int>(i));
}

}  // namespace

StreamPlan plan_streams(std::span<const Device> parts, std::optional<StreamId> producer,
                        std::optional<StreamId> consumer) {
  require(!parts.empty(), "a gradient has at least one part");
  const Device device = parts[0];
  for (const Device& part : parts) require(part == device, "parts of one gradient are on {} and {}", device, part);
  StreamPlan plan;
  if (device.kind == DeviceKind::cpu) return plan;
  const bool at_producer = producer && producer->device == device;
  const bool at_consumer = consumer && consumer->device == device;
  const StreamId by_default{device, 0};
  plan.adds = at_consumer ? *consumer : by_default;
  if (at_producer || at_consumer) follow(plan, at_producer ? *producer : by_default, parts.size());
  plan.of_case = at_consumer ? (at_producer ? 2 : 3) : (at_producer ? 4 : 5);
  if (consumer && plan.of_case == 4) plan.at_node = StreamWait{*consumer, *plan.adds};
  return plan;
}

std::optional<StreamId> stream_now(Device device) {
  if (device.kind == DeviceKind::cpu) return std::nullopt;
  return StreamId{device, backend(device.kind).current_stream(device)};
}

Device device_of_inputs(std::span<const Tensor* const> inputs, Device otherwise) {
  for (const Tensor* t : inputs)
    if (t && t->storage() && t->device().kind != DeviceKind::cpu) return t->device();
  for (const Tensor* t : inputs)
    if (t && t->storage()) return t->device();
  return otherwise;
}

Device device_of_gradient(const VariableGradient& gradient) {
  const Variable& part = gradient.is_sparse() ? gradient.values : gradient.dense;
  return part.defined() ? part.value().device() : Device{};
}

void set_stream(const StreamId& stream) { backend(stream.device.kind).set_stream(stream.device, stream.number); }

OnStream::OnStream(std::optional<StreamId> stream) {
  if (!stream) return;
  before_ = stream_now(stream->device);
  set_stream(*stream);
}

OnStream::~OnStream() {
  if (before_) set_stream(*before_);
}

void wait(const StreamWait& w) {
  backend(w.first.device.kind).wait(w.waiting.device, w.waiting.number, w.first.device, w.first.number);
}

void prepare_to_add(const StreamPlan& plan, const VariableGradient& gradient) {
  for (const StreamWait& w : plan.before) wait(w);
  const std::array<const Variable*, 2> parts = {gradient.is_sparse() ? &gradient.indices : &gradient.dense,
                                                &gradient.values};
  for (const int part : plan.recorded) {
    const Tensor& value = parts.at(static_cast<size_t>(part))->value();
    if (value.storage())
      backend(plan.adds->device.kind).record_use(plan.adds->device, value.storage()->data(), plan.adds->number);
  }
}

}  // namespace stepnet::autograd
