#include "tools/python/src/variables.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "stepnet/record.h"
#include "tools/python/src/arrays.h"
#include "tools/python/src/operators.h"

namespace nb = nanobind;

namespace stepnet::python {

using autograd::Variable;
using autograd::VariableGradient;

Variable variable_of(nb::handle value) {
  if (value.is_none()) return {};
  if (nb::isinstance<Variable>(value)) return *nb::inst_ptr<Variable>(value);
  return Variable(tensor_of(value, Bytes::copied));
}

std::vector<Variable> variables_of(nb::handle values) {
  std::vector<Variable> variables;
  if (nb::isinstance<Variable>(values)) {
    variables.push_back(variable_of(values));
    return variables;
  }
  for (const nb::handle value : values) variables.push_back(variable_of(value));
  return variables;
}

nb::object object_of(const Variable& variable) { return variable.defined() ? nb::cast(variable) : nb::none(); }

nb::object object_of(const VariableGradient& gradient) {
  if (!gradient.defined()) return nb::none();
  return gradient.is_sparse() ? nb::cast(gradient) : nb::cast(gradient.dense);
}

VariableGradient gradient_of(nb::handle value) {
  if (nb::isinstance<VariableGradient>(value)) return *nb::inst_ptr<VariableGradient>(value);
  return variable_of(value);
}

nb::tuple tuple_of(const std::vector<Variable>& variables) {
  nb::list list;
  for (const Variable& variable : variables) list.append(object_of(variable));
  return nb::tuple(list);
}

nb::object one_or_tuple(const std::vector<Variable>& variables) {
  return variables.size() == 1 ? object_of(variables[0]) : nb::object(tuple_of(variables));
}

namespace {

// An object of Python whose last user may have no lock.
std::shared_ptr<nb::object> held(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* o) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire lock;
            delete o;
          }};
}

}  // namespace

autograd::VariableFunction function_of(nb::object function) {
  return [fn = held(std::move(function))](const std::vector<Variable>& inputs) {
    const nb::gil_scoped_acquire lock;
    return variables_of((*fn)(*tuple_of(inputs)));
  };
}

namespace {

Variable apply(const char* type, const std::vector<Variable>& inputs) {
  const autograd::Place place = python_place();
  const nb::gil_scoped_release others;
  return autograd::run(type, inputs, {}, {}, place)[0];
}

// Numbers of Python take the variable's type.
Variable operand(const Variable& beside, nb::handle value) {
  if (!PyFloat_Check(value.ptr()) && !PyLong_Check(value.ptr())) return variable_of(value);
  Tensor made = Tensor::empty(beside.dtype(), Shape{1});
  const double number = nb::cast<double>(value);
  const bool done = with_type(made.dtype(), [&]<class T>(T) { *made.data<T>() = static_cast<T>(number); });
  require(done, "{} has no operators with numbers", beside.str());
  return Variable(made);
}

template <class Class>
void bind_arithmetic(Class& c) {
  const auto binary = [&c](const char* name, const char* reflected, const char* type) {
    c.def(
        name,
        [type](const Variable& a, nb::object b) {
          return apply(type, {a, operand(a, b)});
        },
        nb::is_operator());
    c.def(
        reflected,
        [type](const Variable& a, nb::object b) {
          return apply(type, {operand(a, b), a});
        },
        nb::is_operator());
  };
  binary("__add__", "__radd__", "Add");
  binary("__sub__", "__rsub__", "Sub");
  binary("__mul__", "__rmul__", "Mul");
  binary("__truediv__", "__rtruediv__", "Div");
  c.def(
      "__matmul__",
      [](const Variable& a, nb::object b) {
        return apply("MatMul", {a, variable_of(b)});
      },
      nb::is_operator());
  c.def("__neg__", [](const Variable& a) { return apply("Negative", {a}); });
}

void backward_from(const Variable& root, nb::object gradient, bool create_graph, bool keep_graph, nb::object inputs,
                   int threads) {
  autograd::BackwardOptions options{.create_graph = create_graph, .keep_graph = keep_graph, .threads = threads};
  if (!inputs.is_none()) options.inputs = variables_of(inputs);
  autograd::Gradients given;
  if (!gradient.is_none()) given.push_back(gradient_of(gradient));
  const nb::gil_scoped_release others;
  autograd::backward({root}, given, options);
}

void bind_gradients(nb::class_<Variable>& c) {
  c.def("backward", &backward_from, nb::arg("gradient") = nb::none(), nb::kw_only(), nb::arg("create_graph") = false,
        nb::arg("keep_graph") = false, nb::arg("inputs") = nb::none(), nb::arg("threads") = 1,
        "Adds the gradients of this variable to those of the leaves that it was computed from.")
      .def_prop_rw(
          "grad", [](const Variable& self) { return object_of(self.grad()); },
          [](Variable& self, nb::object value) { self.set_grad(gradient_of(value)); }, nb::arg("value").none(),
          "The gradient that `backward` has accumulated here, or None.")
      .def("clear_grad", &Variable::clear_grad)
      .def("retain_grad", &Variable::retain_grad, "Makes an interior variable keep its gradient, too.")
      .def(
          "register_hook",
          [](const Variable& self, nb::object hook) {
            return self.register_hook([fn = held(std::move(hook))](const VariableGradient& gradient) {
              const nb::gil_scoped_acquire lock;
              return gradient_of((*fn)(object_of(gradient)));
            });
          },
          nb::arg("hook"),
          "Calls `hook` with each gradient that arrives; what it returns, unless None, is in its place.");
  nb::class_<autograd::HookHandle>(nb::module_::import_("stepnet._native"), "HookHandle")
      .def("remove", &autograd::HookHandle::remove);
}

nb::object numpy_of(const Variable& self) { return shared_array_of(self.value(), self.value().storage(), false); }

void bind_values(nb::class_<Variable>& c) {
  c.def("numpy", &numpy_of, nb::sig("def numpy(self) -> numpy.ndarray"), "A read-only array of the variable's bytes.")
      .def("__array__",
           [](const Variable& self, nb::args how, const nb::kwargs& named) {
             return nb::module_::import_("numpy").attr("array")(numpy_of(self), *how, **named);
           })
      .def("__dlpack__", [](const Variable& self,
                            const nb::kwargs& how) { return dlpack_of(self.value()).attr("__dlpack__")(**how); })
      .def("__dlpack_device__", [](const Variable&) { return nb::make_tuple(nb::device::cpu::value, 0); })
      .def(
          "item", [](const Variable& self) { return array_of(self.value()).attr("item")(); }, "The only element.")
      .def("__float__", [](const Variable& self) { return self.value().item<double>(); })
      .def("__len__",
           [](const Variable& self) {
             require(self.value().rank() > 0, "a variable without dimensions has no length");
             return self.value().dim(0);
           })
      .def_prop_ro("shape", [](const Variable& self) { return shape_of(self.shape()); })
      .def_prop_ro("dtype", [](const Variable& self) { return numpy_name(self.dtype()); })
      .def_prop_ro("version", &Variable::version)
      .def("__repr__", [](const Variable& self) {
        return fmt::format("stepnet.Variable({}{})", nb::cast<std::string>(nb::str(array_of(self.value()))),
                           self.requires_grad() ? ", requires_grad=True" : "");
      });
}

}  // namespace

void bind_variables(nb::module_& module) {
  nb::class_<VariableGradient>(module, "SparseGradient", "Rows of a gradient; the other rows are zero.")
      .def_prop_ro("indices", [](const VariableGradient& self) { return object_of(self.indices); })
      .def_prop_ro("values", [](const VariableGradient& self) { return object_of(self.values); });
  nb::class_<Variable> c(module, "Variable", "A tensor on the tape.");
  c.def(
       "__init__",
       [](Variable* self, nb::object value, bool requires_grad) {
         new (self) Variable(tensor_of(value, Bytes::copied), requires_grad);
       },
       nb::arg("value"), nb::arg("requires_grad") = false)
      .def_static(
          "sharing",
          [](nb::object value, bool requires_grad) { return Variable(tensor_of(value, Bytes::shared), requires_grad); },
          nb::arg("value"), nb::arg("requires_grad") = false,
          "A variable that shows the bytes of an array, which must not be written while a backward pass may read them.")
      .def_prop_rw("requires_grad", &Variable::requires_grad,
                   [](Variable& self, bool wanted) { self.set_requires_grad(wanted); })
      .def_prop_ro("is_leaf", &Variable::is_leaf)
      .def("detach", &Variable::detach, "The same bytes without history.")
      .def(
          "copy_", [](Variable& self, nb::object source) { self.copy_(variable_of(source), python_place()); },
          nb::arg("source"), "Overwrites the values.");
  bind_values(c);
  bind_arithmetic(c);
  bind_gradients(c);
}

}  // namespace stepnet::python
