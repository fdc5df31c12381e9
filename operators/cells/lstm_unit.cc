// LSTMUnit: one step of a long short-term memory from its gates' sums, with rows of D states and 4D gates i, f, o, g:
//   i = s(x_i), f = s(x_f + forget_bias), o = s(x_o), g = tanh(x_g), c = f c_prev + i g, h = o tanh(c).
// A row whose sequence is over (timestep >= seq_lengths[n]) keeps its states, or with drop_states gets zeros.
//
// With e = dc + dh o (1 - tanh(c)^2):
//   dc_prev = e f, dx_i = e g i (1 - i), dx_f = e c_prev f (1 - f), dx_o = dh tanh(c) o (1 - o), dx_g = e i (1 - g^2),
// and dh_prev = 0, since h_prev acts through the gates alone. In a row that is over, dgates = 0 and the states'
// gradients pass through, or are zeros with drop_states. Backward reads C_prev, gates and C; a missing dH or dC is
// zero. Its derivatives follow from these formulas.
//
// With activated_gates the third output has i, f, o and g, and the gradient reads them as its gates, so that it need
// not work them out again. A step net gets this by itself (recurrent/form/activated_gates.cc). From these values,
// with from_activated, the operator gives the same bits of H and C once more: a network need not keep its states
// (recurrent/network/rebuild.h). Not of half types, whose gates are rounded when they are kept.

#include "operators/cells/lstm_unit.h"

#include "core/operator/flops.h"
#include "operators/cells/lstm_gates.h"
#include "operators/cells/unit_body.h"

namespace stepnet::cpu_lstm_unit {
namespace {

void check_states(const LstmArgs& a, const ShapeCall& c) {
  check_unit_states(a, c, 1, "C_prev", 4, "four");
  require_input(c, 0, "H_prev");
  check_alike(c, 0, "H_prev", 1, "C_prev");
}

void infer(const LstmArgs& a, ShapeCall& c) {
  check_unit_inputs(a, c, 5);
  check_states(a, c);
  require(!c.wants(2) || a.activated_gates, "it has three outputs, but activated_gates is 0");
  require(!a.from_activated || !a.activated_gates, "activated_gates asks for what from_activated says is given");
  c.set_like(0, 0);
  c.set_like(1, 1);
  c.set_like(2, 2);
}

void infer_gradient(const LstmArgs& a, ShapeCall& call) {
  const LstmGradientInputs in(a);
  require(call.has(in.c) && call.inputs() <= in.dc + 1, "with sequence_lengths: {} it takes {} inputs, but has {}",
          int{a.sequence_lengths}, in.dc + 1, call.inputs());
  check_states(a, call);
  check_alike(call, in.c, "C", 1, "C_prev");
  check_alike(call, in.dh, "dH", 1, "C_prev");
  check_alike(call, in.dc, "dC", 1, "C_prev");
  call.set_like(0, 0);
  call.set_like(1, 1);
  call.set_like(2, 2);
}

// As measured on AVX-512, forward and backward alike; the first is what a row costs whatever its size.
template <class T>
double nanoseconds_per_row(int64_t d) {
  return 10 + (sizeof(T) == 8 ? 5.0 : 1.8) * static_cast<double>(d);
}

template <class T>
void states_of_row(const LstmArgs& a, const LstmRow<T>& row) {
  if (a.from_activated) return lstm_kernels().states(LstmStatesRow<T>{row.d, row.c_prev, row.gates, row.h, row.c});
  lstm_kernels().forward(row);
}

template <class T>
void forward(const LstmArgs& a, Call& call) {
  const UnitRows rows(a, call, 1);
  const T *h_prev = call.in_span<T>(0).data(), *c_prev = call.in_span<T>(1).data(), *gates = call.in_span<T>(2).data();
  T *h = call.out_span<T>(0).data(), *c = call.out_span<T>(1).data(), *active = call.out_span<T>(2).data();
  using Number = typename ComputedRows<T>::Number;
  rows.each(
      nanoseconds_per_row<T>(rows.d),
      [&, d = rows.d](int64_t n) {
        ComputedRows<T> row(n, 11 * d);
        states_of_row(a, LstmRow<Number>{d, Number(a.forget_bias), row.read(c_prev, d), row.read(gates, 4 * d),
                                         row.write(h, d), row.write(c, d), row.write(active, 4 * d)});
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, h_prev + n * d, row_of(h, n, d));
        hold_row(a.drop_states, d, c_prev + n * d, row_of(c, n, d));
      });
}

// Where a missing or unwanted tensor's first element would be stands null. dgates may be the gates' own storage.
template <class T>
struct GradientTensors {
  const T *c_prev, *gates, *c, *dh, *dc;
  T *dh_prev, *dc_prev, *dgates;

  GradientTensors(const LstmGradientInputs& in, Call& call)
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
  const GradientTensors<T> t(LstmGradientInputs(a), call);
  const UnitRows rows(a, call, 1);
  using Number = typename ComputedRows<T>::Number;
  const LstmKernels& kernels = lstm_kernels();
  const auto gradient_of_row = [&, d = rows.d](int64_t n) {
    ComputedRows<T> row(n, 13 * d);
    kernels.gradient(LstmGradientRow<Number>{d, Number(a.forget_bias), row.read(t.c_prev, d), row.read(t.gates, 4 * d),
                                             row.read(t.c, d), row.read(t.dh, d), row.read(t.dc, d),
                                             row.write(t.dc_prev, d), row.write(t.dgates, 4 * d), a.activated_gates});
  };
  rows.each(
      nanoseconds_per_row<T>(rows.d),
      [&, d = rows.d](int64_t n) {
        if (t.dc_prev || t.dgates) gradient_of_row(n);
        hold_row<T>(true, d, nullptr, row_of(t.dh_prev, n, d));
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, row_of(t.dh, n, d), row_of(t.dh_prev, n, d));
        hold_row(a.drop_states, d, row_of(t.dc, n, d), row_of(t.dc_prev, n, d));
        hold_row<T>(true, 4 * d, nullptr, row_of(t.dgates, n, 4 * d));
      });
}

double flops(const LstmArgs& a, const ShapeCall& c) { return (a.from_activated ? 5 : 16) * input_size(c, 1); }

// Of the gates' activations, of what comes through C, of dC_prev and of dgates.
double gradient_flops(const LstmArgs& a, const ShapeCall& c) {
  return input_size(c, 1) * (23 + (a.activated_gates ? 0 : 11));
}

int leading_rows(const LstmArgs& a, const ShapeCall& c) { return unit_leading_rows(a, c, 1); }

std::vector<Gradient> derivatives(Formula& f) {
  require(!f.has_dy("activated"), "there is no derivative of the output \"activated\"");
  require(!f.args<LstmArgs>().from_activated, "with from_activated there is no derivative");
  const bool reads_activated = f.args<LstmArgs>().activated_gates;
  require(!reads_activated || (f.outputs() > 2 && !f.def().output(2).empty()),
          "with activated_gates its gradient reads the output \"activated\", which is not there");
  const Value gates = reads_activated ? f.y("activated") : f.x("gates");
  std::vector<Value> inputs = {f.x("H_prev"), f.x("C_prev"), gates, f.x("seq_lengths_or_timestep")};
  if (f.args<LstmArgs>().sequence_lengths) inputs.push_back(f.x("timestep"));
  for (const Value& v : {f.y("H"), f.y("C"), f.dy("H"), f.dy("C")}) inputs.push_back(v);
  const std::vector<Value> d =
      f.ops("LSTMUnitGradient", inputs, f.forward_args(), {f.wants("H_prev"), f.wants("C_prev"), f.wants("gates")});
  const bool lengths = f.args<LstmArgs>().sequence_lengths, slopes = f.wants("C_prev") || f.wants("gates");
  std::vector<bool> reads = {false, f.wants("gates"), slopes, lengths};
  if (lengths) reads.push_back(true);
  reads.insert(reads.end(), {false, slopes, true, true});  // H is there because the public format has it
  f.set_reads(std::move(reads));
  return {d[0], d[1], d[2]};
}

// The gates' values i, f, o and g.
std::vector<Value> gate_values(const UnitBody& unit, const LstmArgs& a, Value sums, Value state) {
  std::vector<Value> v = unit.gates(sums, state, {true, true, true, true});
  if (a.activated_gates) return v;
  Formula& f = unit.f;
  if (a.forget_bias != 0) v[1] = composing::add(f, v[1], composing::fill(f, state, a.forget_bias));
  for (const int gate : {0, 1, 2}) v[gate] = composing::map(f, "Sigmoid", v[gate]);
  v[3] = composing::map(f, "Tanh", v[3]);
  return v;
}

std::vector<Value> body(Formula& f) {
  using composing::add, composing::map, composing::mul, composing::reshaped;
  LstmArgs a = f.args<LstmArgs>();
  a.activated_gates = a.from_activated;  // else the gates are sums; the gradient alone reads them as values
  const UnitBody unit(f, a, 3);
  const Value h_prev = unit.rows(0), c_prev = unit.rows(1);
  const std::vector<Value> v = gate_values(unit, a, unit.rows(2), c_prev);
  const Value c = add(f, mul(f, v[1], c_prev), mul(f, v[0], v[3])), h = mul(f, v[2], map(f, "Tanh", c));
  return {reshaped(f, unit.or_held(h, h_prev), f.x_at(0)), reshaped(f, unit.or_held(c, c_prev), f.x_at(1)),
          reshaped(f, unit.join(v), f.x_at(2))};
}

// C counts as an input of its own here; that it is made of the others is LSTMUnit's derivative to say.
std::vector<Value> gradient_body(Formula& f) {
  using composing::add_given, composing::like_first, composing::map, composing::mul, composing::reshaped,
      composing::zeros;
  const auto& a = f.args<LstmArgs>();
  const LstmGradientInputs in(a);
  const UnitBody unit(f, a, 3);
  const Value c_prev = unit.rows(1), dh = unit.rows(in.dh), dc = unit.rows(in.dc), none = zeros(f, c_prev);
  const std::vector<Value> v = gate_values(unit, a, unit.rows(2), c_prev);
  const Value i = v[0], forget = v[1], o = v[2], g = v[3], t = map(f, "Tanh", unit.rows(in.c));
  const auto slope = [&](const char* type, Value y, Value dy) { return like_first(f, type, y, dy); };
  const Value through_h = dh.defined() ? slope("TanhGradient", t, mul(f, dh, o)) : Value();
  const Value e = dc.defined() || dh.defined() ? add_given(f, dc, through_h) : none;
  const Value of_output = dh.defined() ? slope("SigmoidGradient", o, mul(f, dh, t)) : none;
  const Value of_gates =
      unit.join({slope("SigmoidGradient", i, mul(f, e, g)), slope("SigmoidGradient", forget, mul(f, e, c_prev)),
                 of_output, slope("TanhGradient", g, mul(f, e, i))});
  return {reshaped(f, unit.or_held(none, dh), f.x_at(0)), reshaped(f, unit.or_held(mul(f, e, forget), dc), f.x_at(1)),
          reshaped(f, unit.or_held(of_gates, {}), f.x_at(2))};
}

OpBuilder<LstmArgs>& add_args(OpBuilder<LstmArgs>& builder) {
  builder.arg("forget_bias", &LstmArgs::forget_bias, 0.0F, "added to the forget gate before its sigmoid");
  return declare_unit_args(builder)
      .arg("activated_gates", &LstmArgs::activated_gates, false,
           "the gradient reads the third output, the gates' values, in place of their sums")
      .own_args({"activated_gates"});
}

void add_example(OpBuilder<LstmArgs>& builder, const std::string& args, bool lengths, const std::string& sizes) {
  const std::string net = "op { type: 'LSTMUnit' input: 'H_prev' input: 'C_prev' input: 'gates' " +
                          std::string(lengths ? "input: 'seq_lengths' " : "") +
                          "input: 'timestep' output: 'H' output: 'C' " + args + " }";
  std::vector<std::string> feeds = {"H_prev=" + sizes + ",2", "C_prev=" + sizes + ",2", "gates=" + sizes + ",8",
                                    "timestep=int32,1:1"};
  if (lengths) feeds.emplace_back("seq_lengths=int32,3:2,1,5");
  builder.example_net(net, feeds, {"H", "C"});
}

void add_examples(OpBuilder<LstmArgs>& builder) {
  const std::string bias = "arg { name: 'forget_bias' f: 1.5 } ", drop = "arg { name: 'drop_states' i: 1 } ";
  const std::string no_lengths = "arg { name: 'sequence_lengths' i: 0 } ";
  add_example(builder, bias, true, "1,3");
  add_example(builder, drop, true, "3");
  add_example(builder, no_lengths + bias, false, "1,2");
  add_example(builder, no_lengths, false, "1,0");
}

REGISTER(lstm_unit) {
  auto builder = op<LstmArgs>("LSTMUnit");
  builder.doc(
      "One step of an LSTM from its gates' sums. Inputs are H_prev, C_prev, gates, seq_lengths, timestep, or without "
      "seq_lengths if sequence_lengths is 0.");
  add_examples(builder);
  return add_args(builder)
      .arg("from_activated", &LstmArgs::from_activated, false,
           "the gates are their values i, f, o and g, as \"activated\" has them; there is no derivative then")
      .own_args({"from_activated"})
      .input("H_prev", "[..., N, D], read only in rows past their length")
      .input("C_prev", "[..., N, D]")
      .input("gates", "[..., N, 4D], sums before their activations, in the order i, f, o, g")
      .input("seq_lengths_or_timestep", "[N], the length of each row's sequence; of four inputs, the timestep")
      .types({DType::int32})
      .input("timestep", "[1], the index of this step")
      .types({DType::int32})
      .optional()
      .output("H", "like H_prev; may be \"\"")
      .uses({"H_prev", "C_prev", "gates", "seq_lengths_or_timestep", "timestep"})
      .output("C", "like C_prev; may be \"\"")
      .uses({"C_prev", "gates", "seq_lengths_or_timestep", "timestep"})
      .output("activated", "like gates: i, f, o, g; undefined in rows past their length")
      .optional()
      .in_place("gates", "activated")
      .saves_instead("gates", "activated_gates", "LSTMUnitGradient")
      .shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .cpu_for<float16>(forward<float16>)
      .cpu_for<bfloat16>(forward<bfloat16>)
      .derivatives({"H_prev", "C_prev", "gates"}, derivatives)
      .composed(body);
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
      .types({DType::int32, DType::float32, DType::float64, DType::float16, DType::bfloat16})
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
      .flops(gradient_flops)
      .rowwise(leading_rows)
      .cpu_for<float>(gradient<float>)
      .cpu_for<double>(gradient<double>)
      .cpu_for<float16>(gradient<float16>)
      .cpu_for<bfloat16>(gradient<bfloat16>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_lstm_unit
