// What is known of a net without training it: estimates, gradient checks, pictures.
//
// Threads: with the interpreter's lock held.
#pragma once

#include <nanobind/nanobind.h>

namespace stepnet::python {

void bind_reports(nanobind::module_& module);

}  // namespace stepnet::python
