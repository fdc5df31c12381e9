// The tape against every operator that is registered: what is kept for backward, and that the derivatives are those of
// the nets. Each test goes over the operator's own examples and every set of inputs that may require gradients.
#include <gtest/gtest.h>

#include "core/operator/in_place.h"
#include "tests/core/autograd/example_tape.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::registry_test {
namespace {

constexpr double kSame = 1e-12;

std::string mask_text(const Mask& mask) {
  std::string text;
  for (const bool bit : mask) text += bit ? '1' : '0';
  return text;
}

bool is_empty(const Mask& mask) { return std::ranges::count(mask, true) == 0; }
bool is_within(const Mask& a, const Mask& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] && !b[i]) return false;
  return true;
}

std::vector<int> places(const Mask& mask) {
  std::vector<int> list;
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i]) list.push_back(static_cast<int>(i));
  return list;
}

class Registry : public ::testing::TestWithParam<std::string> {
 protected:
  // For each example; with what is tried in the messages.
  template <class Fn>
  void for_each_example(Fn fn) const {
    const std::vector<ExampleTape>& tapes = example_tapes(GetParam());
    for (size_t e = 0; e < tapes.size(); ++e) {
      SCOPED_TRACE(fmt::format("example {}: {}", e, tapes[e].def().ShortDebugString()));
      fn(tapes[e]);
    }
  }
  template <class Fn>
  void for_each_subset(Fn fn) const {
    for_each_example([&](const ExampleTape& tape) {
      for (const Mask& needs : tape.subsets()) {
        SCOPED_TRACE("inputs that need gradients: " + mask_text(needs));
        fn(tape, needs);
      }
    });
  }
};

// --- What is kept ----------------------------------------------------------------------------------------------------

int64_t block(size_t bytes) { return static_cast<int64_t>((bytes + 63) / 64 * 64); }  // what the allocator counts

// Of an operator that broadcasts the operands are kept in place of the output, where what else is kept is smaller.
void keep_operands(const ExampleTape& tape, const TapeRun& run, GradientProgram& program) {
  if (!broadcasts(tape.spec()) || run.outputs.size() != 1 || !program.reads_output[0]) return;
  size_t more = 0;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    if (tape.overwritten_by(static_cast<int>(i)) >= 0) return;
    more += program.reads_input[i] ? 0 : run.inputs[i].value().bytes();
  }
  if (more == 0 || more >= run.outputs[0].value().bytes()) return;
  program.reads_input.assign(run.inputs.size(), true);
  program.reads_output = {false};
}

// The values that a formula of these inputs reads, each storage once, and copies of what was overwritten.
int64_t bytes_by_the_rule(const ExampleTape& tape, const Mask& needs) {
  if (is_empty(needs) || tape.spec().gradient_rule == GradientRule::stop) return 0;
  GradientProgram program = tape.program(needs, tape.all_outputs());
  const TapeRun run = tape.run(needs);
  keep_operands(tape, run, program);
  std::map<const Storage*, int64_t> blocks;
  int64_t copies = 0;
  const auto keep = [&](const Tensor& value) {
    if (value.storage()) blocks[value.storage().get()] = block(value.storage()->bytes());
  };
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    if (!program.reads_input[i]) continue;
    const Tensor& value = run.inputs[i].value();
    if (tape.overwritten_by(static_cast<int>(i)) >= 0)
      copies += block(value.bytes());
    else
      keep(value);
  }
  for (size_t o = 0; o < run.outputs.size(); ++o)
    if (program.reads_output[o] && run.outputs[o].defined()) keep(run.outputs[o].value());
  for (const auto& held : blocks) copies += held.second;
  return copies;
}

// What stays when the caller has dropped inputs and outputs.
int64_t bytes_held(const ExampleTape& tape, const Mask& needs) {
  tape.run(needs);  // kernels may keep scratch from their first run on
  const int64_t before = live_bytes();
  std::vector<Edge> graph;
  for (const Variable& output : tape.run(needs).outputs) graph.push_back(output.gradient_edge());
  return live_bytes() - before;
}

TEST_P(Registry, KeepsWhatFormulasOfNeededGradientsRead) {
  for_each_subset([](const ExampleTape& tape, const Mask& needs) {
    const int64_t before = live_bytes();
    EXPECT_EQ(bytes_held(tape, needs), bytes_by_the_rule(tape, needs));
    EXPECT_EQ(live_bytes(), before) << "after the graph is gone";
  });
}

// Every derivative that a pass may ask for later finds what it reads.
TEST_P(Registry, KeepsEnoughForEveryPass) {
  for_each_subset([](const ExampleTape& tape, const Mask& needs) {
    if (is_empty(needs)) return;
    const GradientProgram saved = tape.program(needs, tape.all_outputs());
    for (const Mask& wanted : tape.subsets()) {
      if (is_empty(wanted) || !is_within(wanted, needs)) continue;
      const int outputs = tape.def().output_size();
      for (int bits = 1; bits < (1 << std::min(outputs, 6)); ++bits) {
        Mask present(outputs, false);
        for (int o = 0; o < std::min(outputs, 6); ++o) present[o] = (bits >> o) & 1;
        if (!is_within(present, tape.all_outputs())) continue;
        const GradientProgram program = tape.program(wanted, present);
        EXPECT_TRUE(is_within(program.reads_input, saved.reads_input) &&
                    is_within(program.reads_output, saved.reads_output))
            << "for the gradients of " << mask_text(wanted) << " by those of outputs " << mask_text(present)
            << ", inputs " << mask_text(program.reads_input) << " and outputs " << mask_text(program.reads_output)
            << " are read, but " << mask_text(saved.reads_input) << " and " << mask_text(saved.reads_output)
            << " are saved";
      }
    }
  });
}

// --- Values ----------------------------------------------------------------------------------------------------------

Tensor of_net(const GradientRun& run, const ExampleTape& tape, int input) {
  const auto found = run.gradients.find(tape.name(input));
  return found == run.gradients.end() ? Tensor::zeros(DType::float64, tape.subject().feeds.at(tape.name(input)).shape())
                                      : found->second;
}

NamedTensors named(const ExampleTape& tape, const std::vector<Variable>& weights) {
  NamedTensors values;
  for (size_t k = 0; k < weights.size(); ++k) values[tape.subject().outputs[k]] = weights[k].value();
  return values;
}

TEST_P(Registry, GradientsAreThoseOfNetsTogetherAndAlone) {
  for_each_example([](const ExampleTape& tape) {
    const std::vector<Variable> weights = random_weights(tape);
    for (const Mask& needs : tape.subsets()) {
      SCOPED_TRACE("inputs that need gradients: " + mask_text(needs));
      if (is_empty(needs) || weights.empty()) continue;
      const std::vector<int> wanted = places(needs);
      std::vector<std::string> names;
      for (const int i : wanted) names.push_back(tape.name(i));
      const GradientRun net = run_gradients(tape.subject(), named(tape, weights), ExampleTape::kSeed, names);
      const TapeRun run = tape.run(needs);
      const std::vector<Variable> together = tape_gradients(tape, run, weights, wanted);
      for (size_t k = 0; k < wanted.size(); ++k) {
        EXPECT_EQ(difference(together[k].value(), of_net(net, tape, wanted[k]), kSame), "") << names[k];
        const Variable alone = tape_gradients(tape, run, weights, {wanted[k]})[0];
        EXPECT_EQ(difference(alone.value(), together[k].value(), kSame), "") << names[k] << " alone";
      }
    }
  });
}

// The operator with an output in place of an input, for each of its rules that allows that.
template <class Fn>
void for_each_in_place(const ExampleTape& tape, Fn fn) {
  for (const InPlaceRule& rule : tape.spec().in_place) {
    const int in = tape.spec().input_index(rule.in), out = tape.spec().output_index(rule.out);
    if (rule.enforced || in >= tape.def().input_size() || out >= tape.def().output_size()) continue;
    SCOPED_TRACE(rule.out + " in place of " + rule.in);
    fn(tape.in_place(in, out));
  }
}

TEST_P(Registry, GradientsInPlaceAreTheSame) {
  if (op_spec(GetParam()).random) return;  // what is drawn depends on the output's name
  for_each_subset([](const ExampleTape& tape, const Mask& needs) {
    const std::vector<Variable> weights = random_weights(tape);
    if (is_empty(needs) || weights.empty()) return;
    for_each_in_place(tape, [&](const ExampleTape& in_place) {
      std::vector<Variable> same;
      try {
        same = tape_gradients(in_place, in_place.run(needs), weights, places(needs));
      } catch (const Error&) {  // refused: the shape differs, or a gradient is computed from what is overwritten
        return;
      }
      const int64_t before = live_bytes();
      EXPECT_EQ(bytes_held(in_place, needs), bytes_by_the_rule(in_place, needs));
      EXPECT_EQ(live_bytes(), before) << "after the graph is gone";
      const std::vector<Variable> plain = tape_gradients(tape, tape.run(needs), weights, places(needs));
      for (size_t k = 0; k < plain.size(); ++k)
        EXPECT_EQ(difference(same[k].value(), plain[k].value(), kSame), "") << k;
    });
  });
}

// The tests above would pass if they found no calls.
TEST_P(Registry, HasCallsToTry) { EXPECT_FALSE(example_tapes(GetParam()).empty()); }

TEST(RegistryChecks, NoticeWhatIsKept) {
  const ExampleTape& mul = example_tapes("Mul").front();
  EXPECT_EQ(bytes_held(mul, mul.only({})), 0);
  EXPECT_EQ(bytes_held(mul, mul.only({0})), 64);
  EXPECT_EQ(bytes_held(mul, mul.only({0, 1})), 128);
}

INSTANTIATE_TEST_SUITE_P(Tape, Registry, ::testing::ValuesIn(tensor_types()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::autograd::testing::registry_test
