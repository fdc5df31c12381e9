// Reads and writes files of nets and plans. The parsing of text itself is in core/io/text_parser.cc.
#include "stepnet/text.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/io/files.h"
#include "core/io/text_parser.h"
#include "core/operator/extensions.h"
#include "core/operator/nets_inside.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

std::string read_whole_file(const std::string& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), "cannot read \"{}\": it is a directory", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "cannot open \"{}\": {}", path, std::strerror(errno));
  std::string data;
  std::vector<char> buffer(1 << 16);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) {
    data.append(buffer.data(), static_cast<size_t>(file.gcount()));
    require(data.size() <= kMaxFileBytes, "\"{}\" is larger than 1 GiB", path);
  }
  require(!file.bad(), "cannot read \"{}\": {}", path, std::strerror(errno));
  return data;
}

// The tag of field 2, which holds a net's operators and a plan's nets. Text cannot hold this byte outside comments.
constexpr char kOperatorsTag = 0x12;

bool parse_binary(const std::string& data, google::protobuf::Message& message) {
  google::protobuf::io::ArrayInputStream stream(data.data(), static_cast<int>(data.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(static_cast<int>(kMaxFileBytes));
  coded.SetRecursionLimit(kMaxNesting);
  return message.ParsePartialFromCodedStream(&coded) && coded.ConsumedEntireMessage() && message.IsInitialized();
}

// Every operator has a type, and there is at least one.
bool all_typed(const NetDef& net) {
  for (const OperatorDef& op : net.op())
    if (op.type().empty()) return false;
  return net.op_size() > 0;
}
bool all_typed(const PlanDef& plan) {
  bool any = false;
  for (const NetDef& net : plan.network()) {
    if (net.op_size() == 0) continue;
    if (!all_typed(net)) return false;
    any = true;
  }
  return any;
}

// `asked`: the user says that it is a Def, so operators without a type are mistakes in it and no sign of another form.
template <class Def>
bool read_binary(const std::string& data, bool asked, Def& def) {
  return parse_binary(data, def) && (asked || all_typed(def));
}

Error ambiguous(const std::string& path, std::string_view what) {
  return Error(fmt::format("\"{}\" {}", path, what), "say which it is with --as net or --as plan");
}

bool has_nul(std::string_view data) { return data.find('\0') != std::string_view::npos; }

// Whether the file was read; false if it is no binary form of what is asked for.
bool try_binary(const std::string& path, const std::string& data, ReadAs as, LoadedFile& file) {
  if (data.find(kOperatorsTag) == std::string::npos) return false;
  NetDef net;
  PlanDef plan;
  const bool asked = as != ReadAs::automatic && has_nul(data);
  const bool is_net = as != ReadAs::plan && read_binary(data, asked, net);
  const bool is_plan = as != ReadAs::net && read_binary(data, asked, plan);
  if (is_net && is_plan) throw ambiguous(path, "can be a net and can be a plan");
  const SourceText place("", path);
  if (is_net) {
    parse_nested_text(place, net);
    file.content = std::move(net);
  } else if (is_plan) {
    parse_nested_text(place, plan);
    file.content = std::move(plan);
  }
  return is_net || is_plan;
}

template <class Def>
Def parse_or_throw(const SourceText& source) {
  Def def;
  if (auto failure = try_parse_text(source, def)) throw failure->error;
  return def;
}

// The error of the reading that got further; of two that stopped at the same place, the one with a suggestion.
const Error& better(const ParseFailure& as_net, const ParseFailure& as_plan) {
  if (as_net.offset != as_plan.offset) return as_net.offset > as_plan.offset ? as_net.error : as_plan.error;
  return as_plan.error.fact().find("Did you mean") != std::string::npos ? as_plan.error : as_net.error;
}

LoadedFile load_text(const std::string& path, const SourceText& source, ReadAs as) {
  LoadedFile file;
  if (as == ReadAs::plan) {
    file.content = parse_or_throw<PlanDef>(source);
    return file;
  }
  NetDef net;
  const auto net_failure = try_parse_text(source, net);
  const bool decided = as == ReadAs::net || (!net_failure && net.op_size() > 0);
  if (!decided) {
    PlanDef plan;
    const auto plan_failure = try_parse_text(source, plan);
    if (net_failure && plan_failure) throw better(*net_failure, *plan_failure);
    if (!net_failure && !plan_failure) throw ambiguous(path, "has no operators: it can be a net and can be a plan");
    if (net_failure) {
      file.content = std::move(plan);
      return file;
    }
  }
  if (net_failure) throw net_failure->error;
  file.content = std::move(net);
  return file;
}

// Nothing but spaces and comments.
bool is_blank_text(std::string_view text) {
  bool comment = false;
  for (const char c : text) {
    if (c == '#') comment = true;
    if (c == '\n') comment = false;
    if (!comment && !std::isspace(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

void carry_all(NetDef& net) { carry_extensions(net); }
void carry_all(PlanDef& plan) {
  for (NetDef& net : *plan.mutable_network()) carry_extensions(net);
}

template <class Def>
std::string print(Def def) {
  strip_sources(def);
  carry_all(def);
  google::protobuf::TextFormat::Printer printer;
  printer.SetHideUnknownFields(true);  // they have numbers for names, which no reader takes
  std::string text;
  printer.PrintToString(def, &text);
  return text;
}

template <class Def>
std::string serialise(Def def) {
  strip_sources(def);
  carry_all(def);
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  def.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace

LoadedFile load_net_or_plan(const std::string& path, ReadAs as) {
  const std::string data = read_whole_file(path);
  require(!is_blank_text(data), "\"{}\" is empty: it holds neither a net nor a plan", path);
  LoadedFile file;
  if (try_binary(path, data, as, file)) return file;
  if (has_nul(data)) {
    if (as == ReadAs::automatic) throw ambiguous(path, "is neither a net nor a plan in binary form, and no text");
    fail("\"{}\" is no {} in binary form, and no text", path, as == ReadAs::net ? "net" : "plan");
  }
  return load_text(path, SourceText(data, path), as);
}

NetDef load_net(const std::string& path) { return std::move(load_net_or_plan(path, ReadAs::net).net()); }
PlanDef load_plan(const std::string& path) { return std::move(load_net_or_plan(path, ReadAs::plan).plan()); }

NetDef parse_net_text(std::string_view text, const std::string& file_name) {
  return parse_or_throw<NetDef>(SourceText(text, file_name));
}
PlanDef parse_plan_text(std::string_view text, const std::string& file_name) {
  return parse_or_throw<PlanDef>(SourceText(text, file_name));
}

void strip_sources(NetDef& net) {
  for_each_net(net, [](NetDef& inner) {
    inner.ClearExtension(net_source);
    for (OperatorDef& op : *inner.mutable_op()) op.ClearExtension(source);
  });
}
void strip_sources(PlanDef& plan) {
  for (NetDef& net : *plan.mutable_network()) strip_sources(net);
}

std::string to_text(const NetDef& net) { return print(net); }
std::string to_text(const PlanDef& plan) { return print(plan); }
std::string to_binary(const NetDef& net) { return serialise(net); }
std::string to_binary(const PlanDef& plan) { return serialise(plan); }

}  // namespace stepnet
