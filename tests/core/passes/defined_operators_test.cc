// Operators that a net defines in text: what their uses become, beside nets with the operators written out.
#include "core/passes/defined_operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/net/expansions.h"
#include "stepnet/gradient_check.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"
#include "tools/source_path.h"

namespace stepnet::testing::defined_operators_test {
namespace {

// SwishOf(x, beta) -> y: y = x * sigmoid(beta * x).
constexpr const char* kSwish = R"(
  nets { name: 'SwishOf' external_input: 'x' external_input: 'beta' external_output: 'y'
         op { type: 'Mul' input: 'x' input: 'beta' output: 's' arg { name: 'broadcast' i: 1 } }
         op { type: 'Sigmoid' input: 's' output: 't' }
         op { type: 'Mul' input: 'x' input: 't' output: 'y' } })";

std::string with_definitions(const std::string& definitions, const std::string& ops) {
  return "name: 'net' arg { name: 'stepnet.operators' " + definitions + " }\n" + ops;
}

NetDef expanded(const std::string& text) {
  NetDef net = parse_net_text(text, "net.pbtxt");
  expand_net(net);
  return net;
}

NetDef expanded(const std::string& definitions, const std::string& ops) {
  return expanded(with_definitions(definitions, ops));
}

std::string refusal(const std::string& definitions, const std::string& ops = "") {
  return error_text([&] { expanded(definitions, ops); });
}

std::map<std::string, Tensor> run(const NetDef& net, const Feeds& feeds) {
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext context;
  run_net_once(net, workspace, context);
  std::map<std::string, Tensor> blobs;
  for (const std::string& name : workspace.names())
    if (const Blob* blob = workspace.find(name); blob && blob->is_tensor() && !blob->empty())
      blobs[name] = blob->tensor().clone();
  return blobs;
}

void expect_equal(const NetDef& net, const NetDef& other, const Feeds& feeds, const std::vector<std::string>& blobs) {
  const auto made = run(net, feeds), right = run(other, feeds);
  for (const std::string& name : blobs) {
    ASSERT_EQ(made.count(name), 1U) << name << "\n" << to_text(net);
    EXPECT_EQ(compare(made.at(name), right.at(name), 0), "") << name << "\n" << to_text(net);
  }
}

std::string check_derivatives(const NetDef& net, const Feeds& feeds, const std::vector<std::string>& outputs,
                              const std::vector<std::string>& inputs) {
  GradientSubject subject{net, {}, outputs, inputs, {}, {}};
  for (const auto& [name, value] : feeds) subject.feeds[name] = value;
  GradientCheckOptions options;
  options.order = 3;
  std::string text = check_gradients(subject, options).str();
  options.forward = true;
  options.order = 2;
  return text + check_gradients(subject, options).str();
}

Feeds three() {
  return {{"a", normal<double>({2, 3})}, {"b", normal<double>({3}, 2)}, {"c", normal<double>({2, 3}, 3)}};
}

TEST(DefinedOperators, BecomeTheOperatorsOfTheirDefinition) {
  const NetDef net = expanded(kSwish,
                              "op { type: 'SwishOf' input: 'a' input: 'b' output: 'h' } "
                              "op { type: 'SwishOf' input: 'h' input: 'b' output: 'y' }");
  EXPECT_EQ(lines_of(net),
            (Lines{"SwishOf.h/s = Mul(a, b)", "SwishOf.h/t = Sigmoid(SwishOf.h/s)", "h = Mul(a, SwishOf.h/t)",
                   "SwishOf.y/s = Mul(h, b)", "SwishOf.y/t = Sigmoid(SwishOf.y/s)", "y = Mul(h, SwishOf.y/t)"}));
  EXPECT_EQ(net.arg_size(), 0);
}

const Lines kByHand = {"s1 = Mul(a, b) broadcast=1", "t1 = Sigmoid(s1)", "h = Mul(a, t1)",
                       "s2 = Mul(h, b) broadcast=1", "t2 = Sigmoid(s2)", "y = Mul(h, t2)"};
constexpr const char* kTwoUses = R"(
  op { type: 'SwishOf' input: 'a' input: 'b' output: 'h' }
  op { type: 'SwishOf' input: 'h' input: 'b' output: 'y' })";

TEST(DefinedOperators, EqualOperatorsWrittenOut) {
  expect_equal(expanded(kSwish, kTwoUses), net_of_lines(kByHand), three(), {"h", "y"});
}

TEST(DefinedOperators, HaveTheGradientsOfOperatorsWrittenOut) {
  NetDef net = expanded(kSwish, kTwoUses), other = net_of_lines(kByHand);
  std::string target = "y";
  for (int order = 1; order <= 3; ++order) {
    std::string made, right;
    for (NetDef* of : {&net, &other}) {
      const GradientResult result =
          add_gradient_operators(*of, {.targets = {{target, ""}}, .wanted = {"a", "b"}, .stop = {}});
      (of == &net ? made : right) = result.gradients.at("a").dense;
    }
    ASSERT_EQ(made, right);
    expect_equal(net, other, three(), {made});
    target = made;
  }
}

TEST(DefinedOperators, AreDifferentiatedInAllWays) {
  EXPECT_EQ(check_derivatives(expanded(kSwish, kTwoUses), three(), {"y"}, {"a", "b"}), "");
}

// --- Definitions that use definitions, and nets in nets ----------------------------------------------------------

TEST(DefinedOperators, UseThoseBeforeThem) {
  const std::string twice = R"(
    nets { name: 'Twice' external_input: 'u' external_input: 'v' external_output: 'w'
           op { type: 'SwishOf' input: 'u' input: 'v' output: 's' }
           op { type: 'SwishOf' input: 's' input: 'v' output: 'w' } })";
  const NetDef net = expanded(kSwish + twice, "op { type: 'Twice' input: 'a' input: 'b' output: 'y' }");
  EXPECT_EQ(lines_of(net)[0], "Twice.y/SwishOf.s/s = Mul(a, b)");
  EXPECT_EQ(lines_of(net)[2], "Twice.y/s = Mul(a, Twice.y/SwishOf.s/t)");
  expect_equal(net, net_of_lines(kByHand), three(), {"y"});
  EXPECT_EQ(check_derivatives(net, three(), {"y"}, {"a", "b"}), "");
}

TEST(DefinedOperators, StandInNetsOfOperators) {
  const NetDef net = expanded(kSwish, R"(
    op { type: 'If' input: 'on' input: 'a' input: 'b' output: 'y'
         arg { name: 'then_net' n { op { type: 'SwishOf' input: 'a' input: 'b' output: 'y' } } }
         arg { name: 'else_net' n { op { type: 'SwishOf' input: 'b' input: 'b' output: 'y' } } } })");
  Feeds feeds = three();
  feeds.emplace_back("on", Tensor::of<bool>({1}, {true}));
  expect_equal(net, net_of_lines({"s = Mul(a, b) broadcast=1", "t = Sigmoid(s)", "y = Mul(a, t)"}), feeds, {"y"});
}

// A net inside may have definitions of its own.
TEST(DefinedOperators, AreThoseOfTheNetsAround) {
  const NetDef net = expanded(kSwish, R"(
    op { type: 'If' input: 'on' input: 'a' input: 'b' output: 'y'
         arg { name: 'then_net' n {
           arg { name: 'stepnet.operators' nets { name: 'Own' external_input: 'x' external_output: 'y'
                                                  op { type: 'SwishOf' input: 'x' input: 'x' output: 'y' } } }
           op { type: 'Own' input: 'a' output: 'y' } } } })");
  Feeds feeds = three();
  feeds.emplace_back("on", Tensor::of<bool>({1}, {true}));
  expect_equal(net, net_of_lines({"s = Mul(a, a)", "t = Sigmoid(s)", "y = Mul(a, t)"}), feeds, {"y"});
  expect_contains(refusal(kSwish, "op { type: 'Own' input: 'a' output: 'y' }"), "no operator \"Own\"");
}

TEST(DefinedOperators, GoThroughFiles) {
  const std::string text = with_definitions(kSwish, kTwoUses);
  const NetDef net = parse_net_text(text, "net.pbtxt");
  NetDef again = parse_net_text(to_text(net), "again.pbtxt");
  EXPECT_EQ(to_text(again).find("source"), std::string::npos);
  expand_net(again);
  expect_equal(again, net_of_lines(kByHand), three(), {"h", "y"});
  EXPECT_EQ(to_text(expanded(to_text(net))).find("net_source"), std::string::npos);
}

// --- What a use means --------------------------------------------------------------------------------------------

constexpr const char* kPair = R"(
  nets { name: 'Pair' external_input: 'x' external_input: 'y' external_output: 'p' external_output: 'q'
         op { type: 'Add' input: 'x' input: 'y' output: 'p' }
         op { type: 'Sub' input: 'x' input: 'y' output: 'q' } })";

TEST(DefinedOperators, ReadAllInputsBeforeTheyWrite) {
  const NetDef right = net_of_lines({"p = Add(a, c)", "q = Sub(a, c)"});
  for (const auto& [outputs, p, q] : {std::tuple{"output: 'a' output: 'c'", "a", "c"},
                                      {"output: 'c' output: 'a'", "c", "a"},
                                      {"output: 'a' output: 'z'", "a", "z"}}) {
    const NetDef net = expanded(kPair, fmt::format("op {{ type: 'Pair' input: 'a' input: 'c' {} }}", outputs));
    const auto made = run(net, three()), expected = run(right, three());
    EXPECT_EQ(compare(made.at(p), expected.at("p"), 0), "") << outputs;
    EXPECT_EQ(compare(made.at(q), expected.at("q"), 0), "") << outputs;
  }
}

TEST(DefinedOperators, MayBeGivenABlobTwice) {
  expect_equal(expanded(kPair, "op { type: 'Pair' input: 'a' input: 'a' output: 'p' output: 'q' }"),
               net_of_lines({"p = Add(a, a)", "q = Sub(a, a)"}), three(), {"p", "q"});
}

TEST(DefinedOperators, MayHaveOutputsThatNobodyNeeds) {
  const NetDef net = expanded(kPair, "op { type: 'Pair' input: 'a' input: 'c' output: '' output: 'q' }");
  EXPECT_EQ(lines_of(net), (Lines{"Pair.q/p = Add(a, c)", "q = Sub(a, c)"}));
}

// An output that is an input, as it is or written in place.
TEST(DefinedOperators, PassInputsThrough) {
  const char* const swap = R"(
    nets { name: 'Swap' external_input: 'x' external_input: 'y' external_output: 'y' external_output: 'x' })";
  const auto made = run(expanded(swap, "op { type: 'Swap' input: 'a' input: 'c' output: 'a' output: 'c' }"), three());
  EXPECT_EQ(compare(made.at("a"), three()[2].second, 0), "");
  EXPECT_EQ(compare(made.at("c"), three()[0].second, 0), "");
  const NetDef net = expanded(swap,
                              "op { type: 'Swap' input: 'a' input: 'c' output: 'p' output: 'q' } "
                              "op { type: 'Relu' input: 'p' output: 'p' }");
  expect_equal(net, net_of_lines({"q = Copy(a)", "p = Relu(c)", "keep = Copy(c)"}), three(), {"p", "q", "c"});
}

TEST(DefinedOperators, LeaveTheirInputsAsTheyAre) {
  const char* const inside = R"(
    nets { name: 'Inside' external_input: 'x' external_output: 'y' external_output: 'x'
           op { type: 'Reshape' input: 'x' output: 'r' output: '' arg { name: 'shape' ints: 6 } }
           op { type: 'Tanh' input: 'r' output: 'r' }
           op { type: 'Negative' input: 'r' output: 'y' }
           op { type: 'Sigmoid' input: 'x' output: 'x' } })";
  const NetDef net = expanded(inside, "op { type: 'Inside' input: 'a' output: 'y' output: 'z' }");
  EXPECT_EQ(lines_of(net)[0], "Inside.y/x = Copy(a)");
  const auto made = run(net, three());
  EXPECT_EQ(compare(made.at("a"), three()[0].second, 0), "");
  const NetDef in_place = expanded(inside, "op { type: 'Inside' input: 'a' output: 'y' output: 'a' }");
  EXPECT_EQ(compare(run(in_place, three()).at("a"), made.at("z"), 0), "");
  EXPECT_EQ(compare(run(in_place, three()).at("y"), made.at("y"), 0), "");
}

// Gradients inside a definition are by its inputs, as of any operator, whatever these depend on outside.
TEST(DefinedOperators, HaveGradientsByTheirInputs) {
  const char* const slope = R"(
    nets { name: 'Slope' external_input: 'x' external_input: 'y' external_output: 'd'
           op { type: 'Mul' input: 'x' input: 'y' output: 'l' }
           op { type: 'Gradients' input: 'l' input: 'x' output: 'd' } })";
  const NetDef net = expanded(slope,
                              "op { type: 'Sin' input: 'a' output: 's' } "
                              "op { type: 'Slope' input: 'a' input: 's' output: 'd' } "
                              "op { type: 'Slope' input: 'a' input: 'a' output: 'e' }");
  const auto made = run(net, three());
  EXPECT_EQ(compare(made.at("d"), made.at("s"), 0), "");
  EXPECT_EQ(compare(made.at("e"), three()[0].second, 0), "");
  EXPECT_EQ(check_derivatives(net, three(), {"d", "e"}, {"a"}), "");
}

// The prefix is one that nothing has.
TEST(DefinedOperators, HaveNamesOfTheirOwn) {
  const NetDef net = expanded(kSwish, R"(
    op { type: 'Sin' input: 'a' output: 'SwishOf.y/s' }
    op { type: 'SwishOf' input: 'a' input: 'b' output: 'y' }
    op { type: 'SwishOf' input: 'y' input: 'b' output: 'y' }
    op { type: 'Add' input: 'y' input: 'SwishOf.y/s' output: 'z' })");
  const Lines by_hand = {"k = Sin(a)",
                         "s1 = Mul(a, b) broadcast=1",
                         "t1 = Sigmoid(s1)",
                         "y1 = Mul(a, t1)",
                         "s2 = Mul(y1, b) broadcast=1",
                         "t2 = Sigmoid(s2)",
                         "y = Mul(y1, t2)",
                         "z = Add(y, k)"};
  expect_equal(net, net_of_lines(by_hand), three(), {"y", "z"});
}

TEST(DefinedOperators, HandOnWhatAUseSays) {
  const NetDef net = expanded(kSwish,
                              "op { type: 'SwishOf' input: 'a' input: 'b' output: 'y' control_input: 'c' "
                              "device_option { device_type: 0 device_id: 3 } }");
  for (const OperatorDef& op : net.op()) {
    EXPECT_EQ(op.device_option().device_id(), 3);
    EXPECT_EQ(op.control_input(0), "c");
  }
}

// --- Arguments ---------------------------------------------------------------------------------------------------

constexpr const char* kLeaky = R"(
  nets { name: 'Leaky' external_input: 'x' external_output: 'y'
         arg { name: 'slope' f: 0.25 } arg { name: 'factor' }
         op { type: 'LeakyRelu' input: 'x' output: 'l' arg { name: 'alpha' s: '$slope' } }
         op { type: 'Scale' input: 'l' output: 'y' arg { name: 'scale' s: '$factor' } } }
  nets { name: 'Outer' external_input: 'x' external_output: 'y'
         arg { name: 'slope' f: 0.5 }
         op { type: 'Leaky' input: 'x' output: 'y' arg { name: 'slope' s: '$slope' } arg { name: 'factor' f: 3 } } })";

TEST(DefinedOperators, HaveArguments) {
  const auto expect = [](const std::string& use, float alpha, float scale) {
    NetDef right;
    *right.add_op() = make_op("LeakyRelu", {"a"}, {"l"}, {make_arg("alpha", alpha)});
    *right.add_op() = make_op("Scale", {"l"}, {"y"}, {make_arg("scale", scale)});
    expect_equal(expanded(kLeaky, "op { input: 'a' output: 'y' " + use + " }"), right, three(), {"y"});
  };
  expect("type: 'Leaky' arg { name: 'factor' f: 2 }", 0.25F, 2);
  expect("type: 'Leaky' arg { name: 'slope' f: 0.125 } arg { name: 'factor' f: 2 }", 0.125F, 2);
  expect("type: 'Outer'", 0.5F, 3);
  expect("type: 'Outer' arg { name: 'slope' f: 1 }", 1, 3);
}

TEST(DefinedOperators, RefuseOtherArguments) {
  const auto text = [](const std::string& args) {
    return refusal(kLeaky, "op { type: 'Leaky' input: 'a' output: 'y' " + args + " }");
  };
  expect_contains(text(""), "the argument \"factor\" must be given");
  expect_contains(text("arg { name: 'slop' f: 1 }"), "has no argument \"slop\". Did you mean \"slope\"?");
  expect_contains(text("arg { name: 'factor' }"), "\"factor\" has no value");
  expect_contains(text("arg { name: 'factor' f: 1 } arg { name: 'factor' f: 2 }"), "\"factor\" is given twice");
  const NetDef net = expanded(kLeaky, "op { type: 'Leaky' input: 'a' output: 'y' arg { name: 'factor' s: 'much' } }");
  const std::string error = error_text([&] { run(net, three()); });
  expect_contains(error, "\"scale\"");
  expect_contains(error, "of the definition of Leaky (used at net.pbtxt:");
}

// --- What is refused ---------------------------------------------------------------------------------------------

std::string refused_definition(const std::string& inside) {
  return refusal("nets { name: 'Mine' external_input: 'x' external_output: 'y' " + inside + " }");
}

TEST(DefinedOperators, RefuseWrongDefinitions) {
  const std::string copy = "op { type: 'Copy' input: 'x' output: 'y' } ";
  expect_contains(refused_definition(""), "no operator writes the output \"y\"");
  expect_contains(refused_definition(copy + "external_input: 'x'"), "the input \"x\" is given twice");
  expect_contains(refused_definition(copy + "external_input: ''"), "an input has an empty name");
  expect_contains(refused_definition(copy + "external_output: 'y'"), "the output \"y\" is given twice");
  expect_contains(refused_definition(copy + "type: 'dag'"), "this one has a type");
  expect_contains(refused_definition(copy + "device_option { device_type: 1 }"), "this one has a device");
  expect_contains(refused_definition("op { type: 'Add' input: 'x' input: 'w' output: 'y' }"),
                  "it reads \"w\", which is no input of the definition");
  expect_contains(refused_definition("op { type: 'Cop' input: 'x' output: 'y' }"),
                  "no operator \"Cop\", and no definition of one. Did you mean \"Copy\"");
  expect_contains(refused_definition("op { type: 'Copy' input: 'x' output: 'y' output: 'z' }"), "output");
  expect_contains(refused_definition(copy + "arg { name: 'gradientnet' n { } }"), "from its argument \"gradientnet\"");
  expect_contains(refused_definition("op { type: 'Scale' input: 'x' output: 'y' arg { name: 'scale' s: '$k' } }"),
                  "called \"k\", but it has none");
  expect_contains(refused_definition("op { type: 'If' input: 'x' output: 'y' arg { name: 'then_net' n { } } }"),
                  "it holds a net");
  expect_contains(refused_definition(copy + "arg { name: 'stepnet.operators' nets { } }"), "definitions of its own");
  expect_contains(refusal("nets { name: 'Relu' external_output: 'y' }"), "there is an operator \"Relu\" already");
  expect_contains(refusal("nets { external_output: 'y' }"), "a definition has no name");
  expect_contains(refusal("nets { name: 'Mine' external_input: 'y' }"), "it has no outputs");
  expect_contains(refusal(std::string(kSwish) + kSwish), "\"SwishOf\" is defined twice");
  expect_contains(refusal("n { }"), "which must be nets");
}

TEST(DefinedOperators, RefuseRecursion) {
  const auto uses = [](const std::string& name, const std::string& type) {
    return fmt::format(
        "nets {{ name: '{}' external_input: 'x' external_output: 'y' "
        "op {{ type: '{}' input: 'x' output: 'y' }} }} ",
        name, type);
  };
  expect_contains(refusal(uses("A", "A")), "\"A\" is defined by itself: A -> A");
  expect_contains(refusal(uses("A", "B") + uses("B", "C") + uses("C", "A")),
                  "\"A\" is defined by itself: A -> B -> C -> A");
  expect_contains(refusal(uses("A", "B") + uses("B", "Relu")), "\"B\" is defined behind \"A\", which uses it");
}

TEST(DefinedOperators, RefuseWrongUses) {
  const auto use = [](const std::string& text) { return refusal(kPair, "op { type: 'Pair' " + text + " }"); };
  expect_contains(use("input: 'a' output: 'p' output: 'q'"), "it must have 2 inputs (x, y), but has 1");
  expect_contains(use("input: 'a' input: 'c' output: 'p'"), "it must have 2 outputs (p, q)");
  expect_contains(use("input: 'a' input: '' output: 'p' output: 'q'"), "input 1 (\"y\") has an empty name");
  expect_contains(use("input: 'a' input: 'c' output: 'p' output: 'p'"), "the output \"p\" is given twice");
  const std::string right = "input: 'a' input: 'c' output: 'p' output: 'q' ";
  expect_contains(use(right + "engine: 'CUDNN'"), "cannot have an engine");
  expect_contains(use(right + "arg { name: 'axis' i: 1 }"), "has no argument \"axis\"");
  expect_contains(use(right + "arg { name: 'stepnet.draws_as' s: 'n' }"), "cannot have the argument");
  expect_contains(refusal(kPair, "op { type: 'Pear' input: 'a' output: 'b' }"), "Did you mean");
  expect_contains(error_text([] {
                    parse_net_text("op { type: 'Relu' input: 'a' output: 'b' arg { name: 'stepnet.operators' } }");
                  }),
                  "there is none of this name");
}

TEST(DefinedOperators, NameDefinitionAndUse) {
  const std::string text =
      "arg { name: 'stepnet.operators'\n nets { name: 'Mine' external_input: 'x' external_output: 'y'\n"
      "  op { type: 'Sigmoid' input: 'x' output: 's' }\n"
      "  op { type: 'Add' input: 'x' input: 's' output: 't' }\n"
      "  op { type: 'MatMul' input: 't' input: 't' output: 'y' } } }\n"
      "op { type: 'Sin' input: 'a' output: 'c' }\n"
      "op { type: 'Mine' input: 'c' output: 'b' }\n";
  const std::string error = error_text([&] { run(expanded(text), three()); });
  expect_contains(error, "net.pbtxt:5:3, of the definition of Mine (used at net.pbtxt:7:1)");
  const std::string wrong = error_text([&] { expanded(text + "op { type: 'Mine' output: 'b' }"); });
  expect_contains(wrong, "net.pbtxt:8:1, operator 2");
  const std::string definition = refusal("nets { name: 'Mine' external_output: 'y' }");
  expect_contains(definition, "net.pbtxt:1:45, the definition of operator \"Mine\" of net \"net\"");
  expect_contains(error_text([&] { run(parse_net_text(text, "net.pbtxt"), three()); }), "expand the net first");
}

TEST(DefinedOperators, MayNotBecomeTooMany) {
  std::string definitions =
      "nets { name: 'D0' external_input: 'x' external_output: 'x' op { type: 'Tanh' input: 'x' output: 'x' } }";
  for (int i = 1; i < 40; ++i) {
    definitions += fmt::format(" nets {{ name: 'D{}' external_input: 'x' external_output: 'y'", i);
    definitions += fmt::format(
        " op {{ type: 'D{}' input: 'x' output: 'z' }} op {{ type: 'D{}' input: 'z' output: 'y' }} }}", i - 1, i - 1);
  }
  expect_contains(refusal(definitions), "more than");
}

// --- Gradient nets -----------------------------------------------------------------------------------------------

// y = x^3 and z = x w, with gradients that `factor` makes right (3) or wrong.
std::string cube(const std::string& factor) {
  return R"(nets { name: 'CubeOf' external_input: 'x' external_input: 'w' external_output: 'y' external_output: 'z'
    op { type: 'Sqr' input: 'x' output: 's' } op { type: 'Mul' input: 's' input: 'x' output: 'y' }
    op { type: 'Mul' input: 'x' input: 'w' output: 'z' arg { name: 'broadcast' i: 1 } }
    arg { name: 'gradient_net' n {
      external_input: 'x' external_input: 'w' external_input: 'y_grad' external_input: 'z_grad'
      external_output: 'x_grad' external_output: 'w_grad'
      op { type: 'Sqr' input: 'x' output: 's' }
      op { type: 'Scale' input: 's' output: 't' arg { name: 'scale' f: )" +
         factor + R"( } }
      op { type: 'Mul' input: 't' input: 'y_grad' output: 'u' }
      op { type: 'Mul' input: 'z_grad' input: 'w' output: 'v' arg { name: 'broadcast' i: 1 } }
      op { type: 'Add' input: 'u' input: 'v' output: 'x_grad' }
      op { type: 'Mul' input: 'z_grad' input: 'x' output: 'w_grad' } } } } )";
}

constexpr const char* kCubes = R"(
  op { type: 'Sin' input: 'a' output: 'h' }
  op { type: 'CubeOf' input: 'h' input: 'b' output: 'y' output: 'z' }
  op { type: 'CubeOf' input: 'y' input: 'b' output: '' output: 'q' }
  op { type: 'CubeOf' input: 'z' input: 'b' output: 'p' output: '' }
  op { type: 'Add' input: 'p' input: 'q' output: 'o' })";

TEST(GivenGradients, AreThoseOfTheNet) {
  const NetDef net = expanded(cube("3"), kCubes);
  EXPECT_EQ(check_derivatives(net, three(), {"o", "z"}, {"a", "b"}), "");
  GradientCheckOptions options;
  options.hessian = true;
  GradientSubject subject{net, {}, {"o"}, {"a", "b"}, {}, {}};
  for (const auto& [name, value] : three()) subject.feeds[name] = value;
  EXPECT_EQ(check_gradients(subject, options).str(), "");
}

TEST(GivenGradients, AreBlamedWhereTheyAreWrong) {
  GradientSubject subject{expanded(cube("2"), kCubes), {}, {"o"}, {"a", "b"}, {}, {}};
  for (const auto& [name, value] : three()) subject.feeds[name] = value;
  const GradientReport report = check_gradients(subject);
  EXPECT_FALSE(report.right());
  ASSERT_EQ(report.blamed.size(), 2U) << report.str();  // of the third use, y is not needed
  for (const BlamedOperator& op : report.blamed) expect_contains(op.path, "the gradient net of CubeOf");
  EXPECT_TRUE(report.unsearched.empty()) << report.str();
}

// The given gradient is used, right or wrong, and no other.
TEST(GivenGradients, StandForThoseOfTheOperators) {
  const char* const through = R"(
    nets { name: 'Through' external_input: 'x' external_output: 'y'
           op { type: 'Floor' input: 'x' output: 'y' }
           arg { name: 'gradient_net' n { external_output: 'x_grad'
                 op { type: 'Scale' input: 'y_grad' output: 'x_grad' arg { name: 'scale' f: 7 } } } } })";
  NetDef net =
      expanded(through, "op { type: 'Sin' input: 'a' output: 's' } op { type: 'Through' input: 's' output: 'y' }");
  NetDef other = net_of_lines({"s = Sin(a)", "y = Scale(s)"});
  *other.mutable_op(1)->add_arg() = make_arg("scale", 7.0F);
  NetDef moved = net, right = other;
  for (NetDef* of : {&net, &other}) add_gradient_operators(*of, {.targets = {{"y", ""}}, .wanted = {"a"}, .stop = {}});
  expect_equal(net, other, three(), {"a_grad"});
  for (NetDef* of : {&moved, &right}) add_tangent_operators(*of, {.given = {{"a", "v"}}, .wanted = {"y"}, .stop = {}});
  Feeds feeds = three();
  feeds.emplace_back("v", normal<double>({2, 3}, 9));
  expect_equal(moved, right, feeds, {"y_tangent"});
}

TEST(GivenGradients, WorkWhereAUseIsInPlace) {
  for (const char* outputs : {"output: 'h' output: 'z'", "output: 'z' output: 'h'", "output: 'h2' output: 'h'"}) {
    const NetDef net = expanded(cube("3"), fmt::format("op {{ type: 'Sin' input: 'a' output: 'h' }} "
                                                       "op {{ type: 'CubeOf' input: 'h' input: 'b' {} }} "
                                                       "op {{ type: 'Tanh' input: 'h' output: 'o' }}",
                                                       outputs));
    GradientSubject subject{net, {}, {"o"}, {"a", "b"}, {}, {}};
    for (const auto& [name, value] : three()) subject.feeds[name] = value;
    EXPECT_EQ(check_gradients(subject).str(), "") << outputs;
  }
}

// Results that the gradient net reads, and an input without a gradient.
constexpr const char* kPick = R"(
  nets { name: 'Pick' external_input: 'x' external_input: 'rows' external_output: 'y'
         arg { name: 'no_gradient' strings: 'rows' }
         op { type: 'Sigmoid' input: 'x' output: 's' }
         op { type: 'Gather' input: 's' input: 'rows' output: 'y' }
         arg { name: 'gradient_net' n { external_output: 'x_grad'
               op { type: 'Sigmoid' input: 'x' output: 's' }
               op { type: 'SigmoidGradient' input: 'y' input: 'y_grad' output: 'd' }
               op { type: 'SparseToDense' input: 'rows' input: 'd' input: 's' output: 'x_grad' } } } })";

TEST(GivenGradients, ReadResultsAndLeaveInputsOut) {
  const NetDef net = expanded(kPick, "op { type: 'Pick' input: 'a' input: 'rows' output: 'y' }");
  Feeds feeds = three();
  feeds.emplace_back("rows", Tensor::of<int32_t>({3}, {1, 0, 1}));
  GradientSubject subject{net, {}, {"y"}, {"a"}, {}, {}};
  for (const auto& [name, value] : feeds) subject.feeds[name] = value;
  EXPECT_EQ(check_gradients(subject).str(), "");
  NetDef all = net;
  const GradientResult result = add_gradient_operators(all, {.targets = {{"y", ""}}, .wanted = {}, .stop = {}});
  EXPECT_EQ(result.gradients.count("rows"), 0U);
}

// A gradient net may use definitions, with and without gradient nets of their own.
TEST(GivenGradients, OfDefinitionsThatUseOthers) {
  const std::string outer = R"(
    nets { name: 'Outer' external_input: 'x' external_input: 'w' external_output: 'y'
           op { type: 'CubeOf' input: 'x' input: 'w' output: 'p' output: 'q' }
           op { type: 'Add' input: 'p' input: 'q' output: 'y' }
           arg { name: 'gradient_net' n { external_output: 'x_grad' external_output: 'w_grad'
                 op { type: 'Square3' input: 'x' output: 't' }
                 op { type: 'Add' input: 't' input: 'w' output: 'f' arg { name: 'broadcast' i: 1 } }
                 op { type: 'Mul' input: 'f' input: 'y_grad' output: 'x_grad' }
                 op { type: 'Times' input: 'y_grad' input: 'x' output: 'w_grad' } } } })";
  const std::string times = R"(
    nets { name: 'Times' external_input: 'x' external_input: 'y' external_output: 'z'
           op { type: 'Mul' input: 'x' input: 'y' output: 'z' }
           arg { name: 'gradient_net' n { external_output: 'x_grad' external_output: 'y_grad'
                 op { type: 'Mul' input: 'z_grad' input: 'y' output: 'x_grad' }
                 op { type: 'Mul' input: 'z_grad' input: 'x' output: 'y_grad' } } } })";
  const std::string square = R"(
    nets { name: 'Square3' external_input: 'x' external_output: 'y' arg { name: 'factor' f: 3 }
           op { type: 'Sqr' input: 'x' output: 's' }
           op { type: 'Scale' input: 's' output: 'y' arg { name: 'scale' s: '$factor' } } })";
  const NetDef net =
      expanded(cube("3") + square + times + outer, "op { type: 'Outer' input: 'a' input: 'b' output: 'o' }");
  EXPECT_EQ(check_derivatives(net, three(), {"o"}, {"a", "b"}), "");
}

// What is not linear in the gradient that comes in has no tangents, but gradients.
TEST(GivenGradients, ThatAreNotLinearHaveNoTangents) {
  const char* const clipped = R"(
    nets { name: 'Clipped' external_input: 'x' external_output: 'y'
           op { type: 'Copy' input: 'x' output: 'y' }
           arg { name: 'gradient_net' n { external_output: 'x_grad'
                 op { type: 'Tanh' input: 'y_grad' output: 'x_grad' } } } })";
  NetDef net = expanded(clipped, "op { type: 'Clipped' input: 'a' output: 'y' }"), backward = net;
  expect_contains(error_text([&] {
                    add_tangent_operators(net, {.given = {{"a", "v"}}, .wanted = {"y"}, .stop = {}});
                  }),
                  "not linear in the gradients of its outputs");
  add_gradient_operators(backward, {.targets = {{"y", "given"}}, .wanted = {"a"}, .stop = {}});
  Feeds feeds = three();
  feeds.emplace_back("given", normal<double>({2, 3}, 9));
  expect_equal(backward, net_of_lines({"y = Copy(a)", "a_grad = Tanh(given)"}), feeds, {"a_grad"});
}

// y = tanh(X W + b) where X V + c > 0, with the derivative of sigmoid(4 (X V + c)) by what is compared.
TEST(GivenGradients, OfTheExample) {
  NetDef net = load_net(source_path("tools/examples/nets/own_operators.pbtxt"));
  expand_net(net);
  NetDef other = net_of_lines({"v = FC(X, W, b)", "t = Tanh(v)", "g = FC(X, V, c)", "s = Sign(g)", "open = Relu(s)",
                               "y = Mul(t, open)", "loss = AveragedLoss(y)"});
  const Feeds feeds = {{"X", normal<double>({4, 3})},
                       {"W", normal<double>({2, 3}, 2)},
                       {"b", normal<double>({2}, 3)},
                       {"V", normal<double>({2, 3}, 4)},
                       {"c", normal<double>({2}, 5)}};
  expect_equal(net, other, feeds, {"y", "loss"});
  const GradientResult result = add_gradient_operators(net, {.targets = {{"y", ""}}, .wanted = {"W", "c"}, .stop = {}});
  const auto made = run(net, feeds), right = run(other, feeds);
  const Tensor &t = right.at("t"), &g = right.at("g"), &of_c = made.at(result.gradients.at("c").dense);
  for (int64_t k = 0; k < 2; ++k) {
    double expected = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const double s = 1 / (1 + std::exp(-4 * g.data<double>()[2 * i + k]));
      expected += t.data<double>()[2 * i + k] * 4 * s * (1 - s);
    }
    EXPECT_NEAR(of_c.data<double>()[k], expected, 1e-12);
  }
  GradientSubject subject{load_net(source_path("tools/examples/nets/own_operators.pbtxt")), {}, {"y"}, {"c"}, {}, {}};
  expand_net(subject.net);
  for (const auto& [name, value] : feeds) subject.feeds[name] = value;
  const GradientReport report = check_gradients(subject);
  ASSERT_EQ(report.blamed.size(), 1U) << report.str();
  expect_contains(report.blamed[0].path, "the gradient net of Step");
}

std::string refused_gradient(const std::string& gradient, const std::string& more = "") {
  return refusal(
      "nets { name: 'Mine' external_input: 'x' external_output: 'y' op { type: 'Copy' input: 'x' output: 'y' } " +
      more + " arg { name: 'gradient_net' n { " + gradient + " } } }");
}

TEST(GivenGradients, RefuseWrongNets) {
  const std::string out = "external_output: 'x_grad' ", right = "op { type: 'Copy' input: 'y_grad' output: 'x_grad' } ";
  expect_contains(refused_gradient(""), "gives no gradient of the input \"x\"");
  expect_contains(refused_gradient(out), "no operator of the gradient net writes \"x_grad\"");
  expect_contains(refused_gradient(out + right, "arg { name: 'no_gradient' strings: 'x' }"),
                  "said to have no gradient");
  expect_contains(refused_gradient(out + right, "arg { name: 'no_gradient' strings: 'z' }"), "none of its inputs");
  expect_contains(refused_gradient(out + out + right), "\"x_grad\" is given twice");
  expect_contains(refused_gradient("external_output: 'z_grad'"), "no gradient of an input");
  expect_contains(refused_gradient(out + right + "external_input: 'z'"), "the gradient net's input \"z\"");
  expect_contains(refused_gradient(out + right + "external_input: 'x'"), "external_input does not list");
  expect_contains(refused_gradient(out + "op { type: 'Copy' input: 'g' output: 'x_grad' }"), "it reads \"g\"");
  expect_contains(refused_gradient(out + "op { type: 'Copy' input: 'y_grad' output: 'y' }"), "it writes \"y\" again");
  expect_contains(refused_gradient(out + right + right), "it writes \"x_grad\" again");
  expect_contains(refused_gradient(out + "op { type: 'Dropout' input: 'y_grad' output: 'x_grad' output: 'm' }"),
                  "random");
  expect_contains(refused_gradient(out + "op { type: 'Copy' input: 'y_grad' output: 'x_grad' engine: 'e' }"), "engine");
  expect_contains(refused_gradient(out + "op { type: 'Gradients' input: 'y' input: 'x' output: 'x_grad' }"),
                  "tensors alone");
  expect_contains(
      refusal("nets { name: 'Mine' external_input: 'x' external_output: 'x' arg { name: 'gradient_net' n { } } }"),
      "\"x\" would mean two things");
  expect_contains(
      refusal(
          "nets { name: 'Mine' external_input: 'x' external_output: 'x' arg { name: 'no_gradient' strings: 'x' } }"),
      "is for a definition with a \"gradient_net\"");
}

// A gradient of a shape that cannot be its input's is an error where it runs, not a wrong number.
TEST(GivenGradients, MustHaveTheShapeOfTheInput) {
  const char* const wrong = R"(
    nets { name: 'Sums' external_input: 'x' external_output: 'y' op { type: 'Copy' input: 'x' output: 'y' }
           arg { name: 'gradient_net' n { external_output: 'x_grad'
                 op { type: 'ReduceSum' input: 'y_grad' output: 'x_grad' arg { name: 'keepdims' i: 0 } } } } })";
  NetDef net = expanded(wrong, "op { type: 'Sums' input: 'a' output: 'y' }");
  add_gradient_operators(net, {.targets = {{"y", ""}}, .wanted = {"a"}, .stop = {}});
  expect_contains(error_text([&] { run(net, three()); }), "SumReduceLike");
}

}  // namespace
}  // namespace stepnet::testing::defined_operators_test
