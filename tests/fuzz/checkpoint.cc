// Checkpoint files.
#include "stepnet/checkpoint.h"
#include "tests/fuzz/checkpoint_facts.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {
namespace {

void must_come_back(const Checkpoint& contents, const std::string& path) {
  write_checkpoint_file(path, 7, contents);
  const Checkpoint again = read_checkpoint_file(path);
  must(checkpoint_number(path) == 7, "a checkpoint keeps its number");
  must(again.texts == contents.texts && again.tensors.size() == contents.tensors.size(), "a checkpoint comes back");
  for (const auto& [name, tensor] : contents.tensors)
    must(again.tensors.count(name) > 0 && same(again.tensors.at(name), tensor), "a checkpoint's tensors come back");
}

void read(std::string_view bytes) {
  const std::string path = fuzz_file("input.ckpt", bytes);
  checkpoint_number(path);
  may_refuse([&] {
    const Checkpoint contents = load_checkpoint(path);
    read_facts(contents);
    must_work([&] { must_come_back(contents, path); });
  });
}

}  // namespace

int fuzz_checkpoint(const uint8_t* data, size_t size) {
  read(text_of(data, size));
  read(with_checksums(text_of(data, size)));
  return 0;
}

}  // namespace stepnet::testing
