// Values and storages of nets: who writes, who reads, which names share bytes, and when each ends.
#include "core/net/dataflow.h"

#include <gtest/gtest.h>

#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::dataflow_test {
namespace {

using Numbers = std::vector<int>;
using Texts = std::vector<std::string>;

class Flow {
 public:
  explicit Flow(const NetDef& net, const DataflowOptions& options = {}) : net_(net, options) {}
  explicit Flow(const Lines& lines, const DataflowOptions& options = {}) : Flow(net_of_lines(lines), options) {}

  const Dataflow* operator->() const { return &net_.flow; }
  const NetValue& made(int op, int output = 0) const { return net_.flow.value(net_.flow.made(op, output)); }
  const NetValue& last(const std::string& name) const { return net_.flow.value(net_.flow.last(blob(name))); }
  const ValueStorage& storage(const NetValue& value) const { return net_.flow.storages()[value.storage]; }
  int blob(const std::string& name) const { return net_.flow.find(name); }
  Texts named(std::span<const int> blobs) const {
    Texts names;
    for (const int b : blobs) names.push_back(net_.flow.name(b));
    return names;
  }
  Texts ending(int op) const { return named(net_.flow.ending(op)); }
  Holdings holdings() const {
    std::vector<const BoundOp*> ops;
    for (const BoundOp& op : net_.ops) ops.push_back(&op);
    return find_holdings(ops, net_.flow);
  }

 private:
  BoundNet net_;
};

OperatorDef with_branch(OperatorDef op, const Lines& lines) {
  Argument& branch = *op.add_arg();
  branch.set_name("then_net");
  *branch.mutable_n() = net_of_lines(lines);
  return op;
}

TEST(Dataflow, AChain) {
  const Flow flow({"a = Tanh(x)", "b = Mul(a, x)", "c = Mul(a, a)"}, {.visible = {"c"}});
  EXPECT_EQ(flow.named(flow->from_outside()), (Texts{"x"}));
  EXPECT_EQ(flow->value(flow->read(0, 0)).version, 0);
  EXPECT_EQ(flow->value(flow->read(0, 0)).writer, -1);
  EXPECT_EQ(flow.made(0).version, 1);
  EXPECT_EQ(flow.made(0).writer, 0);
  EXPECT_EQ(flow.made(0).readers, (Numbers{1, 2}));
  EXPECT_EQ(flow.made(0).uses, (Numbers{1, 2, 2}));
  EXPECT_EQ(flow.made(0).overwritten, NetValue::kNever);
  EXPECT_EQ(flow.storage(flow.made(0)).first, 0);
  EXPECT_EQ(flow.storage(flow.made(0)).last, 2);
  EXPECT_FALSE(flow.storage(flow.made(0)).lasting);
  EXPECT_TRUE(flow.storage(flow.made(2)).lasting);
  EXPECT_TRUE(flow.storage(flow->value(flow->read(0, 0))).lasting);
  EXPECT_EQ(flow.ending(0), Texts{});
  EXPECT_EQ(flow.ending(1), (Texts{"b"}));
  EXPECT_EQ(flow.ending(2), (Texts{"a"}));
}

TEST(Dataflow, WrittenAgainABlobKeepsItsStorage) {
  const Flow flow({"a = Tanh(x)", "a = Relu(a)", "b = Tanh(a)", "a = Gelu(x)"});
  EXPECT_EQ(flow.made(0).overwritten, 1);
  EXPECT_EQ(flow.made(1).overwritten, 3);
  EXPECT_EQ(flow.made(3).version, 3);
  EXPECT_EQ(flow->versions(flow.blob("a")), 3);
  EXPECT_EQ(flow->last_writer(flow.blob("a")), 3);
  for (const int op : {1, 3}) EXPECT_EQ(flow.made(op).storage, flow.made(0).storage);
  EXPECT_EQ(flow->read(2, 0), flow->made(1, 0));
  EXPECT_EQ(flow.ending(3), (Texts{"a"}));
}

TEST(Dataflow, InPlaceEveryNameShowsTheNewValue) {
  const Flow flow({"k = Alias(x)", "m = Alias(k)", "k = Tanh(k)", "y = Mul(x, m)"});
  EXPECT_EQ(flow.made(0).alias_of, flow->read(0, 0));
  EXPECT_EQ(flow.made(1).alias_of, flow->made(0, 0));
  EXPECT_EQ(flow.made(0).storage, flow.made(1).storage);
  EXPECT_EQ(flow->read(3, 0), flow->made(2, 0));
  EXPECT_EQ(flow->read(3, 1), flow->made(2, 0));
  EXPECT_EQ(flow.made(1).overwritten, 2);
  EXPECT_EQ(flow->versions(flow.blob("x")), 1);
  EXPECT_EQ(flow->last_writer(flow.blob("m")), 2);
  EXPECT_EQ(flow->group(flow.blob("x")), flow->group(flow.blob("m")));
  EXPECT_NE(flow->group(flow.blob("x")), flow->group(flow.blob("y")));
  EXPECT_TRUE(flow.storage(flow.made(0)).lasting);  // x comes from outside
}

TEST(Dataflow, WrittenAnewANameLeavesTheOthers) {
  const Flow flow({"k = Alias(x)", "k = Tanh(w)", "y = Mul(k, x)"});
  EXPECT_NE(flow.made(1).storage, flow.made(0).storage);
  EXPECT_EQ(flow.made(0).overwritten, 1);
  EXPECT_EQ(flow->value(flow->read(2, 1)).version, 0);
  EXPECT_EQ(flow->value(flow->read(2, 1)).overwritten, NetValue::kNever);
}

TEST(Dataflow, FixedStoragesStayShared) {
  const Flow flow({"k = Alias(x)", "k = Tanh(w)", "y = Mul(k, x)"}, {.fixed_storages = true});
  EXPECT_EQ(flow.made(1).storage, flow.made(0).storage);
  const NetValue& x = flow->value(flow->inputs(2)[1]);
  EXPECT_EQ(x.blob, flow.blob("x"));
  EXPECT_EQ(x.version, 1);
  EXPECT_EQ(x.shows, flow->made(1, 0));
  EXPECT_EQ(flow->value(x.replaces).version, 0);
  EXPECT_EQ(flow->read(2, 1), flow->made(1, 0));  // the bytes that are read
}

// A sum in place that may have grown.
TEST(Dataflow, InPlaceInAnotherShapeTheOthersHoldValuesOfTheirOwn) {
  const Flow flow({"k = Alias(s)", "s = Add(a, s) broadcast=1", "s = Add(a, s) broadcast=1", "y = Copy(k)"});
  const NetValue& k = flow.last("k");
  EXPECT_EQ(k.blob, flow.blob("k"));
  EXPECT_EQ(k.version, 3);
  EXPECT_EQ(k.shows, flow->made(2, 0));
  EXPECT_EQ(flow->value(k.replaces).shows, flow->made(1, 0));
  EXPECT_EQ(k.uses, (Numbers{3}));
  EXPECT_EQ(k.readers, Numbers{});
  EXPECT_EQ(flow.made(2).readers, (Numbers{3}));
}

TEST(Dataflow, AnAliasTakesAName) {
  const Flow flow({"a = Tanh(x)", "a = Alias(w)", "y = Copy(a)"});
  EXPECT_EQ(flow.made(0).overwritten, 1);
  EXPECT_EQ(flow.made(1).storage, flow->value(flow->read(1, 0)).storage);
}

TEST(Dataflow, ShapesAloneAreNoReaders) {
  const Flow flow({"a = Tanh(x)", "s = Shape(a)", "z = ZerosLike(a)"});
  EXPECT_EQ(flow->read(1, 0), -1);
  EXPECT_EQ(flow->inputs(1)[0], flow->made(0, 0));
  EXPECT_EQ(flow.made(0).readers, Numbers{});
  EXPECT_EQ(flow.made(0).uses, (Numbers{1, 2}));
  EXPECT_EQ(flow.storage(flow.made(0)).last, 0);
  EXPECT_EQ(flow.ending(0), (Texts{"a"}));
}

TEST(Dataflow, AbsentInputsAndOutputs) {
  NetDef net = net_of_lines({"y, mean, std = LayerNorm(x)", "z = Copy(y)"});
  net.mutable_op(0)->set_output(1, "");
  net.mutable_op(0)->add_input("");
  const Flow flow(net);
  EXPECT_EQ(flow->inputs(0)[1], -1);
  EXPECT_EQ(flow->read(0, 1), -1);
  EXPECT_EQ(flow->made(0, 1), -1);
  EXPECT_EQ(flow->output_blobs(0)[1], -1);
  EXPECT_EQ(flow->names(), (Texts{"std", "x", "y", "z"}));
  EXPECT_EQ(flow.ending(0), (Texts{"std"}));
}

TEST(Dataflow, WhatNetsInsideReadIsFoundByName) {
  NetDef net = net_of_lines({"t = Tanh(x)", "u = Tanh(x)", "u = Relu(u)", "y = If(c)", "u = Gelu(u)"});
  *net.mutable_op(3) = with_branch(net.op(3), {"y = Sigmoid(u)"});
  const Flow flow(net);
  EXPECT_FALSE(flow.made(0).by_name);
  EXPECT_FALSE(flow.made(1).by_name);
  EXPECT_TRUE(flow.made(2).by_name);
  EXPECT_FALSE(flow.made(4).by_name);
}

// It may write into the bytes that its output shares with others, or give it new ones.
TEST(Dataflow, OperatorsOnBlobs) {
  NetDef net = net_of_lines({"k = Alias(t)", "k = If(c)", "y = Copy(t)"});
  *net.mutable_op(1) = with_branch(net.op(1), {"k = Sigmoid(t)"});
  const Flow apart(net), over(net, {.blob_ops_write_over = true});
  EXPECT_EQ(apart->value(apart->read(2, 0)).version, 0);
  EXPECT_NE(apart.made(1).storage, apart.made(0).storage);
  EXPECT_EQ(over->read(2, 0), over->made(1, 0));
  EXPECT_EQ(over.made(1).storage, over.made(0).storage);
}

TEST(Dataflow, BytesAreTheMostOfAStorage) {
  const std::vector<OpBytes> bytes = {
      {.in = {64}, .out = {64}}, {.in = {192, 64}, .out = {192}}, {.in = {192}, .out = {192}}};
  const Flow flow({"a = Tanh(x)", "a = Add(w, a) broadcast=1", "b = Alias(a)"}, {.bytes = bytes});
  EXPECT_EQ(flow.storage(flow.made(0)).bytes, 192);
  EXPECT_EQ(flow->storages().size(), 3U);
  EXPECT_EQ(flow.storage(flow->value(flow->read(0, 0))).bytes, 64);
}

TEST(Dataflow, HoldingsGoOnInPlaceAndWhereBytesMayBeShared) {
  const Flow flow({"a = Tanh(x)", "a = Relu(a)", "b = Copy(a)", "a = Gelu(x)", "k = Alias(b)", "b = Tanh(x)"},
                  {.visible = {"k"}});
  const Holdings held = flow.holdings();
  ASSERT_EQ(held.all.size(), 4U);
  EXPECT_EQ(held.made[1][0], held.made[0][0]);  // in place
  EXPECT_NE(held.made[3][0], held.made[1][0]);
  EXPECT_EQ(held.made[5][0], held.made[2][0]);  // k may see it
  EXPECT_EQ(held.all[held.made[0][0]].last, 2);
  EXPECT_FALSE(held.all[held.made[0][0]].is_visible);
  EXPECT_TRUE(held.all[held.made[2][0]].is_visible);
}

TEST(Dataflow, HoldingsLastAsLongAsOperatorsOnBlobsMentionThem) {
  NetDef net = net_of_lines({"t = Tanh(x)", "u = Tanh(x)", "v = Copy(u)", "y = If(c)"});
  *net.mutable_op(3) = with_branch(net.op(3), {"y = Sigmoid(u)"});
  const Holdings held = Flow(net).holdings();
  EXPECT_EQ(held.all[held.made[0][0]].last, 0);
  EXPECT_EQ(held.all[held.made[1][0]].last, 3);
  EXPECT_EQ(held.all[held.made[2][0]].last, 2);
}

TEST(Dataflow, NamesAlone) {
  NetDef net;
  for (const auto& [in, out] : {std::pair{"x", "a"}, {"a", "b"}, {"w", ""}, {"", "c"}, {"x", "w"}})
    *net.add_op() = make_op("NoSuchOperator", {in}, {out});
  EXPECT_EQ(read_from_outside(net), (Texts{"x", "w"}));
  EXPECT_EQ(written_names(net), (std::set<std::string>{"", "a", "b", "c", "w"}));
}

// Each operator in place writes what all names so far show, and one of them is read.
TEST(Dataflow, ManyNamesOfOneStorage) {
  constexpr int kNames = 21'000;
  NetDef net;
  for (int i = 0; i < kNames; ++i) {
    *net.add_op() = make_op("Alias", {"x"}, {fmt::format("k{}", i)});
    *net.add_op() = make_op("Relu", {"x"}, {"x"});
    *net.add_op() = make_op("Copy", {fmt::format("k{}", i / 2)}, {"y"});
  }
  const Flow flow(net);
  EXPECT_EQ(flow->storages().size(), 2U);
  EXPECT_EQ(flow->values().size(), 3U * kNames + 1);
  EXPECT_EQ(flow->last(flow.blob("k0")), flow->made(3 * kNames - 2, 0));
  EXPECT_EQ(flow->versions(flow.blob("k0")), kNames + 1);
  EXPECT_EQ(flow->group(flow.blob("k0")), flow->group(flow.blob("k9")));
}

}  // namespace
}  // namespace stepnet::testing::dataflow_test
