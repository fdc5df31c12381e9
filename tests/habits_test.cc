// The source tree keeps its habits, and the checks of them notice planted mistakes.
#include "tests/habits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing::habits_test {
namespace {

// Headers of families that several files share on the CPU and that have no kernel of their own.
const std::set<std::string> kSharedHeaders = {"cells/lstm_gates.h",
                                              "cells/lstm_gates_rows.h",
                                              "cells/unit_rows.h",
                                              "cells/unit_body.h",
                                              "collective/collective_call.h",
                                              "collective/world.h",
                                              "control/conditional_nets.h",
                                              "control/create_mutex.h",
                                              "control/scope.h",
                                              "convolution/windows.h",
                                              "loss/alignments.h",
                                              "loss/alignment_derivatives.h",
                                              "loss/labels.h",
                                              "loss/softmax_row.h",
                                              "loss/softmax_loss.h",
                                              "loss/softmax_loss_body.h",
                                              "norm/layer_norm_loops.h",
                                              "norm/layer_norm_rows.h",
                                              "norm/softmax_lines.h",
                                              "optimizer/optimizer.h",
                                              "pointwise/activation.h",
                                              "pointwise/elementwise_binary.h",
                                              "products/fc_product.h",
                                              "products/result.h",
                                              "reduce/reduce_axes.h"};

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
  for (const char* path : {"core/include/stepnet/operator.h", "tests/habits.cc", "gpu/runtime/device.h"})
    EXPECT_TRUE(paths.contains(path));
}

TEST(Habits, IncludesFollowTheArrow) { EXPECT_EQ(joined(all_of_tree(check_includes)), ""); }
TEST(Habits, PublicHeadersAreFew) {
  int count = 0;
  for (const SourceFile& file : read_tree(source_path("")))
    if (file.path.find("/include/stepnet/") != std::string::npos) ++count;
  EXPECT_LE(count, 40);
}
TEST(Habits, NoRoomIsInACircle) { EXPECT_EQ(joined(check_rooms()), ""); }
TEST(Habits, TypesHaveOneDefinition) { EXPECT_EQ(joined(check_types(read_tree(source_path("")))), ""); }
TEST(Habits, TestsHaveNamespacesOfTheirOwn) { EXPECT_EQ(joined(all_of_tree(check_test_namespace)), ""); }
TEST(Habits, TextIsClean) { EXPECT_EQ(joined(all_of_tree(check_text)), ""); }

// What a build without MPI says that it does not have.
TEST(Habits, OperatorsOfMpiAreListed) {
  const auto matches = [](const std::string& text, const char* pattern) {
    const std::regex regex(pattern);
    std::set<std::string> names;
    for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i) names.insert((*i)[1]);
    return names;
  };
  std::set<std::string> registered;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("operators/collective")))
    registered.merge(matches(read_all(entry.path()), R"re(\bop(?:<\w+>)?\("(\w+)"\))re"));
  const std::string registry = read_all(source_path("core/operator/registry.cc"));
  const size_t begin = registry.find("kOfMpi = {");
  EXPECT_GE(registered.size(), 18U);
  EXPECT_EQ(matches(registry.substr(begin, registry.find("};", begin) - begin), R"re("(\w+)")re"), registered);
}

TEST(Habits, TwinsHaveTheirNames) {
  std::set<std::string> paths;
  for (const SourceFile& file : read_tree(source_path(""))) paths.insert(file.path);
  EXPECT_EQ(joined(check_twins(paths, kSharedHeaders)), "");
}

TEST(HabitChecks, NoticeIncludesAgainstTheArrow) {
  const auto finding = [](const std::string& path, const std::string& included) {
    return joined(check_includes({path, "#pragma once\n#include <vector>\n#include \"" + included + "\"\n"}));
  };
  EXPECT_EQ(finding("core/net/net.cc", "operators/pointwise/mul.h"),
            "core/net/net.cc:3: core/net/ must not include operators/pointwise/mul.h\n");
  EXPECT_EQ(finding("core/tensor/a.h", "stepnet/net.h"),
            "core/tensor/a.h:3: core/tensor/ must not include stepnet/net.h\n");
  EXPECT_EQ(finding("proto/x.h", "stepnet/net.h"), "proto/x.h:3: proto/ must not include stepnet/net.h\n");
  EXPECT_EQ(finding("operators/norm/a.cc", "operators/loss/b.h"),
            "operators/norm/a.cc:3: operators/norm/ must not include operators/loss/b.h\n");
  EXPECT_EQ(finding("gpu/norm/a.cu", "operators/loss/b.h"),
            "gpu/norm/a.cu:3: gpu/norm/ must not include operators/loss/b.h\n");
  EXPECT_EQ(finding("recurrent/step/a.cc", "gpu/runtime/b.h"),
            "recurrent/step/a.cc:3: recurrent/step/ must not include gpu/runtime/b.h\n");
  EXPECT_EQ(finding("gpu/norm/a.cu", "tests/b.h"), "gpu/norm/a.cu:3: gpu/norm/ must not include tests/b.h\n");
  EXPECT_EQ(finding("core/io/a.cc", "a.h"),
            "core/io/a.cc:3: \"a.h\" is not a path from the root of the tree, nor a public header\n");
  EXPECT_EQ(finding("core/io/a.cc", "stepnet/a.h"),
            "core/io/a.cc:3: \"stepnet/a.h\" is not a path from the root of the tree, nor a public header\n");
  EXPECT_EQ(finding("core/include/stepnet/tensor.h", "stepnet/net.h"),
            "core/include/stepnet/tensor.h:3: core/tensor/ must not include stepnet/net.h\n");
  EXPECT_EQ(finding("core/include/stepnet/net.h", "core/net/dataflow.h"),
            "core/include/stepnet/net.h:3: a public header must not include core/net/dataflow.h\n");
  EXPECT_EQ(finding("core/include/stepnet/attic.h", "stepnet/error.h"),
            "core/include/stepnet/attic.h: no public header of any room\n");
  EXPECT_EQ(finding("core/attic/a.cc", "stepnet/error.h"), "core/attic/a.cc: core/attic is no room of the house\n");
  for (const char* fine :
       {"stepnet/error.h", "operators/norm/a.h", "operators/loops/a.h", "gpu/runtime/a.h", "stepnet/proto/net.pb.h"}) {
    EXPECT_EQ(finding("gpu/norm/a.cu", fine), "");
    EXPECT_EQ(finding("tests/core/a_test.cc", fine), "");
    EXPECT_EQ(finding("tools/commands/main.cc", fine), "");
  }
  EXPECT_EQ(joined(check_includes({"core/a.cc", "  #  include  \"gpu/runtime/a.h\""})),
            "core/a.cc:1: core/ must not include gpu/runtime/a.h\n");
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

TEST(HabitChecks, NoticeTestsWithoutANamespaceOfTheirOwn) {
  EXPECT_EQ(joined(check_test_namespace({"tests/core/a_test.cc", "namespace stepnet::testing::a_test {\n"})), "");
  EXPECT_EQ(joined(check_test_namespace({"tests/core/a_test.cc", "namespace stepnet::testing {\n"})),
            "tests/core/a_test.cc: its names are not in a namespace ...::a_test\n");
  EXPECT_EQ(joined(check_test_namespace({"tests/core/a.cc", "namespace stepnet::testing {\n"})), "");
}

TEST(HabitChecks, NoticeTwoTypesOfOneName) {
  const auto in = [](const std::string& path, const std::string& space, const std::string& type) {
    return SourceFile{path, "namespace stepnet {\n" + space + type + "\n"};
  };
  const std::string rows = "struct Rows {", inner = "namespace inner {\n", hidden = "namespace {\n";
  const auto finding = [](const SourceFile& a, const SourceFile& b) { return joined(check_types({a, b})); };
  const SourceFile first = in("core/a.h", "", rows);
  EXPECT_EQ(finding(first, in("recurrent/b.h", "", "class Rows final : public Base {")),
            "stepnet::Rows is a type of core/a.h and of recurrent/b.h\n");
  EXPECT_EQ(finding(first, in("core/b.cc", hidden + "int x;\n}  // namespace\n", rows)),
            "stepnet::Rows is a type of core/a.h and of core/b.cc\n");
  EXPECT_EQ(finding(first, in("core/b.h", "", "enum class Rows { one };")),
            "stepnet::Rows is a type of core/a.h and of core/b.h\n");
  for (const SourceFile& other : {in("core/b.h", inner, rows), in("core/b.cc", hidden, rows),
                                  in("core/b.h", "", "struct Rows;"), in("core/b.h", "", "struct Rows<int> {"),
                                  in("core/b.cc", "", "struct Rows::Entry {"), in("core/b.h", "", "  struct Rows {")})
    EXPECT_EQ(finding(first, other), "") << other.text;
}

TEST(HabitChecks, NoticeLonelyTwins) {
  const std::string cc = "operators/norm/a.cc", h = "operators/norm/a.h", cu = "gpu/norm/a.cu";
  EXPECT_EQ(joined(check_twins({cc, h, cu}, {})), "");
  EXPECT_EQ(joined(check_twins({cc, cu, "gpu/runtime/device.cc", "gpu/runtime/device.h"}, {})), "");
  EXPECT_EQ(joined(check_twins({cc, h}, {})), "operators/norm/a.h is there, but gpu/norm/a.cu is not\n");
  EXPECT_EQ(joined(check_twins({cc, h, "gpu/loss/a.cu", "operators/loss/a.cc"}, {})),
            "operators/norm/a.h is there, but gpu/norm/a.cu is not\n");
  EXPECT_EQ(joined(check_twins({cc, h}, {"norm/a.h"})), "");
  EXPECT_EQ(joined(check_twins({cu}, {})), "gpu/norm/a.cu is there, but operators/norm/a.cc is not\n");
  EXPECT_EQ(joined(check_twins({cc, h, cu}, {"norm/a.h"})),
            "operators/norm/a.h has a twin in gpu/ and needs no exception\n");
}

}  // namespace
}  // namespace stepnet::testing::habits_test
