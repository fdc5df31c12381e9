// Writes what libFuzzer starts from: `fuzz_inputs FOLDER` makes FOLDER/KIND with the seeds of each harness, and
// FOLDER/words, a dictionary of the text formats: names of fields, operators and arguments.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "stepnet/op_spec.h"
#include "stepnet/proto/recurrent.pb.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/seeds.h"

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;
using google::protobuf::Descriptor;

void add_fields(const Descriptor& type, std::set<std::string>& words) {
  for (int i = 0; i < type.field_count(); ++i)
    words.insert(type.field(i)->name() + (type.field(i)->message_type() ? " { " : ": "));
}

std::set<std::string> all_words() {
  std::set<std::string> words = {"[stepnet.recurrent] { ", "[stepnet.model] { ", "name: \"stepnet.recurrent\" n { ",
                                 "--shape ", "--loss "};
  for (const Descriptor* type :
       {NetDef::descriptor(), OperatorDef::descriptor(), Argument::descriptor(), PlanDef::descriptor(),
        ExecutionStep::descriptor(), RecurrentDef::descriptor(), SequenceLink::descriptor(), StateLink::descriptor(),
        OutputLink::descriptor(), ModelDef::descriptor(), CarryLink::descriptor(), DeviceOption::descriptor()})
    add_fields(*type, words);
  for (const std::string& type : op_types()) {
    words.insert(fmt::format("type: '{}' ", type));
    for (const ArgSpec& arg : op_spec(type).args) words.insert(fmt::format("name: '{}' ", arg.name));
  }
  return words;
}

void write_inputs(const fs::path& folder) {
  for (const Harness& harness : harnesses()) {
    const fs::path to = folder / harness.name;
    fs::create_directories(to);
    for (const Seed& seed : seeds_of(harness.name)) std::ofstream(to / seed.name, std::ios::binary) << seed.bytes;
  }
  std::ofstream words(folder / "words");
  for (const std::string& word : all_words()) words << '"' << word << "\"\n";
}

}  // namespace
}  // namespace stepnet::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: fuzz_inputs FOLDER\n");
    return 2;
  }
  stepnet::testing::write_inputs(argv[1]);
}
