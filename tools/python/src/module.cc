// The extension module stepnet._native.
#include <nanobind/nanobind.h>

#include "core/compute/threads.h"
#include "tools/python/src/errors.h"
#include "tools/python/src/net_object.h"
#include "tools/python/src/operators.h"
#include "tools/python/src/python_session.h"
#include "tools/python/src/python_tape.h"
#include "tools/python/src/reports.h"
#include "tools/python/src/training.h"
#include "tools/python/src/variables.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // graphs of PyTorch's may hold variables until the process ends
  m.doc() = "What Stepnet's Python package is made of; use it through `stepnet`.";
  stepnet::python::register_errors(m);
  stepnet::python::bind_session(m);
  stepnet::python::bind_net(m);
  stepnet::python::bind_variables(m);
  stepnet::python::bind_operators(m);
  stepnet::python::bind_tape(m);
  stepnet::python::bind_training(m);
  stepnet::python::bind_reports(m);
  m.def("set_threads", &stepnet::set_threads, nb::arg("threads"),
        "How many threads operators share their work among; 0: one per core.");
  m.def("threads", &stepnet::threads);
}
