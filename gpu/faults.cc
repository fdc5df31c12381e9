#include "gpu/faults.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/bound_op.h"
#include "core/error.h"
#include "gpu/memory.h"

namespace stepnet::gpu {
namespace {

// An operator is described once for all its launches.
struct Source {
  std::string type = {}, op = {}, net = {}, place = {};
  int index = 0;
  const char* what = "";
  std::vector<std::string> names = {};  // of outputs and inputs
};

struct DeviceFaults {
  PinnedBytes memory{sizeof(Fault)};
  Fault* fault = new (memory.data()) Fault;
  std::map<std::pair<const BoundOp*, const char*>, unsigned long long> numbers;
  std::map<unsigned long long, Source> sources;
};

std::mutex& faults_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::unique_ptr<DeviceFaults>& faults_of(int device) {
  static auto& all = *new std::array<std::unique_ptr<DeviceFaults>, 128>;
  return all.at(static_cast<size_t>(device));
}

Source describe(const BoundOp& op, const char* what) {
  const std::string text =
      fmt::format("{} = {}({})", fmt::join(op.def.output(), ", "), op.def.type(), fmt::join(op.def.input(), ", "));
  std::vector<std::string> names(op.def.output().begin(), op.def.output().end());
  names.insert(names.end(), op.def.input().begin(), op.def.input().end());
  return {op.def.type(), text, op.net_name, source_text(op.def), op.index, what, std::move(names)};
}

bool describes(const Source& source, const BoundOp& op) {
  const auto outputs = op.def.output_size();
  return source.type == op.def.type() && source.net == op.net_name && source.index == op.index &&
         source.names.size() == static_cast<size_t>(outputs + op.def.input_size()) &&
         std::equal(op.def.output().begin(), op.def.output().end(), source.names.begin()) &&
         std::equal(op.def.input().begin(), op.def.input().end(), source.names.begin() + outputs);
}

}  // namespace

Bounds bounds(int device, const char* what) {
  const std::lock_guard lock(faults_mutex());
  std::unique_ptr<DeviceFaults>& faults = faults_of(device);
  if (!faults) {
    const DeviceScope scope(device);
    faults = std::make_unique<DeviceFaults>();
  }
  const BoundOp* op = running_op();
  unsigned long long& number = faults->numbers[{op, what}];
  // Another operator may be where one was that is gone.
  if (number == 0 || (op && !describes(faults->sources.at(number), *op))) {
    number = faults->sources.size() + 1;
    faults->sources[number] = op ? describe(*op, what) : Source{.what = what};
  }
  return {faults->fault, number};
}

void raise_faults(int device) {
  const std::lock_guard lock(faults_mutex());
  const std::unique_ptr<DeviceFaults>& faults = faults_of(device);
  if (!faults || faults->fault->launch == 0) return;
  const Fault fault = *faults->fault;
  *faults->fault = {};
  const Source& from = faults->sources.at(fault.launch);
  const std::string range = fault.limit == kNoLimit ? "" : fmt::format(", outside of [0, {})", fault.limit);
  Error error(fmt::format("{}: {} is {}{}", from.type, from.what, fault.value, range));
  error.add("in", fmt::format("{}{}operator {} of net \"{}\"", from.place, from.place.empty() ? "" : ", ", from.index,
                              from.net));
  throw error.add("op", from.op);
}

}  // namespace stepnet::gpu
