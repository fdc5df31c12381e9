#include "tools/commands/cli/device_choice.h"

#include <algorithm>
#include <set>

#include "core/compute/backend.h"
#include "core/operator/nets_inside.h"
#include "core/operator/op_devices.h"
#include "tools/commands/cli/printing.h"

namespace stepnet::tools {
namespace {

const DeviceOption* device_option(const OperatorDef& op, const NetDef& net) {
  if (op.has_device_option()) return &op.device_option();
  return net.has_device_option() ? &net.device_option() : nullptr;
}

bool asks_for_gpu(const DeviceOption* option) { return option && option->device_type() == CUDA; }

bool any_asks_for_gpu(const std::vector<NetDef*>& nets) {
  bool found = false;
  for (NetDef* net : nets)
    for_each_net(*net, [&](NetDef& inner) {
      for (const OperatorDef& op : inner.op()) found |= asks_for_gpu(device_option(op, inner));
    });
  return found;
}

// Types of operators that would run on the GPU but cannot.
std::set<std::string> missing_on_gpu(const std::vector<NetDef*>& nets) {
  std::set<std::string> missing;
  for (NetDef* net : nets)
    for_each_net(*net, [&](NetDef& inner) {
      for (const OperatorDef& op : inner.op()) {
        const DeviceOption* option = device_option(op, inner);
        const OpSpec* spec = find_op(op.type());
        if (spec && (!option || asks_for_gpu(option)) && !runs_on(*spec, DeviceKind::cuda)) missing.insert(op.type());
      }
    });
  return missing;
}

}  // namespace

const std::map<std::string, DeviceChoice>& device_names() {
  static const std::map<std::string, DeviceChoice> names = {
      {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}};
  return names;
}

bool choose_device(DeviceChoice choice, const std::vector<NetDef*>& nets) {
  const bool offered = choice != DeviceChoice::cpu && device_offered(DeviceKind::cuda);
  if (choice == DeviceChoice::cuda && !offered)
    throw Error("there is no CUDA device: this program was built without CUDA, or the machine has none",
                "use --device cpu");
  if (offered) {
    const std::set<std::string> missing = missing_on_gpu(nets);
    if (missing.empty()) {
      for (NetDef* net : nets) use_gpu(*net);
      return false;
    }
    if (choice == DeviceChoice::cuda)
      throw Error(fmt::format("these operators have no CUDA kernel: {}", fmt::join(missing, ", ")),
                  "use --device cpu, or give them device_option { device_type: 0 }");
  }
  if (any_asks_for_gpu(nets)) print_note("note: the net asks for a GPU; it runs on the CPU\n");
  return true;
}

void allow_tf32(bool on_gpu) {
  if (!on_gpu) throw Error("--tf32 is for a GPU, and this runs on the CPU", "add --device cuda, or leave --tf32 out");
  backend(DeviceKind::cuda).allow_tf32(true);
}

void use_gpu(NetDef& net) {
  for_each_net(net, [](NetDef& inner) {
    if (!inner.has_device_option()) inner.mutable_device_option()->set_device_type(CUDA);
  });
}

void use_gpu(NetDef& net, int index) {
  if (index == 0) return;  // as is meant where nothing is said
  const auto choose = [&](DeviceOption& option) {
    if (option.device_type() == CUDA && !option.has_device_id()) option.set_device_id(index);
  };
  for_each_net(net, [&](NetDef& inner) {
    if (inner.has_device_option()) choose(*inner.mutable_device_option());
    for (OperatorDef& op : *inner.mutable_op())
      if (op.has_device_option()) choose(*op.mutable_device_option());
  });
}

}  // namespace stepnet::tools
