// Contenders of one cell, size, number of threads and mode take turns; all results are checked first.
#include <fmt/format.h>

#include <algorithm>

#include "tools/bench/bound.h"
#include "tools/bench/cell_case.h"
#include "tools/bench/measure.h"
#include "tools/bench/peer_times.h"
#include "tools/bench/timing.h"

namespace stepnet::bench {
namespace {

constexpr double kTolerance = 1e-4;

struct Match {
  std::vector<std::unique_ptr<Contender>> nets, peers;
  std::unique_ptr<Contender> products;

  Match(const std::vector<const NetFile*>& files, const CellData& data, Mode mode) {
    for (const NetFile* file : files) nets.push_back(make_stepnet(*file, data, mode));
    if (data.cell->name == "lstm") peers.push_back(make_onednn_lstm(data, mode));
    if (auto loop = make_fused_loop(data, mode)) peers.push_back(std::move(loop));
    products = make_products(data, mode);
  }

  // Nets, then peers, then products.
  std::vector<Contender*> all() const {
    std::vector<Contender*> contenders;
    for (const auto& c : nets) contenders.push_back(c.get());
    for (const auto& c : peers) contenders.push_back(c.get());
    contenders.push_back(products.get());
    return contenders;
  }
};

void check(const std::vector<Contender*>& contenders, const ExactValues& exact, Mode mode, const std::string& where) {
  for (Contender* contender : contenders) {
    contender->run();
    const Values values = contender->results();
    if (!values.empty())
      check_agreement(values, exact, mode, kTolerance, fmt::format("{} at {}", contender->name(), where));
  }
}

class CellsMeasurement {
 public:
  CellsMeasurement(const Options& options, Report& report)
      : options_(options), report_(report), peer_times_(options.peer_times) {}

  void measure(const Cell& cell, const Size& size) {
    std::vector<const NetFile*> files;
    for (const NetFile& file : cell.nets)
      if (options_.wants(file.name, size)) files.push_back(&file);
    if (files.empty()) return;
    const CellData data = random_data(cell, size);
    const ExactValues exact = exact_results(data);
    for (const int threads : options_.threads)
      for (const Mode mode : {Mode::forward, Mode::training})
        if (options_.wants(mode_name(mode))) measure(files, data, exact, threads, mode);
  }

 private:
  void measure(const std::vector<const NetFile*>& files, const CellData& data, const ExactValues& exact, int threads,
               Mode mode) {
    use_threads(threads);
    const Match match(files, data, mode);
    const std::string where = fmt::format("{}, {} threads, {}", data.size.str(), threads, mode_name(mode));
    check(match.all(), exact, mode, where);
    const MachineLoad load;
    const std::vector<Times> times = time_in_turns(match.all(), options_.rounds);
    load.warn(where);
    Row row{"", data.size, threads, std::string(mode_name(mode)), {}, "", {}};
    row.bound_ms = bound_ms(data, threads, mode);
    row.products_ms = times.back().minimum;
    for (size_t n = 0; n < files.size(); ++n) {
      row.net = files[n]->name;
      row.times = times[n];
      for (size_t p = 0; p < match.peers.size(); ++p) add(row, match.peers[p]->name(), times[files.size() + p]);
      add(row, match.products->name(), times.back());
      if (n > 0) add(row, files[0]->name, times[0]);
      add_other_processes(row, *data.cell);
    }
  }

  void add(Row row, const std::string& peer, const Times& times) {
    row.peer = peer;
    row.peer_times = times;
    report_.add(row);
  }

  void add_other_processes(Row row, const Cell& cell) {
    for (const PeerTime& time : peer_times_.best(cell.name, row.size, row.mode, row.threads)) {
      row.peer_setting = time.setting();
      add(row, time.peer, {time.ms, time.ms});
    }
  }

  double bound_ms(const CellData& data, int threads, Mode mode) {
    double& flops = flops_[threads];
    flops = std::max(flops, measured_flops());  // an earlier measurement may have met a busy machine
    const int64_t weights = data.cell->rows(Fan::hidden) * data.size.hidden * data.size.hidden;
    const double read_rate = measured_read_rate(weights * static_cast<int64_t>(sizeof(float)));
    return lower_bound_ms(*data.cell, data.size, mode, flops, read_rate);
  }

  const Options& options_;
  Report& report_;
  PeerTimes peer_times_;
  std::map<int, double> flops_;  // by the number of threads
};

}  // namespace

void measure_cells(const Options& options, Report& report) {
  if (!options.wants("forward") && !options.wants("training")) return;
  CellsMeasurement measurement(options, report);
  for (const Cell& cell : cells())
    for (const Size& size : options.sizes()) measurement.measure(cell, size);
}

}  // namespace stepnet::bench
