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
  SampleBatches batches({fed(count_to(10), 0, DType::int32)}, {2, 9}, 3, true, 5);
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
  SampleBatches whole({column}, {0, 10}, 4, true, 3);
  std::vector<std::vector<int>> all;
  Batch batch;
  for (int k = 0; k < 9; ++k) {
    whole.next(batch);
    all.push_back(values_of(batch));
  }
  for (int from = 0; from < 9; ++from) {
    SampleBatches later({column}, {0, 10}, 4, true, 3);
    later.set_position(from);
    later.next(batch);
    EXPECT_EQ(values_of(batch), all[static_cast<size_t>(from)]);
    EXPECT_EQ(later.position(), from + 1);
  }
  EXPECT_THROW(whole.set_position(-1), Error);
  SampleBatches other({column}, {0, 10}, 4, true, 4), in_order({column}, {0, 10}, 4, false, 3);
  other.next(batch);
  EXPECT_NE(values_of(batch), all[0]);
  in_order.next(batch);
  EXPECT_EQ(values_of(batch), (std::vector<int>{0, 1, 2, 3}));
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

}  // namespace
}  // namespace stepnet::testing::sample_batches_test
