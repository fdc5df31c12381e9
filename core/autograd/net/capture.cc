#include "core/autograd/capture.h"

#include <algorithm>
#include <cstring>

#include "stepnet/net.h"
#include "stepnet/net_function.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {
namespace {

// For a scope: this thread's tape writes down what it runs.
class CaptureScope {
 public:
  explicit CaptureScope(TapeCapture& capture) { tape_state().capture = &capture; }
  ~CaptureScope() { tape_state().capture = nullptr; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

// An output of the net, and what the eager run made of it.
struct Made {
  std::string name;
  Tensor value;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == DType::string) return std::ranges::equal(a.span<std::string>(), b.span<std::string>());
  const Tensor here = on_device(a, {}), there = on_device(b, {});
  return a.size() == 0 || std::memcmp(here.raw(), there.raw(), here.bytes()) == 0;
}

// The net must be right as it stands: an operator may have been fed by means that nobody has seen.
void check_captured_net(const Captured& captured, const TapeCapture& capture, const std::vector<Made>& made) {
  Workspace workspace;
  for (const std::string& name : captured.inputs) workspace.create(name).tensor() = capture.input(name);
  for (const auto& [name, value] : captured.constants) workspace.create(name).tensor() = value;
  RunContext context;
  run_net_once(captured.net, workspace, context, {.release_intermediates = true});
  for (const Made& m : made) {
    const Tensor& is = workspace.fetch(m.name);
    if (same_bits(is, m.value)) continue;
    throw Error(fmt::format("the captured net makes another \"{}\" ({}) than the run that was captured ({})", m.name,
                            is, m.value),
                "bytes that operators read must not be written by other means during the capture");
  }
}

std::vector<std::string> input_names(const CaptureOptions& options, size_t count) {
  require(options.inputs.empty() || options.inputs.size() == count, "{} names are given for {} captured inputs",
          options.inputs.size(), count);
  std::vector<std::string> names = options.inputs;
  for (size_t i = names.size(); i < count; ++i) names.push_back(fmt::format("x{}", i));
  return names;
}

// The gradients of leaves into which something was accumulated, each once.
void take_gradients(TapeCapture& capture, std::vector<Made>& made, Captured& captured) {
  std::vector<const VariableState*> done;
  const auto take = [&](const Variable& v) -> std::string {
    if (!v.defined()) return "";
    made.push_back({capture.add_output(v.value()), v.value()});
    return made.back().name;
  };
  for (const Variable& leaf : capture.accumulated()) {
    const VariableGradient& g = leaf.grad();
    if (!g.defined() || std::ranges::find(done, leaf.state()) != done.end()) continue;
    done.push_back(leaf.state());
    captured.gradients.push_back({leaf, take(g.dense), take(g.indices), take(g.values)});
  }
}

}  // namespace

Captured capture(const TapeProgram& fn, const std::vector<Variable>& inputs, const CaptureOptions& options) {
  require(!tape_state().capture, "a capture cannot run inside another one");
  TapeCapture capture(options.name);
  Captured captured{.net = {},
                    .inputs = input_names(options, inputs.size()),
                    .outputs = {},
                    .constants = {},
                    .gradients = {},
                    .written = {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].defined(), "input \"{}\" of the captured net is undefined", captured.inputs[i]);
    capture.add_input(captured.inputs[i], inputs[i].value());
  }
  for (const auto& [name, constant] : options.constants) capture.wish_name(name, constant.value());
  std::vector<Made> made;
  {
    const CaptureScope scope(capture);
    const std::vector<Variable> outputs = fn(inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      require(outputs[k].defined() && outputs[k].value().storage(), "output {} of the captured net is undefined", k);
      made.push_back({capture.add_output(outputs[k].value()), outputs[k].value()});
      captured.outputs.push_back(made.back().name);
    }
    take_gradients(capture, made, captured);
    for (const TapeCapture::Written& w : capture.add_written()) {
      captured.written.push_back({w.name, w.over, w.bytes});
      made.push_back({w.name, w.bytes});
    }
  }
  captured.net = capture.take_net();
  captured.constants = capture.constants();
  if (options.check) check_captured_net(captured, capture, made);
  return captured;
}

Variable captured_constant(Tensor value) {
  if (TapeCapture* capture = tape_state().capture) capture->allow_constant(value);
  return Variable(std::move(value));
}

}  // namespace stepnet::autograd
