// Mixed precision: what the pass makes of a net, and training runs in half types.
#include "core/passes/mixed_precision.h"
#include "recurrent/train/model.h"

#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "core/tensor/dry_device.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/stepper.h"
#include "stepnet/operator.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::mixed_precision_test {
namespace {

using testing::saved_bytes;
using testing::TempFolder;
using testing::tiny_net;

NetDef parsed(const std::string& text) { return parse_net_text(text, "test.pbtxt"); }
TensorType floats(const Shape& shape) { return TensorType::of(DType::float32, shape); }

std::vector<std::string> lines_of(const NetDef& net) {
  std::vector<std::string> lines;
  for (const OperatorDef& op : net.op())
    lines.push_back(fmt::format("{} = {}({})", fmt::join(op.output(), ","), op.type(), fmt::join(op.input(), ",")));
  return lines;
}

TEST(MixedPrecision, CastsOnceAndKeepsLossesInFloat32) {
  const NetDef net = parsed(R"(
    op { type: "FC" input: "X" input: "W" input: "b" output: "y" }
    op { type: "Relu" input: "y" output: "y" }
    op { type: "FC" input: "y" input: "W" input: "b" output: "z" }
    op { type: "Softmax" input: "z" output: "p" }
    op { type: "Mul" input: "p" input: "z" output: "q" }
    op { type: "Shape" input: "z" output: "size" }
    external_output: "y" external_output: "q"
  )");
  const MixedPrecision how{.type = DType::bfloat16,
                           .known = {{"X", floats({2, 3})}, {"W", floats({3, 3})}, {"b", floats({3})}}};
  const std::vector<std::string> expected = {"X_bfloat16 = Cast(X)",
                                             "W_bfloat16 = Cast(W)",
                                             "b_bfloat16 = Cast(b)",
                                             "y_bfloat16 = FC(X_bfloat16,W_bfloat16,b_bfloat16)",
                                             "y_bfloat16 = Relu(y_bfloat16)",
                                             "z_bfloat16 = FC(y_bfloat16,W_bfloat16,b_bfloat16)",
                                             "z = Cast(z_bfloat16)",
                                             "p = Softmax(z)",
                                             "q = Mul(p,z)",
                                             "size = Shape(z_bfloat16)",
                                             "y = Cast(y_bfloat16)"};
  std::vector<std::string> lines = lines_of(mixed_precision(net, how));
  // Inputs are cast in the order of their names.
  std::sort(lines.begin(), lines.begin() + 3);
  std::vector<std::string> sorted = expected;
  std::sort(sorted.begin(), sorted.begin() + 3);
  EXPECT_EQ(lines, sorted);
}

// Operators that differ only in their precision and in whether their kernels take tensors or blobs.
OpBuilder<> copy_for_test(const char* type) {
  OpBuilder<> builder(type);
  builder.doc("Copies its input.")
      .input("X", "any shape")
      .output("Y", "like X", like("X"))
      .example({"X=2"})
      .stop_gradient();
  return builder;
}
void copy_tensor(const Tensor& x, Tensor& y) { y.copy_from(x); }
void copy_blob(const NoArgs&, BlobCall& call) { call.out[0]->tensor() = call.in[0]->tensor().clone(); }

REGISTER(follow_for_test) { return copy_for_test("FollowForTest").cpu(copy_tensor); }
REGISTER(float32_for_test) { return copy_for_test("Float32ForTest").cpu(copy_tensor).precision(Precision::float32); }
REGISTER(half_for_test) { return copy_for_test("HalfForTest").cpu(copy_tensor).precision(Precision::half); }
REGISTER(blob_for_test) { return copy_for_test("BlobForTest").blobs(copy_blob); }
REGISTER(half_blob_for_test) { return copy_for_test("HalfBlobForTest").blobs(copy_blob).precision(Precision::half); }

TEST(MixedPrecision, ComputesAsAnOperatorDeclares) {
  const NetDef net = parsed(R"(
    op { type: "Float32ForTest" input: "X" output: "a" }
    op { type: "FollowForTest" input: "a" output: "b" }
    op { type: "HalfForTest" input: "b" output: "c" }
    op { type: "FollowForTest" input: "c" output: "d" }
    op { type: "Float32ForTest" input: "d" output: "e" }
    op { type: "BlobForTest" input: "X" output: "f" }
    op { type: "HalfBlobForTest" input: "X" output: "g" }
    external_output: "b" external_output: "e" external_output: "f" external_output: "g"
  )");
  const NetDef mixed = mixed_precision(net, {.type = DType::bfloat16, .known = {{"X", floats({1})}}});
  const std::vector<std::string> expected = {"a = Float32ForTest(X)",
                                             "b = FollowForTest(a)",
                                             "b_bfloat16 = Cast(b)",
                                             "c_bfloat16 = HalfForTest(b_bfloat16)",
                                             "d_bfloat16 = FollowForTest(c_bfloat16)",
                                             "d = Cast(d_bfloat16)",
                                             "e = Float32ForTest(d)",
                                             "f = BlobForTest(X)",
                                             "X_bfloat16 = Cast(X)",
                                             "g_bfloat16 = HalfBlobForTest(X_bfloat16)",
                                             "g = Cast(g_bfloat16)"};
  EXPECT_EQ(lines_of(mixed), expected);
  constexpr float value = 1 + 0x1p-8F;  // bfloat16 rounds it to 1
  Workspace blobs;
  blobs.create_local("X").tensor() = Tensor::of<float>({1}, {value});
  RunContext run;
  run_net_once(mixed, blobs, run);
  for (const char* name : {"b", "f"}) EXPECT_EQ(blobs.at(name).tensor().item<float>(), value) << name;
  for (const char* name : {"e", "g"}) EXPECT_EQ(blobs.at(name).tensor().item<float>(), 1) << name;
}

std::set<std::string> operators_of(Precision precision) {
  std::set<std::string> found;
  for (const std::string& type : op_types())
    if (op_spec(type).precision == precision && !type.ends_with("ForTest")) found.insert(type);
  return found;
}

TEST(MixedPrecision, OperatorsOfFloat32AndOfTheHalfTypeAreThese) {
  const std::set<std::string> in_float32 = {"AveragedLoss",
                                            "BatchNorm",
                                            "CTCLoss",
                                            "Cast",
                                            "CastLike",
                                            "CosineSimilarity",
                                            "CrossEntropy",
                                            "CrossEntropyLoss",
                                            "Cumsum",
                                            "DotProduct",
                                            "Exp",
                                            "FCSoftmaxWithLoss",
                                            "GlobalNormClip",
                                            "HuberLoss",
                                            "L1Distance",
                                            "LabelCrossEntropy",
                                            "Lars",
                                            "LayerNorm",
                                            "LinearAttention",
                                            "LinearAttentionDecay",
                                            "Log",
                                            "LogSoftmax",
                                            "LpNorm",
                                            "MSELoss",
                                            "NLLLoss",
                                            "Normalize",
                                            "Pow",
                                            "ReduceBackMean",
                                            "ReduceBackSum",
                                            "ReduceFrontMean",
                                            "ReduceFrontSum",
                                            "ReduceL1",
                                            "ReduceL2",
                                            "ReduceMean",
                                            "ReduceSum",
                                            "Scan",
                                            "SigmoidCrossEntropyWithLogits",
                                            "SmoothL1Loss",
                                            "Softmax",
                                            "SoftmaxWithLoss",
                                            "Softplus",
                                            "SpatialBN",
                                            "SquaredL2Distance",
                                            "SumElements",
                                            "SumSqrElements",
                                            "TransducerLoss",
                                            "YellowFin"};
  const std::set<std::string> in_half = {"AddBMM", "AddMV", "AddR",         "BAddBMM", "BatchMatMul",
                                         "Conv",   "FC",    "FCTransposed", "GRU",     "Ger",
                                         "LSTM",   "MV",    "MatMul",       "RNN",     "Recurrent"};
  EXPECT_EQ(operators_of(Precision::float32), in_float32);
  EXPECT_EQ(operators_of(Precision::half), in_half);
}

TEST(MixedPrecision, LeavesWhatIsNotFloat32) {
  const NetDef net = parsed(R"(
    op { type: "FC" input: "X" input: "W" input: "b" output: "y" }
    op { type: "Iter" input: "i" output: "i" }
    op { type: "Gather" input: "table" input: "i" output: "row" }
    op { type: "Scale" input: "running" output: "running" }
  )");
  MixedPrecision how{.type = DType::float16};
  for (const char* name : {"X", "W", "b"}) how.known[name] = TensorType::of(DType::float64, {3, 3});
  how.known["b"].shape = {3};
  how.known["table"] = TensorType::of(DType::int32, {3});
  how.known["i"] = TensorType::of(DType::int64, {1});
  how.known["running"] = floats({2});  // it is written in place, so it stays float32
  EXPECT_EQ(lines_of(mixed_precision(net, how)), lines_of(net));
  how.type = DType::float32;
  EXPECT_NE(testing::error_text([&] { mixed_precision(net, how); }).find("float16 or bfloat16, not of float"),
            std::string::npos);
}

TEST(MixedPrecision, NetworksRunWholeInTheHalfType) {
  Model model = read_model(tiny_net());
  use_precision(model, DType::bfloat16);
  const std::vector<std::string> lines = lines_of(model.forward);
  const auto has = [&](const std::string& line) { return std::count(lines.begin(), lines.end(), line) == 1; };
  EXPECT_TRUE(has("x_bfloat16 = Gather(W_x_bfloat16,tokens)")) << fmt::format("{}", fmt::join(lines, "\n"));
  EXPECT_TRUE(has("p,loss = SoftmaxWithLoss(logits,next)"));
  EXPECT_TRUE(has("h_last = Cast(h_last_bfloat16)"));
  EXPECT_TRUE(has("W_h_bfloat16 = Cast(W_h)"));
  Workspace parameters;
  RunContext run;
  run_net_once(model.init, parameters, run);
  EXPECT_EQ(check_by_running(model, parameters, DType::float32, 32), 32);
}

class PrecisionTest : public ::testing::Test {
 protected:
  PrecisionTest() {
    set_threads(1);
    testing::write_all(text_, testing::tiny_text());
  }
  ~PrecisionTest() override { set_threads(0); }

  TrainOptions options(const std::string& precision, int64_t iterations, const std::string& folder = "") {
    TrainOptions o = testing::tiny_options(text_, iterations);
    o.precision = precision;
    if (!folder.empty()) o.out = folder_.file(folder);
    return o;
  }
  TrainResult train(const TrainOptions& o, int64_t stop_after = 1 << 30) {
    std::atomic<bool> stop{false};
    TrainOptions stoppable = o;
    stoppable.stop = &stop;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= stop_after; };
    events.note = [&](const std::string& text) { notes_.push_back(text); };
    return Trainer(tiny_net(), stoppable, events).run();
  }

  TempFolder folder_;
  std::string text_ = folder_.file("text");
  std::vector<std::string> notes_;
};

TEST_F(PrecisionTest, HalfTypesLearnAsFloatDoes) {
  const TrainResult expected = train(options("float32", 200));
  for (const char* precision : {"bfloat16", "float16"}) {
    const TrainResult result = train(options(precision, 200, precision));
    EXPECT_NEAR(result.loss, expected.loss, 0.05 * expected.loss) << precision;
    EXPECT_NEAR(*result.validation_loss, *expected.validation_loss, 0.05 * *expected.validation_loss) << precision;
    EXPECT_NE(result.loss, expected.loss) << precision;
    for (const auto& [name, bytes] : saved_bytes(folder_.file(precision)))
      EXPECT_EQ(bytes.find("float16"), std::string::npos) << name;  // master weights and states are float32
  }
}

TEST_F(PrecisionTest, AScaleThatIsAPowerOfTwoChangesNoBits) {
  TrainOptions plain = options("float32", 20, "plain"), scaled = options("float32", 20, "scaled");
  scaled.loss_scale = "1024";
  EXPECT_EQ(train(plain).loss, train(scaled).loss);
  const auto expected = saved_bytes(plain.out), bytes = saved_bytes(scaled.out);
  for (const auto& [name, value] : expected) EXPECT_EQ(bytes.at(name), value) << name;
  EXPECT_EQ(bytes.size(), expected.size() + 2);  // the scale, and how long it has been good
}

TEST_F(PrecisionTest, ResumedRunsEndInTheSameBits) {
  TrainOptions whole = options("float16", 40, "whole"), parts = options("float16", 40, "parts");
  for (TrainOptions* o : {&whole, &parts}) {
    o->optimizer.lr_policy = "poly";
    o->checkpoint_every = 4;
    o->loss_scale = "dynamic";
  }
  const TrainResult expected = train(whole);
  EXPECT_FALSE(train(parts, 7).finished);
  parts.resume = true;
  parts.precision = "float32";  // not given: the run's own counts
  EXPECT_FALSE(train(parts, 21).finished);
  EXPECT_EQ(train(parts).loss, expected.loss);
  EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out));
  parts.given = {"precision"};
  EXPECT_NE(testing::error_text([&] { train(parts); }).find("the run has precision float16"), std::string::npos);
}

TrainingSession session_of(const std::string& text, DType type, const OptimizerOptions& optimizer) {
  Model model = read_model(tiny_net());
  use_precision(model, type);
  const Vocabulary vocabulary = Vocabulary::of_text(text);
  return TrainingSession(model, optimizer, TextStreams(vocabulary.encode(text, "text"), 4, 7, "text"), 1, 100);
}

// All that a step may change, but for what moves on in any case.
std::map<std::string, std::string> state_of(const TrainingSession& session) {
  std::map<std::string, std::string> state;
  for (const auto& [name, t] : session.save())
    if (name != "position" && name.rfind("carry/", 0) != 0 && name.find("loss_scale") == std::string::npos)
      state[name] = std::string(reinterpret_cast<const char*>(t.raw()), t.bytes());
  return state;
}

TEST_F(PrecisionTest, AnOverflowSkipsTheStepAndHalvesTheScale) {
  for (const char* name : {"adam", "momentum", "rmsprop"}) {
    OptimizerOptions optimizer;
    optimizer.optimizer = name;
    optimizer.loss_scale = 0x1p40;  // gradients of float16 are infinite
    TrainingSession session = session_of(testing::tiny_text(), DType::float16, optimizer);
    const auto before = state_of(session);
    double scale = 0x1p40;
    int skipped = 0;
    for (; skipped < 60; ++skipped) {
      EXPECT_EQ(session.loss_scale(), scale);
      EXPECT_TRUE(std::isfinite(session.step()));
      if (!session.skipped()) break;
      EXPECT_EQ(state_of(session), before) << name;
      scale /= 2;
    }
    EXPECT_GT(skipped, 10);
    EXPECT_LT(skipped, 40);
    EXPECT_EQ(session.loss_scale(), scale);
    EXPECT_NE(state_of(session), before);
    EXPECT_EQ(session.save().at("state/train/iteration").item<int64_t>(), 1);
    EXPECT_EQ(session.iteration(), skipped + 1);
  }
}

TEST_F(PrecisionTest, AFixedScaleStays) {
  OptimizerOptions optimizer;
  optimizer.loss_scale = 0x1p40;
  optimizer.dynamic_scale = false;
  TrainingSession session = session_of(testing::tiny_text(), DType::float16, optimizer);
  session.step();
  EXPECT_TRUE(session.skipped());
  EXPECT_EQ(session.loss_scale(), 0x1p40);
  EXPECT_EQ(session_of(testing::tiny_text(), DType::bfloat16, {}).loss_scale(), 0);
}

TEST_F(PrecisionTest, WrongOptionsAreSaid) {
  const auto error = [&](const std::string& precision, const std::string& scale) {
    TrainOptions o = options(precision, 1);
    o.loss_scale = scale;
    return testing::error_text([&] { train(o); });
  };
  EXPECT_NE(error("half", "").find("there is no precision \"half\""), std::string::npos);
  for (const char* scale : {"-1", "0", "nan", "1e99", "12x", "large"})
    EXPECT_NE(error("float16", scale).find("dynamic, none or a number above 0"), std::string::npos) << scale;
}

TEST_F(PrecisionTest, TheEstimateCountsHalves) {
  const auto peak = [](DType type) {
    Model model = read_model(tiny_net());
    model.timesteps = 100;
    use_precision(model, type);
    DryScope scope;
    const auto session = training_net_session({.model = model, .optimizer = {}});
    RunContext run;
    session->net->run(run);
    session->net->run(run);
    return scope.counters().peak;
  };
  EXPECT_LT(peak(DType::bfloat16), 0.85 * static_cast<double>(peak(DType::float32)));
}

}  // namespace
}  // namespace stepnet::mixed_precision_test
