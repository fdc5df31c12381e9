#include "gpu/runtime/faults.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

using SourceKey = std::pair<const BoundOp*, const char*>;

// An operator is noted once for all its launches.
struct Source {
  std::optional<BoundOp> op = {};
  const char* what = "";
  SourceKey key = {};  // which may have got another number since
};

// More are forgotten, the oldest first; one that runs again is noted anew.
constexpr size_t kMostSources = 1 << 14;

// Kept for the life of the process.
struct DeviceFaults {
  DeviceFaults() {  // on the current device
    void* data = nullptr;
    check(cudaMalloc(&data, sizeof(int)));
    claim = static_cast<int*>(data);
  }
  PinnedBytes memory{sizeof(Fault)};
  Fault* fault = new (memory.data()) Fault;
  int* claim = nullptr;
  std::map<SourceKey, unsigned long long> numbers;
  std::map<unsigned long long, Source> sources;
  unsigned long long last = 0;

  void free_claim(cudaStream_t stream) const {
    check(cudaMemsetAsync(claim, 0, sizeof(int), stream));
    check(cudaStreamSynchronize(stream));
  }
  unsigned long long note(const BoundOp* op, const char* what);
};

// Its name and place; what it works with is not kept alive.
BoundOp named(const BoundOp& op) { return {op.def, op.spec, nullptr, op.device, op.net_name, op.index}; }

unsigned long long DeviceFaults::note(const BoundOp* op, const char* what) {
  if (sources.size() == kMostSources) {
    const auto oldest = sources.begin();
    const auto number = numbers.find(oldest->second.key);
    if (number != numbers.end() && number->second == oldest->first) numbers.erase(number);
    sources.erase(oldest);
  }
  sources[++last] = {op ? std::optional(named(*op)) : std::nullopt, what, {op, what}};
  numbers[{op, what}] = last;
  return last;
}

std::mutex& faults_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::unique_ptr<DeviceFaults>& faults_of(int device) {
  static auto& all = *new std::array<std::unique_ptr<DeviceFaults>, 128>;
  return all.at(static_cast<size_t>(device));
}

bool names(const Source& source, const BoundOp& op) {
  const auto same = [](const auto& a, const auto& b) { return std::ranges::equal(a, b); };
  return source.op && source.op->def.type() == op.def.type() && source.op->net_name == op.net_name &&
         source.op->index == op.index && same(source.op->def.output(), op.def.output()) &&
         same(source.op->def.input(), op.def.input());
}

std::atomic<bool> g_waits{false};

}  // namespace

Bounds bounds(int device, const char* what) {
  const std::lock_guard lock(faults_mutex());
  std::unique_ptr<DeviceFaults>& faults = faults_of(device);
  if (!faults) {
    const DeviceScope scope(device);
    auto made = std::make_unique<DeviceFaults>();
    made->free_claim(main_stream(device));
    faults = std::move(made);
  }
  const BoundOp* op = running_op();
  const auto found = faults->numbers.find({op, what});
  // Another operator may be where one was that is gone.
  if (found != faults->numbers.end() && (!op || names(faults->sources.at(found->second), *op)))
    return {faults->fault, found->second, faults->claim};
  return {faults->fault, faults->note(op, what), faults->claim};
}

void raise_faults(int device) {
  const std::lock_guard lock(faults_mutex());
  const std::unique_ptr<DeviceFaults>& faults = faults_of(device);
  if (!faults || faults->fault->launch == 0) return;
  const Fault fault = *faults->fault;
  *faults->fault = {};
  const DeviceScope scope(device);
  faults->free_claim(current_stream(device));
  const auto from = faults->sources.find(fault.launch);
  const std::string range = fault.limit == kNoLimit ? "" : fmt::format(", outside of [0, {})", fault.limit);
  Error error(
      fmt::format("{} is {}{}", from == faults->sources.end() ? "a value" : from->second.what, fault.value, range));
  if (from != faults->sources.end() && from->second.op) add_op_context(error, *from->second.op);
  throw error;
}

void wait_for_launches(bool on) { g_waits = on; }

void check_launch(cudaStream_t stream) {
  check(cudaGetLastError());
  if (!g_waits) return;
  check(cudaStreamSynchronize(stream));
  int device = 0;
  check(cudaGetDevice(&device));
  raise_faults(device);
}

}  // namespace stepnet::gpu
