// The full form of a cell that adds a parameter by Sum, as text; and that it is what the short form means.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/operator/nets_inside.h"
#include "recurrent/form/short_form.h"
#include "stepnet/text.h"
#include "tests/recurrent/unrolled.h"
#include "tools/source_path.h"

namespace stepnet::testing::short_form_test {
namespace {

const std::string kShort = source_path("tests/data/sum_cell.pbtxt");
const std::string kFull = source_path("tests/data/sum_cell_full.pbtxt");

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

NetDef short_form() { return load_net(kShort); }

NetDef full_form() {
  NetDef net = short_form();
  expand_recurrent(net);
  return net;
}

// The same cell for the unrolled net, whose sequence is called "X" and whose row of it is "x".
const Cell kCell = {{"s = Sum(x, h_prev, p)", "h = Tanh(s)"}, {{"h_prev", "h", "h0", "h_all", "h_last"}}};

Feeds feeds_of(int64_t steps, int64_t batch) {
  return {{"X", normal<double>({steps, batch, 3}, 1)},
          {"h0", normal<double>({batch, 3}, 2)},
          {"p", normal<double>({1, batch, 3}, 3)}};
}

// Values and all gradients of a full form are those of the cell unrolled by hand.
std::string check_numbers(const NetDef& net) {
  std::string text;
  for (const int64_t steps : {1, 4}) {
    const Feeds feeds = feeds_of(steps, 2);
    const Feeds outside = outside_gradients(kCell, feeds);
    text += compare_results(run_with_gradients(net, feeds, outside), run_unrolled(kCell, feeds, outside), 1e-12);
  }
  return text;
}

TEST(Expansion, IsTheGoldenText) { EXPECT_EQ(to_text(full_form()), text_of(kFull)); }

TEST(Expansion, AParameterGradientThatIsAnotherBlobIsAnAliasOfIt) {
  NetDef net = full_form();
  int aliases = 0;
  for (const OperatorDef& op : arg_of(net, "backward_step_net").n().op())
    if (op.type() == "Alias") {
      ++aliases;
      EXPECT_EQ(line_of(op), "p_grad = Alias(s_grad)");
    }
  EXPECT_EQ(aliases, 1);
  EXPECT_EQ(arg_of(net, "param_grads").strings(0), "p_grad");
}

TEST(Expansion, OfTheFullFormChangesNothing) {
  NetDef net = full_form();
  const std::string once = to_binary(net);
  expand_recurrent(net);
  EXPECT_EQ(to_binary(net), once);
  NetDef read = load_net(kFull);
  expand_recurrent(read);
  EXPECT_EQ(to_text(read), text_of(kFull));
  EXPECT_FALSE(has_short_form(read.op(0)));
}

TEST(Expansion, TheFullFormMeansTheShortForm) {
  EXPECT_EQ(check_numbers(full_form()), "");
  EXPECT_EQ(check_numbers(parse_net_text(to_text(full_form()))), "");
  EXPECT_EQ(check_numbers(load_net(kFull)), "");
}

// The network and the gradients of all its inputs from that of h_all, "g".
NetDef with_gradients(NetDef net) {
  net.add_external_input("g");
  add_gradient_operators(net, {.targets = {{"h_all", "g"}}, .wanted = {"p", "X", "h0"}, .stop = {}});
  return net;
}

void run_in(Workspace& workspace, const NetDef& net) {
  for (const auto& [name, value] : feeds_of(3, 2)) workspace.tensor(name) = value;
  workspace.tensor("g") = normal<double>({3, 2, 3});
  RunContext run;
  run_net_once(net, workspace, run);
}

// The parameter's gradient owns its bytes: it is no view of the last timestep's.
TEST(Expansion, NoAliasSurvivesTheRun) {
  Workspace workspace;
  run_in(workspace, with_gradients(full_form()));
  workspace.remove("rnn/step_workspaces");  // which holds what it was compiled for
  EXPECT_EQ(workspace.fetch("p_grad").storage().use_count(), 1);
  for (const char* name : {"X_grad", "h0_grad"})
    EXPECT_FALSE(workspace.fetch("p_grad").shares_storage(workspace.fetch(name))) << name;
}

// A step net may call a parameter's gradient of one timestep by the total's name, whatever that is.
TEST(Expansion, TheTotalsNameInTheStepNet) {
  NetDef net = with_gradients(full_form());
  Workspace usual, renamed;
  run_in(usual, net);
  OperatorDef& gradient = *net.mutable_op(1);
  for (std::string& name : *gradient.mutable_output())
    if (name == "p_grad") name = "total";
  for (Argument& arg : *gradient.mutable_arg()) {
    if (arg.name() == "param_grads") arg.clear_strings();
    if (arg.name() == "backward_step_net") arg.mutable_n()->mutable_op(2)->set_output(0, "total");
  }
  run_in(renamed, net);
  EXPECT_EQ(compare(renamed.fetch("total"), usual.fetch("p_grad"), 0), "");
}

// Forms of the same backward step net that older builders wrote.
TEST(Expansion, OlderFullFormsMeanTheSame) {
  NetDef named = load_net(kFull);  // a parameter's gradient is named as the blob that it is
  arg_of(named, "backward_step_net").mutable_n()->mutable_op()->RemoveLast();
  arg_of(named, "param_grads").set_strings(0, "s_grad");
  EXPECT_EQ(check_numbers(named), "");

  NetDef copied = load_net(kFull);  // every gradient under another name is copied to its own
  NetDef& backward = *arg_of(copied, "backward_step_net").mutable_n();
  backward.mutable_op(2)->set_type("Copy");
  *backward.add_op() = make_op("Copy", {"s_grad"}, {"h_prev_grad"});
  arg_of(copied, "backward_link_internal").set_strings(1, "h_prev_grad");
  EXPECT_EQ(check_numbers(copied), "");

  // Without names of parameter gradients the step net uses the total's.
  for (NetDef* net : {&copied, &named}) {
    if (net == &named) *net = load_net(kFull);
    remove_arg(*net, "param_grads");
    remove_arg(*net, "recompute_blobs_on_backward");
    EXPECT_EQ(check_numbers(*net), "");
  }
}

TEST(Expansion, TheWholeNetIsExpandedAndItsInitialiserToo) {
  NetDef net = short_form();
  NetDef& init = *net.MutableExtension(model)->mutable_init();
  *init.add_op() = net.op(0);
  OperatorDef second = net.op(0);
  second.set_name("second");
  second.set_output(0, "second_all");
  second.set_output(1, "second_last");
  StateLink& state = *second.MutableExtension(recurrent)->mutable_state(0);
  state.set_all("second_all");
  state.set_last("second_last");
  *net.add_op() = second;
  expand_recurrent(net);
  EXPECT_FALSE(has_short_form(net.op(0)) || has_short_form(net.op(1)));
  EXPECT_FALSE(has_short_form(net.GetExtension(model).init().op(0)));
  EXPECT_EQ(net.op(1).output(2), "second/step_workspaces");
}

std::string expansion_error(NetDef net) {
  return error_of([&] { expand_recurrent(net); });
}

TEST(Expansion, TwoOperatorsOfOneNameAreRefused) {
  NetDef net = short_form();
  *net.add_op() = net.op(0);
  EXPECT_EQ(expansion_error(net),
            fmt::format("RecurrentNetwork: another operator has the name \"rnn\" too\n"
                        "  in  {}:3:1, the short form of operator 1 (RecurrentNetwork) of net \"sum_cell\"\n"
                        "  fix give each its own name",
                        kShort));
  NetDef unnamed = short_form();
  unnamed.mutable_op(0)->clear_name();
  *unnamed.add_op() = unnamed.op(0);
  EXPECT_NE(expansion_error(unnamed).find("has the name \"h_all_rnn\" too"), std::string::npos);
}

TEST(Expansion, TheNameOfAFullFormIsTakenToo) {
  NetDef after = load_net(kFull);
  *after.add_op() = short_form().op(0);
  EXPECT_NE(expansion_error(after).find("operator 1"), std::string::npos);
  NetDef before = short_form();
  *before.add_op() = load_net(kFull).op(0);
  EXPECT_NE(expansion_error(before).find("operator 0"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::short_form_test
