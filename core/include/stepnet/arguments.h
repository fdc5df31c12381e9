// Typed arguments: from an OperatorDef's Argument list to the plain struct that an operator declares.
//
// Each operator says its arguments once (name, member, default, range). They are parsed once, when the operator is
// resolved; kernels see only the struct. The lookup is the public format's: an argument is read from the one field of
// its type, and no field is converted to another. A name given twice with the same value keeps one; with different
// values it is an Error. Other names are those that the operator accepts or refuses (op_spec.h). Any other is an Error
// if one that matters is within edit distance 2, else a warning. Threads: parsing is thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// A nested net, given as a message in `n` or as protobuf text in `s` (`n` wins if both are set).
struct NetArg {
  NetDef net;
  bool present = false;  // `n` is set, or `s` is set and not empty
};

// One declared argument, type-erased over the operator's struct.
struct ArgSpec {
  std::string name;
  std::string doc;
  std::string type = "";          // as shown to people: "float", "int", "bool", "string", "net", "ints", ...
  std::string default_text = "";  // "" if there is none
  bool required = false;
  bool own = false;        // Stepnet's own, of an operator of the public format
  bool holds_net = false;  // NetArg: the text loader parses `s` in place, to give outer line and column
  std::function<void(void* args)> set_default = {};
  std::function<void(void* args, const Argument& arg)> read = {};  // throws Error: wrong field, out of range
};

// A range: returns "" if the value is fine, else what it must be ("must be greater than 0").
template <class T>
using ArgCheck = std::function<std::string(const T&)>;
ArgCheck<float> greater_than(float bound);
ArgCheck<float> float_at_least(float bound);
ArgCheck<float> float_between(float low, float high);  // both ends allowed
ArgCheck<int64_t> at_least(int64_t bound);
ArgCheck<std::string> one_of(std::vector<std::string> words);

// Reads one field of `arg`; throws Error naming the field that is needed and the ones that are set.
void read_value(const Argument& arg, float& out);
void read_value(const Argument& arg, double& out);
void read_value(const Argument& arg, bool& out);
void read_value(const Argument& arg, int32_t& out);
void read_value(const Argument& arg, int64_t& out);
void read_value(const Argument& arg, std::string& out);
void read_value(const Argument& arg, std::vector<float>& out);
void read_value(const Argument& arg, std::vector<int64_t>& out);
void read_value(const Argument& arg, std::vector<std::string>& out);
void read_value(const Argument& arg, NetDef& out);
void read_value(const Argument& arg, NetArg& out);
void read_value(const Argument& arg, Argument& out);  // any field: the operator looks for itself
template <class T>
void read_value(const Argument& arg, std::optional<T>& out) {  // an argument without default: empty if absent
  T value{};
  read_value(arg, value);
  out = std::move(value);
}

std::string arg_type_name(const float&);
std::string arg_type_name(const double&);
std::string arg_type_name(const bool&);
std::string arg_type_name(const int32_t&);
std::string arg_type_name(const int64_t&);
std::string arg_type_name(const std::string&);
std::string arg_type_name(const std::vector<float>&);
std::string arg_type_name(const std::vector<int64_t>&);
std::string arg_type_name(const std::vector<std::string>&);
std::string arg_type_name(const NetDef&);
std::string arg_type_name(const NetArg&);
std::string arg_type_name(const Argument&);
template <class T>
std::string arg_type_name(const std::optional<T>&) {
  return arg_type_name(T{});
}

std::string arg_text(float v);
std::string arg_text(double v);
std::string arg_text(bool v);
std::string arg_text(int32_t v);
std::string arg_text(int64_t v);
std::string arg_text(const std::string& v);
template <class T>
std::string arg_text(const std::vector<T>& v) {
  return v.empty() ? "[]" : fmt::format("[{} values]", v.size());
}
template <class T>
std::string arg_text(const T&) {
  return "";
}

// Makes an Argument for an OperatorDef built in code.
Argument make_arg(const std::string& name, float value);
Argument make_arg(const std::string& name, double value);
Argument make_arg(const std::string& name, bool value);
Argument make_arg(const std::string& name, int value);
Argument make_arg(const std::string& name, int64_t value);
Argument make_arg(const std::string& name, const std::string& value);
Argument make_arg(const std::string& name, const char* value);
Argument make_arg(const std::string& name, const std::vector<int64_t>& values);
Argument make_arg(const std::string& name, const std::vector<int>& values);
Argument make_arg(const std::string& name, const std::vector<float>& values);
Argument make_arg(const std::string& name, const std::vector<std::string>& values);
Argument make_arg(const std::string& name, const NetDef& net);

// The argument of that name, or null. For passes that rewrite nets; kernels use their struct.
const Argument* find_arg(const OperatorDef& def, std::string_view name);

}  // namespace stepnet
