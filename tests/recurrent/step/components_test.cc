#include "recurrent/step/components.h"

#include <gtest/gtest.h>

#include <random>

namespace stepnet::components_test {
namespace {

using Graph = std::vector<std::vector<int>>;

std::vector<std::vector<bool>> reachable(const Graph& next) {
  const size_t n = next.size();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
  for (size_t a = 0; a < n; ++a) {
    reach[a][a] = true;
    for (const int b : next[a]) reach[a][static_cast<size_t>(b)] = true;
  }
  for (size_t k = 0; k < n; ++k)
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b)
        if (reach[a][k] && reach[k][b]) reach[a][b] = true;
  return reach;
}

TEST(Components, AreThoseThatReachEachOtherInTheOrderOfTheEdges) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Graph next(round % 13);
    const int edges = next.empty() ? 0 : static_cast<int>(random() % (2 * next.size() + 1));
    for (int e = 0; e < edges; ++e) next[random() % next.size()].push_back(static_cast<int>(random() % next.size()));
    const std::vector<int> component = connected_components(next);
    const auto reach = reachable(next);
    ASSERT_EQ(component.size(), next.size());
    for (size_t a = 0; a < next.size(); ++a) {
      for (size_t b = 0; b < next.size(); ++b)
        EXPECT_EQ(component[a] == component[b], reach[a][b] && reach[b][a]) << round << ": " << a << ", " << b;
      for (const int b : next[a]) EXPECT_LE(component[a], component[static_cast<size_t>(b)]) << round;
    }
  }
}

TEST(Components, OfALongChainNeedNoDeepRecursion) {
  Graph next(1000000);
  for (size_t a = 0; a + 1 < next.size(); ++a) next[a].push_back(static_cast<int>(a) + 1);
  const std::vector<int> component = connected_components(next);
  EXPECT_EQ(component.front(), 0);
  EXPECT_EQ(component.back(), 999999);
}

}  // namespace
}  // namespace stepnet::components_test
