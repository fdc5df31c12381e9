#include "tests/recurrent/cell_files.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/passes/defined_operators.h"
#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tools/source_path.h"

namespace stepnet::testing {
namespace {

std::string path_of(const std::string& name) {
  const bool has_folder = name.find('/') != std::string::npos;
  return source_path(fmt::format("tools/examples/{}{}.pbtxt", has_folder ? "" : "cells/", name));
}

// "4H" is 4 sizes['H'], "I+D" a sum, "1" a number.
int64_t size_of(const std::string& text, const Sizes& sizes) {
  int64_t total = 0;
  std::istringstream terms(text);
  for (std::string term; std::getline(terms, term, '+');) {
    const bool letter = std::isalpha(term.back()) != 0;
    const std::string digits = letter ? term.substr(0, term.size() - 1) : term;
    total += (digits.empty() ? 1 : std::stoll(digits)) * (letter ? sizes.at(term.back()) : 1);
  }
  return total;
}

Shape shape_of(const std::string& text, const Sizes& sizes) {
  Shape shape;
  static const std::regex kSize("[0-9A-Z+]+");
  for (std::sregex_iterator it(text.begin(), text.end(), kSize), end; it != end; ++it)
    shape.push_back(size_of(it->str(), sizes));
  return shape;
}

// The comment lines of the file from "# Inputs:" on.
std::string inputs_comment(const std::string& name) {
  std::ifstream file(path_of(name));
  std::string text;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (inside && !line.starts_with("#")) break;
    if (inside) text += line;
    inside = inside || line == "# Inputs:";
  }
  require(!text.empty(), "{} has no comment that names its inputs", path_of(name));
  return text;
}

void evaluate_dropouts(NetDef& net) {
  for (OperatorDef& op : *net.mutable_op()) {
    if (op.HasExtension(recurrent)) evaluate_dropouts(*op.MutableExtension(recurrent)->mutable_step_net());
    if (op.type() != "Dropout") continue;
    for (Argument& arg : *op.mutable_arg())
      if (arg.name() == "is_test") arg.set_i(1);
  }
}

}  // namespace

const Tensor& Weights::tensor(const std::string& name) const {
  const auto it = blobs_.find(name);
  require(it != blobs_.end(), "the reference reads \"{}\", which the net does not have", name);
  return it->second;
}

Vec Weights::operator[](const std::string& name) const {
  const Tensor t = to_double(tensor(name));
  return Vec(t.data<double>(), static_cast<size_t>(t.size()));
}

Vec Weights::row(const std::string& name, int64_t at, int64_t n) const {
  const Tensor& t = tensor(name);
  const int before = t.shape().rank() > 2 ? 2 : 1;
  int64_t size = 1;
  for (int d = before; d < t.shape().rank(); ++d) size *= t.dim(d);
  const int64_t index = at * t.dim(before - 1) + n;
  return Vec((*this)[name][std::slice(static_cast<size_t>(index * size), static_cast<size_t>(size), 1)]);
}

int64_t Weights::rows(const std::string& name) const { return tensor(name).dim(0); }

Vec Weights::affine(const std::string& w, const std::string& b, const Vec& x) const {
  Vec y(0.0, static_cast<size_t>(rows(w)));
  for (size_t i = 0; i < y.size(); ++i) y[i] = dot(row(w, 0, static_cast<int64_t>(i)), x);
  if (!b.empty()) y += (*this)[b];
  return y;
}

Vec sigmoid(const Vec& x) { return 1.0 / (1.0 + std::exp(-x)); }

Vec part(const Vec& x, size_t index, size_t of) { return x[std::slice(index * (x.size() / of), x.size() / of, 1)]; }

Vec joined(const Vec& a, const Vec& b) {
  Vec both(a.size() + b.size());
  std::copy(std::begin(a), std::end(a), std::begin(both));
  std::copy(std::begin(b), std::end(b), std::begin(both) + a.size());
  return both;
}

double dot(const Vec& a, const Vec& b) { return (a * b).sum(); }

void PrintTo(const CellFile& c, std::ostream* out) { *out << c.name; }

std::vector<CellFile> smooth_cell_files() {
  std::vector<CellFile> files = cell_files();
  std::erase_if(files, [](const CellFile& c) { return c.surrogate; });
  return files;
}

NetDef cell_net(const std::string& name, bool evaluate) {
  NetDef net = load_net(path_of(name));
  if (evaluate) evaluate_dropouts(net);
  return net;
}

Feeds cell_feeds(const std::string& name, DType dtype, const Sizes& sizes) {
  const std::string text = inputs_comment(name);
  static const std::regex kInput("(\\w+) (int32 )?\\[([^\\]]*)\\]");
  Feeds feeds;
  for (std::sregex_iterator it(text.begin(), text.end(), kInput), end; it != end; ++it) {
    const Shape shape = shape_of((*it)[3], sizes);
    const uint64_t seed = 70 + feeds.size();
    if ((*it)[2].matched) {
      feeds.emplace_back((*it)[1], integers<int32_t>(shape, 0, sizes.at('T'), seed));
    } else {
      feeds.emplace_back(
          (*it)[1], dtype == DType::float64 ? normal<double>(shape, seed, 0, 0.7) : normal<float>(shape, seed, 0, 0.7));
    }
  }
  return feeds;
}

OperatorDef& recurrent_op(NetDef& net) {
  for (OperatorDef& op : *net.mutable_op())
    if (op.type() == "RecurrentNetwork") return op;
  throw Error("the net has no RecurrentNetwork");
}

NetDef without_passes(NetDef net, const std::vector<std::string>& passes) {
  for (OperatorDef& op : *net.mutable_op())
    if (op.type() == "RecurrentNetwork" && !passes.empty()) *op.add_arg() = make_arg("disabled_passes", passes);
  return net;
}

std::map<std::string, Tensor> run_forward(const NetDef& net, const Feeds& feeds) {
  NetDef full = net;
  expand_recurrent(full);
  Workspace workspace;
  std::map<std::string, Tensor> blobs;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = blobs[name] = value.clone();
  RunContext run;
  run_net_once(full, workspace, run);
  for (const OperatorDef& op : full.op())
    for (const std::string& name : op.output())
      if (const Blob* blob = workspace.find(name); blob && blob->is_tensor() && !blob->empty())
        blobs[name] = blob->tensor().clone();
  return blobs;
}

std::map<std::string, Tensor> run_reference(const NetDef& net, const std::map<std::string, Tensor>& blobs,
                                            Reference reference) {
  NetDef copy = net;
  const RecurrentDef def = recurrent_op(copy).GetExtension(recurrent);
  const Weights weights(blobs);
  const Tensor& sequence = weights.tensor(def.sequence(0).outer());
  const int64_t steps = sequence.dim(0), batch = sequence.dim(1);
  std::map<std::string, Tensor> outputs;
  for (const StateLink& s : def.state()) {
    const Shape row = weights.tensor(s.initial()).shape();
    if (s.has_all()) outputs[s.all()] = Tensor::zeros(DType::float64, row.with(0, steps));
    if (s.has_last()) outputs[s.last()] = Tensor::zeros(DType::float64, row);
  }
  auto put = [&](const std::string& name, int64_t at, int64_t n, const Vec& value) {
    if (!name.empty()) std::copy(std::begin(value), std::end(value), outputs[name].row(at).row(n).data<double>());
  };
  for (int64_t n = 0; n < batch; ++n) {
    States states;
    for (const StateLink& s : def.state()) states[s.output()] = weights.row(s.initial(), 0, n);
    for (int64_t t = 0; t < steps; ++t) {
      reference(weights, {t, n, weights.row(def.sequence(0).outer(), t, n)}, states);
      for (const StateLink& s : def.state()) put(s.all(), t, n, states[s.output()]);
      for (const OutputLink& o : def.output()) {
        const Vec& shown = states.at(o.inner());
        outputs.try_emplace(o.outer(),
                            Tensor::zeros(DType::float64, {steps, batch, static_cast<int64_t>(shown.size())}));
        put(o.outer(), t, n, shown);
      }
    }
    for (const StateLink& s : def.state()) put(s.last(), 0, n, states[s.output()]);
  }
  return outputs;
}

std::pair<Cell, Feeds> cell_of(const NetDef& net, const std::map<std::string, Tensor>& blobs) {
  NetDef copy = net;
  expand_defined_operators(copy);
  OperatorDef op = recurrent_op(copy);
  const RecurrentDef& def = op.GetExtension(recurrent);
  auto renamed = [&](const std::string& name) {
    return name == def.sequence(0).outer() ? "X" : name == def.sequence(0).inner() ? "x" : name;
  };
  Cell cell;
  cell.step_net = def.step_net();
  for (OperatorDef& inner : *cell.step_net.mutable_op())
    for (std::string& name : *inner.mutable_input()) name = renamed(name);
  cell.step_net.clear_external_input();
  for (const StateLink& s : def.state()) cell.states.push_back({s.input(), s.output(), s.initial(), s.all(), s.last()});
  for (const OutputLink& o : def.output()) cell.outputs.push_back({o.inner(), o.outer()});
  Feeds feeds;
  for (const std::string& name : op.input()) feeds.emplace_back(renamed(name), blobs.at(name));
  return {cell, feeds};
}

}  // namespace stepnet::testing
