// Bad arguments of RecurrentNetwork, in the full and in the short form, and what is said about them.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/text.h"
#include "tests/recurrent/unrolled.h"
#include "tools/source_path.h"

namespace stepnet::testing::spec_errors_test {
namespace {

const std::string kFolder = source_path("tests/data/");

using Change = std::function<void(NetDef&)>;

struct BadNet {
  std::string name;
  Change change;
  std::string message;  // of which the operator's place and blobs are left out
};

void PrintTo(const BadNet& bad, std::ostream* out) { *out << bad.name; }

Change set_string(const std::string& arg, int i, const std::string& value) {
  return [=](NetDef& net) { arg_of(net, arg).set_strings(i, value); };
}

Change set_int(const std::string& arg, int i, int64_t value) {
  return [=](NetDef& net) { arg_of(net, arg).set_ints(i, value); };
}

Change add_string(const std::string& arg, const std::string& value) {
  return [=](NetDef& net) { arg_of(net, arg).add_strings(value); };
}

Change add_int(const std::string& arg, int64_t value) {
  return [=](NetDef& net) { arg_of(net, arg).add_ints(value); };
}

Change with_step(const std::string& arg, const Lines& lines) {
  return [=](NetDef& net) { *arg_of(net, arg).mutable_n()->mutable_op() = net_of_lines(lines).op(); };
}

Change both(const Change& a, const Change& b) {
  return [=](NetDef& net) { a(net), b(net); };
}

Change add_link(const std::string& internal, const std::string& external, int64_t offset) {
  return [=](NetDef& net) {
    arg_of(net, "link_internal").add_strings(internal);
    arg_of(net, "link_external").add_strings(external);
    arg_of(net, "link_offset").add_ints(offset);
  };
}

Change rename_state(const std::string& to) {
  return [=](NetDef& net) {
    for (const char* arg : {"recurrent_states", "link_external", "alias_src"})
      for (std::string& name : *arg_of(net, arg).mutable_strings())
        if (name == "rnn/h_prev_states") name = to;
  };
}

Change add_arg(const Argument& arg) {
  return [=](NetDef& net) { *net.mutable_op(0)->add_arg() = arg; };
}

// The fact and the fix.
std::string told(const std::string& text) {
  const size_t fix = text.find(
      ""
      "\n  fix ");
  return text.substr(0, text.find('\n')) + (fix == text.npos ? "" : text.substr(fix));
}

// Runs the net, and then with its gradients, on good data.
void run_all(const NetDef& net) {
  const Feeds feeds = {
      {"X", normal<double>({3, 2, 3}, 1)}, {"h0", normal<double>({2, 3}, 2)}, {"p", normal<double>({1, 2, 3}, 3)}};
  run_in_turn(net, {{feeds, {}}});
  run_in_turn(net, {{feeds, {{"h_all", normal<double>({3, 2, 3}, 4)}}}});
}

std::string error_of_net(const NetDef& net) {
  return told(error_of([&] { run_all(net); }));
}

std::vector<BadNet> bad_full_forms() {
  const Lines wrong_order = {"h = Tanh(s)", "s = Sum(x_t, h_prev, p)"};
  return {
      {"NothingWritesTheState", set_string("link_internal", 1, "other"),
       "RecurrentNetwork: no operator of the step net writes the state \"rnn/h_prev_states\"\n"
       "  fix link an output of the step net to it with offset 1"},
      {"StateWithoutALink", set_string("link_external", 1, "X"),
       "RecurrentNetwork: no operator of the step net writes the state \"rnn/h_prev_states\"\n"
       "  fix link an output of the step net to it with offset 1"},
      {"StateTwice",
       both(add_string("recurrent_states", "rnn/h_prev_states"), add_int("initial_recurrent_state_ids", 1)),
       "RecurrentNetwork: \"recurrent_states\" has \"rnn/h_prev_states\" twice"},
      {"StateNamedAsTheScratch", rename_state("rnn/step_workspaces"),
       "RecurrentNetwork: \"recurrent_states\" names \"rnn/step_workspaces\", the operator's last output"},
      {"StateNamedAsAnInput", rename_state("p"),
       "RecurrentNetwork: \"recurrent_states\" names \"p\", an input of the operator"},
      {"InitialStateNegative", set_int("initial_recurrent_state_ids", 0, -1),
       "RecurrentNetwork: \"initial_recurrent_state_ids\" has -1, but the operator has inputs 0 to 2"},
      {"InitialStateTooLarge", set_int("initial_recurrent_state_ids", 0, 3),
       "RecurrentNetwork: \"initial_recurrent_state_ids\" has 3, but the operator has inputs 0 to 2"},
      {"InitialStateHuge", set_int("initial_recurrent_state_ids", 0, int64_t{1} << 32),
       "RecurrentNetwork: \"initial_recurrent_state_ids\" has 4294967296, but the operator has inputs 0 to 2"},
      {"InitialStatesTooMany", add_int("initial_recurrent_state_ids", 1),
       "RecurrentNetwork: arguments \"recurrent_states\" and \"initial_recurrent_state_ids\" must have the same "
       "length, but have 1 and 2"},
      {"LinkedTwice", add_link("x_t", "p", 0),
       "RecurrentNetwork: \"link_internal\" links the step blob \"x_t\" to two places\n"
       "  fix link each step blob once; let a Copy in the step net write the second"},
      {"LinkedNowhere", set_string("link_external", 2, "Y"),
       "RecurrentNetwork: \"link_external\" names \"Y\" for \"x_t\", but there is no such blob."},
      {"LinkedAlmost", set_string("link_external", 0, "rnn/h_prev_state"),
       "RecurrentNetwork: \"link_external\" names \"rnn/h_prev_state\" for \"h_prev\", but there is no such blob. Did "
       "you mean \"rnn/h_prev_states\"?"},
      {"LinkWithoutName", set_string("link_internal", 2, ""),
       "RecurrentNetwork: \"link_internal\" or \"link_external\" has an empty name at position 2"},
      {"LinkToTheScratch", set_string("link_external", 2, "rnn/step_workspaces"),
       "RecurrentNetwork: \"link_external\" names \"rnn/step_workspaces\" for \"x_t\", which holds "
       "stepnet::RecurrentScratch"},
      {"LinkOffsetNegative", set_int("link_offset", 2, -1),
       "RecurrentNetwork: \"link_offset\" of \"x_t\" is -1; it must be from 0 to 2147483647"},
      {"LinkOffsetTooLarge", set_int("link_offset", 2, 1),
       "RecurrentNetwork: the step blob \"x_t\" is linked to rows 1 to 3 of a tensor double[3, 2, 3], which has only 3 "
       "rows"},
      {"LinkOffsetHuge", set_int("link_offset", 2, int64_t{1} << 62),
       "RecurrentNetwork: \"link_offset\" of \"x_t\" is 4611686018427387904; it must be from 0 to 2147483647"},
      {"StateRowBeyondTheEnd", set_int("link_offset", 1, 2),
       "RecurrentNetwork: the step blob \"h\" is linked to rows 2 to 4 of a tensor double[4, 2, 3], which has only 4 "
       "rows"},
      {"LinkWindowTooLarge", add_arg(make_arg("link_window", std::vector<int64_t>{1, 1, 2})),
       "RecurrentNetwork: the step blob \"x_t\" is linked to rows 0 to 3 of a tensor double[3, 2, 3], which has only 3 "
       "rows"},
      {"LinkWindowNegative", add_arg(make_arg("link_window", std::vector<int64_t>{1, 1, -1})),
       "RecurrentNetwork: \"link_window\" of \"x_t\" is -1; it must be from 0 to 2147483647"},
      {"LinkWindowsTooFew", add_arg(make_arg("link_window", std::vector<int64_t>{})),
       "RecurrentNetwork: arguments \"link_internal\" and \"link_window\" must have the same length, but have 3 and 0"},
      {"LinkOffsetsTooFew", [](NetDef& net) { arg_of(net, "link_offset").clear_ints(); },
       "RecurrentNetwork: arguments \"link_internal\" and \"link_offset\" must have the same length, but have 3 and 0"},
      {"LinkExternalsTooMany", add_string("link_external", "X"),
       "RecurrentNetwork: arguments \"link_internal\" and \"link_external\" must have the same length, but have 3 and "
       "4"},
      {"WritesItsInput", with_step("step_net", {"x_t = Sum(x_t, h_prev, p)", "h = Tanh(x_t)"}),
       "RecurrentNetwork: the step net writes \"x_t\", which is linked to \"X\", an input of the operator"},
      {"AliasOfNoState", set_string("alias_src", 0, "rnn/h_prev_stats"),
       "RecurrentNetwork: \"alias_src\" has \"rnn/h_prev_stats\", which is no recurrent state. Did you mean "
       "\"rnn/h_prev_states\"?"},
      {"AliasOffsetTooLarge", set_int("alias_offset", 0, 5),
       "RecurrentNetwork: \"alias_offset\" of \"h_all\" is 5, but the state \"rnn/h_prev_states\" is double[4, 2, 3]"},
      {"AliasOffsetTooNegative", set_int("alias_offset", 1, -5),
       "RecurrentNetwork: \"alias_offset\" of \"h_last\" is -5, but the state \"rnn/h_prev_states\" is double[4, 2, "
       "3]"},
      {"AliasOffsetHuge", set_int("alias_offset", 1, std::numeric_limits<int64_t>::min()),
       "RecurrentNetwork: \"alias_offset\" of \"h_last\" is -9223372036854775808, but the state \"rnn/h_prev_states\" "
       "is double[4, 2, 3]"},
      {"AliasesTooFew", add_string("alias_src", "rnn/h_prev_states"),
       "RecurrentNetwork: arguments \"alias_src\" and \"alias_dst\" must have the same length, but have 3 and 2"},
      {"AliasOffsetsTooMany", add_int("alias_offset", 1),
       "RecurrentNetwork: arguments \"alias_src\" and \"alias_offset\" must have the same length, but have 2 and 3"},
      {"AliasToTheScratch", set_string("alias_dst", 1, "rnn/step_workspaces"),
       "RecurrentNetwork: \"alias_dst\" names \"rnn/step_workspaces\", the operator's last output"},
      {"AliasToAState", set_string("alias_dst", 1, "rnn/h_prev_states"),
       "RecurrentNetwork: \"alias_dst\" names \"rnn/h_prev_states\", a recurrent state"},
      {"ParamNegative", set_int("param", 0, -1),
       "RecurrentNetwork: \"param\" has -1, but the operator has inputs 0 to 2"},
      {"ParamTooLarge", set_int("param", 0, 3),
       "RecurrentNetwork: \"param\" has 3, but the operator has inputs 0 to 2"},
      {"ParamGradsTooMany", add_string("param_grads", "x_t_grad"),
       "RecurrentNetwork: arguments \"param\" and \"param_grads\" must have the same length, but have 1 and 2"},
      {"ParamGradUnknown", set_string("param_grads", 0, "p_grade"),
       "RecurrentNetworkGradient: the backward step net has no blob \"p_grade\", which is to be a parameter's "
       "gradient"},
      {"ParamOfAnotherShape", set_int("param", 0, 0),
       "RecurrentNetworkGradient: the gradient of one timestep, \"p_grad\", is double[1, 2, 3], but the parameter is "
       "double[3, 2, 3]"},
      {"OutputsWithGradsTooLarge", set_int("outputs_with_grads", 1, 2),
       "RecurrentNetwork: \"outputs_with_grads\" has 2, but only the outputs 0 to 1 are views of states"},
      {"OutputsWithGradsNegative", set_int("outputs_with_grads", 1, -1),
       "RecurrentNetwork: \"outputs_with_grads\" has -1, but only the outputs 0 to 1 are views of states"},
      {"OutputsInAnotherOrder", both(set_string("alias_dst", 0, "h_last"), set_string("alias_dst", 1, "h_all")),
       "RecurrentNetwork: \"outputs_with_grads\" has 0, but output 0 is not \"h_last\", which \"alias_dst\" has there"},
      {"NoOutputWithGrads", [](NetDef& net) { arg_of(net, "outputs_with_grads").clear_ints(); },
       "RecurrentNetwork: the gradient of \"h_all\" is given, but \"outputs_with_grads\" does not have output 0"},
      {"BackwardLinkedTwice", set_string("backward_link_internal", 2, "s_grad"),
       "RecurrentNetwork: \"backward_link_internal\" links the step blob \"s_grad\" to two places\n"
       "  fix link each step blob once; let a Copy in the step net write the second"},
      {"BackwardLinkNowhere", set_string("backward_link_external", 2, "Y_grad"),
       "RecurrentNetworkGradient: \"backward_link_external\" names \"Y_grad\" for \"x_t_grad\", but there is no such "
       "blob. Did you mean \"X_grad\", \"p_grad\" or \"h0_grad\"?"},
      {"BackwardLinkIsAForwardLink", set_string("backward_link_internal", 2, "x_t"),
       "RecurrentNetworkGradient: \"backward_link_internal\" links \"x_t\", which \"link_internal\" links already"},
      {"BackwardOffsetNegative", set_int("backward_link_offset", 1, -1),
       "RecurrentNetwork: \"backward_link_offset\" of \"s_grad\" is -1; it must be from 0 to 2147483647"},
      {"BackwardOffsetTooLarge", set_int("backward_link_offset", 2, 1),
       "RecurrentNetworkGradient: the step blob \"x_t_grad\" is linked to rows 1 to 3 of a tensor double[3, 2, 3], "
       "which has only 3 rows"},
      {"BackwardOffsetsTooMany", add_int("backward_link_offset", 1),
       "RecurrentNetwork: arguments \"backward_link_internal\" and \"backward_link_offset\" must have the same length, "
       "but have 3 and 4"},
      {"NoStepNet", [](NetDef& net) { remove_arg(net, "step_net"); },
       "RecurrentNetwork: argument \"step_net\" (net) is missing: the net of one timestep, as a message or as protobuf "
       "text"},
      {"EmptyStepNet", with_step("step_net", {}),
       "RecurrentNetwork: no operator of the step net writes the state \"rnn/h_prev_states\"\n"
       "  fix link an output of the step net to it with offset 1"},
      {"NoBackwardStepNet", [](NetDef& net) { remove_arg(net, "backward_step_net"); },
       "RecurrentNetwork: it has no backward step net, so it only runs forward"},
      {"UnknownOperator", with_step("step_net", {"s = Sum(x_t, h_prev, p)", "h = Tanhh(s)"}),
       "Tanhh: there is no operator \"Tanhh\". Did you mean \"Tanh\" or \"Tan\"?"},
      {"UnknownOperatorBackward", with_step("backward_step_net", {"s_grad = TanhGradien(h, h_grad)"}),
       "TanhGradien: there is no operator \"TanhGradien\". Did you mean \"TanhGradient\"?"},
      {"UnknownBlob", with_step("step_net", {"s = Sum(x_t, h_prev, q)", "h = Tanh(s)"}),
       "Sum: the step net reads \"q\", but no operator in it writes that, no link shows it, and no blob outside has "
       "that name."},
      {"UnknownBlobBackward", with_step("backward_step_net", {"s_grad = TanhGradient(hh, h_grad)"}),
       "TanhGradient: the step net reads \"hh\", but no operator in it writes that, no link shows it, and no blob "
       "outside has that name. Did you mean \"h0\"?"},
      {"ReadBeforeWritten", with_step("step_net", wrong_order),
       "Tanh: the step net reads \"s\" before an operator writes it"},
      {"OperatorOnBlobs", with_step("step_net", {"h = Tanh(h_prev)", "m = CreateMutex()"}),
       "CreateMutex works on blobs and cannot stand in a step net"},
      {"WritesTheTimestep", with_step("step_net", {"timestep = Tanh(x_t)", "h = Tanh(h_prev)"}),
       "Tanh: the step net writes \"timestep\", which it has only to read"},
      {"WritesAParameter", with_step("step_net", {"h = Sum(x_t, p)", "p = Tanh(h_prev)"}),
       "Sum: the step net reads \"p\" before an operator writes it"},
      {"WritesTheSequenceUnderAnotherName",
       with_step("step_net", {"a = Alias(x_t)", "a = Add(a, h_prev)", "h = Tanh(a)"}),
       "Add: the step net writes \"a\", which it has only to read because it is another name of \"x_t\""},
      {"WritesAParameterUnderAnotherName",
       with_step("step_net", {"a = Alias(p)", "a = Tanh(a)", "s = Sum(x_t, h_prev, a)", "h = Tanh(s)"}),
       "Tanh: the step net writes \"a\", which it has only to read because it is another name of \"p\""},
      {"WritesTheStateInAnotherShape", with_step("step_net", {"h = SumElements(h_prev)"}),
       "SumElements: \"h\" is linked to rows of double[4, 2, 3], one timestep of which is double[1, 2, 3], but the "
       "step net makes it double[]"},
      {"MisspeltArgument", add_arg(make_arg("link_offsets", std::vector<int64_t>{})),
       "RecurrentNetwork has no argument \"link_offsets\". Did you mean \"link_offset\"?"},
      {"WrongFieldOfAnArgument", [](NetDef& net) { arg_of(net, "param").clear_ints(), arg_of(net, "param").set_i(2); },
       "RecurrentNetwork: argument \"param\" is ints, read from the field \"ints\", but it has i\n"
       "  fix write arg { name: \"param\" ints: ... }"},
  };
}

class FullForms : public ::testing::TestWithParam<BadNet> {};

TEST_P(FullForms, AreRefused) {
  NetDef net = load_net(kFolder + "sum_cell_full.pbtxt");
  run_all(net);
  GetParam().change(net);
  EXPECT_EQ(error_of_net(net), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(SpecErrors, FullForms, ::testing::ValuesIn(bad_full_forms()),
                         [](const auto& info) { return info.param.name; });

std::vector<BadNet> bad_short_forms() {
  auto state = [](const std::function<void(StateLink&)>& change) {
    return [=](NetDef& net) { change(*net.mutable_op(0)->MutableExtension(recurrent)->mutable_state(0)); };
  };
  auto def = [](const std::function<void(RecurrentDef&)>& change) {
    return [=](NetDef& net) { change(*net.mutable_op(0)->MutableExtension(recurrent)); };
  };
  auto step = [](const Lines& lines) {
    return [=](NetDef& net) {
      *net.mutable_op(0)->MutableExtension(recurrent)->mutable_step_net()->mutable_op() = net_of_lines(lines).op();
    };
  };
  return {
      {"NothingWritesTheState", state([](StateLink& s) { s.set_output("hh"); }),
       "RecurrentNetwork: no operator of the step net writes \"hh\", the output of state \"h_prev\"."},
      {"StateWithoutInitial", state([](StateLink& s) { s.set_initial("h00"); }),
       "RecurrentNetwork: the initial value of state \"h_prev\", \"h00\" is no input of the operator. Did you mean "
       "\"h0\"?"},
      {"ViewIsNoOutput", state([](StateLink& s) { s.set_all("h_al"); }),
       "RecurrentNetwork: \"h_al\", a view of a state, is no output of the operator. Did you mean \"h_all\"?"},
      {"OneViewTwice", state([](StateLink& s) { s.set_last("h_all"); }),
       "RecurrentNetwork: the output \"h_all\" is the view of two states"},
      {"OutputIsNoView", state([](StateLink& s) { s.clear_last(); }),
       "RecurrentNetwork: the output \"h_last\" is the \"all\" or \"last\" of no state"},
      {"NoState", def([](RecurrentDef& d) { d.clear_state(); }),
       "RecurrentNetwork: the short form needs at least one state"},
      {"OneStateTwice", def([](RecurrentDef& d) {
         *d.add_state() = d.state(0), d.mutable_state(1)->clear_all(), d.mutable_state(1)->clear_last();
       }),
       "RecurrentNetwork: the step net's input \"h_prev\" is given twice, as a state too"},
      {"NoSequence", def([](RecurrentDef& d) { d.clear_sequence(); }),
       "RecurrentNetwork: the short form needs at least one sequence"},
      {"OneSequenceTwice", def([](RecurrentDef& d) { *d.add_sequence() = d.sequence(0); }),
       "RecurrentNetwork: the sequence \"X\" is given twice\n"
       "  fix let the step net read one input where it needs it"},
      {"UnknownSequence", def([](RecurrentDef& d) { d.mutable_sequence(0)->set_outer("x"); }),
       "RecurrentNetwork: the sequence \"x\" is no input of the operator. Did you mean \"X\"?"},
      {"SequenceIsTheTimestep", def([](RecurrentDef& d) { d.set_timestep("x_t"); }),
       "RecurrentNetwork: the step net's input \"x_t\" is given twice, as a timestep too"},
      {"NeitherInitialNorSize", state([](StateLink& s) { s.clear_initial(); }),
       "RecurrentNetwork: the state \"h_prev\" starts at zero, but nothing says what it is like\n"
       "  fix give its dimensions after the batch's, as in \"size: 128\", or an initial value"},
      {"BothInitialAndSize", state([](StateLink& s) { s.add_size(3); }),
       "RecurrentNetwork: the state \"h_prev\" has both \"initial\" and \"size\""},
      {"NegativeSize", state([](StateLink& s) { s.clear_initial(), s.add_size(-3); }),
       "RecurrentNetwork: the state \"h_prev\" has the size -3, which is negative"},
      {"TooManySizes", state([](StateLink& s) {
         s.clear_initial();
         for (int i = 0; i < 7; ++i) s.add_size(1);
       }),
       "RecurrentNetwork: the state \"h_prev\" has 7 sizes, more than the 6 that fit a tensor beside T and B"},
      {"LengthsAreNoInput", def([](RecurrentDef& d) { d.set_lengths("length"); }),
       "RecurrentNetwork: the sequence lengths \"length\" is no input of the operator."},
      {"OutputIsNoOutput", def([](RecurrentDef& d) {
         OutputLink& o = *d.add_output();
         o.set_inner("s"), o.set_outer("S");
       }),
       "RecurrentNetwork: \"S\", which is to show \"s\", is no output of the operator."},
      {"OutputIsAView", def([](RecurrentDef& d) {
         OutputLink& o = *d.add_output();
         o.set_inner("s"), o.set_outer("h_all");
       }),
       "RecurrentNetwork: the output \"h_all\" is given twice"},
      {"OutputOfNothing",
       [](NetDef& net) {
         OperatorDef& op = *net.mutable_op(0);
         OutputLink& o = *op.MutableExtension(recurrent)->add_output();
         o.set_inner("ss"), o.set_outer("S"), op.add_output("S");
       },
       "RecurrentNetwork: no operator of the step net writes \"ss\", which \"S\" is to show."},
      {"RecomputesWhatItDoesNotMake", def([](RecurrentDef& d) { d.add_recompute("t"); }),
       "RecurrentNetwork: \"recompute\" names \"t\", which the step net does not write."},
      {"UnknownOperator", step({"s = Sun(x_t, h_prev, p)", "h = Tanh(s)"}),
       "Sun: there is no operator \"Sun\". Did you mean \"Sin\", \"Sub\" or \"Sum\"?"},
      {"UnknownBlob", step({"s = Sum(x_t, h_prev, pp)", "h = Tanh(s)"}),
       "RecurrentNetwork: the input \"pp\" is written by no earlier operator and is no external input."},
      {"ReadBeforeWritten", step({"h = Tanh(s)", "s = Sum(x_t, h_prev, p)"}),
       "Tanh: the step net reads \"s\" before an operator writes it\n"
       "  fix make it a state if it is the value of the timestep before"},
      {"WritesItsInput", step({"x_t = Sum(x_t, h_prev, p)", "h = Tanh(x_t)"}),
       "RecurrentNetwork: the step net writes its own input \"x_t\", a sequence"},
      {"NotDifferentiable", step({"s = Sum(x_t, h_prev, p)", "a, b, c = RmsProp(s, s, s, s)", "h = Sum(a, s)"}),
       "RmsProp has no gradient with respect to its input \"s\": it changes gradients on their way to the parameter\n"
       "  fix put a StopGradient before it, or leave that blob out of what is wanted"},
      {"OperatorOnBlobs", step({"m = CreateMutex()", "h = Tanh(h_prev)"}),
       "CreateMutex works on blobs and cannot stand in a step net"},
      {"BothForms", [](NetDef& net) { *net.mutable_op(0)->add_arg() = make_arg("step_net", NetDef()); },
       "RecurrentNetwork: the operator has both a short form and the argument \"step_net\""},
  };
}

class ShortForms : public ::testing::TestWithParam<BadNet> {};

TEST_P(ShortForms, AreRefused) {
  NetDef net = load_net(kFolder + "sum_cell.pbtxt");
  GetParam().change(net);
  EXPECT_EQ(told(error_of([&] {
              expand_recurrent(net);
              run_all(net);
            })),
            GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(SpecErrors, ShortForms, ::testing::ValuesIn(bad_short_forms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::spec_errors_test
