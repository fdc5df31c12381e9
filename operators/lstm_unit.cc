// LSTMUnit: one step of a long short-term memory from its gates' sums, with rows of D states and 4D gates i, f, o, g:
//   i = s(x_i), f = s(x_f + forget_bias), o = s(x_o), g = tanh(x_g), c = f c_prev + i g, h = o tanh(c).
// A row whose sequence is over (timestep >= seq_lengths[n]) keeps its states, or with drop_states gets zeros.
//
// With e = dc + dh o (1 - tanh(c)^2):
//   dc_prev = e f, dx_i = e g i (1 - i), dx_f = e c_prev f (1 - f), dx_o = dh tanh(c) o (1 - o), dx_g = e i (1 - g^2),
// and dh_prev = 0, since h_prev acts through the gates alone. In a row that is over, dgates = 0 and the states'
// gradients pass through, or are zeros with drop_states. Backward reads C_prev, gates and C; a missing dH or dC is
// zero.
//
// With activated_gates the third output has i, f, o and g, and the gradient reads them as its gates, so that it need
// not work them out again. A step net gets this by itself (recurrent/activated_gates.cc).

#include <algorithm>
#include <functional>

#include "core/operator.h"
#include "core/parallel.h"
#include "operators/lstm_gates.h"
#include "operators/unit_rows.h"

namespace stepnet {
namespace {

struct LstmArgs {
  float forget_bias = 0;
  bool drop_states = false;
  bool sequence_lengths = true;
  bool activated_gates = false;
};

void check_like(const ShapeCall& c, int i, const char* name, const Shape& states) {
  if (c.known(i)) require(alike(c.shape(i), states), "{} must be {} as C_prev is, but is {}", name, states, c.shape(i));
}

// `timestep` is the index of that input; with sequence lengths they stand before it.
void check_states(const LstmArgs& a, const ShapeCall& c, int timestep) {
  check_timestep(c, timestep);
  if (!c.known(1)) return;
  const Shape& states = c.shape(1);
  require(states.rank() >= 1, "C_prev must be [..., N, D], but is a scalar");
  check_like(c, 0, "H_prev", states);
  const int64_t size = states[states.rank() - 1];
  const Shape gates = states.with(states.rank() - 1, 4 * size);
  if (c.known(2))
    require(alike(c.shape(2), gates), "gates must be {}, four times the {} states of C_prev {}, but is {}", gates, size,
            states, c.shape(2));
  if (a.sequence_lengths) check_lengths_fit(c, 3, "C_prev", states);
}

void infer(const LstmArgs& a, ShapeCall& c) {
  require(c.inputs() == (a.sequence_lengths ? 5 : 4), "with sequence_lengths: {} it takes {} inputs, but has {}",
          int{a.sequence_lengths}, a.sequence_lengths ? 5 : 4, c.inputs());
  check_states(a, c, a.sequence_lengths ? 4 : 3);
  require(!c.wants(2) || a.activated_gates, "it has three outputs, but activated_gates is 0");
  c.set_like(0, 0);
  c.set_like(1, 1);
  c.set_like(2, 2);
}

// Where the gradient's inputs stand: H_prev, C_prev, gates, [seq_lengths,] timestep, H, C, dH, dC.
struct GradientInputs {
  int timestep, h, c, dh, dc;
  explicit GradientInputs(const LstmArgs& a)
      : timestep(a.sequence_lengths ? 4 : 3), h(timestep + 1), c(h + 1), dh(c + 1), dc(dh + 1) {}
};

void infer_gradient(const LstmArgs& a, ShapeCall& call) {
  const GradientInputs in(a);
  require(call.has(in.c) && call.inputs() <= in.dc + 1, "with sequence_lengths: {} it takes {} inputs, but has {}",
          int{a.sequence_lengths}, in.dc + 1, call.inputs());
  check_states(a, call, in.timestep);
  if (call.known(1)) {
    check_like(call, in.c, "C", call.shape(1));
    check_like(call, in.dh, "dH", call.shape(1));
    check_like(call, in.dc, "dC", call.shape(1));
  }
  call.set_like(0, 0);
  call.set_like(1, 1);
  call.set_like(2, 2);
}

Steps steps_of(const LstmArgs& a, const Call& call) { return a.sequence_lengths ? steps_at(call, 3) : Steps(); }

struct Sizes {
  int64_t rows = 0, d = 0;
  explicit Sizes(const Shape& states) : rows(states.size_between(0, states.rank() - 1)), d(states[states.rank() - 1]) {}
};

// As measured on AVX-512, forward and backward alike; the first is what a row costs whatever its size.
template <class T>
double nanoseconds_per_row(int64_t d) {
  return 10 + (sizeof(T) == 4 ? 1.8 : 5.0) * static_cast<double>(d);
}

template <class T>
void forward(const LstmArgs& a, Call& call) {
  const Sizes s(call.in(1).shape());
  const Steps steps = steps_of(a, call);
  const T *h_prev = call.in_span<T>(0).data(), *c_prev = call.in_span<T>(1).data(), *gates = call.in_span<T>(2).data();
  T *h = call.out_span<T>(0).data(), *c = call.out_span<T>(1).data(), *active = call.out_span<T>(2).data();
  const T bias = static_cast<T>(a.forget_bias);
  const LstmKernels& kernels = lstm_kernels();
  auto rows = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T *const to_h = row_of(h, n, s.d), *const to_c = row_of(c, n, s.d);
      if (steps.valid(n)) {
        kernels.forward(
            LstmRow<T>{s.d, bias, c_prev + n * s.d, gates + n * 4 * s.d, to_h, to_c, row_of(active, n, 4 * s.d)});
      } else {
        hold_row(a.drop_states, s.d, h_prev + n * s.d, to_h);
        hold_row(a.drop_states, s.d, c_prev + n * s.d, to_c);
      }
    }
  };
  parallel_for(s.rows, nanoseconds_per_row<T>(s.d), std::ref(rows));
}

// Where a missing or unwanted tensor's first element would be stands null. dgates may be the gates' own storage.
template <class T>
struct GradientTensors {
  const T *c_prev, *gates, *c, *dh, *dc;
  T *dh_prev, *dc_prev, *dgates;

  GradientTensors(const GradientInputs& in, Call& call)
      : c_prev(call.in_span<T>(1).data()),
        gates(call.in_span<T>(2).data()),
        c(call.in_span<T>(in.c).data()),
        dh(call.in_span<T>(in.dh).data()),
        dc(call.in_span<T>(in.dc).data()),
        dh_prev(call.out_span<T>(0).data()),
        dc_prev(call.out_span<T>(1).data()),
        dgates(call.out_span<T>(2).data()) {}
};

template <class T>
void gradient(const LstmArgs& a, Call& call) {
  const GradientTensors<T> t(GradientInputs(a), call);
  const Sizes s(call.in(1).shape());
  const Steps steps = steps_of(a, call);
  const T bias = static_cast<T>(a.forget_bias);
  const LstmKernels& kernels = lstm_kernels();
  auto rows = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T *const dh = row_of(t.dh, n, s.d), *const dc = row_of(t.dc, n, s.d);
      T *const dh_prev = row_of(t.dh_prev, n, s.d), *const dc_prev = row_of(t.dc_prev, n, s.d);
      T* const dgates = row_of(t.dgates, n, 4 * s.d);
      if (steps.valid(n)) {
        kernels.gradient(LstmGradientRow<T>{s.d, bias, t.c_prev + n * s.d, t.gates + n * 4 * s.d, t.c + n * s.d, dh, dc,
                                            dc_prev, dgates, a.activated_gates});
        hold_row<T>(true, s.d, nullptr, dh_prev);
      } else {
        hold_row(a.drop_states, s.d, dh, dh_prev);
        hold_row(a.drop_states, s.d, dc, dc_prev);
        hold_row<T>(true, 4 * s.d, nullptr, dgates);
      }
    }
  };
  parallel_for(s.rows, nanoseconds_per_row<T>(s.d), std::ref(rows));
}

double flops(const LstmArgs&, const ShapeCall& c) {
  return c.known(1) ? 30 * static_cast<double>(c.shape(1).size()) : 0;
}

int leading_rows(const LstmArgs& a, const ShapeCall& c) {
  return c.known(1) ? leading_rows_of(a.sequence_lengths, c.shape(1)) : 0;
}

std::vector<Gradient> derivatives(Formula& f) {
  std::vector<Value> inputs = {f.x("H_prev"), f.x("C_prev"), f.x("gates"), f.x("seq_lengths_or_timestep")};
  if (f.args<LstmArgs>().sequence_lengths) inputs.push_back(f.x("timestep"));
  for (const Value& v : {f.y("H"), f.y("C"), f.dy("H"), f.dy("C")}) inputs.push_back(v);
  const std::vector<Value> d =
      f.ops("LSTMUnitGradient", inputs, f.forward_args(), {f.wants("H_prev"), f.wants("C_prev"), f.wants("gates")});
  return {d[0], d[1], d[2]};
}

OpBuilder<LstmArgs>& add_args(OpBuilder<LstmArgs>& builder) {
  return builder.arg("forget_bias", &LstmArgs::forget_bias, 0.0F, "added to the forget gate before its sigmoid")
      .arg("drop_states", &LstmArgs::drop_states, false, "rows past their length get zeros instead of keeping states")
      .arg("sequence_lengths", &LstmArgs::sequence_lengths, true, "whether there is an input seq_lengths")
      .arg("activated_gates", &LstmArgs::activated_gates, false,
           "the gradient reads the third output, the gates' values, in place of their sums");
}

REGISTER(lstm_unit) {
  auto builder = op<LstmArgs>("LSTMUnit");
  builder.doc(
      "One step of an LSTM from its gates' sums. Inputs are H_prev, C_prev, gates, seq_lengths, timestep, or without "
      "seq_lengths if sequence_lengths is 0.");
  return add_args(builder)
      .input("H_prev", "[..., N, D], read only in rows past their length")
      .input("C_prev", "[..., N, D]")
      .input("gates", "[..., N, 4D], sums before their activations, in the order i, f, o, g")
      .input("seq_lengths_or_timestep", "[N], the length of each row's sequence; of four inputs, the timestep")
      .types({DType::int32})
      .input("timestep", "[1], the index of this step")
      .types({DType::int32})
      .optional()
      .output("H", "like H_prev")
      .output("C", "like C_prev")
      .output("activated", "like gates: i, f, o, g; undefined in rows past their length")
      .optional()
      .in_place("gates", "activated")
      .saves_instead("gates", "activated_gates", "LSTMUnitGradient")
      .shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .derivatives({"H_prev", "C_prev", "gates"}, derivatives);
}

// Without seq_lengths every later input stands one place earlier, so a place names both things that may stand in it,
// and `uses` lists a place if either form reads it.
REGISTER(lstm_unit_gradient) {
  auto builder = op<LstmArgs>("LSTMUnitGradient");
  builder.doc(
      "Gradients of LSTMUnit. Inputs are H_prev, C_prev, gates, seq_lengths, timestep, H, C, dH, dC, or without "
      "seq_lengths if sequence_lengths is 0. A missing dH or dC counts as zeros.");
  return add_args(builder)
      .input("H_prev", "LSTMUnit's")
      .shape_only()
      .input("C_prev", "LSTMUnit's")
      .input("gates", "LSTMUnit's")
      .input("seq_lengths_or_timestep", "LSTMUnit's")
      .types({DType::int32})
      .input("timestep_or_H", "LSTMUnit's; H is not read")
      .types({DType::int32, DType::float32, DType::float64})
      .input("H_or_C", "LSTMUnit's outputs; H is not read")
      .input("C_or_dH", "LSTMUnit's output, or the gradient of H")
      .optional()
      .input("dH_or_dC", "a gradient of an output")
      .optional()
      .input("dC", "of nine inputs the gradient of C")
      .optional()
      .output("dH_prev", "like H_prev")
      .optional()
      .uses({"seq_lengths_or_timestep", "timestep_or_H", "dH_or_dC"})
      .output("dC_prev", "like C_prev")
      .optional()
      .uses({"gates", "seq_lengths_or_timestep", "timestep_or_H", "H_or_C", "C_or_dH", "dH_or_dC", "dC"})
      .output("dgates", "like gates")
      .optional()
      .uses({"C_prev", "gates", "seq_lengths_or_timestep", "timestep_or_H", "H_or_C", "C_or_dH", "dH_or_dC", "dC"})
      .in_place("gates", "dgates")
      .shape(infer_gradient)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(gradient<float>)
      .cpu_for<double>(gradient<double>)
      .no_gradient("second derivatives of LSTMUnit are not written");
}

}  // namespace
}  // namespace stepnet
