#include "core/operator/nets_inside.h"

#include <gtest/gtest.h>

#include "stepnet/text.h"

namespace stepnet::rename_reads_test {
namespace {

TEST(RenameReads, NamesOfTheStepNetStay) {
  NetDef net = parse_net_text(R"(
    op {
      type: "RecurrentNetwork" input: "x" input: "h0" output: "h"
      [stepnet.recurrent] {
        step_net {
          external_input: "x" external_input: "W" external_input: "h_prev"
          op { type: "FC" input: "x" input: "W" input: "b" output: "s" }
          op {
            type: "RecurrentNetwork" input: "s" output: "inner"
            [stepnet.recurrent] {
              step_net { op { type: "Mul" input: "s_t" input: "W" output: "b" } op { type: "Copy" input: "b" output: "c" } }
              sequence { outer: "s" inner: "s_t" }
              state { input: "p" output: "c" initial: "h0" all: "inner" }
            }
          }
          op { type: "Sum" input: "s" input: "h_prev" input: "h0" output: "y" }
        }
        sequence { outer: "x" inner: "x" }
        state { input: "h_prev" output: "y" initial: "h0" all: "h" }
        output { inner: "s" outer: "s_all" }
        lengths: "n"
      }
    }
  )",
                              "net");
  RecurrentDef& def = *net.mutable_op(0)->MutableExtension(recurrent);
  std::map<std::string, std::string> names;
  for (const char* name : {"x", "h0", "h", "h_prev", "W", "b", "s", "y", "s_all", "n", "p", "c", "timestep"})
    names[name] = std::string("new_") + name;
  rename_in_short_form(def, names);
  const NetDef& step = def.step_net();
  EXPECT_EQ(step.op(0).input(0), "x");  // the sequence's row
  EXPECT_EQ(step.op(0).input(1), "new_W");
  EXPECT_EQ(step.external_input(1), "new_W");
  EXPECT_EQ(step.op(0).input(2), "new_b");
  EXPECT_EQ(step.op(0).output(0), "s");
  EXPECT_EQ(step.op(2).input(1), "h_prev");
  EXPECT_EQ(step.op(2).input(2), "new_h0");
  const RecurrentDef& inner = step.op(1).GetExtension(recurrent);
  EXPECT_EQ(inner.sequence(0).outer(), "s");
  EXPECT_EQ(inner.state(0).initial(), "new_h0");
  EXPECT_EQ(inner.step_net().op(0).input(1), "new_W");
  EXPECT_EQ(inner.step_net().op(1).input(0), "b");  // its own, not the one outside
  EXPECT_EQ(def.sequence(0).outer(), "new_x");
  EXPECT_EQ(def.sequence(0).inner(), "x");
  EXPECT_EQ(def.state(0).initial(), "new_h0");
  EXPECT_EQ(def.state(0).output(), "y");
  EXPECT_EQ(def.state(0).all(), "new_h");
  EXPECT_EQ(def.output(0).inner(), "s");
  EXPECT_EQ(def.output(0).outer(), "new_s_all");
  EXPECT_EQ(def.lengths(), "new_n");
}

}  // namespace
}  // namespace stepnet::rename_reads_test
