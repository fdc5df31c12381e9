#include "recurrent/distributed/rank_threads.h"

#include <algorithm>

namespace stepnet {

int threads_of(const Ranks& ranks) { return std::max(1, ranks.cores_here() / ranks.ranks_here()); }

std::string crowding(const std::vector<RankLoad>& loads) {
  const auto crowd = [](const RankLoad& l) { return static_cast<double>(l.ranks) * l.threads / l.cores; };
  const auto worst = std::ranges::max_element(loads, {}, crowd);
  if (worst == loads.end() || crowd(*worst) <= 1) return "";
  const int share = worst->cores / worst->ranks;
  return fmt::format("{} ranks of one machine with {} thread{} each share {} core{}, and will wait for each other; {}",
                     worst->ranks, worst->threads, worst->threads == 1 ? "" : "s", worst->cores,
                     worst->cores == 1 ? "" : "s",
                     share > 0 ? fmt::format("set --threads {}, or leave it out", share)
                               : fmt::format("start at most {} there", worst->cores));
}

std::string crowding(const Ranks& ranks, int threads) {
  constexpr size_t kNumbers = 3;
  std::vector<double> all(kNumbers * static_cast<size_t>(ranks.size()));
  double* mine = all.data() + kNumbers * static_cast<size_t>(ranks.rank());
  mine[0] = ranks.ranks_here();
  mine[1] = ranks.cores_here();
  mine[2] = threads;
  all = ranks.sum(std::move(all));
  std::vector<RankLoad> loads;
  for (size_t i = 0; i < all.size(); i += kNumbers)
    loads.push_back({static_cast<int>(all[i]), static_cast<int>(all[i + 1]), static_cast<int>(all[i + 2])});
  return crowding(loads);
}

}  // namespace stepnet
