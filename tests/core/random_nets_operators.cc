// The operators of random nets: common ones on blobs whose first sizes are the batch, and any operator of the library
// as one of its examples calls it.
#include <algorithm>
#include <set>

#include "core/gradcheck/examples.h"
#include "tests/core/random_nets_builder.h"

namespace stepnet::testing {
namespace {

using Args = std::vector<Argument>;
using Names = std::vector<std::string>;

// Inputs: "f" any float, "=" a blob like the first, "w" a vector of the first's last size, "*" several like the first.
struct Kind {
  const char* type;
  const char* inputs;
  int outputs = 1;
  Args args = {};
};

const std::vector<Kind>& simple_kinds() {
  static const std::vector<Kind> all = {
      {"Tanh", "f"},
      {"Sigmoid", "f"},
      {"Relu", "f"},
      {"Negative", "f"},
      {"Sqr", "f"},
      {"Abs", "f"},
      {"Softplus", "f"},
      {"Softsign", "f"},
      {"Gelu", "f"},
      {"Swish", "f"},
      {"Elu", "f"},
      {"LeakyRelu", "f"},
      {"HardSigmoid", "f"},
      {"Softmax", "f"},
      {"LogSoftmax", "f"},
      {"Copy", "f"},
      {"Alias", "f"},
      {"Alias", "f"},
      {"Alias", "f"},
      {"StopGradient", "f"},
      {"EnsureDense", "f"},
      {"Scale", "f", 1, {make_arg("scale", 0.5F)}},
      {"Clip", "f", 1, {make_arg("min", -0.7F), make_arg("max", 0.7F)}},
      {"Dropout", "f", 2, {make_arg("ratio", 0.3F)}},
      {"Transpose", "f"},
      {"Flatten", "f"},
      {"FlattenToVec", "f"},
      {"Cumsum", "f"},
      {"Normalize", "f"},
      {"LayerNorm", "f", 3},
  };
  return all;
}

const std::vector<Kind>& other_kinds() {
  static const std::vector<Kind> all = {
      {"LayerNorm", "fww", 3, {make_arg("elementwise_affine", 1)}},
      {"ElementwiseLinear", "fww"},
      {"PRelu", "fw"},
      {"ZerosLike", "f"},
      {"SumElements", "f"},
      {"SumSqrElements", "f"},
      {"AveragedLoss", "f"},
      {"ReduceSum", "f", 1, {make_arg("axes", std::vector<int64_t>{-1}), make_arg("keepdims", 0)}},
      {"ReduceMean", "f", 1, {make_arg("axes", std::vector<int64_t>{0}), make_arg("keepdims", 1)}},
      {"ReduceMax", "f", 1, {make_arg("axes", std::vector<int64_t>{-1}), make_arg("keepdims", 1)}},
      {"Scan", "f="},
      {"Scan", "f=", 2, {make_arg("reverse", 1)}},
      {"Delay", "f", 2},
      {"Add", "f="},
      {"Sub", "f="},
      {"Mul", "f="},
      {"Mul", "f="},
      {"Add", "fw", 1, {make_arg("broadcast", 1)}},
      {"Sub", "fw", 1, {make_arg("broadcast", 1)}},
      {"Mul", "fw", 1, {make_arg("broadcast", 1)}},
      {"SumReduceLike", "fw", 1, {make_arg("broadcast", 1)}},
      {"Add", "fw"},
      {"Sub", "fw"},
      {"Mul", "fw"},
      {"Sum", "f*"},
      {"Sum", "f*"},
      {"DotProduct", "f="},
      {"SquaredL2Distance", "f="},
      {"CosineSimilarity", "f="},
      {"MSELoss", "f="},
      {"ResizeLike", "ff"},
      {"MatMul", "ff"},
      {"MatMul", "f=", 1, {make_arg("trans_b", 1)}},
      {"MatMul", "f=", 1, {make_arg("trans_a", 1)}},
      {"BatchMatMul", "f=", 1, {make_arg("trans_b", 1)}},
      {"ExpandDims", "f", 1, {make_arg("dims", std::vector<int64_t>{0})}},
      {"ExpandDims", "f", 1, {make_arg("dims", std::vector<int64_t>{1})}},
      {"Squeeze", "f", 1, {make_arg("dims", std::vector<int64_t>{0})}},
      {"MergeDim", "f"},
      {"Reshape", "f", 2, {make_arg("shape", std::vector<int64_t>{-1})}},
      {"Reshape", "f", 2, {make_arg("shape", std::vector<int64_t>{0, -1})}},
      {"Reshape", "f", 2, {make_arg("shape", std::vector<int64_t>{-1, 2})}},
      {"Reshape", "f", 2, {make_arg("shape", std::vector<int64_t>{0, 2, -1})}},
      {"Slice",
       "f",
       1,
       {make_arg("starts", std::vector<int64_t>{0, 1}), make_arg("ends", std::vector<int64_t>{-1, 3})}},
      {"Slice", "f", 1, {make_arg("starts", std::vector<int64_t>{1}), make_arg("ends", std::vector<int64_t>{-1})}},
      {"Split", "f", 2},
      {"Split", "f", 3},
      {"Split", "f", 2, {make_arg("axis", -1)}},
      {"Concat", "f*", 2, {make_arg("axis", -1)}},
      {"Concat", "f*", 2, {make_arg("axis", 0)}},
      {"Concat", "f*", 2, {make_arg("axis", 0), make_arg("add_axis", 1)}},
      {"GT", "f="},
      {"Shape", "f"},
  };
  return all;
}

const Kind& draw_kind(NetDice& dice) {
  const std::vector<Kind>&first = simple_kinds(), &others = other_kinds();
  const auto k = static_cast<size_t>(dice.below(static_cast<int64_t>(first.size() + others.size())));
  return k < first.size() ? first[k] : others[k - first.size()];
}

bool add_kind(NetBuilder& b) {
  const Kind& kind = draw_kind(b.dice);
  Names in;
  for (const char* c = kind.inputs; *c; ++c) {
    if (*c == 'f') in.push_back(b.pick_float());
    if (*c == '=') in.push_back(b.pick_like(in[0]));
    if (*c == '*')
      for (int64_t n = b.dice.below(4); n > 0; --n) in.push_back(b.pick_like(in[0]));
    if (*c == 'w') {
      const Shape shape = b.shape(in[0]);
      const int64_t last = shape.rank() > 0 ? b.fixed_size(in[0], shape.rank() - 1) : -1;
      if (last < 0) return false;
      in.push_back(b.parameter({last}));
    }
  }
  Names out;
  for (int o = 0; o < kind.outputs; ++o)
    out.push_back(o == 0 || b.dice.chance(0.3) ? b.output_name(in) : b.fresh_name());
  return b.add(make_op(kind.type, in, out, kind.args));
}

bool add_product(NetBuilder& b) {
  const std::string x = b.pick_float();
  const Shape shape = b.shape(x);
  const int64_t last = shape.rank() > 1 ? b.fixed_size(x, shape.rank() - 1) : -1;
  if (last < 1) return false;
  const int64_t width = 2 + b.dice.below(5);
  Names in = {x, b.parameter({width, last})};
  if (b.dice.chance(0.8)) in.push_back(b.parameter({width}));
  return b.add(make_op("FC", in, {b.output_name(in)}, {make_arg("axis", shape.rank() - 1)}));
}

bool add_weighted_sum(NetBuilder& b) {
  const std::string x = b.pick_float();
  Names in = {x, b.parameter({1})};
  for (int64_t n = b.dice.below(3); n > 0; --n) {
    in.push_back(b.pick_like(x));
    in.push_back(b.parameter({1}));
  }
  return b.add(make_op("WeightedSum", in, {b.dice.chance(0.5) ? x : b.output_name(in)}));
}

// Chooses by a comparison, sometimes over one of its terms.
bool add_choice(NetBuilder& b) {
  const std::string condition =
      b.pick([&](const std::string& blob) { return b.value(blob).dtype() == DType::boolean; });
  if (condition.empty()) return false;
  const std::string x =
      b.pick([&](const std::string& blob) { return b.is_float(blob) && b.shape(blob) == b.shape(condition); });
  if (x.empty()) return false;
  const Names in = {condition, x, b.pick_like(x)};
  return b.add(make_op("Where", in, {b.output_name(in)}));
}

// A shape or other integers that the net has made, as an input of Reshape.
bool add_reshape_by_input(NetBuilder& b) {
  const std::string sizes = b.pick([&](const std::string& blob) { return b.value(blob).dtype() == DType::int64; });
  if (sizes.empty()) return false;
  const Names in = {b.pick_float(), sizes};
  return b.add(make_op("Reshape", in, {b.output_name({in[0]}), b.fresh_name()}));
}

bool add_lstm_unit(NetBuilder& b) {
  const std::string c = b.pick([&](const std::string& blob) {
    return b.is_float(blob) && b.shape(blob).rank() == 2 && b.fixed_size(blob, 1) == 4;
  });
  if (c.empty()) return false;
  const std::string gates = b.fresh_name(), step = b.feed(Tensor::of<int32_t>({1}, {0}));
  const Names product = {c, b.parameter({16, 4}), b.parameter({16})};
  if (!b.add(make_op("FC", product, {gates}))) return false;
  const Names in = {b.pick_like(c), c, gates, step};
  Names out = {b.output_name(in), b.fresh_name()};
  Args args = {make_arg("sequence_lengths", 0)};
  if (b.dice.chance(0.4)) {
    out.push_back(b.dice.chance(0.5) ? gates : b.fresh_name());
    if (b.dice.chance(0.7)) args.push_back(make_arg("activated_gates", 1));
  }
  return b.add(make_op("LSTMUnit", in, out, args));
}

bool has_float_example(const OpSpec& spec) {
  return !spec.blob_kernel && !spec.side_effect && !spec.type.ends_with("ForTest") &&
         std::ranges::any_of(spec.examples, [](const OpExample& e) { return e.net.empty(); });
}

const std::vector<const OpSpec*>& specs_with_examples() {
  static const std::vector<const OpSpec*> all = [] {
    std::vector<const OpSpec*> found;
    for (const std::string& type : op_types())
      if (has_float_example(op_spec(type))) found.push_back(&op_spec(type));
    return found;
  }();
  return all;
}

// Its inputs are blobs of the same types where there are any, and otherwise the example's own.
bool add_example(NetBuilder& b) {
  const OpSpec& spec = *b.dice.pick(specs_with_examples());
  const OpExample& example = b.dice.pick(spec.examples);
  if (!example.net.empty()) return false;
  const GradientSubject subject = example_subject(spec, example, 1);
  if (subject.net.op_size() != 1) return false;
  OperatorDef op = subject.net.op(0);
  std::map<std::string, std::string> renamed;
  for (std::string& name : *op.mutable_input()) {
    if (name.empty()) continue;
    std::string& blob = renamed[name];
    const Tensor& value = subject.feeds.at(name);
    if (blob.empty() && b.dice.chance(0.6))
      blob = b.pick([&](const std::string& other) { return b.has_type(other, value); });
    if (blob.empty()) blob = b.feed(value);
    name = blob;
  }
  const Names in(op.input().begin(), op.input().end());
  // Each of equal elements gets the whole gradient, which is no derivative.
  const bool ties = op.type() == "Max" || op.type() == "Min";
  if (ties && std::set<std::string>(in.begin(), in.end()).size() < in.size()) return false;
  for (std::string& name : *op.mutable_output()) {
    const auto same = renamed.find(name);
    if (!name.empty()) name = same != renamed.end() ? same->second : in.empty() ? b.fresh_name() : b.output_name(in);
    if (name.empty() && b.dice.chance(0.5)) name = b.fresh_name();
  }
  return b.add(op);
}

}  // namespace

bool add_random_operator(NetBuilder& b) {
  if (b.pick_float().empty()) b.feed({-1, 4});
  const int64_t draw = b.dice.below(100);
  if (draw < 62) return add_kind(b);
  if (draw < 70) return add_product(b);
  if (draw < 75) return add_weighted_sum(b);
  if (draw < 79) return add_choice(b);
  if (draw < 82) return add_reshape_by_input(b);
  if (draw < 85) return add_lstm_unit(b);
  return add_example(b);
}

}  // namespace stepnet::testing
