// Stepnet's messages in ordinary arguments: the same as in brackets, printed so, and with their mistakes said.
#include "core/operator/extensions.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "recurrent/form/short_form.h"
#include "stepnet/arguments.h"
#include "stepnet/error.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing::extensions_test {
namespace {

const char* const kInBrackets = R"(
op {
  type: "RecurrentNetwork" input: "x" input: "h0" input: "n" output: "h_all" output: "c_last" output: "o_all"
  [stepnet.recurrent] {
    sequence { outer: "x" inner: "x_t" }
    state { input: "h_prev" output: "h" initial: "h0" all: "h_all" }
    state { input: "c_prev" output: "c" last: "c_last" size: 3 size: 4 }
    output { inner: "o" outer: "o_all" }
    step_net {
      op {
        type: "RecurrentNetwork" input: "x_t" output: "y"
        [stepnet.recurrent] {
          sequence { outer: "x_t" inner: "z" }
          state { input: "s_prev" output: "s" all: "y" size: 2 }
          step_net { op { type: "Sum" input: "z" input: "s_prev" output: "s" } }
        }
      }
    }
    timestep: "t" recompute: "a" recompute: "b" forward_only: true reverse: true lengths: "n"
  }
  [stepnet.draws_as]: "y"
}
[stepnet.model] {
  init { op { type: "ConstantFill" output: "w" } }
  loss: "loss" input: "tokens" target: "next" logits: "logits"
  carry { from: "h_last" to: "h_before" size: 256 }
  timesteps: 5 batch: 6
}
)";

const char* const kInArguments = R"(
op {
  type: "RecurrentNetwork" input: "x" input: "h0" input: "n" output: "h_all" output: "c_last" output: "o_all"
  arg { name: "stepnet.recurrent" n {
    op { type: "sequence" input: "x" output: "x_t" }
    op { type: "state" input: "h_prev" input: "h0" output: "h" output: "h_all" }
    op { type: "state" input: "c_prev" output: "c" output: "" output: "c_last" arg { name: "size" ints: 3 ints: 4 } }
    op { type: "output" input: "o" output: "o_all" }
    arg { name: "step_net" n {
      op {
        type: "RecurrentNetwork" input: "x_t" output: "y"
        arg { name: "stepnet.recurrent" n {
          op { type: "sequence" input: "x_t" output: "z" }
          op { type: "state" input: "s_prev" output: "s" output: "y" arg { name: "size" ints: 2 } }
          arg { name: "step_net" n { op { type: "Sum" input: "z" input: "s_prev" output: "s" } } }
        } }
      }
    } }
    arg { name: "timestep" s: "t" }
    arg { name: "recompute" strings: "a" strings: "b" }
    arg { name: "forward_only" i: 1 }
    arg { name: "reverse" i: 1 }
    arg { name: "lengths" s: "n" }
  } }
  arg { name: "stepnet.draws_as" s: "y" }
}
arg { name: "stepnet.model" n {
  arg { name: "init" n { op { type: "ConstantFill" output: "w" } } }
  arg { name: "loss" s: "loss" }
  arg { name: "input" s: "tokens" }
  arg { name: "target" s: "next" }
  arg { name: "logits" s: "logits" }
  op { type: "carry" input: "h_last" output: "h_before" arg { name: "size" i: 256 } }
  arg { name: "timesteps" i: 5 }
  arg { name: "batch" i: 6 }
} }
)";

std::string message_of(const std::string& text) {
  NetDef net = parse_net_text(text);
  strip_sources(net);
  return net.DebugString();
}

TEST(Extensions, BothSpellingsAreOneMessage) {
  EXPECT_EQ(message_of(kInArguments), message_of(kInBrackets));
  EXPECT_NE(message_of(kInArguments).find("[stepnet.recurrent]"), std::string::npos);
  EXPECT_EQ(message_of(kInArguments).find("name: \"stepnet."), std::string::npos);
}

TEST(Extensions, AreWrittenAsArguments) {
  const NetDef net = parse_net_text(kInBrackets);
  const std::string text = to_text(net);
  EXPECT_EQ(text.find("[stepnet"), std::string::npos) << text;
  EXPECT_EQ(text.find("input: \"\""), std::string::npos) << text;  // a name that is left out at the end
  EXPECT_EQ(message_of(text), message_of(kInBrackets));
  NetDef plain;
  ASSERT_TRUE(plain.ParseFromString(to_binary(net)));
  EXPECT_EQ(plain.DebugString().find("[stepnet"), std::string::npos);
  TempFolder folder;
  write_all(folder.file("net.pb"), to_binary(net));
  NetDef read = load_net(folder.file("net.pb"));
  strip_sources(read);
  EXPECT_EQ(read.DebugString(), message_of(kInBrackets));
}

// A name that must be there may still be empty, which the expansion refuses; what is printed is read back.
TEST(Extensions, EmptyNamesComeBack) {
  const std::string text = to_text(parse_net_text(
      "op { [stepnet.recurrent] { step_net {} sequence { outer: 'x' inner: '' } sequence { outer: '' inner: 'y' }"
      "state { input: '' output: '' } state { input: 'a' output: 'b' initial: '' last: '' } } }"));
  EXPECT_EQ(to_text(parse_net_text(text)), text);
}

// As a program may do that parses nets by itself.
TEST(Extensions, AreTakenWhereANetIsExpanded) {
  for (const char* text : {kInArguments, kInBrackets}) {
    NetDef net;
    ASSERT_TRUE(net.ParseFromString(to_binary(parse_net_text(text))));
    take_all_extensions(net);
    EXPECT_EQ(net.DebugString(), message_of(text));
    take_all_extensions(net);
    EXPECT_EQ(net.DebugString(), message_of(text));
  }
  NetDef cell;
  ASSERT_TRUE(cell.ParseFromString(to_binary(load_net(source_path("tools/examples/lstm.pbtxt")))));
  expand_recurrent(cell);
  EXPECT_NE(find_arg(cell.op(0), "step_net"), nullptr);
}

TEST(Extensions, AreReadInNetsOfArguments) {
  const NetDef net =
      parse_net_text(std::string("op { type: \"If\" arg { name: \"then_net\" n {") + kInArguments + "} } }");
  NetDef inner = net.op(0).arg(0).n();
  strip_sources(inner);
  EXPECT_EQ(inner.DebugString(), message_of(kInArguments));
}

TEST(Extensions, OperatorsInThemKnowTheirPlace) {
  const NetDef net = parse_net_text(
      "op { type: \"A\"\n"
      "  arg { name: \"stepnet.recurrent\" n { arg { name: \"step_net\" n {\n"
      "    op { type: \"B\" } } } } } }\n",
      "a.pbtxt");
  const SourcePosition& place = net.op(0).GetExtension(recurrent).step_net().op(0).GetExtension(source);
  EXPECT_EQ(fmt::format("{}:{}:{}", place.file(), place.line(), place.column()), "a.pbtxt:3:5");
}

// Netron and other readers of the public format take no extension fields in text.
TEST(Extensions, NoExampleHasAnExtensionField) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("tools/examples"))) {
    if (entry.path().extension() != ".pbtxt") continue;
    ++count;
    EXPECT_EQ(read_all(entry.path().string()).find("[stepnet"), std::string::npos) << entry.path();
  }
  EXPECT_GT(count, 20);
}

std::string error_in(const std::string& parts, const std::string& name = "stepnet.recurrent") {
  return error_text(
      [&] { parse_net_text("op { type: \"A\"\n arg { name: \"" + name + "\" n {\n  " + parts + " } } }", "a.pbtxt"); });
}

TEST(Extensions, MistakesAreSaid) {
  const std::string in = "the argument \"stepnet.recurrent\": ";
  const struct {
    std::string parts, error;
  } cases[] = {
      {"op { type: \"stat\" }", in + "RecurrentDef has no field \"stat\". Did you mean \"state\"?\n  in  a.pbtxt:3:3"},
      {"arg { name: \"reverze\" i: 1 }",
       in + "RecurrentDef has no field \"reverze\". Did you mean \"reverse\"?\n  in  a.pbtxt:1:1"},
      {"arg { name: \"reverse\" i: 2 }", in + "\"reverse\" is 2, which is neither 0 nor 1\n  in  a.pbtxt:1:1"},
      {"arg { name: \"reverse\" s: \"yes\" }", in + "\"reverse\" must be an integer (i)\n  in  a.pbtxt:1:1"},
      {"arg { name: \"lengths\" i: 1 }", in + "\"lengths\" must be a text (s)\n  in  a.pbtxt:1:1"},
      {"arg { name: \"recompute\" s: \"a\" }", in + "\"recompute\" must be texts (strings)\n  in  a.pbtxt:1:1"},
      {"arg { name: \"step_net\" s: \"\" }", in + "\"step_net\" must be a net (n)\n  in  a.pbtxt:1:1"},
      {"arg { name: \"state\" s: \"h\" }", in + "\"state\" must be an operator\n  in  a.pbtxt:1:1"},
      {"op { type: \"step_net\" }", in + "\"step_net\" must be an argument\n  in  a.pbtxt:3:3"},
      {"op { type: \"timestep\" }", in + "\"timestep\" must be an argument\n  in  a.pbtxt:3:3"},
      {"arg { name: \"lengths\" s: \"a\" } arg { name: \"lengths\" s: \"b\" }",
       in + "\"lengths\" is given twice\n  in  a.pbtxt:1:1"},
      {"op { type: \"sequence\" input: \"x\" input: \"y\" output: \"z\" }",
       in + "\"sequence\" has 2 inputs, but at most 1: outer\n  in  a.pbtxt:3:3"},
      {"op { type: \"state\" input: \"x\" output: \"y\" arg { name: \"size\" i: 1 } }",
       in + "\"size\" must be integers (ints)\n  in  a.pbtxt:3:3"},
      {"external_input: \"x\"", in + "its net has operators and arguments alone\n  in  a.pbtxt:1:1"},
      {"op { type: \"sequence\" input: \"x\" device_option { } }",
       in + "\"sequence\" has inputs, outputs and arguments alone\n  in  a.pbtxt:3:3"},
      {"arg { name: \"step_net\" n { } } op { type: \"sequence\" input: \"x\" }",
       "required field \"(stepnet.recurrent).sequence[0].inner\" is missing\n  in  a.pbtxt:1:1"},
  };
  for (const auto& [parts, error] : cases) EXPECT_EQ(error_in(parts), error);
  EXPECT_EQ(error_in("", "stepnet.recurent"),
            "the argument \"stepnet.recurent\": there is none of this name. Did you mean \"stepnet.recurrent\"?\n  in  "
            "a.pbtxt:1:1");
  expect_contains(error_in("", "stepnet.model"), "the argument \"stepnet.model\": there is none of this name.");
  EXPECT_EQ(error_text([] {
              parse_net_text(
                  "op { type: \"A\" arg { name: \"stepnet.recurrent\" n { arg { name: \"step_net\" n {} } } } "
                  "[stepnet.recurrent] { step_net {} } }",
                  "a.pbtxt");
            }),
            in + "it is given twice\n  in  a.pbtxt:1:1");
  EXPECT_EQ(error_text([] {
              parse_net_text(
                  "arg { name: \"stepnet.model\" n { op { type: \"carry\" input: \"a\" output: "
                  "\"b\" arg { name: \"size\" i: 3000000000 } } } }");
            }),
            "the argument \"stepnet.model\": \"size\" is 3000000000, which is too large\n  in  text:1:33");
}

}  // namespace
}  // namespace stepnet::testing::extensions_test
