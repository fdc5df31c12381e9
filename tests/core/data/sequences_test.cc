#include "core/data/sequences.h"

#include <gtest/gtest.h>

#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::sequences_test {
namespace {

class SequenceColumns : public ::testing::Test {
 protected:
  // Rows [rows, 2] that count from 0.
  std::shared_ptr<const Column> rows(int64_t count) const {
    Tensor values = Tensor::empty(DType::int32, {count, 2});
    for (int32_t i = 0; i < 2 * count; ++i) values.data<int32_t>()[i] = i;
    write_npy(folder_.file("rows.npy"), values);
    return open_columns("x=" + folder_.file("rows.npy"))[0].column;
  }
  static std::vector<int32_t> values_of(const Column& column, int64_t first, int64_t count = 1) {
    int64_t size = 0;
    for (int64_t i = first; i < first + count; ++i) size += shape_of(column, i).size();
    std::vector<int32_t> values(static_cast<size_t>(size));
    column.read(first, count, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  TempFolder folder_;
};

TEST_F(SequenceColumns, AreRowsOneAfterAnother) {
  const auto column = sequences(rows(5), {2, 0, 3}, "lengths");
  EXPECT_TRUE(column->varies());
  EXPECT_EQ(column->samples(), 3);
  EXPECT_EQ(column->shape(), Shape({3, 2}));
  EXPECT_EQ(shape_of(*column, 0), Shape({2, 2}));
  EXPECT_EQ(values_of(*column, 0), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(values_of(*column, 1).empty());
  EXPECT_EQ(values_of(*column, 2), (std::vector<int32_t>{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(values_of(*column, 0, 3).size(), 10);
}

TEST_F(SequenceColumns, LengthsMustAddUp) {
  const auto refusal = [&](const std::vector<int64_t>& lengths) {
    return error_text([&] { sequences(rows(5), lengths, "lengths"); });
  };
  EXPECT_NE(refusal({2, 2}).find("the lengths of 2 samples add up to 4, but"), std::string::npos);
  EXPECT_NE(refusal({2, 4}).find("sample 1 has 4 rows, but 3 of the 5 rows"), std::string::npos);
  EXPECT_NE(refusal({-1, 6}).find("sample 0 has -1 rows"), std::string::npos);
  EXPECT_NE(error_text([&] { sequences(sequences(rows(1), {1}, "a"), {1}, "b"); }).find("no sequences' rows"),
            std::string::npos);
}

TEST_F(SequenceColumns, WindowsAreRowsOfASeries) {
  const WindowChoice choice{.window = 2, .stride = 3, .shift = 1};
  EXPECT_EQ(count_windows(choice, 2), 0);
  EXPECT_EQ(count_windows(choice, 3), 1);
  EXPECT_EQ(count_windows(choice, 8), 2);
  EXPECT_EQ(count_windows(choice, 9), 3);
  const auto column = windows(rows(9), choice, 3);
  EXPECT_FALSE(column->varies());
  EXPECT_EQ(column->shape(), Shape({2, 2}));
  EXPECT_EQ(values_of(*column, 0), (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(values_of(*column, 1, 2), (std::vector<int32_t>{8, 9, 10, 11, 14, 15, 16, 17}));
  EXPECT_EQ(windows(rows(9), choice, 2)->samples(), 2);
}

TEST_F(SequenceColumns, WindowsThatAreNotThereAreRefused) {
  const auto refusal = [&](const WindowChoice& choice, int64_t samples) {
    return error_text([&] { windows(rows(4), choice, samples); });
  };
  EXPECT_NE(refusal({5, 1, 0}, 1).find("has 4 rows, too few for 1 windows of 5 rows"), std::string::npos);
  EXPECT_NE(refusal({2, 1, 0}, 4).find("too few for 4 windows"), std::string::npos);
  EXPECT_NE(refusal({0, 1, 0}, 1).find("must be at least 1"), std::string::npos);
  EXPECT_NE(refusal({1, 0, 0}, 1).find("must be at least 1"), std::string::npos);
  EXPECT_NE(refusal({1, 1, -1}, 1).find("at least 0"), std::string::npos);
}

TEST_F(SequenceColumns, AreNamedInData) {
  rows(5);
  const std::string path = folder_.file("rows.npy"), lengths = folder_.file("lengths.npy");
  write_npy(lengths, Tensor::of<int64_t>({2}, {1, 4}));
  const NamedColumn arrays = open_columns("x=" + path + ":" + lengths)[0];
  EXPECT_EQ(arrays.name, "x");
  EXPECT_EQ(arrays.column->length(1), 4);
  const std::string table = folder_.file("t.csv");
  write_all(table, "id,a,b\n7,1,2\n7,3,4\n8,5,6\n7,7,8\n");
  const std::vector<NamedColumn> all = open_columns(table + "@id");
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[1].name, "b");
  EXPECT_EQ(all[1].column->samples(), 3);  // rows that do not follow one another are no sequence
  EXPECT_EQ(all[1].column->shape(), Shape({2}));
  const auto both = open_columns("x=" + table + ":b,a@id")[0].column;
  EXPECT_EQ(shape_of(*both, 2), Shape({1, 2}));
  double row[2];
  both->read(2, 1, reinterpret_cast<std::byte*>(row));
  EXPECT_EQ(row[0], 8);
  EXPECT_NE(fingerprint_of(all), fingerprint_of(open_columns(table + "@a")));
  write_npy(lengths, Tensor::of<float>({1}, {5}));
  EXPECT_NE(error_text([&] { open_columns("x=" + path + ":" + lengths); }).find("a whole number for each sequence"),
            std::string::npos);
  EXPECT_NE(error_text([&] { open_columns(table + "@c"); }).find("has no column \"c\""), std::string::npos);
  write_all(table, "id,a\n1,2\n,3\n");
  EXPECT_NE(error_text([&] { open_columns(table + "@id"); }).find("row 2 of " + table + " has nothing in the column"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sequences_test
