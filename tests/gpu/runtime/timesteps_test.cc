// Timesteps as one kernel give what they give one by one: random loops of products and chains, on buffers that move,
// stay or are written over.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <random>
#include <tuple>

#include "core/compute/backend.h"
#include "core/gradcheck/examples.h"
#include "gpu/loops/matmul.h"
#include "gpu/runtime/chain_writer.h"
#include "gpu/runtime/stream.h"
#include "gpu/runtime/timesteps.h"
#include "stepnet/tensor.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::timesteps_test {
namespace {

// Rows of a loop: [T + 2, B, columns] of which timestep t has one to three, or [1, B, columns] that all of them share.
// With N heads [T + 2, N B, columns], head by head or sample by sample.
struct Buffer {
  Tensor values;
  bool moves = true;
};

struct Operand {
  int buffer = 0;
  int64_t later = 0, group = 0, shift = 0;  // the row t + 1 + later; the first column is group * H + shift
};

// Whose weights a product has: a head's its own, all heads the same, or there are some from each head to each other
// one.
enum class Weights { of_heads, same, of_all };

// Either C (+)= A op(W) + bias, or out = tanh(a op b), in rows that are over `held`, if there is one.
struct Op {
  bool is_product = false, holds = false;
  Operand a = {}, b = {}, held = {}, out = {};
  int weights = -1, bias = -1;
  Weights whose = Weights::of_heads;
  bool trans_b = false, accumulate = false;
  int64_t columns = 0, k = 0;
  FusedCode code = FusedCode::add;
};

struct Loop {
  DType dtype = DType::float32;
  int64_t steps = 0, rows = 0, units = 0;
  std::vector<Buffer> buffers = {};
  std::vector<Tensor> constants = {};
  std::vector<int32_t> lengths = {};  // of the rows
  std::vector<Op> ops = {};
  int64_t heads = 1;
  bool heads_first = true;  // rows of a head lie one behind the other, else those of a sample
  bool backward = false;    // from the last timestep

  int64_t all_rows() const { return heads * rows; }
};

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  template <class T>
  T of(std::initializer_list<T> all) {
    return all.begin()[(*this)(0, static_cast<int64_t>(all.size()) - 1)];
  }
  Tensor tensor(DType dtype, const Shape& shape, double size) {
    Tensor t = Tensor::empty(DType::float32, shape);
    for (float& v : t.span<float>()) v = static_cast<float>(size * std::normal_distribution<double>()(random_));
    return in_type(dtype, t);
  }

 private:
  std::mt19937 random_;
};

class Generator {
 public:
  Generator(DType dtype, unsigned seed) : Generator(dtype, seed, Loop{}) {
    loop_.steps = draw_(4, 9);
    loop_.rows = draw_.of<int64_t>({1, 2, 3, 16, 20, 33});
    loop_.units = draw_.of<int64_t>({1, 3, 8, 32, 40, 64, 96, 160});
    add_buffers();
  }
  // With heads, or with many rows.
  static Generator of_heads(DType dtype, unsigned seed) {
    Generator made(dtype, seed, {});
    Draw& draw = made.draw_;
    Loop& loop = made.loop_;
    loop.steps = draw(4, 7);
    loop.heads = draw.of<int64_t>({1, 2, 3, 4, 7});
    loop.heads_first = draw(0, 1) == 0;
    loop.backward = draw(0, 1) == 0;
    loop.rows = loop.heads == 1 || draw(0, 5) == 0 ? draw(65, 256) : draw.of<int64_t>({1, 2, 3, 16, 17, 20, 33});
    loop.units = loop.rows > 64 ? draw.of<int64_t>({1, 5, 8, 16, 24}) : draw.of<int64_t>({1, 3, 8, 20, 32, 64});
    made.add_buffers();
    return made;
  }

  Loop make() {
    for (int v = 0; v < values_; ++v) {
      add_product(states_ + v);
      if (draw_(0, 1) == 0) add_chain({scratch_, 0, 0});
    }
    for (int s = 0; s < states_; ++s) add_chain({s, 1, 0});
    return std::move(loop_);
  }

 private:
  Generator(DType dtype, unsigned seed, Loop loop) : draw_(seed), loop_(std::move(loop)) { loop_.dtype = dtype; }

  void add_buffers() {
    states_ = static_cast<int>(draw_(1, 3));
    for (int s = 0; s < states_; ++s) add_buffer(1, true);
    values_ = static_cast<int>(draw_(1, 3));
    for (int v = 0; v < values_; ++v) add_buffer(draw_(1, 4), draw_(0, 2) > 0);
    scratch_ = add_buffer(1, false);
    for (int64_t r = 0; r < loop_.all_rows(); ++r)
      loop_.lengths.push_back(static_cast<int32_t>(draw_(0, loop_.steps + 1)));
  }
  int add_buffer(int64_t groups, bool moves) {
    const Shape shape{moves ? loop_.steps + 2 : 1, loop_.all_rows(), groups * loop_.units};
    loop_.buffers.push_back({draw_.tensor(loop_.dtype, shape, 0.5), moves});
    return static_cast<int>(loop_.buffers.size()) - 1;
  }
  int64_t width(int buffer) const { return loop_.buffers[static_cast<size_t>(buffer)].values.dim(2); }
  int add_constant(const Shape& shape, double size) {
    loop_.constants.push_back(draw_.tensor(loop_.dtype, shape, size));
    return static_cast<int>(loop_.constants.size()) - 1;
  }

  // Of a state, or of a value of this timestep that is there.
  void add_product(int to) {
    Op op;
    op.is_product = true;
    op.a = {static_cast<int>(draw_(0, std::max(states_, to) - 1)), 0, 0};
    if (draw_(0, 3) == 0 && !loop_.ops.empty() && to > scratch_) op.a = {scratch_, 0, 0};
    op.out = {to, 0, 0};
    op.columns = width(to);
    op.k = width(op.a.buffer);
    op.trans_b = draw_(0, 1) == 0;
    const bool may_differ = loop_.heads > 1 && !loop_.ops.empty();  // or there were rows alone
    if (may_differ && draw_(0, 3) == 0) op.whose = Weights::same;
    if (may_differ && !loop_.heads_first && draw_(0, 7) == 0) {
      op.whose = Weights::of_all;
      op.columns *= loop_.heads;
      op.k *= loop_.heads;
    }
    const auto k = static_cast<double>(op.k);
    const int64_t matrices = op.whose == Weights::of_heads ? loop_.heads : 1;
    op.weights = add_constant(op.trans_b ? Shape{matrices, op.columns, op.k} : Shape{matrices, op.k, op.columns},
                              1 / std::sqrt(k));
    if (matrices == 1 && draw_(0, 1) == 0) op.bias = add_constant({op.columns}, 0.3);
    op.accumulate = loop_.buffers[static_cast<size_t>(to)].moves && draw_(0, 3) > 0;
    loop_.ops.push_back(op);
  }

  Operand part() {
    const int buffer = static_cast<int>(draw_(0, states_ + values_ - 1));
    const int64_t groups = width(buffer) / loop_.units, later = -draw_(0, 1);
    if (groups > 1 && draw_(0, 2) == 0)  // columns of other units, which other blocks have
      return {buffer, later, draw_(0, groups - 2), draw_(0, loop_.units - 1)};
    return {buffer, later, draw_(0, groups - 1)};
  }
  void add_chain(Operand to) {
    Op op;
    op.a = part();
    op.b = draw_(0, 4) == 0 ? Operand{scratch_, 0, 0} : part();
    op.holds = draw_(0, 2) == 0;
    if (op.holds) op.held = part();
    op.out = to;
    op.code = draw_.of({FusedCode::add, FusedCode::mul, FusedCode::sub});
    loop_.ops.push_back(op);
  }

  Draw draw_;
  Loop loop_;
  int states_ = 0, values_ = 0, scratch_ = 0;
};

// All buffers behind a run on the GPU, one by one or as a graph.
template <class T>
class Runner {
 public:
  explicit Runner(const Loop& loop) : loop_(loop) {
    for (const Buffer& b : loop.buffers) buffers_.push_back(copied_to(b.values, kGpu));
    for (const Tensor& c : loop.constants) constants_.push_back(copied_to(c, kGpu));
    lengths_ = copied_to(Tensor::of<int32_t>({loop.all_rows()}, loop.lengths), kGpu);
    const Tensor given =
        Tensor::of<float>({loop.all_rows()}, std::vector<float>(loop.lengths.begin(), loop.lengths.end()));
    given_lengths_ = copied_to(in_type(loop.dtype, given), kGpu);
    std::vector<int32_t> numbers(static_cast<size_t>(loop.steps));
    std::iota(numbers.begin(), numbers.end(), 0);
    numbers_ = copied_to(Tensor::of<int32_t>({loop.steps}, numbers), kGpu);
    for (const Op& op : loop.ops) {
      if (op.is_product || op.holds) {
        chains_.push_back(nullptr);
        continue;
      }
      std::vector<FusedInstruction> code = {{op.code, 0, 1, 0, 3}, {FusedCode::tanh, 3, 3, 0, 2}};
      chains_.push_back(backend(DeviceKind::cuda).fuse(kGpu, loop.dtype, code, 3));
    }
  }

  void one_by_one() {
    for (int64_t t = 0; t < loop_.steps; ++t) step(t);
  }
  TimestepsOutcome as_graph() {
    TimestepsOutcome outcome;
    const auto graph = backend(DeviceKind::cuda).capture(kGpu, [&] {
      outcome = backend(DeviceKind::cuda).timesteps(kGpu, loop_.steps, [&](int64_t t) { step(t); });
    });
    graph->replay();
    copied_to(buffers_[0], {});
    return outcome;
  }
  std::vector<Tensor> results() const {
    std::vector<Tensor> all;
    for (const Tensor& b : buffers_) all.push_back(in_type(DType::float64, copied_to(b, {})));
    return all;
  }

 private:
  T* at(const Operand& o, int64_t t) {
    const size_t b = static_cast<size_t>(o.buffer);
    const Shape& shape = loop_.buffers[b].values.shape();
    const int64_t later = loop_.backward ? loop_.steps - t - o.later : t + 1 + o.later;
    const int64_t row = loop_.buffers[b].moves ? later : 0;
    return reinterpret_cast<T*>(buffers_[b].raw()) + row * shape[1] * shape[2] + o.group * loop_.units + o.shift;
  }
  int64_t width(const Operand& o) const { return loop_.buffers[static_cast<size_t>(o.buffer)].values.dim(2); }
  const T* constant(int number) const {
    return number < 0 ? nullptr : reinterpret_cast<const T*>(constants_[static_cast<size_t>(number)].raw());
  }

  void step(int64_t t) {
    RunContext run;
    for (size_t i = 0; i < loop_.ops.size(); ++i) {
      const Op& op = loop_.ops[i];
      if (op.is_product) {
        gpu::matmul(Call({}, {}, run), sizes_of(op), at(op.a, t), constant(op.weights), at(op.out, t),
                    constant(op.bias));
      } else if (op.holds) {
        held(op, t);
      } else {
        const auto operand = [&](const Operand& o) { return FusedOperand<void>{at(o, t), width(o)}; };
        // Of whole rows one after the other, as a single row, whose distance to the next one says nothing.
        const auto flat = [&](const Operand& o) { return FusedOperand<void>{at(o, t)}; };
        if (std::ranges::all_of(std::array{op.a, op.b, op.out}, [&](auto& o) { return width(o) == loop_.units; }))
          chains_[i]->run(std::vector{flat(op.a), flat(op.b), flat(op.out)}, loop_.units * loop_.all_rows(), 1);
        else
          chains_[i]->run(std::vector{operand(op.a), operand(op.b), operand(op.out)}, loop_.units, loop_.all_rows());
      }
    }
  }

  // By a chain with the timestep and the lengths in it, or by one that reads them where they are.
  void held(const Op& op, int64_t t) {
    const auto run = [this, &op, t] { run_held(op, t); };
    if (!gpu::recording()) return run();
    gpu::ChainWriter w;
    const auto* lengths = reinterpret_cast<const int32_t*>(std::as_const(lengths_).raw());
    const auto* number = reinterpret_cast<const int32_t*>(std::as_const(numbers_).raw()) + t;
    const int left = w.value(FusedCode::sub, w.read_int32(lengths, 1), w.read_int32(number, 0));
    const int a = w.read(at(op.a, t), width(op.a)), b = w.read(at(op.b, t), width(op.b));
    const int value = w.value(FusedCode::tanh, w.value(op.code, a, b));
    w.write(w.if_positive(left, value, w.read(at(op.held, t), width(op.held))), at(op.out, t), width(op.out));
    w.record_as(loop_.dtype, loop_.units, loop_.all_rows(), gpu::QueueAlone(run));
  }
  void run_held(const Op& op, int64_t t) {
    const auto operand = [&](const Operand& o) { return FusedOperand<void>{at(o, t), width(o)}; };
    const std::vector<FusedInstruction> instructions = {{op.code, 0, 1, 0, 5},
                                                        {FusedCode::tanh, 5, 5, 0, 5},
                                                        {FusedCode::add_value, 2, 2, static_cast<double>(-t), 6},
                                                        {FusedCode::if_positive, 6, 5, 0, 5},
                                                        {FusedCode::unless_positive, 6, 3, 0, 7},
                                                        {FusedCode::either, 5, 7, 0, 4}};
    held_.push_back(backend(DeviceKind::cuda).fuse(kGpu, loop_.dtype, instructions, 5));
    held_.back()->run(
        std::vector<FusedOperand<void>>{
            operand(op.a), operand(op.b), {given_lengths_.raw(), 1, 0}, operand(op.held), operand(op.out)},
        loop_.units, loop_.all_rows());
  }

  gpu::ProductSizes sizes_of(const Op& op) const {
    gpu::ProductSizes s{
        .trans_b = op.trans_b, .m = loop_.rows, .n = op.columns, .k = op.k, .accumulate = op.accumulate};
    if (op.whose == Weights::same) s.m = loop_.all_rows();
    if (op.whose != Weights::of_heads || loop_.heads == 1) return s;
    const auto strides = [&](int64_t columns) {  // from row to row, and from head to head
      return loop_.heads_first ? std::pair{columns, loop_.rows * columns} : std::pair{loop_.heads * columns, columns};
    };
    s.batch = loop_.heads;
    std::tie(s.lda, s.stride_a) = strides(op.k);
    std::tie(s.ldc, s.stride_c) = strides(op.columns);
    s.stride_b = op.k * op.columns;
    return s;
  }

  const Loop& loop_;
  std::vector<Tensor> buffers_, constants_;
  Tensor lengths_, given_lengths_, numbers_;  // the second in the loop's type; the third are the timesteps
  std::vector<std::shared_ptr<const FusedChain>> chains_, held_;
};

template <class T>
void check_loop(const Loop& loop, double tolerance) {
  Runner<T> apart(loop), together(loop);
  apart.one_by_one();
  EXPECT_EQ(together.as_graph().refusal, "");
  const std::vector<Tensor> expected = apart.results(), found = together.results();
  for (size_t b = 0; b < expected.size(); ++b)
    ASSERT_EQ(compare(found[b], expected[b], tolerance, ErrorScale::tensor), "") << "buffer " << b;
}

template <class T>
void check_loops(DType dtype, unsigned count, double tolerance, bool of_heads = false) {
  for (unsigned seed = 0; seed < count && !::testing::Test::HasFatalFailure(); ++seed) {
    Generator generator = of_heads ? Generator::of_heads(dtype, seed) : Generator(dtype, seed);
    const Loop loop = generator.make();
    SCOPED_TRACE(fmt::format("{} seed {}: {} timesteps, {} heads{}, {} rows, {} units, {} operators{}",
                             dtype_name(dtype), seed, loop.steps, loop.heads, loop.heads_first ? " first" : "",
                             loop.rows, loop.units, loop.ops.size(), loop.backward ? ", backward" : ""));
    check_loop<T>(loop, tolerance);
  }
}

TEST_F(GpuTest, TimestepsAreOneKernel) {
  check_loops<float>(DType::float32, 30, 2e-5);
  check_loops<bfloat16>(DType::bfloat16, 30, 4e-2);
  check_loops<float16>(DType::float16, 30, 6e-3);
}

TEST_F(GpuTest, TimestepsOfHeadsAndOfManyRowsAreOneKernel) {
  check_loops<float>(DType::float32, 40, 2e-5, true);
  check_loops<bfloat16>(DType::bfloat16, 40, 4e-2, true);
  check_loops<float16>(DType::float16, 40, 6e-3, true);
}

// A loop whose chain reads columns of other units of the first product's results, [T + 3, B, 2 H], when blocks have
// waited for each other twice since these were written.
Loop loop_with_old_reads(int64_t rows) {
  Draw draw(7);
  const int64_t steps = 7, units = 10;
  Loop loop{.steps = steps, .rows = rows, .units = units, .lengths = std::vector<int32_t>(static_cast<size_t>(rows))};
  for (const int64_t groups : {1, 2, 1, 1, 1})
    loop.buffers.push_back({draw.tensor(DType::float32, {steps + 3, rows, groups * units}, 0.5)});
  return loop;
}
void add_product(Loop& loop, Operand a, Operand out) {
  const auto width = [&](const Operand& o) { return loop.buffers[static_cast<size_t>(o.buffer)].values.dim(2); };
  Op op{.is_product = true,
        .a = a,
        .out = out,
        .weights = static_cast<int>(loop.constants.size()),
        .columns = width(out),
        .k = width(a)};
  loop.constants.push_back(Draw(static_cast<unsigned>(op.weights)).tensor(DType::float32, {op.k, op.columns}, 0.3));
  loop.ops.push_back(op);
}

TEST_F(GpuTest, TimestepsReadWhatIsOlderThanAPoint) {
  for (const int64_t rows : {1, 3}) {
    Loop twice_in_a_step = loop_with_old_reads(rows);
    add_product(twice_in_a_step, {0}, {1});
    add_product(twice_in_a_step, {0}, {2});
    add_product(twice_in_a_step, {2}, {3});
    add_product(twice_in_a_step, {3}, {4});
    twice_in_a_step.ops.push_back({.a = {1, 0, 0, 3}, .b = {4}, .out = {0, 1}});
    check_loop<float>(twice_in_a_step, 2e-5);

    Loop steps_apart = loop_with_old_reads(rows);
    add_product(steps_apart, {0}, {1, 2});
    add_product(steps_apart, {0}, {2});
    steps_apart.ops.push_back({.a = {1, 0, 0, 3}, .b = {2}, .out = {0, 1}});
    check_loop<float>(steps_apart, 2e-5);
  }
}

// On the imitated device by the source of the kernel, which takes a second or two for each loop to compile (see
// tests/gpu/emulated/loop_runs.h); a GPU knows no other way. With this in the environment all other tests run so, too.
TEST_F(GpuTest, TimestepsAreOneKernelBySource) {
  if (std::getenv("STEPNET_EMULATED_LOOPS")) GTEST_SKIP() << "all loops are run by their source";
  setenv("STEPNET_EMULATED_LOOPS", "source", 1);
  check_loops<float>(DType::float32, 2, 2e-5);
  check_loops<bfloat16>(DType::bfloat16, 2, 4e-2);
  check_loops<float16>(DType::float16, 2, 6e-3);
  unsetenv("STEPNET_EMULATED_LOOPS");
}

// Copies are nothing that a plan knows: all of it is queued in its order.
TEST_F(GpuTest, TimestepsWithOtherWorkRunOneByOne) {
  Loop loop = Generator(DType::float32, 1).make();
  Runner<float> runner(loop);
  Tensor from = copied_to(Tensor::of<float>({1}, {1}), kGpu), to = copied_to(Tensor::of<float>({1}, {0}), kGpu);
  const auto chain = backend(DeviceKind::cuda).fuse(kGpu, DType::float32, {{FusedCode::add, 0, 1, 0, 2}}, 3);
  TimestepsOutcome outcome;
  const auto graph = backend(DeviceKind::cuda).capture(kGpu, [&] {
    outcome = backend(DeviceKind::cuda).timesteps(kGpu, 5, [&](int64_t t) {
      chain->run(std::vector<FusedOperand<void>>{{from.raw()}, {from.raw()}, {from.raw()}}, 1, 1);
      if (t == 3) to.copy_from(from);
    });
  });
  EXPECT_EQ(outcome.kernel, "");
  EXPECT_EQ(outcome.refusal, "work is neither a product, nor elementwise, nor a known operator on whole rows");
  graph->replay();
  EXPECT_EQ(compare(copied_to(from, {}), Tensor::of<float>({1}, {32}), 0), "");
  EXPECT_EQ(compare(copied_to(to, {}), Tensor::of<float>({1}, {16}), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::timesteps_test
