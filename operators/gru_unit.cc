// GRUUnit: the end of one step of a gated recurrent unit, from its gates' sums in the order reset, update, candidate:
//   u = s(x_update), o = tanh(x_candidate), h = u h_prev + (1 - u) o.
// The update gate keeps the old state. The reset gate is not read: the cell has used it in the candidate's sum.
// A row whose sequence is over (timestep >= seq_lengths[n]) keeps its state, or with drop_states gets zeros.
//
//   dh_prev = dh u, dx_reset = 0, dx_update = dh (h_prev - o) u (1 - u), dx_candidate = dh (1 - u) (1 - o^2);
// in a row that is over dgates = 0 and dh_prev = dh, or zeros with drop_states. Backward reads H_prev and gates.

#include <algorithm>
#include <array>
#include <functional>

#include "core/operator.h"
#include "core/parallel.h"
#include "core/vector_math.h"
#include "operators/unit_rows.h"

namespace stepnet {
namespace {

struct GruArgs {
  bool drop_states = false;
  bool sequence_lengths = true;
};

void check_states(const GruArgs& a, const ShapeCall& c) {
  check_timestep(c, a.sequence_lengths ? 3 : 2);
  if (!c.known(0)) return;
  const Shape& states = c.shape(0);
  require(states.rank() >= 1, "H_prev must be [..., N, D], but is a scalar");
  const int64_t size = states.at(-1);
  const Shape gates = states.with(states.rank() - 1, 3 * size);
  if (c.known(1))
    require(alike(c.shape(1), gates), "gates must be {}, three times the {} states of H_prev {}, but is {}", gates,
            size, states, c.shape(1));
  if (a.sequence_lengths) check_lengths_fit(c, 2, "H_prev", states);
}

void infer(const GruArgs& a, ShapeCall& c) {
  const int expected = a.sequence_lengths ? 4 : 3;
  require(c.inputs() == expected, "with sequence_lengths: {} it takes {} inputs, but has {}", int{a.sequence_lengths},
          expected, c.inputs());
  check_states(a, c);
  c.set_like(0, 0);
}

// The gradient's inputs: H_prev, gates, [seq_lengths,] timestep, H, dH.
int index_of_dh(const GruArgs& a) { return a.sequence_lengths ? 5 : 4; }

void infer_gradient(const GruArgs& a, ShapeCall& c) {
  const int dh = index_of_dh(a);
  require(c.inputs() == dh + 1, "with sequence_lengths: {} it takes {} inputs, but has {}", int{a.sequence_lengths},
          dh + 1, c.inputs());
  check_states(a, c);
  if (c.known(0) && c.known(dh))
    require(alike(c.shape(dh), c.shape(0)), "dH must be {} as H_prev is, but is {}", c.shape(0), c.shape(dh));
  c.set_like(0, 0);
  c.set_like(1, 1);
}

// The rows of the states, and which are still within their sequences.
struct Rows {
  int64_t count, d;
  Steps steps;

  Rows(const GruArgs& a, const Call& call)
      : count(call.in(0).shape().size_between(0, call.in(0).rank() - 1)), d(call.in(0).shape().at(-1)) {
    if (a.sequence_lengths) steps = steps_at(call, 2);
  }
};

// What both activations are computed into, a piece of a row at a time.
constexpr int64_t kPiece = 256;
template <class T>
struct Activated {
  std::array<T, kPiece> u, o;

  void compute(const T* gates, int64_t d, int64_t at, int64_t size) {
    const size_t n = static_cast<size_t>(size);
    vec_sigmoid(In<T>(gates + d + at, n), Out<T>(u.data(), n));
    vec_tanh(In<T>(gates + 2 * d + at, n), Out<T>(o.data(), n));
  }
};

template <class T>
void forward_row(int64_t d, const T* h_prev, const T* gates, T* h) {
  Activated<T> v;
  for (int64_t at = 0; at < d; at += kPiece) {
    const int64_t size = std::min(kPiece, d - at);
    v.compute(gates, d, at, size);
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) h[at + j] = v.u[j] * (h_prev[at + j] - v.o[j]) + v.o[j];
  }
}

// dh_prev and dgates are null where they are not wanted.
template <class T>
void gradient_row(int64_t d, const T* h_prev, const T* gates, const T* dh, T* dh_prev, T* dgates) {
  Activated<T> v;
  for (int64_t at = 0; at < d; at += kPiece) {
    const int64_t size = std::min(kPiece, d - at);
    v.compute(gates, d, at, size);
    const T* e = dh + at;
    if (dgates) {
      T *const reset = dgates + at, *const update = reset + d, *const candidate = update + d;
#pragma omp simd
      for (int64_t j = 0; j < size; ++j) {
        const T u = v.u[j], o = v.o[j];
        reset[j] = T(0);
        update[j] = e[j] * (h_prev[at + j] - o) * u * (T(1) - u);
        candidate[j] = e[j] * (T(1) - u) * (T(1) - o * o);
      }
    }
    if (!dh_prev) continue;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) dh_prev[at + j] = e[j] * v.u[j];
  }
}

template <class T>
double nanoseconds_per_row(int64_t d) {
  return 20 + (sizeof(T) == 4 ? 1.0 : 3.0) * static_cast<double>(d);
}

template <class T>
void forward(const GruArgs& a, Call& call) {
  const Rows rows(a, call);
  const T *h_prev = call.in_span<T>(0).data(), *gates = call.in_span<T>(1).data();
  T* h = call.out_span<T>(0).data();
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * rows.d;
      if (rows.steps.valid(n)) {
        forward_row(rows.d, h_prev + at, gates + 3 * at, h + at);
      } else {
        hold_row(a.drop_states, rows.d, h_prev + at, h + at);
      }
    }
  };
  parallel_for(rows.count, nanoseconds_per_row<T>(rows.d), std::ref(range));
}

template <class T>
void gradient(const GruArgs& a, Call& call) {
  const Rows rows(a, call);
  const T *h_prev = call.in_span<T>(0).data(), *gates = call.in_span<T>(1).data();
  const T* dh = call.in_span<T>(index_of_dh(a)).data();
  T *dh_prev = call.out_span<T>(0).data(), *dgates = call.out_span<T>(1).data();
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * rows.d;
      T *const to_h = row_of(dh_prev, n, rows.d), *const to_gates = row_of(dgates, n, 3 * rows.d);
      if (rows.steps.valid(n)) {
        gradient_row(rows.d, h_prev + at, gates + 3 * at, dh + at, to_h, to_gates);
      } else {
        hold_row(a.drop_states, rows.d, dh + at, to_h);
        hold_row<T>(true, 3 * rows.d, nullptr, to_gates);
      }
    }
  };
  parallel_for(rows.count, nanoseconds_per_row<T>(rows.d), std::ref(range));
}

double flops(const GruArgs&, const ShapeCall& c) {
  return c.known(0) ? 20 * static_cast<double>(c.shape(0).size()) : 0;
}

int leading_rows(const GruArgs& a, const ShapeCall& c) {
  return c.known(0) ? leading_rows_of(a.sequence_lengths, c.shape(0)) : 0;
}

std::vector<Gradient> derivatives(Formula& f) {
  std::vector<Value> inputs = {f.x("H_prev"), f.x("gates"), f.x("seq_lengths_or_timestep")};
  if (f.args<GruArgs>().sequence_lengths) inputs.push_back(f.x("timestep"));
  inputs.insert(inputs.end(), {f.y("H"), f.dy("H")});
  const std::vector<Value> d =
      f.ops("GRUUnitGradient", inputs, f.forward_args(), {f.wants("H_prev"), f.wants("gates")});
  const bool lengths = f.args<GruArgs>().sequence_lengths;
  std::vector<bool> reads = {f.wants("gates"), true, lengths};
  if (lengths) reads.push_back(true);
  reads.insert(reads.end(), {false, true});  // H is there because the public format has it
  f.set_reads(std::move(reads));
  return {d[0], d[1]};
}

OpBuilder<GruArgs>& add_args(OpBuilder<GruArgs>& builder) {
  return builder
      .arg("drop_states", &GruArgs::drop_states, false, "rows past their length get zeros instead of keeping states")
      .arg("sequence_lengths", &GruArgs::sequence_lengths, true, "whether there is an input seq_lengths")
      .ignored_args({"forget_bias"});
}

REGISTER(gru_unit) {
  auto builder = op<GruArgs>("GRUUnit");
  builder.doc(
      "The end of one step of a GRU from its gates' sums. Inputs are H_prev, gates, seq_lengths, timestep, or without "
      "seq_lengths if sequence_lengths is 0.");
  return add_args(builder)
      .input("H_prev", "[..., N, D]")
      .input("gates", "[..., N, 3D], sums before their activations, in the order reset, update, candidate")
      .input("seq_lengths_or_timestep", "[N], the length of each row's sequence; of three inputs, the timestep")
      .types({DType::int32})
      .input("timestep", "[1], the index of this step")
      .types({DType::int32})
      .optional()
      .output("H", "like H_prev")
      .shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .derivatives({"H_prev", "gates"}, derivatives);
}

// Without seq_lengths every later input stands one place earlier, so a place names both things that may stand in it.
REGISTER(gru_unit_gradient) {
  auto builder = op<GruArgs>("GRUUnitGradient");
  builder.doc(
      "Gradients of GRUUnit. Inputs are H_prev, gates, seq_lengths, timestep, H, dH, or without seq_lengths if "
      "sequence_lengths is 0.");
  return add_args(builder)
      .input("H_prev", "GRUUnit's")
      .input("gates", "GRUUnit's")
      .input("seq_lengths_or_timestep", "GRUUnit's")
      .types({DType::int32})
      .input("timestep_or_H", "GRUUnit's; H is not read")
      .types({DType::int32, DType::float32, DType::float64})
      .input("H_or_dH", "GRUUnit's output, which is not read, or its gradient")
      .input("dH", "of six inputs the gradient of H")
      .optional()
      .output("dH_prev", "like H_prev")
      .optional()
      .uses({"gates", "seq_lengths_or_timestep", "timestep_or_H", "H_or_dH", "dH"})
      .output("dgates", "like gates")
      .optional()
      .uses({"H_prev", "gates", "seq_lengths_or_timestep", "timestep_or_H", "H_or_dH", "dH"})
      .in_place("gates", "dgates")
      .shape(infer_gradient)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(gradient<float>)
      .cpu_for<double>(gradient<double>)
      .no_gradient("second derivatives of GRUUnit are not written");
}

}  // namespace
}  // namespace stepnet
