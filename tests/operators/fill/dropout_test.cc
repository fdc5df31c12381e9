#include "core/compute/threads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::dropout_test {
namespace {

OperatorDef dropout(const std::vector<Argument>& args, const std::vector<std::string>& outputs = {"Y", "M"}) {
  return make_op("Dropout", {"X"}, outputs, args);
}

TEST(Dropout, KeepsAndScalesByTheMask) {
  const Tensor x = normal<float>({100, 100}, 3);
  const auto out = run_op_on(dropout({make_arg("ratio", 0.25f)}), {{"X", x}});
  ASSERT_EQ(out[1].str(), "bool[100, 100]");
  int64_t kept = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const bool keep = out[1].data<bool>()[i];
    kept += keep;
    EXPECT_FLOAT_EQ(out[0].data<float>()[i], keep ? x.data<float>()[i] / 0.75f : 0);
  }
  EXPECT_NEAR(static_cast<double>(kept) / 10000, 0.75, 0.02);
}

TEST(Dropout, DependsOnTheSeedAlone) {
  const Feeds feeds = {{"L", normal<float>({300, 300})}};
  const OperatorDef def = make_op("Dropout", {"L"}, {"Y", "M"});
  const auto once = run_op_on(def, feeds);
  EXPECT_EQ(compare(run_op_on(def, feeds)[1], once[1], 0), "");
  EXPECT_NE(compare(run_op_on(def, feeds, 2)[1], once[1], 0), "");
  const SerialScope serial;
  EXPECT_EQ(compare(run_op_on(def, feeds)[1], once[1], 0), "");
}

TEST(Dropout, DrawsAsAnotherIfItSaysSo) {
  const Feeds feeds = {{"L", normal<float>({30, 30})}};
  const Tensor mask = run_op_on(make_op("Dropout", {"L"}, {"Y", "M"}), feeds)[1];
  OperatorDef other = make_op("Dropout", {"L"}, {"Z", "N"});
  EXPECT_NE(compare(run_op_on(other, feeds)[1], mask, 0), "");
  other.SetExtension(draws_as, "Y");
  EXPECT_EQ(compare(run_op_on(other, feeds)[1], mask, 0), "");
}

TEST(Dropout, IsTheIdentityInTest) {
  const Tensor x = normal<float>({3, 2});
  const Argument test = make_arg("is_test", 1);
  EXPECT_EQ(compare(run_op_on(dropout({test}), {{"X", x}})[0], x, 0), "");
  EXPECT_EQ(compare(run_op_on(dropout({test}, {"Y"}), {{"X", x}})[0], x, 0), "");
  EXPECT_EQ(compare(run_op_on(dropout({test}, {"X"}), {{"X", x}})[0], x, 0), "");
}

TEST(Dropout, Gradient) {
  const Feeds feeds = {{"X", normal<double>({5, 4})}};
  EXPECT_EQ(check_gradient(dropout({make_arg("ratio", 0.3f)}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(dropout({make_arg("ratio", 0.0f)}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(dropout({make_arg("is_test", 1)}, {"Y"}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(dropout({}, {"X", "M"}), feeds, {"X"}), "");
  EXPECT_NE(error_of([&] { check_gradient(dropout({}, {"Y"}), feeds, {"X"}); }).find("reads the second output"),
            std::string::npos);
}

// Whole channels are kept or dropped, about as many as the ratio says, and not all channels of a sample alike.
TEST(Dropout, DropsWholeChannels) {
  const int64_t samples = 200, channels = 50, size = 6;
  const Tensor x = normal<float>({samples, channels, 2, 3}, 3);
  const auto out = run_op_on(dropout({make_arg("ratio", 0.25f), make_arg("channels", 1)}), {{"X", x}});
  ASSERT_EQ(out[1].str(), "bool[200, 50, 2, 3]");
  int64_t kept = 0, mixed_samples = 0;
  for (int64_t n = 0; n < samples; ++n) {
    int64_t here = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t at = (n * channels + c) * size;
      const bool keep = out[1].data<bool>()[at];
      here += keep;
      for (int64_t i = at; i < at + size; ++i) {
        ASSERT_EQ(out[1].data<bool>()[i], keep);
        ASSERT_FLOAT_EQ(out[0].data<float>()[i], keep ? x.data<float>()[i] / 0.75f : 0);
      }
    }
    kept += here;
    mixed_samples += here > 0 && here < channels;
  }
  EXPECT_NEAR(static_cast<double>(kept) / (samples * channels), 0.75, 0.02);
  EXPECT_EQ(mixed_samples, samples);
}

TEST(Dropout, ChannelsDependOnTheSeedAlone) {
  const Feeds feeds = {{"X", normal<double>({70, 60, 5})}};
  const OperatorDef def = dropout({make_arg("channels", 1)});
  const auto once = run_op_on(def, feeds);
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], once[0], 0), "");
  EXPECT_NE(compare(run_op_on(def, feeds, 2)[1], once[1], 0), "");
  EXPECT_EQ(compare(run_op_on(dropout({make_arg("channels", 1)}, {"Y"}), feeds)[0], once[0], 0), "");
  const SerialScope serial;
  EXPECT_EQ(compare(run_op_on(def, feeds)[1], once[1], 0), "");
}

// Draws go by the output's name, so that a result in place is another one.
TEST(Dropout, DropsChannelsInPlace) {
  const Tensor x = normal<double>({9, 8, 4});
  const auto out = run_op_on(dropout({make_arg("channels", 1)}, {"X", "M"}), {{"X", x}});
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(out[1].data<bool>()[i], out[1].data<bool>()[i / 4 * 4]);
    EXPECT_EQ(out[0].data<double>()[i], out[1].data<bool>()[i] ? 2 * x.data<double>()[i] : 0);
  }
}

TEST(Dropout, ChannelsOfOneElementAreElements) {
  const Feeds feeds = {{"X", normal<float>({30, 20})}};
  const auto elements = run_op_on(dropout({}), feeds);
  EXPECT_EQ(compare(run_op_on(dropout({make_arg("channels", 1)}), feeds)[0], elements[0], 0), "");
  for (const Shape& shape : {Shape{0, 3, 2}, Shape{2, 0, 2}, Shape{2, 3, 0}}) {
    const auto nothing = run_op_on(dropout({make_arg("channels", 1)}), {{"X", normal<float>(shape)}});
    EXPECT_EQ(nothing[1].shape(), shape);
  }
}

TEST(Dropout, ChannelGradient) {
  const Feeds feeds = {{"X", normal<double>({3, 4, 2})}};
  const Argument channels = make_arg("channels", 1);
  EXPECT_EQ(check_gradient(dropout({channels}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(dropout({make_arg("ratio", 0.3f), channels}, {"X", "M"}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(dropout({make_arg("is_test", 1), channels}, {"Y"}), feeds, {"X"}), "");
}

TEST(Dropout, RefusesChannelsOfAVector) {
  EXPECT_NE(error_of([] {
              run_op_on(dropout({make_arg("channels", 1)}), {{"X", normal<float>({6})}});
            }).find("with channels the data must be [N, C, ...], but has shape [6]"),
            std::string::npos);
}

TEST(DropoutGrad, MasksTheGradient) {
  const Feeds feeds = {{"dY", Tensor::of<double>({3}, {1, 2, 3})}, {"M", Tensor::of<bool>({3}, {true, false, true})}};
  const OperatorDef def = make_op("DropoutGrad", {"dY", "M"}, {"dX"});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<double>({3}, {2, 0, 6}), 0), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
  EXPECT_NE(error_of([&] { run_op_on(make_op("DropoutGrad", {"dY"}, {"dX"}), feeds); }).find("the mask is missing"),
            std::string::npos);
  const Feeds short_mask = {{"dY", normal<double>({3})}, {"M", Tensor::of<bool>({1}, {true})}};
  EXPECT_NE(error_of([&] { run_op_on(def, short_mask); }).find("dY has shape [3], but the mask [1]"),
            std::string::npos);
}

TEST(Dropout, RefusesARatioOfOne) {
  const Feeds feeds = {{"X", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(dropout({make_arg("ratio", 1.0f)}), feeds);
            }).find("must be from 0 to less than 1, but is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::dropout_test
