// GRUUnit: the end of one step of a gated recurrent unit, from its gates' sums in the order reset, update, candidate:
//   u = s(x_update), o = tanh(x_candidate), h = u h_prev + (1 - u) o.
// The update gate keeps the old state. The reset gate is not read: the cell has used it in the candidate's sum.
// A row whose sequence is over (timestep >= seq_lengths[n]) keeps its state, or with drop_states gets zeros.
//
//   dh_prev = dh u, dx_reset = 0, dx_update = dh (h_prev - o) u (1 - u), dx_candidate = dh (1 - u) (1 - o^2);
// in a row that is over dgates = 0 and dh_prev = dh, or zeros with drop_states. Backward reads H_prev and gates. Its
// derivatives follow from these formulas.
//
// With u and o as outputs, which the tape asks for, backward reads them and H_prev, and of h_prev's gradient u alone:
// that is less than the gates, and need not be worked out again. In a row that is over u is 1, or 0 with drop_states,
// and o is 1, where all slopes are 0.

#include "operators/cells/gru_unit.h"

#include <algorithm>
#include <array>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/cells/unit_body.h"

namespace stepnet::cpu_gru_unit {
namespace {

void check_states(const UnitArgs& a, const ShapeCall& c) { check_unit_states(a, c, 0, "H_prev", 3, "three"); }

void infer(const UnitArgs& a, ShapeCall& c) {
  check_unit_inputs(a, c, 4);
  check_states(a, c);
  for (int o = 0; o < 3; ++o) c.set_like(o, 0);
}

void infer_gradient(const UnitArgs& a, ShapeCall& c) {
  const int dh = gru_gradient_dh(a);
  check_unit_inputs(a, c, 6);
  check_states(a, c);
  require_input(c, dh, "dH");
  check_alike(c, dh, "dH", 0, "H_prev");
  c.set_like(0, 0);
  c.set_like(1, 1);
}

// H_prev, gates, update, candidate, dH, and seq_lengths and timestep.
void infer_activated_gradient(const UnitArgs& a, ShapeCall& c) {
  const int expected = a.sequence_lengths ? 7 : 5;
  require(c.inputs() == expected, "with sequence_lengths: {} it takes {} inputs, but has {}", int{a.sequence_lengths},
          expected, c.inputs());
  constexpr std::array kNames = {"H_prev", "gates", "update", "candidate", "dH"};
  for (int i = 0; i < 5; ++i) require_input(c, i, kNames[static_cast<size_t>(i)]);
  for (int i = 2; i < 5; ++i) check_alike(c, i, kNames[static_cast<size_t>(i)], 0, "H_prev");
  if (c.known(0)) check_gates(c, 1, "H_prev", c.shape(0), 3, "three");
  if (a.sequence_lengths) {
    check_timestep(c, 6);
    if (c.known(0)) check_lengths_fit(c, 5, "H_prev", c.shape(0));
  }
  c.set_like(0, 0);
  c.set_like(1, 1);
}

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

// update and candidate are null where they are not wanted.
template <class T>
void forward_row(int64_t d, const T* h_prev, const T* gates, T* h, T* update, T* candidate) {
  Activated<T> v;
  for (int64_t at = 0; at < d; at += kPiece) {
    const int64_t size = std::min(kPiece, d - at);
    v.compute(gates, d, at, size);
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) h[at + j] = v.u[j] * (h_prev[at + j] - v.o[j]) + v.o[j];
    if (update) std::copy_n(v.u.data(), size, update + at);
    if (candidate) std::copy_n(v.o.data(), size, candidate + at);
  }
}

// Of `size` elements of a row of d, from those of u, o, h_prev and dh on. dh_prev and dgates are null where they are
// not wanted; dgates may be the gates.
template <class T>
void gradient_piece(int64_t d, int64_t size, const T* u, const T* o, const T* h_prev, const T* dh, T* dh_prev,
                    T* dgates) {
  if (dgates) {
    T *const reset = dgates, *const update = reset + d, *const candidate = update + d;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) {
      reset[j] = T(0);
      update[j] = dh[j] * (h_prev[j] - o[j]) * u[j] * (T(1) - u[j]);
      candidate[j] = dh[j] * (T(1) - u[j]) * (T(1) - o[j] * o[j]);
    }
  }
  if (!dh_prev) return;
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) dh_prev[j] = dh[j] * u[j];
}

template <class T>
T* later(T* first, int64_t by) {
  return first ? first + by : nullptr;
}

template <class T>
void gradient_row(int64_t d, const T* h_prev, const T* gates, const T* dh, T* dh_prev, T* dgates) {
  Activated<T> v;
  for (int64_t at = 0; at < d; at += kPiece) {
    const int64_t size = std::min(kPiece, d - at);
    v.compute(gates, d, at, size);
    gradient_piece(d, size, v.u.data(), v.o.data(), later(h_prev, at), dh + at, later(dh_prev, at), later(dgates, at));
  }
}

template <class T>
double nanoseconds_per_row(int64_t d) {
  return 20 + (sizeof(T) == 8 ? 3.0 : 1.0) * static_cast<double>(d);
}

template <class T>
void forward(const UnitArgs& a, Call& call) {
  const UnitRows rows(a, call, 0);
  const T *h_prev = call.in_span<T>(0).data(), *gates = call.in_span<T>(1).data();
  T *h = call.out_span<T>(0).data(), *update = call.out_span<T>(1).data(), *candidate = call.out_span<T>(2).data();
  rows.each(
      nanoseconds_per_row<T>(rows.d),
      [&, d = rows.d](int64_t n) {
        ComputedRows<T> row(n, 7 * d);
        forward_row(d, row.read(h_prev, d), row.read(gates, 3 * d), row.write(h, d), row.write(update, d),
                    row.write(candidate, d));
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, h_prev + n * d, h + n * d);
        if (update) std::fill_n(update + n * d, d, T(a.drop_states ? 0 : 1));
        if (candidate) std::fill_n(candidate + n * d, d, T(1));
      });
}

template <class T>
void gradient(const UnitArgs& a, Call& call) {
  const UnitRows rows(a, call, 0);
  const T *h_prev = call.in_span<T>(0).data(), *gates = call.in_span<T>(1).data();
  const T* dh = call.in_span<T>(gru_gradient_dh(a)).data();
  T *dh_prev = call.out_span<T>(0).data(), *dgates = call.out_span<T>(1).data();
  rows.each(
      nanoseconds_per_row<T>(rows.d),
      [&, d = rows.d](int64_t n) {
        ComputedRows<T> row(n, 9 * d);
        gradient_row(d, row.read(h_prev, d), row.read(gates, 3 * d), row.read(dh, d), row.write(dh_prev, d),
                     row.write(dgates, 3 * d));
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, dh + n * d, row_of(dh_prev, n, d));
        hold_row<T>(true, 3 * d, nullptr, row_of(dgates, n, 3 * d));
      });
}

template <class T>
void activated_gradient(const UnitArgs& a, Call& call) {
  const UnitRows rows(a, call, 0, 5);
  const T *h_prev = call.in_span<T>(0).data(), *u = call.in_span<T>(2).data(), *o = call.in_span<T>(3).data(),
          *dh = call.in_span<T>(4).data();
  T *dh_prev = call.out_span<T>(0).data(), *dgates = call.out_span<T>(1).data();
  rows.each(
      nanoseconds_per_row<T>(rows.d) / 2,
      [&, d = rows.d](int64_t n) {
        ComputedRows<T> row(n, 8 * d);
        gradient_piece(d, d, row.read(u, d), row.read(o, d), row.read(h_prev, d), row.read(dh, d),
                       row.write(dh_prev, d), row.write(dgates, 3 * d));
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, dh + n * d, row_of(dh_prev, n, d));
        hold_row<T>(true, 3 * d, nullptr, row_of(dgates, n, 3 * d));
      });
}

double flops(const UnitArgs&, const ShapeCall& c) { return 8 * input_size(c, 0); }

double gradient_flops(const UnitArgs&, const ShapeCall& c) { return input_size(c, 0) * (4 + 11 * int{c.wants(1)}); }

double activated_gradient_flops(const UnitArgs&, const ShapeCall& c) {
  return input_size(c, 0) * (int{c.wants(0)} + 10 * int{c.wants(1)});
}

int leading_rows(const UnitArgs& a, const ShapeCall& c) { return unit_leading_rows(a, c, 0); }

std::vector<Value> gradients_by_gates(Formula& f) {
  std::vector<Value> inputs = {f.x("H_prev"), f.x("gates"), f.x("seq_lengths_or_timestep")};
  if (f.args<UnitArgs>().sequence_lengths) inputs.push_back(f.x("timestep"));
  inputs.insert(inputs.end(), {f.y("H"), f.dy("H")});
  const std::vector<Value> d =
      f.ops("GRUUnitGradient", inputs, f.forward_args(), {f.wants("H_prev"), f.wants("gates")});
  const bool lengths = f.args<UnitArgs>().sequence_lengths;
  std::vector<bool> reads = {f.wants("gates"), true, lengths};
  if (lengths) reads.push_back(true);
  reads.insert(reads.end(), {false, true});  // H is there because the public format has it
  f.set_reads(std::move(reads));
  return d;
}

std::vector<Value> gradients_by_activations(Formula& f, Value u, Value o) {
  std::vector<Value> inputs = {f.x("H_prev"), f.x("gates"), u, o, f.dy("H")};
  if (f.args<UnitArgs>().sequence_lengths)
    inputs.insert(inputs.end(), {f.x("seq_lengths_or_timestep"), f.x("timestep")});
  return f.ops("GRUUnitActivatedGradient", inputs, f.forward_args(), {f.wants("H_prev"), f.wants("gates")});
}

// What reaches the gates through the outputs u and o, or nothing.
Value through_activations(Formula& f, Value u, Value o) {
  using composing::like_first, composing::matrix, composing::reshaped, composing::zeros;
  const Value du = f.dy("update"), dc = f.dy("candidate");
  if (!du.defined() && !dc.defined()) return {};
  const Value none = zeros(f, matrix(f, du.defined() ? du : dc, -1));
  const auto slope = [&](const char* gradient, Value value, Value given) {
    return given.defined() ? like_first(f, gradient, matrix(f, value, -1), matrix(f, given, -1)) : none;
  };
  const Value joined =
      f.op("Concat", {none, slope("SigmoidGradient", u, du), slope("TanhGradient", o, dc)}, {make_arg("axis", 1)});
  return reshaped(f, joined, f.x("gates"));
}

std::vector<Gradient> derivatives(Formula& f) {
  const Value u = f.y("update"), o = f.y("candidate");
  Value of_h_prev, of_gates;
  if (f.has_dy("H")) {
    const std::vector<Value> d = u.defined() && o.defined() ? gradients_by_activations(f, u, o) : gradients_by_gates(f);
    of_h_prev = d[0], of_gates = d[1];
  }
  if (f.wants("gates")) of_gates = composing::add_given(f, of_gates, through_activations(f, u, o));
  return {of_h_prev, of_gates};
}

std::vector<Value> body(Formula& f) {
  using composing::add, composing::map, composing::mul, composing::reshaped, composing::sub;
  const UnitBody unit(f, f.args<UnitArgs>(), 2);
  const Value h_prev = unit.rows(0);
  const std::vector<Value> gates = unit.gates(unit.rows(1), h_prev, {false, true, true});
  const Value u = map(f, "Sigmoid", gates[1]), o = map(f, "Tanh", gates[2]);
  return {reshaped(f, unit.or_held(add(f, mul(f, u, sub(f, h_prev, o)), o), h_prev), f.x_at(0))};
}

std::vector<Value> body_of_gradient(const UnitBody& unit, Value h_prev, Value u, Value o, Value dh) {
  using composing::like_first, composing::mul, composing::reshaped, composing::sub, composing::zeros;
  Formula& f = unit.f;
  const Value kept = mul(f, dh, u);
  const Value of_update = like_first(f, "SigmoidGradient", u, mul(f, dh, sub(f, h_prev, o)));
  const Value of_candidate = like_first(f, "TanhGradient", o, sub(f, dh, kept));
  const Value of_gates = unit.or_held(unit.join({zeros(f, h_prev), of_update, of_candidate}), {});
  return {reshaped(f, unit.or_held(kept, dh), f.x_at(0)), reshaped(f, of_gates, f.x_at(1))};
}

std::vector<Value> gradient_body(Formula& f) {
  const auto& a = f.args<UnitArgs>();
  const UnitBody unit(f, a, 2);
  const Value h_prev = unit.rows(0), dh = unit.rows(gru_gradient_dh(a));
  const std::vector<Value> gates = unit.gates(unit.rows(1), h_prev, {false, true, true});
  const Value u = composing::map(f, "Sigmoid", gates[1]), o = composing::map(f, "Tanh", gates[2]);
  return body_of_gradient(unit, h_prev, u, o, dh);
}

std::vector<Value> activated_gradient_body(Formula& f) {
  const UnitBody unit(f, f.args<UnitArgs>(), 5);
  return body_of_gradient(unit, unit.rows(0), unit.rows(2), unit.rows(3), unit.rows(4));
}

OpBuilder<UnitArgs>& add_args(OpBuilder<UnitArgs>& builder) {
  return declare_unit_args(builder).accepts("forget_bias", "a GRU has no forget gate");
}

REGISTER(gru_unit) {
  auto builder = op<UnitArgs>("GRUUnit");
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
      .output("update", "like H_prev, the update gate; in rows past their length 1, or 0 with drop_states")
      .optional()
      .output("candidate", "like H_prev, after its activation; 1 in rows past their length")
      .optional()
      .example({"H_prev=1,3,2", "gates=1,3,6", "seq_lengths_or_timestep=int32,3:2,1,5", "timestep=int32,1:1"})
      .example({"H_prev=3,2", "gates=3,6", "seq_lengths_or_timestep=int32,3:2,1,5", "timestep=int32,1:1"},
               {"drop_states=1"})
      .example({"H_prev=2,3", "gates=2,9", "seq_lengths_or_timestep=int32,1:1"}, {"sequence_lengths=0"})
      .example({"H_prev=1,0,2", "gates=1,0,6", "seq_lengths_or_timestep=int32,1:0"}, {"sequence_lengths=0"})
      .shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .cpu_for<float16>(forward<float16>)
      .cpu_for<bfloat16>(forward<bfloat16>)
      .derivatives({"H_prev", "gates"}, derivatives)
      .composed(body);
}

// Without seq_lengths every later input stands one place earlier, so a place names both things that may stand in it.
REGISTER(gru_unit_gradient) {
  auto builder = op<UnitArgs>("GRUUnitGradient");
  builder.doc(
      "Gradients of GRUUnit. Inputs are H_prev, gates, seq_lengths, timestep, H, dH, or without seq_lengths if "
      "sequence_lengths is 0.");
  return add_args(builder)
      .input("H_prev", "GRUUnit's")
      .input("gates", "GRUUnit's")
      .input("seq_lengths_or_timestep", "GRUUnit's")
      .types({DType::int32})
      .input("timestep_or_H", "GRUUnit's; H is not read")
      .types({DType::int32, DType::float32, DType::float64, DType::float16, DType::bfloat16})
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
      .example({"H_prev=1,3,2", "gates=1,3,6", "seq_lengths_or_timestep=int32,3:2,1,5", "timestep_or_H=int32,1:1",
                "H_or_dH=1,3,2", "dH=1,3,2"})
      .example({"H_prev=2,3", "gates=2,9", "seq_lengths_or_timestep=int32,1:1", "timestep_or_H=2,3", "H_or_dH=2,3"},
               {"sequence_lengths=0"})
      .shape(infer_gradient)
      .flops(gradient_flops)
      .rowwise(leading_rows)
      .cpu_for<float>(gradient<float>)
      .cpu_for<double>(gradient<double>)
      .cpu_for<float16>(gradient<float16>)
      .cpu_for<bfloat16>(gradient<bfloat16>)
      .composed(gradient_body);
}

REGISTER(gru_unit_activated_gradient) {
  auto builder = op<UnitArgs>("GRUUnitActivatedGradient");
  builder.own();
  builder.doc("Gradients of GRUUnit, from its outputs update and candidate in place of the gates' sums.");
  return add_args(builder)
      .input("H_prev", "GRUUnit's")
      .input("gates", "GRUUnit's")
      .shape_only()
      .input("update", "GRUUnit's")
      .input("candidate", "GRUUnit's")
      .input("dH", "the gradient of H")
      .input("seq_lengths", "GRUUnit's, if it has them")
      .types({DType::int32})
      .optional()
      .input("timestep", "GRUUnit's, with seq_lengths")
      .types({DType::int32})
      .optional()
      .output("dH_prev", "like H_prev")
      .optional()
      .uses({"update", "dH", "seq_lengths", "timestep"})
      .output("dgates", "like gates")
      .optional()
      .shape(infer_activated_gradient)
      .flops(activated_gradient_flops)
      .rowwise(leading_rows)
      .cpu_for<float>(activated_gradient<float>)
      .cpu_for<double>(activated_gradient<double>)
      .cpu_for<float16>(activated_gradient<float16>)
      .cpu_for<bfloat16>(activated_gradient<bfloat16>)
      .composed(activated_gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_gru_unit
