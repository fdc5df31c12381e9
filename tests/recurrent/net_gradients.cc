#include "tests/recurrent/cell_files.h"

#include "recurrent/form/short_form.h"
#include "stepnet/net.h"

namespace stepnet::testing {
namespace {

// Central differences of sum(outside .* outputs) for every element of every feed.
Tensor differences(const NetDef& full, const CellData& data, const std::string& name) {
  constexpr double kStep = 1e-5;
  Workspace workspace;
  for (const auto& [feed, value] : data.feeds) workspace.tensor(feed) = value.clone();
  Net net(full, workspace);
  const auto value = [&](Tensor& x, int64_t i, double by) {
    const double before = x.data<double>()[i];
    x.data<double>()[i] = before + by;
    RunContext run;
    net.set_runs(0);
    net.run(run);
    x.data<double>()[i] = before;
    double sum = 0;
    for (const auto& [output, given] : data.outside)
      for (int64_t j = 0; j < given.size(); ++j)
        sum += given.data<double>()[j] * workspace.fetch(output).data<double>()[j];
    return sum;
  };
  Tensor& x = workspace.tensor(name);
  Tensor gradient = Tensor::zeros(DType::float64, x.shape());
  for (int64_t i = 0; i < x.size(); ++i)
    gradient.data<double>()[i] = (value(x, i, kStep) - value(x, i, -kStep)) / (2 * kStep);
  return gradient;
}

}  // namespace

std::string text_of(const std::vector<std::string>& passes) {
  return passes.empty() ? "all passes" : fmt::format("without {}", fmt::join(passes, ", "));
}

std::string check_net_gradients(const NetDef& net, const Feeds& feeds) {
  CellData data{feeds, {}};
  const auto blobs = run_forward(net, feeds);
  for (const std::string& name : net.external_output())
    data.outside.emplace_back(name, normal<double>(blobs.at(name).shape(), 900 + data.outside.size()));
  NetDef plain = net;
  expand_recurrent(plain);
  std::map<std::string, Tensor> numeric;
  for (const auto& [name, value] : feeds)
    if (is_floating(value.dtype())) numeric[name] = differences(plain, data, name);
  std::string text;
  for (const std::vector<std::string>& passes : pass_choices()) {
    NetDef full = without_passes(net, passes);
    expand_recurrent(full);
    const CellResults results = run_in_turn(full, {data})[0];
    for (const auto& [name, expected] : numeric)
      if (const std::string wrong = compare(results.gradients.at(name), expected, 1e-7); !wrong.empty())
        text += fmt::format("gradient of {}, {}: {}\n", name, text_of(passes), wrong);
  }
  return text;
}

}  // namespace stepnet::testing
