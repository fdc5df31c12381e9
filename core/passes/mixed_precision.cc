#include "core/passes/mixed_precision.h"

#include <algorithm>
#include <optional>

#include "core/operator/nets_inside.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/half.h"
#include "stepnet/net.h"

namespace stepnet {
namespace {

enum class Kind { plain, half, float32, either };

// What there is of a blob of the net that is, or was, of float32.
struct Value {
  bool full = false;      // it is there in float32, under its own name
  std::string half = {};  // its name in the half type, if it is there
  bool computed = false;  // by an operator of the net
};

Argument to_type(const char* name, DType type) { return make_arg(name, static_cast<int>(type)); }

class Rewriter {
 public:
  Rewriter(const NetDef& net, const MixedPrecision& how) : how_(how), result_(net), types_(how.known) {
    result_.clear_op();
    for (const auto& [name, type] : how.known) {
      from_outside_.insert(name);
      if (type.known && type.dtype == DType::float32) values_[name].full = true;
    }
    NetDef copy = net;
    for_each_net(copy, [&](const NetDef& inner) {
      for (const OperatorDef& op : inner.op()) {
        taken_.insert(op.input().begin(), op.input().end());
        taken_.insert(op.output().begin(), op.output().end());
      }
    });
    for (const OperatorDef& op : net.op()) add(op);
    for (const std::string& name : net.external_output()) in_float32(name);
    for (const std::string& name : how.outside) in_float32(name);
  }

  NetDef result() { return std::move(result_); }

 private:
  Value* find(const std::string& name) {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }

  std::string fresh(const std::string& name) {
    const std::string base = fmt::format("{}_{}", name, dtype_name(how_.type));
    std::string result = base;
    for (int n = 1; !taken_.insert(result).second; ++n) result = fmt::format("{}_{}", base, n);
    return result;
  }

  void cast(const std::string& from, const std::string& to, DType type, DType result) {
    OperatorDef& op = *result_.add_op();
    op.set_type(op_with_role(Role::cast).type);
    op.add_input(from);
    op.add_output(to);
    *op.add_arg() = to_type("to", result);
    *op.add_arg() = to_type("from_type", type);
    if (const auto known = types_.find(from); known != types_.end() && known->second.known)
      types_[to] = TensorType::of(result, known->second.shape);
  }

  void in_float32(const std::string& name) {
    Value* value = find(name);
    if (!value || value->full) return;
    cast(value->half, name, how_.type, DType::float32);
    value->full = true;
  }

  std::string in_half(const std::string& name) {
    Value* value = find(name);
    if (!value) return name;
    if (value->half.empty()) {
      value->half = fresh(name);
      cast(name, value->half, DType::float32, how_.type);
    }
    return value->half;
  }

  bool writes_outside(const OperatorDef& op) const {
    return std::ranges::any_of(op.output(), [&](const std::string& name) { return from_outside_.count(name) > 0; });
  }

  // Names that nets inside an operator may read, and its inputs.
  static std::set<std::string> reads_of(const OperatorDef& op) {
    std::set<std::string> names(op.input().begin(), op.input().end());
    NetDef holder;
    *holder.add_op() = op;
    for_each_net(holder, [&](const NetDef& inner) {
      for (const OperatorDef& o : inner.op()) names.insert(o.input().begin(), o.input().end());
    });
    return names;
  }

  Kind kind_of(const OperatorDef& op, const std::set<std::string>& reads) {
    const auto floating = [&](const std::string& name) { return find(name) != nullptr; };
    if (std::ranges::none_of(reads, floating)) return Kind::plain;
    if (has_short_form(op)) return Kind::half;
    const OpSpec* spec = find_op(op.type());
    if (!spec || spec->precision == Precision::float32 || writes_outside(op)) return Kind::float32;
    if (spec->precision == Precision::half) return Kind::half;
    if (spec->blob_kernel) return Kind::float32;
    const bool promotes = std::ranges::any_of(op.input(), [&](const std::string& name) {
      const Value* value = find(name);
      return value && value->computed && value->half.empty();
    });
    return promotes ? Kind::float32 : Kind::either;
  }

  void add(const OperatorDef& op) {
    const std::set<std::string> reads = reads_of(op);
    const Kind kind = kind_of(op, reads);
    if (kind == Kind::half || kind == Kind::either) return add_half(op, reads);
    if (kind == Kind::float32)
      for (const std::string& name : reads) in_float32(name);
    *result_.add_op() = op;
    const auto outputs = infer(op);
    for (int o = 0; o < op.output_size(); ++o) {
      const std::optional<TensorType> type = outputs[o];
      // What is not known is float32 if it may be.
      const bool floats = type ? type->dtype == DType::float32 : may_be_floating(op, o) && kind == Kind::float32;
      wrote(op.output(o), floats ? Value{true, "", true} : Value{}, floats);
    }
  }

  static bool may_be_floating(const OperatorDef& op, int o) {
    const OpSpec* spec = find_op(op.type());
    const ParamSpec* p = spec ? spec->output_spec(o) : nullptr;
    return p && (p->types.empty() || std::ranges::find(p->types, DType::float32) != p->types.end());
  }

  void wrote(const std::string& name, const Value& value, bool floats) {
    if (name.empty()) return;
    values_.erase(name);
    if (floats) values_[name] = value;
  }

  void add_half(OperatorDef op, const std::set<std::string>& reads) {
    const OperatorDef before = op;
    std::map<std::string, std::string> names;
    for (const std::string& name : reads)
      if (find(name)) names[name] = in_half(name);
    for (std::string& name : *op.mutable_input())
      if (const auto found = names.find(name); found != names.end()) name = found->second;
    std::vector<std::string> outputs;
    for (const std::string& name : before.output()) {
      const bool in_place = std::ranges::find(before.input(), name) != before.input().end();
      outputs.push_back(name.empty() ? name : in_place && names.count(name) > 0 ? names[name] : fresh(name));
    }
    const std::vector<std::optional<TensorType>> types = infer(op);
    for (int o = 0; o < op.output_size(); ++o) {
      const std::string& name = before.output(o);
      const bool is = types[o] ? types[o]->dtype == how_.type : has_short_form(op) || may_be_floating(op, o);
      if (is && !name.empty()) {
        names[name] = outputs[o];
        op.set_output(o, outputs[o]);
        if (types[o]) types_[outputs[o]] = *types[o];
        types_.erase(name);
      }
      wrote(name, is ? Value{false, outputs[o], true} : Value{true, "", true},
            is || (types[o] && types[o]->dtype == DType::float32));
    }
    if (has_short_form(op)) rename_in_short_form(*op.MutableExtension(recurrent), names);
    // Draws are those of the float32 net.
    const OpSpec* spec = find_op(op.type());
    if (spec && spec->random && op.output_size() > 0 && !op.HasExtension(draws_as))
      op.SetExtension(draws_as, before.output(0));
    *result_.add_op() = std::move(op);
  }

  // The types of the outputs, as far as they are known, which are noted.
  std::vector<std::optional<TensorType>> infer(const OperatorDef& op) {
    std::vector<std::optional<TensorType>> result(op.output_size());
    if (has_short_form(op) || computes_in_half_whole(op)) return result;
    std::vector<TensorType> in(op.input_size()), out(op.output_size());
    try {
      const BoundOp bound = bind_op(op, result_.name(), result_.op_size());
      for (int i = 0; i < op.input_size(); ++i) {
        if (const auto known = types_.find(op.input(i)); known != types_.end()) in[i] = known->second;
        in[i].absent = op.input(i).empty();
      }
      for (int o = 0; o < op.output_size(); ++o) out[o].absent = op.output(o).empty();
      infer_types(bound, in, out);
    } catch (const Error&) {
      return result;  // the net that is built says it
    }
    for (int o = 0; o < op.output_size(); ++o) {
      types_.erase(op.output(o));
      if (!out[o].known) continue;
      result[o] = out[o];
      types_[op.output(o)] = out[o];
    }
    return result;
  }

  // Cells are no operators before they are expanded.
  static bool computes_in_half_whole(const OperatorDef& op) {
    const OpSpec* spec = find_op(op.type());
    return spec && spec->blob_kernel && spec->precision == Precision::half;
  }

  const MixedPrecision& how_;
  NetDef result_;
  std::map<std::string, TensorType> types_;
  std::map<std::string, Value> values_;
  std::set<std::string> from_outside_, taken_;
};

}  // namespace

NetDef mixed_precision(const NetDef& net, const MixedPrecision& how) {
  require(is_half(how.type), "mixed precision is of float16 or bfloat16, not of {}", dtype_name(how.type));
  return Rewriter(net, how).result();
}

}  // namespace stepnet
