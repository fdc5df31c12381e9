// The operators of operators/collective in nets: values, in place and not, several tensors, and errors.
#include <gtest/gtest.h>

#include "stepnet/half.h"
#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::collective_ops_test {
namespace {

Tensor of_rank(int r, const Shape& shape, uint64_t seed = 1) {
  return normal<double>(shape, seed + 10 * static_cast<uint64_t>(r));
}

Tensor sum_of(const Shape& shape, uint64_t seed = 1) {
  Tensor sum = of_rank(0, shape, seed);
  for (int r = 1; r < ranks(); ++r) {
    const Tensor other = of_rank(r, shape, seed);
    for (int64_t i = 0; i < sum.size(); ++i) sum.data<double>()[i] += other.data<double>()[i];
  }
  return sum;
}

// What the operators make of "X" of this rank, as "Y".
Tensor made(const std::string& ops, const Tensor& x) {
  Workspace workspace;
  workspace.tensor("X") = x.clone();
  run_on_world(ops, workspace);
  return workspace.fetch("Y").clone();
}

const Shape kShapes[] = {{2, 3}, {1}, {0}, {4, 0}, {}, {3, 1, 5}};
constexpr double kRounding = 1e-13;

TEST(CollectiveOps, AllreduceAddsUp) {
  for (const Shape& shape : kShapes) {
    const Tensor x = of_rank(rank(), shape);
    EXPECT_EQ(compare(made("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' engine: 'MPI' }", x),
                      sum_of(shape), kRounding),
              "");
    EXPECT_EQ(compare(made("op { type: 'Allreduce' input: 'world' input: 'X' output: 'X' } "
                           "op { type: 'Copy' input: 'X' output: 'Y' }",
                           x),
                      sum_of(shape), kRounding),
              "");
  }
}

TEST(CollectiveOps, AllreduceAddsSeveralTensorsUp) {
  for (const char* outputs : {"output: 'Y' output: 'Z'", "output: 'X' output: 'W'"}) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(rank(), {5}, 1);
    workspace.tensor("W") = of_rank(rank(), {5}, 2);
    run_on_world(fmt::format("op {{ type: 'Allreduce' input: 'world' input: 'X' input: 'W' {} }}", outputs), workspace);
    Tensor expected = sum_of({5}, 1);
    const Tensor more = sum_of({5}, 2);
    for (int i = 0; i < 5; ++i) expected.data<double>()[i] += more.data<double>()[i];
    const bool in_place = std::string(outputs).find("'X'") != std::string::npos;
    for (const char* name : {in_place ? "X" : "Y", in_place ? "W" : "Z"})
      EXPECT_EQ(compare(workspace.fetch(name), expected, kRounding), "") << name;
  }
}

// What is started together moves as one block, also if it is read and written meanwhile.
TEST(CollectiveOps, SumsMoveWhileOthersRun) {
  for (const Shape& shape : kShapes) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(rank(), shape, 1);
    workspace.tensor("W") = of_rank(rank(), {3}, 2);
    run_on_world(
        "op { type: 'StartAllreduce' input: 'world' input: 'X' input: 'W' output: 'one' } "
        "op { type: 'StartAllreduce' input: 'world' input: 'W' output: 'other' } "
        "op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 0 } } "
        "op { type: 'FinishAllreduce' input: 'one' input: 'X' input: 'W' output: 'one' output: 'X' output: 'Y' } "
        "op { type: 'FinishAllreduce' input: 'other' input: 'W' output: 'other' output: 'Z' }",
        workspace);
    EXPECT_EQ(compare(workspace.fetch("X"), sum_of(shape, 1), kRounding), "");
    EXPECT_EQ(compare(workspace.fetch("Y"), sum_of({3}, 2), kRounding), "");
    EXPECT_EQ(compare(workspace.fetch("Z"), sum_of({3}, 2), kRounding), "");
    EXPECT_TRUE(workspace.at("one").empty());
  }
}

Tensor floats_of(const Tensor& doubles) {
  Tensor made = Tensor::empty(DType::float32, doubles.shape());
  for (int64_t i = 0; i < made.size(); ++i) made.data<float>()[i] = static_cast<float>(doubles.data<double>()[i]);
  return made;
}

// Uncopied; of sizes that move in one piece and in several.
TEST(CollectiveOps, ASumMayMoveInPlace) {
  for (const Shape& shape : {Shape{0}, Shape{5}, Shape{3, 100'003}}) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(rank(), shape, 1);
    const auto before = workspace.fetch("X").storage();
    run_on_world(
        "op { type: 'StartAllreduce' input: 'world' input: 'X' output: 's' output: 'X' } "
        "op { type: 'FinishAllreduce' input: 's' input: 'X' output: 's' output: 'X' }",
        workspace);
    EXPECT_EQ(compare(workspace.fetch("X"), sum_of(shape, 1), kRounding), "");
    EXPECT_EQ(workspace.fetch("X").storage(), before);
  }
}

TEST(CollectiveOps, OnlyOneTensorMovesInPlace) {
  Workspace workspace;
  workspace.tensor("X") = floats_of(of_rank(rank(), {4}, 1));
  workspace.tensor("W") = floats_of(of_rank(rank(), {4}, 2));
  for (const char* rest : {"input: 'X' input: 'W' output: 's' output: 'X' }",
                           "input: 'X' output: 's' output: 'X' arg { name: 'move_as' s: 'bfloat16' } }"})
    expect_contains(
        error_text([&] { run_on_world(std::string("op { type: 'StartAllreduce' input: 'world' ") + rest, workspace); }),
        "only a single tensor that moves in its own type can do so in place");
}

// All elements of X and W behind each other, filled up with zeros.
std::vector<double> in_a_row(const Tensor& x, const Tensor& w, int64_t whole) {
  std::vector<double> all(static_cast<size_t>(whole));
  std::copy_n(x.data<double>(), x.size(), all.begin());
  std::copy_n(w.data<double>(), w.size(), all.begin() + x.size());
  return all;
}

TEST(CollectiveOps, PartsOfSumsAndOfTensorsAreThoseOfTheirRank) {
  for (const Shape& shape : kShapes) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(rank(), shape, 1);
    workspace.tensor("W") = of_rank(rank(), {3}, 2);
    run_on_world(
        "op { type: 'StartReduceScatter' input: 'world' input: 'X' input: 'W' output: 's' } "
        "op { type: 'TakeShard' input: 'world' input: 'X' input: 'W' output: 'part' } "
        "op { type: 'GatherShards' input: 'world' input: 'part' input: 'X' input: 'W' output: 'Y' output: 'V' } "
        "op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 0 } } "
        "op { type: 'FinishReduceScatter' input: 's' output: 's' output: 'sum' }",
        workspace);
    const int64_t part = (shape.size() + 3 + ranks() - 1) / ranks();
    const auto sums = in_a_row(sum_of(shape, 1), sum_of({3}, 2), part * ranks());
    const auto own = in_a_row(of_rank(rank(), shape, 1), of_rank(rank(), {3}, 2), part * ranks());
    ASSERT_EQ(workspace.fetch("sum").size(), part);
    ASSERT_EQ(workspace.fetch("part").size(), part);
    for (int64_t i = 0; i < part; ++i) {
      EXPECT_NEAR(workspace.fetch("sum").data<double>()[i], sums[static_cast<size_t>(rank() * part + i)], kRounding);
      EXPECT_EQ(workspace.fetch("part").data<double>()[i], own[static_cast<size_t>(rank() * part + i)]);
    }
    // Each part is that of the rank that has it.
    const auto at = [](const Tensor& t, int64_t i) { return t.data<double>()[i]; };
    for (int64_t i = 0; i < shape.size() + 3; ++i) {
      const auto from = static_cast<int>(i / part);
      const auto theirs = in_a_row(of_rank(from, shape, 1), of_rank(from, {3}, 2), part * ranks());
      EXPECT_EQ(i < shape.size() ? at(workspace.fetch("Y"), i) : at(workspace.fetch("V"), i - shape.size()),
                theirs[static_cast<size_t>(i)]);
    }
  }
}

// As many rows of two as the rank says, none of the second one.
int64_t rows_of(int r) { return r == 1 ? 0 : r + 2; }

Tensor indices_of(int r) {
  Tensor indices = Tensor::empty(DType::int64, {1, rows_of(r)});
  for (int64_t i = 0; i < indices.size(); ++i) indices.data<int64_t>()[i] = 10 * r + i % 2;
  return indices;
}

TEST(CollectiveOps, SlicesOfAllRanksStandBehindEachOther) {
  Workspace workspace;
  workspace.tensor("I") = indices_of(rank());
  workspace.tensor("V") = of_rank(rank(), {1, rows_of(rank()), 2});
  run_on_world("op { type: 'AllgatherSlices' input: 'world' input: 'I' input: 'V' output: 'J' output: 'W' }",
               workspace);
  int64_t at = 0;
  for (int r = 0; r < ranks(); ++r) {
    const Tensor indices = indices_of(r), values = of_rank(r, {1, rows_of(r), 2});
    for (int64_t i = 0; i < rows_of(r); ++i, ++at) {
      EXPECT_EQ(workspace.fetch("J").data<int64_t>()[at], indices.data<int64_t>()[i]);
      for (int64_t k = 0; k < 2; ++k)
        EXPECT_EQ(workspace.fetch("W").data<double>()[2 * at + k], values.data<double>()[2 * i + k]);
    }
  }
  EXPECT_EQ(workspace.fetch("J").shape(), Shape({at}));
  EXPECT_EQ(workspace.fetch("W").shape(), Shape({at, 2}));
}

TEST(CollectiveOps, SlicesThatDoNotFitAreNamed) {
  const auto refusal = [&](const Tensor& indices, const Tensor& values, const char* move_as = "") {
    Workspace workspace;
    workspace.tensor("I") = indices;
    workspace.tensor("V") = values;
    return error_text([&] {
      run_on_world(fmt::format("op {{ type: 'AllgatherSlices' input: 'world' input: 'I' input: 'V' output: 'J' output: "
                               "'W' arg {{ name: 'move_as' s: '{}' }} }}",
                               move_as),
                   workspace);
    });
  };
  const Tensor indices = Tensor::of<int32_t>({2}, {1, 0});
  expect_contains(refusal(normal<float>({2}), normal<float>({2, 3})), "must be indices of int32 or int64");
  expect_contains(refusal(indices, normal<float>({3, 2})), "does not begin with the shape of \"I\", [2]");
  expect_contains(refusal(indices, normal<double>({2, 3}), "bfloat16"), "but only float32 moves as bfloat16");
  if (ranks() == 1) return;
  expect_contains(refusal(indices, normal<double>({2, 3 + rank()})), "rows of \"V\" have ");
  expect_contains(refusal(indices, rank() == 0 ? normal<double>({2, 3}) : normal<float>({2, 3})),
                  "the ranks of the common world do different things: rank 0: Allgather of parts of");
}

// Each value is rounded, the sum of the rounded ones is rounded once more where all ranks get it.
TEST(CollectiveOps, SumsOfRoundedValuesAreAddedUpInFloat32) {
  for (const Shape& shape : kShapes) {
    Workspace workspace;
    workspace.tensor("X") = floats_of(of_rank(rank(), shape, 1));
    workspace.tensor("W") = floats_of(of_rank(rank(), {3}, 2));
    run_on_world(
        "op { type: 'StartReduceScatter' input: 'world' input: 'X' input: 'W' output: 's' "
        "     arg { name: 'move_as' s: 'bfloat16' } } "
        "op { type: 'StartAllreduce' input: 'world' input: 'X' input: 'W' output: 't' "
        "     arg { name: 'move_as' s: 'bfloat16' } } "
        "op { type: 'FinishReduceScatter' input: 's' output: 's' output: 'sum' } "
        "op { type: 'FinishAllreduce' input: 't' input: 'X' input: 'W' output: 't' output: 'Y' output: 'V' }",
        workspace);
    const int64_t size = shape.size() + 3, part = (size + ranks() - 1) / ranks();
    std::vector<float> sums(static_cast<size_t>(part * ranks()));
    for (int r = 0; r < ranks(); ++r) {
      const Tensor x = of_rank(r, shape, 1), w = of_rank(r, {3}, 2);
      for (int64_t i = 0; i < size; ++i)
        sums[static_cast<size_t>(i)] += static_cast<float>(
            bfloat16(static_cast<float>(i < shape.size() ? x.data<double>()[i] : w.data<double>()[i - shape.size()])));
    }
    for (int64_t i = 0; i < part; ++i)
      EXPECT_EQ(workspace.fetch("sum").data<float>()[i], sums[static_cast<size_t>(rank() * part + i)]);
    for (int64_t i = 0; i < size; ++i)
      EXPECT_EQ(i < shape.size() ? workspace.fetch("Y").data<float>()[i]
                                 : workspace.fetch("V").data<float>()[i - shape.size()],
                static_cast<float>(bfloat16(sums[static_cast<size_t>(i)])));
  }
}

TEST(CollectiveOps, SlicesThatMoveAsBfloat16AreRoundedOnce) {
  Workspace workspace;
  workspace.tensor("I") = indices_of(rank());
  workspace.tensor("V") = floats_of(of_rank(rank(), {1, rows_of(rank()), 2}));
  run_on_world(
      "op { type: 'AllgatherSlices' input: 'world' input: 'I' input: 'V' output: 'J' output: 'W' "
      "     arg { name: 'move_as' s: 'bfloat16' } }",
      workspace);
  int64_t at = 0;
  for (int r = 0; r < ranks(); ++r) {
    const Tensor values = floats_of(of_rank(r, {1, rows_of(r), 2}));
    for (int64_t i = 0; i < values.size(); ++i, ++at)
      EXPECT_EQ(workspace.fetch("W").data<float>()[at], static_cast<float>(bfloat16(values.data<float>()[i])));
  }
  EXPECT_EQ(workspace.fetch("W").size(), at);
}

TEST(CollectiveOps, PartsAreClippedByTheNormOfAll) {
  for (const double max_norm : {0.1, 1e6}) {
    Workspace workspace;
    workspace.tensor("A") = of_rank(rank(), {5}, 1);
    workspace.tensor("B") = of_rank(rank(), {2, 3}, 2);
    run_on_world(fmt::format("op {{ type: 'ShardedNormClip' input: 'world' input: 'A' input: 'B' output: 'A' "
                             "output: 'C' output: 'norm' arg {{ name: 'max_norm' f: {} }} }}",
                             max_norm),
                 workspace);
    double squares = 0;
    for (int r = 0; r < ranks(); ++r)
      for (const Tensor& t : {of_rank(r, {5}, 1), of_rank(r, {2, 3}, 2)})
        for (int64_t i = 0; i < t.size(); ++i) squares += t.data<double>()[i] * t.data<double>()[i];
    const double norm = std::sqrt(squares);
    const double factor = max_norm == 0.1 ? static_cast<double>(0.1F) / norm : 1;
    EXPECT_NEAR(workspace.fetch("norm").data<float>()[0], norm, 1e-6 * norm);
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_NEAR(workspace.fetch("A").data<double>()[i], factor * of_rank(rank(), {5}, 1).data<double>()[i], 1e-12);
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_NEAR(workspace.fetch("C").data<double>()[i], factor * of_rank(rank(), {2, 3}, 2).data<double>()[i], 1e-12);
  }
  Workspace workspace;
  workspace.tensor("A") = of_rank(rank(), {5}, 1);
  if (rank() == ranks() - 1) workspace.tensor("A").data<double>()[2] = NAN;
  expect_contains(error_text([&] {
                    run_on_world("op { type: 'ShardedNormClip' input: 'world' input: 'A' output: 'A' output: 'norm' }",
                                 workspace);
                  }),
                  "the norm of all ranks' gradients is nan");
}

TEST(CollectiveOps, WhatHasNoPartsIsNamed) {
  const auto refusal = [&](const std::string& ops) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(0, {4});
    workspace.tensor("N") = Tensor::of<int32_t>({1}, {1});
    return error_text([&] { run_on_world(ops, workspace); });
  };
  const std::string world = "input: 'world' ", rounded = "arg { name: 'move_as' s: 'bfloat16' } ";
  expect_contains(refusal("op { type: 'TakeShard' " + world + "input: 'X' input: 'N' output: 'Y' }"),
                  "\"X\" and \"N\" must be of one type");
  expect_contains(refusal("op { type: 'GatherShards' " + world + "input: 'N' input: 'X' output: 'Y' }"),
                  fmt::format("\"N\" is int32[1], but must be {} elements of double", (4 + ranks() - 1) / ranks()));
  expect_contains(refusal("op { type: 'StartReduceScatter' " + world + "input: 'X' output: 's' " + rounded + "}"),
                  "\"X\" is double[4], but only float32 moves as bfloat16");
  expect_contains(refusal("op { type: 'StartAllreduce' " + world +
                          "input: 'X' output: 's' } op { type: "
                          "'FinishReduceScatter' input: 's' output: 's' output: 'Y' }"),
                  "\"s\" must be what StartReduceScatter has made");
}

TEST(CollectiveOps, SumsThatWereNotStartedAreNamed) {
  const auto refusal = [&](const std::string& ops) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(0, {4});
    workspace.tensor("N") = Tensor::of<int32_t>({1}, {1});
    return error_text([&] { run_on_world(ops, workspace); });
  };
  expect_contains(refusal("op { type: 'FinishAllreduce' input: 'X' input: 'N' output: 'X' output: 'Y' }"),
                  "\"X\" must be what StartAllreduce has made");
  expect_contains(refusal("op { type: 'StartAllreduce' input: 'world' input: 'X' input: 'N' output: 's' }"),
                  "\"X\" and \"N\" must be of one type");
  expect_contains(refusal("op { type: 'StartAllreduce' input: 'world' input: 'X' output: 's' } "
                          "op { type: 'FinishAllreduce' input: 's' input: 'N' output: 's' output: 'Y' }"),
                  "4 elements have been started, but outputs have 1");
}

TEST(CollectiveOps, BroadcastGivesTheRootsValues) {
  const int root = ranks() - 1;
  const std::string arg = fmt::format("arg {{ name: 'root' i: {} }}", root);
  for (const Shape& shape : kShapes)
    for (const char* rest : {"output: 'Y' }", "output: 'X' } op { type: 'Copy' input: 'X' output: 'Y' }"})
      EXPECT_EQ(compare(made("op { type: 'Broadcast' input: 'world' input: 'X' " + arg + rest, of_rank(rank(), shape)),
                        of_rank(root, shape), 0),
                "");
}

TEST(CollectiveOps, BroadcastTakesSeveralTensorsOfAnyType) {
  Workspace workspace;
  workspace.tensor("A") = of_rank(rank(), {3});
  workspace.tensor("B") = Tensor::of<bool>({2}, {rank() == 0, rank() != 0});
  workspace.tensor("C") = Tensor::of<int64_t>({1}, {rank() + 40});
  run_on_world(
      "op { type: 'Broadcast' input: 'world' input: 'A' input: 'B' input: 'C' output: 'A' output: 'B' output: 'C' }",
      workspace);
  EXPECT_EQ(compare(workspace.fetch("A"), of_rank(0, {3}), 0), "");
  EXPECT_TRUE(workspace.fetch("B").data<bool>()[0]);
  EXPECT_FALSE(workspace.fetch("B").data<bool>()[1]);
  EXPECT_EQ(workspace.fetch("C").item<int64_t>(), 40);
}

TEST(CollectiveOps, ReduceGivesTheRootTheSumAndOthersZeros) {
  for (const Shape& shape : kShapes) {
    const Tensor y = made("op { type: 'Reduce' input: 'world' input: 'X' output: 'Y' }", of_rank(rank(), shape));
    EXPECT_EQ(compare(y, rank() == 0 ? sum_of(shape) : Tensor::zeros(DType::float64, shape), kRounding), "");
  }
}

TEST(CollectiveOps, AllgatherAndReduceScatterShareRows) {
  for (const Shape& shape : {Shape{2, 3}, Shape{1}, Shape{0, 2}}) {
    const Tensor y = made("op { type: 'Allgather' input: 'world' input: 'X' output: 'Y' }", of_rank(rank(), shape));
    ASSERT_EQ(y.shape(), shape.with(0, shape[0] * ranks()));
    for (int r = 0; r < ranks(); ++r) EXPECT_EQ(compare(y.rows(r * shape[0], shape[0]), of_rank(r, shape), 0), "");
    const Shape whole = shape.with(0, shape[0] * ranks());
    const Tensor z = made("op { type: 'ReduceScatter' input: 'world' input: 'X' output: 'Y' }", of_rank(rank(), whole));
    EXPECT_EQ(compare(z, sum_of(whole).rows(rank() * shape[0], shape[0]), kRounding), "");
  }
}

TEST(CollectiveOps, HalfTypesAreReduced) {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    Workspace workspace;
    Tensor x = Tensor::empty(dtype, {3});
    with_half(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(x.data<T>(), 3, T(static_cast<float>(rank() + 1)));
    });
    workspace.tensor("X") = x;
    run_on_world("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", workspace);
    with_half(dtype, [&](auto zero) {
      for (const auto v : workspace.fetch("Y").span<decltype(zero)>())
        EXPECT_EQ(static_cast<float>(v), static_cast<float>(ranks() * (ranks() + 1)) / 2);
    });
  }
}

TEST(CollectiveOps, TensorsAreSentWithTypeAndShape) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  for (const Shape& shape : kShapes) {
    Workspace workspace;
    workspace.tensor("X") = of_rank(rank(), shape);
    workspace.tensor("to") = Tensor::of<int32_t>({1}, {1});
    workspace.tensor("tag") = Tensor::of<int32_t>({1}, {12});
    if (rank() == 0) {
      run_on_world(
          "op { type: 'SendTensor' input: 'world' input: 'X' arg { name: 'dst' i: 1 } } "
          "op { type: 'SendTensor' input: 'world' input: 'X' input: 'to' input: 'tag' }",
          workspace);
    } else if (rank() == 1) {
      run_on_world(
          "op { type: 'ConstantFill' output: 'Y' } "
          "op { type: 'ReceiveTensor' input: 'world' input: 'Y' output: 'Y' output: 'from' output: 'with' "
          "arg { name: 'src' i: 0 } arg { name: 'tag' i: 0 } } "
          "op { type: 'ReceiveTensor' input: 'world' output: 'Z' output: 'from' output: 'with' }",
          workspace);
      for (const char* name : {"Y", "Z"}) EXPECT_EQ(compare(workspace.fetch(name), of_rank(0, shape), 0), "");
      EXPECT_EQ(workspace.fetch("from").item<int>(), 0);
      EXPECT_EQ(workspace.fetch("with").item<int>(), 12);
    } else {
      run_on_world("", workspace);
    }
  }
}

TEST(CollectiveOps, RawBuffersAreSentWithoutTheirShape) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  Workspace workspace;
  workspace.tensor("X") = rank() == 0 ? of_rank(0, {2, 3}) : Tensor::zeros(DType::float64, {6});
  const std::string raw = "arg { name: 'raw_buffer' i: 1 } arg { name: 'tag' i: 3 } }";
  if (rank() == 0)
    run_on_world("op { type: 'SendTensor' input: 'world' input: 'X' arg { name: 'dst' i: 1 } " + raw, workspace);
  else if (rank() == 1)
    run_on_world("op { type: 'ReceiveTensor' input: 'world' input: 'X' output: 'X' output: 'f' output: 't' " + raw,
                 workspace);
  else
    run_on_world("", workspace);
  if (rank() == 1) {
    EXPECT_EQ(compare(workspace.fetch("X"), of_rank(0, {2, 3}).reshaped({6}), 0), "");
  }
}

TEST(CollectiveOps, RanksMaySendToThemselves) {
  Workspace workspace;
  workspace.tensor("X") = of_rank(rank(), {300, 200});
  const std::string self = fmt::format("arg {{ name: 'dst' i: {} }} }} ", rank());
  run_on_world("op { type: 'SendTensor' input: 'world' input: 'X' arg { name: 'tag' i: 2 } " + self +
                   "op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 0 } } "
                   "op { type: 'SendTensor' input: 'world' input: 'X' arg { name: 'tag' i: 1 } " +
                   self +
                   "op { type: 'ReceiveTensor' input: 'world' output: 'Y' arg { name: 'tag' i: 2 } } "
                   "op { type: 'ReceiveTensor' input: 'world' output: 'Z' output: 'src' output: 'tag' }",
               workspace);
  EXPECT_EQ(compare(workspace.fetch("Y"), of_rank(rank(), {300, 200}), 0), "");
  EXPECT_EQ(compare(workspace.fetch("Z"), Tensor::zeros(DType::float64, {300, 200}), 0), "");
  EXPECT_EQ(workspace.fetch("src").item<int>(), rank());
  EXPECT_EQ(workspace.fetch("tag").item<int>(), 1);
}

TEST(CollectiveOps, ClonesAreWorldsOfTheirOwn) {
  Workspace workspace;
  workspace.tensor("X") = of_rank(rank(), {4});
  run_on_world(
      "op { type: 'CloneCommonWorld' input: 'world' output: 'other' } op { type: 'Barrier' input: 'other' } "
      "op { type: 'Allreduce' input: 'other' input: 'X' output: 'Y' } "
      "op { type: 'DestroyCommonWorld' input: 'world' output: 'world' } "
      "op { type: 'Allreduce' input: 'other' input: 'X' output: 'Z' }",
      workspace);
  for (const char* name : {"Y", "Z"}) EXPECT_EQ(compare(workspace.fetch(name), sum_of({4}), kRounding), "");
}

// The error of operators on X, which every rank gets.
std::string error_on(const std::string& ops, const Tensor& x) {
  Workspace workspace;
  workspace.tensor("X") = x;
  return error_of([&] { run_on_world(ops, workspace); });
}

bool says(const std::string& text, const std::string& what) {
  if (text.find(what) != text.npos) return true;
  ADD_FAILURE() << text << "\n  does not say: " << what;
  return false;
}

TEST(CollectiveOps, MistakesAreNamed) {
  const Tensor x = of_rank(rank(), {ranks() + 1, 2});
  for (const char* type : {"Broadcast", "Reduce"})
    says(error_on(
             fmt::format("op {{ type: '{}' input: 'world' input: 'X' output: 'Y' arg {{ name: 'root' i: 9 }} }}", type),
             x),
         fmt::format("argument \"root\" is 9, but the common world has ranks 0 to {}", ranks() - 1));
  says(error_on("op { type: 'Allreduce' input: 'X' input: 'X' output: 'Y' }", x),
       fmt::format("\"X\" must be a common world, but holds {}", x));
  says(error_on("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' engine: 'NCCL' }", x),
       "\"X\" is on the CPU, but the engine \"NCCL\" moves tensors of GPUs");
  says(error_on("op { type: 'CreateCommonWorld' output: 'w' engine: 'NCCL' }", x), "the operator is to run on the CPU");
  says(error_on("op { type: 'SendTensor' input: 'world' input: 'X' engine: 'NCCL' arg { name: 'dst' i: 0 } }", x),
       "does not send tensors from rank to rank");
  says(error_on("op { type: 'Barrier' input: 'world' engine: 'GLOO' }", x), "must be \"MPI\", \"NCCL\" or left out");
  says(error_on("op { type: 'Allgather' input: 'world' input: 'X' output: 'Y' }", Tensor::scalar(1.0)),
       "must have a dimension of rows");
  if (ranks() > 1)
    says(error_on("op { type: 'ReduceScatter' input: 'world' input: 'X' output: 'Y' }", x),
         fmt::format("the {} rows of \"X\", which is {}, cannot be shared out to {} ranks", x.dim(0), x, ranks()));
  says(error_on("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", Tensor::of<bool>({1}, {true})),
       "bools cannot be added up");
  says(error_on("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", Tensor::empty(DType::string, {1})),
       "strings cannot be sent");
  says(error_on("op { type: 'CreateCommonWorld' output: 'w' arg { name: 'size' i: 77 } }", x),
       "argument \"size\" is 77, but ");
  says(error_on("op { type: 'CreateCommonWorld' output: 'w' arg { name: 'rank' i: 77 } }", x),
       fmt::format("argument \"rank\" is 77, but this is process {} of {}", rank(), ranks()));
  EXPECT_EQ(sum_over_ranks(1), ranks());
}

TEST(CollectiveOps, RanksWithOtherTensorsAreTold) {
  if (ranks() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const std::string text = error_on("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }",
                                    of_rank(rank(), rank() == 1 ? Shape{5} : Shape{2, 3}));
  says(text, "Allreduce: rank ");
  says(text, "rank 1: Allreduce of 5 double elements");
  says(text, "Y = Allreduce(world, X)");
}

TEST(CollectiveOps, RankAndSizeMayBeGiven) {
  Workspace workspace;
  run_on_world(
      fmt::format("op {{ type: 'CreateCommonWorld' output: 'w' arg {{ name: 'rank' i: {} }} arg {{ name: 'size' "
                  "i: {} }} arg {{ name: 'timeout_sec' i: 5 }} arg {{ name: 'transport' s: 'tcp' }} }}",
                  rank(), ranks()),
      workspace);
  EXPECT_EQ(workspace.at("w").get<WorldPtr>()->size(), ranks());
}

}  // namespace
}  // namespace stepnet::testing::collective_ops_test
