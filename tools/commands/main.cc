// The `stepnet` command. Exit codes: 0 done, 1 gradients are wrong, 2 a mistake of the user (bad usage, bad net, bad
// data) or output that cannot be written, 130 interrupted.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <new>

#include "core/io/files.h"
#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/signals.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace {

constexpr int kMistake = 2;

int complain(std::string_view text) {
  // Not by fmt::print, which throws where the terminal is gone.
  const std::string line = stepnet::visible_text(fmt::format("error: {}\n", text));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kMistake;
}

// Its operators stay for the life of the process: the registry points into it.
void load_plugin(const std::string& path) {
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) stepnet::fail("cannot load the plugin: {}", dlerror());
}

int run_command(int argc, char** argv) {
  CLI::App app("Trains and runs recurrent networks that are written as protobuf text in the Caffe2 format.", "stepnet");
  app.require_subcommand(1);
  app.set_version_flag("--version", "stepnet " STEPNET_VERSION);
  app.set_help_all_flag("--help-all", "Help of all subcommands");
  app.add_option("--plugin", "A shared library with operators; may be repeated, before the subcommand")
      ->each(load_plugin)
      ->allow_extra_args(false)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->type_name("FILE.so");
  stepnet::tools::add_run_command(app);
  stepnet::tools::add_check_command(app);
  stepnet::tools::add_expand_command(app);
  stepnet::tools::add_draw_command(app);
  stepnet::tools::add_train_command(app);
  stepnet::tools::add_sample_command(app);
  stepnet::tools::add_evaluate_command(app);
  stepnet::tools::add_predict_command(app);
  stepnet::tools::add_curves_command(app);
  stepnet::tools::add_text_db_command(app);
  stepnet::tools::add_vocab_command(app);
  stepnet::tools::add_convert_weights_command(app);
  stepnet::tools::add_gradcheck_command(app);
  stepnet::tools::add_estimate_command(app);
  stepnet::tools::add_explain_command(app);
  stepnet::tools::add_bench_command(app);
  stepnet::tools::add_ops_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // what was asked for was done, and its answer is no
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) stepnet::tools::refuse_usage(app, e);
    return app.exit(e);  // help
  }
  return stepnet::tools::was_interrupted() ? stepnet::tools::kInterrupted : 0;
}

int run_guarded(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const std::bad_alloc&) {
    return complain("out of memory");
  } catch (const std::exception& e) {
    return complain(e.what());
  }
}

// What was printed may still be in a buffer, or in that of a file server, which tells of failures when a file is
// closed.
bool write_output() {
  errno = 0;
  bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (const int other = written ? ::dup(STDOUT_FILENO) : -1; other >= 0) written = ::close(other) == 0;
  return written;
}

}  // namespace

int main(int argc, char** argv) {
  stepnet::tools::let_large_writes_fail();
  const int code = run_guarded(argc, argv);
  if (write_output() || code == kMistake) return code;
  const std::string reason = errno != 0 ? stepnet::system_text(errno) : "an earlier write failed";
  complain("cannot write to standard output: " + reason);
  return code == 0 ? kMistake : code;
}
