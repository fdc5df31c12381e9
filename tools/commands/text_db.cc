// `stepnet text-db`: makes a database of training batches from a text, for plans that read TensorProtos.
#include "recurrent/train/text_corpus.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <memory>

#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct TextDbCommand {
  std::string text, out;
  TextDbOptions options;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  require(in.good() || in.eof(), "{} cannot be read", path);
  require(!text.empty(), "{} is empty or cannot be read", path);
  return text;
}

void make(const TextDbCommand& c) {
  const int64_t records = write_text_db(read_file(c.text), c.out, c.options);
  print_text("{}: {} records of {} timesteps and {} sequences\n", c.out, records, c.options.timesteps, c.options.batch);
}

}  // namespace

void add_text_db_command(CLI::App& app) {
  auto c = std::make_shared<TextDbCommand>();
  CLI::App* sub = app.add_subcommand("text-db", "Make a database of training batches from a text");
  sub->add_option("TEXT", c->text, "The text")->required();
  sub->add_option("OUT", c->out, "The database to create")->required();
  sub->add_option("--type", c->options.db_type, "Kind of database: lmdb or minidb")->capture_default_str();
  sub->add_option("--timesteps", c->options.timesteps, "Timesteps of a record")->capture_default_str();
  sub->add_option("--batch", c->options.batch, "Sequences of a record")->capture_default_str();
  sub->add_option("--width", c->options.width, "Width of the one-hot vectors; 0: as many as different bytes");
  sub->add_option("--records", c->options.max_records, "At most this many records; 0: all");
  sub->callback([c] { make(*c); });
}

}  // namespace stepnet::tools
