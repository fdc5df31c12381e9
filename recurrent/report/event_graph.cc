#include "recurrent/report/event_graph.h"

#include <fmt/format.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace stepnet {
namespace {

using Message = google::protobuf::UnknownFieldSet;
using Sources = std::map<std::string, std::string>;  // by blob: the node that wrote it, or NODE:K for its output K

// Numbers of fields.
namespace graph {
constexpr int kNode = 1;
}
namespace node {
constexpr int kName = 1, kOp = 2, kInput = 3, kAttribute = 5;
}
namespace entry {
constexpr int kKey = 1, kValue = 2;
}
namespace attribute {
constexpr int kText = 2, kInteger = 3, kFloat = 4;
}

std::string bytes_of(const Message& message) {
  std::string bytes;
  message.SerializeToString(&bytes);
  return bytes;
}

// The bytes of the value of a single number or text; empty for others.
std::string value_of(const Argument& arg) {
  Message value;
  if (arg.has_i()) value.AddVarint(attribute::kInteger, static_cast<uint64_t>(arg.i()));
  if (arg.has_f()) value.AddFixed32(attribute::kFloat, std::bit_cast<uint32_t>(arg.f()));
  if (arg.has_s()) *value.AddLengthDelimited(attribute::kText) = arg.s();
  return bytes_of(value);
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::vector<std::string>& parameters)
      : parameters_(parameters.begin(), parameters.end()) {}

  // `sources`: of blobs from outside.
  void add_net(const NetDef& net, const std::string& scope, Sources sources) {
    for (const OperatorDef& op : net.op()) {
      std::vector<std::string> inputs;
      for (const std::string& blob : op.input())
        if (!blob.empty()) inputs.push_back(source_of(blob, scope, sources));
      const std::string called = !op.name().empty() ? op.name() : op.output_size() > 0 ? op.output(0) : op.type();
      const std::string name = add_node(scope + called, op.type(), inputs, op);
      add_inner_nets(op, name, sources);
      for (int k = 0; k < op.output_size(); ++k)
        if (!op.output(k).empty()) sources[op.output(k)] = k == 0 ? name : fmt::format("{}:{}", name, k);
    }
  }

  std::string bytes() const { return bytes_of(graph_); }

 private:
  // A step net sees the blobs around it but for those that links, and the timestep, stand in the place of.
  void add_inner_nets(const OperatorDef& op, const std::string& name, Sources sources) {
    for (const Argument& arg : op.arg()) {
      if (arg.name() == "link_internal")
        for (const std::string& blob : arg.strings()) sources.erase(blob);
      if (arg.name() == "timestep") sources.erase(arg.s());
    }
    for (const Argument& arg : op.arg()) {
      if (arg.has_n()) add_net(arg.n(), fmt::format("{}/{}/", name, arg.name()), sources);
      for (int i = 0; i < arg.nets_size(); ++i)
        add_net(arg.nets(i), fmt::format("{}/{}_{}/", name, arg.name(), i), sources);
    }
  }

  const std::string& source_of(const std::string& blob, const std::string& scope, Sources& sources) {
    std::string& source = sources[blob];
    if (source.empty())
      source = add_node(scope + blob, parameters_.contains(blob) ? "Parameter" : "Placeholder", {}, {});
    return source;
  }

  std::string add_node(std::string name, const std::string& type, const std::vector<std::string>& inputs,
                       const OperatorDef& op) {
    std::ranges::replace(name, ':', '_');  // which parts a node from an output's number
    if (name.starts_with('^')) name[0] = '_';
    std::string unique = name;
    for (int i = 1; !names_.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
    Message fields;
    *fields.AddLengthDelimited(node::kName) = unique;
    *fields.AddLengthDelimited(node::kOp) = type;
    for (const std::string& input : inputs) *fields.AddLengthDelimited(node::kInput) = input;
    for (const Argument& arg : op.arg()) {
      const std::string value = value_of(arg);
      if (value.empty()) continue;
      Message pair;
      *pair.AddLengthDelimited(entry::kKey) = arg.name();
      *pair.AddLengthDelimited(entry::kValue) = value;
      *fields.AddLengthDelimited(node::kAttribute) = bytes_of(pair);
    }
    *graph_.AddLengthDelimited(graph::kNode) = bytes_of(fields);
    return unique;
  }

  std::set<std::string> parameters_, names_;
  Message graph_;
};

}  // namespace

std::string graph_def_of(const NetDef& net, const std::vector<std::string>& parameters) {
  GraphBuilder builder(parameters);
  builder.add_net(net, "", {});
  return builder.bytes();
}

}  // namespace stepnet
