#include "stepnet/arguments.h"

#include <limits>

#include "core/operator/nested_text.h"

namespace stepnet {
namespace {

std::string set_fields(const Argument& arg) {
  std::vector<std::string> set;
  if (arg.has_f()) set.emplace_back("f");
  if (arg.has_i()) set.emplace_back("i");
  if (arg.has_s()) set.emplace_back("s");
  if (arg.has_n()) set.emplace_back("n");
  if (arg.floats_size() > 0) set.emplace_back("floats");
  if (arg.ints_size() > 0) set.emplace_back("ints");
  if (arg.strings_size() > 0) set.emplace_back("strings");
  if (arg.nets_size() > 0) set.emplace_back("nets");
  if (arg.has_t()) set.emplace_back("t");
  if (arg.tensors_size() > 0) set.emplace_back("tensors");
  if (arg.qtensors_size() > 0) set.emplace_back("qtensors");
  return set.empty() ? "no value" : fmt::format("{}", fmt::join(set, " and "));
}

void need_field(const Argument& arg, bool present, const char* field, const std::string& type) {
  if (present) return;
  throw Error(fmt::format("argument \"{}\" is {}, read from the field \"{}\", but it has {}", arg.name(), type, field,
                          set_fields(arg)),
              fmt::format("write arg {{ name: \"{}\" {}: ... }}", arg.name(), field));
}

// A repeated argument may be empty, but not hold values of another kind.
void need_list(const Argument& arg, int count, const char* field, const std::string& type) {
  need_field(arg, count > 0 || set_fields(arg) == "no value", field, type);
}

template <class T>
void read_integer(const Argument& arg, T& out, const std::string& type) {
  need_field(arg, arg.has_i(), "i", type);
  require(arg.i() >= std::numeric_limits<T>::min() && arg.i() <= std::numeric_limits<T>::max(),
          "argument \"{}\" is {}, which does not fit {}", arg.name(), arg.i(), type);
  out = static_cast<T>(arg.i());
}

}  // namespace

ArgCheck<float> greater_than(float bound) {
  return [bound](const float& v) { return v > bound ? "" : fmt::format("must be greater than {}", bound); };
}
ArgCheck<float> float_at_least(float bound) {
  return [bound](const float& v) { return v >= bound ? "" : fmt::format("must be at least {}", bound); };
}
ArgCheck<float> float_between(float low, float high) {
  return [=](const float& v) { return v >= low && v <= high ? "" : fmt::format("must be from {} to {}", low, high); };
}
ArgCheck<int64_t> at_least(int64_t bound) {
  return [bound](const int64_t& v) { return v >= bound ? "" : fmt::format("must be at least {}", bound); };
}
ArgCheck<std::string> one_of(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& v) {
    for (const std::string& w : words)
      if (v == w) return std::string();
    return fmt::format("must be one of {}", fmt::join(words, ", "));
  };
}

void read_value(const Argument& arg, float& out) {
  need_field(arg, arg.has_f(), "f", arg_type_name(out));
  out = arg.f();
}
void read_value(const Argument& arg, double& out) {
  need_field(arg, arg.has_f(), "f", arg_type_name(out));
  out = arg.f();
}
void read_value(const Argument& arg, bool& out) {
  need_field(arg, arg.has_i(), "i", arg_type_name(out));
  out = arg.i() != 0;
}
void read_value(const Argument& arg, int32_t& out) { read_integer(arg, out, arg_type_name(out)); }
void read_value(const Argument& arg, int64_t& out) { read_integer(arg, out, arg_type_name(out)); }
void read_value(const Argument& arg, std::string& out) {
  need_field(arg, arg.has_s(), "s", arg_type_name(out));
  out = arg.s();
}
void read_value(const Argument& arg, std::vector<float>& out) {
  need_list(arg, arg.floats_size(), "floats", arg_type_name(out));
  out.assign(arg.floats().begin(), arg.floats().end());
}
void read_value(const Argument& arg, std::vector<int64_t>& out) {
  need_list(arg, arg.ints_size(), "ints", arg_type_name(out));
  out.assign(arg.ints().begin(), arg.ints().end());
}
void read_value(const Argument& arg, std::vector<std::string>& out) {
  need_list(arg, arg.strings_size(), "strings", arg_type_name(out));
  out.assign(arg.strings().begin(), arg.strings().end());
}
void read_value(const Argument& arg, NetDef& out) {
  need_field(arg, arg.has_n(), "n", arg_type_name(out));
  out = arg.n();
}
void read_value(const Argument& arg, NetArg& out) {
  out.present = arg.has_n() || (arg.has_s() && !arg.s().empty());
  out.net.Clear();
  if (arg.has_n()) {
    out.net = arg.n();
  } else if (out.present) {
    out.net = parse_nested_net(arg.s(), arg.name());
  }
}
void read_value(const Argument& arg, Argument& out) { out = arg; }

std::string arg_type_name(const float&) { return "float"; }
std::string arg_type_name(const double&) { return "float"; }
std::string arg_type_name(const bool&) { return "bool"; }
std::string arg_type_name(const int32_t&) { return "int32"; }
std::string arg_type_name(const int64_t&) { return "int"; }
std::string arg_type_name(const std::string&) { return "string"; }
std::string arg_type_name(const std::vector<float>&) { return "floats"; }
std::string arg_type_name(const std::vector<int64_t>&) { return "ints"; }
std::string arg_type_name(const std::vector<std::string>&) { return "strings"; }
std::string arg_type_name(const NetDef&) { return "net"; }
std::string arg_type_name(const NetArg&) { return "net"; }
std::string arg_type_name(const Argument&) { return "any"; }

std::string arg_text(float v) { return fmt::format("{}", v); }
std::string arg_text(double v) { return fmt::format("{}", v); }
std::string arg_text(bool v) { return v ? "1" : "0"; }
std::string arg_text(int32_t v) { return fmt::format("{}", v); }
std::string arg_text(int64_t v) { return fmt::format("{}", v); }
std::string arg_text(const std::string& v) { return fmt::format("\"{}\"", v); }

namespace {
Argument named(const std::string& name) {
  Argument arg;
  arg.set_name(name);
  return arg;
}
}  // namespace

Argument make_arg(const std::string& name, float value) {
  Argument arg = named(name);
  arg.set_f(value);
  return arg;
}
Argument make_arg(const std::string& name, double value) { return make_arg(name, static_cast<float>(value)); }
Argument make_arg(const std::string& name, bool value) { return make_arg(name, static_cast<int64_t>(value)); }
Argument make_arg(const std::string& name, int value) { return make_arg(name, static_cast<int64_t>(value)); }
Argument make_arg(const std::string& name, int64_t value) {
  Argument arg = named(name);
  arg.set_i(value);
  return arg;
}
Argument make_arg(const std::string& name, const std::string& value) {
  Argument arg = named(name);
  arg.set_s(value);
  return arg;
}
Argument make_arg(const std::string& name, const char* value) { return make_arg(name, std::string(value)); }
Argument make_arg(const std::string& name, const std::vector<int64_t>& values) {
  Argument arg = named(name);
  for (const int64_t v : values) arg.add_ints(v);
  return arg;
}
Argument make_arg(const std::string& name, const std::vector<int>& values) {
  return make_arg(name, std::vector<int64_t>(values.begin(), values.end()));
}
Argument make_arg(const std::string& name, const std::vector<float>& values) {
  Argument arg = named(name);
  for (const float v : values) arg.add_floats(v);
  return arg;
}
Argument make_arg(const std::string& name, const std::vector<std::string>& values) {
  Argument arg = named(name);
  for (const std::string& v : values) arg.add_strings(v);
  return arg;
}
Argument make_arg(const std::string& name, const NetDef& net) {
  Argument arg = named(name);
  *arg.mutable_n() = net;
  return arg;
}

const Argument* find_arg(const OperatorDef& def, std::string_view name) {
  for (const Argument& arg : def.arg())
    if (arg.name() == name) return &arg;
  return nullptr;
}

}  // namespace stepnet
