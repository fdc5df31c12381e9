#include "core/net/net_merges.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace stepnet {
namespace {

bool is_product(const BoundOp& op) {
  constexpr std::array<std::string_view, 3> kTypes = {"FC", "FCTransposed", "FCColumns"};
  return std::ranges::find(kTypes, op.def.type()) != kTypes.end();
}

// Nobody but the operator behind it has to do with the value, and its bytes end there.
bool ends_behind(const Dataflow& flow, int product, int blob) {
  const NetValue& value = flow.value(flow.made(product, 0));
  const std::vector<int> next = {product + 1};
  return !value.by_name && value.readers == next && value.uses == next &&
         std::ranges::find(flow.ending(product + 1), blob) != flow.ending(product + 1).end();
}

// The product does not read what Relu writes, under any name.
bool is_apart(const Dataflow& flow, int product, int blob) {
  return std::ranges::none_of(flow.input_blobs(product),
                              [&](int read) { return read >= 0 && flow.group(read) == flow.group(blob); });
}

}  // namespace

std::vector<bool> find_merges(std::span<const NetStep> steps, const Dataflow& flow,
                              std::span<const StepSharing> sharing, bool releases) {
  std::vector<bool> merges(steps.size());
  for (size_t s = 0; s + 1 < steps.size(); ++s) {
    const NetStep &product = steps[s], &next = steps[s + 1];
    if (product.op->device.kind == DeviceKind::cpu || !(product.op->device == next.op->device)) continue;
    if (!is_product(*product.op) || next.op->def.type() != "Relu") continue;
    if (product.out[0] != next.in[0] || sharing[s].any || sharing[s + 1].any) continue;
    const int p = static_cast<int>(s), made = flow.output_blobs(p)[0], to = flow.output_blobs(p + 1)[0];
    merges[s] = made == to || (releases && ends_behind(flow, p, made) && is_apart(flow, p, to));
  }
  return merges;
}

}  // namespace stepnet
