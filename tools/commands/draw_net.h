// Nets as graphs for Graphviz (the language DOT).
//
// Threads: one graph belongs to one thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/op_spec.h"

namespace stepnet::tools {

// In quotes, so that exactly these characters are shown, whatever they are: quotes, backslashes and ampersands are
// escaped, and bytes that are no printable UTF-8 become \xNN. Lines end at '\n'.
std::string dot_quoted(std::string_view text);

class DotGraph {
 public:
  explicit DotGraph(std::string_view title);

  // What follows is inside this cluster, until it is closed.
  void open_cluster(std::string_view label);
  void close_cluster();
  // `attributes`: further ones in DOT, such as "shape=box".
  void node(const std::string& id, std::string_view label, const std::string& attributes);
  void edge(const std::string& from, const std::string& to);
  void dashed_edge(const std::string& from, const std::string& to, std::string_view label);

  std::string text() const;

 private:
  std::string indent() const { return std::string(2 * (depth_ + 1), ' '); }

  std::string nodes_, edges_;  // edges come behind all nodes, so that none puts a node into the wrong cluster
  size_t depth_ = 0;
  int clusters_ = 0;
};

// Draws a net. Operators are boxes, and what blobs hold are ellipses: a blob that is written twice is two. With types
// of inputs they carry types, bytes and FLOPs, as far as these follow. Nets inside operators are clusters: the step net
// of a RecurrentNetwork and the backward step net of its gradient, where a read of what the forward pass kept is an
// edge from one to the other; and the nets of If and While. Dashed edges are no work: links of step blobs with rows of
// tensors outside, first rows of states, views, and other names for the same bytes.
// `known`: types of inputs. Throws Error where types do not fit, or an operator does not fit its schema.
std::string draw_net(const NetDef& net, std::map<std::string, TensorType> known);

}  // namespace stepnet::tools
