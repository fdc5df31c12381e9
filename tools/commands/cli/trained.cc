#include "tools/commands/cli/trained.h"

#include <CLI/CLI.hpp>

#include "core/compute/threads.h"
#include "recurrent/train/run_folder.h"
#include "stepnet/error.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/usage.h"

namespace stepnet::tools {

void add_trained_options(CLI::App& command, TrainedOptions& options) {
  command.option_defaults()->always_capture_default();
  command.add_option("FILE", options.file, "The net, with a model; else the one that was trained");
  command.add_option("--out", options.out, "Folder of a run; its best checkpoint is used");
  command.add_option("--checkpoint", options.checkpoint, "A checkpoint file");
  command
      .add_option("--data", options.data,
                  "Samples: an array or a table that has columns which the model names; may be repeated")
      ->required()
      ->allow_extra_args(false)
      ->type_name("NAME=FILE.npy|FILE.csv|NAME=FILE.csv:COLUMN,...|...")
      ->default_str("");
  command.add_option("--batch", options.batch, "Samples that run together; else as the net says")
      ->check(whole_number(1))
      ->default_str("");
  add_root_option(command, options.root)
      ->description("Nets may open files, below this folder, by paths from there; else none");
  command.add_option("--threads", options.threads, "Threads to use; 0: one per core")->check(whole_number(0, 1024));
  add_strict_option(command, options.strict);
}

std::unique_ptr<TrainedModel> load_trained(const TrainedOptions& options) {
  if (options.out.empty() == options.checkpoint.empty())
    throw Error("one thing must say which parameters to use",
                "give either the folder of a run with --out, or a --checkpoint");
  set_threads(options.threads);
  const Checkpoint loaded = options.checkpoint.empty() ? load_best(options.out) : load_checkpoint(options.checkpoint);
  const FileRootPtr files = root_of(options.root);
  NetDef net;
  if (!options.file.empty()) net = load_short_net(options.file);
  report_unknown_args({&net}, options.strict);
  auto model = options.file.empty() ? std::make_unique<TrainedModel>(loaded, files)
                                    : std::make_unique<TrainedModel>(net, loaded, files);
  if (options.batch > 0) model->set_batch(options.batch);
  return model;
}

}  // namespace stepnet::tools
