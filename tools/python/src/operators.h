// Operators as functions of Python: arguments by keyword, as the registry says them.
//
// Threads: with the interpreter's lock held; each thread has a tracer of its own. Errors: Error on arguments that the
// operator does not have, or that are of another type.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "stepnet/op_spec.h"
#include "stepnet/tape.h"

namespace stepnet::python {

// The arguments of an operator; None leaves one out.
std::vector<Argument> arguments_of(const OpSpec& spec, const nanobind::kwargs& given);

// The line of Python that is running.
autograd::Place python_place();

// An operator to call: on variables, or where a tracer is at work, on the names that it gives out.
class OperatorFunction {
 public:
  OperatorFunction(std::string type, bool in_place);
  nanobind::object call(const nanobind::args& inputs, nanobind::kwargs arguments) const;
  std::string title() const { return type_ + (in_place_ ? "_" : ""); }
  std::string doc() const;

 private:
  std::string type_;
  bool in_place_;
  const OpSpec* spec_;
};

void bind_operators(nanobind::module_& module);

}  // namespace stepnet::python
