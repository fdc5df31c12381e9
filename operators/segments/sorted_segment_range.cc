// SortedSegmentRangeSum, ...Mean, ...Max, ...LogSumExp and ...LogMeanExp: what becomes of the rows of each segment,
// column by column. SEGMENT_IDS says of each row to which segment it belongs, from 0 on, without a gap. With m the
// largest element and n rows in a segment:
//
//   sum x,   sum x / n,   m,   m + log(sum exp(x - m)),   m + log(sum exp(x - m) / n)
//
// Gradients of an element x of a segment whose result is y, from its gradient dy:
//
//   dy,   dy / n,   dy where x = y,   dy exp(x - y),   dy exp(x - y) / n
//
// The first two read no x and no y; of DATA and OUTPUT only the shapes.
//
// Derivatives of these follow from their bodies, in which a segment's values are repeated by Gather.

#include <algorithm>
#include <cmath>

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/loops/segment_rows.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_sorted_segment_range {
namespace {

enum class Reduce { sum, mean, max, log_sum_exp, log_mean_exp };

constexpr bool is_exponential(Reduce r) { return r == Reduce::log_sum_exp || r == Reduce::log_mean_exp; }
constexpr bool is_divided(Reduce r) { return r == Reduce::mean || r == Reduce::log_mean_exp; }

// Throws Error naming the first id that is neither the one before nor the next.
void check_ids(const Tensor& ids) {
  with_indices(ids, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t before = i == 0 ? -1 : static_cast<int64_t>(values[i - 1]), id = values[i];
      if (id == before + 1 || (i > 0 && id == before)) continue;
      if (i == 0) fail("segment id 0 is {}, but the first segment is 0", id);
      fail("segment id {} is {}, but must be {} or {}, as the one before is {}", i, id, before, before + 1, before);
    }
  });
}

// Calls fn(segment, first row, rows) for each segment in order. Ids must be right.
template <class Fn>
void each_segment(const Tensor& ids, const Fn& fn) {
  with_indices(ids, [&](auto values) {
    const auto count = static_cast<int64_t>(values.size());
    for (int64_t at = 0, segment = 0; at < count; ++segment) {
      int64_t end = at;
      while (end < count && values[static_cast<size_t>(end)] == values[static_cast<size_t>(at)]) ++end;
      fn(segment, at, end - at);
      at = end;
    }
  });
}

void require_row_ids(const ShapeCall& call, int ids) {
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  require_one_dimension(call, ids, "SEGMENT_IDS");
  if (call.known(0) && call.known(ids))
    require(call.shape(0)[0] == call.shape(ids)[0], "DATA {} has {} rows, but SEGMENT_IDS {}", call.shape(0),
            call.shape(0)[0], call.shape(ids)[0]);
}

void infer(const NoArgs&, ShapeCall& call) {
  require_row_ids(call, 1);
  if (!call.known(0) || !call.value(1)) return;
  check_ids(*call.value(1));
  int64_t segments = 0;
  each_segment(*call.value(1), [&](int64_t, int64_t, int64_t) { ++segments; });
  call.set(0, call.dtype(0), call.shape(0).with(0, segments));
}

// DATA, OUTPUT, d_OUTPUT, SEGMENT_IDS.
void infer_gradient(const NoArgs&, ShapeCall& call) {
  require_row_ids(call, 3);
  if (call.known(1) && call.known(2))
    require(call.shape(1) == call.shape(2), "OUTPUT is {}, but its gradient {}", call.shape(1), call.shape(2));
  call.set_like(0, 0);
}

// Of n elements that stand `stride` apart, n > 0.
template <Reduce R, class T>
T reduced(const T* x, int64_t n, int64_t stride) {
  double sum = 0;
  T most = x[0];
  for (int64_t k = 1; k < n; ++k) most = std::max(most, x[k * stride]);
  if constexpr (R == Reduce::max) return most;
  const bool finite = std::isfinite(most);
  if (is_exponential(R) && !finite) return most;
  for (int64_t k = 0; k < n; ++k)
    sum += is_exponential(R) ? std::exp(static_cast<double>(x[k * stride] - most)) : static_cast<double>(x[k * stride]);
  if (is_divided(R)) sum /= static_cast<double>(n);
  return is_exponential(R) ? most + static_cast<T>(std::log(sum)) : static_cast<T>(sum);
}

template <Reduce R, class T>
void forward(In<T> data, const Tensor& ids, Out<T> y, Call& call) {
  check_ids(ids);
  const Shape& shape = call.in(0).shape();
  const int64_t row = shape.size_between(1, shape.rank());
  each_segment(ids, [&](int64_t segment, int64_t first, int64_t rows) {
    for (int64_t j = 0; j < row; ++j) y[segment * row + j] = reduced<R>(data.data() + first * row + j, rows, row);
  });
}

template <Reduce R, class T>
void gradient(In<T> data, In<T> y, In<T> dy, const Tensor& ids, Out<T> dx, Call& call) {
  check_ids(ids);
  if (!call.wants(0)) return;  // an output that says what it uses may be left out
  const Shape& shape = call.in(0).shape();
  const int64_t row = shape.size_between(1, shape.rank()), segments = row > 0 ? call.in(2).size() / row : 0;
  each_segment(ids, [&](int64_t segment, int64_t first, int64_t rows) {
    if (row == 0) return;
    require(segment < segments, "there are more segments than the {} of d_OUTPUT {}", segments, call.in(2).shape());
    for (int64_t k = first; k < first + rows; ++k)
      for (int64_t j = 0; j < row; ++j) {
        const int64_t i = k * row + j, s = segment * row + j;
        T value = dy[s];
        if constexpr (R == Reduce::max) value = data[i] == y[s] ? value : T(0);
        if constexpr (is_exponential(R)) value *= std::exp(data[i] - y[s]);
        if constexpr (is_divided(R)) value /= static_cast<T>(rows);
        dx[i] = value;
      }
  });
}

// A segment's value for each of its rows.
Value repeated(Formula& f, Value x) {
  return f.same_shape(f.op("Gather", {x, f.x("SEGMENT_IDS")}, {make_arg("dense_gradient", true)}), f.x("DATA"));
}

template <Reduce R>
std::vector<Value> gradient_body(Formula& f) {
  using composing::div, composing::fill, composing::map, composing::mul, composing::sub, composing::where;
  Value dx = repeated(f, f.x("d_OUTPUT"));
  if (R == Reduce::max)
    dx = where(f, f.op("EQ", {f.x("DATA"), repeated(f, f.x("OUTPUT"))}), dx, composing::zeros(f, dx));
  if (is_exponential(R)) dx = mul(f, dx, map(f, "Exp", sub(f, f.x("DATA"), repeated(f, f.x("OUTPUT")))));
  if (is_divided(R)) {
    const Value ones = fill(f, f.x("DATA"), 1);
    dx = div(f, dx, repeated(f, f.op("SortedSegmentRangeSum", {ones, f.x("SEGMENT_IDS")})));
  }
  return {dx};
}

constexpr const char* kIds = "[N], the segment of each row: 0, then for each row that of the one before, or the next";

template <Reduce R>
Registration forward_op(const char* type, const char* doc) {
  const std::string gradient_type = std::string(type) + "Gradient";
  return op(type)
      .doc(doc)
      .input("DATA", "[N, ...]")
      .input("SEGMENT_IDS", kIds)
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[segments, ...]")
      .shape(infer)
      .flops([](const auto&, const ShapeCall& c) {
        const double each = is_exponential(R) ? 3 : R == Reduce::max ? 0 : 1, result = is_exponential(R) ? 2 : 0;
        return each * input_size(c, 0) + (result + (is_divided(R) ? 1 : 0)) * output_size(c, 0);
      })
      .cpu(forward<R, float>, forward<R, double>)
      .example({"DATA=5,2", "SEGMENT_IDS=int32,5:0,0,1,2,2"})
      .example({"DATA=3", "SEGMENT_IDS=int64,3:0,0,0"})
      .example({"DATA=0,2", "SEGMENT_IDS=int32,0"})
      .derivative("DATA", [gradient_type](Formula& f) {
        return f.op(gradient_type, {f.x("DATA"), f.y("OUTPUT"), f.dy("OUTPUT"), f.x("SEGMENT_IDS")});
      });
}

template <Reduce R>
Registration gradient_op(const char* type) {
  const bool reads_data = R != Reduce::sum && R != Reduce::mean;
  auto builder = op(std::string(type) + "Gradient");
  builder.doc(fmt::format("Gradient of {}.", type))
      .input("DATA", "[N, ...]")
      .input("OUTPUT", "[segments, ...]")
      .input("d_OUTPUT", "its gradient")
      .input("SEGMENT_IDS", kIds)
      .types({DType::int32, DType::int64})
      .output("d_DATA", "as DATA");
  if (!reads_data) builder.uses({"d_OUTPUT", "SEGMENT_IDS"});
  return builder.shape(infer_gradient)
      .flops([](const auto&, const ShapeCall& c) {
        return ((is_exponential(R) ? 3 : 0) + (is_divided(R) ? 1 : 0)) * input_size(c, 0);
      })
      .cpu(gradient<R, float>, gradient<R, double>)
      .composed(gradient_body<R>);
}

REGISTER(sorted_segment_range_sum) {
  return forward_op<Reduce::sum>("SortedSegmentRangeSum", "The sum of each segment's rows.");
}
REGISTER(sorted_segment_range_sum_gradient) { return gradient_op<Reduce::sum>("SortedSegmentRangeSum"); }
REGISTER(sorted_segment_range_mean) {
  return forward_op<Reduce::mean>("SortedSegmentRangeMean", "The mean of each segment's rows.");
}
REGISTER(sorted_segment_range_mean_gradient) { return gradient_op<Reduce::mean>("SortedSegmentRangeMean"); }
REGISTER(sorted_segment_range_max) {
  return forward_op<Reduce::max>("SortedSegmentRangeMax", "The largest of each segment's rows, column by column.");
}
REGISTER(sorted_segment_range_max_gradient) { return gradient_op<Reduce::max>("SortedSegmentRangeMax"); }
REGISTER(sorted_segment_range_log_sum_exp) {
  return forward_op<Reduce::log_sum_exp>("SortedSegmentRangeLogSumExp",
                                         "The logarithm of the sum of the exponentials of each segment's rows.");
}
REGISTER(sorted_segment_range_log_sum_exp_gradient) {
  return gradient_op<Reduce::log_sum_exp>("SortedSegmentRangeLogSumExp");
}
REGISTER(sorted_segment_range_log_mean_exp) {
  return forward_op<Reduce::log_mean_exp>("SortedSegmentRangeLogMeanExp",
                                          "The logarithm of the mean of the exponentials of each segment's rows.");
}
REGISTER(sorted_segment_range_log_mean_exp_gradient) {
  return gradient_op<Reduce::log_mean_exp>("SortedSegmentRangeLogMeanExp");
}

}  // namespace
}  // namespace stepnet::cpu_sorted_segment_range
