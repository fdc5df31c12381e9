// The program of the tests of operators/collective, which mpirun starts several times. All of its processes run the
// same tests in the same order. The first one prints as usual, the others only what fails.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/operators/collective/ranks.h"

namespace stepnet::testing {
namespace {

class FailuresOnly final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank(), result.file_name(), result.line_number(), result.message());
  }
};

}  // namespace
}  // namespace stepnet::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (stepnet::testing::rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new stepnet::testing::FailuresOnly);
  }
  return RUN_ALL_TESTS();
}
