// `stepnet sample`: text from a trained net.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/compute/threads.h"
#include "core/visible_text.h"
#include "recurrent/train/run_folder.h"
#include "stepnet/sampler.h"
#include "stepnet/text.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/signals.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

// Text as it is, but on a terminal without control characters: what a net of somebody's draws must not rule it.
class TextOutput {
 public:
  void put(char byte) {
    const char last_two[] = {before_, byte};
    before_ = byte;
    if (!terminal_) {
      std::fputc(byte, stdout);
      return;
    }
    const size_t shown_before = visible_text({last_two, 1}).size();
    const std::string shown = visible_text({last_two, 2}).substr(shown_before);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
  }
  void put(const std::string& text) {
    for (const char byte : text) put(byte);
  }

 private:
  bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  char before_ = ' ';
};

struct SampleCommand {
  std::string file, out, checkpoint, root;
  SampleOptions options;
  bool greedy = false, all = false, strict = false;
  int beams = 0;  // 0: bytes are drawn
  double length_penalty = 0;
  int threads = 1;

  void run() {
    if (greedy) options.temperature = 0;
    check_options(options);
    if (out.empty() && checkpoint.empty())
      throw Error("nothing says which parameters to use", "give the folder of a run with --out, or a --checkpoint");
    set_threads(threads);
    const Checkpoint loaded = checkpoint.empty() ? load_best(out) : load_checkpoint(checkpoint);
    const FileRootPtr files = root_of(root);
    NetDef net;
    if (!file.empty()) net = load_short_net(file);
    report_unknown_args({&net}, strict);
    Sampler sampler = file.empty() ? Sampler(loaded, files) : Sampler(net, loaded, files);
    sampler.check_texts(options.prompt, options.stop);
    const std::atomic<bool>& stop = stop_on_signals();
    TextOutput text;
    if (!all) text.put(options.prompt);
    if (beams > 0) return search(sampler, stop, text);
    sampler.sample(options, [&](char byte) {
      text.put(byte);
      std::fflush(stdout);
      return !stop;
    });
    text.put('\n');
  }

  void search(Sampler& sampler, const std::atomic<bool>& stop, TextOutput& text) const {
    const SearchOptions how{beams, options.length, length_penalty, options.prompt, options.stop};
    for (const FoundText& f : sampler.search(how, [&] { return !stop; })) {
      if (all) {
        fmt::print("{:.6f}\t{:.6f}\t{:?}\n", f.score, f.log_probability, f.text);
      } else {
        text.put(f.text + "\n");
        return;
      }
    }
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
  add_root_option(*command, o->root)
      ->description("Nets may open files, below this folder, by paths from there; else none");
  command->add_option("--length", o->options.length, "Bytes to draw")->check(whole_number(0));
  command->add_option("--prompt", o->options.prompt, "What the text starts with");
  CLI::Option* stop =
      command->add_option("--stop", o->options.stop, "The text ends where it has drawn this")->check(not_empty());
  CLI::Option* temperature =
      command->add_option("--temperature", o->options.temperature, "Below 1 more likely bytes only; 0: the likeliest")
          ->check(number_at_least(0));
  CLI::Option* seed = command->add_option("--seed", o->options.seed, "Seed of the draws");
  CLI::Option* greedy = command->add_flag("--greedy", o->greedy, "Always take the most probable byte");
  CLI::Option* beams = command->add_option("--beams", o->beams, "Search for the most probable text with so many beams")
                           ->check(whole_number(1, 4096))
                           ->default_str("");
  greedy->excludes(temperature)->excludes(seed)->excludes(beams);
  beams->excludes(temperature)->excludes(seed);
  command->add_flag("--all", o->all, "Print every beam: score, log-probability and text")->needs(beams);
  command->add_option("--length-penalty", o->length_penalty, "Texts are ranked by log P / ((5 + bytes) / 6) ^ penalty")
      ->check(number_at_least(0))
      ->needs(beams)
      ->needs(stop);
  command->add_option("--threads", o->threads, "Threads to use; 0: one per core")->check(whole_number(0, 1024));
  add_strict_option(*command, o->strict);
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
