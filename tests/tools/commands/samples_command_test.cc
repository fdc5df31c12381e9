// `stepnet train --data`, `evaluate` and `predict`: what they print, write and refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/data/csv.h"
#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"

namespace stepnet::testing::samples_command_test {
namespace {

class SamplesCommandTest : public ::testing::Test {
 protected:
  SamplesCommandTest() {
    write_all(net_, R"(name: "line"
      op { type: "FC" input: "x" input: "W" input: "b" output: "y" }
      op { type: "MSELoss" input: "y" input: "t" output: "loss" }
      op { type: "Transpose" input: "y" output: "side" arg { name: "axes" ints: 1 ints: 0 } }
      [stepnet.model] {
        init { op { type: "ConstantFill" output: "W" arg { name: "shape" ints: 1 ints: 2 } }
               op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } } }
        loss: "loss" batch: 8
        data { column: "x" }
        data { column: "t" }
        metric { name: "r2" prediction: "y" target: "t" } })");
    std::string rows = "a,b,t\n";
    for (int i = 0; i < 50; ++i) rows += fmt::format("{},{},{}\n", i % 7, i % 5, 2 * (i % 7) - i % 5 + 1);
    write_all(table_, rows);
  }
  std::string data() const { return " --data x=" + table_ + ":a,b"; }
  std::string both() const { return data() + " --data t=" + table_ + ":t"; }
  std::string run() const { return " --out " + folder_.file("run") + " --threads 1"; }
  std::string train(const std::string& more) const { return "train " + net_ + both() + run() + " " + more; }

  TempFolder folder_;
  std::string net_ = folder_.file("line.pbtxt"), table_ = folder_.file("t.csv");
};

TEST_F(SamplesCommandTest, ALineIsFound) {
  const Outcome trained = stepnet(train("--epochs 200 --lr 0.05 --holdout 0.2"));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("3 parameters, 40 samples to train on, 10 held out, batch 8"), std::string::npos)
      << trained.err;
  EXPECT_NE(trained.out.find("trained 1000 iterations"), std::string::npos) << trained.out;
  const std::string text = expect_command("evaluate" + run() + both(), 0, "samples                  50\n");
  const size_t r2 = text.find("r2 ");
  ASSERT_NE(r2, std::string::npos);
  EXPECT_GT(std::stod(text.substr(r2 + 3)), 0.999);
  expect_command("evaluate" + run() + both() + " --json", 0, "\"samples\": 50");
  const std::string csv = folder_.file("y.csv"), npy = folder_.file("side.npy");
  expect_command("predict" + run() + data() + " --output y=" + csv + " --output side:1=" + npy, 0,
                 "side is float[50, 1] in " + npy);
  const Table y = read_table(csv);
  EXPECT_EQ(y.names, std::vector<std::string>{"y_0"});
  const Tensor side = read_npy(npy);
  ASSERT_EQ(side.shape(), Shape({50, 1}));
  for (int i = 0; i < 50; ++i) {
    EXPECT_NEAR(side.data<float>()[i], 2 * (i % 7) - i % 5 + 1, 0.1);
    EXPECT_NEAR(y.columns[0][static_cast<size_t>(i)], side.data<float>()[i], 1e-6);
  }
}

TEST_F(SamplesCommandTest, DataAreNormalisedAsInTraining) {
  std::string net = read_all(net_), rows = "a,b,t\n";
  const std::string link = "data { column: \"x\" }";
  write_all(net_, net.replace(net.find(link), link.size(), "data { column: \"x\" normalize: true }"));
  for (int i = 0; i < 50; ++i) rows += fmt::format("{},{},{}\n", 1e6 + i % 7, 1e-4 * (i % 5), 2 * (i % 7) - i % 5);
  write_all(table_, rows);
  EXPECT_EQ(stepnet(train("--epochs 150 --lr 0.05 --holdout 0.2")).code, 0);
  const std::string text = expect_command("evaluate" + run() + both(), 0, "r2 ");
  EXPECT_GT(std::stod(text.substr(text.find("r2 ") + 3)), 0.99);
  const std::string y = folder_.file("y.npy"), one = folder_.file("one.csv");
  write_all(one, "a,b\n1000003,0.0002\n");
  expect_command("predict" + run() + " --data x=" + one + ":a,b --output y=" + y, 0, "y is float[1, 1]");
  EXPECT_NEAR(read_npy(y).data<float>()[0], 4, 0.3);
  expect_command("predict" + run() + " --data x=" + one + ":a --output y=" + y, 2, "normalises it by");
}

TEST_F(SamplesCommandTest, CurvesAndEventsOfARun) {
  const std::string board = folder_.file("board");
  EXPECT_EQ(stepnet(train("--epochs 2 --holdout 0.2 --tensorboard " + board)).code, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(board), std::filesystem::directory_iterator()), 1);
  const std::string svg = folder_.file("c.svg"), curves = "curves --output " + svg;
  expect_command(curves + " --out " + folder_.file("run"), 0, "5 curves of 40 points");
  EXPECT_NE(read_all(svg).find(">r2<"), std::string::npos);
  expect_command(curves + " --metrics " + folder_.file("run/metrics.jsonl"), 0, "5 curves");
  expect_command(curves, 2, "give --out FOLDER or --metrics FILE");
  expect_command("curves --output " + folder_.file("c.png") + " --out " + folder_.file("run"), 2, "FILE.svg");
  expect_command(curves + " --metrics " + net_, 2, "line 1 of");
  expect_command(curves + " --metrics " + folder_.file("no"), 2, folder_.file("no"));
  const std::string other = folder_.file("other");
  expect_command("train " + net_ + both() + " --epochs 1 --out " + other + " --tensorboard " + table_, 2, table_);
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(SamplesCommandTest, OnlyWhatWasHeldOutIsEvaluated) {
  EXPECT_EQ(stepnet(train("--epochs 1 --holdout 0.2")).code, 0);
  const std::string evaluate = "evaluate" + run() + both() + " --holdout ";
  expect_command(evaluate + "0.2", 0, "samples                  10\n");
  expect_command(evaluate + "1", 0, "samples                  50\n");
  const std::string metrics = read_all(folder_.file("run/metrics.jsonl")), found = "\"validation_loss\":";
  const double loss = std::stod(metrics.substr(metrics.rfind(found) + found.size()));
  const std::string text = expect_command(evaluate + "0.2", 0, "loss ");
  EXPECT_NEAR(std::stod(text.substr(text.find("loss ") + 5)), loss, 1e-4 * loss);
  expect_command(evaluate + "0.001", 2, "a share of 0.001 of 50 samples is none");
  expect_command(evaluate + "1.5", 2, "at most 1, but 1.5 is given");
  expect_command(evaluate + "0", 2, "--holdout");
}

TEST_F(SamplesCommandTest, AnotherNetRunsOnARunsParameters) {
  EXPECT_EQ(stepnet(train("--epochs 100 --lr 0.05 --holdout 0.2")).code, 0);
  const std::string twice = R"(name: "twice"
      op { type: "FC" input: "x" input: "W" input: "b" output: "y" }
      op { type: "Scale" input: "y" output: "z" arg { name: "scale" f: 2 } }
      op { type: "AveragedLoss" input: "z" output: "loss" }
      [stepnet.model] {
        init { op { type: "ConstantFill" output: "W" arg { name: "shape" ints: 1 ints: 2 } }
               op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } } }
        loss: "loss"
        data { column: "x" }
        metric { name: "mean" prediction: "z" shown_as: "mean_z" } })";
  const std::string net = folder_.file("twice.pbtxt"), y = folder_.file("y.npy"), z = folder_.file("z.npy");
  write_all(net, twice);
  expect_command("predict" + run() + data() + " --output y=" + y, 0, "y is float[50, 1]");
  expect_command("predict " + net + run() + data() + " --output z=" + z, 0, "z is float[50, 1]");
  const Tensor once = read_npy(y), doubled = read_npy(z);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(doubled.data<float>()[i], 2 * once.data<float>()[i]);
  expect_command("evaluate " + net + run() + data(), 0, "mean_z ");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = twice;
    write_all(net, text.replace(text.find(from), from.size(), to));
    return "evaluate " + net + run() + data();
  };
  expect_command(with("output: \"b\" arg", "output: \"b\" output: \"c\" arg"), 2, "ConstantFill");
  expect_command(with("init {", "init { op { type: \"ConstantFill\" output: \"c\" arg { name: \"shape\" ints: 1 } }"),
                 2, "the checkpoint has no parameter \"c\"");
  expect_command(with("ints: 1 ints: 2", "ints: 3 ints: 2"), 2, "\"W\" is float[1, 2] in the checkpoint");
  expect_command(with("name: \"scale\"", "name: \"scales\"") + " --strict", 2, "scales");
  write_all(net, "op { type: \"Relu\" input: \"x\" output: \"y\" }");
  expect_command("evaluate " + net + run() + data(), 2, "does not say how it is trained");
}

TEST_F(SamplesCommandTest, AFoldIsHeldOutAndEvaluated) {
  const Outcome trained = stepnet(train("--epochs 3 --fold 2/5"));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("40 samples to train on, 10 held out"), std::string::npos) << trained.err;
  expect_command("evaluate" + run() + both() + " --fold 2/5", 0, "samples                  10\n");
  expect_command(train("--resume --fold 3/5"), 2, "the run has fold 2/5, but now 3/5 is asked for");
  expect_command(train("--epochs 3 --fold 2/5 --holdout 0.1"), 2, "give a fold, a share or held-out data");
  expect_command("evaluate" + run() + both() + " --fold 6/5", 2, "there is no fold 6");
}

TEST_F(SamplesCommandTest, OnlySamplesThatWereEvaluatedAreCounted) {
  const std::string net = folder_.file("stream.pbtxt"), series = folder_.file("series.csv");
  write_all(net, R"(op { type: "RNN" input: "x" input: "before" input: "V" input: "W" input: "b" input: "c"
         output: "all" output: "last" arg { name: "hidden" i: 1 } }
    op { type: "MSELoss" input: "all" input: "y" output: "loss" }
    [stepnet.model] {
      init { op { type: "ConstantFill" output: "V" arg { name: "shape" ints: 1 ints: 1 } }
             op { type: "ConstantFill" output: "W" arg { name: "shape" ints: 1 ints: 1 } }
             op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } }
             op { type: "ConstantFill" output: "c" arg { name: "shape" ints: 1 } } }
      loss: "loss" batch: 3
      data { column: "s" blob: "x" axis: 1 window: 2 stride: 2 }
      data { column: "s" blob: "y" axis: 1 window: 2 stride: 2 shift: 1 }
      carry { from: "last" to: "before" size: 1 } })");
  std::string rows = "s\n";
  for (int i = 0; i < 41; ++i) rows += fmt::format("{}\n", i % 3);
  write_all(series, rows);
  const std::string data = " --data s=" + series + ":s";
  EXPECT_EQ(stepnet("train " + net + data + run() + " --epochs 1 --holdout 0").code, 0);
  expect_command("evaluate" + run() + data, 0, "samples                  18\n");  // 3 streams of 6 windows, of 20
}

TEST_F(SamplesCommandTest, OutcomesAreDrawn) {
  write_all(net_, R"(name: "classes"
      op { type: "FC" input: "x" input: "W" input: "c" output: "scores" }
      op { type: "FC" input: "x" input: "V" input: "d" output: "y" }
      op { type: "SoftmaxWithLoss" input: "scores" input: "class" output: "p" output: "class_loss" }
      op { type: "MSELoss" input: "y" input: "t" output: "t_loss" }
      [stepnet.model] {
        init { op { type: "GivenTensorFill" output: "W" arg { name: "shape" ints: 2 ints: 2 }
                    arg { name: "values" floats: 0 floats: 0 floats: 0 floats: 4 } }
               op { type: "GivenTensorFill" output: "c" arg { name: "shape" ints: 2 }
                    arg { name: "values" floats: 1 floats: 0 } }
               op { type: "ConstantFill" output: "V" arg { name: "shape" ints: 1 ints: 2 } }
               op { type: "ConstantFill" output: "d" arg { name: "shape" ints: 1 } } }
        term { blob: "class_loss" } term { blob: "t_loss" } loss: "loss" batch: 8
        data { column: "x" }
        data { column: "t" }
        data { column: "class" type: "int32" }
        metric { name: "accuracy" prediction: "scores" target: "class" }
        metric { name: "r2" prediction: "y" target: "t" }
        metric { name: "mean_absolute_error" prediction: "y" target: "t" shown_as: "error" } })");
  std::string rows = "a,b,t\n", labels = "class\n";
  for (int i = 0; i < 50; ++i) {
    rows += fmt::format("{},{},{}\n", i % 7, i % 5, i % 7);
    labels += i % 5 == 0 || i % 10 == 1 ? "1\n" : "0\n";
  }
  write_all(table_, rows);
  write_all(folder_.file("labels.csv"), labels);
  const std::string data = both() + " --data " + folder_.file("labels.csv");
  EXPECT_EQ(stepnet("train " + net_ + data + run() + " --iterations 1 --lr 1e-9 --holdout 0").code, 0);
  const std::string csv = folder_.file("m.csv"), svg = folder_.file("m.svg"), plot = folder_.file("p.svg"),
                    evaluate = "evaluate" + run() + data;
  const std::string printed =
      expect_command(evaluate + " --confusion " + csv + " --scatter " + plot, 0, "samples                  50\n");
  EXPECT_EQ(read_all(csv), "target,predicted_0,predicted_1\n0,0,35\n1,10,5\n");
  EXPECT_NE(printed.find("accuracy                 0.1\n"), std::string::npos) << printed;
  const std::string points = read_all(plot);
  EXPECT_GT(std::ranges::count(points, '\n'), 50);
  EXPECT_NE(points.find(">r2 "), std::string::npos);
  expect_command(evaluate + " --confusion accuracy=" + svg + " --scatter error=" + plot, 0, "error ");
  EXPECT_NE(read_all(svg).find(">accuracy 0.1<"), std::string::npos);
  EXPECT_NE(read_all(plot).find(">error "), std::string::npos);
  const std::string other = folder_.file("o.svg");
  expect_command(evaluate + " --confusion " + folder_.file("m.png"), 2, "must end in .csv or .svg");
  expect_command(evaluate + " --scatter " + folder_.file("m.csv"), 2, "must end in .svg");
  expect_command(evaluate + " --confusion r2=" + other, 2, "\"r2\" is no metric of classes, such as accuracy");
  expect_command(evaluate + " --scatter accuracy=" + other, 2, "\"accuracy\" is no metric of numbers, such as r2");
  expect_command(evaluate + " --confusion f1=" + other, 2, "the model has no metric \"f1\"");
  expect_command(evaluate + " --scatter " + folder_.file("no/m.svg"), 2, folder_.file("no"));
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(SamplesCommandTest, MistakesAreNamed) {
  expect_command("train " + net_ + run() + " --iterations 1", 2, "no text or data are given to train on");
  expect_command(train("--epochs 1 --iterations 3"), 2, "--epochs");
  expect_command(train(""), 2, "give --epochs, --iterations or --seconds");
  expect_command("train " + net_ + data() + run() + " --epochs 1", 2, "the data have no column \"t\"");
  write_all(table_, "a,b,t\n1,2\n");
  expect_command(train("--epochs 1"), 2, "row 1 of ");
  write_all(table_, "a,b,t\n1,2,3\n2,2,4\n");
  expect_command(train("--epochs 2 --holdout 0"), 0, "trained 2 iterations");
  const std::string predict = "predict" + run() + data() + " --output ";
  expect_command(predict + "z=" + folder_.file("z.npy"), 2, "no operator of the net writes \"z\"");
  expect_command(predict + "y=" + folder_.file("y.txt"), 2, "BLOB=FILE.npy or BLOB=FILE.csv");
  expect_command(predict + "side=" + folder_.file("y.npy"), 2, "do not stand along dimension 0");
  expect_command(predict + "loss=" + folder_.file("y.npy"), 2, "no column \"t\"");
  expect_command(predict + "loss=" + folder_.file("y.npy"), 2, "the prediction of loss, which reads the columns x, t");
  expect_command("evaluate --data " + table_, 2, "either the folder of a run");
  expect_command("evaluate" + run() + both() + " --confusion " + folder_.file("m.csv"), 2,
                 "the model has no metric of classes");
  expect_command("sample" + run(), 2, "the run was trained on samples, not on a text");
  EXPECT_EQ(folder_.count(), 3);  // net, table and run: nothing half-written
}

}  // namespace
}  // namespace stepnet::testing::samples_command_test
