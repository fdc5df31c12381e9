// The source tree keeps its habits, and the checks of them notice planted mistakes.
#include "tests/habits.h"

#include <gtest/gtest.h>

#include "tools/source_path.h"

namespace stepnet::testing::habits_test {
namespace {

// Headers of operators/ that several files share on the CPU and that have no kernel of their own.
const std::set<std::string> kSharedHeaders = {"activation.h",
                                              "add_c.h",
                                              "add_c_args.h",
                                              "added_product.h",
                                              "added_sizes.h",
                                              "axis_rows.h",
                                              "broadcast.h",
                                              "conditional_nets.h",
                                              "copy_elements.h",
                                              "create_mutex.h",
                                              "elementwise_binary.h",
                                              "fc_product.h",
                                              "fc_sizes.h",
                                              "fill_shape.h",
                                              "flops.h",
                                              "indices.h",
                                              "labels.h",
                                              "layer_norm_loops.h",
                                              "layer_norm_rows.h",
                                              "lstm_gates.h",
                                              "lstm_gates_rows.h",
                                              "momentum.h",
                                              "one_axis.h",
                                              "ops.h",
                                              "optimizer.h",
                                              "outer_product.h",
                                              "random_fill.h",
                                              "reduce_args.h",
                                              "reduce_axes.h",
                                              "row_pairs.h",
                                              "segment_lengths.h",
                                              "segment_rows.h",
                                              "softmax_loss.h",
                                              "sum_rows.h",
                                              "unit_rows.h",
                                              "unit_second.h"};

std::string joined(const Findings& findings) {
  std::string text;
  for (const std::string& f : findings) text += f + "\n";
  return text;
}

Findings all_of_tree(Findings (*check)(const SourceFile&)) {
  Findings all;
  for (const SourceFile& file : read_tree(source_path("")))
    for (const std::string& f : check(file)) all.push_back(f);
  return all;
}

TEST(Habits, TheTreeIsFound) {
  std::set<std::string> paths;
  for (const SourceFile& file : read_tree(source_path(""))) {
    paths.insert(file.path);
    EXPECT_FALSE(file.text.empty()) << file.path;
  }
  for (const char* path : {"core/operator/operator.h", "tests/habits.cc", "gpu/runtime/device.h"})
    EXPECT_TRUE(paths.contains(path));
}

TEST(Habits, IncludesFollowTheArrow) { EXPECT_EQ(joined(all_of_tree(check_includes)), ""); }
TEST(Habits, FilesStaySmall) { EXPECT_EQ(joined(all_of_tree(check_length)), ""); }
TEST(Habits, TextIsClean) { EXPECT_EQ(joined(all_of_tree(check_text)), ""); }

TEST(Habits, TwinsHaveTheirNames) {
  std::set<std::string> paths;
  for (const SourceFile& file : read_tree(source_path(""))) paths.insert(file.path);
  EXPECT_EQ(joined(check_twins(paths, kSharedHeaders)), "");
}

TEST(HabitChecks, NoticeIncludesAgainstTheArrow) {
  const auto finding = [](const std::string& path, const std::string& included) {
    return joined(check_includes({path, "#pragma once\n#include <vector>\n#include \"" + included + "\"\n"}));
  };
  EXPECT_EQ(finding("core/net/net.cc", "operators/mul.h"),
            "core/net/net.cc:3: core/ must not include operators/mul.h\n");
  EXPECT_EQ(finding("proto/x.h", "core/net/net.h"), "proto/x.h:3: proto/ must not include core/net/net.h\n");
  EXPECT_EQ(finding("operators/a.cc", "recurrent/b.h"),
            "operators/a.cc:3: operators/ must not include recurrent/b.h\n");
  EXPECT_EQ(finding("recurrent/a.cc", "gpu/b.h"), "recurrent/a.cc:3: recurrent/ must not include gpu/b.h\n");
  EXPECT_EQ(finding("gpu/a.cu", "tests/b.h"), "gpu/a.cu:3: gpu/ must not include tests/b.h\n");
  EXPECT_EQ(finding("core/io/a.cc", "a.h"), "core/io/a.cc:3: \"a.h\" is not a path from the root of the tree\n");
  for (const char* fine : {"core/a.h", "operators/a.h", "recurrent/a.h", "gpu/a.h", "proto/net.pb.h"}) {
    EXPECT_EQ(finding("gpu/a.cu", fine), "");
    EXPECT_EQ(finding("tests/core/a_test.cc", fine), "");
    EXPECT_EQ(finding("tools/commands/main.cc", fine), "");
  }
  EXPECT_EQ(joined(check_includes({"core/a.cc", "  #  include  \"gpu/a.h\""})),
            "core/a.cc:1: core/ must not include gpu/a.h\n");
}

TEST(HabitChecks, NoticeLongFiles) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "\n";
  EXPECT_EQ(joined(check_length({"core/a.cc", text})), "");
  EXPECT_EQ(joined(check_length({"core/a.cc", text + "x"})), "core/a.cc: 401 lines, 400 are allowed\n");
}

TEST(HabitChecks, NoticeMacrosNamespacesAndUnfinishedWork) {
  EXPECT_EQ(joined(check_text({"core/a.h", "int x;\n#define TWICE(x) x x\n"})),
            "core/a.h:2: macro TWICE takes arguments\n");
  EXPECT_EQ(joined(check_text({"core/a.h", "#define REGISTER(name) x\n#define ANSWER (42)\n#define EMPTY"})), "");
  EXPECT_EQ(joined(check_text({"core/a.h", "using namespace std;\n"})), "core/a.h:1: using namespace in a header\n");
  EXPECT_EQ(joined(check_text({"core/a.cc", "using namespace std;\n"})), "");
  const std::string note = std::string("TO") + "DO";
  EXPECT_EQ(joined(check_text({"core/a.cc", "// " + note + ": later\n"})), "core/a.cc:1: " + note + "\n");
  EXPECT_EQ(joined(check_text({"core/a.cc", "int " + note + "_list;\n"})), "");
}

TEST(HabitChecks, NoticeLonelyTwins) {
  EXPECT_EQ(joined(check_twins({"operators/a.cc", "operators/a.h", "gpu/a.cu"}, {})), "");
  EXPECT_EQ(joined(check_twins({"operators/a.cc", "gpu/a.cu", "gpu/runtime/device.cc", "gpu/runtime/device.h"}, {})),
            "");
  EXPECT_EQ(joined(check_twins({"operators/a.cc", "operators/a.h"}, {})),
            "operators/a.h is there, but gpu/a.cu is not\n");
  EXPECT_EQ(joined(check_twins({"operators/a.cc", "operators/a.h"}, {"a.h"})), "");
  EXPECT_EQ(joined(check_twins({"gpu/a.cu"}, {})), "gpu/a.cu is there, but operators/a.cc is not\n");
  EXPECT_EQ(joined(check_twins({"operators/a.cc", "operators/a.h", "gpu/a.cu"}, {"a.h"})),
            "operators/a.h has a twin in gpu/ and needs no exception\n");
}

}  // namespace
}  // namespace stepnet::testing::habits_test
