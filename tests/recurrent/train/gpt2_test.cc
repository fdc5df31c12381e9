// tools/examples/nets/gpt2.pbtxt in small: losses of a training run beside those of the same model in PyTorch, which
// tests/data/gpt2_losses/record.py records, from the same parameters in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "core/io/npy.h"
#include "core/passes/defined_operators.h"
#include "stepnet/arguments.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing::gpt2_test {
namespace {

constexpr int kLayers = 2, kWholeLayers = 12;
constexpr int64_t kUnits = 32, kPositions = 16, kTokens = 64, kBatch = 4, kSteps = 50;

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  const size_t first = text.find(from);
  ASSERT_NE(first, text.npos) << from;
  for (size_t at = first; at != text.npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

// Drops the layers after the first ones, found by the name of an output: "h3", or "h3_ln1_scale" in the init net.
void drop_layers(NetDef& net) {
  auto& ops = *net.mutable_op();
  for (int i = ops.size() - 1; i >= 0; --i)
    for (int layer = kLayers; layer < kWholeLayers; ++layer)
      if (const std::string name = fmt::format("h{}", layer);
          ops[i].output(0) == name || ops[i].output(0).starts_with(name + "_")) {
        ops.DeleteSubrange(i, 1);
        break;
      }
}

// Its net with 2 layers and heads, 32 units, 16 positions and 64 tokens.
NetDef small_gpt2() {
  std::string text = read_all(source_path("tools/examples/nets/gpt2.pbtxt"));
  replace_all(text, "ints: 50257", fmt::format("ints: {}", kTokens));
  replace_all(text, "ints: 1024", fmt::format("ints: {}", kPositions));
  replace_all(text, "ints: 2304", fmt::format("ints: {}", 3 * kUnits));
  replace_all(text, "ints: 3072", fmt::format("ints: {}", 4 * kUnits));
  replace_all(text, "ints: 768", fmt::format("ints: {}", kUnits));
  replace_all(text, "ints: 12 ", "ints: 2 ");
  replace_all(text, "f: 0.125", "f: 0.25");
  NetDef net = parse_net_text(text);
  drop_layers(net);
  drop_layers(*net.MutableExtension(model)->mutable_init());
  for (OperatorDef& op : *net.mutable_op())
    for (std::string& name : *op.mutable_input())
      if (name == fmt::format("h{}", kWholeLayers - 1)) name = fmt::format("h{}", kLayers - 1);
  expand_defined_operators(net);
  return net;
}

// As the script makes them, by their place among the parameters.
Tensor parameter(const Shape& shape, const std::string& name, int64_t place) {
  Tensor t = Tensor::empty(DType::float64, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    const auto e = static_cast<double>(i);
    t.data<double>()[i] =
        (name.ends_with("_scale") ? 1 : 0) + 0.2 * std::sin(0.01 * e * e + 0.37 * e + static_cast<double>(place));
  }
  return t;
}

// In place of the model's initial parameters.
void load_parameters(NetDef& net, const TempFolder& folder) {
  NetDef& init = *net.MutableExtension(model)->mutable_init();
  Workspace shapes;
  RunContext run;
  run_net_once(init, shapes, run);
  NetDef loads;
  for (const OperatorDef& made : init.op()) {
    const std::string& name = made.output(0);
    write_npy(folder.file(name + ".npy"), parameter(shapes.fetch(name).shape(), name, loads.op_size()));
    OperatorDef& op = *loads.add_op();
    op.set_type("LoadNpy");
    op.add_output(name);
    *op.add_arg() = make_arg("path", folder.file(name + ".npy"));
    *op.add_arg() = make_arg("absolute_path", 1);
  }
  init = loads;
}

void write_samples(const TempFolder& folder) {
  const int64_t samples = kSteps * kBatch;
  Tensor tokens = Tensor::empty(DType::int32, {samples, kPositions}), next = tokens.clone();
  for (int64_t i = 0; i < samples; ++i)
    for (int64_t t = 0; t < kPositions; ++t) {
      const auto token = [&](int64_t at) { return static_cast<int32_t>((7 * i + 3 * at + i * at) % kTokens); };
      tokens.data<int32_t>()[i * kPositions + t] = token(t);
      next.data<int32_t>()[i * kPositions + t] = token(t + 1);
    }
  write_npy(folder.file("tokens.npy"), tokens);
  write_npy(folder.file("next.npy"), next);
}

TEST(Gpt2, HasTheLossesOfPytorch) {
  const TempFolder folder;
  NetDef net = small_gpt2();
  load_parameters(net, folder);
  write_samples(folder);
  TrainOptions o;
  o.optimizer.optimizer = "sgd";
  o.optimizer.lr = 0.25;
  o.optimizer.clip = 0;
  o.data = {"tokens=" + folder.file("tokens.npy"), "next=" + folder.file("next.npy")};
  o.holdout = 0;
  o.order = "given";
  o.iterations = kSteps;
  std::istringstream recorded(read_all(source_path("tests/data/gpt2_losses/losses.txt")));
  TrainEvents events;
  int compared = 0;
  events.iteration = [&](const TrainProgress& p) {
    double expected = 0;
    recorded >> expected;
    EXPECT_NEAR(p.loss, expected, 1e-9 * expected) << "iteration " << p.iteration;
    ++compared;
  };
  Trainer trainer(net, o, events);
  EXPECT_EQ(trainer.parameter_count(),
            kTokens * kUnits + kPositions * kUnits + kLayers * (12 * kUnits * kUnits + 13 * kUnits) + 2 * kUnits);
  trainer.run();
  EXPECT_TRUE(recorded);
  EXPECT_EQ(compared, kSteps);
}

}  // namespace
}  // namespace stepnet::testing::gpt2_test
