// The binary form of nets, which a file may also hold as text: the reader finds out which it is.
#include "tests/fuzz/harness.h"
#include "tests/fuzz/net_round_trip.h"

namespace stepnet::testing {

int fuzz_net_binary(const uint8_t* data, size_t size) {
  const std::string path = fuzz_file("input.pb", text_of(data, size));
  may_refuse([&] { must_come_back(load_net(path)); });
  return may_refuse([&] { must_come_back(load_net_or_plan(path)); });
}

}  // namespace stepnet::testing
