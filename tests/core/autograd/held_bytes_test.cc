// Bytes that are held for backward, by the allocator's count, against what the formulas read.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/error.h"
#include "tools/bench/tape/held.h"

namespace stepnet::autograd::testing::held_bytes_test {
namespace {

using bench::held_bytes;
using bench::HeldCase;

const HeldCase& held_case(const std::string& name) {
  for (const HeldCase& c : bench::held_cases())
    if (c.name == name) return c;
  fail("there is no case {}", name);
}

TEST(HeldBytes, AreThoseOfWhatTheFormulasRead) {
  for (const HeldCase& c : bench::held_cases())
    for (const std::string& trained : c.choices()) {
      held_bytes(c, trained);  // what the first run of an operator makes and keeps is no part of a graph
      EXPECT_EQ(held_bytes(c, trained), c.expected_bytes(trained)) << c.name << " with gradients of " << trained;
    }
}

TEST(HeldBytes, OfEachOperatorWithAConstantSideAreInTheTable) {
  for (const char* type : {"AddBMM", "AddCDiv", "AddCMul", "AddMV", "AddR", "BAddBMM", "BatchMatMul", "Cross", "Div",
                           "DotProduct", "FMod", "Ger", "IndexAdd", "Mul", "MV", "ScatterAdd"})
    EXPECT_GT(held_case(type).choices().size(), 1) << type;
  EXPECT_GE(bench::held_cases().size(), 30);
}

// Made of other operators, an operator of three inputs holds no more than as one.
TEST(HeldBytes, OfACompositionAreNoMoreThanOfOneOperator) {
  const std::pair<const char*, const char*> pairs[] = {{"AddCDiv of Div, Scale, Add", "AddCDiv"},
                                                       {"AddCMul of Mul, Scale, Add", "AddCMul"},
                                                       {"AddMV of MV, Add", "AddMV"},
                                                       {"AddR of Ger, Add", "AddR"},
                                                       {"BAddBMM of BatchMatMul, Add", "BAddBMM"}};
  for (const auto& [composed, one] : pairs)
    for (const std::string& trained : held_case(one).choices())
      EXPECT_LE(held_bytes(held_case(composed), trained), held_bytes(held_case(one), trained))
          << composed << " with gradients of " << trained;
}

TEST(HeldBytes, OfADropoutAreTheMask) {
  const HeldCase& c = held_case("dropout-like");
  EXPECT_EQ(held_bytes(c, "x"), c.bytes_of('m'));
  EXPECT_EQ(held_bytes(c, "m"), c.bytes_of('s'));
}

}  // namespace
}  // namespace stepnet::autograd::testing::held_bytes_test
