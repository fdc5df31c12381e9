// Arguments of the public format that an operator does not read: accepted in silence, or refused with a message that
// says where and what it would do; any other name is a warning with the nearest names, also in nets inside a net.
#include "core/operator/arg_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/gradcheck/input_text.h"
#include "stepnet/error.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"

namespace stepnet::testing::arg_names_test {
namespace {

using Strings = std::vector<std::string>;

NetDef net_with(const std::string& op) { return parse_net_text("name: \"n\"\n" + op, "net.pbtxt"); }

Strings warnings_of(const std::string& op) {
  Strings warnings;
  check_net(net_with(op), nullptr, &warnings);
  return warnings;
}

std::string refusal_of(const std::string& op) {
  return error_text([&] { check_net(net_with(op), nullptr); });
}

std::string loss_with(const std::string& arg) {
  return "op { type: 'SoftmaxWithLoss' input: 'x' input: 't' output: 'p' output: 'loss'\n arg { " + arg + " } }";
}

std::string table_step(const std::string& type, const std::string& args) {
  return "op { type: '" + type + "' input: 'w' input: 'm' input: 'i' input: 'g' input: 'lr' output: 'w' output: 'm' " +
         args + " }";
}

TEST(ArgNames, WhatWouldChangeAResultIsRefused) {
  EXPECT_EQ(refusal_of(loss_with("name: 'average_by_batch_size' i: 1")),
            "SoftmaxWithLoss: the argument \"average_by_batch_size\" is not implemented: it would divide the loss by "
            "the number of rows, not by their weights' sum\n"
            "  in  net.pbtxt:2:1, operator 0 of net \"n\"\n"
            "  op  p, loss = SoftmaxWithLoss(x, t)\n"
            "  fix leave it out, or set it to 0, with which it does nothing");
  expect_contains(refusal_of(loss_with("name: 'order' s: 'NHWC'")), "or set it to \"NCHW\", with which");
  expect_contains(refusal_of(table_step("SparseAdagrad", "arg { name: 'decay' f: 0.5 }")), "set it to 1, with which");
  expect_contains(refusal_of("op { type: 'Save' input: 'w' arg { name: 'options' s: 'x' } }"), "in bfloat16");
  // Without a value, or with one in another field, it is not the harmless one.
  expect_contains(refusal_of(loss_with("name: 'average_by_batch_size'")), "is not implemented");
  expect_contains(refusal_of(loss_with("name: 'average_by_batch_size' s: '0'")), "is not implemented");
}

TEST(ArgNames, TheValueThatDoesNothingIsAccepted) {
  for (const char* arg :
       {"name: 'average_by_batch_size' i: 0", "name: 'average_by_batch_size' f: 0", "name: 'order' s: 'NCHW'"})
    EXPECT_EQ(warnings_of(loss_with(arg)), Strings()) << arg;
  EXPECT_EQ(warnings_of(table_step("RowWiseSparseAdagrad",
                                   "arg { name: 'weight_decay' f: 0 } arg { name: 'counter_halflife' i: -1 }")),
            Strings());
  EXPECT_EQ(warnings_of(table_step("SparseAdagrad", "arg { name: 'decay' f: 1 }")), Strings());
}

TEST(ArgNames, WhatChangesNoResultIsAcceptedInSilence) {
  const Strings ops = {
      "op { type: 'FC' input: 'x' input: 'w' input: 'b' output: 'y' arg { name: 'float16_compute' i: 1 } }",
      "op { type: 'Relu' input: 'x' output: 'y' arg { name: 'ws_nbytes_limit' i: 67108864 } arg { name: 'use_cudnn' } "
      "}",
      "op { type: 'Add' input: 'x' input: 'w' output: 'y' arg { name: 'use_grad_hack' i: 1 } }",
      "op { type: 'Concat' input: 'x' output: 'y' output: 'sizes' arg { name: 'axis' i: 1 } arg { name: 'split' ints: "
      "2 } }",
      "op { type: 'ResizeLike' input: 'x' input: 'w' output: 'y' arg { name: 'axis' i: 2 } }",
      "op { type: 'ReluGradient' input: 'y' input: 'dy' output: 'dx' arg { name: 'broadcast' i: 0 } }",
      "op { type: 'ConstantFill' output: 'y' arg { name: 'values' f: 0 } }"};
  for (const std::string& op : ops) EXPECT_EQ(warnings_of(op), Strings()) << op;
}

TEST(ArgNames, AnyOtherNameIsAWarningWithTheNearestNames) {
  EXPECT_EQ(
      warnings_of("op { type: 'FC' input: 'x' input: 'w' input: 'b' output: 'y' arg { name: 'axes_of_w' i: 1 } }"),
      Strings{"net.pbtxt:2:1: FC has no argument \"axes_of_w\". It has \"axis_w\", \"axis\". It is ignored."});
  EXPECT_EQ(warnings_of("op { type: 'Relu' input: 'x' output: 'y' arg { name: 'something_else' i: 1 } }"),
            Strings{"net.pbtxt:2:1: Relu has no argument \"something_else\". It has none. It is ignored."});
  EXPECT_EQ(warnings_of("op { type: 'Relu' input: 'x' output: 'y' arg { name: 'use_cuddn' i: 1 } }"),
            Strings{"net.pbtxt:2:1: Relu has no argument \"use_cuddn\". Did you mean \"use_cudnn\"? It is ignored."});
  const Strings many = warnings_of(
      "op { type: 'LSTMUnit' input: 'h' input: 'c' input: 'g' input: 'n' input: 't' "
      "output: 'h2' output: 'c2' arg { name: 'activated_gates_too' i: 1 } }");
  ASSERT_EQ(many.size(), 1U);
  expect_contains(many[0], "The nearest that it has are \"activated_gates\", ");
}

// What was meant would have changed the result.
TEST(ArgNames, AMisspellingOfWhatMattersIsAnError) {
  expect_contains(refusal_of("op { type: 'Softmax' input: 'x' output: 'y' arg { name: 'axes' i: 1 } }"),
                  "Softmax has no argument \"axes\". Did you mean \"axis\"?\n  in  net.pbtxt:2:1");
  expect_contains(refusal_of(loss_with("name: 'average_by_batchsize' i: 1")),
                  "Did you mean \"average_by_batch_size\"?");
}

std::string step_net(const std::string& arg) {
  return "op { type: 'Add' input: 'x_t' input: 'h_prev' output: 'h' arg { " + arg + " } }";
}

std::string network(const std::string& step) {
  return "op { type: 'RecurrentNetwork' input: 'x' input: 'h0' output: 'h_all' arg { name: 'recurrent_states' "
         "strings: 'h_states' } arg { name: 'initial_recurrent_state_ids' ints: 1 } arg { name: 'link_internal' "
         "strings: 'h_prev' strings: 'h' strings: 'x_t' } arg { name: 'link_external' strings: 'h_states' strings: "
         "'h_states' strings: 'x' } arg { name: 'link_offset' ints: 0 ints: 1 ints: 0 } arg { name: 'alias_src' "
         "strings: 'h_states' } arg { name: 'alias_dst' strings: 'h_all' } arg { name: 'alias_offset' ints: 1 }\n" +
         step + " }";
}

TEST(ArgNames, NetsInsideANetAreChecked) {
  const std::string unknown = step_net("name: 'something_else' i: 1");
  const std::string warning = "Add has no argument \"something_else\". The nearest that it has are ";
  const Strings as_message = warnings_of(network("arg { name: 'step_net' n { " + unknown + " } }"));
  ASSERT_EQ(as_message.size(), 1U);
  EXPECT_TRUE(as_message[0].starts_with("net.pbtxt:3:28: " + warning)) << as_message[0];
  const Strings as_text = warnings_of(network("arg { name: 'step_net' s: \"" + unknown + "\" }"));
  ASSERT_EQ(as_text.size(), 1U);
  EXPECT_TRUE(as_text[0].starts_with("net.pbtxt:3:")) << as_text[0];
  const std::string condition = "op { type: 'If' input: 'c' arg { name: 'then_net' n { " +
                                loss_with("name: 'average_by_batch_size' i: 1") + " } } }";
  expect_contains(refusal_of(condition), "is not implemented");
  // As bytes that no loader has read: text in an argument.
  NetDef raw = net_with(network(""));
  Argument* step = raw.mutable_op(0)->add_arg();
  step->set_name("step_net");
  step->set_s(unknown);
  Strings warnings;
  check_arg_names(raw, &warnings);
  ASSERT_EQ(warnings.size(), 1U);
  expect_contains(warnings[0], warning);
}

TEST(ArgNames, NetsInShortFormAreChecked) {
  const NetDef net = net_with(
      "op { type: 'RecurrentNetwork' input: 'x' output: 'h_all' [stepnet.recurrent] { sequence { "
      "outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' all: 'h_all' size: 2 } "
      "step_net { " +
      step_net("name: 'something_else' i: 1") +
      " } } } [stepnet.model] { init { op { type: 'XavierFill' output: 'w' arg { name: "
      "'shape' ints: 2 ints: 2 } arg { name: 'another_one' i: 1 } } } }");
  Strings warnings;
  check_arg_names(net, &warnings);
  ASSERT_EQ(warnings.size(), 2U);
  expect_contains(warnings[0], "Add has no argument \"something_else\"");
  expect_contains(warnings[1], "XavierFill has no argument \"another_one\"");
}

TEST(ArgNames, EachIsRegisteredOnce) {
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    std::set<std::string> names;
    for (const ArgSpec& a : spec.args) EXPECT_TRUE(names.insert(a.name).second) << type << " " << a.name;
    for (const AcceptedArg& a : spec.accepted_args) {
      EXPECT_TRUE(names.insert(a.name).second) << type << " " << a.name;
      EXPECT_TRUE(std::ranges::none_of(common_args(), [&](const AcceptedArg& c) { return c.name == a.name; }))
          << type << " " << a.name;
    }
    for (const RefusedArg& a : spec.refused_args) {
      EXPECT_TRUE(names.insert(a.name).second) << type << " " << a.name;
      EXPECT_TRUE(a.would.starts_with("would ")) << type << " " << a.name;
    }
  }
}

// An operator with what an example gives it, and with all that it accepts beside that.
OperatorDef call_with_all(const OpSpec& spec, const OpExample& example) {
  OperatorDef def;
  def.set_type(spec.type);
  for (const std::string& text : example.args) *def.add_arg() = parse_arg(spec, text);
  for (const AcceptedArg& a : spec.accepted_args)
    if (a.name.find('*') == std::string::npos) *def.add_arg() = make_arg(a.name, 1);
  for (const RefusedArg& a : spec.refused_args)
    if (a.harmless) *def.add_arg() = *a.harmless;
  const auto is_given = [&](const ParamSpec& p) {
    return std::ranges::any_of(example.inputs, [&](const std::string& text) { return text.starts_with(p.name); });
  };
  for (const ParamSpec& p : spec.inputs) def.add_input(is_given(p) ? p.name : "");
  for (const ParamSpec& p : spec.outputs) def.add_output(p.name);
  return def;
}

// The steps of the gradient of one input; none if it is not there or has no gradient.
std::vector<GradientProgram::Step> gradient_steps(const OpSpec& spec, const OperatorDef& def, size_t input) {
  if (def.input(static_cast<int>(input)).empty()) return {};
  std::vector<bool> wanted(spec.inputs.size(), false);
  wanted[input] = true;
  try {
    const auto args = parse_args(spec, def);
    return record_gradient(spec, def, args.get(), wanted, std::vector<bool>(spec.outputs.size(), true)).steps;
  } catch (const Error&) {
    return {};
  }
}

// A net that is accepted would otherwise be warned of when its gradients are there.
TEST(ArgNames, OperatorsOfGradientsKnowWhatTheyAreGiven) {
  int given = 0;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    if (spec.derivatives.empty()) continue;
    for (const OpExample& example : spec.examples) {
      if (!example.net.empty()) continue;
      const OperatorDef def = call_with_all(spec, example);
      for (size_t i = 0; i < spec.inputs.size(); ++i)
        for (const GradientProgram::Step& step : gradient_steps(spec, def, i))
          for (const Argument& arg : step.args) {
            ++given;
            EXPECT_EQ(check_arg_name(op_spec(step.type), arg), "") << type;
          }
    }
  }
  EXPECT_GT(given, 100);
}

}  // namespace
}  // namespace stepnet::testing::arg_names_test
