#include "core/autograd/stream_plan.h"

#include "core/error.h"

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

}  // namespace stepnet::autograd
