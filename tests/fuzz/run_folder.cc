// Run folders of somebody: what `stepnet train --resume` and `stepnet sample` read.
//
// The input is a list of entries, each a byte that says which, two bytes of length and the content. The byte modulo 32
// is the place in kNames; its high bits say what is made there: a file, a folder or a link to another of the names. The
// checksums of checkpoints are made right. The folder is read, and a run of a net of ours goes on in it for a step.
#include <filesystem>

#include "recurrent/train/run_folder.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/fuzz/checkpoint_facts.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/run_net.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"iteration-1.ckpt",  "iteration-2.ckpt", "latest", "best/best.ckpt", "best",
                                  "parameters.minidb", "metrics.jsonl",    "lock",   "a.ckpt.part-1-1"};
constexpr size_t kMostEntries = 8;

void make_entries(Parts parts, const std::string& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::error_code ignored;
  for (size_t i = 0; i < kMostEntries && !parts.done(); ++i) {
    const uint8_t which = parts.byte();
    const fs::path path = fs::path(folder) / kNames[which % 32 % std::size(kNames)];
    const std::string_view content = parts.text(parts.pair());
    fs::create_directories(path.parent_path(), ignored);
    if (fs::symlink_status(path, ignored).type() != fs::file_type::not_found) continue;
    if (which / 32 == 1) {
      fs::create_directory(path, ignored);
    } else if (which / 32 == 2) {
      fs::create_symlink(content.empty() ? "latest" : "iteration-1.ckpt", path, ignored);
    } else {
      const bool sums = path.extension() == ".ckpt";
      fuzz_file(fs::path("run") / fs::relative(path, folder), sums ? with_checksums(content) : std::string(content));
    }
  }
}

void go_on(const std::string& folder) {
  static const NetDef net = parse_net_text(kRunNet);
  static const std::string text = fuzz_file("text", kRunText);
  static const std::atomic<bool> stop{true};
  TrainOptions options;
  options.text = text;
  options.out = folder;
  options.resume = true;
  options.stop = &stop;
  Trainer(net, options).run();
}

}  // namespace

int fuzz_run_folder(const uint8_t* data, size_t size) {
  const std::string folder = fuzz_folder() + "/run";
  make_entries(Parts(data, size), folder);
  may_refuse([&] { read_facts(load_best(folder)); });
  may_refuse([&] { read_facts(RunFolder(folder, RunFolder::Open::existing).latest().contents); });
  return may_refuse([&] { go_on(folder); });
}

}  // namespace stepnet::testing
