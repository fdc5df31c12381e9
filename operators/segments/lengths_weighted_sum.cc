// LengthsWeightedSum and SparseLengthsWeightedSum: the weighted sum of each segment of rows,
//   Y[s, :] = sum over the places k of segment s of w[k] * X[k, :]
// where X are the rows of DATA, or DATA[INDICES, :], a weighted bag of embeddings. An empty segment gives zeros.
//
// dX[k, :] = w[k] * dY[s, :]  LengthsWeightedSumGradient; with INDICES these are the values of a sparse gradient
// dw[k] = X[k, :] . dY[s, :]  LengthsWeightedSumWeightsGradient
// These three are each other's derivatives. Backward reads WEIGHTS for dX and DATA for dw, INDICES and LENGTHS.
//
// Nets of the public format have the two gradients in one operator, ...WithMainInputGradient, or, if WEIGHTS have none,
// SparseLengthsIndicesInGradientWeightedSumGradient, which is given the indices.

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/segment_rows.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_lengths_weighted_sum {
namespace {

void require_rows(const ShapeCall& call, int i, const char* what) {
  if (call.known(i)) require(call.shape(i).rank() >= 1, "{} is a single value, which has no rows", what);
}

// Inputs i and j, each known or not, have as many rows.
void require_as_many(const ShapeCall& call, int i, const char* what, int j, const char* others) {
  if (call.known(i) && call.known(j))
    require(call.shape(i)[0] == call.shape(j)[0], "there are {} {} for {} {}", call.shape(i)[0], what, call.shape(j)[0],
            others);
}

// DATA, WEIGHTS, INDICES if sparse, LENGTHS.
void infer_sums(const NoArgs&, ShapeCall& call) {
  const bool sparse = call.inputs() == 4;
  const int lengths = sparse ? 3 : 2;
  require_rows(call, 0, "DATA");
  require_one_dimension(call, 1, "WEIGHTS");
  if (sparse) require_one_dimension(call, 2, "INDICES");
  require_one_dimension(call, lengths, "LENGTHS");
  require_as_many(call, 1, "weights", sparse ? 2 : 0, sparse ? "indices" : "rows");
  if (call.known(0) && call.known(lengths)) call.set(0, call.dtype(0), call.shape(0).with(0, call.shape(lengths)[0]));
}

// WEIGHTS, SEGMENT_GRADS, LENGTHS.
void infer_rows(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 0, "WEIGHTS");
  require_rows(call, 1, "SEGMENT_GRADS");
  require_one_dimension(call, 2, "LENGTHS");
  require_as_many(call, 1, "segments' gradients", 2, "lengths");
  if (call.known(0) && call.known(1)) call.set(0, call.dtype(1), call.shape(1).with(0, call.shape(0)[0]));
}

// The same and INDICES.
void infer_rows_of_indices(const NoArgs& a, ShapeCall& call) {
  infer_rows(a, call);
  require_one_dimension(call, 3, "INDICES");
  require_as_many(call, 0, "weights", 3, "indices");
}

// WEIGHTS, SEGMENT_GRADS, LENGTHS, DATA, INDICES if sparse.
void infer_both(const NoArgs& a, ShapeCall& call) {
  infer_rows(a, call);
  const bool sparse = call.inputs() == 5;
  require_rows(call, 3, "DATA");
  if (sparse) require_one_dimension(call, 4, "INDICES");
  require_as_many(call, 0, "weights", sparse ? 4 : 3, sparse ? "indices" : "rows");
  if (call.known(3) && call.known(1))
    require(call.shape(3).from(1) == call.shape(1).from(1), "rows of DATA {} are not those of SEGMENT_GRADS {}",
            call.shape(3), call.shape(1));
  call.set_like(1, 0);
}

// DATA, SEGMENT_GRADS, INDICES if sparse, LENGTHS.
void infer_weights(const NoArgs&, ShapeCall& call) {
  const bool sparse = call.inputs() == 4;
  const int lengths = sparse ? 3 : 2, places = sparse ? 2 : 0;
  require_rows(call, 0, "DATA");
  require_rows(call, 1, "SEGMENT_GRADS");
  if (sparse) require_one_dimension(call, 2, "INDICES");
  require_one_dimension(call, lengths, "LENGTHS");
  require_as_many(call, 1, "segments' gradients", lengths, "lengths");
  if (call.known(0) && call.known(1))
    require(call.shape(0).from(1) == call.shape(1).from(1), "rows of DATA {} are not those of SEGMENT_GRADS {}",
            call.shape(0), call.shape(1));
  if (call.known(0) && call.known(places)) call.set(0, call.dtype(0), Shape{call.shape(places)[0]});
}

int64_t row_size(const Tensor& rows) { return rows.shape().size_between(1, rows.rank()); }

// The segments of a call whose rows are those of input 0, or of input 0 at the indices of input 2.
struct Places {
  RowIndices rows;
  int64_t count = 0;
  const Tensor& lengths;
};

Places checked_places(const Tensor& data, const Tensor* indices, const Tensor& lengths) {
  if (!indices) {
    check_segment_lengths(lengths, data.dim(0), "rows");
    return {RowIndices(), data.dim(0), lengths};
  }
  check_segment_lengths(lengths, indices->size(), "indices");
  check_indices(*indices, data.dim(0));
  return {RowIndices(*indices), indices->size(), lengths};
}

// Of a call whose last inputs are LENGTHS, or INDICES and LENGTHS.
Places checked_places(const Call& call) {
  const int last = call.inputs() - 1;
  return checked_places(call.in(0), last == 3 ? &call.in(2) : nullptr, call.in(last));
}

template <class T>
void sums(Call& call) {
  const Places places = checked_places(call);
  const int64_t row = row_size(call.in(0));
  const T *data = call.in(0).data<T>(), *weights = call.in(1).data<T>();
  const Out<T> y = call.out_span<T>(0);
  if (y.empty()) return;
  const double nanoseconds = segment_cost(places.count, row, places.lengths.size());
  for_segments(places.lengths, nanoseconds, [&](int64_t segment, int64_t at, int64_t length) {
    T* to = y.data() + segment * row;
    std::fill_n(to, row, T(0));
    for (int64_t k = at; k < at + length; ++k) {
      const T* from = data + places.rows[k] * row;
      for (int64_t j = 0; j < row; ++j) to[j] += weights[k] * from[j];
    }
  });
}

template <class T>
void weighted_rows(const Tensor& weights, const Tensor& dy, const Tensor& lengths, Out<T> dx) {
  check_segment_lengths(lengths, weights.size(), "weights");
  const int64_t row = row_size(dy);
  const T *w = weights.data<T>(), *segments = dy.data<T>();
  if (dx.empty()) return;
  const double nanoseconds = segment_cost(weights.size(), row, lengths.size());
  for_segments(lengths, nanoseconds, [&](int64_t segment, int64_t at, int64_t length) {
    const T* from = segments + segment * row;
    for (int64_t k = at; k < at + length; ++k)
      for (int64_t j = 0; j < row; ++j) dx[k * row + j] = w[k] * from[j];
  });
}

template <class T>
void products_of(const Places& places, const Tensor& rows, const Tensor& gradients, Out<T> dw) {
  const int64_t row = row_size(rows);
  const T *data = rows.data<T>(), *segments = gradients.data<T>();
  if (dw.empty()) return;
  const double nanoseconds = segment_cost(places.count, row, places.lengths.size());
  for_segments(places.lengths, nanoseconds, [&](int64_t segment, int64_t at, int64_t length) {
    const T* dy = segments + segment * row;
    for (int64_t k = at; k < at + length; ++k) {
      const T* x = data + places.rows[k] * row;
      T sum = 0;
      for (int64_t j = 0; j < row; ++j) sum += x[j] * dy[j];
      dw[k] = sum;
    }
  });
}

template <class T>
void products(Call& call) {
  products_of(checked_places(call), call.in(0), call.in(1), call.out_span<T>(0));
}

template <class T>
void both_gradients(Call& call) {
  const Tensor* indices = call.has(4) ? &call.in(4) : nullptr;
  if (call.wants(0)) weighted_rows(call.in(0), call.in(1), call.in(2), call.out_span<T>(0));
  if (call.wants(1))
    products_of(checked_places(call.in(3), indices, call.in(2)), call.in(3), call.in(1), call.out_span<T>(1));
}

std::string name(bool sparse, const char* ending) {
  return std::string(sparse ? "Sparse" : "") + "LengthsWeightedSum" + ending;
}

// An operator's inputs where INDICES, if there are any, come before LENGTHS.
std::vector<Value> with_places(Formula& f, bool sparse, std::vector<Value> values) {
  if (sparse) values.push_back(f.x("INDICES"));
  values.push_back(f.x("LENGTHS"));
  return values;
}

// The gradient of DATA from what each place and each segment has.
Gradient rows_gradient(Formula& f, bool sparse, Value places, Value segments) {
  const Value rows = f.op(name(sparse, "Gradient"), {places, segments, f.x("LENGTHS")});
  return sparse ? Gradient::sparse(f.x("INDICES"), rows) : Gradient(rows);
}

OpBuilder<>& declare_data(OpBuilder<>& spec, bool sparse) {
  return spec.input("DATA", sparse ? "[R, ...], the table" : "[sum of lengths, ...]");
}

OpBuilder<>& declare_places(OpBuilder<>& spec, bool sparse) {
  if (sparse) spec.input("INDICES", "[sum of lengths], each from 0 to R - 1").types({DType::int32, DType::int64});
  return spec.input("LENGTHS", kLengthsDoc).types({DType::int32, DType::int64});
}

// A product and a sum for each element of a row of DATA, input 0, at each of so many places.
double flops_of_places(const ShapeCall& c, double places) {
  return c.known(0) ? 2 * places * static_cast<double>(c.shape(0).size_between(1, c.shape(0).rank())) : 0;
}

Registration weighted_sum(bool sparse) {
  auto spec = op(name(sparse, ""));
  declare_data(spec, sparse).input("WEIGHTS", "[sum of lengths], what each row is multiplied by");
  declare_places(spec, sparse)
      .doc(sparse ? "The weighted sum of each segment's rows, which are rows of a table by index. The gradient of the "
                    "table is sparse; the weights have one whenever it is asked for."
                  : "The weighted sum of each segment's rows.")
      .accepts("grad_on_weights", "a weight has a gradient whenever it is asked for")
      .output("OUTPUT", "[N, ...]")
      .shape(infer_sums)
      .flops([](const auto&, const ShapeCall& c) { return flops_of_places(c, input_size(c, 1)); })
      .cpu_for<float>(sums<float>)
      .cpu_for<double>(sums<double>)
      .derivative("DATA", [sparse](Formula& f) { return rows_gradient(f, sparse, f.x("WEIGHTS"), f.dy("OUTPUT")); })
      .derivative("WEIGHTS", [sparse](Formula& f) {
        return f.op(name(sparse, "WeightsGradient"), with_places(f, sparse, {f.x("DATA"), f.dy("OUTPUT")}));
      });
  if (sparse)
    return spec.example({"DATA=4,2", "WEIGHTS=6", "INDICES=int32,6:3,0,3,1,1,2", "LENGTHS=int32,4:3,0,1,2"})
        .example({"DATA=2", "WEIGHTS=1", "INDICES=int64,1:1", "LENGTHS=int64,1:1"})
        .example({"DATA=3,2", "WEIGHTS=0", "INDICES=int32,0", "LENGTHS=int32,1:0"});
  return spec.example({"DATA=6,2", "WEIGHTS=6", "LENGTHS=int32,4:3,0,1,2"})
      .example({"DATA=3", "WEIGHTS=3", "LENGTHS=int64,1:3"})
      .example({"DATA=0,2", "WEIGHTS=0", "LENGTHS=int32,0"});
}

Registration rows_of_segments(bool sparse) {
  return op(name(sparse, "Gradient"))
      .doc("Each segment's gradient once for each row of the segment, times the row's weight.")
      .accepts("grad_on_weights", "the forward operator's: it has no output for weights")
      .input("WEIGHTS", "[sum of lengths]")
      .input("SEGMENT_GRADS", "[N, ...], the gradient of the segments")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .output("DATA_GRADS", "[sum of lengths, ...]")
      .shape(infer_rows)
      .flops(flops_per_output(1))
      .cpu_for<float>(weighted_rows<float>)
      .cpu_for<double>(weighted_rows<double>)
      .derivative("WEIGHTS",
                  [](Formula& f) {
                    return f.op("LengthsWeightedSumWeightsGradient",
                                {f.dy("DATA_GRADS"), f.x("SEGMENT_GRADS"), f.x("LENGTHS")});
                  })
      .derivative("SEGMENT_GRADS", [](Formula& f) {
        return f.op("LengthsWeightedSum", {f.dy("DATA_GRADS"), f.x("WEIGHTS"), f.x("LENGTHS")});
      });
}

// SparseLengthsIndicesInGradientWeightedSumGradient.
Registration rows_of_indices() {
  return op("SparseLengthsIndicesInGradientWeightedSumGradient")
      .doc("Each segment's gradient once for each index of the segment, times the index's weight.")
      .accepts("grad_on_weights", "the forward operator's: the outputs say it")
      .input("WEIGHTS", "[sum of lengths]")
      .input("SEGMENT_GRADS", "[N, ...], the gradient of the segments")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .input("INDICES", "[sum of lengths]; their values are not read")
      .types({DType::int32, DType::int64})
      .shape_only()
      .output("DATA_GRADS", "[sum of lengths, ...]")
      .shape(infer_rows_of_indices)
      .flops(flops_per_output(1))
      .cpu_for<float>(weighted_rows<float>)
      .cpu_for<double>(weighted_rows<double>)
      .example({"WEIGHTS=3", "SEGMENT_GRADS=3,2", "LENGTHS=int32,3:2,0,1", "INDICES=int64,3:4,0,1"})
      .composed([](Formula& f) -> std::vector<Value> {
        return {f.op("LengthsWeightedSumGradient", {f.x("WEIGHTS"), f.x("SEGMENT_GRADS"), f.x("LENGTHS")})};
      });
}

// Both gradients in one operator, whose derivatives follow from those of the two.
Registration both_of_rows(const char* type, bool sparse) {
  auto spec = op(type);
  spec.input("WEIGHTS", "[sum of lengths]")
      .input("SEGMENT_GRADS", "[N, ...], the gradient of the segments")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64});
  declare_data(spec, sparse);
  if (sparse) spec.input("INDICES", "[sum of lengths], each from 0 to R - 1").types({DType::int32, DType::int64});
  spec.doc("Both gradients of " + name(sparse, "") + ".")
      .accepts("grad_on_weights", "the forward operator's: the outputs say it")
      .output("DATA_GRADS", "[sum of lengths, ...]: each segment's gradient times the weight, for each of its rows")
      .optional()
      .uses({"WEIGHTS", "SEGMENT_GRADS", "LENGTHS"})
      .output("WEIGHTS_GRADS", "[sum of lengths]: the product of each row with its segment's gradient")
      .optional()
      .uses({"SEGMENT_GRADS", "LENGTHS", "DATA", "INDICES"})
      .shape(infer_both)
      .flops([](const auto&, const ShapeCall& c) {
        const double row = c.known(1) ? static_cast<double>(c.shape(1).size_between(1, c.shape(1).rank())) : 0;
        return input_size(c, 0) * row * (int{c.wants(0)} + 2 * int{c.wants(1)});
      })
      .cpu_for<float>(both_gradients<float>)
      .cpu_for<double>(both_gradients<double>)
      .composed([sparse](Formula& f) -> std::vector<Value> {
        return {f.op(name(sparse, "Gradient"), {f.x("WEIGHTS"), f.x("SEGMENT_GRADS"), f.x("LENGTHS")}),
                f.op(name(sparse, "WeightsGradient"), with_places(f, sparse, {f.x("DATA"), f.x("SEGMENT_GRADS")}))};
      });
  if (sparse)
    return spec.example(
        {"WEIGHTS=3", "SEGMENT_GRADS=3,2", "LENGTHS=int32,3:2,0,1", "DATA=4,2", "INDICES=int64,3:3,0,3"});
  return spec.example({"WEIGHTS=3", "SEGMENT_GRADS=3,2", "LENGTHS=int32,3:2,0,1", "DATA=3,2"});
}

Registration weights_of_rows(bool sparse) {
  auto spec = op(name(sparse, "WeightsGradient"));
  spec.own();
  declare_data(spec, sparse).input("SEGMENT_GRADS", "[N, ...], the gradient of the segments");
  return declare_places(spec, sparse)
      .doc("The product of each row with its segment's gradient.")
      .output("WEIGHTS_GRADS", "[sum of lengths]")
      .shape(infer_weights)
      .flops([](const auto&, const ShapeCall& c) { return flops_of_places(c, output_size(c, 0)); })
      .cpu_for<float>(products<float>)
      .cpu_for<double>(products<double>)
      .derivative(
          "DATA",
          [sparse](Formula& f) { return rows_gradient(f, sparse, f.dy("WEIGHTS_GRADS"), f.x("SEGMENT_GRADS")); })
      .derivative("SEGMENT_GRADS", [sparse](Formula& f) {
        return f.op(name(sparse, ""), with_places(f, sparse, {f.x("DATA"), f.dy("WEIGHTS_GRADS")}));
      });
}

REGISTER(lengths_weighted_sum) { return weighted_sum(false); }
REGISTER(sparse_lengths_weighted_sum) { return weighted_sum(true); }
REGISTER(lengths_weighted_sum_gradient) { return rows_of_segments(false); }
REGISTER(sparse_lengths_weighted_sum_gradient) { return rows_of_segments(true); }
REGISTER(lengths_weighted_sum_weights_gradient) { return weights_of_rows(false); }
REGISTER(sparse_lengths_weighted_sum_weights_gradient) { return weights_of_rows(true); }
REGISTER(sparse_lengths_indices_in_gradient_weighted_sum_gradient) { return rows_of_indices(); }
REGISTER(lengths_weighted_sum_with_main_input_gradient) {
  return both_of_rows("LengthsWeightedSumWithMainInputGradient", false);
}
REGISTER(sparse_lengths_weighted_sum_with_main_input_gradient) {
  return both_of_rows("SparseLengthsWeightedSumWithMainInputGradient", true);
}
REGISTER(sparse_lengths_indices_in_gradient_weighted_sum_with_main_input_gradient) {
  return both_of_rows("SparseLengthsIndicesInGradientWeightedSumWithMainInputGradient", true);
}

}  // namespace
}  // namespace stepnet::cpu_lengths_weighted_sum
