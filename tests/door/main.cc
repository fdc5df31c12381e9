// All public headers of an installed Stepnet beside headers of the program's own, and a net, a gradient and a training
// step's options through them.
#include <cstdio>
#include <filesystem>

#include "core/error.h"
#include "proto/net.pb.h"
#include "stepnet/ops.h"
#include "stepnet/stepnet.h"

int main() {
  const OwnError error;
  const OwnMessage message;
  namespace autograd = stepnet::autograd;
  const auto x = autograd::Variable(stepnet::Tensor::of<float>({2}, {3, -1}), true);
  const auto y = stepnet::ops::sum_elements(stepnet::ops::mul(x, x));
  const auto dx = autograd::grad({y}, {x})[0].value();
  const stepnet::NetDef net = stepnet::parse_net_text("op { type: \"Tanh\" input: \"x\" output: \"y\" }");
  stepnet::Workspace workspace;
  workspace.tensor("x") = stepnet::Tensor::of<float>({1}, {0});
  stepnet::RunContext run;
  stepnet::Net(net, workspace).run(run);
  std::string refused;
  try {
    stepnet::TrainOptions options;
    options.text = "nowhere.txt";
    stepnet::Trainer(net, options).run();
  } catch (const stepnet::Error& e) {
    refused = e.what();
  }
  std::printf("%d %d, %g %g, %g, %s\n", error.code, message.size, dx.data<float>()[0], dx.data<float>()[1],
              workspace.fetch("y").data<float>()[0], refused.empty() ? "trained" : "refused");
}
