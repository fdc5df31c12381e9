// The tape's functions: gradients, forward mode, nets as one operation, capture.
//
// Threads: with the interpreter's lock held, which is released while derivatives run.
#pragma once

#include <nanobind/nanobind.h>

namespace stepnet::python {

void bind_tape(nanobind::module_& module);

}  // namespace stepnet::python
