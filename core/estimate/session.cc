#include "core/estimate/session.h"

#include <algorithm>
#include <array>

#include "core/net/dataflow.h"
#include "core/operator/observer.h"
#include "stepnet/matmul.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

class Counters {
 public:
  static MemoryCounters now() { return memory_counters(); }
  int64_t products() const { return dry_ ? dry_->workspace() : product_bytes(); }
  void reset_peak() const { dry_ ? dry_->reset_peak() : allocator(Device{}).reset_peak(); }

 private:
  DryScope* dry_ = DryScope::now();
};

class Measure : public NetObserver {
 public:
  explicit Measure(const LiveBytes& base) : base_(base) {}
  void before(const BoundOp&) override {
    counters_.reset_peak();
    figures.push_back({.before = counters_.now().live - base_.all});
  }
  void after(const BoundOp&) override {
    const MemoryCounters now = counters_.now();
    figures.back().peak = now.peak - base_.all;
    figures.back().after = now.live - base_.all;
    figures.back().products = counters_.products() - base_.products;
  }

  std::vector<OpMemory> figures;

 private:
  Counters counters_;
  LiveBytes base_;
};

}  // namespace

const char* memory_kind_name(MemoryKind kind) {
  static constexpr std::array<const char*, kMemoryKinds> names = {
      "net inputs",       "parameters",     "optimizer state", "parameter gradients", "kept values",
      "transient values", "operators' own", "reserves",        "kernel workspace"};
  return names[static_cast<size_t>(kind)];
}

LiveBytes live_bytes() {
  const Counters counters;
  return {counters.now().live, counters.products()};
}

std::vector<OpMemory> run_measured(NetSession& session, const LiveBytes& before) {
  Measure measure(before);
  RunContext run;
  run.observer = &measure;
  session.net->run(run);
  if (session.advance) session.advance();
  return std::move(measure.figures);
}

std::vector<std::string> missing_inputs(const NetDef& net, const Workspace& known,
                                        const std::map<std::string, TensorType>& feeds) {
  std::vector<std::string> missing = read_from_outside(net);
  std::erase_if(missing, [&](const std::string& name) { return feeds.count(name) > 0 || known.find(name); });
  return missing;
}

void make_parameters(const NetDef& init, Workspace& parameters, RunContext& run, Device device) {
  run_net_once(init, parameters, run, {.keep = {}, .force_cpu = true});
  if (device.kind == DeviceKind::cpu) return;
  for (const std::string& name : parameters.names())
    if (Blob& blob = parameters.at(name); blob.is_tensor() && blob.tensor().defined())
      blob.tensor() = on_device(blob.tensor(), device);
}

void require_inputs(const NetDef& net, const Workspace& known, const std::map<std::string, TensorType>& feeds) {
  const std::vector<std::string> missing = missing_inputs(net, known, feeds);
  if (missing.empty()) return;
  throw Error(
      fmt::format("net \"{}\" reads blobs whose shapes are not known: {}", net.name(), fmt::join(missing, ", ")),
      fmt::format("give each one's, such as --feed {}=float[32,128], or name a net that makes them with --init",
                  missing[0]));
}

std::unique_ptr<NetSession> forward_session(const NetDef& net, const ForwardOptions& options) {
  auto session = std::make_unique<NetSession>();
  session->parameters.confine(options.files);
  RunContext run;
  if (options.init.op_size() > 0) make_parameters(options.init, session->parameters, run, options.device);
  for (const auto& [name, type] : options.parameters)
    session->parameters.create_local(name).tensor() = Tensor::zeros(type.dtype, type.shape, options.device);
  for (const std::string& name : session->parameters.names()) session->kinds[name] = MemoryKind::parameter;
  require_inputs(net, session->parameters, options.feeds);
  for (const auto& [name, type] : options.feeds) {
    session->blobs.create_local(name).tensor() = Tensor::zeros(type.dtype, type.shape, options.device);
    session->kinds[name] = MemoryKind::input;
  }
  NetOptions net_options;
  net_options.release_intermediates = !options.keep_all && !options.plan_memory;
  net_options.plan_memory = options.plan_memory;
  net_options.keep = options.keep;
  net_options.force_cpu = options.device.kind == DeviceKind::cpu;
  session->net = std::make_unique<Net>(net, session->blobs, net_options);
  session->differentiated.first_gradient_op = session->first_update = net.op_size();
  return session;
}

}  // namespace stepnet
