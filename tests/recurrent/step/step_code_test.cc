// What a step net computes in small instructions equals what its operators compute, for cells with fused units, chains
// and products; and reads as a person would expect.
#include "recurrent/step/step_code.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "core/gradcheck/examples.h"
#include "recurrent/step/program.h"
#include "tests/recurrent/programs.h"

namespace stepnet::testing::step_code_test {
namespace {

using Kind = StepCode::Kind;

// A value for what is there before the timestep, which is 0. The first row's sequence is over.
Tensor given(const Tensor& like, uint64_t seed) {
  if (like.dtype() == DType::int32) {
    std::vector<int32_t> lengths(static_cast<size_t>(like.size()), 1);
    lengths[0] = 0;
    return Tensor::of<int32_t>(like.shape(), lengths);
  }
  return normal<double>(like.shape(), seed);
}

void run(const BoundOp& op, const std::vector<const Tensor*>& in, std::vector<Tensor>& made) {
  std::vector<Tensor*> out;
  for (int o = 0; o < op.def.output_size(); ++o) out.push_back(op.def.output(o).empty() ? nullptr : &made[o]);
  RunContext context;
  run_op(op, in, out, context);
}

void add_to(Tensor& made, const Tensor& before) {
  for (int64_t i = 0; i < made.size(); ++i) made.data<double>()[i] += before.data<double>()[i];
}

// The operators of a timestep, in order, on slots.
class BySlots {
 public:
  explicit BySlots(const StepIr& ir) : ir_(ir), now_(ir.slots.size()) {}
  void call(const BoundOp& op, const std::vector<int>& in, const std::vector<int>& out, uint32_t accumulate) {
    std::vector<Tensor> copies, made(out.size());
    std::vector<const Tensor*> read;
    for (const int s : in) copies.push_back(s < 0 ? Tensor() : held(s).clone());
    for (size_t i = 0; i < in.size(); ++i) read.push_back(in[i] < 0 ? nullptr : &copies[i]);
    run(op, read, made);
    for (size_t o = 0; o < out.size(); ++o) {
      if (out[o] < 0) continue;
      if ((accumulate >> o & 1) != 0) add_to(made[o], held(out[o]));
      now_[out[o]] = made[o];
    }
  }
  const Tensor& held(int slot) {
    if (!now_[slot].defined()) now_[slot] = given(ir_.slots[slot]->tensor, 100 + static_cast<uint64_t>(slot));
    return now_[slot];
  }

 private:
  const StepIr& ir_;
  std::vector<Tensor> now_;
};

std::vector<Tensor> run_code(const StepCode& code, BySlots& given) {
  std::vector<Tensor> values(code.values.size());
  for (size_t v = 0; v < values.size(); ++v)
    if (!code.values[v].written) values[v] = given.held(code.values[v].slot);
  for (const StepCode::Kernel& kernel : code.kernels)
    for (const StepCode::Instruction& i : kernel.code) {
      std::vector<const Tensor*> in;
      for (const int v : i.in) in.push_back(v < 0 ? nullptr : &values[v]);
      std::vector<Tensor> made(i.out.size());
      run(i.op, in, made);
      for (size_t o = 0; o < made.size(); ++o) {
        if (i.out[o] < 0) continue;
        if (i.kind == Kind::view) made[o].set_view(code.values[i.out[o]].type.shape, made[o].offset());
        if (i.added_to[o] >= 0) add_to(made[o], values[i.added_to[o]]);
        values[i.out[o]] = made[o];
      }
    }
  return values;
}

// Compares what each slot holds in the end.
void expect_equal(const StepIr& ir) {
  BySlots slots(ir), inputs(ir);
  const StepCode code = step_code(ir);
  const std::vector<Tensor> values = run_code(code, inputs);
  for (const auto& op : ir.ops) {
    for (size_t i = 0; i < op->part_ops.size(); ++i)
      slots.call(op->part_ops[i], op->parts[i].in, op->parts[i].out, op->parts[i].accumulate);
    if (op->part_ops.empty()) slots.call(op->op, op->in_slots, op->out_slots, op->accumulate);
  }
  std::map<int, size_t> last;
  for (size_t v = 0; v < values.size(); ++v)
    if (code.values[v].written && code.values[v].slot >= 0) last[code.values[v].slot] = v;
  EXPECT_FALSE(last.empty());
  for (const auto& [slot, v] : last)
    EXPECT_EQ(difference(values[v], slots.held(slot), 1e-12), "") << to_text(code) << ir.slots[slot]->name;
}

Feeds feeds() {
  return {{"X", normal<double>({6, 2, 9}, 1)},
          {"h0", normal<double>({2, 9}, 2)},
          {"c0", normal<double>({2, 9}, 3)},
          {"W", normal<double>({36, 9}, 4)},
          {"U", normal<double>({36, 9}, 5)},
          {"b", normal<double>({36}, 6)},
          {"V", normal<double>({9, 9}, 7)},
          {"v", normal<double>({9}, 8)},
          {"G", normal<double>({27, 9}, 9)},
          {"g", normal<double>({27}, 10)},
          {"lengths", Tensor::of<int32_t>({2}, {6, 3})}};
}

const CellState kH = {"h_prev", "h", "h0", "h_all", ""}, kC = {"c_prev", "c", "c0", "c_all", ""};

Cell lstm(const std::string& unit) {
  return {{"xw = FC(x, W, b) axis=2", "hu = FC(h_prev, U, b) axis=2", "gates = Sum(xw, hu)", "h, c = " + unit},
          {kH, kC}};
}

struct Programs {
  Workspace workspace;
  const RecurrentScratch* kept;
  explicit Programs(const Cell& cell) : kept(&run_programs(workspace, cell, feeds(), "h_all", {"X", "h0"})) {}
};

void expect_equal(Cell cell) {
  for (const bool fuses : {true, false}) {
    if (!fuses) cell.disabled_passes.emplace_back("fuse");
    const Programs programs(cell);
    expect_equal(programs.kept->forward->ir());
    expect_equal(programs.kept->backward->ir());
  }
}

TEST(StepCode, OfElementwiseCellsIsWhatTheyCompute) {
  expect_equal({{"p = FC(x, V, v) axis=2", "r = FC(h_prev, V, v) axis=2", "s = Sum(p, r)", "t = Tanh(s)",
                 "u = Sigmoid(s)", "m = Mul(t, u)", "h = Add(m, v) broadcast=1"},
                {kH}});
  expect_equal({{"a = FC(x, G, g) axis=2", "d, e, f = Split(a) axis=2", "s = Sum(d, h_prev)", "t = Mul(s, e)",
                 "t = Tanh(t)", "h = Mul(t, f)"},
                {kH}});
}

TEST(StepCode, OfFusedUnitsIsWhatTheyCompute) {
  Cell with_lengths = lstm("LSTMUnit(h_prev, c_prev, gates, lengths, timestep)");
  with_lengths.disabled_passes = {"activate"};  // what is activated has no values where a sequence is over
  expect_equal(with_lengths);
  Cell biased = lstm("LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0");
  biased.step_net = net_of_lines(biased.step);
  *biased.step_net.mutable_op(3)->add_arg() = make_arg("forget_bias", 1.5F);
  expect_equal(biased);
  expect_equal(lstm("LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0"));
  expect_equal({{"xw = FC(x, G, g) axis=2", "hu = FC(h_prev, G, g) axis=2", "gates = Sum(xw, hu)",
                 "h = GRUUnit(h_prev, gates, lengths, timestep) drop_states=1"},
                {kH}});
}

TEST(StepCode, OfNormalizedRowsIsWhatTheyCompute) {
  expect_equal(
      {{"r = FC(h_prev, V, v) axis=2", "s = Sum(x, r)", "n, mean, deviation = LayerNorm(s) axis=2", "h = Tanh(n)"},
       {kH}});
  expect_equal({{"r = FC(h_prev, V, v) axis=2", "w = Softmax(r) axis=2", "s = Mul(w, x)", "h = Tanh(s)"}, {kH}});
}

std::set<Kind> kinds(const StepCode& code) {
  std::set<Kind> found;
  for (const StepCode::Kernel& kernel : code.kernels) found.insert(kernel.kind);
  return found;
}

TEST(StepCode, LeavesNothingToOperatorsThatItCannotTakeApart) {
  const Programs normalized({{"r = FC(h_prev, V, v) axis=2", "n, mean, deviation = LayerNorm(r) axis=2",
                              "w = Softmax(n) axis=2", "h = Mul(w, x)"},
                             {kH}});
  for (const StepProgram* program : {normalized.kept->forward.get(), normalized.kept->backward.get()})
    EXPECT_EQ(kinds(step_code(program->ir())).count(Kind::whole), 0) << to_text(step_code(program->ir()));
}

// The lines of kernels, without those of their instructions.
std::string kernels(const StepProgram& program) {
  std::string kernels, line;
  for (std::istringstream text(to_text(step_code(program.ir()))); std::getline(text, line);)
    if (!line.starts_with("    ")) kernels += line + "\n";
  return kernels;
}

TEST(StepCode, OfAnLstmIsProductsWhoseWeightsStayAndOneLoop) {
  const Programs programs(lstm("LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0"));
  EXPECT_EQ(kernels(*programs.kept->forward),
            "step code of \"step\"\n"
            "  before  product     gates = FC(x, W, b); the weights stay\n"
            "  step    product     gates += FC(h_prev, U, b); the weights stay\n"
            "  step    elementwise h, c, gates from c_prev, gates, h_prev\n");
  EXPECT_EQ(kernels(*programs.kept->backward),
            "step code of \"rnn/backward_step\"\n"
            "  step    elementwise h_prev_grad, c_prev_grad, gates from c_prev, h_grad, c_grad, gates, c, h_prev\n"
            "  step    product     -, -, h_prev_grad += FCGradient(h_prev, U, gates); the weights stay\n"
            "  after   product     -, -, x_grad = FCGradient(x, W, gates); the weights stay\n");
}

}  // namespace
}  // namespace stepnet::testing::step_code_test
