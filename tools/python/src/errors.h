// How Stepnet's Errors become exceptions of Python.
//
// Threads: with the interpreter's lock held.
#pragma once

#include <nanobind/nanobind.h>

#include "stepnet/error.h"

namespace stepnet::python {

// From now on an Error that leaves a bound function is raised as stepnet.Error, with its parts.
void register_errors(nanobind::module_& module);

// The text that is shown, taken apart again: the fact, lines with their labels, and the fix.
struct ErrorParts {
  std::string fact, fix;
  std::vector<std::pair<std::string, std::string>> lines;
};
ErrorParts parts_of(const Error& error);

}  // namespace stepnet::python
