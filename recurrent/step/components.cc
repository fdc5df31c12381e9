#include "recurrent/step/components.h"

#include <algorithm>

namespace stepnet {
namespace {

struct Visit {
  int node;
  size_t edge = 0;  // the next one to follow
};

struct Search {
  explicit Search(const std::vector<std::vector<int>>& edges)
      : next(edges), index(edges.size(), -1), low(edges.size(), 0), component(edges.size(), -1) {}

  void enter(int node) {
    index[node] = low[node] = entered++;
    open.push_back(node);
    path.push_back({node});
  }

  // All nodes that lead back to this one are open above it.
  void leave(int node) {
    path.pop_back();
    if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[node]);
    if (low[node] != index[node]) return;
    for (int other = -1; other != node; open.pop_back()) component[other = open.back()] = components;
    ++components;
  }

  void run(int from) {
    enter(from);
    while (!path.empty()) {
      Visit& here = path.back();
      if (here.edge == next[here.node].size()) {
        leave(here.node);
        continue;
      }
      const int to = next[here.node][here.edge++];
      if (index[to] < 0) {
        enter(to);
      } else if (component[to] < 0) {
        low[here.node] = std::min(low[here.node], index[to]);
      }
    }
  }

  const std::vector<std::vector<int>>& next;
  std::vector<int> index, low, component;  // by node
  std::vector<int> open;
  std::vector<Visit> path;
  int entered = 0, components = 0;
};

}  // namespace

std::vector<int> connected_components(const std::vector<std::vector<int>>& next) {
  Search search(next);
  for (size_t node = 0; node < next.size(); ++node)
    if (search.index[node] < 0) search.run(static_cast<int>(node));
  // The search ends components against the direction of the edges.
  for (int& c : search.component) c = search.components - 1 - c;
  return search.component;
}

}  // namespace stepnet
