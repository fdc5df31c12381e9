#include "tools/python/src/training.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/compute/threads.h"
#include "core/nearest.h"
#include "core/passes/defined_operators.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/trained_model.h"
#include "stepnet/sampler.h"
#include "stepnet/trainer.h"
#include "tools/python/src/arrays.h"
#include "tools/python/src/errors.h"
#include "tools/python/src/net_object.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

FileRootPtr files_below(const std::string& folder) {
  return folder.empty() ? nullptr : std::make_shared<const FileRoot>(folder);
}

std::string setting_text(nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(Py_True) ? "1" : "0";
  return nb::cast<std::string>(nb::str(value));
}

std::string with_dashes(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

// Sets the option of that name, one that is no setting of the run. False if there is none.
class OptionSetter {
 public:
  OptionSetter(const std::string& name, nb::handle value) : name_(name), value_(value) {}
  template <class T>
  OptionSetter& set(const char* name, T& option) {
    names_.emplace_back(name);
    if (name_ != name) return *this;
    try {
      option = nb::cast<T>(value_);
    } catch (const nb::cast_error&) {
      fail("the option {} cannot be {}", name, nb::cast<std::string>(nb::repr(value_)));
    }
    done_ = true;
    return *this;
  }
  bool done() const { return done_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::string& name_;
  nb::handle value_;
  bool done_ = false;
  std::vector<std::string> names_;
};

TrainOptions options_of(const nb::dict& given) {
  TrainOptions o;
  std::map<std::string, std::string> settings = settings_of(o);
  std::vector<std::string> names;
  for (const auto& [name, text] : settings) names.push_back(name);
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    const std::string setting = with_dashes(name);
    if (value.is_none()) continue;
    if (const auto found = settings.find(setting); found != settings.end()) {
      found->second = setting_text(value);
      o.given.insert(setting);
      continue;
    }
    OptionSetter option(name, value);
    option.set("text", o.text).set("data", o.data).set("held_out_data", o.held_out_data).set("out", o.out);
    option.set("iterations", o.iterations).set("epochs", o.epochs).set("seconds", o.seconds).set("resume", o.resume);
    option.set("memory_budget", o.memory_budget).set("offload", o.offload).set("metrics", o.metrics);
    option.set("tensorboard", o.tensorboard);
    option.set("keep_all", o.keep_all).set("detect_anomaly", o.detect_anomaly);
    std::vector<std::string> all = option.names();
    for (std::string known : names) {
      std::ranges::replace(known, '-', '_');
      all.push_back(known);
    }
    require(option.done(), "there is no option \"{}\".{} There are {}.", name, Nearest{name, all},
            fmt::join(all, ", "));
  }
  const std::set<std::string> named = std::exchange(o.given, {});
  take_settings(settings, o);
  o.given = named;
  return o;
}

// What Python is told while a run lasts, and how it ends one.
class Watch {
 public:
  Watch(nb::object iteration, nb::object validation, nb::object note)
      : iteration_(std::move(iteration)), validation_(std::move(validation)), note_(std::move(note)) {}

  const std::atomic<bool>* stop() const { return &stop_; }

  TrainEvents events() {
    return {.iteration = [this](const TrainProgress& p) { tell(iteration_, p); },
            .validation = [this](const ValidationResult& v) { tell(validation_, v); },
            .note = [this](const std::string& text) { tell(note_, text); },
            .warn = [this](const std::string& text) { guard([&] { warn_python(text); }); }};
  }
  // Raises what a function, or a signal, has raised.
  void finish() {
    if (!raised_) return;
    raised_->restore();
    throw nb::python_error();
  }

 private:
  template <class T>
  void tell(const nb::object& function, const T& what) {
    guard([&] {
      if (!function.is_none()) function(what);
    });
  }
  // What is raised in Python ends the run after its iteration, and is raised by finish.
  template <class F>
  void guard(const F& call) {
    const nb::gil_scoped_acquire lock;
    if (raised_) return;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      call();
    } catch (nb::python_error& e) {
      raised_.emplace(e);
      stop_ = true;
    }
  }

  nb::object iteration_, validation_, note_;
  std::optional<nb::python_error> raised_;
  std::atomic<bool> stop_ = false;
};

TrainResult train(nb::object source, const nb::dict& options, const std::string& root, nb::object on_iteration,
                  nb::object on_validation, nb::object on_note) {
  NetDef net = net_of(source);
  expand_defined_operators(net);
  TrainOptions o = options_of(options);
  o.files = files_below(root);
  Watch watch(std::move(on_iteration), std::move(on_validation), std::move(on_note));
  o.stop = watch.stop();
  TrainResult result;
  {
    const nb::gil_scoped_release others;
    Trainer trainer(net, o, watch.events());
    result = trainer.run();
  }
  watch.finish();
  return result;
}

Checkpoint checkpoint_of(const std::string& out, const std::string& checkpoint) {
  if (out.empty() == checkpoint.empty())
    throw Error("one thing must say which parameters to use",
                "give either the folder of a run as out, or a checkpoint");
  return checkpoint.empty() ? load_best(out) : load_checkpoint(FilePlace(nullptr, checkpoint));
}

// A net that is given in place of the one that was trained, with what its definitions stand for; else none.
std::optional<NetDef> given_net(const nb::object& source) {
  if (source.is_none()) return std::nullopt;
  NetDef net = net_of(source);
  expand_defined_operators(net);
  return net;
}

std::unique_ptr<TrainedModel> trained(const std::optional<NetDef>& net, const std::string& out,
                                      const std::string& checkpoint, const std::string& root, int64_t batch) {
  const Checkpoint loaded = checkpoint_of(out, checkpoint);
  auto model = net ? std::make_unique<TrainedModel>(*net, loaded, files_below(root))
                   : std::make_unique<TrainedModel>(loaded, files_below(root));
  require(batch >= 0, "a batch of {} samples", batch);
  if (batch > 0) model->set_batch(batch);
  return model;
}

nb::dict evaluate(const std::vector<std::string>& data, nb::object source, const std::string& out,
                  const std::string& checkpoint, const std::string& root, int64_t batch, double holdout,
                  const std::string& fold) {
  const std::optional<NetDef> net = given_net(source);
  const TrainedModel::Evaluation e = [&] {
    const nb::gil_scoped_release others;
    return trained(net, out, checkpoint, root, batch)->evaluate(data, {.holdout = holdout, .fold = fold});
  }();
  nb::dict result;
  result["samples"] = e.samples;
  result["loss"] = e.loss;
  for (const auto& [name, value] : e.metrics) result[name.c_str()] = value;
  return result;
}

nb::dict predict(const std::vector<std::string>& data, const std::vector<std::pair<std::string, int>>& outputs,
                 nb::object source, const std::string& out, const std::string& checkpoint, const std::string& root,
                 int64_t batch) {
  const std::optional<NetDef> net = given_net(source);
  std::vector<TrainedModel::Output> wanted;
  for (const auto& [blob, axis] : outputs) wanted.push_back({blob, axis});
  const std::vector<Tensor> values = [&] {
    const nb::gil_scoped_release others;
    return trained(net, out, checkpoint, root, batch)->predict(data, wanted);
  }();
  nb::dict result;
  for (size_t i = 0; i < values.size(); ++i)
    result[wanted[i].blob.c_str()] = shared_array_of(values[i], values[i].storage(), true);
  return result;
}

std::unique_ptr<Sampler> sampler_of(const nb::object& source, const std::string& out, const std::string& checkpoint,
                                    const std::string& root) {
  const Checkpoint loaded = checkpoint_of(out, checkpoint);
  const std::optional<NetDef> net = given_net(source);
  return net ? std::make_unique<Sampler>(*net, loaded, files_below(root))
             : std::make_unique<Sampler>(loaded, files_below(root));
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::bytes sample(nb::object net, const std::string& out, const std::string& checkpoint, const std::string& root,
                 int64_t length, double temperature, const std::string& prompt, const std::string& stop,
                 uint64_t seed) {
  const SampleOptions options{length, temperature, prompt, stop, seed};
  check_options(options);
  const std::unique_ptr<Sampler> sampler = sampler_of(net, out, checkpoint, root);
  std::string text;
  {
    const nb::gil_scoped_release others;
    sampler->sample(options, [&](char byte) {
      text += byte;
      return true;
    });
  }
  return bytes_of(text);
}

nb::list search(nb::object net, const std::string& out, const std::string& checkpoint, const std::string& root,
                int beams, int64_t length, double length_penalty, const std::string& prompt, const std::string& stop) {
  const SearchOptions options{beams, length, length_penalty, prompt, stop};
  const std::unique_ptr<Sampler> sampler = sampler_of(net, out, checkpoint, root);
  const std::vector<FoundText> found = [&] {
    const nb::gil_scoped_release others;
    return sampler->search(options);
  }();
  nb::list list;
  for (const FoundText& f : found) list.append(nb::make_tuple(bytes_of(f.text), f.score, f.log_probability));
  return list;
}

nb::dict dict_of(const std::vector<std::pair<std::string, double>>& values) {
  nb::dict dict;
  for (const auto& [name, value] : values) dict[name.c_str()] = value;
  return dict;
}

void bind_results(nb::module_& module) {
  nb::class_<TrainProgress>(module, "TrainProgress", "How far a run has come.")
      .def_ro("iteration", &TrainProgress::iteration)
      .def_ro("total", &TrainProgress::total)
      .def_ro("loss", &TrainProgress::loss)
      .def_ro("learning_rate", &TrainProgress::learning_rate)
      .def_ro("seconds", &TrainProgress::seconds)
      .def_ro("seconds_left", &TrainProgress::seconds_left);
  nb::class_<ValidationResult>(module, "ValidationResult", "The held-out part, in the course of a run.")
      .def_ro("iteration", &ValidationResult::iteration)
      .def_ro("loss", &ValidationResult::loss)
      .def_ro("best", &ValidationResult::best)
      .def_prop_ro("metrics", [](const ValidationResult& self) { return dict_of(self.metrics); });
  nb::class_<TrainResult>(module, "TrainResult", "How a run ended.")
      .def_ro("iteration", &TrainResult::iteration)
      .def_ro("total", &TrainResult::total)
      .def_ro("finished", &TrainResult::finished)
      .def_ro("loss", &TrainResult::loss)
      .def_ro("validation_loss", &TrainResult::validation_loss)
      .def_ro("best_loss", &TrainResult::best_loss)
      .def_ro("seconds", &TrainResult::seconds)
      .def_prop_ro("metrics", [](const TrainResult& self) { return dict_of(self.metrics); });
}

}  // namespace

void bind_training(nb::module_& module) {
  bind_results(module);
  module.def("train", &train, nb::arg("net"), nb::arg("options"), nb::arg("root"), nb::arg("on_iteration").none(),
             nb::arg("on_validation").none(), nb::arg("on_note").none());
  module.def("evaluate", &evaluate, nb::arg("data"), nb::arg("net").none(), nb::arg("out"), nb::arg("checkpoint"),
             nb::arg("root"), nb::arg("batch"), nb::arg("holdout"), nb::arg("fold"));
  module.def("predict", &predict, nb::arg("data"), nb::arg("outputs"), nb::arg("net").none(), nb::arg("out"),
             nb::arg("checkpoint"), nb::arg("root"), nb::arg("batch"));
  module.def("sample", &sample, nb::arg("net").none(), nb::arg("out"), nb::arg("checkpoint"), nb::arg("root"),
             nb::arg("length"), nb::arg("temperature"), nb::arg("prompt"), nb::arg("stop"), nb::arg("seed"));
  module.def("search", &search, nb::arg("net").none(), nb::arg("out"), nb::arg("checkpoint"), nb::arg("root"),
             nb::arg("beams"), nb::arg("length"), nb::arg("length_penalty"), nb::arg("prompt"), nb::arg("stop"));
}

}  // namespace stepnet::python
