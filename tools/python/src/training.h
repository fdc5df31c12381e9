// Training and what comes after it, as the commands train, evaluate, predict and sample do it.
//
// Threads: with the interpreter's lock held, which is released while nets run.
#pragma once

#include <nanobind/nanobind.h>

namespace stepnet::python {

void bind_training(nanobind::module_& module);

}  // namespace stepnet::python
