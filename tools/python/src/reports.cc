#include "tools/python/src/reports.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compute/threads.h"
#include "core/estimate/report.h"
#include "core/gradcheck/gradient_report.h"
#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradient_check.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/proto/recurrent.pb.h"
#include "tools/commands/cli/blob_text.h"
#include "tools/commands/cli/dry_net.h"
#include "tools/commands/draw_net.h"
#include "tools/python/src/arrays.h"
#include "tools/python/src/net_object.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// `file`: of the net, whose other options are given by name.
std::string estimate(const std::string& file, const std::vector<std::string>& feeds,
                     const std::vector<std::string>& parameters, const std::vector<std::string>& bounds, bool train,
                     const std::string& loss, const std::string& optimizer, const std::string& precision,
                     const std::string& device, int64_t batch, int64_t timesteps, int64_t memory_budget, bool keep_all,
                     const std::string& root) {
  tools::DryNetOptions options;
  options.file = file;
  options.loss = loss;
  options.root = root;
  options.device = device;
  options.precision = precision;
  options.feeds = feeds;
  options.parameters = parameters;
  options.bounds = bounds;
  options.optimizer.optimizer = optimizer;
  options.batch = batch;
  options.timesteps = timesteps;
  options.threads = threads();
  options.memory_budget = memory_budget;
  options.train = train;
  options.keep_all = keep_all;
  const nb::gil_scoped_release others;
  tools::DryNet net(options);
  DryScope scope(net.device().kind);
  const std::unique_ptr<NetSession> session = net.session(scope);
  return estimate_json(estimate_session(*session, scope), nullptr);
}

struct Checked {
  bool right;
  std::string text, json;
};

// Values of float are taken as double, which is what gradients are checked in.
Tensor in_double(const Tensor& value) {
  if (value.dtype() != DType::float32) return value;
  Tensor wide = Tensor::empty(DType::float64, value.shape());
  std::ranges::copy(value.span<float>(), wide.data<double>());
  return wide;
}

Checked gradcheck(nb::object source, const std::string& loss, const nb::dict& feeds, const GradientCheckOptions& how) {
  GradientSubject subject;
  subject.net = net_of(source);
  expand_recurrent(subject.net);
  const ModelDef def = subject.net.GetExtension(model);
  subject.net.ClearExtension(model);
  subject.outputs = {loss.empty() ? def.loss() : loss};
  require(!subject.outputs[0].empty(), "which blob is differentiated is said by loss");
  const std::vector<std::string> read = read_from_outside(subject.net);
  for (const auto& [key, value] : feeds) {
    const auto name = nb::cast<std::string>(key);
    require(std::ranges::count(read, name) > 0, "the net reads no blob \"{}\" from outside.{}", name,
            Nearest{name, read});
    subject.feeds[name] = in_double(tensor_of(value, Bytes::copied));
  }
  for (const std::string& name : read)
    require(name.empty() || subject.feeds.contains(name), "the net reads \"{}\", which holds nothing", name);
  for (const auto& [name, value] : subject.feeds)
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  const nb::gil_scoped_release others;
  const GradientReport report = check_gradients(subject, how);
  return {report.right(), report.str() + report.blamed_text(), report_json(report).pretty()};
}

std::string draw(nb::object source, const std::vector<std::string>& feeds, const std::string& loss) {
  NetDef net = net_of(source);
  expand_recurrent(net);
  check_net(net, nullptr);
  if (!loss.empty()) {
    GradientRequest request;
    request.targets = {{loss, ""}};
    add_gradient_operators(net, request);
  }
  return tools::draw_net(net, tools::parse_types("feeds", feeds));
}

}  // namespace

void bind_reports(nb::module_& module) {
  module.def("estimate", &estimate, nb::arg("file"), nb::kw_only(), nb::arg("feeds"), nb::arg("parameters"),
             nb::arg("bounds"), nb::arg("train"), nb::arg("loss"), nb::arg("optimizer"), nb::arg("precision"),
             nb::arg("device"), nb::arg("batch"), nb::arg("timesteps"), nb::arg("memory_budget"), nb::arg("keep_all"),
             nb::arg("root"));
  module.def(
      "gradcheck",
      [](nb::object net, const std::string& loss, const nb::dict& feeds, double tolerance, double step,
         std::optional<int> directions, int order, bool forward, bool hessian, uint64_t seed) {
        GradientCheckOptions how;
        how.tolerance = tolerance;
        how.step = step;
        how.directions = directions;
        how.order = order;
        how.forward = forward;
        how.hessian = hessian;
        how.seed = seed;
        const Checked checked = gradcheck(net, loss, feeds, how);
        return nb::make_tuple(checked.right, checked.text, checked.json);
      },
      nb::arg("net"), nb::arg("loss"), nb::arg("feeds"), nb::kw_only(), nb::arg("tolerance"), nb::arg("step"),
      nb::arg("directions").none(), nb::arg("order"), nb::arg("forward"), nb::arg("hessian"), nb::arg("seed"));
  module.def("draw", &draw, nb::arg("net"), nb::arg("feeds"), nb::arg("loss"));
}

}  // namespace stepnet::python
