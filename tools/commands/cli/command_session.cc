#include "tools/commands/cli/command_session.h"

#include "core/estimate/report.h"
#include "recurrent/form/attention_chunks.h"
#include "recurrent/form/short_form.h"

namespace stepnet::tools {

std::optional<Model> model_in(const NetDef& net, int64_t batch, int64_t timesteps) {
  if (!net.HasExtension(stepnet::model)) return std::nullopt;
  Model model = read_model(net);
  if (batch > 0) model.batch = batch;
  if (timesteps > 0) model.timesteps = timesteps;
  return model;
}

namespace {

// Of what there is before the net runs. What is wrong with an init net is said when it runs.
std::map<std::string, TensorType> types_of(const ForwardOptions& options) {
  std::map<std::string, TensorType> types = options.feeds;
  types.insert(options.parameters.begin(), options.parameters.end());
  try {
    NetDef init = options.init;
    expand_recurrent(init);
    types.merge(infer_net(init, {}));
  } catch (const Error&) {
    return types;
  }
  return types;
}

}  // namespace

std::unique_ptr<NetSession> net_session(const NetDef& net, const std::optional<Model>& model, ForwardOptions options) {
  if (model) {
    for (const auto& [name, type] : batch_types(*model)) options.feeds[name] = type;
    for (const CarryLink& link : model->carry)
      options.feeds[link.to()] = TensorType::of(DType::float32, {1, model->batch, link.size()});
    return forward_session(expanded_forward(*model, Mode::evaluate, types_of(options)), options);
  }
  NetDef expanded = net;
  expand_recurrent(options.init);
  attend_in_chunks(expanded, types_of(options));
  expand_recurrent(expanded);
  return forward_session(expanded, options);
}

namespace {

// "" where it cannot be known without data.
std::string needed_text(Device device, const std::function<std::unique_ptr<NetSession>()>& make) {
  try {
    DryScope scope(device.kind);
    const auto session = make();
    const Estimate e = estimate_session(*session, scope);
    const std::string where =
        e.peak_op < 0 ? ""
                      : fmt::format(", at operator {} ({})", e.peak_op, e.ops[static_cast<size_t>(e.peak_op)].type);
    return fmt::format("{} bytes ({}) by stepnet estimate{}", e.peak, bytes_text(e.peak), where);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

void with_estimate(FunctionRef<> work, Device device, const std::function<std::unique_ptr<NetSession>()>& make) {
  try {
    work();
  } catch (Error& e) {
    if (e.fact().find("out of memory: ") == std::string::npos) throw;
    if (const std::string text = needed_text(device, make); !text.empty()) e.add("need", text);
    throw;
  }
}

}  // namespace stepnet::tools
