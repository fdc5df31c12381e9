#include "core/operator/extensions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/operator/nets_inside.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Kind = FieldDescriptor::CppType;

bool is_net(const FieldDescriptor& field) { return field.message_type() == NetDef::descriptor(); }

// The places of files are no part of what is carried.
bool is_carried(const FieldDescriptor& extension) { return extension.message_type() != SourcePosition::descriptor(); }

std::vector<const FieldDescriptor*> extensions_of(const Descriptor* owner) {
  std::vector<const FieldDescriptor*> all, carried;
  DescriptorPool::generated_pool()->FindAllExtensions(owner, &all);
  for (const FieldDescriptor* field : all)
    if (is_carried(*field)) carried.push_back(field);
  return carried;
}

// The fields that are inputs and outputs where the message is an operator.
struct Ends {
  std::vector<std::string> inputs, outputs;
};
const Ends& ends_of(const Descriptor* type) {
  static const std::map<const Descriptor*, Ends> all = {
      {SequenceLink::descriptor(), {{"outer"}, {"inner"}}},
      {StateLink::descriptor(), {{"input", "initial"}, {"output", "all", "last"}}},
      {OutputLink::descriptor(), {{"inner"}, {"outer"}}},
      {CarryLink::descriptor(), {{"from"}, {"to"}}},
      {DataLink::descriptor(), {{"column"}, {"blob"}}},
      {MetricLink::descriptor(), {{"prediction", "target"}, {"name"}}},
      {LossTerm::descriptor(), {{"blob"}, {}}},
      {ParameterGroup::descriptor(), {{"parameters"}, {}}}};
  return all.at(type);
}

// What the argument of an extension says, while it is read: its name, for messages.
struct Reader {
  const std::string& extension;

  template <class... A>
  [[noreturn]] void refuse(const OperatorDef* at, fmt::format_string<A...> text, A&&... args) const {
    Error error(fmt::format("the argument \"{}\": {}", extension, fmt::format(text, std::forward<A>(args)...)));
    const std::string where = at ? source_text(*at) : "";
    if (!where.empty()) error.add("in", where);
    throw Error(std::move(error));
  }

  const FieldDescriptor& field(const Descriptor* type, const std::string& name, const OperatorDef* at) const {
    if (const FieldDescriptor* found = type->FindFieldByName(name)) return *found;
    std::vector<std::string> names;
    for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
    refuse(at, "{} has no field \"{}\".{}", type->name(), name, suggest(name, names));
  }

  void check_free(const Message& to, const FieldDescriptor& f, const OperatorDef* at) const {
    const bool set = f.is_repeated() ? to.GetReflection()->FieldSize(to, &f) > 0 : to.GetReflection()->HasField(to, &f);
    if (set) refuse(at, "\"{}\" is given twice", f.name());
  }

  void take_text(Message& to, const FieldDescriptor& f, const Argument& arg, const OperatorDef* at) const {
    const google::protobuf::Reflection& r = *to.GetReflection();
    if (f.is_repeated() ? arg.strings_size() == 0 : !arg.has_s())
      refuse(at, "\"{}\" must be {}", f.name(), f.is_repeated() ? "texts (strings)" : "a text (s)");
    if (!f.is_repeated()) return r.SetString(&to, &f, arg.s());
    for (const std::string& s : arg.strings()) r.AddString(&to, &f, s);
  }

  void take_float(Message& to, const FieldDescriptor& f, const Argument& arg, const OperatorDef* at) const {
    if (!arg.has_f()) refuse(at, "\"{}\" must be a number (f)", f.name());
    to.GetReflection()->SetFloat(&to, &f, arg.f());
  }

  void take_integer(Message& to, const FieldDescriptor& f, const Argument& arg, const OperatorDef* at) const {
    const google::protobuf::Reflection& r = *to.GetReflection();
    if (f.is_repeated() ? arg.ints_size() == 0 : !arg.has_i())
      refuse(at, "\"{}\" must be {}", f.name(), f.is_repeated() ? "integers (ints)" : "an integer (i)");
    const auto put = [&](int64_t value) {
      const bool is_bool = f.cpp_type() == Kind::CPPTYPE_BOOL, is_int32 = f.cpp_type() == Kind::CPPTYPE_INT32;
      if (is_bool ? value != 0 && value != 1 : is_int32 && value != static_cast<int32_t>(value))
        refuse(at, "\"{}\" is {}, which is {}", f.name(), value, is_bool ? "neither 0 nor 1" : "too large");
      if (is_bool) return r.SetBool(&to, &f, value != 0);
      if (is_int32) return r.SetInt32(&to, &f, static_cast<int32_t>(value));
      f.is_repeated() ? r.AddInt64(&to, &f, value) : r.SetInt64(&to, &f, value);
    };
    if (!f.is_repeated()) return put(arg.i());
    for (const int64_t value : arg.ints()) put(value);
  }

  void take_argument(Message& to, Argument& arg, const OperatorDef* at) const {
    const FieldDescriptor& f = field(to.GetDescriptor(), arg.name(), at);
    check_free(to, f, at);
    if (f.cpp_type() == Kind::CPPTYPE_STRING) return take_text(to, f, arg, at);
    if (f.cpp_type() == Kind::CPPTYPE_FLOAT) return take_float(to, f, arg, at);
    if (f.cpp_type() != Kind::CPPTYPE_MESSAGE) return take_integer(to, f, arg, at);
    if (!is_net(f) || !arg.has_n()) refuse(at, "\"{}\" must be {}", f.name(), is_net(f) ? "a net (n)" : "an operator");
    Message& net = *to.GetReflection()->MutableMessage(&to, &f);
    net.GetReflection()->Swap(&net, arg.mutable_n());
  }

  void take_ends(Message& part, const google::protobuf::RepeatedPtrField<std::string>& names,
                 const std::vector<std::string>& fields, const char* what, const OperatorDef& op) const {
    if (names.size() > static_cast<int>(fields.size()))
      refuse(&op, "\"{}\" has {} {}, but at most {}: {}", op.type(), names.size(), what, fields.size(),
             fmt::join(fields, ", "));
    for (int i = 0; i < names.size(); ++i) {
      const FieldDescriptor* f = part.GetDescriptor()->FindFieldByName(fields[static_cast<size_t>(i)]);
      if (!names[i].empty() || f->is_required()) part.GetReflection()->SetString(&part, f, names[i]);
    }
  }

  void take_operator(Message& to, OperatorDef& op) const {
    const FieldDescriptor& f = field(to.GetDescriptor(), op.type(), &op);
    if (f.cpp_type() != Kind::CPPTYPE_MESSAGE || is_net(f) || !f.is_repeated())
      refuse(&op, "\"{}\" must be an argument", f.name());
    Message& part = *to.GetReflection()->AddMessage(&to, &f);
    const Ends& ends = ends_of(part.GetDescriptor());
    if (op.has_device_option() || op.control_input_size() > 0)
      refuse(&op, "\"{}\" has inputs, outputs and arguments alone", f.name());
    take_ends(part, op.input(), ends.inputs, "inputs", op);
    take_ends(part, op.output(), ends.outputs, "outputs", op);
    for (Argument& arg : *op.mutable_arg()) take_argument(part, arg, &op);
  }

  void take(Message& to, Argument& arg, const OperatorDef* at) const {
    if (!arg.has_n()) refuse(at, "it must be a net (n)");
    NetDef& net = *arg.mutable_n();
    if (net.external_input_size() + net.external_output_size() > 0 || net.has_device_option())
      refuse(at, "its net has operators and arguments alone");
    for (OperatorDef& op : *net.mutable_op()) take_operator(to, op);
    for (Argument& inner : *net.mutable_arg()) take_argument(to, inner, at);
  }
};

// `at`: the operator; null if the owner is a net.
template <class Owner>
void take_all(Owner& owner, const OperatorDef* at) {
  auto& args = *owner.mutable_arg();
  for (int i = 0; i < args.size(); ++i) {
    if (!is_extension(args.Get(i)) && !(at && holds_definitions(args.Get(i)))) continue;  // an operator defines none
    const std::string name = args.Get(i).name();
    const Reader reader{name};
    const FieldDescriptor* f = DescriptorPool::generated_pool()->FindExtensionByName(name);
    if (!f || f->containing_type() != Owner::descriptor() || !is_carried(*f)) {
      std::vector<std::string> names;
      for (const FieldDescriptor* known : extensions_of(Owner::descriptor())) names.push_back(known->full_name());
      reader.refuse(at, "there is none of this name.{}", suggest(name, names));
    }
    if (owner.GetReflection()->HasField(owner, f)) reader.refuse(at, "it is given twice");
    if (f->cpp_type() == Kind::CPPTYPE_MESSAGE)
      reader.take(*owner.GetReflection()->MutableMessage(&owner, f), *args.Mutable(i), at);
    else
      reader.take_text(owner, *f, args.Get(i), at);
    args.DeleteSubrange(i--, 1);
  }
}

Argument argument_of(const Message& from, const FieldDescriptor& f) {
  const google::protobuf::Reflection& r = *from.GetReflection();
  Argument arg;
  arg.set_name(f.is_extension() ? f.full_name() : f.name());
  switch (f.cpp_type()) {
    case Kind::CPPTYPE_STRING:
      if (!f.is_repeated()) arg.set_s(r.GetString(from, &f));
      for (int i = 0; f.is_repeated() && i < r.FieldSize(from, &f); ++i)
        arg.add_strings(r.GetRepeatedString(from, &f, i));
      break;
    case Kind::CPPTYPE_BOOL:
      arg.set_i(r.GetBool(from, &f) ? 1 : 0);
      break;
    case Kind::CPPTYPE_INT32:
      arg.set_i(r.GetInt32(from, &f));
      break;
    case Kind::CPPTYPE_FLOAT:
      arg.set_f(r.GetFloat(from, &f));
      break;
    default:
      if (!f.is_repeated()) arg.set_i(r.GetInt64(from, &f));
      for (int i = 0; f.is_repeated() && i < r.FieldSize(from, &f); ++i) arg.add_ints(r.GetRepeatedInt64(from, &f, i));
  }
  return arg;
}

std::vector<const FieldDescriptor*> fields_of(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

// The texts of these fields, without optional ones that are missing at the end.
std::vector<std::string> texts_of(const Message& part, const std::vector<std::string>& fields) {
  std::vector<std::string> texts;
  for (const std::string& field : fields)
    texts.push_back(part.GetReflection()->GetString(part, part.GetDescriptor()->FindFieldByName(field)));
  const auto is_optional = [&](const std::string& field) {
    return !part.GetDescriptor()->FindFieldByName(field)->is_required();
  };
  while (!texts.empty() && texts.back().empty() && is_optional(fields[texts.size() - 1])) texts.pop_back();
  return texts;
}

OperatorDef operator_of(const Message& part, const std::string& type) {
  OperatorDef op;
  op.set_type(type);
  const Ends& ends = ends_of(part.GetDescriptor());
  for (std::string& name : texts_of(part, ends.inputs)) op.add_input(std::move(name));
  for (std::string& name : texts_of(part, ends.outputs)) op.add_output(std::move(name));
  for (const FieldDescriptor* f : fields_of(part))
    if (std::ranges::count(ends.inputs, f->name()) + std::ranges::count(ends.outputs, f->name()) == 0)
      *op.add_arg() = argument_of(part, *f);
  return op;
}

NetDef net_of(const Message& message) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  NetDef net;
  for (const FieldDescriptor* f : fields_of(message)) {
    if (f->cpp_type() != Kind::CPPTYPE_MESSAGE) {
      *net.add_arg() = argument_of(message, *f);
    } else if (is_net(*f)) {
      Argument& arg = *net.add_arg();
      arg.set_name(f->name());
      arg.mutable_n()->CopyFrom(r.GetMessage(message, f));
      carry_extensions(*arg.mutable_n());
    } else {
      for (int i = 0; i < r.FieldSize(message, f); ++i)
        *net.add_op() = operator_of(r.GetRepeatedMessage(message, f, i), f->name());
    }
  }
  return net;
}

template <class Owner>
void carry_all(Owner& owner) {
  for (const FieldDescriptor* f : extensions_of(Owner::descriptor())) {
    if (!owner.GetReflection()->HasField(owner, f)) continue;
    if (f->cpp_type() == Kind::CPPTYPE_MESSAGE) {
      Argument arg;
      arg.set_name(f->full_name());
      *arg.mutable_n() = net_of(owner.GetReflection()->GetMessage(owner, f));
      *owner.add_arg() = std::move(arg);
    } else {
      *owner.add_arg() = argument_of(owner, *f);
    }
    owner.GetReflection()->ClearField(&owner, f);
  }
}

}  // namespace

void take_extensions(OperatorDef& op) { take_all(op, &op); }
void take_extensions(NetDef& net) { take_all(net, nullptr); }

void take_all_extensions(NetDef& net) {
  const auto take_inside = [](Argument& arg) {
    if (arg.has_n()) take_all_extensions(*arg.mutable_n());
    // Of a net that stands for a message, arguments are fields.
    if (is_extension(arg) && arg.has_n())
      for (Argument& field : *arg.mutable_n()->mutable_arg())
        if (field.has_n()) take_all_extensions(*field.mutable_n());
    for (NetDef& inner : *arg.mutable_nets()) take_all_extensions(inner);
  };
  for (OperatorDef& op : *net.mutable_op()) {
    for (Argument& arg : *op.mutable_arg()) take_inside(arg);
    take_extensions(op);
  }
  for (Argument& arg : *net.mutable_arg())
    if (is_extension(arg)) take_inside(arg);
  for_each_definition(net, [](NetDef& definition) { take_all_extensions(definition); });
  take_extensions(net);
}

void carry_extensions(NetDef& net) {
  for (OperatorDef& op : *net.mutable_op()) {
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.has_n()) carry_extensions(*arg.mutable_n());
      for (NetDef& inner : *arg.mutable_nets()) carry_extensions(inner);
    }
    carry_all(op);
  }
  for_each_definition(net, [](NetDef& definition) { carry_extensions(definition); });
  carry_all(net);
}

}  // namespace stepnet
