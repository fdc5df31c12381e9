// `stepnet curves`: draws the loss and the metrics of a run.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/io/files.h"
#include "recurrent/report/curves.h"
#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct CurvesCommand {
  std::string out, metrics, output;

  void run() const {
    if (out.empty() == metrics.empty())
      throw Error("either the folder of a run or a file of metrics is drawn", "give --out FOLDER or --metrics FILE");
    if (!output.ends_with(".svg"))
      throw Error(fmt::format("curves are drawn as SVG, but are to be written to \"{}\"", output),
                  "give --output FILE.svg");
    const FileReader file(out.empty() ? FilePlace(metrics) : FilePlace(out).in_folder("metrics.jsonl"));
    const Curves curves = read_curves(file.text_at(0, file.size()), file.path());
    write_file(output, curves_svg(curves, file.path()));
    size_t points = 0;
    for (const auto& [name, values] : curves) points += values.size();
    print_text("{}: {} curves of {} points\n", output, curves.size(), points);
  }
};

}  // namespace

void add_curves_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("curves", "Draw the loss and the metrics of a run");
  auto o = std::make_shared<CurvesCommand>();  // shared with the callback, which runs after this returns
  command->add_option("--out", o->out, "The folder of the run");
  command->add_option("--metrics", o->metrics, "Its file of JSON lines, if that is elsewhere");
  command->add_option("--output", o->output, "The SVG file to write")->required();
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
