// The subcommands of `stepnet`. Each declares its options; its work runs while the command line is parsed, and what the
// user did wrong is thrown as Error. Results go to standard output, messages to standard error.
#pragma once

namespace CLI {
class App;
}

namespace stepnet::tools {

void add_run_command(CLI::App& app);
void add_check_command(CLI::App& app);
void add_expand_command(CLI::App& app);
void add_draw_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_sample_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_curves_command(CLI::App& app);
void add_text_db_command(CLI::App& app);
void add_vocab_command(CLI::App& app);
void add_convert_weights_command(CLI::App& app);
void add_gradcheck_command(CLI::App& app);
void add_estimate_command(CLI::App& app);
void add_explain_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_ops_command(CLI::App& app);

}  // namespace stepnet::tools
