// Bad values of the arguments that the public format does not have, and what is said about them.
#include <gtest/gtest.h>

#include <functional>

#include "stepnet/text.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::spec_extensions_test {
namespace {

using Change = std::function<void(NetDef&)>;

struct BadNet {
  std::string name;
  Change change;
  std::string message;
};

void PrintTo(const BadNet& bad, std::ostream* out) { *out << bad.name; }

// Every feature at once.
const Cell kCell = {.step = {"m = Mul(x, z)", "s = Sum(m, h_prev, c_prev)", "h = Tanh(s)", "c = Sum(h, c_prev)"},
                    .states = {{"h_prev", "h", "h0", "h_all", ""}, {"c_prev", "c", "", "", "c_last", {3}}},
                    .sequences = {{"X", "x"}, {"Z", "z"}},
                    .outputs = {{"m", "M"}, {"s", "S"}},
                    .reverse = true,
                    .lengths = "lengths"};

Feeds feeds_of(int64_t steps, int64_t batch) {
  std::vector<int32_t> lengths(batch, static_cast<int32_t>(steps));
  if (batch > 0) lengths[0] /= 2;
  return {{"X", normal<double>({steps, batch, 3}, 1)},
          {"Z", normal<double>({steps, batch, 3}, 2)},
          {"h0", normal<double>({batch, 3}, 3)},
          {"lengths", Tensor::of<int32_t>({batch}, lengths)}};
}

// Runs the net, and then with its gradients, on good data.
void run_all(const NetDef& net) {
  const Feeds feeds = feeds_of(3, 2);
  run_in_turn(net, {{feeds, {}}});
  run_in_turn(net, {{feeds, {{"M", normal<double>({3, 2, 3}, 4)}}}});
}

Change set_int(const std::string& arg, int i, int64_t value) {
  return [=](NetDef& net) { arg_of(net, arg).set_ints(i, value); };
}

Change add_int(const std::string& arg, int64_t value) {
  return [=](NetDef& net) { arg_of(net, arg).add_ints(value); };
}

Change set_string(const std::string& arg, int i, const std::string& value) {
  return [=](NetDef& net) { arg_of(net, arg).set_strings(i, value); };
}

Change drop_string(const std::string& arg) {
  return [=](NetDef& net) { arg_of(net, arg).mutable_strings()->RemoveLast(); };
}

std::vector<BadNet> bad_nets() {
  return {
      {"RanksTooFew", [](NetDef& net) { arg_of(net, "zero_state_ranks").mutable_ints()->RemoveLast(); },
       "\"initial_recurrent_state_ids\" has -1, but the operator has inputs 0 to 3"},
      {"RanksTooMany", add_int("zero_state_ranks", 0),
       "arguments \"recurrent_states\" and \"zero_state_ranks\" must have the same length, but have 2 and 3"},
      {"RankNegative", set_int("zero_state_ranks", 0, -1), "\"zero_state_ranks\" has -1; it must be from 0 to 6"},
      {"RankTooLarge", set_int("zero_state_ranks", 1, 7), "\"zero_state_ranks\" has 7; it must be from 0 to 6"},
      {"RankOfAGivenState", set_int("zero_state_ranks", 0, 1),
       "\"zero_state_ranks\" of \"rnn/h_prev_states\" is 1, but it starts as an input"},
      {"SizesTooFew", set_int("zero_state_ranks", 1, 2),
       "\"zero_state_sizes\" has 1 sizes, fewer than \"zero_state_ranks\" asks for"},
      {"SizesTooMany", add_int("zero_state_sizes", 2),
       "\"zero_state_sizes\" has 2 sizes, but \"zero_state_ranks\" asks for 1"},
      {"SizeNegative", set_int("zero_state_sizes", 0, -3),
       "\"zero_state_sizes\" of \"rnn/c_prev_states\" has -3, which is negative"},
      {"SequenceNegative", set_int("more_sequences", 0, -1),
       "\"more_sequences\" has -1, but the operator has inputs 0 to 3"},
      {"SequenceTooLarge", set_int("more_sequences", 0, 4),
       "\"more_sequences\" has 4, but the operator has inputs 0 to 3"},
      {"SequenceTwice", add_int("more_sequences", 0), "\"more_sequences\" has 0, which is a sequence already"},
      {"OutputsTooFew", drop_string("output_external"),
       "arguments \"output_internal\" and \"output_external\" must have the same length, but have 2 and 1"},
      {"OutputGradsTooFew", drop_string("output_grads"),
       "arguments \"output_internal\" and \"output_grads\" must have the same length, but have 2 and 1"},
      {"OutputWithoutName", set_string("output_external", 0, ""),
       "\"output_external\" has an empty name at position 0"},
      {"OutputUnknown", set_string("output_internal", 0, "mm"),
       "\"output_internal\" names \"mm\", which the step net does not write."},
      {"OutputTwice", set_string("output_internal", 1, "m_masked"), "\"output_internal\" has \"m_masked\" twice"},
      {"OutputIsLinked", set_string("output_internal", 0, "h_masked"),
       "\"output_internal\" names \"h_masked\", which \"link_internal\" links already"},
      {"OutputIsAState", set_string("output_external", 0, "rnn/h_prev_states"),
       "\"output_external\" names \"rnn/h_prev_states\", the operator's last output or a recurrent state"},
      {"OutputIsTheScratch", set_string("output_external", 0, "rnn/step_workspaces"),
       "\"output_external\" names \"rnn/step_workspaces\", the operator's last output or a recurrent state"},
      {"OutputIsAnInput", set_string("output_external", 0, "X"),
       "\"output_external\" names \"X\", an input of the operator"},
      {"OutputsWithGradsTooLarge", set_int("outputs_with_grads", 0, 4),
       "\"outputs_with_grads\" has 4, but only the outputs 0 to 3 are views of states or written by the step net"},
      {"OutputsInAnotherOrder",
       [](NetDef& net) {
         arg_of(net, "output_external").set_strings(0, "S"), arg_of(net, "output_external").set_strings(1, "M");
       },
       "\"outputs_with_grads\" has 2, but output 2 is not \"S\", which \"output_external\" has there"},
      {"LengthsTooLarge", [](NetDef& net) { arg_of(net, "sequence_lengths_id").set_i(4); },
       "\"sequence_lengths_id\" is 4, but the operator has inputs 0 to 3"},
      {"LengthsNegative", [](NetDef& net) { arg_of(net, "sequence_lengths_id").set_i(-2); },
       "\"sequence_lengths_id\" is -2, but the operator has inputs 0 to 3"},
      {"LengthsAreTheSequence", [](NetDef& net) { arg_of(net, "sequence_lengths_id").set_i(0); },
       "the lengths \"X\" must be int32[2], one for each sample, but are double[3, 2, 3]"},
  };
}

class BadExtensions : public ::testing::TestWithParam<BadNet> {};

TEST_P(BadExtensions, AreRefused) {
  NetDef net = expanded_net(kCell, feeds_of(3, 2));
  run_all(net);
  GetParam().change(net);
  const std::string text = error_of([&] { run_all(net); });
  EXPECT_EQ(text.substr(0, text.find('\n')), "RecurrentNetwork: " + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(SpecExtensions, BadExtensions, ::testing::ValuesIn(bad_nets()),
                         [](const auto& info) { return info.param.name; });

TEST(SpecExtensions, AllAtOnceAreTheNetUnrolled) {
  for (const auto& [steps, batch] : {std::pair{5, 3}, {1, 1}, {0, 2}, {3, 0}})
    EXPECT_EQ(check_against_unrolled(kCell, feeds_of(steps, batch)), "") << steps << " " << batch;
  EXPECT_EQ(check_differences(kCell, feeds_of(3, 2)), "");
}

TEST(SpecExtensions, AllAtOnceInRunsOfDifferentShapes) {
  std::vector<CellData> data;
  for (const auto& [steps, batch] : {std::pair{5, 3}, {2, 3}, {0, 1}, {5, 3}, {5, 3}}) {
    const Feeds feeds = feeds_of(steps, batch);
    data.push_back({feeds, outside_gradients(kCell, feeds)});
  }
  const std::vector<CellResults> results = run_in_turn(expanded_net(kCell, data[0].feeds), data);
  for (size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(compare_results(results[i], run_unrolled(kCell, data[i].feeds, data[i].outside), 1e-10), "") << i;
  EXPECT_EQ(results.back().allocations, 0);
}

// The full form as text means the same.
TEST(SpecExtensions, SurviveText) {
  const Feeds feeds = feeds_of(4, 2);
  const Feeds outside = outside_gradients(kCell, feeds);
  const NetDef read = parse_net_text(to_text(expanded_net(kCell, feeds)));
  EXPECT_EQ(compare_results(run_with_gradients(read, feeds, outside), run_unrolled(kCell, feeds, outside), 1e-10), "");
}

}  // namespace
}  // namespace stepnet::testing::spec_extensions_test
