// Parses protobuf text of nets and plans, says mistakes with file, line and column, and gives operators their places.
#include "core/io/text_parser.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>

#include "core/operator/extensions.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using Tree = TextFormat::ParseInfoTree;

// The n-th quoted part of a message, from 0; "" if there are fewer.
std::string quoted(const std::string& text, int n) {
  size_t open = text.find('"');
  while (n-- > 0 && open != std::string::npos) open = text.find('"', text.find('"', open + 1) + 1);
  if (open == std::string::npos) return "";
  const size_t close = text.find('"', open + 1);
  return close == std::string::npos ? "" : text.substr(open + 1, close - open - 1);
}

std::string suggest_field(const Descriptor& type, const std::string& word) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return suggest(word, names);
}

std::string suggest_extension(const Descriptor& type, const std::string& word) {
  std::vector<const FieldDescriptor*> fields;
  DescriptorPool::generated_pool()->FindAllExtensions(&type, &fields);
  std::vector<std::string> names;
  for (const FieldDescriptor* f : fields) names.push_back(f->full_name());
  return suggest(word, names);
}

const Descriptor* find_type(const std::string& name) {
  return DescriptorPool::generated_pool()->FindMessageTypeByName(name);
}

// What protobuf's parser says, in our words. `word` becomes the name that it complains about after having read past it.
std::string reword(const std::string& message, std::string& word) {
  if (message.find("\" has no field named \"") != std::string::npos) {
    word = quoted(message, 1);
    const Descriptor* type = find_type(quoted(message, 0));
    if (!type) return message;
    return fmt::format("{} has no field \"{}\".{}", type->name(), word, suggest_field(*type, word));
  }
  if (message.find("\" is not defined or is not an extension of \"") != std::string::npos) {
    word = quoted(message, 0);
    const Descriptor* type = find_type(quoted(message, 1));
    if (!type) return message;
    return fmt::format("{} has no extension \"{}\".{}", type->name(), word, suggest_extension(*type, word));
  }
  if (message.starts_with("Non-repeated field") || message.starts_with("Unknown enumeration value"))
    word = quoted(message, 0);
  if (message.starts_with("Message is too deep"))
    return fmt::format("messages are nested more than {} deep", kMaxNesting);
  return message;
}

// What helps against a name that is no field where it stands, at `at` of the text. "" if nobody knows.
std::string fix_of(const std::string& fact, const std::string& word, const SourceText& source, size_t at) {
  const std::string_view text = source.text();
  if (at == 0 && source.file_place(at).line <= 1 && fact.find("Did you mean") == std::string::npos)
    return "a net or plan is protobuf text, such as op { type: \"Relu\" input: \"x\" output: \"y\" }";
  const size_t begin = text.substr(0, at).rfind('\n') + 1;
  const std::string_view line = text.substr(begin, text.find('\n', at) - begin);
  const bool lacks_one = std::ranges::count(line, '"') % 2 == 1;
  if (at > 0 && text[at - 1] == '"' && lacks_one)
    return "a quotation mark is missing in front of it, or in the text before";
  if (fact.starts_with("OperatorDef has no field") && NetDef::descriptor()->FindFieldByName(word) != nullptr)
    return fmt::format("\"{}\" is a field of the net: a }} is missing that closes the operator before it", word);
  if (fact.starts_with("Argument has no field") && fact.find("Did you mean") == std::string::npos)
    return fmt::format("an argument is written arg {{ name: \"{}\" i: 1 }}, or f: 0.5, s: \"text\", ints: 1 ints: 2",
                       word);
  return "";
}

// Calls fn(i) for each byte of protobuf text that stands in no literal and no comment.
template <class Fn>
void each_code_byte(std::string_view text, Fn fn) {
  char inside = 0;  // the quote of the literal around, '#' in a comment
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside == '#') {
      if (c == '\n') inside = 0;
    } else if (inside != 0) {
      if (c == '\\') ++i;
      if (c == inside || c == '\n') inside = 0;
    } else if (c == '"' || c == '\'' || c == '#') {
      inside = c;
    } else {
      fn(i);
    }
  }
}

constexpr std::string_view kOldDeviceId = "cuda_gpu_id";

// Text that names a field as the format did in 2018 has its name of today, and every byte stays where it is.
std::string with_names_of_today(std::string text) {
  constexpr std::string_view old = kOldDeviceId, now = "device_id  ";
  static_assert(old.size() == now.size());
  const auto in_name = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  std::vector<size_t> places;
  each_code_byte(text, [&](size_t i) {
    if (text.compare(i, old.size(), old) == 0 && !in_name(i + old.size()) && (i == 0 || !in_name(i - 1)))
      places.push_back(i);
  });
  for (const size_t at : places) std::ranges::copy(now, text.begin() + static_cast<std::ptrdiff_t>(at));
  return text;
}

// The last brace that is not closed; npos if there is none.
size_t open_brace(std::string_view text) {
  std::vector<size_t> open;
  each_code_byte(text, [&](size_t i) {
    if (text[i] == '{') open.push_back(i);
    if (text[i] == '}' && !open.empty()) open.pop_back();
  });
  return open.empty() ? std::string_view::npos : open.back();
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(const SourceText& source) : source_(source) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (failure) return;
    std::string word;
    std::string fact = reword(message, word);
    size_t at = source_.offset(line, column);
    const bool at_end = source_.text().find_first_not_of(" \t\r\n", at) == std::string_view::npos;
    if (const size_t brace = at_end ? open_brace(source_.text()) : at; at_end && brace != std::string_view::npos) {
      const TextPlace place = source_.place(brace);
      fact = fmt::format("the text ends, but the {{ of line {}, column {} is not closed", place.line, place.column);
    }
    if (!word.empty() && at > 0) {
      const size_t start = source_.text().rfind(word, at - 1);
      if (start != std::string_view::npos) at = start;
    }
    Error error(fact, at_end ? "" : fix_of(fact, word, source_, at));
    error.add("in", source_.describe(at));
    failure = ParseFailure{std::move(error), at};
  }
  std::optional<ParseFailure> failure;

 private:
  const SourceText& source_;
};

const FieldDescriptor* field_of(const Descriptor* type, const char* name) { return type->FindFieldByName(name); }
const FieldDescriptor* extension_of(const char* name) {
  return DescriptorPool::generated_pool()->FindExtensionByName(name);
}
Tree* subtree(const Tree* tree, const FieldDescriptor* field, int index) {
  return tree ? tree->GetTreeForNested(field, index) : nullptr;
}

// Walks a parsed piece together with the tree of its locations. Without a tree (a binary file) nothing has a place.
class Annotator {
 public:
  explicit Annotator(const SourceText& source) : source_(source) {}

  // `carries`: it stands for a message (core/operator/extensions.h) or defines an operator, so its arguments are
  // fields, of which some are nets.
  void net(NetDef& net, const Tree* tree, size_t at, int depth, bool carries = false) const {
    if (tree && source_.file_place(at).line > 0) set_place(*net.MutableExtension(net_source), at);
    const FieldDescriptor* ops = field_of(NetDef::descriptor(), "op");
    for (int i = 0; i < net.op_size(); ++i)
      op(*net.mutable_op(i), subtree(tree, ops, i), place_of(tree, ops, i, at), depth + 1);
    if (net.HasExtension(model) && net.GetExtension(model).has_init()) {
      const Tree* inner = subtree(tree, extension_of("stepnet.model"), -1);
      nested(*net.MutableExtension(model)->mutable_init(), inner, field_of(ModelDef::descriptor(), "init"), -1, at,
             depth + 2);
    }
    const FieldDescriptor* args = field_of(NetDef::descriptor(), "arg");
    for (int i = 0; i < net.arg_size(); ++i)
      if (carries || is_extension(net.arg(i)) || holds_definitions(net.arg(i)))
        arg(*net.mutable_arg(i), nullptr, subtree(tree, args, i), place_of(tree, args, i, at), depth + 1);
    take_extensions(net);
    check_complete(net, at);
  }

  void plan(PlanDef& plan, const Tree* tree) const {
    for (int i = 0; i < plan.network_size(); ++i)
      nested(*plan.mutable_network(i), tree, field_of(PlanDef::descriptor(), "network"), i, 0, 1);
  }

 private:
  void nested(NetDef& inner, const Tree* tree, const FieldDescriptor* field, int index, size_t at, int depth,
              bool carries = false) const {
    net(inner, subtree(tree, field, index), place_of(tree, field, index, at), depth, carries);
  }

  void op(OperatorDef& op, const Tree* tree, size_t at, int depth) const {
    if (tree && source_.file_place(at).line > 0) set_place(*op.MutableExtension(stepnet::source), at);
    const OpSpec* spec = find_op(op.type());
    const FieldDescriptor* args = field_of(OperatorDef::descriptor(), "arg");
    for (int i = 0; i < op.arg_size(); ++i)
      arg(*op.mutable_arg(i), spec, subtree(tree, args, i), place_of(tree, args, i, at), depth + 1);
    if (op.HasExtension(recurrent) && op.GetExtension(recurrent).has_step_net()) {
      const Tree* inner = subtree(tree, extension_of("stepnet.recurrent"), -1);
      nested(*op.MutableExtension(recurrent)->mutable_step_net(), inner,
             field_of(RecurrentDef::descriptor(), "step_net"), -1, at, depth + 2);
    }
    take_extensions(op);  // after the nets inside, which thus are looked at once
    check_complete(op, at);
  }

  void arg(Argument& arg, const OpSpec* spec, const Tree* tree, size_t at, int depth) const {
    if (arg.has_n())
      nested(*arg.mutable_n(), tree, field_of(Argument::descriptor(), "n"), -1, at, depth + 1, is_extension(arg));
    for (int i = 0; i < arg.nets_size(); ++i)
      nested(*arg.mutable_nets(i), tree, field_of(Argument::descriptor(), "nets"), i, at, depth + 1,
             holds_definitions(arg));
    if (arg.has_n() || arg.s().empty() || !spec || !holds_net(*spec, arg.name())) return;
    const size_t literal =
        tree ? place_of(tree, field_of(Argument::descriptor(), "s"), -1, at) : std::string_view::npos;
    const SourceText text(arg.s(), source_, literal, arg.name());
    if (auto failure = try_parse_text(text, *arg.mutable_n(), depth)) throw failure->error;
    arg.clear_s();
  }

  static bool holds_net(const OpSpec& spec, const std::string& name) {
    for (const ArgSpec& a : spec.args)
      if (a.holds_net && a.name == name) return true;
    return false;
  }

  // Where a field starts; `fallback` (its parent's place) if it is not recorded.
  size_t place_of(const Tree* tree, const FieldDescriptor* field, int index, size_t fallback) const {
    if (!tree) return fallback;
    const TextFormat::ParseLocation where = tree->GetLocation(field, index);
    return where.line < 0 ? fallback : source_.offset(where.line, where.column);
  }

  void set_place(SourcePosition& position, size_t at) const {
    const TextPlace place = source_.file_place(at);
    position.set_file(source_.file());
    position.set_line(place.line);
    position.set_column(place.column);
  }

  void check_complete(const Message& message, size_t at) const {
    if (message.IsInitialized()) return;
    std::vector<std::string> missing;
    message.FindInitializationErrors(&missing);
    Error error(fmt::format("required field \"{}\" is missing", missing.empty() ? "" : missing[0]));
    throw error.add("in", source_.describe(at));
  }

  const SourceText& source_;
};

std::optional<ParseFailure> parse_message(const SourceText& source, Message& message, Tree& tree, int depth) {
  const bool has_old_names = source.text().find(kOldDeviceId) != std::string_view::npos;
  const std::string renamed = has_old_names ? with_names_of_today(std::string(source.text())) : "";
  const std::string_view text = has_old_names ? renamed : source.text();
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  FirstError errors(source);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(std::max(kMaxNesting - depth, 0));
  parser.AllowPartialMessage(true);  // missing fields are reported with their place afterwards
  parser.WriteLocationsTo(&tree);
  if (parser.Parse(&stream, &message)) return std::nullopt;
  if (!errors.failure) errors.AddError(0, 0, "the text cannot be parsed");
  return std::move(errors.failure);
}

}  // namespace

std::optional<ParseFailure> try_parse_text(const SourceText& source, NetDef& net, int depth) {
  Tree tree;
  if (auto failure = parse_message(source, net, tree, depth)) return failure;
  Annotator(source).net(net, &tree, 0, depth);
  return std::nullopt;
}

std::optional<ParseFailure> try_parse_text(const SourceText& source, PlanDef& plan) {
  Tree tree;
  if (auto failure = parse_message(source, plan, tree, 0)) return failure;
  Annotator(source).plan(plan, &tree);
  return std::nullopt;
}

void parse_nested_text(const SourceText& file, NetDef& net) { Annotator(file).net(net, nullptr, 0, 0); }
void parse_nested_text(const SourceText& file, PlanDef& plan) { Annotator(file).plan(plan, nullptr); }

}  // namespace stepnet
