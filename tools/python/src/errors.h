// How Stepnet's Errors become exceptions of Python, and its warnings those of Python.
//
// Threads: with the interpreter's lock held, except for what warn_python returns.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <string>

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

// Warns by Python's warnings (a UserWarning). Throws nanobind::python_error where a filter makes an exception of it.
// Takes the interpreter's lock itself.
void warn_python(const std::string& warning);

}  // namespace stepnet::python
