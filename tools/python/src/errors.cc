#include "tools/python/src/errors.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>

namespace nb = nanobind;

namespace stepnet::python {
namespace {

void raise(const Error& error) {
  const ErrorParts parts = parts_of(error);
  const nb::object type = nb::module_::import_("stepnet._errors").attr("Error");
  const nb::object made = type(parts.fact, parts.fix, parts.lines);
  PyErr_SetObject(type.ptr(), made.ptr());
}

}  // namespace

ErrorParts parts_of(const Error& error) {
  ErrorParts parts;
  std::istringstream text(error.what());
  std::getline(text, parts.fact);
  for (std::string line; std::getline(text, line);) {
    const size_t begin = line.find_first_not_of(' ');
    const size_t end = begin == line.npos ? line.npos : line.find(' ', begin);
    if (end == line.npos) continue;
    const size_t rest = line.find_first_not_of(' ', end);
    const std::string label = line.substr(begin, end - begin), said = rest == line.npos ? "" : line.substr(rest);
    if (label == "fix")
      parts.fix = said;
    else
      parts.lines.emplace_back(label, said);
  }
  return parts;
}

void warn_python(const std::string& warning) {
  const nb::gil_scoped_acquire lock;
  if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) != 0) throw nb::python_error();
}

void register_errors(nb::module_& /*module*/) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& e) {
      raise(e);
    }
  });
}

}  // namespace stepnet::python
