// `stepnet sample`: text from a trained net.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/io/text.h"
#include "core/parallel.h"
#include "recurrent/run_folder.h"
#include "recurrent/sampler.h"
#include "tools/commands.h"
#include "tools/signals.h"
#include "tools/usage.h"

namespace stepnet::tools {
namespace {

struct SampleCommand {
  std::string file, out, checkpoint;
  SampleOptions options;
  int threads = 1;

  void run() {
    check_options(options);
    if (out.empty() && checkpoint.empty())
      throw Error("nothing says which parameters to use", "give the folder of a run with --out, or a --checkpoint");
    set_threads(threads);
    const Checkpoint loaded = checkpoint.empty() ? load_best(out) : load_checkpoint(checkpoint);
    Sampler sampler = file.empty() ? Sampler(loaded) : Sampler(load_net(file), loaded);
    const std::atomic<bool>& stop = stop_on_signals();
    sampler.check_prompt(options.prompt);
    std::fwrite(options.prompt.data(), 1, options.prompt.size(), stdout);
    sampler.sample(options, [&](char byte) {
      std::fputc(byte, stdout);
      std::fflush(stdout);
      return !stop;
    });
    std::fputc('\n', stdout);
  }
};

}  // namespace

void add_sample_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("sample", "Print text from a trained net");
  auto o = std::make_shared<SampleCommand>();  // shared with the callback, which runs after this returns
  command->option_defaults()->always_capture_default();
  command->add_option("FILE", o->file, "The net; else the one that was trained");
  command->add_option("--out", o->out, "Folder of a run; its best checkpoint is used");
  command->add_option("--checkpoint", o->checkpoint, "A checkpoint file");
  command->add_option("--length", o->options.length, "Bytes to draw")->check(whole_number(0));
  command->add_option("--temperature", o->options.temperature, "Below 1 more likely bytes only; 0: the likeliest")
      ->check(number_at_least(0));
  command->add_option("--prompt", o->options.prompt, "What the text starts with");
  command->add_option("--seed", o->options.seed, "Seed of the draws");
  command->add_option("--threads", o->threads, "Threads to use; 0: one per core")->check(whole_number(0, 1024));
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
