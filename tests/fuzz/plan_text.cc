// The text form of plans.
#include "tests/fuzz/harness.h"
#include "tests/fuzz/net_round_trip.h"

namespace stepnet::testing {

int fuzz_plan_text(const uint8_t* data, size_t size) {
  return may_refuse([&] { must_come_back(parse_plan_text(text_of(data, size), "input.pbtxt")); });
}

}  // namespace stepnet::testing
