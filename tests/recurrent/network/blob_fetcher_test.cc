// RecurrentNetworkBlobFetcher: which step blobs there are afterwards, under which names, and that they are those of
// their timesteps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepnet/gradients.h"
#include "tests/recurrent/full_form.h"

namespace stepnet::testing::blob_fetcher_test {
namespace {

using Names = std::vector<std::string>;

// s, then q = tanh(s) which no derivative reads, then the state.
const FullForm kForm = {.inputs = {"X", "h0"},
                        .outputs = {"h_all"},
                        .states = {"S = h0"},
                        .links = {"h_prev = S[0]", "h = S[1]", "x = X[0]"},
                        .views = {"h_all = S[1]"},
                        .step = {"s = Mul(x, h_prev)", "r = Alias(s)", "q = Negative(r)", "h = Tanh(q)"},
                        .backward = {"q_grad = TanhGradient(h, h_grad)", "s_grad = Negative(q_grad)",
                                     "x_grad = Mul(s_grad, h_prev)", "h_prev_grad = Mul(s_grad, x)"},
                        .backward_links = {"h_grad = S_grad[1]", "h_prev_grad = S_grad[0]", "x_grad = X_grad[0]"},
                        .outputs_with_grads = {0}};

FullForm forward_only() {
  FullForm form = kForm;
  form.backward.clear();
  form.backward_links.clear();
  form.outputs_with_grads.clear();
  return form;
}

Feeds feeds_of(int64_t steps, int64_t batch = 2) {
  return {{"X", normal<double>({steps, batch, 3}, 1)}, {"h0", normal<double>({batch, 3}, 2)}};
}

OperatorDef fetcher(const std::string& prefix = "") {
  OperatorDef op = make_op("RecurrentNetworkBlobFetcher", {"steps"}, {"names"});
  if (!prefix.empty()) *op.add_arg() = make_arg("prefix", prefix);
  return op;
}

NetDef with_fetcher(NetDef net, const std::string& prefix = "") {
  *net.add_op() = fetcher(prefix);
  return net;
}

Names names_in(const Workspace& workspace) {
  const Tensor& names = workspace.fetch("names");
  Names result(names.span<std::string>().begin(), names.span<std::string>().end());
  std::ranges::sort(result);
  return result;
}

void feed(Workspace& workspace, const Feeds& feeds) {
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
}

// Every blob of every timestep, from the sequence and the states.
void expect_steps(const Workspace& workspace, const Feeds& feeds, const std::string& prefix) {
  const Tensor& all = workspace.fetch("h_all");
  const int64_t steps = feeds[0].second.dim(0);
  for (int64_t t = 0; t < steps; ++t) {
    auto blob = [&](const char* name) { return workspace.fetch(fmt::format("{}_{}{}", prefix, name, t)); };
    const Tensor before = t > 0 ? all.rows(t - 1, 1) : feeds[1].second.reshaped({1, feeds[1].second.dim(0), 3});
    EXPECT_EQ(compare(blob("x"), feeds[0].second.rows(t, 1), 0), "") << t;
    EXPECT_EQ(compare(blob("h_prev"), before, 0), "") << t;
    EXPECT_EQ(compare(blob("h"), all.rows(t, 1), 0), "") << t;
    EXPECT_EQ(blob("timestep").item<int32_t>(), t);
    const Tensor s = blob("s"), r = blob("r"), q = blob("q"), h = blob("h");
    for (int64_t i = 0; i < s.size(); ++i) {
      EXPECT_EQ(s.data<double>()[i], blob("x").data<double>()[i] * before.data<double>()[i]);
      EXPECT_EQ(q.data<double>()[i], -r.data<double>()[i]);
      EXPECT_NEAR(h.data<double>()[i], std::tanh(q.data<double>()[i]), 1e-15);
    }
    EXPECT_EQ(compare(s, r, 0), "");
  }
}

TEST(BlobFetcher, OfTheSameNetFetchesEverything) {
  for (const FullForm& form : {kForm, forward_only()})
    for (const auto& [steps, batch] : {std::pair{3, 2}, {1, 1}, {5, 50}}) {
      const Feeds feeds = feeds_of(steps, batch);
      Workspace workspace;
      feed(workspace, feeds);
      RunContext run;
      run_net_once(with_fetcher(full_net(form, feeds)), workspace, run);
      expect_steps(workspace, feeds, "rnn");
      EXPECT_EQ(names_in(workspace).size(), steps * 7);
    }
}

TEST(BlobFetcher, GivesTheNames) {
  const Feeds feeds = feeds_of(2);
  Workspace workspace;
  feed(workspace, feeds);
  RunContext run;
  run_net_once(with_fetcher(full_net(kForm, feeds), "enc_1"), workspace, run);
  EXPECT_EQ(names_in(workspace),
            (Names{"enc_1_h0", "enc_1_h1", "enc_1_h_prev0", "enc_1_h_prev1", "enc_1_q0", "enc_1_q1", "enc_1_r0",
                   "enc_1_r1", "enc_1_s0", "enc_1_s1", "enc_1_timestep0", "enc_1_timestep1", "enc_1_x0", "enc_1_x1"}));
}

// The last states alone, in turn, are no blobs of their timesteps.
TEST(BlobFetcher, OfAnotherNetFetchesWhatIsKept) {
  FullForm last = forward_only();
  last.outputs = {"h_last"};
  last.views = {"h_last = S[-1]"};
  FullForm gate = kForm;
  gate.step = {"s = Tanh(x)", "h = Mul(s, h_prev)"};
  gate.backward = {"s_grad = Mul(h_grad, h_prev)", "h_prev_grad = Mul(h_grad, s)", "x_grad = TanhGradient(s, s_grad)"};
  const std::pair<FullForm, Names> cases[] = {{kForm, {"rnn_h0", "rnn_h_prev0", "rnn_timestep0", "rnn_x0"}},
                                              {gate, {"rnn_h0", "rnn_h_prev0", "rnn_s0", "rnn_timestep0", "rnn_x0"}},
                                              {forward_only(), {"rnn_h0", "rnn_h_prev0", "rnn_timestep0", "rnn_x0"}},
                                              {last, {"rnn_timestep0", "rnn_x0"}}};
  for (const auto& [form, expected] : cases) {
    const Feeds feeds = feeds_of(1);
    Workspace workspace;
    feed(workspace, feeds);
    RunContext run;
    run_net_once(full_net(form, feeds), workspace, run);
    NetDef other;
    *other.add_op() = fetcher();
    run_net_once(other, workspace, run);
    EXPECT_EQ(names_in(workspace), expected);
  }
}

TEST(BlobFetcher, ChangesNoGradient) {
  FullForm recomputed = kForm;
  recomputed.recompute = {"q"};
  recomputed.backward.insert(recomputed.backward.begin(), "q = Negative(s)");
  recomputed.backward.insert(recomputed.backward.begin(), "s = Mul(x, h_prev)");
  for (const FullForm& form : {kForm, recomputed}) {
    const Feeds feeds = feeds_of(4);
    const Feeds outside = {{"h_all", normal<double>({4, 2, 3}, 5)}};
    const NetDef net = full_net(form, feeds);
    EXPECT_EQ(compare_results(run_with_gradients(with_fetcher(net), feeds, outside),
                              {{}, run_with_gradients(net, feeds, outside).gradients}, 0),
              "");
  }
}

// A blob whose shape depends on data is not there; the others are.
TEST(BlobFetcher, LeavesOutWhatHasNoShapeBeforehand) {
  FullForm form = forward_only();
  form.inputs = {"X", "h0", "shape"};
  form.step = {"s = Mul(x, h_prev)", "u, old = Reshape(s, shape)", "h = Tanh(u)"};
  Feeds feeds = feeds_of(2);
  feeds.emplace_back("shape", Tensor::of<int64_t>({3}, {1, 2, 3}));
  Workspace workspace;
  feed(workspace, feeds);
  RunContext run;
  run_net_once(with_fetcher(full_net(form, feeds)), workspace, run);
  const Names names = names_in(workspace);
  EXPECT_TRUE(std::ranges::count(names, "rnn_s1") == 1 && std::ranges::count(names, "rnn_h1") == 1);
  EXPECT_EQ(std::ranges::count(names, "rnn_u1"), 0);
}

TEST(BlobFetcher, NothingOfNoTimestep) {
  const Feeds feeds = feeds_of(0);
  Workspace workspace;
  feed(workspace, feeds);
  RunContext run;
  run_net_once(with_fetcher(full_net(kForm, feeds)), workspace, run);
  EXPECT_EQ(workspace.fetch("names").shape(), (Shape{0}));
}

// "h1" of timestep 0 and "h" of timestep 10.
TEST(BlobFetcher, TwoBlobsOfOneNameAreAnError) {
  FullForm form = forward_only();
  form.step = {"h1 = Mul(x, h_prev)", "h = Tanh(h1)"};
  for (const int64_t steps : {10, 11}) {
    const Feeds feeds = feeds_of(steps);
    Workspace workspace;
    feed(workspace, feeds);
    RunContext run;
    const NetDef net = with_fetcher(full_net(form, feeds));
    if (steps == 10) {
      run_net_once(net, workspace, run);
      continue;
    }
    const std::string text = error_of([&] { run_net_once(net, workspace, run); });
    EXPECT_EQ(text.substr(0, text.find('\n')),
              "RecurrentNetworkBlobFetcher: \"h\" of timestep 10 would be called \"rnn_h10\", as another blob is");
  }
}

TEST(BlobFetcher, WithoutARunIsAnError) {
  Workspace workspace;
  workspace.tensor("steps") = Tensor::scalar(1.0);
  NetDef net;
  net.set_name("fetch");
  *net.add_op() = fetcher();
  RunContext run;
  EXPECT_EQ(error_of([&] { run_net_once(net, workspace, run); }),
            "RecurrentNetworkBlobFetcher: the input must be the scratch output of a RecurrentNetwork that has run\n"
            "  in  operator 0 of net \"fetch\"\n"
            "  op  names = RecurrentNetworkBlobFetcher(steps), steps is double[]");
}

}  // namespace
}  // namespace stepnet::testing::blob_fetcher_test
