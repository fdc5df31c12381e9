#include "stepnet/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/io/source_text.h"
#include "stepnet/bound_op.h"
#include "stepnet/operator.h"
#include "tests/operators/op_test.h"

namespace stepnet::text_test {
namespace {

using testing::error_of;

struct HoldsNetArgs {
  NetArg body;
};

void do_nothing(const HoldsNetArgs&, BlobCall&) {}

REGISTER(text_test_holds_net) {
  return op<HoldsNetArgs>("TextTestHoldsNet")
      .doc("An operator of these tests with a net in an argument.")
      .arg("body", &HoldsNetArgs::body, NetArg{}, "A net.")
      .blobs(do_nothing);
}

// A file in the test's temporary folder, removed at the end.
class TempFile {
 public:
  explicit TempFile(const std::string& content) {
    static int number = 0;
    path = ::testing::TempDir() + "stepnet_text_test_" + std::to_string(getpid()) + "_" + std::to_string(number++);
    std::ofstream(path, std::ios::binary) << content;
  }
  ~TempFile() { std::remove(path.c_str()); }
  std::string path;
};

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_net_text(text, "net.pbtxt"); });
}

// `text` as the content of a string literal.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string place(const SourcePosition& p) { return fmt::format("{}:{}:{}", p.file(), p.line(), p.column()); }
std::string place(const OperatorDef& op) { return place(op.GetExtension(source)); }

TEST(Text, OperatorsKnowTheirPlace) {
  const NetDef net = parse_net_text("# a net\nname: \"n\"\nop { type: \"A\" }\n\t op { type: \"B\" }\n", "a.pbtxt");
  ASSERT_EQ(net.op_size(), 2);
  EXPECT_EQ(place(net.op(0)), "a.pbtxt:3:1");
  EXPECT_EQ(place(net.op(1)), "a.pbtxt:4:3");
  EXPECT_EQ(place(net.GetExtension(net_source)), "a.pbtxt:1:1");
}

TEST(Text, OperatorsInsideEveryKindOfNetKnowTheirPlace) {
  const NetDef net = parse_net_text(
      "op { type: \"A\"\n"
      "  arg { name: \"x\" n {\n"
      "    op { type: \"B\" } } }\n"
      "  arg { name: \"y\" nets { } nets {\n"
      "    op { type: \"C\" } } }\n"
      "  [stepnet.recurrent] { step_net {\n"
      "    op { type: \"D\" } } } }\n"
      "[stepnet.model] { init { name: \"i\"\n"
      "  op { type: \"E\" } } }\n",
      "a.pbtxt");
  EXPECT_EQ(place(net.op(0).arg(0).n().op(0)), "a.pbtxt:3:5");
  EXPECT_EQ(place(net.op(0).arg(1).nets(1).op(0)), "a.pbtxt:5:5");
  EXPECT_EQ(place(net.op(0).GetExtension(recurrent).step_net().op(0)), "a.pbtxt:7:5");
  EXPECT_EQ(place(net.op(0).GetExtension(recurrent).step_net().GetExtension(net_source)), "a.pbtxt:6:25");
  EXPECT_EQ(place(net.GetExtension(model).init().op(0)), "a.pbtxt:9:3");
}

TEST(Text, PlanOperatorsKnowTheirPlace) {
  const PlanDef plan = parse_plan_text("network { name: \"a\" }\nnetwork {\n op { type: \"A\" } }\n", "p.pbtxt");
  EXPECT_EQ(place(plan.network(1).op(0)), "p.pbtxt:3:2");
  EXPECT_EQ(place(plan.network(1).GetExtension(net_source)), "p.pbtxt:2:1");
}

TEST(Text, UnknownFieldsNameTheNearest) {
  EXPECT_EQ(parse_error("name: \"n\"\nop {\n  inputt: \"x\"\n}"),
            "OperatorDef has no field \"inputt\". Did you mean \"input\"?\n  in  net.pbtxt:3:3");
  EXPECT_EQ(parse_error("op { # comment\n  arg { nmae : \"x\" } }"),
            "Argument has no field \"nmae\". Did you mean \"name\"?\n  in  net.pbtxt:2:9");
  EXPECT_EQ(parse_error("completely_else: 1"),
            "NetDef has no field \"completely_else\".\n  in  net.pbtxt:1:1\n  fix a net or plan is protobuf text, such "
            "as op { "
            "type: \"Relu\" input: \"x\" output: \"y\" }");
}

TEST(Text, UnknownExtensionsNameTheNearest) {
  EXPECT_EQ(parse_error("op {\n  [stepnet.recurent] { } }"),
            "OperatorDef has no extension \"stepnet.recurent\". Did you mean \"stepnet.recurrent\"?\n"
            "  in  net.pbtxt:2:4");
}

TEST(Text, OtherMistakesHaveAPlace) {
  EXPECT_EQ(parse_error("op {\n type: 3 }"), "Expected string, got: 3\n  in  net.pbtxt:2:8");
  EXPECT_EQ(parse_error("op {\n\ttype: \"A\""),
            "the text ends, but the { of line 1, column 4 is not closed\n  in  net.pbtxt:2:11");
  EXPECT_EQ(parse_error("name: \"a\"\n name: \"b\""),
            "Non-repeated field \"name\" is specified multiple times.\n  in  net.pbtxt:2:2");
  EXPECT_EQ(parse_error("op { type: \"A\"\n  [stepnet.recurrent] { } }"),
            "required field \"(stepnet.recurrent).step_net\" is missing\n  in  net.pbtxt:1:1");
}

TEST(Text, AnUnclosedBraceIsShown) {
  EXPECT_EQ(parse_error("name: \"{\" # {\nop {\n  type: \"A\"\n  arg { name: \"x\"\n}\n"),
            "the text ends, but the { of line 2, column 4 is not closed\n  in  net.pbtxt:6:1");
  EXPECT_EQ(parse_error("op { type: \"A\" } }"), "Expected identifier, got: }\n  in  net.pbtxt:1:18");
}

TEST(Text, NestedTextIsParsedAndPlaced) {
  const NetDef net = parse_net_text(
      "op { type: \"TextTestHoldsNet\"\n"
      "  arg { name: \"body\"\n"
      "    s: \"name: \\\"in\\\"\\n\"  # first\n"
      "       'op { type: \"A\" } '\n"
      "       \"op { type: \\\"\\102\\\" }\" } }\n",
      "a.pbtxt");
  const Argument& arg = net.op(0).arg(0);
  EXPECT_FALSE(arg.has_s());
  ASSERT_TRUE(arg.has_n());
  EXPECT_EQ(arg.n().name(), "in");
  ASSERT_EQ(arg.n().op_size(), 2);
  EXPECT_EQ(place(arg.n().op(0)), "a.pbtxt:4:9");
  EXPECT_EQ(place(arg.n().op(1)), "a.pbtxt:5:9");
  EXPECT_EQ(arg.n().op(1).type(), "B");
}

TEST(Text, MistakesInNestedTextHaveBothPlaces) {
  EXPECT_EQ(parse_error("op { type: \"TextTestHoldsNet\"\n"
                        "  arg { name: \"body\" s: \"name: \\\"in\\\"\\n\\nop { typ: \\\"A\\\" }\" } }"),
            "OperatorDef has no field \"typ\". Did you mean \"type\"?\n"
            "  in  net.pbtxt:2:47, line 3 column 6 of the text in argument \"body\"");
}

TEST(Text, MistakesInTextWithinTextHaveTheOuterPlace) {
  const std::string innermost = "op { typ: \"A\" }";
  const std::string inner =
      "op { type: \"TextTestHoldsNet\" arg { name: \"body\" s: \"" + escaped(innermost) + "\" } }";
  const std::string text = "op { type: \"TextTestHoldsNet\" arg { name: \"body\" s:\n\"" + escaped(inner) + "\" } }";
  const std::string error = parse_error(text);
  const size_t column = text.find("typ:") - text.find('\n');
  EXPECT_EQ(error, fmt::format("OperatorDef has no field \"typ\". Did you mean \"type\"?\n  in  net.pbtxt:2:{}, "
                               "line 1 column 6 of the text in argument \"body\"",
                               column));
}

TEST(Text, TextStaysWhereNoNetIsDeclaredOrANetIsGiven) {
  const NetDef net = parse_net_text(
      "op { type: \"TextTestHoldsNet\" arg { name: \"body\" n { name: \"n\" } s: \"not a net\" } }\n"
      "op { type: \"TextTestHoldsNet\" arg { name: \"other\" s: \"not a net\" } }\n"
      "op { type: \"TextTestHoldsNet\" arg { name: \"body\" s: \"\" } }\n"
      "op { type: \"TextTestUnknown\" arg { name: \"body\" s: \"not a net\" } }\n");
  EXPECT_EQ(net.op(0).arg(0).n().name(), "n");
  EXPECT_EQ(net.op(1).arg(0).s(), "not a net");
  EXPECT_FALSE(net.op(2).arg(0).has_n());
  EXPECT_EQ(net.op(3).arg(0).s(), "not a net");
}

std::string nested_messages(int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += "op { arg { n { ";
  for (int i = 0; i < levels; ++i) text += "} } } ";
  return text;
}

TEST(Text, DeepNestingIsAnError) {
  EXPECT_NO_THROW(parse_net_text(nested_messages(33)));
  for (const int levels : {34, 5000, 200000})
    EXPECT_NE(parse_error(nested_messages(levels)).find("messages are nested more than 100 deep"), std::string::npos);
}

TEST(Text, DepthCountsAcrossNestedText) {
  auto with_text = [](int outer, int inner) {
    std::string text;
    for (int i = 0; i < outer; ++i) text += "op { arg { n { ";
    text += "op { type: \"TextTestHoldsNet\" arg { name: \"body\" s: \"" + nested_messages(inner) + "\" } }";
    for (int i = 0; i < outer; ++i) text += "} } } ";
    return text;
  };
  EXPECT_NO_THROW(parse_net_text(with_text(16, 16)));  // 16 * 3 + 2 + 16 * 3 = 98
  EXPECT_NE(parse_error(with_text(17, 17)).find("messages are nested more than 100 deep"), std::string::npos);
}

TEST(Text, TenLevelsOfTextWithinTextAreParsed) {
  std::string text = "op { type: \"A\" }";  // every level doubles the backslashes
  for (int i = 0; i < 10; ++i)
    text = "op { type: \"TextTestHoldsNet\" arg { name: \"body\" s: \"" + escaped(text) + "\" } }";
  NetDef net = parse_net_text(text, "a.pbtxt");
  const OperatorDef* op = &net.op(0);
  for (int i = 0; i < 10; ++i) op = &op->arg(0).n().op(0);
  EXPECT_EQ(op->type(), "A");
  EXPECT_EQ(place(*op),
            fmt::format("a.pbtxt:1:{}", text.find("op { type: " + std::string((1 << 10) - 1, '\\') + "\"A") + 1));
}

// As protobuf counts columns: a tab goes to the next multiple of 8.
size_t counted_offset(std::string_view text, int line, int column) {
  size_t at = 0;
  for (; line > 0 && at < text.size(); ++at)
    if (text[at] == '\n') --line;
  for (int c = 0; c < column && at < text.size() && text[at] != '\n'; ++at) c += text[at] == '\t' ? 8 - c % 8 : 1;
  return at;
}

TEST(Text, ColumnsAreOffsets) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (auto length = random() % 60; length > 0; --length) text += "ab\t\t\n"[random() % 5];
    const SourceText source(text, "f");
    for (int line = 0; line <= std::count(text.begin(), text.end(), '\n'); ++line)
      for (int column = 0; column < 40; ++column)
        EXPECT_EQ(source.offset(line, column), counted_offset(text, line, column)) << text << line << " " << column;
  }
}

// Neither the square of their number nor that of their length would end.
TEST(Text, ManyArgumentsAndLongNames) {
  std::string text = "op { type: \"Relu\" input: \"x\" output: \"y\"";
  for (int i = 0; i < 300'000; ++i) text += fmt::format(" arg {{ name: \"a{}\" i: 1 }}", i);
  const NetDef net = parse_net_text(text + " }\nop { type: \"" + std::string(5'000'000, 'A') + "\" }", "many");
  ASSERT_EQ(net.op(0).arg_size(), 300'000);
  EXPECT_EQ(place(net.op(1)), "many:2:1");
  std::vector<std::string> warnings;
  bind_op(net.op(0), "many", 0, {}, &warnings);
  EXPECT_EQ(warnings.size(), 300'000U);
  EXPECT_EQ(suggest(net.op(1).type(), {net.op(1).type() + "B"}), "");
  EXPECT_EQ(suggest("Rely", {"Relu", std::string(5'000'000, 'A')}), " Did you mean \"Relu\"?");
}

TEST(Text, ReadsTheFieldsOfTheLastCaffe2) {
  const NetDef net = parse_net_text(R"(
op {
  type: "A" debug_info: "d" domain: "e" op_version: 3
  device_option { device_type: 1 device_id: 2 numa_node_id: 1 extra_info: "x" }
  arg { name: "a" t { dims: 1 data_type: FLOAT raw_data: "abcd" data_format: 0 } }
  arg { name: "b" tensors { dims: 0 } qtensors { precision: 8 scale: 1 bias: 0 is_signed: true data_type: INT8 axis: 1 } }
}
partition_info { name: "p" device_id: 1 backend_options { backend_name: "b" option { key: "k" val: "v" } } })");
  EXPECT_EQ(net.op(0).device_option().device_id(), 2);
  EXPECT_EQ(net.op(0).arg(0).t().raw_data(), "abcd");
  EXPECT_EQ(net.partition_info(0).backend_options(0).option(0).val(), "v");
  EXPECT_EQ(to_text(parse_net_text(to_text(net))), to_text(net));
}

// Where it is the name of a field, not in texts and comments; places stay.
TEST(Text, ReadsDevicesByTheirNameOf2018) {
  const NetDef net = parse_net_text(
      "op { type: \"A\" device_option { device_type: 1 cuda_gpu_id: 3 } } # cuda_gpu_id\n"
      "op { type: \"cuda_gpu_id: \\\" cuda_gpu_id\" name: 'cuda_gpu_id' device_option { cuda_gpu_id:4 } }",
      "a.pbtxt");
  EXPECT_EQ(net.op(0).device_option().device_id(), 3);
  EXPECT_EQ(net.op(1).type(), "cuda_gpu_id: \" cuda_gpu_id");
  EXPECT_EQ(net.op(1).name(), "cuda_gpu_id");
  EXPECT_EQ(net.op(1).device_option().device_id(), 4);
  EXPECT_EQ(place(net.op(1)), "a.pbtxt:2:1");
  EXPECT_EQ(parse_error("op { device_option { cuda_gpu_id: 1 my_cuda_gpu_id: 2 } }"),
            "DeviceOption has no field \"my_cuda_gpu_id\".\n  in  net.pbtxt:1:37");
}

TEST(Text, PrintsWithoutPlaces) {
  const std::string text = "name: \"n\"\nop {\n  input: \"x\"\n  output: \"y\"\n  type: \"A\"\n}\n";
  EXPECT_EQ(to_text(parse_net_text(text, "a.pbtxt")), text);
  NetDef net = parse_net_text(
      "op { type: \"A\" arg { n { op { type: \"B\" } } } [stepnet.recurrent] { step_net { op { type: \"C\" } } } }");
  EXPECT_EQ(to_text(net).find("source"), std::string::npos);
  EXPECT_EQ(to_text(net).find("[stepnet.recurrent]"), std::string::npos);
  PlanDef plan = parse_plan_text("network { op { type: \"A\" } }", "f");
  EXPECT_EQ(to_text(plan), "network {\n  op {\n    type: \"A\"\n  }\n}\n");
}

TEST(Text, DecidesBetweenNetAndPlan) {
  const NetDef net = parse_net_text("name: \"n\" op { input: \"x\" output: \"y\" type: \"A\" }");
  const PlanDef plan = parse_plan_text(
      "name: \"p\" network { name: \"n\" op { type: \"A\" } } execution_step { name: \"s\" network: \"n\" }");
  for (const std::string& data : {to_text(net), to_binary(net)})
    EXPECT_EQ(to_text(load_net_or_plan(TempFile(data).path).net()), to_text(net));
  for (const std::string& data : {to_text(plan), to_binary(plan)}) {
    LoadedFile file = load_net_or_plan(TempFile(data).path);
    ASSERT_TRUE(file.is_plan());
    EXPECT_EQ(to_text(file.plan()), to_text(plan));
  }
}

TEST(Text, AsksWhereBothOrNeitherFit) {
  const TempFile both("name: \"n\"");
  EXPECT_EQ(
      error_of([&] { load_net_or_plan(both.path); }),
      "\"" + both.path +
          "\" has no operators: it can be a net and can be a plan\n  fix say which it is with --as net or --as plan");
  EXPECT_EQ(load_net_or_plan(both.path, ReadAs::net).net().name(), "n");
  EXPECT_EQ(load_plan(both.path).name(), "n");
  const TempFile neither(std::string("\x12\x00\x01\x02", 4));
  EXPECT_EQ(error_of([&] { load_net_or_plan(neither.path); }),
            "\"" + neither.path +
                "\" is neither a net nor a plan in binary form, and no text\n  fix say which it is with --as net or "
                "--as plan");
  EXPECT_EQ(error_of([&] { load_net(neither.path); }),
            "\"" + neither.path + "\" is no net in binary form, and no text");
}

TEST(Text, TheReadingThatGotFurtherSpeaks) {
  const TempFile plan("name: \"p\"\nnetwork {\n  opp { }\n}\n");
  EXPECT_EQ(error_of([&] { load_net_or_plan(plan.path); }),
            "NetDef has no field \"opp\". Did you mean \"op\"?\n  in  " + plan.path + ":3:3");
  const TempFile typo("netwrok { }\n");
  EXPECT_EQ(error_of([&] { load_net_or_plan(typo.path); }),
            "PlanDef has no field \"netwrok\". Did you mean \"network\"?\n  in  " + typo.path + ":1:1");
}

TEST(Text, NestedTextInBinaryIsParsed) {
  NetDef net;
  OperatorDef& op = *net.add_op();
  op.set_type("TextTestHoldsNet");
  *op.add_arg() = make_arg("body", "op { type: \"A\" }");
  EXPECT_EQ(load_net(TempFile(to_binary(net)).path).op(0).arg(0).n().op(0).type(), "A");
  op.mutable_arg(0)->set_s("op {\n typ }");
  const TempFile file(to_binary(net));
  EXPECT_EQ(error_of([&] { load_net(file.path); }), "OperatorDef has no field \"typ\". Did you mean \"type\"?\n  in  " +
                                                        file.path +
                                                        ", line 2 column 2 of the text in argument \"body\"");
}

TEST(Text, DeepBinaryIsAnError) {
  std::string bytes;  // nested groups of an unknown field, and nested nets, deeper than any limit
  for (int i = 0; i < 100000; ++i) bytes += '\x13';
  const TempFile file("\x12" + bytes);
  EXPECT_THROW(load_net_or_plan(file.path), Error);
  NetDef net;
  NetDef* at = &net;
  for (int i = 0; i < 40; ++i) {
    OperatorDef* op = at->add_op();
    op->set_type("A");
    at = op->add_arg()->mutable_n();
  }
  EXPECT_THROW(load_net(TempFile(to_binary(net)).path), Error);
}

TEST(Text, FilesThatCannotBeRead) {
  EXPECT_EQ(error_of([] { load_net("/nowhere/at/all"); }),
            "cannot open \"/nowhere/at/all\": No such file or directory");
  EXPECT_EQ(error_of([] { load_net_or_plan("/"); }), "cannot read \"/\": it is a directory");
  for (const char* content : {"", " \n# only a comment\n"}) {
    const TempFile file(content);
    EXPECT_EQ(error_of([&] { load_net_or_plan(file.path, ReadAs::net); }),
              "\"" + file.path + "\" is empty: it holds neither a net nor a plan");
  }
}

}  // namespace
}  // namespace stepnet::text_test
