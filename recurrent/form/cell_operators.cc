#include "recurrent/form/cell_operators.h"

#include <algorithm>

#include "core/operator/bound_op.h"
#include "core/operator/operator.h"
#include "recurrent/form/cell_layers.h"
#include "recurrent/form/example_nets.h"

namespace stepnet {
namespace {

// What is left of such an operator if nobody expanded the net.
void refuse(const CellArgs&, BlobCall& call) {
  throw Error(fmt::format("{} stands for several operators and does not run itself", call.def.type()),
              "expand the net first, with expand_recurrent or `stepnet expand`");
}

ArgCheck<float> probability_below_one() {
  return [](const float& v) { return v >= 0 && v < 1 ? "" : "must be from 0 to less than 1"; };
}

// At most as many layers as anyone could name the weights of.
ArgCheck<int64_t> number_of_layers() {
  return [](const int64_t& v) { return v >= 1 && v <= 1000 ? "" : "must be from 1 to 1000"; };
}

OpBuilder<CellArgs> cell_operator(const char* type) {
  using A = CellArgs;
  auto builder = op<A>(type);
  builder.required_arg("hidden", &A::hidden, "H, the width of a state", at_least(1))
      .arg("layers", &A::layers, int64_t{1}, "how many stand on each other", number_of_layers())
      .arg("bidirectional", &A::bidirectional, false, "each layer also runs from the last timestep to the first")
      .arg("dropout", &A::dropout, 0.0F, "the probability of 0 between layers", probability_below_one())
      .arg("is_test", &A::is_test, false, "drop nothing");
  return builder;
}

Registration finish(OpBuilder<CellArgs>& builder, bool has_cell) {
  builder.input("X", "[T, B, I]").object();
  builder.input("h0", "[layers * directions, B, H]; \"\" for zeros").object().optional();
  if (has_cell) builder.input("c0", "like h0").object().optional();
  builder
      .input("weights",
             "by layer, and in it by direction, w_ih [G * H, ...], w_hh [G * H, H], b_ih and b_hh [G * H]; behind them "
             "the lengths of the samples, int32 [B], if they have any")
      .object()
      .variadic(4);
  builder.output("Y", "[T, B, directions * H], zeros behind the end of a sample").object().optional();
  builder.output("h_n", "[layers * directions, B, H], the last states").object().optional();
  if (has_cell) builder.output("c_n", "like h_n").object().optional();
  return builder.blobs(refuse).no_gradient("it must be expanded first, with expand_recurrent or `stepnet expand`");
}

REGISTER(rnn) {
  auto builder = cell_operator("RNN");
  builder.doc("Layers of simple recurrent networks: h = tanh(w_ih x + b_ih + w_hh h_prev + b_hh).")
      .arg("nonlinearity", &CellArgs::nonlinearity, std::string("tanh"), "tanh or relu", one_of({"tanh", "relu"}))
      .example_net(kRnnExample, {"X=3,2,2", "w_ih=2,2", "w_hh=2,2", "b_ih=2", "b_hh=2"}, {"Y", "h_n"});
  return finish(builder, false);
}

REGISTER(gru) {
  auto builder = cell_operator("GRU");
  builder.doc("Layers of gated recurrent units, gates in the order reset, update, candidate.")
      .arg("linear_before_reset", &CellArgs::linear_before_reset, true,
           "the reset gate is applied behind the product with w_hh, not in front of it")
      .example_net(kGruExample,
                   {"X=3,2,1", "w_ih=6,1", "w_hh=6,2", "b_ih=6", "b_hh=6", "v_ih=6,1", "v_hh=6,2", "c_ih=6", "c_hh=6",
                    "lengths=int32,2:3,1"},
                   {"Y", "h_n"});
  return finish(builder, false);
}

REGISTER(lstm) {
  auto builder = cell_operator("LSTM");
  builder.doc("Layers of LSTMs, gates in the order i, f, o, g.")
      .arg("forget_bias", &CellArgs::forget_bias, 0.0F, "added to the forget gate before its sigmoid")
      .example_net(kLstmExample,
                   {"X=2,2,2", "h0=2,2,1", "c0=2,2,1", "w_ih=4,2", "w_hh=4,1", "b_ih=4", "b_hh=4", "v_ih=4,1",
                    "v_hh=4,1", "c_ih=4", "c_hh=4"},
                   {"Y", "h_n", "c_n"});
  return finish(builder, true);
}

bool is_cell_operator(const OperatorDef& op) { return op.type() == "RNN" || op.type() == "GRU" || op.type() == "LSTM"; }

std::vector<OperatorDef> expanded(const OperatorDef& op, const NetDef& net, int index) {
  const BoundOp bound = bind_op(op, net.name(), index);
  try {
    return expand_layers(op, *static_cast<const CellArgs*>(bound.args.get()));
  } catch (Error& e) {
    add_op_context(e, bound);
    throw;
  }
}

}  // namespace

void expand_cell_operators(NetDef& net) {
  if (std::ranges::none_of(net.op(), is_cell_operator)) return;
  google::protobuf::RepeatedPtrField<OperatorDef> ops;
  for (int i = 0; i < net.op_size(); ++i) {
    if (!is_cell_operator(net.op(i))) {
      *ops.Add() = net.op(i);
      continue;
    }
    for (OperatorDef& op : expanded(net.op(i), net, i)) *ops.Add() = std::move(op);
  }
  net.mutable_op()->Swap(&ops);
}

}  // namespace stepnet
