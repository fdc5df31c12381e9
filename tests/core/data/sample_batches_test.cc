#include "core/data/sample_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::sample_batches_test {
namespace {

class Samples : public ::testing::Test {
 protected:
  FedColumn fed(const Tensor& values, int axis = 0, DType dtype = DType::float32) {
    const std::string path = folder_.file(std::to_string(files_++) + ".npy");
    write_npy(path, values);
    return {.blob = "X", .name = "x", .column = open_columns("x=" + path)[0].column, .axis = axis, .dtype = dtype};
  }
  static Tensor count_to(int64_t n) {
    Tensor t = Tensor::empty(DType::int64, {n});
    for (int64_t i = 0; i < n; ++i) t.data<int64_t>()[i] = i;
    return t;
  }
  TempFolder folder_;
  int files_ = 0;
};

std::vector<int> values_of(const Batch& batch) {
  const auto values = batch.blobs.at("X").span<int32_t>();
  return {values.begin(), values.end()};
}

TEST_F(Samples, StandAlongTheirDimension) {
  const Tensor values = Tensor::of<double>({2, 3, 2}, {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15});
  Batch batch;
  read_samples({fed(values, 1)}, {1, 0}, batch);
  EXPECT_EQ(batch.blobs["X"].shape(), Shape({3, 2, 2}));
  const auto x = batch.blobs["X"].span<float>();
  EXPECT_EQ((std::vector<float>(x.begin(), x.end())), (std::vector<float>{10, 11, 0, 1, 12, 13, 2, 3, 14, 15, 4, 5}));
  read_samples({fed(values, 2)}, {1}, batch);
  EXPECT_EQ(batch.blobs["X"].shape(), Shape({3, 2, 1}));
  EXPECT_EQ(error_text([&] { fed_type(fed(values, 3), 1); }).find("from 0 to 2") != std::string::npos, true);
}

TEST_F(Samples, AreFedAsTheNetReadsThem) {
  Batch batch;
  read_samples({fed(Tensor::of<uint8_t>({2}, {7, 255}))}, {0, 1}, batch);
  EXPECT_EQ(batch.blobs["X"].data<float>()[1], 255);
  read_samples({fed(Tensor::of<int64_t>({1}, {-5}), 0, DType::int32)}, {0}, batch);
  EXPECT_EQ(batch.blobs["X"].data<int32_t>()[0], -5);
  read_samples({fed(Tensor::of<double>({1}, {3}), 0, DType::int32)}, {0}, batch);
  EXPECT_EQ(batch.blobs["X"].data<int32_t>()[0], 3);
  read_samples({fed(Tensor::of<double>({1}, {0.1}), 0, DType::float64)}, {0}, batch);
  EXPECT_EQ(batch.blobs["X"].data<double>()[0], 0.1);
  read_samples({fed(Tensor::zeros(DType::float32, {2, 0}))}, {0, 1}, batch);
  EXPECT_EQ(batch.blobs["X"].shape(), Shape({2, 0}));
}

TEST_F(Samples, AreNormalisedByTheirLastDimension) {
  // Two features of two rows in each of three samples; the last sample is not counted. The second feature is constant.
  FedColumn column = fed(Tensor::of<double>({3, 2, 2}, {1, 7, 3, 7, 5, 7, 7, 7, 100, 8, 100, 8}));
  normalize(column, {0, 2});
  EXPECT_EQ(column.mean, (std::vector<double>{4, 7}));
  EXPECT_EQ(column.deviation, (std::vector<double>{std::sqrt(5.0), 1}));
  Batch batch;
  read_samples({column}, {2}, batch);
  const auto x = batch.blobs["X"].span<float>();
  EXPECT_FLOAT_EQ(x[0], static_cast<float>(96 / std::sqrt(5.0)));
  EXPECT_EQ(x[1], 1);
  FedColumn scalars = fed(Tensor::of<int64_t>({2}, {2, 4}));
  normalize(scalars, {0, 2});
  EXPECT_EQ(scalars.mean, std::vector<double>{3});
  FedColumn whole = fed(Tensor::of<int64_t>({2}, {2, 4}), 0, DType::int32);
  EXPECT_NE(error_text([&] {
              normalize(whole, {0, 2});
            }).find("only floating values are normalised"),
            std::string::npos);
}

TEST_F(Samples, ValuesThatCannotBeFedAreNamed) {
  const auto refusal = [&](const FedColumn& column) {
    Batch batch;
    return error_text([&] { read_samples({column}, {1}, batch); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::string text = refusal(fed(Tensor::of<double>({2, 2}, {0, 0, 1, nan})));
  EXPECT_TRUE(has(text, "sample 1 of ") && has(text, "has nan at [1], which is no float value to feed to \"X\""))
      << text;
  EXPECT_TRUE(has(refusal(fed(Tensor::of<double>({2}, {0, inf}))), "has inf"));
  EXPECT_TRUE(has(refusal(fed(Tensor::of<double>({2}, {0, 1e300}))), "which is no float value"));
  EXPECT_TRUE(has(refusal(fed(Tensor::of<double>({2}, {0, 0.5}), 0, DType::int32)), "no int32 value"));
  EXPECT_TRUE(has(refusal(fed(Tensor::of<int64_t>({2}, {0, int64_t{1} << 31}), 0, DType::int32)), "no int32 value"));
  EXPECT_TRUE(has(refusal(fed(Tensor::of<int64_t>({2}, {0, 2}), 0, DType::boolean)), "no bool value"));
  EXPECT_TRUE(has(refusal(fed(Tensor::of<double>({2}, {0, 0x1p63}), 0, DType::int64)), "no int64"));
}

TEST_F(Samples, OfAnEpochComeOnceInAnOrderOfItsOwn) {
  SampleBatches batches({fed(count_to(10), 0, DType::int32)}, {2, 9}, 3, SampleOrder::shuffled, 5);
  EXPECT_EQ(batches.batches(), 3);
  std::set<std::vector<int>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<int> all;
    for (int k = 0; k < 3; ++k) {
      Batch batch;
      batches.next(batch);
      EXPECT_TRUE(batch.starts);
      const std::vector<int> some = values_of(batch);
      EXPECT_EQ(some.size(), k < 2 ? 3 : 1);
      all.insert(all.end(), some.begin(), some.end());
    }
    orders.insert(all);
    std::ranges::sort(all);
    EXPECT_EQ(all, (std::vector<int>{2, 3, 4, 5, 6, 7, 8}));
  }
  EXPECT_EQ(orders.size(), 4);
}

TEST_F(Samples, GoOnFromAPosition) {
  const FedColumn column = fed(count_to(10), 0, DType::int32);
  SampleBatches whole({column}, {0, 10}, 4, SampleOrder::shuffled, 3);
  std::vector<std::vector<int>> all;
  Batch batch;
  for (int k = 0; k < 9; ++k) {
    whole.next(batch);
    all.push_back(values_of(batch));
  }
  for (int from = 0; from < 9; ++from) {
    SampleBatches later({column}, {0, 10}, 4, SampleOrder::shuffled, 3);
    later.set_position(from);
    later.next(batch);
    EXPECT_EQ(values_of(batch), all[static_cast<size_t>(from)]);
    EXPECT_EQ(later.position(), from + 1);
  }
  EXPECT_THROW(whole.set_position(-1), Error);
  SampleBatches other({column}, {0, 10}, 4, SampleOrder::shuffled, 4),
      in_order({column}, {0, 10}, 4, SampleOrder::given, 3);
  other.next(batch);
  EXPECT_NE(values_of(batch), all[0]);
  in_order.next(batch);
  EXPECT_EQ(values_of(batch), (std::vector<int>{0, 1, 2, 3}));
}

// Of three shards, two in the last batch of two samples have one each, and one has none.
TEST_F(Samples, AreSharedOut) {
  const std::vector<FedColumn> columns = {fed(count_to(10), 0, DType::int32)};
  SampleBatches whole(columns, {0, 10}, 4, SampleOrder::shuffled, 5);
  std::vector<SampleBatches> parts;
  for (int64_t i = 0; i < 3; ++i)
    parts.emplace_back(columns, SampleRange{0, 10}, 4, SampleOrder::shuffled, 5, Shard{i, 3});
  for (int batches = 0; batches < 6; ++batches) {
    Batch all;
    whole.next(all);
    EXPECT_EQ(all.share, 1);
    std::vector<int> values;
    double share = 0;
    for (SampleBatches& part : parts) {
      Batch some;
      part.next(some);
      const std::vector<int> own = values_of(some);
      EXPECT_FALSE(own.empty());
      if (some.share > 0) values.insert(values.end(), own.begin(), own.end());
      EXPECT_NEAR(some.share, some.share > 0 ? static_cast<double>(own.size()) / static_cast<double>(all.samples) : 0,
                  1e-15);
      share += some.share;
    }
    EXPECT_EQ(values, values_of(all));
    EXPECT_NEAR(share, 1, 1e-15);
  }
}

TEST_F(Samples, ColumnsMustAgree) {
  EXPECT_EQ(count_samples({fed(count_to(3)), fed(count_to(3))}), 3);
  EXPECT_NE(error_text([&] {
              count_samples({fed(count_to(3)), fed(count_to(4))});
            }).find("has 4 samples, but "),
            std::string::npos);
  EXPECT_THROW(count_samples({}), Error);
  EXPECT_THROW(count_samples({fed(count_to(0))}), Error);
}

// Sequences of 1, 3, 2, 0 rows of one number each, which count from 1.
class Ragged : public Samples {
 protected:
  FedColumn ragged(int axis, double pad = 0) {
    write_npy(folder_.file("rows.npy"), Tensor::of<double>({6}, {1, 2, 3, 4, 5, std::nan("")}));
    write_npy(folder_.file("lengths.npy"), Tensor::of<int32_t>({4}, {1, 3, 2, 0}));
    return {.blob = "X",
            .name = "x",
            .column = open_columns("x=" + folder_.file("rows.npy") + ":" + folder_.file("lengths.npy"))[0].column,
            .axis = axis,
            .pad = pad,
            .lengths = "L",
            .mask = "M"};
  }
  template <class T>
  static std::vector<T> of(const Batch& batch, const std::string& blob) {
    const auto values = batch.blobs.at(blob).span<T>();
    return {values.begin(), values.end()};
  }
};

TEST_F(Ragged, SamplesArePaddedToTheLongestOfTheBatch) {
  Batch batch;
  read_samples({ragged(1, -1)}, {0, 1}, batch);
  EXPECT_EQ(batch.blobs["X"].shape(), Shape({3, 2}));
  EXPECT_EQ(of<float>(batch, "X"), (std::vector<float>{1, 2, -1, 3, -1, 4}));
  EXPECT_EQ(of<float>(batch, "M"), (std::vector<float>{1, 1, 0, 1, 0, 1}));
  EXPECT_EQ(of<int32_t>(batch, "L"), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(batch.samples, 2);
  read_samples({ragged(0)}, {2, 0}, batch);  // the second value of sample 2 is missing
  EXPECT_EQ(of<float>(batch, "X"), (std::vector<float>{5, 0, 1, 0}));
  EXPECT_EQ(of<float>(batch, "M"), (std::vector<float>{1, 0, 1, 0}));
  read_samples({ragged(1)}, {3}, batch);
  EXPECT_EQ(batch.blobs["X"].shape(), Shape({0, 1}));
  EXPECT_EQ(of<int32_t>(batch, "L"), std::vector<int32_t>{0});
  FedColumn longest = ragged(1);
  longest.to_longest = true;
  read_samples({longest}, {0}, batch);
  EXPECT_EQ(batch.blobs["X"].shape(), Shape({3, 1}));
  FedColumn without = ragged(1);
  without.mask.clear();
  EXPECT_NE(error_text([&] { read_samples({without}, {2}, batch); }).find("has nan at [1], which is no float value"),
            std::string::npos);
}

TEST_F(Ragged, TypesAreThoseOfTheLongest) {
  const auto types = fed_types({ragged(1)}, 5);
  EXPECT_EQ(types.at("X").shape, Shape({3, 5}));
  EXPECT_EQ(types.at("M").shape, Shape({3, 5}));
  EXPECT_EQ(types.at("L").shape, Shape({5}));
  EXPECT_EQ(types.at("L").dtype, DType::int32);
}

TEST_F(Ragged, NeitherPaddingNorMissingValuesAreNormalised) {
  FedColumn column = ragged(1);
  normalize(column, {1, 3});  // 2, 3, 4 and 5
  EXPECT_EQ(column.mean, std::vector<double>{3.5});
  EXPECT_EQ(column.deviation, std::vector<double>{std::sqrt(1.25)});
}

TEST_F(Ragged, BucketsHaveSamplesOfLikeLength) {
  constexpr int64_t kSamples = 700;
  Tensor lengths = Tensor::empty(DType::int64, {kSamples});
  int64_t rows = 0;
  for (int64_t i = 0; i < kSamples; ++i) rows += lengths.data<int64_t>()[i] = 1 + i * 37 % 50;
  FedColumn column = ragged(1);
  column.mask.clear();
  write_npy(folder_.file("rows.npy"), Tensor::zeros(DType::float32, {rows}));
  write_npy(folder_.file("lengths.npy"), lengths);
  column.column = open_columns("x=" + folder_.file("rows.npy") + ":" + folder_.file("lengths.npy"))[0].column;
  const auto padding = [&](SampleOrder order) {
    SampleBatches batches({column}, {0, kSamples}, 16, order, 1);
    int64_t elements = 0, samples = 0, length = 0;
    Batch batch;
    for (int64_t k = 0; k < batches.batches(); ++k) {
      batches.next(batch);
      elements += batch.blobs["X"].size();
      samples += batch.samples;
      for (const int32_t l : batch.blobs["L"].span<int32_t>()) length += l;
    }
    EXPECT_EQ(samples, kSamples);
    EXPECT_EQ(length, rows);  // each sample once
    return static_cast<double>(elements) / static_cast<double>(rows);
  };
  EXPECT_GT(padding(SampleOrder::shuffled), 1.6);
  EXPECT_LT(padding(SampleOrder::bucketed), 1.1);
}

TEST_F(Samples, StreamsGoOnFromBatchToBatch) {
  SampleBatches batches({fed(count_to(12), 0, DType::int32)}, {1, 12}, 3, SampleOrder::streams, 1);
  EXPECT_EQ(batches.batches(), 3);  // 9 of 11
  Batch batch;
  const std::vector<std::vector<int>> expected = {{1, 4, 7}, {2, 5, 8}, {3, 6, 9}};
  for (int k = 0; k < 6; ++k) {
    batches.next(batch);
    EXPECT_EQ(values_of(batch), expected[static_cast<size_t>(k % 3)]);
    EXPECT_EQ(batch.starts, k % 3 == 0);
  }
  batches.set_position(4);
  batches.next(batch);
  EXPECT_EQ(values_of(batch), expected[1]);
  EXPECT_FALSE(batch.starts);
  EXPECT_NE(error_text([&] {
              SampleBatches({fed(count_to(2))}, {0, 2}, 3, SampleOrder::streams, 1);
            }).find("goes on in 3 streams, but there are 2 samples"),
            std::string::npos);
  EXPECT_NE(error_text([] { sample_order("stream"); }).find("Did you mean \"streams\"?"), std::string::npos);
}

TEST_F(Samples, OfAGapAreLeftOut) {
  const SampleRange range{1, 10, 3, 7};
  EXPECT_EQ(range.size(), 5);
  const std::vector<int> expected = {1, 2, 7, 8, 9};
  for (const SampleOrder order : {SampleOrder::given, SampleOrder::shuffled}) {
    SampleBatches batches({fed(count_to(10), 0, DType::int32)}, range, 5, order, 1);
    EXPECT_EQ(batches.batches(), 1);
    Batch batch;
    batches.next(batch);
    std::vector<int> values = values_of(batch);
    if (order == SampleOrder::shuffled) std::ranges::sort(values);
    EXPECT_EQ(values, expected);
  }
  FedColumn column = fed(count_to(10));
  normalize(column, range);
  EXPECT_DOUBLE_EQ(column.mean[0], 27.0 / 5);
  expect_contains(error_text([&] { SampleBatches({fed(count_to(10))}, range, 2, SampleOrder::streams, 1); }),
                  "samples 3 to 6 between others are left out");
}

}  // namespace
}  // namespace stepnet::testing::sample_batches_test
