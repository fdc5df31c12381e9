#include "tests/core/autograd/pytorch_saves.h"

namespace stepnet::autograd::testing {
namespace {

using Rows = std::vector<BesidePyTorch>;
using Saves = std::vector<SavedByPyTorch>;
using Texts = std::vector<std::string>;

const std::string kX = "X=32,16";

void add(Rows& rows, const std::string& type, const std::string& counterpart, const Texts& inputs, const Saves& saves,
         const Texts& args = {}, int outputs = 1) {
  rows.push_back({type, counterpart, inputs, args, saves, outputs});
}

void add_unary(Rows& rows) {
  const Saves self = {{"X"}}, result = {{"Y"}};
  for (const auto& [type, name] : std::vector<std::pair<const char*, const char*>>{{"Abs", "abs"},
                                                                                   {"Acos", "acos"},
                                                                                   {"Asin", "asin"},
                                                                                   {"Atan", "atan"},
                                                                                   {"Clip", "clamp"},
                                                                                   {"Cos", "cos"},
                                                                                   {"Cosh", "cosh"},
                                                                                   {"Cube", "pow(3)"},
                                                                                   {"Elu", "elu"},
                                                                                   {"Erf", "erf"},
                                                                                   {"Gelu", "gelu"},
                                                                                   {"HardSigmoid", "hardsigmoid"},
                                                                                   {"LeakyRelu", "leaky_relu"},
                                                                                   {"Log1p", "log1p"},
                                                                                   {"Silu", "silu"},
                                                                                   {"Sin", "sin"},
                                                                                   {"Sinh", "sinh"},
                                                                                   {"Softplus", "softplus"},
                                                                                   {"Sqr", "pow(2)"},
                                                                                   {"SumSqrElements", "pow(2), sum"},
                                                                                   {"Swish", "silu"}})
    add(rows, type, name, {kX}, self);
  for (const auto& [type, name] : std::vector<std::pair<const char*, const char*>>{{"Exp", "exp"},
                                                                                   {"Expm1", "expm1"},
                                                                                   {"Reciprocal", "reciprocal"},
                                                                                   {"Relu", "relu"},
                                                                                   {"Rsqrt", "rsqrt"},
                                                                                   {"Sigmoid", "sigmoid"},
                                                                                   {"Sqrt", "sqrt"},
                                                                                   {"Tan", "tan"},
                                                                                   {"Tanh", "tanh"},
                                                                                   {"Softmax", "softmax"},
                                                                                   {"LogSoftmax", "log_softmax"}})
    add(rows, type, name, {"X=32,16,0.5..0.9"}, result);
  add(rows, "Log", "log", {"X=32,16,0.5..2"}, self);
  add(rows, "Negative", "neg", {kX}, {});
  add(rows, "Scale", "mul by a number", {kX}, {}, {"scale=2"});
  add(rows, "Pow", "pow by a number", {"X=32,16,0.5..2"}, self, {"exponent=2.5"});
  add(rows, "Softsign", "x / (abs + 1)", {kX}, {{"X"}, {"float 32,16"}});
  add(rows, "PRelu", "_prelu_kernel", {kX, "Slope=16"}, {{"X"}, {"Slope"}});
}

void add_binary(Rows& rows) {
  const Texts same = {"A=32,16", "B=32,16,0.5..2"}, row = {"A=32,16", "B=16,0.5..2"}, repeats = {"broadcast=1"};
  const Saves product = {{"B", "A"}, {"A", "B"}}, quotient = {{"B"}, {"A", "B"}};
  for (const Texts& in : {same, row}) {
    const Texts args = in == same ? Texts{} : repeats;
    add(rows, "Add", "add", in, {}, args);
    add(rows, "Sub", "sub", in, {}, args);
    add(rows, "Mul", "mul", in, product, args);
    add(rows, "Div", "div", in, quotient, args);
    add(rows, "FMod", "fmod", in, {{"A", "B"}, {"B", "B"}}, args);
  }
  add(rows, "Div", "div", {"A=16", "B=32,16,0.5..2"}, quotient, repeats);
  add(rows, "Pow", "pow", {"X=32,16,0.5..2", "exponent=32,16"}, {{"X"}, {"exponent"}, {"Y"}});
  add(rows, "AddCMul", "addcmul", {"T=32,16", "A=32,16", "B=32,16"}, product);
  add(rows, "AddCDiv", "addcdiv", {"T=32,16", "A=32,16", "B=32,16,0.5..2"}, quotient);
  add(rows, "Cross", "linalg_cross", {"A=64,3", "B=64,3"}, product);
  add(rows, "Where", "where", {"C=bool,32,16,0..1", kX, "Y=32,16"}, {{"C"}});
  for (const char* type : {"Max", "Min"}) {
    const std::string name = type == std::string("Max") ? "maximum" : "minimum";
    add(rows, type, name, {"X0=32,16", "X1=32,16"}, {{"X0"}, {"X1"}});
    add(rows, type, name + ", twice", {"X0=32,16", "X1=32,16", "X2=32,16"},
        {{"X0", "X0|X1"}, {"X1", "X0|X1"}, {"float 32,16"}, {"X2"}});
  }
  add(rows, "Sum", "add", {"X0=32,16", "X1=32,16"}, {});
  add(rows, "WeightedSum", "mul, add", {"inputs0=32,16", "inputs1=1", "inputs2=32,16", "inputs3=1"},
      {{"inputs1", "inputs0"}, {"inputs0", "inputs1"}, {"inputs3", "inputs2"}, {"inputs2", "inputs3"}});
  add(rows, "ElementwiseLinear", "mul, add", {kX, "w=16", "b=16"}, {{"w", "X"}, {"X", "w"}});
}

void add_products(Rows& rows) {
  const Saves product = {{"B", "A"}, {"A", "B"}}, vectors = {{"X", "A"}, {"A", "X"}}, outer = {{"Y", "X"}, {"X", "Y"}};
  const Texts batch = {"A=4,32,16", "B=4,16,64"};
  add(rows, "MatMul", "mm", {"A=32,16", "B=16,64"}, product);
  add(rows, "BatchMatMul", "bmm", batch, product);
  add(rows, "AddBMM", "addbmm", {"M=32,64", batch[0], batch[1]}, product);
  add(rows, "BAddBMM", "baddbmm", {"M=4,32,64", batch[0], batch[1]}, product);
  add(rows, "MV", "mv", {"A=32,16", "X=16"}, vectors);
  add(rows, "AddMV", "addmv", {"V=32", "A=32,16", "X=16"}, vectors);
  add(rows, "Ger", "outer", {"X=32", "Y=16"}, outer);
  add(rows, "AddR", "addr", {"M=32,16", "X=32", "Y=16"}, outer);
  for (const char* type : {"FC", "FCTransposed"})
    add(rows, type, "linear", {kX, type == std::string("FC") ? "W=64,16" : "W=16,64", "b=64"},
        {{"W", "X"}, {"X", "W"}});
}

void add_reductions(Rows& rows) {
  const Saves both = {{"X"}, {"Y"}}, self = {{"X"}};
  const Texts axis = {"axes=1"};
  for (const char* type : {"ReduceSum", "ReduceMean"}) add(rows, type, "sum, mean", {kX}, {}, axis);
  for (const char* type : {"ReduceL1", "ReduceL2"}) add(rows, type, "linalg_vector_norm", {kX}, both, axis);
  for (const char* type : {"ReduceMax", "ReduceMin"}) add(rows, type, "amax, amin", {kX}, both, axis);
  for (const char* type : {"ReduceBackMax", "ReduceFrontMax"}) add(rows, type, "amax", {kX}, both);
  for (const char* type : {"ReduceBackSum", "ReduceBackMean", "ReduceFrontSum", "ReduceFrontMean"})
    add(rows, type, "sum, mean", {kX}, {});
  for (const char* type : {"SumElements", "AveragedLoss"}) add(rows, type, "sum, mean", {kX}, {});
  add(rows, "LpNorm", "linalg_vector_norm", {kX}, both, {"p=1"});
  add(rows, "LpNorm", "pow(2), sum", {kX}, self, {"p=2"});
  add(rows, "Cumsum", "cumsum", {kX}, {}, {"axis=1"});
  add(rows, "TopK", "topk", {kX}, {{"Indices"}}, {"k=4"}, 2);
  const Texts pair = {kX, "Y=32,16"};
  add(rows, "DotProduct", "mul, sum", pair, {{"Y", "X"}, {"X", "Y"}});
  add(rows, "L1Distance", "sub, abs, sum", pair, {{"float 32,16"}});
  add(rows, "SquaredL2Distance", "sub, pow(2), sum", pair, {{"float 32,16"}});
  // Norms, quotients by them, and the product of these.
  add(rows, "CosineSimilarity", "cosine_similarity", pair,
      {{"X", "X"}, {"Y", "Y"}, {"float 32"}, {"float 32"}, {"float 32,16", "X"}, {"float 32,16", "Y"}});
}

void add_norms_and_losses(Rows& rows) {
  add(rows, "LayerNorm", "native_layer_norm", {kX}, {{"X"}, {"mean"}, {"std"}}, {}, 3);
  add(rows, "LayerNorm", "native_layer_norm", {kX, "gamma=16", "beta=16"},
      {{"X"}, {"mean"}, {"std"}, {"gamma"}, {"beta"}}, {"elementwise_affine=1"}, 3);
  const Texts channels = {kX, "scale=16", "bias=16", "est_mean=16", "est_var=16,0.5..2"};
  const Saves of_batch = {{"X"}, {"scale"}, {"est_mean"}, {"est_var"}};
  for (const char* type : {"BatchNorm", "SpatialBN"}) {
    Saves with_statistics = of_batch;
    with_statistics.insert(with_statistics.end(), {{"saved_mean"}, {"saved_inv_std"}});
    add(rows, type, "native_batch_norm", channels, with_statistics, {}, 5);
    add(rows, type, "native_batch_norm", channels, of_batch, {"is_test=1"});
  }
  add(rows, "Normalize", "linalg_vector_norm, clamp_min, div", {kX}, {{"X"}, {"float 32"}, {"float 32"}});
  const Texts pair = {kX, "Y=32,16"};
  add(rows, "MSELoss", "mse_loss", pair, {{"X"}, {"Y"}});
  add(rows, "HuberLoss", "huber_loss", pair, {{"X"}, {"Y"}});
  add(rows, "SmoothL1Loss", "smooth_l1_loss", pair, {{"X"}, {"Y"}});
  add(rows, "SigmoidCrossEntropyWithLogits", "binary_cross_entropy_with_logits",
      {"logits=32,16", "targets=32,16,0.1..0.9"}, {{"logits"}, {"targets", "logits"}});
  const Texts labels = {kX, "T=int64,32,0..15"};
  add(rows, "SoftmaxWithLoss", "log_softmax, nll_loss", labels, {{"float 32,16"}, {"T"}, {"float 1"}}, {}, 2);
  add(rows, "SpatialSoftmaxWithLoss", "log_softmax, nll_loss2d", {"X=2,16,16", "T=int64,2,16,0..15"},
      {{"float 2,16,16"}, {"T"}, {"float 1"}}, {}, 2);
  add(rows, "SoftmaxWithLoss", "log_softmax, mul, sum", {"X=16,16", "T=16,16,0.0625..0.0625"},
      {{"float 16,16"}, {"T", "X"}}, {"label_prob=1"}, 2);
  add(rows, "CrossEntropyLoss", "log_softmax, nll_loss", labels, {{"float 32,16"}, {"T"}, {"float 1"}});
  add(rows, "NLLLoss", "nll_loss", labels, {{"X"}, {"T"}, {"float 1"}});
  add(rows, "LabelCrossEntropy", "log, nll_loss", {"X=32,16,0.1..0.9", "label=int32,32,0..15"},
      {{"X"}, {"float 32,16"}, {"int64 32"}});
  add(rows, "CrossEntropy", "log, mul, sum", {"X=32,16,0.1..0.9", "label=32,16,0.1..0.9"},
      {{"X", "X"}, {"label", "X"}, {"float 32,16", "label"}});
}

void add_indexed(Rows& rows) {
  const std::string table = "DATA=32,16", source = "SRC=64,16";
  add(rows, "Gather", "embedding", {table, "INDICES=int64,64,0..31"}, {{"INDICES"}});
  add(rows, "BatchGather", "index_select", {table, "INDICES=int64,8,0..15"}, {{"INDICES"}});
  add(rows, "IndexAdd", "index_add", {table, "INDICES=int64,64,0..31", source}, {{"INDICES", "SRC"}, {"SRC", "SRC"}});
  add(rows, "ScatterAdd", "scatter_add", {table, "INDICES=int64,64,16,0..31", source}, {{"INDICES", "SRC"}});
  // Beside the data and the result segment_reduce saves the segments' lengths or places.
  for (const char* type : {"LengthsSum", "LengthsMean", "LengthsMax"})
    add(rows, type, "segment_reduce", {"DATA=16,16", "LENGTHS=int32,16,1..1"}, {{"DATA"}, {"OUTPUT"}, {"int64 16"}});
  for (const char* type : {"SortedSegmentRangeSum", "SortedSegmentRangeMean", "SortedSegmentRangeMax"})
    add(rows, type, "segment_reduce", {"DATA=16,16", "SEGMENT_IDS=int32,16,0..0"}, {{"DATA"}, {"OUTPUT"}, {"int64 2"}});
  const std::string rows_of = "INDICES=int64,16,0..31", lengths = "LENGTHS=int32,16,1..1";
  const Saves bag = {
      {"INDICES"}, {"int64 16"}, {"int64 16"}, {"int64 16"}};  // places, the bag of each row, bags' sizes
  for (const char* type : {"SparseLengthsSum", "SparseLengthsMean"})
    add(rows, type, "embedding_bag", {table, rows_of, lengths}, bag);
  Saves weighted = bag;
  weighted.insert(weighted.end(), {{"WEIGHTS"}, {"DATA", "WEIGHTS"}});
  add(rows, "SparseLengthsWeightedSum", "embedding_bag", {table, "WEIGHTS=16", rows_of, lengths}, weighted);
}

// Sizes are numbers of 8 bytes that a node of PyTorch has in lists.
void add_shapes(Rows& rows) {
  const std::string data = "data=32,16";
  add(rows, "Transpose", "permute", {data}, {});
  add(rows, "Squeeze", "squeeze", {"data=32,1,16"}, {}, {"dims=1"});
  add(rows, "ExpandDims", "unsqueeze", {data}, {}, {"dims=1"});
  add(rows, "Slice", "slice", {data}, {}, {"starts=0,0", "ends=16,16"});
  add(rows, "Tile", "repeat", {kX}, {}, {"tiles=2"});
  add(rows, "Expand", "expand", {"X=32,1"}, {}, {"shape=32,16"});
  add(rows, "Pad", "constant_pad_nd", {kX}, {}, {"pads=1,1,1,1"});
  add(rows, "Reshape", "view", {data}, {{"int64 2"}}, {"shape=16,32"}, 2);
  add(rows, "Flatten", "view", {"input=32,4,4"}, {});
  add(rows, "Concat", "cat", {"inputs0=32,16", "inputs1=32,16"}, {{"int64 2,2"}}, {}, 2);
  add(rows, "Copy", "clone", {"input=32,16"}, {});
  add(rows, "CastLike", "to", {"input=32,16", "like=double,1"}, {});
  add(rows, "Dropout", "native_dropout", {data}, {{"bool 32,16"}}, {}, 2);
  add(rows, "CopyOnDeviceLike", "to", {"input=32,16", "dst=2"}, {});
}

// PyTorch's fused cells, which PyTorch has on a GPU alone, save the sums of gates as well; these are not counted here.
void add_cells(Rows& rows) {
  const Texts no_lengths = {"sequence_lengths=0"};
  const std::string step = "seq_lengths_or_timestep=int32,1:0";
  add(rows, "LSTMUnit", "_thnn_fused_lstm_cell", {"H_prev=16,32", "C_prev=16,32", "gates=16,128", step},
      {{"C_prev"}, {"C"}, {"float 16,128"}}, no_lengths, 2);
  add(rows, "GRUUnit", "_thnn_fused_gru_cell", {"H_prev=16,32", "gates=16,96", step}, {{"H_prev"}, {"float 16,160"}},
      no_lengths);
  // The gates' values, the difference that the update gate multiplies, and of h_prev's gradient that gate alone.
  add(rows, "GRUUnit", "sigmoid, tanh, sub, mul, add", {"H_prev=16,32", "gates=16,96", step},
      {{"float 16,32"}, {"float 16,32", "gates"}, {"float 16,32", "gates"}}, no_lengths);
}

}  // namespace

const std::vector<BesidePyTorch>& beside_pytorch() {
  static const Rows rows = [] {
    Rows made;
    add_unary(made);
    add_binary(made);
    add_products(made);
    add_reductions(made);
    add_norms_and_losses(made);
    add_indexed(made);
    add_shapes(made);
    add_cells(made);
    return made;
  }();
  return rows;
}

}  // namespace stepnet::autograd::testing
