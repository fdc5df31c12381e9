// Planned memory on random nets: fan-out, steps in place, names that are written again, other names for the same bytes,
// operators with several outputs, types that change between runs, and the gradients of all that. Outputs have the bits
// of a net that plans nothing.
#include <gtest/gtest.h>

#include "stepnet/random.h"
#include "tests/core/planned_runs.h"

namespace stepnet::testing::net_arena_fuzz_test {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return random_int(seed_, next_++, 0, n - 1); }
  bool chance(double p) { return random_uniform(seed_, next_++) < p; }
  const std::string& pick(const std::vector<std::string>& from) {
    return from[below(static_cast<int64_t>(from.size()))];
  }

 private:
  uint64_t seed_, next_ = 0;
};

struct Made {
  const char* type;
  int inputs = 1, outputs = 1;
  std::vector<Argument> args = {};
};

// All of square matrices to square matrices, but for Concat, whose output only Split reads.
const std::vector<Made>& operators() {
  static const std::vector<Made> all = {{"Add", 2},
                                        {"Sub", 2},
                                        {"Mul", 2},
                                        {"MatMul", 2},
                                        {"Sum", 3},
                                        {"Tanh"},
                                        {"Sigmoid"},
                                        {"Negative"},
                                        {"Relu"},
                                        {"Transpose"},
                                        {"Softmax"},
                                        {"Alias"},
                                        {"Copy"},
                                        {"Scale", 1, 1, {make_arg("scale", 0.5F)}},
                                        {"Dropout", 1, 2, {make_arg("ratio", 0.5F)}},
                                        {"Concat", 2, 2, {make_arg("axis", 1)}}};
  return all;
}

struct RandomNet {
  NetDef net;
  std::vector<std::string> inputs = {"x0", "x1"};
};

RandomNet random_net(uint64_t seed) {
  Dice dice(seed);
  RandomNet r;
  r.net.set_name("random");
  std::vector<std::string> blobs = r.inputs;
  const auto add = [&](const OperatorDef& op) {
    try {
      bind_op(op, "random", 0);
    } catch (const Error&) {
      return false;  // not allowed in place
    }
    *r.net.add_op() = op;
    return true;
  };
  const int64_t count = 4 + dice.below(16);
  for (int64_t i = 0; i < count; ++i) {
    const Made& made = operators()[dice.below(static_cast<int64_t>(operators().size()))];
    std::vector<std::string> in;
    for (int k = 0; k < made.inputs; ++k) in.push_back(dice.pick(blobs));
    const std::string fresh = "h" + std::to_string(i);
    std::string out = dice.chance(0.2) ? dice.pick(in) : dice.chance(0.15) ? dice.pick(blobs) : fresh;
    // Of a name that another operator writes too, the next run would begin with another blob's bytes.
    if (std::string(made.type) == "Alias") out = fresh;
    if (std::string(made.type) == "Concat") {
      const std::string wide = "w" + std::to_string(i), other = "g" + std::to_string(i);
      add(make_op("Concat", in, {wide, wide + "_sizes"}, made.args));
      add(make_op("Split", {wide}, {fresh, other}, made.args));
      blobs.push_back(other);
      out = fresh;
    } else {
      std::vector<std::string> outs = {out};
      if (made.outputs == 2) outs.push_back("m" + std::to_string(i));
      if (!add(make_op(made.type, in, outs, made.args))) continue;
    }
    if (std::ranges::find(blobs, out) == blobs.end()) blobs.push_back(out);
  }
  for (const std::string& name : r.inputs) r.net.add_external_input(name);
  std::set<std::string> outputs;
  for (int64_t i = 0, n = 1 + dice.below(2); i < n; ++i) {
    const OperatorDef& op = r.net.op(static_cast<int>(dice.below(r.net.op_size())));
    outputs.insert(op.output(0));
  }
  *r.net.add_op() = make_op("SumElements", {r.net.op(r.net.op_size() - 1).output(0)}, {"loss"});
  outputs.insert("loss");
  for (const std::string& name : outputs) r.net.add_external_output(name);
  return r;
}

Feeds feeds_of(const RandomNet& r, int64_t size, uint64_t seed) {
  Feeds feeds;
  for (const std::string& name : r.inputs) feeds.emplace_back(name, normal<float>({size, size}, ++seed, 0, 0.7));
  return feeds;
}

// How many of the runs were in the block.
int compare_runs(const RandomNet& r, const NetDef& net, uint64_t seed) {
  NetRuns planned(net, feeds_of(r, 5, seed), {.plan_memory = true});
  NetRuns plain(net, feeds_of(r, 5, seed), {});
  int in_block = 0;
  for (const int64_t size : {5, 5, 5, 5, 9, 9, 9, 5, 0, 0, 0, 1, 5, 9}) {
    const Feeds feeds = feeds_of(r, size, seed + 100 * static_cast<uint64_t>(size));
    planned.feed(feeds);
    plain.feed(feeds);
    planned.run();
    plain.run();
    EXPECT_EQ(difference(planned, plain, outputs_of(net)), "") << net.DebugString();
    in_block += planned.net().memory().planned ? 1 : 0;
  }
  return in_block;
}

TEST(NetArenaFuzz, RandomNetsHaveTheSameBits) {
  int in_block = 0, trained = 0;
  for (uint64_t seed = 1; seed <= 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const RandomNet r = random_net(seed);
    in_block += compare_runs(r, r.net, seed);
    NetDef training;
    try {
      training = descent_net(r.net, "loss", r.inputs);
    } catch (const Error&) {
      continue;  // it depends on no input, or what the backward pass would read is overwritten
    }
    for (const std::string& name : outputs_of(r.net)) training.add_external_output(name);
    in_block += compare_runs(r, training, seed);
    ++trained;
  }
  EXPECT_GT(trained, 100);
  EXPECT_GT(in_block, 2000);
}

}  // namespace
}  // namespace stepnet::testing::net_arena_fuzz_test
