// LengthsSum and LengthsMean: the sum, or the mean, of each segment of the rows of DATA, [sum of lengths, ...].
// SparseLengthsSum and SparseLengthsMean: the same of the rows DATA[INDICES, :]; a bag of embeddings. An empty segment
// gives zeros.
//
// LengthsTile: each row of DATA as often as its length says.
//
// dDATA = LengthsSumGradient or LengthsMeanGradient(dY): each row of dY, divided by the length for a mean, once for
// each row of its segment. With INDICES these are the values of a sparse gradient. LengthsTile's is LengthsSum(dY).
// Backward reads LENGTHS and INDICES. Nets of the public format have these gradients as
// LengthsIndicesInGradientSumGradient and the like, with the rows or indices as a third input.

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/segment_rows.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_lengths_sum {
namespace {

void infer_sums(const NoArgs&, ShapeCall& call) {
  const bool sparse = call.inputs() == 3;
  const int lengths = sparse ? 2 : 1;
  require_one_dimension(call, lengths, "LENGTHS");
  if (sparse) require_one_dimension(call, 1, "INDICES");
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  if (!call.known(0) || !call.known(lengths)) return;
  call.set(0, call.dtype(0), call.shape(0).from(1).prepend(call.shape(lengths)[0]));
}

void infer_rows(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 1, "LENGTHS");
  if (!call.known(0)) return;
  const Shape& dy = call.shape(0);
  require(dy.rank() >= 1, "the first input is a single value, which has no rows");
  if (call.known(1))
    require(dy[0] == call.shape(1)[0], "the first input {} has {} rows, but there are {} lengths", dy, dy[0],
            call.shape(1)[0]);
  if (call.value(1)) call.set(0, call.dtype(0), dy.with(0, read_segment_lengths(*call.value(1)).sum));
}

// The third input has as many rows as the lengths say.
void infer_rows_of(const NoArgs& a, ShapeCall& call) {
  infer_rows(a, call);
  if (!call.known(2)) return;
  require(call.shape(2).rank() >= 1, "the third input is a single value, which has no rows");
  const int64_t rows = call.shape(2)[0];
  if (call.value(1)) check_segment_lengths(*call.value(1), rows, "rows");
  if (call.known(0)) call.set(0, call.dtype(0), call.shape(0).with(0, rows));
}

template <class T, bool kMean>
void sum_rows(const Tensor& data, const RowIndices& indices, int64_t rows, const Tensor& lengths, Out<T> sums) {
  const int64_t row = data.shape().size_between(1, data.rank());
  if (sums.empty()) return;
  const T* from = data.data<T>();
  for_segments(lengths, segment_cost(rows, row, lengths.size()), [&](int64_t segment, int64_t at, int64_t length) {
    T* to = sums.data() + segment * row;
    std::fill_n(to, row, T(0));
    for (int64_t k = at; k < at + length; ++k) {
      const T* x = from + indices[k] * row;
      for (int64_t j = 0; j < row; ++j) to[j] += x[j];
    }
    if (kMean && length > 0)
      for (int64_t j = 0; j < row; ++j) to[j] /= static_cast<T>(length);
  });
}

template <class T, bool kMean>
void sums(Call& call) {
  const Tensor& data = call.in(0);
  check_segment_lengths(call.in(1), data.dim(0), "rows");
  sum_rows<T, kMean>(data, RowIndices(), data.dim(0), call.in(1), call.out_span<T>(0));
}

template <class T, bool kMean>
void sparse_sums(Call& call) {
  const Tensor& indices = call.in(1);
  check_segment_lengths(call.in(2), indices.size(), "indices");
  check_indices(indices, call.in(0).dim(0));
  sum_rows<T, kMean>(call.in(0), RowIndices(indices), indices.size(), call.in(2), call.out_span<T>(0));
}

template <class T, bool kMean>
void repeat_rows(In<T> dy, const Tensor& lengths, Out<T> dx, Call& call) {
  if (dx.empty()) return;
  const Shape& shape = call.out(0).shape();
  const int64_t row = shape.size_between(1, shape.rank());
  for_segments(lengths, segment_cost(shape[0], row, lengths.size()), [&](int64_t segment, int64_t at, int64_t length) {
    const T* from = dy.data() + segment * row;
    for (int64_t k = at; k < at + length; ++k)
      for (int64_t j = 0; j < row; ++j) dx[k * row + j] = kMean ? from[j] / static_cast<T>(length) : from[j];
  });
}

double row_size(const ShapeCall& c) {
  return c.known(0) ? static_cast<double>(c.shape(0).size_between(1, c.shape(0).rank())) : 0;
}

template <bool kMean>
Registration dense(const std::string& type) {
  return op(type)
      .doc(kMean ? "The mean of each segment's rows." : "The sum of each segment's rows.")
      .input("DATA", "[sum of lengths, ...]")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[N, ...]")
      .shape(infer_sums)
      .flops([](const auto&, const ShapeCall& c) { return input_size(c, 0) + (kMean ? output_size(c, 0) : 0); })
      .template cpu_for<float>(sums<float, kMean>)
      .template cpu_for<double>(sums<double, kMean>)
      .example({"DATA=6,2", "LENGTHS=int32,4:3,0,1,2"})
      .example({"DATA=3", "LENGTHS=int64,1:3"})
      .example({"DATA=0,2", "LENGTHS=int32,0"})
      .derivative("DATA", [type](Formula& f) {
        return f.op(type + "Gradient", {f.dy("OUTPUT"), f.x("LENGTHS")});
      });
}

template <bool kMean>
Registration sparse(const std::string& type) {
  return op(type)
      .doc(kMean ? "The mean of each segment's rows, which are rows of a table by index."
                 : "The sum of each segment's rows, which are rows of a table by index.")
      .input("DATA", "[R, ...], the table")
      .input("INDICES", "[sum of lengths], each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[N, ...]")
      .shape(infer_sums)
      .flops([](const auto&, const ShapeCall& c) {
        return input_size(c, 1) * row_size(c) + (kMean ? output_size(c, 0) : 0);
      })
      .template cpu_for<float>(sparse_sums<float, kMean>)
      .template cpu_for<double>(sparse_sums<double, kMean>)
      .example({"DATA=4,2", "INDICES=int32,6:3,0,3,1,1,2", "LENGTHS=int32,4:3,0,1,2"})
      .example({"DATA=2", "INDICES=int64,1:1", "LENGTHS=int64,1:1"})
      .example({"DATA=3,2", "INDICES=int32,0", "LENGTHS=int32,1:0"})
      .derivative("DATA", [type](Formula& f) {
        return Gradient::sparse(f.x("INDICES"), f.op(type + "Gradient", {f.dy("OUTPUT"), f.x("LENGTHS")}));
      });
}

template <bool kMean>
Registration rows_of_segments(const std::string& type) {
  return op(type)
      .doc(kMean ? "Each row divided by its segment's length, once for each row of the segment."
                 : "Each row once for each row of its segment.")
      .input("SEGMENT_GRADS", "[N, ...], the gradient of the segments")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .output("DATA_GRADS", "[sum of lengths, ...]")
      .shape(infer_rows)
      .flops(flops_per_input(kMean ? 1 : 0))
      .cpu(repeat_rows<float, kMean>, repeat_rows<double, kMean>)
      .derivative("SEGMENT_GRADS", [](Formula& f) {
        return f.op(kMean ? "LengthsMean" : "LengthsSum", {f.dy("DATA_GRADS"), f.x("LENGTHS")});
      });
}

// `what` the third input is: DATA, or the indices.
template <bool kMean>
Registration rows_like(const std::string& type, const char* what) {
  return op(type)
      .doc(kMean ? "Each row divided by its segment's length, once for each row of the segment."
                 : "Each row once for each row of its segment.")
      .input("SEGMENT_GRADS", "[N, ...], the gradient of the segments")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .input("ROWS", what)
      .any_type()
      .shape_only()
      .output("DATA_GRADS", "[sum of lengths, ...]")
      .shape(infer_rows_of)
      .flops(flops_per_input(kMean ? 1 : 0))
      .cpu(repeat_rows<float, kMean>, repeat_rows<double, kMean>)
      .example({"SEGMENT_GRADS=3,2", "LENGTHS=int32,3:2,0,1", "ROWS=3,2"})
      .derivative("SEGMENT_GRADS",
                  [](Formula& f) {
                    return f.op(kMean ? "LengthsMean" : "LengthsSum", {f.dy("DATA_GRADS"), f.x("LENGTHS")});
                  })
      .derivative("ROWS", [](Formula&) { return Gradient::none(); });
}

REGISTER(lengths_tile) {
  return op("LengthsTile")
      .doc("Each row as often as its length says, one after the other.")
      .input("DATA", "[N, ...]")
      .input("LENGTHS", "[N], how often each row is taken")
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[sum of lengths, ...]")
      .shape(infer_rows)
      .cpu(repeat_rows<float, false>, repeat_rows<double, false>)
      .cpu(repeat_rows<int32_t, false>, repeat_rows<int64_t, false>)
      .example({"DATA=3,2", "LENGTHS=int32,3:2,0,1"})
      .example({"DATA=1", "LENGTHS=int64,1:3"})
      .derivative("DATA", [](Formula& f) {
        return f.op("LengthsSum", {f.dy("OUTPUT"), f.x("LENGTHS")});
      });
}

REGISTER(lengths_sum) { return dense<false>("LengthsSum"); }
REGISTER(lengths_mean) { return dense<true>("LengthsMean"); }
REGISTER(sparse_lengths_sum) { return sparse<false>("SparseLengthsSum"); }
REGISTER(sparse_lengths_mean) { return sparse<true>("SparseLengthsMean"); }
REGISTER(lengths_sum_gradient) { return rows_of_segments<false>("LengthsSumGradient"); }
REGISTER(lengths_mean_gradient) { return rows_of_segments<true>("LengthsMeanGradient"); }
REGISTER(sparse_lengths_sum_gradient) { return rows_of_segments<false>("SparseLengthsSumGradient"); }
REGISTER(sparse_lengths_mean_gradient) { return rows_of_segments<true>("SparseLengthsMeanGradient"); }

constexpr const char* kDataDoc = "DATA; its values are not read";
constexpr const char* kIndicesDoc = "INDICES; their values are not read";

REGISTER(lengths_indices_in_gradient_sum_gradient) {
  return rows_like<false>("LengthsIndicesInGradientSumGradient", kDataDoc);
}
REGISTER(lengths_indices_in_gradient_mean_gradient) {
  return rows_like<true>("LengthsIndicesInGradientMeanGradient", kDataDoc);
}
REGISTER(sparse_lengths_indices_in_gradient_sum_gradient) {
  return rows_like<false>("SparseLengthsIndicesInGradientSumGradient", kIndicesDoc);
}
REGISTER(sparse_lengths_indices_in_gradient_mean_gradient) {
  return rows_like<true>("SparseLengthsIndicesInGradientMeanGradient", kIndicesDoc);
}

}  // namespace
}  // namespace stepnet::cpu_lengths_sum
