// `stepnet draw`: the text for Graphviz is well-formed and says what the net is; SVG comes from the program dot.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "stepnet/random.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::draw_command_test {
namespace {

struct DotEdge {
  std::string from, to, label;
  bool dashed = false;
  bool operator<(const DotEdge& o) const { return std::tie(from, to, label) < std::tie(o.from, o.to, o.label); }
};

// What was drawn. Nodes are named by their labels, with lines as DOT writes them.
struct Drawn {
  std::string title;
  std::map<std::string, std::string> labels, attributes, cluster_of;  // by id; cluster: its label
  std::vector<std::string> clusters;
  std::vector<DotEdge> edges;  // between ids

  std::vector<std::string> ids(const std::string& start) const {
    std::vector<std::string> found;
    for (const auto& [id, label] : labels)
      if (label == start || label.starts_with(start + "\\n")) found.push_back(id);
    return found;
  }
  std::string id(const std::string& start) const {
    const std::vector<std::string> found = ids(start);
    EXPECT_EQ(found.size(), 1U) << "nodes with the label " << start;
    return found.empty() ? "" : found[0];
  }
  bool joins(const std::string& from, const std::string& to, bool dashed = false, const std::string& label = "") const {
    return std::ranges::any_of(edges, [&](const DotEdge& e) {
      return labels.at(e.from).starts_with(from) && labels.at(e.to).starts_with(to) && e.dashed == dashed &&
             (label.empty() || e.label == label);
    });
  }
};

const std::string kQuoted = R"rx("((?:[^"\\\n]|\\.)*)")rx";

// A reader of the lines that are written, which refuses any other.
Drawn read_dot(const std::string& text) {
  static const std::regex kHead("digraph " + kQuoted + " \\{"), kLabel(" *label=" + kQuoted + ";"),
      kDefaults(" *(node|edge) \\[fontsize=[0-9]+\\];"), kCluster(" *subgraph (cluster_[0-9]+) \\{"),
      kNode(" *(n[0-9]+) \\[label=" + kQuoted + ", ([a-z0-9=#\", ]+)\\];"),
      kEdge(" *(n[0-9]+) -> (n[0-9]+)( \\[style=dashed, label=" + kQuoted + "\\])?;");
  Drawn drawn;
  std::vector<std::string> open;
  std::set<std::string> ids;
  std::istringstream lines(text);
  bool ended = false;
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    EXPECT_FALSE(ended) << "behind the end: " << line;
    if (std::regex_match(line, m, kHead)) {
      drawn.title = m[1];
    } else if (std::regex_match(line, m, kCluster)) {
      EXPECT_TRUE(ids.insert(m[1]).second) << line;
      open.emplace_back();
    } else if (std::regex_match(line, m, kLabel)) {
      if (!open.empty()) drawn.clusters.push_back(open.back() = m[1]);
    } else if (std::regex_match(line, m, kNode)) {
      EXPECT_TRUE(ids.insert(m[1]).second) << line;
      drawn.labels[m[1]] = m[2];
      drawn.attributes[m[1]] = m[3];
      drawn.cluster_of[m[1]] = open.empty() ? "" : open.back();
    } else if (std::regex_match(line, m, kEdge)) {
      EXPECT_TRUE(drawn.labels.count(m[1]) == 1 && drawn.labels.count(m[2]) == 1) << line;
      drawn.edges.push_back({m[1], m[2], m[4], m[3].matched});
    } else if (line.ends_with("}")) {
      ended = open.empty();
      if (!ended) open.pop_back();
    } else {
      EXPECT_TRUE(std::regex_match(line, kDefaults)) << "no line of DOT: " << line;
    }
  }
  EXPECT_TRUE(ended);
  return drawn;
}

class DrawCommand : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_all(folder_.file(name), text);
    return folder_.file(name);
  }
  static Drawn draw(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"draw"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = stepnet(all);
    EXPECT_EQ(outcome.code, 0) << outcome.text();
    return read_dot(outcome.out);
  }
  std::string refused(const std::string& arguments) const { return expect_command("draw " + arguments, 2, "error: "); }

  TempFolder folder_;
};

constexpr const char* kSmall = R"(name: 'small' external_input: 'X' external_input: 'W' external_input: 'b'
  external_output: 'Z'
  op { type: 'FC' name: 'first' input: 'X' input: 'W' input: 'b' output: 'Y' }
  op { type: 'Relu' input: 'Y' output: 'Y' }
  op { type: 'Alias' input: 'Y' output: 'A' }
  op { type: 'Mul' input: 'A' input: 'Y' output: 'Z' })";

TEST_F(DrawCommand, ShapesBytesAndFlopsStandOnTheNet) {
  const Drawn d = draw(
      {file("net.pbtxt", kSmall), "--feed", "X=float[32,128]", "--feed", "W=float[10,128]", "--feed", "b=float[10]"});
  EXPECT_EQ(d.title, "small");
  EXPECT_EQ(d.labels.at(d.id("X")), "X\\nfloat[32, 128]\\n16384 bytes");
  EXPECT_EQ(d.labels.at(d.id("Z")), "Z\\nfloat[32, 10]\\n1280 bytes");
  EXPECT_EQ(d.labels.at(d.id("Mul")), "Mul\\n320 FLOPs");
  EXPECT_TRUE(d.labels.at(d.id("FC \\\"first\\\"")).ends_with(" FLOPs"));
  EXPECT_EQ(d.ids("Y").size(), 2U);  // before and after Relu in place
  EXPECT_TRUE(d.joins("X", "FC"));
  EXPECT_TRUE(d.joins("FC", "Y"));
  EXPECT_TRUE(d.joins("Y", "A", true, "same bytes"));
  EXPECT_EQ(d.edges.size(), 3 + 1 + 2 + 2 + 1 + 3U);
  EXPECT_TRUE(d.attributes.at(d.id("Mul")).starts_with("shape=box"));
  EXPECT_EQ(d.attributes.at(d.id("X")), "shape=ellipse");
  EXPECT_EQ(d.attributes.at(d.id("Z")), "shape=ellipse, peripheries=2");
  EXPECT_TRUE(d.clusters.empty());
}

TEST_F(DrawCommand, WithoutTypesThereAreNames) {
  const Drawn d = draw({file("net.pbtxt", kSmall)});
  EXPECT_EQ(d.labels.at(d.id("X")), "X");
  EXPECT_EQ(d.labels.at(d.id("Mul")), "Mul");
}

TEST_F(DrawCommand, TypesOfParametersComeFromAnInitNet) {
  const std::string init = file("init.pbtxt", R"(name: 'init'
    op { type: 'ConstantFill' output: 'W' arg { name: 'shape' ints: 10 ints: 128 } })");
  const Drawn d = draw({file("net.pbtxt", kSmall), "--init", init});
  EXPECT_EQ(d.labels.at(d.id("W")), "W\\nfloat[10, 128]\\n5120 bytes");
}

TEST_F(DrawCommand, StepNetsAreClustersAndLinksAreDashed) {
  const Drawn d = draw({"../../tools/examples/char_lstm.pbtxt", "--loss", "loss"});
  ASSERT_EQ(d.clusters.size(), 2U);
  EXPECT_EQ(d.clusters[0], "step net \\\"lstm_step\\\", 50 timesteps");
  EXPECT_TRUE(d.clusters[1].starts_with("backward step net ")) << d.clusters[1];
  const std::string unit = d.id("LSTMUnit");
  EXPECT_EQ(d.cluster_of.at(unit), d.clusters[0]);
  EXPECT_EQ(d.cluster_of.at(d.id("LSTMUnitGradient")), d.clusters[1]);
  EXPECT_EQ(d.cluster_of.at(d.id("SoftmaxWithLoss")), "");
  EXPECT_TRUE(d.labels.at(d.id("h_prev")).ends_with("\\nfloat[1, 32, 256]\\n32768 bytes"));
  EXPECT_TRUE(d.joins("x\\n", "x_t", true, "row t"));
  EXPECT_TRUE(d.joins("h\\n", "", true, "row t + 1"));
  EXPECT_TRUE(d.joins("h_before", "", true, "first rows"));
  EXPECT_TRUE(d.joins("W_h\\n", "FC"));  // read by name, from outside
  EXPECT_TRUE(d.labels.at(d.id("RecurrentNetwork")).ends_with(" FLOPs"));
  for (const auto& [id, label] : d.labels)
    if (label == "W_h_grad\\nfloat[1024, 256]\\n1048576 bytes") return;
  FAIL() << "no gradient of W_h with its type";
}

// Tensors outside of a cluster are not drawn in it.
TEST_F(DrawCommand, EveryCellIsDrawn) {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tools/examples/cells"))) {
    SCOPED_TRACE(entry.path().filename());
    const Drawn d = draw({entry.path()});
    EXPECT_FALSE(d.clusters.empty());
    for (const std::string& id : d.ids("x")) EXPECT_EQ(d.cluster_of.at(id), "");
  }
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tools/examples/nets")))
    draw({entry.path(), "--loss", "loss"});
}

TEST_F(DrawCommand, NetsOfIfAreClusters) {
  const Drawn d = draw({file("net.pbtxt", R"(name: 'n' op { type: 'If' input: 'C' input: 'X' output: 'Y'
    arg { name: 'then_net' n { op { type: 'Relu' input: 'X' output: 'Y' } } }
    arg { name: 'else_net' n { op { type: 'Negative' input: 'X' output: 'Y' } } } })")});
  EXPECT_EQ(d.clusters, (std::vector<std::string>{"then_net of If", "else_net of If"}));
  EXPECT_TRUE(d.joins("X", "Relu"));
  EXPECT_EQ(d.cluster_of.at(d.id("X")), "");
}

// Names may have any bytes. They are shown, and change nothing else.
TEST_F(DrawCommand, HostileNamesAreEscaped) {
  const std::vector<std::string> bits = {"\"",   "\\",  "\n",           "\\n",  "];",    "->", "n0", "}",    "{",
                                         "&lt;", "<b>", "\xc3\xa9",     "\\\"", "label", "\t", "//", "\x7f", "\\",
                                         "a",    " ",   "\xe2\x82\xac", ";",    "\x01",  "/*", "#",  "'",    "\\N"};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    NetDef net;
    auto name = [&, next = uint64_t{0}]() mutable {
      std::string text;
      for (int64_t i = 0, n = random_int(seed, next++, 1, 6); i < n; ++i)
        text += bits[random_int(seed, next++, 0, static_cast<int64_t>(bits.size()) - 1)];
      return text;
    };
    net.set_name(name());
    std::string last = name();
    for (int i = 0; i < 5; ++i) {
      OperatorDef& op = *net.add_op();
      op.set_type("Exp");
      op.set_name(name());
      op.add_input(last);
      op.add_output(last = name() + std::to_string(i));
    }
    const Drawn d = draw({file("net.pb", to_binary(net))});
    EXPECT_EQ(d.labels.size(), 11U);
    EXPECT_EQ(d.edges.size(), 10U);
    EXPECT_TRUE(d.clusters.empty());
  }
}

TEST_F(DrawCommand, CharactersAreShownAsTheyAre) {
  NetDef net;
  *net.add_op() = {};
  net.mutable_op(0)->set_type("Exp");
  net.mutable_op(0)->add_input("a\"b\\c&d\te\xc3\xa9");
  net.mutable_op(0)->add_output("y");
  const Drawn d = draw({file("net.pb", to_binary(net))});
  EXPECT_EQ(d.ids("a\\\"b\\\\c&amp;d\\\\x09e\xc3\xa9").size(), 1U);
}

TEST_F(DrawCommand, FilesAreWrittenWholeOrNotAtAll) {
  const std::string net = file("net.pbtxt", kSmall), out = folder_.file("out.dot");
  EXPECT_EQ(stepnet("draw " + net + " -o " + out).code, 0);
  read_dot(read_all(out));
  const std::string before = read_all(out);
  expect_contains(refused(net + " --feed X=float[3,128] --feed W=float[10,4] -o " + out), "FC");
  EXPECT_EQ(read_all(out), before);
  EXPECT_EQ(folder_.count(), 2);
  refused(net + " -o " + folder_.file("nowhere/out.dot"));
}

TEST_F(DrawCommand, MistakesAreNamed) {
  const std::string net = file("net.pbtxt", kSmall);
  expect_contains(refused(net + " -o out.png"), "-o \"out.png\" ends in none of .dot, .gv and .svg");
  expect_contains(refused(net + " --feed X"), "--feed must be BLOB=TYPE[SIZE,...], but is \"X\"");
  expect_contains(refused(net + " --feed X=float"), "--feed must be");
  expect_contains(refused(net + " --feed X=float[2,]"), "--feed must be");
  expect_contains(refused(net + " --feed X=float[-2]"), "--feed must be");
  expect_contains(refused(net + " --feed X=flaot[2]"), "flaot");
  expect_contains(refused(net + " --feed X=float[99999999999,99999999999]"), "64 bits");
  expect_contains(refused(net + " --feed XX=float[2]"), "the net does not read \"XX\"");
  expect_contains(refused(net + " --feed X=float[2] --feed X=float[2]"), "twice");
  expect_contains(refused(net + " --feed X=float[3,128] --feed W=float[10,4]"), "W is float[10, 4]");
  refused(folder_.file("nothing.pbtxt"));
  refused("char_rnn_plan.pbtxt");
}

// With a PATH of its own for the command.
class DrawSvg : public DrawCommand {
 protected:
  DrawSvg() : path_(std::getenv("PATH") ? std::getenv("PATH") : "") {
    std::filesystem::create_directory(programs());
    setenv("PATH", programs().c_str(), 1);
  }
  ~DrawSvg() override { setenv("PATH", path_.c_str(), 1); }
  std::string programs() const { return folder_.file("programs"); }
  void make_dot(const std::string& script) const {
    write_all(programs() + "/dot", "#!/bin/sh\n" + script);
    std::filesystem::permissions(programs() + "/dot", std::filesystem::perms::owner_all);
  }

 private:
  std::string path_;
};

TEST_F(DrawSvg, WithoutGraphvizTheErrorSaysWhatHelps) {
  const std::string out = folder_.file("out.svg");
  const std::string text = refused(file("net.pbtxt", kSmall) + " -o " + out);
  expect_contains(text, "SVG is made by the program \"dot\", which cannot be run");
  expect_contains(text, "install Graphviz, or write DOT with -o FILE.dot");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(DrawSvg, GraphvizGetsTheTextAndItsOutputIsWritten) {
  make_dot("while read -r line; do echo \"$line\"; done < \"$4\" > \"$3\"\n");  // -Tsvg -o TARGET SOURCE
  const std::string out = folder_.file("out.svg");
  EXPECT_EQ(stepnet("draw " + file("net.pbtxt", kSmall) + " -o " + out).code, 0);
  read_dot(read_all(out));
}

TEST_F(DrawSvg, AFailureOfGraphvizLeavesNoFile) {
  const std::string out = folder_.file("out.svg");
  write_all(out, "before");
  make_dot("echo half > \"$3\"; echo 'it is broken' >&2; exit 3\n");
  expect_contains(refused(file("net.pbtxt", kSmall) + " -o " + out), "it is broken");
  EXPECT_EQ(read_all(out), "before");
  make_dot("exit 0\n");
  refused(file("net.pbtxt", kSmall) + " -o " + out);
  EXPECT_EQ(read_all(out), "before");
}

}  // namespace
}  // namespace stepnet::testing::draw_command_test
