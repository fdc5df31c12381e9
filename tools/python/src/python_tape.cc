#include "tools/python/src/python_tape.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/engine.h"
#include "stepnet/net_function.h"
#include "stepnet/tape.h"
#include "tools/python/src/arrays.h"
#include "tools/python/src/net_object.h"
#include "tools/python/src/operators.h"
#include "tools/python/src/variables.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

using autograd::Variable;
using autograd::VariableGradient;
using Rows = std::vector<std::vector<Variable>>;

autograd::Gradients gradients_of(nb::handle values) {
  autograd::Gradients gradients;
  if (values.is_none()) return gradients;
  if (nb::isinstance<Variable>(values) || nb::isinstance<VariableGradient>(values)) {
    gradients.push_back(gradient_of(values));
    return gradients;
  }
  for (const nb::handle value : values) gradients.push_back(gradient_of(value));
  return gradients;
}

nb::tuple tuple_of_gradients(const autograd::Gradients& gradients) {
  nb::list list;
  for (const VariableGradient& gradient : gradients) list.append(object_of(gradient));
  return nb::tuple(list);
}

nb::tuple tuple_of_rows(const Rows& rows) {
  nb::list list;
  for (const std::vector<Variable>& row : rows) list.append(tuple_of(row));
  return nb::tuple(list);
}

nb::tuple grad(nb::object outputs, nb::object inputs, nb::object grad_outputs, bool create_graph, bool keep_graph,
               bool allow_unused, bool materialize, int threads) {
  const std::vector<Variable> roots = variables_of(outputs), leaves = variables_of(inputs);
  const autograd::GradOptions options{.grad_outputs = gradients_of(grad_outputs),
                                      .create_graph = create_graph,
                                      .keep_graph = keep_graph,
                                      .allow_unused = allow_unused,
                                      .materialize = materialize,
                                      .threads = threads};
  const autograd::Gradients made = [&] {
    const nb::gil_scoped_release others;
    return autograd::grad(roots, leaves, options);
  }();
  return tuple_of_gradients(made);
}

void backward(nb::object roots, nb::object gradients, bool create_graph, bool keep_graph, nb::object inputs,
              int threads) {
  autograd::BackwardOptions options{.create_graph = create_graph, .keep_graph = keep_graph, .threads = threads};
  if (!inputs.is_none()) options.inputs = variables_of(inputs);
  const std::vector<Variable> from = variables_of(roots);
  const autograd::Gradients given = gradients_of(gradients);
  const nb::gil_scoped_release others;
  autograd::backward(from, given, options);
}

nb::tuple jvp(nb::object function, nb::object inputs, nb::object directions) {
  const autograd::VariableFunction fn = function_of(std::move(function));
  const std::vector<Variable> at = variables_of(inputs), along = variables_of(directions);
  const autograd::Jvp made = [&] {
    const nb::gil_scoped_release others;
    return autograd::jvp(fn, at, along);
  }();
  return nb::make_tuple(tuple_of(made.outputs), tuple_of(made.tangents));
}

nb::tuple hvp(nb::object function, nb::object inputs, nb::object directions) {
  const autograd::VariableFunction fn = function_of(std::move(function));
  const std::vector<Variable> at = variables_of(inputs), along = variables_of(directions);
  const autograd::Hvp made = [&] {
    const nb::gil_scoped_release others;
    return autograd::hvp(fn, at, along);
  }();
  return nb::make_tuple(object_of(made.value), tuple_of(made.gradients), tuple_of(made.products));
}

template <auto Derivatives>
nb::tuple matrices(nb::object function, nb::object inputs) {
  const autograd::VariableFunction fn = function_of(std::move(function));
  const std::vector<Variable> at = variables_of(inputs);
  const Rows made = [&] {
    const nb::gil_scoped_release others;
    return Derivatives(fn, at);
  }();
  return tuple_of_rows(made);
}

// --- Nets as one operation -------------------------------------------------------------------------------------------

struct NetCall {
  NetCall(nb::object source, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs)
      : function(net_of(source), inputs, outputs), inputs(inputs), outputs(outputs) {}
  autograd::NetFunction function;
  std::vector<std::string> inputs, outputs;

  nb::object call(const nb::args& values) const {
    const std::vector<Variable> given = variables_of(values);
    require(given.size() == inputs.size(), "the net takes {} inputs ({}), not {}", inputs.size(),
            fmt::join(inputs, ", "), given.size());
    const autograd::Place place = python_place();
    const std::vector<Variable> made = [&] {
      const nb::gil_scoped_release others;
      return function(given, place);
    }();
    return one_or_tuple(made);
  }
};

// --- Capture ---------------------------------------------------------------------------------------------------------

// The net that was written down, and what is in its workspace.
struct CapturedNet {
  std::shared_ptr<NetObject> net;
  autograd::Captured captured;
};

std::unique_ptr<CapturedNet> capture(nb::object function, nb::object inputs, const std::string& name,
                                     const std::vector<std::string>& names, const nb::dict& constants, bool check) {
  autograd::CaptureOptions options{.name = name, .inputs = names, .constants = {}, .check = check};
  for (const auto& [key, value] : constants)
    options.constants.emplace_back(nb::cast<std::string>(key), variable_of(value));
  const autograd::VariableFunction fn = function_of(std::move(function));
  const std::vector<Variable> at = variables_of(inputs);
  auto made = std::make_unique<CapturedNet>();
  {
    const nb::gil_scoped_release others;
    made->captured = autograd::capture(fn, at, options);
  }
  auto session = std::make_shared<Session>();
  for (const auto& [blob, value] : made->captured.constants) session->workspace().tensor(blob) = value.clone();
  std::vector<std::string> outputs(made->captured.net.external_output().begin(),
                                   made->captured.net.external_output().end());
  made->net = std::make_shared<NetObject>(made->captured.net, session, outputs, 1);
  return made;
}

nb::list gradients_captured(const CapturedNet& self) {
  nb::list list;
  for (const auto& gradient : self.captured.gradients)
    list.append(nb::make_tuple(object_of(gradient.leaf), gradient.dense, gradient.indices, gradient.values));
  return list;
}

nb::dict constants_captured(const CapturedNet& self) {
  nb::dict values;
  for (const auto& [name, value] : self.captured.constants) values[name.c_str()] = array_of(value);
  return values;
}

void bind_capture(nb::module_& module) {
  nb::class_<CapturedNet>(module, "Captured", "A net of what a function ran on the tape.")
      .def_ro("net", &CapturedNet::net, "The net, with its constants in its workspace.")
      .def_prop_ro("inputs", [](const CapturedNet& self) { return self.captured.inputs; })
      .def_prop_ro(
          "outputs", [](const CapturedNet& self) { return self.captured.outputs; },
          "The function's results, in its order.")
      .def_prop_ro("constants", &constants_captured)
      .def_prop_ro("gradients", &gradients_captured,
                   "What `backward` accumulated: leaf, and the names of its gradient (dense; indices, values).")
      .def_prop_ro("written", [](const CapturedNet& self) {
        nb::list list;
        for (const auto& w : self.captured.written) list.append(nb::make_tuple(w.name, w.over));
        return list;
      });
  module.def("capture", &capture, nb::arg("function"), nb::arg("inputs"), nb::kw_only(), nb::arg("name") = "captured",
             nb::arg("names") = std::vector<std::string>(), nb::arg("constants") = nb::dict(), nb::arg("check") = true,
             "Calls `function(*inputs)` once, and writes down as a net what it runs, forward and backward.");
}

}  // namespace

void bind_tape(nb::module_& module) {
  module.def("grad", &grad, nb::arg("outputs"), nb::arg("inputs"), nb::kw_only(), nb::arg("grad_outputs") = nb::none(),
             nb::arg("create_graph") = false, nb::arg("keep_graph") = false, nb::arg("allow_unused") = false,
             nb::arg("materialize") = false, nb::arg("threads") = 1,
             "The gradients of the sum of `outputs`, by each of `inputs`; nothing is accumulated.");
  module.def("backward", &backward, nb::arg("roots"), nb::arg("gradients") = nb::none(), nb::kw_only(),
             nb::arg("create_graph") = false, nb::arg("keep_graph") = false, nb::arg("inputs") = nb::none(),
             nb::arg("threads") = 1, "Adds the gradients of `roots` to those of the leaves.");
  module.def("jvp", &jvp, nb::arg("function"), nb::arg("inputs"), nb::arg("directions"),
             "(outputs, tangents) of function(*inputs), along `directions`.");
  module.def("hvp", &hvp, nb::arg("function"), nb::arg("inputs"), nb::arg("directions"),
             "(value, gradients, products) of a function with one number: the Hessian times `directions`.");
  module.def("jacobian", &matrices<&autograd::jacobian>, nb::arg("function"), nb::arg("inputs"),
             "Per output and input the derivatives of each element of the output: [elements, ...].");
  module.def("hessian", &matrices<&autograd::hessian>, nb::arg("function"), nb::arg("inputs"),
             "Per pair of inputs the second derivatives of a function with one number.");
  module.def(
      "set_recording", [](bool recording) { return std::exchange(autograd::tape_state().recording, recording); },
      nb::arg("recording"), "Whether this thread records; returns what it was before.");
  module.def(
      "seed", [](uint64_t seed) { autograd::set_random_state({.seed = seed, .draws = 0}); }, nb::arg("seed"),
      "Starts the draws of random operators anew.");
  nb::class_<NetCall>(module, "NetFunction", "A net as one operation of the tape.")
      .def(nb::init<nb::object, const std::vector<std::string>&, const std::vector<std::string>&>(), nb::arg("source"),
           nb::arg("inputs"), nb::arg("outputs"))
      .def("__call__", &NetCall::call, nb::sig("def __call__(self, *values: typing.Any) -> typing.Any"))
      .def_ro("inputs", &NetCall::inputs)
      .def_ro("outputs", &NetCall::outputs);
  bind_capture(module);
}

}  // namespace stepnet::python
