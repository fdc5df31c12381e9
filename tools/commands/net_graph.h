// A net as a graph for Graphviz.
//
// Operators are boxes, and what blobs hold are ellipses: a blob that is written twice is two. With types of inputs they
// carry types, bytes and FLOPs, as far as these follow. Nets inside operators are clusters: the step net of a
// RecurrentNetwork and the backward step net of its gradient, where a read of what the forward pass kept is an edge
// from one to the other; and the nets of If and While. Dashed edges are no work: links of step blobs with rows of
// tensors outside, first rows of states, views, and other names for the same bytes.
// Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "core/operator/op_spec.h"

namespace stepnet::tools {

// `known`: types of inputs. Throws Error where types do not fit, or an operator does not fit its schema.
std::string draw_net(const NetDef& net, std::map<std::string, TensorType> known);

}  // namespace stepnet::tools
