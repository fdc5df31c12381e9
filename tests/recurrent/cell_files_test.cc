// The cells of tools/examples/cells: each equals its published formulas, written as plain loops, and the same step net
// unrolled by hand, and its gradients equal central differences, with every pass and without.
#include <filesystem>

#include "core/operator/anomaly.h"
#include "recurrent/form/short_form.h"
#include "tests/recurrent/cell_files.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::cell_files_test {
namespace {

Sizes sizes(int64_t steps, int64_t batch, int64_t width = 3) {
  return {{'T', steps}, {'B', batch}, {'I', 2}, {'H', width}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 3}};
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
        SCOPED_TRACE(fmt::format("T = {}, B = {}, {}, {}", steps, batch, dtype_name(dtype), text_of(passes)));
        const auto blobs = run_forward(without_passes(net(), passes), given);
        for (const auto& [name, expected] : run_reference(net(), blobs, GetParam().reference))
          EXPECT_EQ(compare(blobs.at(name), expected, dtype == DType::float64 ? 1e-10 : 3e-5), "") << name;
      }
    }
}

TEST_P(CellFiles, EqualTheUnrolledNet) {
  for (const auto& [steps, batch] : {std::pair{1, 1}, {3, 2}, {7, 50}})
    for (const DType dtype : {DType::float64, DType::float32}) {
      const NetDef whole = net();
      auto [cell, given] = cell_of(whole, run_forward(whole, feeds(dtype, sizes(steps, batch))));
      for (const std::vector<std::string>& passes : pass_choices()) {
        SCOPED_TRACE(fmt::format("T = {}, B = {}, {}, {}", steps, batch, dtype_name(dtype), text_of(passes)));
        cell.disabled_passes = passes;
        EXPECT_EQ(check_against_unrolled(cell, given, dtype == DType::float64 ? 1e-10 : 3e-5), "");
      }
    }
}

class SmoothCellFiles : public CellFiles {};

TEST_P(SmoothCellFiles, GradientsAreCentralDifferences) {
  EXPECT_EQ(check_net_gradients(net(), feeds(DType::float64, sizes(3, 2))), "");
}

TEST_P(CellFiles, HaveNoAnomalies) {
  NetDef whole = net();
  const Feeds given = feeds(DType::float64, sizes(3, 2));
  CellData data{given, {}};
  const auto blobs = run_forward(whole, given);
  for (const std::string& name : whole.external_output())
    data.outside.emplace_back(name, normal<double>(blobs.at(name).shape(), 900 + data.outside.size()));
  expand_recurrent(whole);
  const AnomalyWatch watch;
  EXPECT_NO_THROW(run_in_turn(whole, {data}, {.anomalies = &watch}));
}

TEST_P(CellFiles, WorkOnBatchesOfNothing) {
  const NetDef whole = net();
  auto [cell, given] = cell_of(whole, run_forward(whole, feeds(DType::float64, sizes(3, 0))));
  EXPECT_EQ(check_against_unrolled(cell, given), "");
}

TEST_P(CellFiles, AreAccepted) {
  const std::string path = source_path(fmt::format("tools/examples/cells/{}.pbtxt", GetParam().name));
  EXPECT_EQ(stepnet({"check", "--strict", path}).code, 0) << stepnet({"check", path}).text();
}

INSTANTIATE_TEST_SUITE_P(Examples, SmoothCellFiles, ::testing::ValuesIn(smooth_cell_files()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Examples, CellFiles, ::testing::ValuesIn(cell_files()),
                         [](const auto& info) { return info.param.name; });

TEST(CellFilesOfTheFolder, AllHaveAReference) {
  std::set<std::string> names, files;
  for (const CellFile& c : cell_files()) names.insert(c.name + ".pbtxt");
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tools/examples/cells")))
    files.insert(entry.path().filename().string());
  EXPECT_EQ(files, names);
}

TEST(CellFilesOfTheFolder, RandomOnesHaveTheGradientsOfWhatTheyDrew) {
  for (const CellFile& c : cell_files())
    if (c.random) {
      EXPECT_EQ(check_net_gradients(cell_net(c.name), cell_feeds(c.name, DType::float64, sizes(3, 2))), "");
    }
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
}  // namespace stepnet::testing::cell_files_test
