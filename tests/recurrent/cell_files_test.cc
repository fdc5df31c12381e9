// The cells of tools/examples/cells: each equals its published formulas, written as plain loops, and the same step net
// unrolled by hand, and its gradients equal central differences, with every pass and without.
#include <filesystem>

#include "core/net.h"
#include "recurrent/builder.h"
#include "tests/recurrent/cell_files.h"
#include "tests/tools/command.h"

namespace stepnet::testing {
namespace {

Sizes sizes(int64_t steps, int64_t batch, int64_t width = 3) {
  return {{'T', steps}, {'B', batch}, {'I', 2}, {'H', width}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 3}};
}

std::string joined_text(const std::vector<std::string>& passes) {
  return passes.empty() ? "all passes" : fmt::format("without {}", fmt::join(passes, ", "));
}

class CellFiles : public ::testing::TestWithParam<CellFile> {
 protected:
  static NetDef net() { return cell_net(GetParam().name, GetParam().random); }
  static Feeds feeds(DType dtype, const Sizes& s) { return cell_feeds(GetParam().name, dtype, s); }
};

TEST_P(CellFiles, EqualTheirFormulas) {
  for (const auto& [steps, batch] : {std::pair{1, 1}, {2, 3}, {5, 2}, {7, 50}})
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Feeds given = feeds(dtype, sizes(steps, batch));
      for (const std::vector<std::string>& passes : pass_choices()) {
        SCOPED_TRACE(fmt::format("T = {}, B = {}, {}, {}", steps, batch, dtype_name(dtype), joined_text(passes)));
        const auto blobs = run_forward(without_passes(net(), passes), given);
        for (const auto& [name, expected] : run_reference(net(), blobs, GetParam().reference))
          EXPECT_EQ(compare(blobs.at(name), expected, dtype == DType::float64 ? 1e-10 : 1e-5), "") << name;
      }
    }
}

TEST_P(CellFiles, EqualTheUnrolledNet) {
  for (const auto& [steps, batch] : {std::pair{1, 1}, {3, 2}, {7, 50}})
    for (const DType dtype : {DType::float64, DType::float32}) {
      const NetDef whole = net();
      auto [cell, given] = cell_of(whole, run_forward(whole, feeds(dtype, sizes(steps, batch))));
      for (const std::vector<std::string>& passes : pass_choices()) {
        SCOPED_TRACE(fmt::format("T = {}, B = {}, {}, {}", steps, batch, dtype_name(dtype), joined_text(passes)));
        cell.disabled_passes = passes;
        EXPECT_EQ(check_against_unrolled(cell, given, dtype == DType::float64 ? 1e-10 : 1e-5), "");
      }
    }
}

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

// `net` in short form; every output of its recurrent operator has a gradient from outside.
void check_gradients(const NetDef& net, const Feeds& feeds) {
  CellData data{feeds, {}};
  NetDef copy = net;
  const std::vector<std::string> outputs(net.external_output().begin(), net.external_output().end());
  const auto blobs = run_forward(net, feeds);
  for (const std::string& name : outputs)
    data.outside.emplace_back(name, normal<double>(blobs.at(name).shape(), 900 + data.outside.size()));
  std::map<std::string, Tensor> numeric;
  expand_recurrent(copy);
  for (const auto& [name, value] : feeds)
    if (is_floating(value.dtype())) numeric[name] = differences(copy, data, name);
  for (const std::vector<std::string>& passes : pass_choices()) {
    NetDef full = without_passes(net, passes);
    expand_recurrent(full);
    const CellResults results = run_in_turn(full, {data})[0];
    for (const auto& [name, expected] : numeric)
      EXPECT_EQ(compare(results.gradients.at(name), expected, 1e-7), "") << name << ", " << joined_text(passes);
  }
}

TEST_P(CellFiles, GradientsAreCentralDifferences) { check_gradients(net(), feeds(DType::float64, sizes(3, 2))); }

TEST_P(CellFiles, WorkOnBatchesOfNothing) {
  const NetDef whole = net();
  auto [cell, given] = cell_of(whole, run_forward(whole, feeds(DType::float64, sizes(3, 0))));
  EXPECT_EQ(check_against_unrolled(cell, given), "");
}

TEST_P(CellFiles, AreAccepted) {
  const std::string path = fmt::format("{}/tools/examples/cells/{}.pbtxt", STEPNET_SOURCE_DIR, GetParam().name);
  EXPECT_EQ(stepnet({"check", "--strict", path}).code, 0) << stepnet({"check", path}).text();
}

INSTANTIATE_TEST_SUITE_P(Examples, CellFiles, ::testing::ValuesIn(cell_files()),
                         [](const auto& info) { return info.param.name; });

TEST(CellFilesOfTheFolder, AllHaveAReference) {
  std::set<std::string> names, files;
  for (const CellFile& c : cell_files()) names.insert(c.name + ".pbtxt");
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(STEPNET_SOURCE_DIR) + "/tools/examples/cells"))
    files.insert(entry.path().filename().string());
  EXPECT_EQ(files, names);
}

TEST(CellFilesOfTheFolder, RandomOnesHaveTheGradientsOfWhatTheyDrew) {
  for (const CellFile& c : cell_files())
    if (c.random) check_gradients(cell_net(c.name), cell_feeds(c.name, DType::float64, sizes(3, 2)));
}

// In training each unit either stays or moves to the LSTM's new value, some of both, anew in each timestep.
TEST(CellFilesOfTheFolder, ZoneoutKeepsSomeUnits) {
  const Feeds feeds = cell_feeds("lstm_zoneout", DType::float64, sizes(2, 8, 32));
  const auto blobs = run_forward(cell_net("lstm_zoneout"), feeds);
  const Tensor &h0 = blobs.at("h0"), &all = blobs.at("h_all");
  std::set<int64_t> stayed[2];
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t i = 0; i < h0.size(); ++i) {
      const double before = t == 0 ? h0.data<double>()[i] : all.data<double>()[i];
      if (std::abs(all.data<double>()[t * h0.size() + i] - before) < 1e-12) stayed[t].insert(i);
    }
  for (const std::set<int64_t>& s : stayed) {
    EXPECT_GT(s.size(), 10U);  // 32 of 256 are expected
    EXPECT_LT(s.size(), 64U);
  }
  EXPECT_NE(stayed[0], stayed[1]);
}

TEST(CellFilesOfTheFolder, VariationalMasksAreDrawnOnce) {
  const Feeds feeds = cell_feeds("lstm_variational_dropout", DType::float64, sizes(2, 8, 32));
  const Tensor mask = run_forward(cell_net("lstm_variational_dropout"), feeds).at("m_h");
  int64_t kept = 0;
  for (const double v : mask.span<double>()) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75) < 1e-12) << v;
    kept += v != 0 ? 1 : 0;
  }
  EXPECT_GT(kept, mask.size() / 2);
  EXPECT_LT(kept, mask.size());
}

}  // namespace
}  // namespace stepnet::testing
