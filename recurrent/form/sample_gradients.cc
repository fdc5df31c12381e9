// What is made of the gradients that recurrent/form/per_sample.h has found: operators of the public format alone.
#include <algorithm>
#include <functional>

#include "core/passes/gradient_sums.h"
#include "recurrent/form/per_sample.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

using Kind = SampleReader::Kind;
using Dims = std::vector<int64_t>;
using Strings = std::vector<std::string>;

// Appends operators whose outputs have names of their own.
class Emitter {
 public:
  Emitter(NetDef& net, const SampleTaps& taps, const char* prefix) : net_(net), taps_(taps), prefix_(prefix) {
    for (const OperatorDef& op : net.op()) {
      names_.insert(op.input().begin(), op.input().end());
      names_.insert(op.output().begin(), op.output().end());
    }
  }

  void for_reader(const SampleReader& r) { like_ = &r.op; }

  std::string add(const std::string& type, const Strings& inputs, const std::vector<Argument>& args = {}) {
    return add(type, inputs, {fresh(type)}, args);
  }
  // Returns the first output that is not "".
  std::string add(const std::string& type, const Strings& inputs, const Strings& outputs,
                  const std::vector<Argument>& args) {
    OperatorDef& op = append_gradient_op(net_, type, *like_);
    op.mutable_input()->Add(inputs.begin(), inputs.end());
    op.mutable_output()->Add(outputs.begin(), outputs.end());
    op.mutable_arg()->Add(args.begin(), args.end());
    return *std::ranges::find_if(outputs, [](const std::string& name) { return !name.empty(); });
  }
  std::string fresh(const std::string& base) {
    std::string name = prefix_ + base;
    for (int n = 1; !names_.insert(name).second; ++n) name = fmt::format("{}{}_{}", prefix_, base, n);
    return name;
  }

  std::string reshape(const std::string& from, const Dims& dims) {
    const std::string to = fresh("rows");
    add("Reshape", {from}, {to, fresh("old_shape")}, {make_arg("shape", dims)});
    return to;
  }
  // From rows of all samples, [groups, samples, rows, n], to those of one after the other: [samples, rows of it, n].
  std::string by_sample(const SampleReader& r, const std::string& from, int64_t n) {
    const int64_t samples = taps_.samples;
    std::string rows = from;
    if (r.groups != 1) {
      const Dims dims = r.rows == 1 ? Dims{r.groups, samples, n} : Dims{r.groups, samples, r.rows, n};
      const Dims axes = r.rows == 1 ? Dims{1, 0, 2} : Dims{1, 0, 2, 3};
      rows = add("Transpose", {reshape(from, dims)}, {make_arg("axes", axes)});
      if (r.rows == 1) return rows;
    }
    return reshape(rows, {samples, r.groups * r.rows, n});
  }
  std::string product(const std::string& a, const std::string& b, bool trans_a, bool trans_b) {
    return add("BatchMatMul", {a, b}, {make_arg("trans_a", trans_a), make_arg("trans_b", trans_b)});
  }
  // Of all but the first dimension.
  std::string sum_back(const std::string& from, int rank) {
    return add("ReduceBackSum", {from}, {make_arg("num_reduce_dim", rank - 1)});
  }
  std::string squares(const std::string& from, int rank) { return sum_back(add("Mul", {from, from}), rank); }
  std::string total(const Strings& terms) { return terms.size() == 1 ? terms[0] : add("Sum", terms); }

  // 1 where two of a sample's indices are equal, [samples, rows, rows].
  std::string equal_indices(const SampleReader& r) {
    const int64_t n = r.groups * r.rows;
    const std::string indices = by_sample(r, r.x, 1);
    const std::string same =
        add("EQ", {indices, reshape(indices, {taps_.samples, 1, n})}, {make_arg("broadcast", true)});
    return add("Cast", {same}, {make_arg("to", static_cast<int>(taps_.dtype))});
  }

  const SampleTaps& taps() const { return taps_; }

 private:
  NetDef& net_;
  const SampleTaps& taps_;
  const std::string prefix_;
  std::set<std::string> names_;
  const OperatorDef* like_ = nullptr;
};

Dims shape_of(const SampleTaps& taps, const std::string& parameter) {
  const Shape& shape = taps.shapes.at(parameter);
  return {shape.begin(), shape.end()};
}

// [samples, ...]
Dims dims_of(const SampleTaps& taps, const std::string& parameter) {
  const Shape& shape = taps.shapes.at(parameter);
  Dims dims = {taps.samples};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return dims;
}

// [samples, ...]: what the reader adds to the gradient of the parameter.
std::string sample_gradient(Emitter& e, const SampleReader& r, const std::string& parameter) {
  e.for_reader(r);
  const Dims dims = dims_of(e.taps(), parameter);
  if (r.kind == Kind::copies) return e.reshape(r.gradient, dims);
  const std::string dy = e.by_sample(r, r.gradient, r.out);
  if (parameter == r.bias) return e.add("ReduceSum", {dy}, {make_arg("axes", Dims{1}), make_arg("keepdims", false)});
  if (r.kind == Kind::product) {
    const std::string x = e.by_sample(r, r.x, r.in);
    const std::string made = r.op.type() == "FC" ? e.product(dy, x, true, false) : e.product(x, dy, true, false);
    return e.reshape(made, dims);
  }
  // Rows of one table behind the other.
  const int64_t samples = e.taps().samples, table = e.taps().shapes.at(parameter)[0];
  Dims first(static_cast<size_t>(samples));
  for (int64_t s = 0; s < samples; ++s) first[static_cast<size_t>(s)] = s * table;
  const std::string begins =
      e.add("GivenTensorInt64Fill", {}, {make_arg("shape", Dims{samples, 1, 1}), make_arg("values", first)});
  const std::string indices = e.add("Cast", {e.by_sample(r, r.x, 1)}, {make_arg("to", static_cast<int>(DType::int64))});
  const std::string places = e.add("Add", {indices, begins}, {make_arg("broadcast", true)});
  const int64_t all = samples * r.groups * r.rows;
  const std::string rows = e.add("SparseToDense", {e.reshape(places, {all}), e.reshape(dy, {all, r.out})},
                                 {make_arg("output_first_dim", samples * table)});
  return e.reshape(rows, dims);
}

// The square of its norm by sample, without it where that takes fewer operations.
std::string squared_norm(Emitter& e, const SampleReader& r, const std::string& parameter) {
  e.for_reader(r);
  const int64_t n = r.groups * r.rows, size = e.taps().shapes.at(parameter).size();
  const bool is_table = r.kind == Kind::table;
  if (r.kind == Kind::copies || parameter == r.bias || (!is_table && n * (r.in + r.out) > r.in * r.out) || size == 0) {
    const auto rank = static_cast<int>(dims_of(e.taps(), parameter).size());
    return e.squares(sample_gradient(e, r, parameter), rank);
  }
  const std::string dy = e.by_sample(r, r.gradient, r.out);
  const std::string pairs = e.product(dy, dy, false, true);
  std::string others;
  if (is_table) {
    others = e.equal_indices(r);
  } else {
    const std::string x = e.by_sample(r, r.x, r.in);
    others = e.product(x, x, false, true);
  }
  return e.sum_back(e.add("Mul", {pairs, others}), 3);
}

// Calls fn(reader, parameter) for each parameter of each reader.
void each_reader(const SampleTaps& taps, const std::function<void(const SampleReader&, const std::string&)>& fn) {
  for (const SampleReader& r : taps.readers)
    for (const std::string& parameter : {r.weights, r.bias})
      if (!parameter.empty()) fn(r, parameter);
}

std::map<std::string, std::string> totals(Emitter& e, const std::map<std::string, Strings>& terms) {
  std::map<std::string, std::string> sums;
  for (const auto& [parameter, made] : terms) sums[parameter] = e.total(made);
  return sums;
}

// The gradient operator of a product, for its weights and bias alone.
void add_product_gradient(Emitter& e, const SampleReader& r, const std::string& dy,
                          std::map<std::string, Strings>& terms) {
  const int64_t all = r.groups * e.taps().samples * r.rows;
  std::vector<Argument> args;
  for (const Argument& arg : r.op.arg())
    if (arg.name() == "axis_w") args.push_back(arg);
  const std::string dw = r.weights.empty() ? "" : e.fresh("weights"), db = r.bias.empty() ? "" : e.fresh("bias");
  e.add(r.op.type() + "Gradient", {e.reshape(r.x, {all, r.in}), r.op.input(1), e.reshape(dy, {all, r.out})}, {dw, db},
        args);
  if (!dw.empty()) terms[r.weights].push_back(dw);
  if (!db.empty()) terms[r.bias].push_back(db);
}

}  // namespace

std::map<std::string, std::string> add_sample_gradients(NetDef& net, const SampleTaps& taps) {
  Emitter e(net, taps, "per_sample/gradients/");
  std::map<std::string, Strings> terms;
  each_reader(taps, [&](const SampleReader& r, const std::string& parameter) {
    terms[parameter].push_back(sample_gradient(e, r, parameter));
  });
  return totals(e, terms);
}

std::string add_squared_norms(NetDef& net, const SampleTaps& taps) {
  Emitter e(net, taps, "per_sample/norms/");
  std::map<std::string, std::vector<const SampleReader*>> readers;
  each_reader(taps, [&](const SampleReader& r, const std::string& parameter) { readers[parameter].push_back(&r); });
  Strings norms;
  for (const auto& [parameter, of] : readers) {
    if (of.size() == 1) {
      norms.push_back(squared_norm(e, *of[0], parameter));
      continue;
    }
    Strings terms;
    for (const SampleReader* r : of) terms.push_back(sample_gradient(e, *r, parameter));
    norms.push_back(e.squares(e.total(terms), static_cast<int>(dims_of(taps, parameter).size())));
  }
  return e.total(norms);
}

std::map<std::string, std::string> add_weighted_gradients(NetDef& net, const SampleTaps& taps,
                                                          const std::string& weights) {
  Emitter e(net, taps, "per_sample/sums/");
  std::map<std::string, Strings> terms;
  for (const SampleReader& r : taps.readers) {
    e.for_reader(r);
    const Dims rows = r.kind == Kind::copies ? Dims{taps.samples, r.out} : Dims{r.groups, taps.samples, r.rows * r.out};
    const std::string dy = e.add("Mul", {e.reshape(r.gradient, rows), weights},
                                 {make_arg("broadcast", true), make_arg("axis", static_cast<int>(rows.size()) - 2)});
    if (r.kind == Kind::product) {
      add_product_gradient(e, r, dy, terms);
    } else if (r.kind == Kind::table) {
      const int64_t all = r.groups * taps.samples * r.rows;
      const std::string rows = e.add("SparseToDense", {e.reshape(r.x, {all}), e.reshape(dy, {all, r.out}), r.weights});
      terms[r.weights].push_back(e.reshape(rows, shape_of(taps, r.weights)));
    } else {
      terms[r.weights].push_back(e.reshape(e.add("ReduceFrontSum", {dy}), shape_of(taps, r.weights)));
    }
  }
  return totals(e, terms);
}

}  // namespace stepnet
