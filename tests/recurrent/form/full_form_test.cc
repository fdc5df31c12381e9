// Networks without a backward step net: their memory does not grow with the sequence but for inputs and outputs, and
// states of which nobody sees earlier rows are a few rows taken in turn, with the same results.
#include <gtest/gtest.h>

#include "stepnet/net.h"
#include "tests/recurrent/full_form.h"

namespace stepnet::testing::full_form_test {
namespace {

const Lines kElman = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"};

// The cell's last state, and perhaps all.
FullForm elman(bool all) {
  return {.inputs = {"X", "h0", "W", "U", "b"},
          .outputs = all ? std::vector<std::string>{"h_all", "h_last"} : std::vector<std::string>{"h_last"},
          .states = {"S = h0"},
          .links = {"h_prev = S[0]", "h = S[1]", "x = X[0]"},
          .views = all ? Lines{"h_all = S[1]", "h_last = S[-1]"} : Lines{"h_last = S[-1]"},
          .step = kElman};
}

Feeds elman_feeds(int64_t steps, int64_t batch = 4, const Shape& initial = {3}) {
  return {{"X", normal<double>({steps, batch, 3}, 1)},
          {"h0", normal<double>(initial, 2)},
          {"W", normal<double>({3, 3}, 3)},
          {"U", normal<double>({3, 3}, 4)},
          {"b", normal<double>({3}, 5)}};
}

int64_t live() { return allocator({}).counters().live; }

// The most bytes that there are during two runs, beside the inputs.
int64_t bytes_of_run(const NetDef& net, const Feeds& feeds) {
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  Net bound(net, workspace);
  RunContext run;
  const int64_t before = live();
  allocator({}).reset_peak();
  bound.run(run);
  bound.run(run);
  return allocator({}).counters().peak - before;
}

TEST(ForwardOnly, MemoryDoesNotGrowWithTheSequence) {
  auto bytes = [](int64_t steps) {
    const Feeds feeds = elman_feeds(steps);
    return bytes_of_run(full_net(elman(false), feeds), feeds);
  };
  EXPECT_EQ(bytes(1000), bytes(100));
  EXPECT_EQ(bytes(100), bytes(32));
}

TEST(ForwardOnly, MemoryGrowsByTheOutputsAlone) {
  auto bytes = [](int64_t steps) {
    const Feeds feeds = elman_feeds(steps, 8, {8, 3});  // 192 bytes a row: sizes are rounded to 64
    return bytes_of_run(full_net(elman(true), feeds), feeds);
  };
  EXPECT_EQ(bytes(1000) - bytes(100), 900 * 8 * 3 * 8);
}

// Two states, of which one is shown as a whole.
TEST(ForwardOnly, EachStateForItself) {
  FullForm form = elman(true);
  form.inputs.emplace_back("c0");
  form.states.emplace_back("C = c0");
  form.links.insert(form.links.end(), {"c_prev = C[0]", "c = C[1]"});
  form.step.emplace_back("c = Sum(c_prev, h)");
  auto bytes = [&](int64_t steps) {
    Feeds feeds = elman_feeds(steps, 8, {8, 3});
    feeds.emplace_back("c0", normal<double>({8, 3}, 6));
    return bytes_of_run(full_net(form, feeds), feeds);
  };
  EXPECT_EQ(bytes(1000) - bytes(100), 900 * 8 * 3 * 8);
}

std::string compare_last(const NetDef& net, const NetDef& other, const Feeds& feeds) {
  return compare(run_with_gradients(net, feeds, {}).outputs.at("h_last"),
                 run_with_gradients(other, feeds, {}).outputs.at("h_last"), 0);
}

TEST(ForwardOnly, RowsInTurnGiveTheSameBits) {
  for (const int64_t steps : {0, 1, 2, 3, 4, 7})
    for (const int64_t batch : {0, 1, 4, 60}) {
      const Feeds feeds = elman_feeds(steps, batch);
      EXPECT_EQ(compare_last(full_net(elman(false), feeds), full_net(elman(true), feeds), feeds), "")
          << steps << " " << batch;
    }
}

// h_t = tanh(x_t + h_{t-1} * h_{t-L}), for initial values of L rows.
FullForm delayed(int64_t rows, bool all) {
  FullForm form = elman(all);
  form.inputs = {"X", "h0"};
  form.step = {"p = Mul(h_near, h_far)", "s = Sum(p, x)", "h = Tanh(s)"};
  form.links = {"h_far = S[0]", fmt::format("h_near = S[{}]", rows - 1), fmt::format("h = S[{}]", rows), "x = X[0]"};
  if (all) form.views[0] = fmt::format("h_all = S[{}]", rows);
  return form;
}

TEST(ForwardOnly, InitialValuesOfSeveralRowsAreTakenInTurnToo) {
  for (const int64_t rows : {2, 3, 5})
    for (const int64_t batch : {2, 130})
      for (const int64_t steps : {0, 1, 2, 5, 11, 31}) {
        const Feeds feeds = {{"X", normal<double>({steps, batch, 3}, 1)}, {"h0", normal<double>({rows, batch, 3}, 2)}};
        EXPECT_EQ(compare_last(full_net(delayed(rows, false), feeds), full_net(delayed(rows, true), feeds), feeds), "")
            << rows << " " << batch << " " << steps;
      }
  auto bytes = [](int64_t steps) {
    const Feeds feeds = {{"X", normal<double>({steps, 2, 3}, 1)}, {"h0", normal<double>({3, 2, 3}, 2)}};
    return bytes_of_run(full_net(delayed(3, false), feeds), feeds);
  };
  EXPECT_EQ(bytes(1000), bytes(100));
}

// An initial value of no rows: the state is what the step net writes, and is read by nobody.
TEST(ForwardOnly, InitialValueOfNoRows) {
  for (const bool all : {false, true}) {
    FullForm form = elman(all);
    form.inputs = {"X", "h0"};
    form.step = {"h = Tanh(x)"};
    form.links = {"h = S[0]", "x = X[0]"};
    if (all) form.views[0] = "h_all = S[0]";
    const Feeds feeds = {{"X", normal<double>({5, 2, 3}, 1)}, {"h0", Tensor::zeros(DType::float64, {0, 2, 3})}};
    const CellResults results = run_with_gradients(full_net(form, feeds), feeds, {});
    EXPECT_EQ(compare(results.outputs.at("h_last"),
                      run_op_on(make_op("Tanh", {"x"}, {"h"}), {{"x", feeds[0].second.rows(4, 1)}})[0], 0),
              "");
  }
}

// The state is carried over by name: the last row of one run is the first of the next, in place.
TEST(ForwardOnly, CarriesItsStateOver) {
  const Feeds feeds = elman_feeds(9, 4, {1, 4, 3});
  const Tensor expected = run_with_gradients(full_net(elman(true), feeds), feeds, {}).outputs.at("h_all");
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Net net(full_net(elman(false), feeds), workspace);
  RunContext run;
  for (int64_t t = 0, steps = 1; t + steps <= 9; t += steps, steps = 4 - steps) {
    workspace.tensor("X") = feeds[0].second.rows(t, steps);
    net.run(run);
    EXPECT_EQ(compare(workspace.fetch("h_last"), expected.rows(t + steps - 1, 1), 1e-14), "") << t;
    workspace.tensor("h0") = workspace.fetch("h_last");
  }
}

TEST(ForwardOnly, AStateThatIsNamedOutsideHasAllItsRows) {
  const Feeds feeds = elman_feeds(5);
  const Tensor expected = run_with_gradients(full_net(elman(true), feeds), feeds, {}).outputs.at("h_all");
  const NetDef plain = full_net(elman(false), feeds);
  FullForm as_output = elman(false);
  as_output.outputs.emplace_back("S");
  const NetDef output = full_net(as_output, feeds);
  NetDef read = plain;
  *read.add_op() = make_op("Copy", {"S"}, {"copy"});
  read.add_external_input("S");
  for (const NetDef* net : {&output, &std::as_const(read)}) {
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
    RunContext run;
    run_net_once(*net, workspace, run);
    EXPECT_EQ(compare(workspace.fetch("S").rows(1, 5), expected, 0), "");
  }
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  RunContext run;
  run_net_once(plain, workspace, run);
  EXPECT_EQ(workspace.find("S"), nullptr);  // and not a blob with some of its rows
}

// What says that there is no backward step net.
TEST(ForwardOnly, IsWhatAnEmptyBackwardStepNetMeans) {
  const Feeds feeds = elman_feeds(6);
  const NetDef absent = full_net(elman(false), feeds);
  NetDef text = absent, message = absent, valueless = absent;
  *text.mutable_op(0)->add_arg() = make_arg("backward_step_net", std::string());
  *message.mutable_op(0)->add_arg() = make_arg("backward_step_net", NetDef());
  valueless.mutable_op(0)->add_arg()->set_name("backward_step_net");
  for (const NetDef* net : {&text, &message, &valueless}) {
    EXPECT_EQ(compare_last(*net, absent, feeds), "");
    EXPECT_EQ(bytes_of_run(*net, feeds), bytes_of_run(absent, feeds));
  }
}

}  // namespace
}  // namespace stepnet::testing::full_form_test
