// Recurrent networks that run by segments of timesteps: to the bit what they give in one piece, whatever room they
// have, and no more memory than their plan says.
#include "recurrent/network/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/autograd/saved/offload_packer.h"
#include "core/compute/threads.h"
#include "core/operator/cast_kernels.h"
#include "recurrent/form/short_form.h"
#include "recurrent/network/kept.h"
#include "stepnet/arguments.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/layers.h"
#include "tests/recurrent/segment_testing.h"

namespace stepnet::testing::segments_test {
namespace {

constexpr int64_t kAll = -1;

Sizes sizes(int64_t steps, int64_t batch) {
  return {{'T', steps}, {'B', batch}, {'I', 2}, {'H', 3}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 3}};
}

// Every external output gets a gradient.
CellData data_of(const NetDef& net, Feeds feeds) {
  CellData data{std::move(feeds), {}};
  const auto blobs = run_forward(net, data.feeds);
  for (const std::string& name : net.external_output()) {
    const Tensor& like = blobs.at(name);
    const uint64_t seed = 900 + data.outside.size();
    data.outside.emplace_back(
        name, like.dtype() == DType::float64 ? normal<double>(like.shape(), seed) : normal<float>(like.shape(), seed));
  }
  return data;
}

template <class T>
Tensor with_zeros_for_nan(const Tensor& t) {
  Tensor numbers = t.clone();
  for (T& v : numbers.span<T>())
    if (std::isnan(v)) v = 0;
  return numbers;
}

template <class T>
bool nearly_same(const Tensor& a, const Tensor& b, double tol) {
  const auto both_or_none = [](T x, T y) { return std::isnan(x) == std::isnan(y); };
  return a.shape() == b.shape() && std::ranges::equal(a.span<T>(), b.span<T>(), both_or_none) &&
         compare(with_zeros_for_nan<T>(a), with_zeros_for_nan<T>(b), tol, ErrorScale::tensor).empty();
}

// On a GPU the library's products of other sizes add up in another order. States of some cells grow to NaN.
bool same(const Tensor& a, const Tensor& b) {
  if (test_device().kind == DeviceKind::cpu) return same_bits(a, b);
  return a.dtype() == DType::float64 ? nearly_same<double>(a, b, 1e-12) : nearly_same<float>(a, b, 1e-4);
}

// The names of all results in which two nets differ, on the same data twice.
std::string differences(const NetDef& whole, const NetDef& parts, const CellData& data) {
  const std::vector<CellResults> expected = run_in_turn(whole, {data, data}),
                                 results = run_in_turn(parts, {data, data});
  std::string text;
  for (size_t i = 0; i < 2; ++i) {
    for (const std::string& name : whole.external_output())
      if (!same(results[i].outputs.at(name), expected[i].outputs.at(name))) text += name + " ";
    for (const auto& [name, gradient] : expected[i].gradients)
      if (!same(results[i].gradients.at(name), gradient)) text += "d" + name + " ";
  }
  return text;
}

class SegmentsOfCells : public ::testing::TestWithParam<CellFile> {
 protected:
  ~SegmentsOfCells() override { set_threads(0); }
};

TEST_P(SegmentsOfCells, GiveTheSameBits) {
  const NetDef net = cell_net(GetParam().name);
  for (const DType dtype : {DType::float64, DType::float32})
    for (const auto& [steps, batch] : {std::pair{21, 50}, {9, 64}}) {
      const CellData data = data_of(net, cell_feeds(GetParam().name, dtype, sizes(steps, batch)));
      NetDef whole = net;
      expand_recurrent(whole);
      for (const int64_t room : {int64_t{0}, int64_t{20000}, kAll})
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(
              fmt::format("T = {}, B = {}, {}, room {}, {} threads", steps, batch, dtype_name(dtype), room, threads));
          set_threads(threads);
          EXPECT_EQ(differences(whole, in_segments(net, 1, room), data), "");
        }
    }
}

TEST_P(SegmentsOfCells, GiveTheSameBitsForSmallBatches) {
  const NetDef net = cell_net(GetParam().name);
  const CellData data = data_of(net, cell_feeds(GetParam().name, DType::float32, sizes(520, 2)));
  NetDef whole = net;
  expand_recurrent(whole);
  for (const int64_t room : {int64_t{0}, kAll}) EXPECT_EQ(differences(whole, in_segments(net, 1, room), data), "");
}

INSTANTIATE_TEST_SUITE_P(Files, SegmentsOfCells, ::testing::ValuesIn(cell_files()),
                         [](const auto& info) { return info.param.name; });

TEST(Segments, OfLayersWithLengthsAndInBothDirectionsGiveTheSameBits) {
  for (const CellKind cell : {CellKind::rnn, CellKind::gru, CellKind::lstm})
    for (const bool lengths : {false, true})
      for (const int directions : {1, 2}) {
        Layers l;
        l.cell = cell;
        l.layers = 2;
        l.directions = directions;
        l.lengths = lengths;
        l.dropout = 0.3F;
        SCOPED_TRACE(name_of(l));
        const NetDef net = net_of(l);
        const CellData data = data_of(net, feeds_of(l, DType::float64, 17, 64));
        NetDef whole = net;
        expand_recurrent(whole);
        for (const int64_t room : {int64_t{0}, int64_t{100000}, kAll})
          EXPECT_EQ(differences(whole, in_segments(net, 4, room), data), "") << room;
      }
}

// Copies, as files would be; counts what it has.
class Elsewhere : public TensorPacker {
 public:
  std::unique_ptr<PackedTensors> pack(std::vector<Tensor> values) override {
    if (fails_at == packed++) fail("there is no room elsewhere");
    auto copy = std::make_unique<Copy>();
    for (const Tensor& t : values) {
      copy->bytes.emplace_back(reinterpret_cast<const char*>(t.raw()), t.bytes());
      copy->types.push_back(TensorType::of(t.dtype(), t.shape()));
    }
    return copy;
  }
  int packed = 0, fails_at = -1;

 private:
  struct Copy : PackedTensors {
    std::vector<Tensor> unpack() override {
      std::vector<Tensor> values;
      for (size_t i = 0; i < bytes.size(); ++i) {
        values.push_back(Tensor::empty(types[i].dtype, types[i].shape));
        std::memcpy(values.back().raw(), bytes[i].data(), bytes[i].size());
      }
      return values;
    }
    std::vector<std::string> bytes;
    std::vector<TensorType> types;
  };
};

TEST(Segments, APackerGetsThemAllButTheLast) {
  const Feeds feeds = lstm_feeds(100, 32, 16);
  const NetDef net = expanded_net(lstm(), feeds);
  Training whole(net, feeds), parts(net, feeds);
  whole.run();
  Elsewhere elsewhere;
  for (int i = 0; i < 3; ++i) {
    elsewhere.packed = 0;
    parts.run(&elsewhere);
    EXPECT_EQ(elsewhere.packed, parts.segments().count() - 1);
    EXPECT_GT(elsewhere.packed, 10);
    for (const char* name : {"h_all", "c_last", "X_grad", "Wx_grad", "Wh_grad", "bh_grad"})
      EXPECT_TRUE(same_bits(parts[name], whole[name])) << name;
  }
}

// Of an LSTM of 1000 timesteps: nothing grows with their number but inputs, outputs and their gradients.
TEST(Segments, WithAPackerTakeTheBytesOfThoseAtWork) {
  const Feeds feeds = lstm_feeds(1000, 32, 16);
  const NetDef net = expanded_net(lstm(), feeds);
  const SerialScope serial;
  Training whole(net, feeds), parts(net, feeds), offloaded(net, feeds);
  const int64_t kept = 1000 * 32 * 16 * 4 * (4 + 1);  // the gates and c
  const int64_t rest = whole.run() - kept;
  Elsewhere elsewhere;
  const int64_t one = parts.run(&elsewhere);
  const Segments& segments = parts.segments();
  const int64_t segment = (segments.steps * 5 + 1) * 32 * 16 * 4;
  EXPECT_GT(segments.count(), 14);
  EXPECT_LE(one, rest + segment);
  const TempFolder folder;
  autograd::OffloadPacker packer({.folder = folder.path()});
  for (int i = 0; i < 3; ++i) EXPECT_LE(offloaded.run(&packer), rest + 2 * segment) << i;
  // What is asked for before it has been let go of is not read: of each run the last values, if the disk is slow.
  EXPECT_LE(packer.counters().read, packer.counters().written);
  EXPECT_GE(packer.counters().read, packer.counters().written - 3 * 2);
  EXPECT_GE(packer.counters().written, 2 * (segments.count() - 1));
  for (const char* name : {"h_all", "c_last", "X_grad", "Wx_grad", "Wh_grad", "bh_grad"})
    EXPECT_TRUE(same_bits(offloaded[name], whole[name])) << name;
  EXPECT_EQ(folder.count(), 0);
}

TEST(Segments, TakeTheRoomOfTheirPlan) {
  const Feeds feeds = lstm_feeds(512, 32, 16);
  const NetDef net = expanded_net(lstm(), feeds);
  const SerialScope serial;
  Training none(in_segments(net, 1, 0), feeds);
  none.run();
  const int64_t least = none.run();
  int64_t runs = none.segments().plan.runs;
  EXPECT_EQ(runs, 64 * 65 / 2);
  for (const int64_t room : {4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}) {
    Training some(in_segments(net, 1, room), feeds);
    some.run();
    EXPECT_EQ(some.run(), least + some.segments().plan.room) << room;
    EXPECT_LE(some.segments().plan.room, room);
    EXPECT_LT(some.segments().plan.runs, runs);
    runs = some.segments().plan.runs;
  }
}

TEST(Segments, AreNotUsedWhereOneHoldsAll) {
  const Feeds feeds = lstm_feeds(8, 32, 4);
  Training t(in_segments(expanded_net(lstm(), feeds), 1, 0), feeds);
  t.run();
  EXPECT_FALSE(t.segments().used);
}

// Runs of other lengths, the short ones in one piece.
void expect_to_follow_shapes(const NetDef& net, const NetDef& net_in_parts, const Feeds& feeds,
                             bool Segments::*in_parts) {
  Training whole(net, feeds), parts(net_in_parts, feeds);
  for (const int64_t steps : {100, 8, 61, 100})
    for (Training* t : {&whole, &parts}) {
      t->workspace().tensor("X") = normal<float>({steps, 32, 4}, 11);
      t->workspace().tensor("dh_all") = normal<float>({steps, 32, 4}, 12);
      t->run();
      if (t != &parts) continue;
      EXPECT_EQ(parts.segments().*in_parts, steps > 8);
      EXPECT_TRUE(same_bits(parts["Wh_grad"], whole["Wh_grad"])) << steps;
      EXPECT_TRUE(same_bits(parts["h_all"], whole["h_all"])) << steps;
    }
}

TEST(Segments, FollowShapesThatChange) {
  const Feeds feeds = lstm_feeds(100, 32, 4);
  const NetDef net = expanded_net(lstm(), feeds);
  expect_to_follow_shapes(net, in_segments(net, 16, 0), feeds, &Segments::used);
}

TEST(Segments, APackerMayComeAndGo) {
  const Feeds feeds = lstm_feeds(100, 32, 4);
  const NetDef net = expanded_net(lstm(), feeds);
  Training whole(net, feeds), parts(in_segments(net, 16, 0), feeds);
  whole.run();
  Elsewhere elsewhere;
  for (TensorPacker* packer : std::initializer_list<TensorPacker*>{nullptr, &elsewhere, nullptr}) {
    parts.run(packer);
    EXPECT_EQ(parts.segments().plan.reruns, packer == nullptr);
    EXPECT_TRUE(same_bits(parts["Wh_grad"], whole["Wh_grad"]));
  }
}

TEST(Segments, AfterAPackerHasFailedTheNextRunIsWhole) {
  const Feeds feeds = lstm_feeds(100, 32, 4);
  const NetDef net = expanded_net(lstm(), feeds);
  Training whole(net, feeds), parts(net, feeds);
  whole.run();
  Elsewhere elsewhere;
  elsewhere.fails_at = 3;
  expect_contains(error_text([&] { parts.run(&elsewhere); }), "there is no room elsewhere");
  elsewhere.fails_at = -1;
  parts.run(&elsewhere);
  EXPECT_TRUE(same_bits(parts["Wh_grad"], whole["Wh_grad"]));
}

// --- States that are made again ---

NetDef rebuilding(NetDef net) {
  expand_recurrent(net);
  for (OperatorDef& op : *net.mutable_op())
    if (op.type() == kRecurrentNetwork) *op.add_arg() = make_arg("rebuild_states", true);
  return net;
}

TEST_P(SegmentsOfCells, GiveTheSameBitsWithStatesMadeAgain) {
  const NetDef net = cell_net(GetParam().name);
  for (const DType dtype : {DType::float64, DType::float32}) {
    const CellData data = data_of(net, cell_feeds(GetParam().name, dtype, sizes(21, 64)));
    NetDef whole = net;
    expand_recurrent(whole);
    for (const int threads : {1, 2}) {
      set_threads(threads);
      EXPECT_EQ(differences(whole, rebuilding(net), data), "") << dtype_name(dtype) << ", " << threads << " threads";
    }
  }
}

TEST(RebuiltStates, OfLayersWithLengthsAndInBothDirectionsGiveTheSameBits) {
  for (const bool lengths : {false, true})
    for (const bool initial : {false, true})
      for (const int directions : {1, 2}) {
        Layers l;
        l.cell = CellKind::lstm;
        l.layers = 2;
        l.directions = directions;
        l.lengths = lengths;
        l.initial = initial;
        SCOPED_TRACE(name_of(l));
        const NetDef net = net_of(l);
        const CellData data = data_of(net, feeds_of(l, DType::float64, 21, 64));
        NetDef whole = net;
        expand_recurrent(whole);
        EXPECT_EQ(differences(whole, rebuilding(net), data), "");
      }
}

// The rows of a segment and those before each one but the last, in place of those of all timesteps, to the byte; the
// last is copied for who sees it, and the third step net has a timestep. No run takes anything new but the first.
TEST(RebuiltStates, TakeTheRowsOfASegmentAndThoseBeforeEach) {
  const Feeds feeds = lstm_feeds(100, 32, 16);
  const NetDef net = expanded_net(lstm(), feeds);
  const SerialScope serial;
  Training(net, feeds).run();  // makes what all products of a thread share
  Training whole(net, feeds), parts(rebuilding(net), feeds);
  const int64_t row = 32 * 16 * 4;
  const int64_t of_whole = whole.run(), of_parts = parts.run();
  EXPECT_TRUE(parts.segments().rebuilds);
  EXPECT_EQ(parts.segments().steps, 8);
  EXPECT_EQ(parts.segments().states.size(), 1);  // c: "h_all" shows h
  EXPECT_EQ(of_whole - of_parts, (101 - (8 + 1) - 12 - 1) * row - 64);
  for (int i = 0; i < 3; ++i) {
    const int64_t allocations = allocator({}).counters().allocations;
    whole.run();
    parts.run();
    EXPECT_EQ(allocator({}).counters().allocations, allocations);
    for (const char* name : {"h_all", "c_last", "X_grad", "Wx_grad", "Wh_grad", "bh_grad"})
      EXPECT_TRUE(same_bits(parts[name], whole[name])) << name;
  }
}

TEST(RebuiltStates, FollowShapesThatChange) {
  const Feeds feeds = lstm_feeds(100, 32, 4);
  const NetDef net = expanded_net(lstm(), feeds);
  expect_to_follow_shapes(net, rebuilding(net), feeds, &Segments::rebuilds);
}

TEST(RebuiltStates, GiveWayToSegmentsThatAreAskedForAndToAPacker) {
  const Feeds feeds = lstm_feeds(100, 32, 4);
  const NetDef net = rebuilding(expanded_net(lstm(), feeds));
  Training whole(expanded_net(lstm(), feeds), feeds), parts(net, feeds), asked(in_segments(net, 16, 0), feeds);
  whole.run();
  Elsewhere elsewhere;
  for (TensorPacker* packer : std::initializer_list<TensorPacker*>{nullptr, &elsewhere, nullptr}) {
    parts.run(packer);
    EXPECT_EQ(parts.segments().rebuilds, packer == nullptr);
    EXPECT_TRUE(same_bits(parts["Wh_grad"], whole["Wh_grad"]));
  }
  asked.run();
  EXPECT_TRUE(asked.segments().used);
  EXPECT_FALSE(asked.segments().rebuilds);
}

// Whether the network makes states again.
bool is_rebuilding(const Cell& cell, const Feeds& feeds) {
  Training t(rebuilding(expanded_net(cell, feeds)), feeds);
  t.run();
  return t.segments().rebuilds;
}

TEST(RebuiltStates, AreThoseAloneThatAUnitMakesFromWhatIsThere) {
  const Feeds feeds = lstm_feeds(100, 32, 4);
  EXPECT_TRUE(is_rebuilding(lstm(), feeds));
  Cell changed = lstm();  // by another operator, before the next timestep
  changed.step.back() = "h, c_new = LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0";
  changed.step.emplace_back("c = Tanh(c_new)");
  EXPECT_FALSE(is_rebuilding(changed, feeds));
  Cell read = lstm();  // what the unit reads is made in the timestep
  read.step.insert(read.step.begin(), "c_before = Tanh(c_prev)");
  read.step.back() = "h, c = LSTMUnit(h_prev, c_before, gates, timestep) sequence_lengths=0";
  EXPECT_FALSE(is_rebuilding(read, feeds));
  Cell seen = lstm();
  seen.states[1].all = "c_all";
  EXPECT_FALSE(is_rebuilding(seen, feeds));
  Cell summed = lstm();  // the gates' sums are kept as they are
  summed.disabled_passes = {"activate"};
  EXPECT_FALSE(is_rebuilding(summed, feeds));
}

// The gates of half types are rounded when they are kept.
TEST(RebuiltStates, AreNotThoseOfHalfTypes) {
  Feeds feeds = lstm_feeds(100, 32, 4);
  RunContext run;
  for (auto& [name, value] : feeds) {
    Tensor half = Tensor::empty(DType::bfloat16, value.shape());
    cast_elements(value, half, run);
    value = half;
  }
  EXPECT_FALSE(is_rebuilding(lstm(), feeds));
}

// Two cells that run at the same time, as so few samples are not shared out.
TEST(RebuiltStates, AreNotThoseOfCellsThatRunAtTheSameTime) {
  Cell two = lstm();
  two.step.insert(two.step.end(),
                  {"a2 = FC(h, Wx, bx) axis=2", "r2 = FC(h2_prev, Wh, bh) axis=2", "gates2 = Sum(a2, r2)",
                   "h2, c2 = LSTMUnit(h2_prev, c2_prev, gates2, timestep) sequence_lengths=0"});
  two.states.push_back({"h2_prev", "h2", "h0", "", "h2_last"});
  two.states.push_back({"c2_prev", "c2", "c0", "", "c2_last"});
  const Feeds feeds = lstm_feeds(200, 6, 4);
  for (const int threads : {1, 2}) {
    set_threads(threads);
    EXPECT_EQ(is_rebuilding(two, feeds), threads == 1);
  }
  set_threads(0);
}

// As the tape does it to run back again.
TEST(RebuiltStates, AreThereForAnotherBackwardRun) {
  const Feeds feeds = lstm_feeds(100, 32, 16);
  std::map<std::string, Tensor> expected;
  for (const bool again : {false, true}) {
    NetDef net = expanded_net(lstm(), feeds);
    if (again) net = rebuilding(net);
    const int forward = net.op_size();
    add_gradient_operators(net,
                           {.targets = {{"h_all", "dh_all"}}, .wanted = {"X", "Wx", "bx", "Wh", "bh"}, .stop = {}});
    NetDef backward = net;
    backward.mutable_op()->DeleteSubrange(0, forward);
    backward.clear_external_input();
    net.mutable_op()->DeleteSubrange(forward, net.op_size() - forward);
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
    RunContext run;
    Net(net, workspace).run(run);
    Net back(backward, workspace);
    run.keep_values = true;
    for (int i = 0; i < 3; ++i) {
      back.run(run);
      for (const char* name : {"X_grad", "Wx_grad", "Wh_grad", "bh_grad"}) {
        const Tensor gradient = workspace.fetch(name).clone();
        if (!expected.count(name)) expected[name] = gradient;
        EXPECT_TRUE(same_bits(gradient, expected[name])) << name << i;
      }
    }
  }
}

TEST(Segments, RefuseNumbersThatMeanNothing) {
  const Feeds feeds = lstm_feeds(8, 2, 4);
  const NetDef net = expanded_net(lstm(), feeds);
  expect_contains(error_text([&] { Training(in_segments(net, -1, 0), feeds).run(); }), "\"segment_steps\" is -1");
  expect_contains(error_text([&] { Training(in_segments(net, 1, -2), feeds).run(); }), "\"segment_room\" is -2");
}

}  // namespace
}  // namespace stepnet::testing::segments_test
