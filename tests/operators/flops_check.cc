#include "tests/operators/flops_check.h"

#include <algorithm>
#include <set>

#include "core/operator/dry_run.h"
#include "core/operator/observer.h"
#include "stepnet/half.h"
#include "stepnet/net.h"
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

const References& references() {
  static const References all = [] {
    References r;
    for (auto* add :
         {add_elementwise_references, add_sum_references, add_segment_references, add_row_references,
          add_norm_references, add_loss_references, add_alignment_references, add_unit_references,
          add_product_references, add_optimizer_references, add_window_references, add_convolution_references})
      add(r);
    return r;
  }();
  return all;
}

template <class T>
Numbers numbers_of(const Tensor& t) {
  const auto values = t.span<T>();
  return Numbers(values.begin(), values.end());
}

// No numbers of a tensor of strings.
CountedTensor counted(const Tensor& t) {
  CountedTensor c{true, t.shape(), {}};
  switch (t.dtype()) {
    case DType::float64:
      c.v = numbers_of<double>(t);
      break;
    case DType::float32:
      c.v = numbers_of<float>(t);
      break;
    case DType::int32:
      c.v = numbers_of<int32_t>(t);
      break;
    case DType::int64:
      c.v.assign(t.span<int64_t>().begin(), t.span<int64_t>().end());
      break;
    case DType::boolean:
      c.v = numbers_of<bool>(t);
      break;
    default:
      with_half(t.dtype(), [&](auto zero) { c.v = numbers_of<decltype(zero)>(t); });
  }
  return c;
}

bool is_product(const std::string& type) {
  static const References products = [] {
    References r;
    add_product_references(r);
    add_convolution_references(r);
    return r;
  }();
  return products.count(type) > 0;
}

// "" or the first element that is not the reference's. The tolerances are those of the operators' own tests. Each
// element is measured by itself, beside the terms that its formula adds and subtracts: 1 - Y^2 is off by a rounding
// of 1. Sums of many products in float are off by roundings of the largest of them.
std::string compare_numbers(const OperatorDef& def, DType dtype, const Numbers& real, const Numbers& reference) {
  const bool product = dtype == DType::float32 && is_product(def.type());
  const double half = dtype == DType::float16 ? 0x1p-9 : 1e-2;
  const double tolerance = dtype == DType::float64 ? 1e-14 : is_half(dtype) ? half : product ? 1e-5 : 1e-6;
  double largest = 1;
  if (product)
    for (const Counted& y : reference) largest = std::max(largest, std::abs(y.value));
  for (size_t i = 0; i < real.size(); ++i) {
    const double expected = reference[i].value, got = real[i].value;
    if (expected == got) continue;
    const bool finite = std::isfinite(reference[i].terms);
    const double terms = dtype == DType::float32 && finite ? reference[i].terms : std::abs(expected);
    if (!std::isfinite(expected) || !(std::abs(expected - got) <= tolerance * std::max(largest, terms)))
      return fmt::format("{} at element {}, but the reference gives {}", got, i, expected);
  }
  return "";
}

TensorType type_of(const Tensor* t) {
  TensorType type;
  type.absent = t == nullptr;
  return t ? TensorType::of(t->dtype(), t->shape()) : type;
}

// "" or what an operator without a reference computes: what it writes must be its inputs' elements, arguments, 0, 1,
// infinity, with any sign, or indices.
std::string check_moves(const BoundOp& op, const CountedCall& call, const std::vector<Tensor>& out) {
  // One that runs nets of its own counts in them.
  const bool runs_nets = op.spec->blob_kernel || op.def.type().starts_with("Recurrent");
  if (op.spec->random || runs_nets) return "";
  std::set<double> known = {0, 1, HUGE_VAL};
  for (const CountedTensor& t : call.in)
    for (const Counted& x : t.v) known.insert(std::abs(x.value));
  for (const Argument& a : op.def.arg()) {
    known.insert({std::abs(static_cast<double>(a.f())), std::abs(static_cast<double>(a.i()))});
    for (const float x : a.floats()) known.insert(std::abs(static_cast<double>(x)));
  }
  for (const Tensor& t : out) {
    if (!t.defined() || !is_floating(t.dtype()) || is_half(t.dtype())) continue;  // halves are rounded
    for (const Counted& y : counted(t).v)
      if (const bool index = y.value == std::floor(y.value) && y.value < static_cast<double>(t.shape().size());
          !index && !known.contains(std::abs(y.value)))
        return fmt::format("it has no reference and no FLOPs, but computes {}", y.value);
  }
  return "";
}

// "" or what is wrong with an operator that ran: with its FLOPs, which are added to `flops`, or with the reference.
std::string check(const BoundOp& op, const std::vector<Tensor>& in, const std::vector<Tensor>& out, double& flops) {
  CountedCall call{op.def, {}, {}};
  std::vector<TensorType> in_types, out_types;
  for (const Tensor& t : in) {
    call.in.push_back(t.defined() ? counted(t) : CountedTensor());
    in_types.push_back(type_of(t.defined() ? &t : nullptr));
  }
  for (const Tensor& t : out) {
    CountedTensor& y = call.out.emplace_back(t.defined() ? CountedTensor{true, t.shape(), {}} : CountedTensor());
    if (t.defined()) y.v.resize(static_cast<size_t>(t.shape().size()));
    out_types.push_back(type_of(t.defined() ? &t : nullptr));
  }
  const double said = op_flops(op, in_types, out_types);
  const auto reference = references().find(op.def.type());
  const double before = Counted::operations;
  if (reference == references().end()) {
    if (said != 0) return fmt::format("the registration says {} FLOPs, but there is no reference", said);
    return check_moves(op, call, out);
  }
  reference->second(call);
  const double operations = Counted::operations - before;
  flops += operations;
  if (said != operations) return fmt::format("the registration says {} FLOPs, counted are {}", said, operations);
  for (size_t o = 0; o < out.size() && call.compares; ++o) {
    if (!out[o].defined() || !is_floating(out[o].dtype())) continue;
    const std::string wrong = compare_numbers(op.def, out[o].dtype(), counted(out[o]).v, call.out[o].v);
    if (!wrong.empty()) return fmt::format("output {} is {}", o, wrong);
  }
  return "";
}

class Checker : public NetObserver {
 public:
  explicit Checker(const Workspace& blobs) : blobs_(blobs) {}
  void before(const BoundOp& op) override { in_ = values(op.def.input(), true); }
  void after(const BoundOp& op) override {
    const std::string wrong = check(op, in_, values(op.def.output(), false), flops);
    if (!wrong.empty()) problems.insert(op.def.type() + ": " + wrong);
  }

  std::set<std::string> problems;
  double flops = 0;

 private:
  template <class Names>
  std::vector<Tensor> values(const Names& names, bool copies) const {
    std::vector<Tensor> found;
    for (const std::string& name : names) {
      const Blob* blob = name.empty() ? nullptr : blobs_.find(name);
      const bool is_there = blob && blob->is_tensor() && !blob->empty() && blob->tensor().defined();
      found.push_back(!is_there ? Tensor() : copies ? blob->tensor().clone() : blob->tensor());
    }
    return found;
  }

  const Workspace& blobs_;
  std::vector<Tensor> in_;
};

}  // namespace

CountedRun run_counted(const NetDef& def, const std::map<std::string, Tensor>& feeds) {
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.create_local(name).tensor() = value.clone();
  Net net(def, blobs);
  Checker checker(blobs);
  RunContext run;
  run.observer = &checker;
  net.run(run);
  CountedRun result{fmt::format("{}", fmt::join(checker.problems, "\n")), checker.flops, feeds};
  for (const OperatorDef& op : def.op())
    for (const std::string& name : op.output())
      if (const Blob* blob = name.empty() ? nullptr : blobs.find(name); blob && blob->is_tensor() && !blob->empty())
        result.blobs[name] = blob->tensor();
  return result;
}

}  // namespace stepnet::testing
