// `stepnet vocab`: makes a list of the words or sub-words of a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/data/tokenizer.h"
#include "core/io/files.h"
#include "core/io/text_stream.h"
#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct VocabCommand {
  std::string text, output;
  int64_t size = 0;
  bool words = false, subwords = false;

  void run() const {
    if (words == subwords) throw Error("a vocabulary is of words or of sub-words", "give --words or --subwords");
    const std::string content = read_text_file(text);
    require_writable_folder_of(output);  // before the work
    const std::string made = words ? list_words(content, size) : list_subwords(content, size);
    write_file(output, made);
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(output);
    int64_t tokens = 0, unknown = 0;
    for (const std::string_view line : lines_of(content))
      for (const int32_t token : tokenizer->encode(line)) {
        ++tokens;
        if (token == 0) ++unknown;
      }
    print_text("{}: {} {}; the text is {} of them, {} of which are not in it\n", output, tokenizer->size(),
               words ? "words" : "sub-words", tokens, unknown);
  }
};

}  // namespace

void add_vocab_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("vocab", "Make a list of the words or sub-words of a text");
  auto o = std::make_shared<VocabCommand>();  // shared with the callback, which runs after this returns
  command->add_option("TEXT", o->text, "The text")->required();
  auto* words = command->add_flag("--words", o->words, "The most frequent words, what blanks part, one on each line");
  command
      ->add_flag("--subwords", o->subwords,
                 "Characters, and what the most frequent neighbours make (byte pair encoding)")
      ->excludes(words);
  command->add_option("--size", o->size, "How many")->required()->check(whole_number(3));
  command->add_option("--output", o->output, "The file to write")->required();
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
