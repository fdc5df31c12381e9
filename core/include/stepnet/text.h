// Files of nets and plans: protobuf in binary or text form, with the place of every operator.
//
// A text file's operators get the `source` extension and its nets `net_source`, also those nested in arguments and in
// the short form. An argument that its operator declares as a net and that is given as text is parsed at once and moved
// into `n`, so nobody behind this reader sees nets in strings. Errors name file, line and column, and for an unknown
// field the nearest names.
// Nesting is limited to 100 messages, across nested text too; files to 1 GiB. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

enum class ReadAs { automatic, net, plan };

struct LoadedFile {
  std::variant<NetDef, PlanDef> content;
  bool is_plan() const { return std::holds_alternative<PlanDef>(content); }
  NetDef& net() { return std::get<NetDef>(content); }
  PlanDef& plan() { return std::get<PlanDef>(content); }
};

// Binary is tried first, then text. `automatic` takes the reading that gives every operator a type; throws Error if
// that is both or neither.
LoadedFile load_net_or_plan(const std::string& path, ReadAs as = ReadAs::automatic);
NetDef load_net(const std::string& path);
PlanDef load_plan(const std::string& path);

// `file_name` is what messages and positions call the text.
NetDef parse_net_text(std::string_view text, const std::string& file_name = "text");
PlanDef parse_plan_text(std::string_view text, const std::string& file_name = "text");

// Removes `source` and `net_source` everywhere.
void strip_sources(NetDef& net);
void strip_sources(PlanDef& plan);

// Without positions. Text is deterministic and can be read back to the same message, but for fields of a binary file
// that the format does not have: binary form keeps them, and text leaves them out.
std::string to_text(const NetDef& net);
std::string to_text(const PlanDef& plan);
std::string to_binary(const NetDef& net);
std::string to_binary(const PlanDef& plan);

}  // namespace stepnet
