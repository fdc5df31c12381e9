#include "tools/python/src/operators.h"

#include <fmt/ranges.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/nearest.h"
#include "stepnet/record.h"
#include "stepnet/text.h"
#include "tools/python/src/arrays.h"
#include "tools/python/src/net_object.h"
#include "tools/python/src/variables.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// A Python function (type, inputs, arguments, in place) that gets all calls of operators on this thread; or null.
thread_local PyObject* tracer = nullptr;

std::string repr_of(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

bool is_integer(nb::handle value) { return PyLong_Check(value.ptr()) || PyIndex_Check(value.ptr()); }

int64_t integer_of(nb::handle value, const char* what) {
  require(is_integer(value), "{} is an integer, not {}", what, repr_of(value));
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return nb::cast<int64_t>(index);
}

float number_of(nb::handle value, const char* what) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    fail("{} is a number, not {}", what, repr_of(value));
  }
  return static_cast<float>(number);
}

std::string word_of(nb::handle value, const char* what) {
  if (nb::isinstance<nb::bytes>(value)) return {nb::borrow<nb::bytes>(value).c_str(), nb::len(value)};
  require(nb::isinstance<nb::str>(value), "{} is text, not {}", what, repr_of(value));
  return nb::cast<std::string>(value);
}

template <class T, class Read>
std::vector<T> list_of(nb::handle values, const char* what, Read read) {
  require(PySequence_Check(values.ptr()) && !nb::isinstance<nb::str>(values), "{} is a list, not {}", what,
          repr_of(values));
  std::vector<T> list;
  for (const nb::handle value : values) list.push_back(read(value, what));
  return list;
}

// Where the operator looks for itself, Python's types decide.
Argument any_argument(const std::string& name, nb::handle value) {
  const char* const what = "it";
  if (nb::isinstance<NetObject>(value)) return make_arg(name, net_of(value));
  if (nb::isinstance<nb::str>(value) || nb::isinstance<nb::bytes>(value)) return make_arg(name, word_of(value, what));
  if (is_integer(value)) return make_arg(name, integer_of(value, what));
  if (!PySequence_Check(value.ptr())) return make_arg(name, number_of(value, what));
  std::vector<nb::handle> all;
  for (const nb::handle element : value) all.push_back(element);
  const auto is_text = [](nb::handle v) { return nb::isinstance<nb::str>(v) || nb::isinstance<nb::bytes>(v); };
  if (!all.empty() && std::ranges::all_of(all, is_text))
    return make_arg(name, list_of<std::string>(value, what, word_of));
  if (std::ranges::all_of(all, is_integer)) return make_arg(name, list_of<int64_t>(value, what, integer_of));
  return make_arg(name, list_of<float>(value, what, number_of));
}

// Types of elements may be given by their names.
bool is_type_name(const ArgSpec& arg, nb::handle value) {
  static const std::set<std::string> names = {"dtype", "to", "from_type"};
  return names.contains(arg.name) && nb::isinstance<nb::str>(value);
}

Argument argument_of(const ArgSpec& arg, nb::handle value) {
  const std::string& type = arg.type;
  const std::string& name = arg.name;
  if (type == "string") return make_arg(name, word_of(value, "it"));
  if (type == "int" || type == "int32") {
    if (is_type_name(arg, value)) return make_arg(name, static_cast<int>(type_named(nb::cast<std::string>(value))));
    return make_arg(name, integer_of(value, "it"));
  }
  if (type == "bool") {
    const int truth = PyObject_IsTrue(value.ptr());
    require(truth >= 0 && (PyBool_Check(value.ptr()) || is_integer(value)), "it is True or False, not {}",
            repr_of(value));
    return make_arg(name, truth == 1);
  }
  if (type == "float") return make_arg(name, number_of(value, "it"));
  if (type == "floats") return make_arg(name, list_of<float>(value, "it", number_of));
  if (type == "ints") return make_arg(name, list_of<int64_t>(value, "it", integer_of));
  if (type == "strings") return make_arg(name, list_of<std::string>(value, "it", word_of));
  if (type == "net") return make_arg(name, net_of(value));
  return any_argument(name, value);
}

bool is_known_beside(const OpSpec& spec, const std::string& name) {
  return std::ranges::any_of(spec.arg_families, [&](const ArgFamily& f) { return name.starts_with(f.prefix); }) ||
         std::ranges::any_of(spec.accepted_args, [&](const AcceptedArg& a) { return a.name == name; }) ||
         std::ranges::any_of(spec.refused_args, [&](const RefusedArg& a) { return a.name == name; });
}

}  // namespace

std::vector<Argument> arguments_of(const OpSpec& spec, const nb::kwargs& given) {
  std::vector<Argument> arguments;
  for (const auto& [key, value] : given) {
    if (value.is_none()) continue;
    const auto name = nb::cast<std::string>(key);
    const auto found = std::ranges::find_if(spec.args, [&](const ArgSpec& a) { return a.name == name; });
    try {
      if (found != spec.args.end())
        arguments.push_back(argument_of(*found, value));
      else if (is_known_beside(spec, name))
        arguments.push_back(any_argument(name, value));
      else {
        std::vector<std::string> names;
        for (const ArgSpec& a : spec.args) names.push_back(a.name);
        fail("there is no such argument.{}{}", Nearest{name, names},
             names.empty() ? " It has none." : fmt::format(" It has {}.", fmt::join(names, ", ")));
      }
    } catch (Error& e) {
      throw e.prefix(fmt::format("{}: argument \"{}\"", spec.type, name));
    }
  }
  return arguments;
}

autograd::Place python_place() {
  static auto* const files = new std::set<std::string>;  // places point into it for as long as the process lives
  PyFrameObject* const frame = PyEval_GetFrame();
  if (!frame) return {};
  const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const auto name = nb::cast<std::string>(code.attr("co_filename"));
  return {files->insert(name).first->c_str(), PyFrame_GetLineNumber(frame)};
}

OperatorFunction::OperatorFunction(std::string type, bool in_place)
    : type_(std::move(type)), in_place_(in_place), spec_(&op_spec(type_)) {}

nb::object OperatorFunction::call(const nb::args& inputs, nb::kwargs arguments) const {
  if (tracer) return nb::borrow(tracer)(type_, inputs, arguments, in_place_);
  autograd::RunOptions options{.outputs = -1, .in_place = in_place_};
  if (arguments.contains("outputs")) {
    options.outputs = nb::cast<int>(arguments["outputs"]);
    nb::del(arguments["outputs"]);
  }
  const std::vector<Argument> args = arguments_of(*spec_, arguments);
  const std::vector<autograd::Variable> given = variables_of(inputs);
  const autograd::Place place = python_place();
  const std::vector<autograd::Variable> made = [&] {
    const nb::gil_scoped_release others;
    return autograd::run(type_, given, args, options, place);
  }();
  return one_or_tuple(made);
}

std::string OperatorFunction::doc() const {
  std::string text = spec_->doc + "\n";
  const auto list = [&](const char* title, const std::vector<ParamSpec>& params) {
    if (!params.empty()) text += fmt::format("\n{}:\n", title);
    for (const ParamSpec& p : params)
      text += fmt::format("  {}{}: {}\n", p.name, p.optional ? " (optional)" : p.variadic ? " ..." : "", p.doc);
  };
  list("Inputs", spec_->inputs);
  list("Outputs", spec_->outputs);
  if (!spec_->args.empty()) text += "\nArguments:\n";
  for (const ArgSpec& a : spec_->args)
    text +=
        fmt::format("  {}: {}{}  {}\n", a.name, a.type, a.default_text.empty() ? "" : " = " + a.default_text, a.doc);
  return text;
}

namespace {

// An operator as text, as it stands in a net.
std::string op_text(const std::string& type, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, const nb::dict& arguments) {
  NetDef net;
  OperatorDef& op = *net.add_op();
  op.set_type(type);
  for (const std::string& name : inputs) op.add_input(name);
  for (const std::string& name : outputs) op.add_output(name);
  for (const Argument& argument : arguments_of(op_spec(type), nb::borrow<nb::kwargs>(arguments)))
    *op.add_arg() = argument;
  return to_text(net);
}

// How many outputs an operator always has, and of one that is variadic.
int least_outputs(const std::string& type) {
  int count = 0;
  for (const ParamSpec& p : op_spec(type).outputs) count += p.optional ? 0 : p.variadic ? p.at_least : 1;
  return count;
}

nb::object trace(nb::object function, nb::object body) {
  PyObject* const before = tracer;
  struct Restore {
    PyObject* before;
    ~Restore() { tracer = before; }
  } restore{before};
  tracer = function.ptr();
  return body();
}

}  // namespace

void bind_operators(nb::module_& module) {
  nb::class_<OperatorFunction>(module, "Operator", "An operator as a function of variables.")
      .def(nb::init<std::string, bool>(), nb::arg("type"), nb::arg("in_place") = false)
      .def("__call__", &OperatorFunction::call,
           nb::sig("def __call__(self, *inputs: typing.Any, **arguments: typing.Any) -> typing.Any"))
      .def_prop_ro("name", &OperatorFunction::title)
      .def_prop_ro("documentation", &OperatorFunction::doc)
      .def("__repr__", [](const OperatorFunction& self) { return "<stepnet.ops." + self.title() + ">"; });
  module.def("op_types", &op_types, "The types of all operators.");
  module.def("op_text", &op_text, nb::arg("type"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("arguments"));
  module.def("least_outputs", &least_outputs, nb::arg("type"));
  module.def("trace", &trace, nb::arg("tracer"), nb::arg("body"),
             "Calls `body`, and `tracer` in place of the operators that it calls on this thread.");
}

}  // namespace stepnet::python
