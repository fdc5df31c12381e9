#include "core/estimate/estimate.h"

#include <algorithm>
#include <utility>

#include "core/compute/backend.h"
#include "core/estimate/recorder.h"
#include "core/estimate/report.h"
#include "core/operator/dry_run.h"
#include "core/operator/op_devices.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

std::string kernel_text(const BoundOp& op, const DryScope& dry, DType dtype) {
  if (op.spec->blob_kernel) return "on the host, of other operators";
  const std::string type(dtype == DType::undefined ? "any type" : dtype_name(dtype));
  const char* device = dry.claims() == DeviceKind::cpu ? "cpu" : "cuda";
  const bool exists = has_kernel(*op.spec, dry.claims());
  const bool on_casts = is_half(dtype) && exists && !has_kernel(*op.spec, dry.claims(), dtype);
  std::string text = fmt::format("{}, {}{}", device, type, on_casts ? ": float kernel on casts" : "");
  if (!op.spec->workspace.empty() && (dtype == DType::float32 || on_casts))
    text += dry.claims() == DeviceKind::cpu ? ", oneDNN" : ", cuBLASLt";
  return exists ? text : text + " (assumed: this build has none)";
}

int64_t output_bytes(const NetSession& session) {
  int64_t bytes = 0;
  std::set<const void*> seen;
  for (const std::string& name : session.net->def().external_output())
    if (const Tensor* t = tensor_of(session.blobs.find(name)); t && seen.insert(t->raw()).second)
      bytes += static_cast<int64_t>(t->bytes());
  return bytes;
}

void add_kernels(const std::vector<BoundBlobs>& bound, const DryScope& dry, std::vector<OpEstimate>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) {
    DType dtype = DType::undefined;
    for (const auto* blobs : {&bound[i].in, &bound[i].out})
      for (const Blob* blob : *blobs)
        if (const Tensor* t = tensor_of(blob); t && (dtype == DType::undefined || !is_floating(dtype)))
          dtype = t->dtype();
    ops[i].kernel = kernel_text(*bound[i].op, dry, dtype);
  }
}

// Of the run of which the session's blobs are still there.
void run_recorded(NetSession& session, EstimateRecorder& recorder) {
  recorder.start_run();
  RunContext run;
  run.observer = &recorder;
  session.net->run(run);
  if (session.advance) session.advance();
}

}  // namespace

Estimate estimate_session(NetSession& session, DryScope& scope) {
  EstimateRecorder recorder(session, scope);
  Estimate result;
  result.device = scope.claims();
  run_recorded(session, recorder);
  for (const OpEstimate& e : recorder.ops) result.peak = std::max(result.peak, e.memory.peak);
  const double flops = scope.flops, products = scope.product_flops;
  run_recorded(session, recorder);
  result.flops = scope.flops - flops;
  result.product_flops = scope.product_flops - products;
  recorder.finish_run(result.totals);
  result.ops = std::move(recorder.ops);
  const int64_t first_peak = result.peak;
  for (const OpEstimate& e : result.ops) {
    result.bytes_moved += e.bytes_moved;
    if (e.memory.peak < result.peak || (result.peak_op >= 0 && e.memory.peak == result.peak)) continue;
    result.peak = e.memory.peak;
    result.peak_op = e.index;
    result.at_peak = e.at_peak;
  }
  if (result.peak_op < 0) {
    const auto largest = std::ranges::max_element(result.ops, {}, [](const OpEstimate& e) { return e.memory.peak; });
    if (largest != result.ops.end()) result.at_peak = largest->at_peak;
    result.notes.push_back(
        fmt::format("the first run needs most, {} bytes: it makes what stays for the others", first_peak));
  }
  result.between = scope.counters().live;
  result.outputs = output_bytes(session);
  add_kernels(recorder.bound, scope, result.ops);
  if (scope.claims() == DeviceKind::cuda && result.product_flops > 0)
    result.notes.push_back(
        fmt::format("{} bytes are cuBLASLt's workspace of one stream; every other one that runs products has its own",
                    kDeviceProductWorkspace));
  return result;
}

void require_fits(const Estimate& e, int64_t bytes, const std::string& what, const std::string& fix) {
  if (e.peak <= bytes) return;
  std::vector<std::string> kinds;
  for (size_t k = 0; k < e.at_peak.size(); ++k)
    if (e.at_peak[k] > 0)
      kinds.push_back(fmt::format("{} {}", memory_kind_name(static_cast<MemoryKind>(k)), bytes_text(e.at_peak[k])));
  const std::string where =
      e.peak_op < 0 ? "" : fmt::format(" at operator {} ({})", e.peak_op, e.ops[static_cast<size_t>(e.peak_op)].type);
  throw Error(fmt::format("{} needs {} ({} bytes){}, but only {} are left; then there are {}", what, bytes_text(e.peak),
                          e.peak, where, bytes_text(bytes), fmt::join(kinds, ", ")),
              fix);
}

std::vector<KeptValue> kept_values(const NetSession& session) {
  std::map<std::string, KeptValue> kept;
  for (const DifferentiatedOp& d : session.differentiated.differentiated) {
    const BoundOp op = bind_op(session.net->def().op(d.op), session.net->name(), d.op);
    for (size_t i = 0; i < d.wanted.size(); ++i) {
      if (!d.wanted[i]) continue;
      std::vector<bool> only(d.wanted.size(), false);
      only[i] = true;
      const GradientProgram program = record_gradient(*op.spec, op.def, op.args.get(), only, d.present);
      const std::string reason =
          fmt::format("the gradient of {} by {} (operator {})", op.def.input(static_cast<int>(i)), op.def.type(), d.op);
      const auto note = [&](const std::vector<bool>& reads, const auto& names) {
        for (size_t k = 0; k < reads.size(); ++k)
          if (reads[k]) kept[names[static_cast<int>(k)]].reasons.push_back(reason);
      };
      note(program.reads_input, op.def.input());
      note(program.reads_output, op.def.output());
    }
  }
  std::vector<KeptValue> result;
  for (auto& [name, value] : kept) {
    value.name = name;
    const Blob* blob = session.blobs.find(name);
    value.type = blob ? blob->type_str() : "";
    if (const Tensor* t = tensor_of(session.blobs.find(name))) value.bytes = static_cast<int64_t>(t->bytes());
    value.reasons.erase(std::unique(value.reasons.begin(), value.reasons.end()), value.reasons.end());
    result.push_back(std::move(value));
  }
  return result;
}

}  // namespace stepnet
