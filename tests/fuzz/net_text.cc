// The text form of nets.
#include "tests/fuzz/harness.h"
#include "tests/fuzz/net_round_trip.h"

namespace stepnet::testing {

int fuzz_net_text(const uint8_t* data, size_t size) {
  return may_refuse([&] { must_come_back(parse_net_text(text_of(data, size), "input.pbtxt")); });
}

}  // namespace stepnet::testing
