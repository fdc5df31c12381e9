// Strongly connected components of a directed graph.
#pragma once

#include <vector>

namespace stepnet {

// next[a] has b for every edge from a to b. Returns each node's component; components are numbered such that an edge
// leads to the same or a higher one. Linear in nodes and edges, without recursion.
// Source: R. Tarjan, Depth-first search and linear graph algorithms, 1972.
std::vector<int> connected_components(const std::vector<std::vector<int>>& next);

}  // namespace stepnet
