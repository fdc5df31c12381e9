#include "tools/python/src/python_session.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "tools/python/src/arrays.h"

namespace nb = nanobind;

namespace stepnet::python {

std::shared_ptr<Session::Lent> Session::note_lent(const Tensor& value) {
  auto lent = std::make_shared<Lent>(Lent{value.storage()});
  std::erase_if(lent_, [](const std::weak_ptr<Lent>& old) { return old.expired(); });
  lent_.push_back(lent);
  return lent;
}

nb::object Session::get(const std::string& name) {
  const RunLock lock(runs_);
  const Blob& blob = workspace_.at(name);
  require(!blob.empty(), "the blob \"{}\" holds nothing", name);
  require(blob.is_tensor(), "the blob \"{}\" holds {}, which is no array", name, blob.type_str());
  const Tensor& value = blob.tensor();
  require(value.storage() != nullptr || value.bytes() == 0, "the values of the blob \"{}\" were let go of", name);
  return shared_array_of(value, note_lent(value), false);
}

Tensor Session::lend(const std::string& name) {
  const RunLock lock(runs_);
  const Tensor& value = workspace_.fetch(name);
  // What takes it keeps the storage alone, so the blob's is another from the next run on if anybody does.
  Tensor given = value;
  if (given.storage()) {
    const auto lent = note_lent(value);
    given = Tensor::view(std::make_shared<Storage>(lent, const_cast<std::byte*>(value.raw()), value.bytes()), 0,
                         value.dtype(), value.shape());
  }
  return given;
}

void Session::set(const std::string& name, nb::handle value) {
  Tensor made = tensor_of(value, Bytes::copied);
  const RunLock lock(runs_);
  workspace_.create(name).tensor() = std::move(made);
}

void Session::remove(const std::string& name) {
  const RunLock lock(runs_);
  workspace_.at(name).clear();
}

bool Session::contains(const std::string& name) {
  const RunLock lock(runs_);
  const Blob* const blob = workspace_.find(name);
  return blob && !blob->empty();
}

std::vector<std::string> Session::names() {
  const RunLock lock(runs_);
  std::vector<std::string> names = workspace_.names();
  std::erase_if(names, [&](const std::string& name) { return workspace_.at(name).empty(); });
  return names;
}

void Session::part_from_arrays(const std::set<std::string>& kept) {
  if (lent_.empty()) return;
  for (const std::weak_ptr<Lent>& weak : lent_) {
    const std::shared_ptr<Lent> lent = weak.lock();
    if (!lent) continue;
    for (const std::string& name : workspace_.names()) {
      Blob& blob = workspace_.at(name);
      if (!blob.is_tensor() || blob.tensor().storage() != lent->storage) continue;
      blob.tensor() = kept.contains(name) ? blob.tensor().clone() : Tensor();
    }
  }
  lent_.clear();
}

void Session::part_from(const std::shared_ptr<Storage>& bytes) {
  for (const std::string& name : workspace_.names()) {
    Blob& blob = workspace_.at(name);
    if (blob.is_tensor() && blob.tensor().storage() == bytes) blob.tensor() = blob.tensor().clone();
  }
}

namespace {

nb::object dlpack_capsule(const Tensor& value, const nb::kwargs& how) {
  return dlpack_of(value).attr("__dlpack__")(**how);
}

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(
      module, "Tensor",
      "Bytes that Stepnet shares with other libraries, by DLPack. Tensor(x) copies nothing of an array x.")
      .def(
          "__init__",
          [](Tensor* self, nb::object value) {
            new (self) Tensor(nb::isinstance<nb::list>(value) ? tensor_of(value, Bytes::copied)
                                                              : tensor_of(value, Bytes::shared));
          },
          nb::arg("value"))
      .def_prop_ro("shape", [](const Tensor& self) { return shape_of(self.shape()); })
      .def_prop_ro("dtype", [](const Tensor& self) { return numpy_name(self.dtype()); })
      .def(
          "numpy", [](const Tensor& self) { return shared_array_of(self, self.storage(), true); },
          nb::sig("def numpy(self) -> numpy.ndarray"),
          "A NumPy array of the same bytes; of strings and bfloat16 a copy.")
      .def("__dlpack__", &dlpack_capsule)
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); })
      .def("__repr__", [](const Tensor& self) { return "stepnet.Tensor(" + self.str() + ")"; });
}

}  // namespace

void bind_session(nb::module_& module) {
  bind_tensor(module);
  nb::class_<Session>(module, "Workspace", "Named values that nets read and write.")
      .def(nb::init<>())
      .def("__getitem__", &Session::get, nb::arg("name"), nb::sig("def __getitem__(self, name: str) -> numpy.ndarray"),
           "A read-only array of the blob's bytes. It never changes: a net that runs later writes elsewhere.")
      .def("__setitem__", &Session::set, nb::arg("name"), nb::arg("value"), "Copies an array into the blob.")
      .def("__delitem__", &Session::remove, nb::arg("name"))
      .def("__contains__", &Session::contains, nb::arg("name"))
      .def("__len__", [](Session& self) { return self.names().size(); })
      .def("__iter__", [](Session& self) { return nb::iter(nb::cast(self.names())); })
      .def("keys", &Session::names, "The names of all blobs that hold something.")
      .def("tensor", &Session::lend, nb::arg("name"),
           "The blob's bytes for other libraries, which share them until a net runs in this workspace.");
}

}  // namespace stepnet::python
