// Variables of the tape as objects of Python.
//
// Threads: with the interpreter's lock held.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "stepnet/engine.h"
#include "stepnet/variable.h"

namespace stepnet::python {

// None is undefined, and what is no variable becomes a constant with a copy of the values.
autograd::Variable variable_of(nanobind::handle value);
std::vector<autograd::Variable> variables_of(nanobind::handle values);
// Undefined is None.
nanobind::object object_of(const autograd::Variable& variable);
nanobind::object object_of(const autograd::VariableGradient& gradient);
autograd::VariableGradient gradient_of(nanobind::handle value);
nanobind::tuple tuple_of(const std::vector<autograd::Variable>& variables);
nanobind::object one_or_tuple(const std::vector<autograd::Variable>& variables);

// A function of Python on variables, which may be called and dropped without the interpreter's lock.
autograd::VariableFunction function_of(nanobind::object function);

void bind_variables(nanobind::module_& module);

}  // namespace stepnet::python
