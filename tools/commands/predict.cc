// `stepnet predict`: what a trained model says of samples, as arrays or tables.
#include <CLI/CLI.hpp>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "core/io/files.h"
#include "core/io/npy.h"
#include "recurrent/train/trained_model.h"
#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/trained.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct Wanted {
  TrainedModel::Output output;
  std::string path;
};

// BLOB=FILE, or BLOB:AXIS=FILE.
Wanted read_wanted(const std::string& text) {
  const size_t equals = text.find('=');
  const bool ends_well = text.ends_with(".npy") || text.ends_with(".csv");
  if (equals == text.npos || equals == 0 || !ends_well)
    throw Error(fmt::format("an output is given as \"{}\"", text), "name it as BLOB=FILE.npy or BLOB=FILE.csv");
  Wanted wanted{{text.substr(0, equals), 0}, text.substr(equals + 1)};
  std::string& blob = wanted.output.blob;
  const size_t colon = blob.rfind(':');
  if (colon != blob.npos && colon + 2 == blob.size() && std::isdigit(static_cast<unsigned char>(blob.back())) != 0) {
    wanted.output.axis = blob.back() - '0';
    blob.resize(colon);
  }
  return wanted;
}

// A row of names, then one for each sample.
std::string table_of(const std::string& blob, const Tensor& values) {
  const int64_t columns = values.shape().size_between(1, values.rank());
  std::string name, text;
  for (const char c : blob) name += c == '"' ? "\"\"" : std::string(1, c);
  for (int64_t c = 0; c < columns; ++c)
    text += fmt::format("{}\"{}{}\"", c > 0 ? "," : "", name, values.rank() > 1 ? fmt::format("_{}", c) : "");
  text += '\n';
  const auto write = [&]<class T>(T) {
    const auto span = values.span<T>();
    for (int64_t i = 0; i < values.dim(0); ++i) {
      for (int64_t c = 0; c < columns; ++c)
        text += fmt::format("{}{}", c > 0 ? "," : "", +span[static_cast<size_t>(i * columns + c)]);
      text += '\n';
    }
  };
  require(with_type(values.dtype(), write), "{} cannot be written as a table", values);
  return text;
}

struct PredictCommand {
  TrainedOptions trained;
  std::vector<std::string> outputs;

  void run() {
    std::vector<Wanted> wanted;
    std::vector<TrainedModel::Output> blobs;
    for (const std::string& text : outputs) {
      wanted.push_back(read_wanted(text));
      blobs.push_back(wanted.back().output);
    }
    const std::vector<Tensor> values = load_trained(trained)->predict(trained.data, blobs);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].path.ends_with(".npy"))
        write_npy(wanted[i].path, values[i]);
      else
        write_file(wanted[i].path, table_of(blobs[i].blob, values[i]));
      print_text("{} is {} in {}\n", blobs[i].blob, values[i].str(), wanted[i].path);
    }
  }
};

}  // namespace

void add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Write what a trained model makes of samples");
  auto o = std::make_shared<PredictCommand>();  // shared with the callback, which runs after this returns
  add_trained_options(*command, o->trained);
  command
      ->add_option(
          "--output", o->outputs,
          "A blob of the net, and the file for its values, samples first; with the dimension of the blob along "
          "which samples stand, if that is not the first; may be repeated")
      ->required()
      ->allow_extra_args(false)
      ->type_name("BLOB[:AXIS]=FILE.npy|FILE.csv");
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
