// The source that is generated for a kernel of timesteps, compiled for the imitated device and run there as it would be
// on a real one: by all threads of all blocks, which exchange values within warps, share memory, and wait for each
// other. Beside its results it is looked at what threads touch, so that what is missing in the source is seen in any
// order.
#include <array>
#include <cstdlib>

#include "core/gradcheck/examples.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/run_context.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"
#include "tests/gpu/emulated/loop_runs.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::loop_source_test {
namespace {

// Kernels by source, while one is alive.
class BySource {
 public:
  explicit BySource(unsigned seed, std::function<void(std::string&)> change = {}) {
    emulated::loop_runs() = {.by_source = true, .seed = seed, .change = std::move(change)};
  }
  ~BySource() { emulated::loop_runs() = {}; }
  BySource(const BySource&) = delete;
  BySource& operator=(const BySource&) = delete;
};

std::string fc(const std::string& in, const std::string& weights, const std::string& out) {
  return "op { type: 'FC' arg { name: 'axis' i: 2 } input: '" + in + "' input: '" + weights + "' input: 'b' output: '" +
         out + "' } ";
}
std::string two(const std::string& type, const std::string& a, const std::string& b, const std::string& out) {
  return "op { type: '" + type + "' input: '" + a + "' input: '" + b + "' output: '" + out + "' } ";
}
std::string tanh(const std::string& in, const std::string& out) {
  return "op { type: 'Tanh' input: '" + in + "' output: '" + out + "' } ";
}

struct Cell {
  std::string name;
  std::string step;  // h of x_t and h_prev
  int64_t gates = 1;
  bool has_c = false;
  DType dtype = DType::float32;
  int64_t rows = 3, units = 8;
  double tolerance = 1e-5;
  int64_t heads = 0;  // in place of the sequences, with `rows` each; 0: there are none
  friend void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name; }
};

// Nothing is done before the product.
const std::string& simple() {
  static const std::string step = fc("h_prev", "W", "m") + two("Mul", "x_t", "m", "s") + tanh("s", "h");
  return step;
}
// A product of what a product has given: blocks wait twice in a timestep.
const std::string& two_products() {
  static const std::string step = fc("h_prev", "W", "m") + two("Add", "x_t", "m", "s") + tanh("s", "a") +
                                  fc("a", "V", "n") + two("Mul", "n", "h_prev", "q") + two("Sub", "q", "a", "h");
  return step;
}
// What is found of whole rows, which all blocks make: normalised, and in shares of a sum.
const std::string& rows() {
  static const std::string step =
      fc("h_prev", "W", "m") + two("Add", "x_t", "m", "s") +
      "op { type: 'LayerNorm' input: 's' output: 'n' output: 'mean' output: 'std' arg { name: 'axis' i: 2 } } op { "
      "type: 'Softmax' input: 'n' output: 'p' arg { name: 'axis' i: 2 } } op { type: 'ReduceMean' input: 's' output: "
      "'r' arg { name: 'axes' ints: 2 } arg { name: 'keepdims' i: 1 } } " +
      two("Sub", "n", "r", "q") + two("Mul", "p", "q", "o") + two("Add", "o", "n", "a") + tanh("a", "h");
  return step;
}
// With weights of their own for each head.
const std::string& of_heads() {
  static const std::string step = two("BatchMatMul", "h_prev", "W", "m") + two("Add", "x_t", "m", "s") + tanh("s", "h");
  return step;
}
std::string unit(const std::string& type, bool lengths) {
  const bool lstm = type == "LSTMUnit";
  return fc("h_prev", "W", "m") + two("Add", "x_t", "m", "s") + "op { type: '" + type + "' input: 'h_prev' " +
         (lstm ? "input: 'c_prev' " : "") + "input: 's' " + (lengths ? "input: 'len' " : "") +
         "input: 'timestep' output: 'h' " + (lstm ? "output: 'c' " : "") +
         "arg { name: 'sequence_lengths' i: " + (lengths ? "1" : "0") + " } } ";
}

const std::vector<Cell>& cells() {
  static const std::vector<Cell> all = {
      {"simple", simple(), 1, false, DType::float32, 5, 24},
      {"lstm_with_lengths", unit("LSTMUnit", true), 4, true, DType::float32, 20, 40},
      {"gru_bfloat16", unit("GRUUnit", false), 3, false, DType::bfloat16, 20, 40, 6e-2},
      {"rows_bfloat16", rows(), 1, false, DType::bfloat16, 3, 40, 6e-2},
      {"two_products_float16", two_products(), 1, false, DType::float16, 7, 24, 8e-3},
      {"rows", rows(), 1, false, DType::float32, 9, 40, 3e-5},
      {"heads", of_heads(), 1, false, DType::float32, 20, 48, 1e-5, 2},
      {"heads_bfloat16", of_heads(), 1, false, DType::bfloat16, 33, 40, 6e-2, 2},
      {"small_heads", of_heads(), 1, false, DType::float16, 5, 8, 8e-3, 13},
      {"many_rows", simple(), 1, false, DType::float32, 70, 24},
      {"many_rows_bfloat16", simple(), 1, false, DType::bfloat16, 150, 40, 6e-2},
      {"lstm_of_several_units_of_a_thread", unit("LSTMUnit", false), 4, true, DType::bfloat16, 33, 64, 6e-2}};
  return all;
}

using Values = std::map<std::string, Tensor>;

// Forward and backward.
Values run(const Cell& cell, bool as_kernel = true) {
  constexpr int64_t kSteps = 6;
  std::string op = "device_option { device_type: 1 } op { type: 'RecurrentNetwork' input: 'x' input: 'h0' ";
  if (cell.has_c) op += "input: 'c0' ";
  op += "output: 'h_all' output: 'h_last' ";
  if (!as_kernel) op += "arg { name: 'disabled_passes' strings: 'persistent' } ";
  op +=
      "[stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' initial: 'h0' "
      "all: 'h_all' last: 'h_last' } ";
  if (cell.has_c) op += "state { input: 'c_prev' output: 'c' initial: 'c0' } ";
  NetDef net = parse_net_text(op + "step_net { name: 'cell' " + cell.step + "} } }", "a net");
  expand_recurrent(net);
  const bool has_v = cell.step.find("'V'") != std::string::npos;
  GradientRequest request{.targets = {{"h_all", "dh_all"}, {"h_last", "dh_last"}}, .wanted = {"x", "h0"}, .stop = {}};
  if (cell.heads == 0) request.wanted.insert({"W", "b"});
  if (has_v) request.wanted.insert("V");
  const GradientResult result = add_gradient_operators(net, request);
  Workspace blobs;
  unsigned seed = 0;
  const auto feed = [&](const std::string& name, const Shape& shape, double size) {
    blobs.tensor(name) = on_gpu(in_type(cell.dtype, normal<float>(shape, ++seed, 0, size)));
  };
  const int64_t width = cell.gates * cell.units;
  const double weight = 1 / std::sqrt(static_cast<double>(cell.units));
  const auto of_rows = [&](int64_t first, int64_t columns) {
    return cell.heads == 0 ? Shape{first, cell.rows, columns} : Shape{first, cell.heads, cell.rows, columns};
  };
  feed("x", of_rows(kSteps, width), 0.7);
  feed("h0", of_rows(1, cell.units), 0.5);
  feed("c0", {1, cell.rows, cell.units}, 0.5);
  feed("W", cell.heads == 0 ? Shape{width, cell.units} : Shape{1, cell.heads, cell.units, width}, weight);
  feed("b", {width}, 0.3);
  feed("V", {cell.units, cell.units}, weight);
  feed("dh_all", of_rows(kSteps, cell.units), 0.5);
  feed("dh_last", of_rows(1, cell.units), 0.5);
  std::vector<int32_t> lengths;
  for (int64_t r = 0; r < cell.rows; ++r) lengths.push_back(static_cast<int32_t>(r * 5 % (kSteps + 2)));
  blobs.tensor("len") = on_gpu(Tensor::of<int32_t>({cell.rows}, lengths));
  Net made(net, blobs);
  RunContext context;
  made.run(context);
  Values all;
  const auto fetch = [&](const std::string& name) {
    all[name] = in_type(DType::float64, copied_to(blobs.fetch(name), {}));
  };
  fetch("h_all");
  fetch("h_last");
  for (const std::string& name : request.wanted) fetch(result.gradients.at(name).dense);
  return all;
}

std::string difference(const Values& found, const Values& expected, double tolerance) {
  for (const auto& [name, value] : expected)
    if (std::string text = compare(found.at(name), value, tolerance, ErrorScale::tensor); !text.empty())
      return name + ": " + text;
  return "";
}

class LoopSource : public GpuTest {
 protected:
  // What a loop leaves behind is looked at by the next one.
  void SetUp() override {
    GpuTest::SetUp();
    if (std::getenv("STEPNET_EMULATED_LOOPS")) GTEST_SKIP() << "all loops are run by their source";
  }
};
class LoopSourceOf : public LoopSource, public ::testing::WithParamInterface<Cell> {};

// In all orders with the same bits.
TEST_P(LoopSourceOf, GivesWhatThePlanSays) {
  const Cell& cell = GetParam();
  const Values apart = run(cell, false), planned = run(cell);
  Values first;
  for (unsigned seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    const BySource by_source(seed);
    const Values found = run(cell);
    ASSERT_EQ(emulated::loop_runs().launches, 2);
    ASSERT_EQ(difference(found, apart, cell.tolerance), "");
    ASSERT_EQ(difference(found, planned, cell.tolerance), "");
    if (first.empty()) first = found;
    ASSERT_EQ(difference(found, first, 0), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, LoopSourceOf, ::testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.name; });

// What a test takes out of the text, and puts in its place.
struct Change {
  const char *name, *cell, *from, *to;
  const char* error = nullptr;  // a part of it; none where results may be wrong only
  friend void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }
};
const std::vector<Change>& changes() {
  constexpr const char *kRace = "without a wait between them", *kShared = "of shared memory";
  constexpr const char *kSimple = "simple", *kTwo = "two_products_float16", *kLstm = "lstm_with_lengths",
                       *kGru = "gru_bfloat16", *kRows = "rows";
  static const std::vector<Change> all = {
      {"no_wait", kSimple, "if (t > 0) wait_for(arrived, ", "__syncthreads(), (void)(", kRace},
      {"no_second_wait", kTwo, "    wait_for(arrived, ", "    __syncthreads(), (void)(", kRace},
      {"a_wait_for_the_turn_before", kSimple, "wait_for(arrived, turn", "wait_for(arrived, (turn - 1)", kRace},
      {"a_wait_for_one_less", kSimple, "(arrived) < times", "(arrived) < times - 1", kRace},
      {"a_wait_for_too_many", kSimple, "(arrived) < times", "(arrived) < times + 1", "threads wait for ever"},
      {"an_arrival_before_others", kSimple, "arrive(unsigned* arrived) {\n  __syncthreads();",
       "arrive(unsigned* arrived) {", kRace},
      {"others_do_not_wait", kSimple, "< times) {}\n  __syncthreads();", "< times) {}\n", kRace},
      {"sums_before_they_are_there", kLstm, "share);\n    __syncthreads();", "share);", kShared},
      {"weights_before_they_are_there", kSimple, "  __syncthreads();\n  for (long long t = 0", "  for (long long t = 0",
       kShared},
      {"tiles_of_sums_before_they_are_there", kGru, "share);\n    __syncthreads();", "share);", kShared},
      {"columns_of_another_unit", kGru, "n / kOwn * kGroupStride + u", "n / kOwn * kOwn + u"},
      {"half_of_a_sum", kLstm, "if constexpr (kHalf > 1)", "if constexpr (kHalf > 4)"},
      {"rows_behind_the_last", kSimple, " && row + i < rows", "", kShared},
      {"another_tile", kGru, "* kTiles + column) * 32 + lane]", "* kTiles) * 32 + lane]"},
      {"another_part_of_the_row", kGru, "k = i / 32 / kTiles * 32 + lane % 4 * 8",
       "k = i / 32 / kTiles * 32 + lane % 4 * 4"},
      {"rows_of_the_other_half", kGru, "x[i][0].x, x[i][1].x, x[i][0].y", "x[i][1].x, x[i][0].x, x[i][0].y"},
      {"numbers_of_rows_before_they_are_there", kRows, "own % Lines::kParts);\n  }\n  __syncthreads();",
       "own % Lines::kParts);\n  }\n", kShared},
      {"a_lane_for_the_row", kRows, "mean = sum_of_lanes(sum) / kSize", "mean = sum / kSize"},
      {"no_wait_for_rows", kRows, "    wait_for(arrived, ", "    __syncthreads(), (void)(", kRace},
      {"numbers_of_another_row", kRows, "from = x + row * kSize", "from = x"},
      {"columns_of_one_block", kRows, "k < kSize; k += 32 * V", "k < kOwn; k += 32 * V"},
      {"another_timestep", kTwo, "((t >> 1) - 1) * p.stride", "(t >> 1) * p.stride"},
      {"rows_that_begin_elsewhere", kLstm, "*(const Several<V>*)(first + ", "*(const Several<V>*)(first + 1 + ",
       "an address that is not aligned"},
      {"no_wait_of_heads", "heads", "wait_for(arrived, turn", "wait_for(arrived, 0 * turn", kRace},
      {"the_counter_of_another_group", "heads", "p.arrived + 32 * (blockIdx.x / kUnitBlocks)",
       "p.arrived + 32 * ((blockIdx.x + 1) / kUnitBlocks)"},
      {"weights_of_another_head", "heads", "w + (share.h0 + head) * head_stride", "w + head * head_stride"},
      {"states_of_another_head", "heads_bfloat16",
       "      const Element* const first = a + (share.h0 + head) * head_stride",
       "      const Element* const first = a + head * head_stride"},
      {"rows_of_another_group", "many_rows", "+ share.r0 * lda", ""},
      {"sums_of_another_head", "small_heads", "const int row = ((part * kHeads + head)",
       "const int row = ((part * kHeads)"},
      {"memory_of_nobody", kTwo, "(t >> 1) * p.stride", "(t << 50) * p.stride", "what is no memory of the device"},
  };
  return all;
}

class LoopSourceChange : public LoopSource, public ::testing::WithParamInterface<Change> {};

TEST_P(LoopSourceChange, IsSeen) {
  const Change& change = GetParam();
  const Cell& cell = *std::ranges::find(cells(), change.cell, &Cell::name);
  const Values planned = run(cell);
  bool changed = false;
  for (unsigned seed = 0; seed < (change.error ? 5 : 1); ++seed) {
    SCOPED_TRACE(seed);
    const BySource by_source(seed, [&](std::string& body) {
      const size_t at = body.find(change.from);
      if (at == body.npos) return;
      body.replace(at, std::string_view(change.from).size(), change.to);
      changed = true;
    });
    std::string wrong;
    try {
      wrong = difference(run(cell), planned, cell.tolerance);
    } catch (const Error& e) {
      wrong = e.what();
    }
    if (change.error)
      EXPECT_NE(wrong.find(change.error), wrong.npos) << wrong;
    else
      EXPECT_NE(wrong, "");
  }
  EXPECT_TRUE(changed);
}

INSTANTIATE_TEST_SUITE_P(Changes, LoopSourceChange, ::testing::ValuesIn(changes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::loop_source_test
