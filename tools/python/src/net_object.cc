#include "tools/python/src/net_object.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/proto/recurrent.pb.h"
#include "stepnet/text.h"
#include "tools/python/src/arrays.h"
#include "tools/python/src/errors.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// From so many bytes on an array is shared or moved, and not copied.
constexpr size_t kShared = 16384;

nb::object interned(const std::string& name) { return nb::steal(PyUnicode_InternFromString(name.c_str())); }

bool is_path(nb::handle source) { return PyObject_HasAttrString(source.ptr(), "__fspath__") != 0; }

// What no operator reads behind the one that writes it last.
std::vector<std::string> last_values(const NetDef& def) {
  std::vector<std::string> names;
  for (int i = 0; i < def.op_size(); ++i)
    for (const std::string& name : def.op(i).output()) {
      const bool is_read = std::any_of(def.op().begin() + i + 1, def.op().end(), [&](const OperatorDef& op) {
        return std::ranges::find(op.input(), name) != op.input().end();
      });
      if (!name.empty() && !is_read && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  return names;
}

}  // namespace

// What a call was given: it leaves the blobs when the call ends, however it does.
class NetObject::Fed {
 public:
  Fed(Session& session, bool leaves) : session_(session), leaves_(leaves) {}
  ~Fed() {
    if (!leaves_) return;
    for (Input* input : inputs_) {
      if (!input->blob->is_tensor()) continue;
      const std::shared_ptr<Storage> bytes = input->blob->tensor().storage();
      input->blob->clear();
      if (bytes && bytes.use_count() > 1) session_.part_from(bytes);
    }
  }
  Fed(const Fed&) = delete;
  Fed& operator=(const Fed&) = delete;

  void add(Input& input, nb::handle value) {
    inputs_.push_back(&input);
    try {
      put_into(input.blob->tensor(), value, leaves_ && !input.overwritten ? kShared : SIZE_MAX);
    } catch (Error& e) {
      throw e.prefix(fmt::format("the value of \"{}\"", input.name));
    }
  }

 private:
  Session& session_;
  bool leaves_;
  std::vector<Input*> inputs_;
};

NetObject::NetObject(NetDef source, std::shared_ptr<Session> session, std::vector<std::string> outputs, uint64_t seed)
    : source_(std::move(source)), def_(source_), session_(std::move(session)) {
  expand_recurrent(def_);
  check_net(def_, nullptr);
  context_.seed = seed;
  warn_ = warn_python;
  context_.warn = &warn_;
  const BoundNet bound(def_);
  for (const int blob : bound.flow.from_outside()) kept_.insert(bound.flow.name(blob));
  for (const std::string& name : read_from_outside(def_)) {
    if (name.empty()) continue;
    const int blob = bound.flow.find(name);
    const int last = blob < 0 ? -1 : bound.flow.last(blob);
    inputs_.push_back({name, interned(name), nullptr, last >= 0 && bound.flow.value(last).writer >= 0});
    kept_.insert(name);
  }
  choose_outputs(outputs);
}

void NetObject::choose_outputs(const std::vector<std::string>& wanted) {
  std::vector<std::string> names = wanted;
  if (names.empty()) names.assign(def_.external_output().begin(), def_.external_output().end());
  if (names.empty()) names = last_values(def_);
  const std::set<std::string> written = written_names(def_);
  for (const std::string& name : names) {
    require(written.contains(name), "the net writes no blob \"{}\".{}", name, Nearest{name, written});
    outputs_.push_back({name, interned(name), nullptr, kept_.contains(name)});
  }
}

std::vector<std::string> NetObject::input_names() const {
  std::vector<std::string> names;
  for (const Input& input : inputs_) names.push_back(input.name);
  return names;
}

std::vector<std::string> NetObject::output_names() const {
  std::vector<std::string> names;
  for (const Output& output : outputs_) names.push_back(output.name);
  return names;
}

void NetObject::bind() {
  if (net_) return;
  Workspace& workspace = session_->workspace();
  for (Input& input : inputs_) input.blob = &workspace.create(input.name);
  net_ = std::make_unique<Net>(def_, workspace);
  for (Output& output : outputs_) output.blob = &workspace.create(output.name);
}

NetObject::Input& NetObject::input(nb::handle key) {
  for (Input& input : inputs_)
    if (input.key.is(key)) return input;
  const auto name = nb::cast<std::string>(key);
  for (Input& input : inputs_)
    if (input.name == name) return input;
  const std::vector<std::string> names = input_names();
  throw Error(fmt::format("the net reads no blob \"{}\" from outside.{}", name, Nearest{name, names}),
              names.empty() ? "it reads none" : fmt::format("its inputs are {}", fmt::join(names, ", ")));
}

void NetObject::feed(const nb::args& feeds, const nb::kwargs& named, Fed& fed) {
  for (const nb::handle values : feeds) {
    require(nb::isinstance<nb::dict>(values),
            "a net is given arrays by their names: net(x=...), or net({{\"x\": ...}})");
    for (const auto& [key, value] : nb::borrow<nb::dict>(values)) fed.add(input(key), value);
  }
  for (const auto& [key, value] : named) fed.add(input(key), value);
}

void NetObject::require_inputs() const {
  for (const Input& input : inputs_)
    if (input.blob->empty())
      throw Error(
          fmt::format("the net reads \"{}\", which holds nothing", input.name),
          fmt::format("give it to the call, or put it into the workspace: net.workspace[\"{}\"] = ...", input.name));
}

void NetObject::run_operators() {
  const nb::gil_scoped_release others;
  net_->run(context_);
}

nb::object NetObject::take(Output& output) const {
  if (!output.blob->is_tensor() || output.blob->empty()) return nb::none();
  Tensor& value = output.blob->tensor();
  const bool is_moved = !output.kept && value.bytes() >= kShared && value.storage().use_count() == 1;
  const nb::object array = is_moved ? shared_array_of(value, value.storage(), true) : array_of(value);
  if (!output.kept) output.blob->clear();
  return array;
}

nb::dict NetObject::call(const nb::args& feeds, const nb::kwargs& named) {
  const RunLock lock(session_->runs());
  bind();
  session_->part_from_arrays(kept_);
  nb::dict made;
  Fed fed(*session_, true);
  feed(feeds, named, fed);
  require_inputs();
  run_operators();
  for (Output& output : outputs_) made[output.key] = take(output);
  return made;
}

void NetObject::run(const nb::args& feeds, const nb::kwargs& named) {
  const RunLock lock(session_->runs());
  bind();
  session_->part_from_arrays(kept_);
  Fed fed(*session_, false);
  feed(feeds, named, fed);
  require_inputs();
  run_operators();
}

void NetObject::make_parameters(uint64_t seed) {
  const ModelDef& model = source_.GetExtension(stepnet::model);
  if (!model.has_init())
    throw Error(
        fmt::format("net \"{}\" has no argument stepnet.model with a net that makes parameters", source_.name()),
        "put the parameters into net.workspace");
  NetDef init = model.init();
  expand_recurrent(init);
  const RunLock lock(session_->runs());
  session_->part_from_arrays(kept_);
  RunContext run;
  run.seed = seed;
  const nb::gil_scoped_release others;
  run_net_once(init, session_->workspace(), run);
}

NetDef net_of(nb::handle source) {
  if (nb::isinstance<NetObject>(source)) return nb::inst_ptr<NetObject>(source)->source();
  if (is_path(source)) return load_net(nb::cast<std::string>(source.attr("__fspath__")()));
  require(nb::isinstance<nb::str>(source), "a net is text, a path (pathlib.Path) or a Net, not {}",
          nb::cast<std::string>(nb::repr(source.type())));
  const auto text = nb::cast<std::string>(source);
  if (text.find('{') == text.npos && text.find('\n') == text.npos && !text.empty()) return load_net(text);
  return parse_net_text(text);
}

namespace {

std::unique_ptr<NetObject> with_gradients(const NetObject& net, const std::string& loss,
                                          const std::vector<std::string>& wanted) {
  NetDef def = net.def();
  GradientRequest request;
  request.targets = {{loss, ""}};
  request.wanted = {wanted.begin(), wanted.end()};
  const GradientResult result = add_gradient_operators(def, request);
  std::vector<std::string> outputs = net.output_names();
  if (std::ranges::find(outputs, loss) == outputs.end()) outputs.push_back(loss);
  const std::vector<std::string> inputs = net.input_names();
  for (const std::string& name : wanted.empty() ? inputs : wanted) {
    const auto found = result.gradients.find(name);
    if (found == result.gradients.end()) continue;
    const GradientName& gradient = found->second;
    for (const std::string& part : {gradient.dense, gradient.indices, gradient.values})
      if (!part.empty()) outputs.push_back(part);
  }
  return std::make_unique<NetObject>(def, net.session(), outputs, 1);
}

}  // namespace

void bind_net(nb::module_& module) {
  nb::class_<NetObject>(module, "Net",
                        "A net, from its text, a path or another net, and the workspace that it runs in.")
      .def(
          "__init__",
          [](NetObject* self, nb::object source, std::optional<std::shared_ptr<Session>> workspace,
             const std::vector<std::string>& outputs, uint64_t seed) {
            new (self) NetObject(net_of(source), workspace ? *workspace : std::make_shared<Session>(), outputs, seed);
          },
          nb::arg("source"), nb::kw_only(), nb::arg("workspace") = nb::none(),
          nb::arg("outputs") = std::vector<std::string>(), nb::arg("seed") = 1)
      .def(
          "__call__", &NetObject::call,
          nb::sig("def __call__(self, *feeds: dict[str, typing.Any], **named: typing.Any) -> dict[str, numpy.ndarray]"),
          "Runs the net on arrays, and returns its outputs by their names.")
      .def("run", &NetObject::run, "Puts arrays into the workspace and runs the net; its outputs are in the workspace.")
      .def("make_parameters", &NetObject::make_parameters, nb::arg("seed") = 1,
           "Runs the net that makes parameters, of a net with the argument stepnet.model.")
      .def("with_gradients", &with_gradients, nb::arg("loss"), nb::arg("wanted") = std::vector<std::string>(),
           "The net with the backward pass of a blob, in the same workspace. `wanted`: blobs whose gradients are "
           "needed; "
           "else all that come from outside.")
      .def_prop_ro("name", [](const NetObject& self) { return self.source().name(); })
      .def_prop_ro("inputs", &NetObject::input_names, "What the net reads from outside.")
      .def_prop_ro("outputs", &NetObject::output_names, "What a call returns.")
      .def_prop_ro("workspace", &NetObject::session)
      .def_prop_ro("text", [](const NetObject& self) { return to_text(self.source()); })
      .def_prop_ro(
          "expanded", [](const NetObject& self) { return to_text(self.def()); },
          "The text of the net as it runs, without short forms.")
      .def_prop_ro("runs", &NetObject::runs)
      .def(
          "_repr_svg_",
          [](nb::handle self) {
            return nb::module_::import_("stepnet.training").attr("draw")(self).attr("_repr_svg_")();
          },
          nb::sig("def _repr_svg_(self) -> str | None"))
      .def("__repr__", [](const NetObject& self) {
        return fmt::format("<stepnet.Net \"{}\": ({}) -> ({})>", self.source().name(),
                           fmt::join(self.input_names(), ", "), fmt::join(self.output_names(), ", "));
      });
}

}  // namespace stepnet::python
