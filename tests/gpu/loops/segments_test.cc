// Operators on segments on a GPU: many segments, long ones, empty ones, wrong ones.
#include <numeric>

#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::segments_test {
namespace {

class GpuSegments : public GpuTest {};

// Lengths of which some are 0 and one is long; and as many as more than one team adds up.
std::vector<Tensor> all_lengths() {
  return {Tensor::of<int32_t>({4}, {3, 0, 1, 2}), Tensor::of<int32_t>({5}, {0, 700, 0, 61, 0}),
          Tensor::of<int32_t>({1}, {300}),        integers<int32_t>({9000}, 0, 3),
          integers<int32_t>({0}, 0, 1),           Tensor::of<int32_t>({2}, {0, 0})};
}

int64_t sum_of(const Tensor& lengths) {
  const auto values = lengths.span<int32_t>();
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

const int64_t kRows[] = {0, 1, 3, 31, 32, 33, 100};

template <class Check>
void for_all(const Check& check) {
  for (const Tensor& lengths : all_lengths())
    for (const int64_t row : kRows) {
      if (lengths.size() > 100 && row > 3) continue;
      SCOPED_TRACE(lengths.str() + ", rows of " + std::to_string(row));
      check(lengths, Shape{sum_of(lengths), row}, Shape{lengths.size(), row});
    }
}

TEST_F(GpuSegments, SumsMeansAndMaxima) {
  for_all([](const Tensor& lengths, const Shape& rows, const Shape&) {
    for (const char* type : {"LengthsSum", "LengthsMean", "LengthsMax"}) {
      const OperatorDef def = make_op(type, {"X", "L"}, {"Y"});
      EXPECT_EQ(compare_devices(def, {{"X", normal<double>(rows)}, {"L", lengths}}, 1e-13), "") << type;
      EXPECT_EQ(compare_devices(def, {{"X", normal<float>(rows)}, {"L", lengths}}, 1e-5), "") << type;
    }
  });
}

TEST_F(GpuSegments, SumsByIndex) {
  for_all([](const Tensor& lengths, const Shape& rows, const Shape&) {
    const Tensor table = normal<double>({7, rows[1]}), indices = integers<int64_t>({rows[0]}, 0, 6);
    const Feeds feeds = {{"X", table}, {"I", indices}, {"L", lengths}, {"w", normal<double>({rows[0]}, 2)}};
    for (const char* type : {"SparseLengthsSum", "SparseLengthsMean"})
      EXPECT_EQ(compare_devices(make_op(type, {"X", "I", "L"}, {"Y"}), feeds, 1e-13), "") << type;
    EXPECT_EQ(compare_devices(make_op("SparseLengthsWeightedSum", {"X", "w", "I", "L"}, {"Y"}), feeds, 1e-13), "");
  });
}

TEST_F(GpuSegments, Gradients) {
  for_all([](const Tensor& lengths, const Shape& rows, const Shape& segments) {
    const Tensor x = normal<double>(rows), w = normal<double>({rows[0]}, 2), dy = normal<double>(segments, 3);
    const Tensor y = run_op_on(make_op("LengthsMax", {"X", "L"}, {"Y"}), {{"X", x}, {"L", lengths}}).at(0);
    const Tensor indices = integers<int32_t>({rows[0]}, 0, 6), table = normal<double>({7, rows[1]});
    const Feeds feeds = {{"X", x}, {"w", w}, {"Y", y}, {"dY", dy}, {"L", lengths}, {"I", indices}, {"table", table}};
    for (const OperatorDef& def : {
             make_op("LengthsSumGradient", {"dY", "L"}, {"dX"}),
             make_op("LengthsMeanGradient", {"dY", "L"}, {"dX"}),
             make_op("LengthsMaxGradient", {"X", "Y", "L", "dY"}, {"dX"}),
             make_op("LengthsWeightedSum", {"X", "w", "L"}, {"Z"}),
             make_op("LengthsWeightedSumGradient", {"w", "dY", "L"}, {"dX"}),
             make_op("LengthsWeightedSumWeightsGradient", {"X", "dY", "L"}, {"dw"}),
             make_op("SparseLengthsWeightedSumWeightsGradient", {"table", "dY", "I", "L"}, {"dw"}),
             make_op("LengthsIndicesInGradientSumGradient", {"dY", "L", "X"}, {"dX"}),
             make_op("SparseLengthsIndicesInGradientMeanGradient", {"dY", "L", "I"}, {"dX"}),
             make_op("LengthsMaxWithMainInputAndForwardOutputGradient", {"Y", "dY", "L", "X"}, {"dX"}),
             make_op("SparseLengthsIndicesInGradientWeightedSumGradient", {"w", "dY", "L", "I"}, {"dX"}),
             make_op("LengthsWeightedSumWithMainInputGradient", {"w", "dY", "L", "X"}, {"dX", "dw"}),
             make_op("SparseLengthsWeightedSumWithMainInputGradient", {"w", "dY", "L", "table", "I"}, {"dX", "dw"}),
         })
      EXPECT_EQ(compare_devices(def, feeds, 1e-13), "") << def.type();
  });
}

TEST_F(GpuSegments, WhatFollowsFromLengths) {
  for (const Tensor& lengths : all_lengths())
    for (const char* type : {"LengthsToRanges", "LengthsToSegmentIds", "LengthsRangeFill", "LengthsToWeights"})
      EXPECT_EQ(compare_devices(make_op(type, {"L"}, {"Y"}), {{"L", lengths}}, 1e-7), "") << type << lengths.str();
}

TEST_F(GpuSegments, NanIsTheLargest) {
  Tensor x = normal<float>({800, 2});
  x.data<float>()[2 * 500] = NAN;
  const Feeds feeds = {{"X", x}, {"L", Tensor::of<int32_t>({2}, {700, 100})}};
  EXPECT_EQ(compare_devices(make_op("LengthsMax", {"X", "L"}, {"Y"}), feeds, 0, 1), "");
  EXPECT_TRUE(std::isnan(run_op_on_gpu(make_op("LengthsMax", {"X", "L"}, {"Y"}), feeds).at(0).data<float>()[0]));
}

TEST_F(GpuSegments, PackedAndPadded) {
  for_all([](const Tensor& lengths, const Shape& rows, const Shape&) {
    const Tensor x = normal<double>(rows), edge = normal<double>({rows[1]}, 2);
    const Feeds feeds = {{"X", x}, {"L", lengths}, {"start", edge}, {"end", normal<double>({rows[1]}, 3)}};
    const std::vector<Argument> widths = {make_arg("padding_width", 2), make_arg("end_padding_width", 1)};
    const OperatorDef pad = make_op("AddPadding", {"X", "L", "start", "end"}, {"Y", "M"}, widths);
    EXPECT_EQ(compare_devices(pad, feeds, 0), "");
    const std::vector<Tensor> padded = run_op_on(pad, feeds);
    const Feeds back = {{"Y", padded[0]}, {"M", padded[1]}};
    EXPECT_EQ(compare_devices(make_op("RemovePadding", {"Y", "M"}, {"X", "L"}, widths), back, 0), "");
    EXPECT_EQ(compare_devices(make_op("GatherPadding", {"Y", "M"}, {"s"}, widths), back, 1e-12), "");
    EXPECT_EQ(compare_devices(make_op("GatherPadding", {"Y", "M"}, {"s", "e"}, widths), back, 1e-12), "");
    if (lengths.size() > 100) return;
    EXPECT_EQ(compare_devices(make_op("PackRNNSequence", {"X", "L"}, {"Y"}), feeds, 0), "");
    EXPECT_EQ(compare_devices(make_op("PackSegments", {"L", "X"}, {"Y"}), feeds, 0), "");
    EXPECT_EQ(compare_devices(make_op("PackSegments", {"L", "X"}, {"Y"}, {make_arg("max_length", 2)}), feeds, 0), "");
  });
}

std::string error_on_gpu(const OperatorDef& def, const Feeds& feeds) {
  return error_of([&] { run_op_on_gpu(def, feeds); });
}

TEST_F(GpuSegments, WrongLengthsAreErrors) {
  const OperatorDef sum = make_op("LengthsSum", {"X", "L"}, {"Y"});
  const Tensor x = normal<float>({6, 2});
  const auto error = [&](const Tensor& lengths) { return error_on_gpu(sum, {{"X", x}, {"L", lengths}}); };
  EXPECT_NE(error(Tensor::of<int32_t>({2}, {7, -1})).find("LengthsSum: a length is -1, outside of"), std::string::npos);
  EXPECT_NE(error(Tensor::of<int32_t>({2}, {5, 3})).find("the sum of the lengths is 8, outside of [0, 7)"),
            std::string::npos);
  EXPECT_NE(error(Tensor::of<int64_t>({2}, {INT64_MAX - 1, INT64_MAX - 1})).find("the sum of the lengths is"),
            std::string::npos);
  EXPECT_NE(error(Tensor::of<int32_t>({2}, {3, 1})).find("rows behind the last segment is 2, outside of [0, 1)"),
            std::string::npos);
  EXPECT_EQ(compare_devices(sum, {{"X", x}, {"L", Tensor::of<int32_t>({2}, {2, 4})}}, 1e-5), "");
}

TEST_F(GpuSegments, WrongIndicesAndIdsAreErrors) {
  const std::string index = error_on_gpu(
      make_op("SparseLengthsSum", {"X", "I", "L"}, {"Y"}),
      {{"X", normal<float>({3, 2})}, {"I", Tensor::of<int32_t>({2}, {0, 3})}, {"L", Tensor::of<int32_t>({1}, {2})}});
  EXPECT_NE(index.find("SparseLengthsSum: an index is 3, outside of [0, 3)"), std::string::npos) << index;
  const OperatorDef ids = make_op("SegmentIdsToLengths", {"I"}, {"L"});
  const std::string falls = error_on_gpu(ids, {{"I", Tensor::of<int32_t>({3}, {0, 2, 1})}});
  EXPECT_NE(falls.find("a segment id"), std::string::npos) << falls;
  const OperatorDef shape = make_op("LengthsToShape", {"L"}, {"S"});
  const std::string unequal = error_on_gpu(shape, {{"L", Tensor::of<int32_t>({2}, {2, 3})}});
  EXPECT_NE(unequal.find("the difference of a length from the first is 1"), std::string::npos) << unequal;
}

TEST_F(GpuSegments, WrongLengthsOfSequencesAreErrors) {
  const std::string turned = error_on_gpu(make_op("ReversePackedSegs", {"X", "L"}, {"Y"}),
                                          {{"X", normal<float>({3, 2})}, {"L", Tensor::of<int32_t>({2}, {4, 1})}});
  EXPECT_NE(turned.find("ReversePackedSegs: a length is 4, outside of [0, 4)"), std::string::npos) << turned;
  const std::string masked = error_on_gpu(make_op("SequenceMask", {"X", "L"}, {"Y"}, {make_arg("mode", "sequence")}),
                                          {{"X", normal<float>({2, 2})}, {"L", Tensor::of<int32_t>({2}, {-4, 1})}});
  EXPECT_NE(masked.find("SequenceMask: a length is -4, outside of"), std::string::npos) << masked;
  const std::string narrow = error_on_gpu(make_op("RemovePadding", {"X", "L"}, {"Y"}),
                                          {{"X", normal<float>({6, 2})}, {"L", Tensor::of<int32_t>({2}, {5, 1})}});
  EXPECT_NE(narrow.find("the length of a segment less its padding is -1"), std::string::npos) << narrow;
}

TEST_F(GpuSegments, AGradientOfOtherSegmentsIsAnError) {
  const Feeds feeds = {
      {"X", normal<float>({3, 2, 2})}, {"L", Tensor::of<int32_t>({2}, {3, 1})}, {"dY", normal<float>({4, 3})}};
  const std::string rows = error_on_gpu(make_op("UnpackRNNSequenceGradient", {"X", "L", "dY"}, {"dX"}), feeds);
  EXPECT_NE(rows.find("has not the rows of the sequence"), std::string::npos) << rows;
  const Feeds longer = {
      {"X", normal<float>({2, 2, 2})}, {"L", Tensor::of<int32_t>({2}, {3, 1})}, {"dY", normal<float>({4, 2})}};
  for (const OperatorDef& def : {make_op("UnpackRNNSequenceGradient", {"X", "L", "dY"}, {"dX"}),
                                 make_op("UnpackSegmentsGradient", {"L", "X", "dY"}, {"dX"})}) {
    const std::string text = error_on_gpu(def, longer);
    EXPECT_NE(text.find("a length is 3, outside of [0, 3)"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace stepnet::testing::segments_test
