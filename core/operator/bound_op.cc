#include "stepnet/bound_op.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "core/operator/anomaly.h"
#include "core/operator/cast_kernels.h"
#include "core/operator/dry_run.h"
#include "core/operator/extensions.h"
#include "core/operator/in_place.h"
#include "core/operator/op_devices.h"
#include "core/tensor/dry_device.h"
#include "core/tensor/small_vector.h"
#include "stepnet/profiler.h"
#include "stepnet/random.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

int least(const std::vector<ParamSpec>& params) {
  int count = 0;
  for (size_t i = 0; i < params.size(); ++i)
    if (!params[i].optional) count = static_cast<int>(i) + (params[i].variadic ? params[i].at_least : 1);
  return count;
}

std::string param_list(const std::vector<ParamSpec>& params) {
  std::vector<std::string> names;
  for (const ParamSpec& p : params)
    names.push_back(fmt::format("{}{}{}", p.name, p.variadic ? "..." : "", p.optional ? " (optional)" : ""));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

void check_count(const std::vector<ParamSpec>& params, int count, std::string_view what) {
  const int min = least(params);
  const bool open = !params.empty() && params.back().variadic;
  const int max = static_cast<int>(params.size());
  if (count >= min && (open || count <= max)) return;
  const std::string range = open         ? fmt::format("at least {}", min)
                            : min == max ? fmt::format("{}", min)
                                         : fmt::format("{} to {}", min, max);
  throw Error(fmt::format("the operator does not fit its schema: {} {}{} for {} that it takes", count, what,
                          count == 1 ? "" : "s", range),
              fmt::format("its {}s are {}", what, param_list(params)));
}

void check_names(const BoundOp& op) {
  const OpSpec& spec = *op.spec;
  for (int i = 0; i < op.def.input_size(); ++i)
    require(!op.def.input(i).empty() || spec.input_spec(i)->optional, "input {} (\"{}\") has an empty name", i,
            spec.input_spec(i)->name);
  std::set<std::string> written;
  for (int i = 0; i < op.def.output_size(); ++i) {
    const std::string& name = op.def.output(i);
    const ParamSpec& p = *spec.output_spec(i);
    require(!name.empty() || p.optional || p.uses, "output {} (\"{}\") has an empty name", i, p.name);
    require(name.empty() || written.insert(name).second, "two outputs have the same name \"{}\"", name);
  }
}

void check_in_place(const BoundOp& op) {
  const OpSpec& spec = *op.spec;
  std::multimap<std::string_view, int> outputs;
  for (int o = 0; o < op.def.output_size(); ++o)
    if (!op.def.output(o).empty()) outputs.emplace(op.def.output(o), o);
  for (int i = 0; i < op.def.input_size(); ++i) {
    const auto [first, last] = outputs.equal_range(op.def.input(i));
    for (auto at = first; at != last; ++at) {
      const int o = at->second;
      if (!may_write_over(spec, i, o))
        throw Error(fmt::format("output \"{}\" cannot have the name of the input \"{}\" ({})",
                                spec.output_spec(o)->name, spec.input_spec(i)->name, op.def.input(i)),
                    "write to another blob");
    }
  }
  for (const InPlaceRule& rule : spec.in_place) {
    if (!rule.enforced) continue;
    const int i = spec.input_index(rule.in);
    const int o = spec.output_index(rule.out);
    if (i >= op.def.input_size() || o >= op.def.output_size()) continue;
    require(op.def.input(i) == op.def.output(o), "output \"{}\" must be the same blob as input \"{}\" ({}), not \"{}\"",
            rule.out, rule.in, op.def.input(i), op.def.output(o));
  }
}

// The element type that the generic inputs share; undefined if none is known.
DType generic_type(const BoundOp& op, std::span<const TensorType> in) {
  DType found = DType::undefined;
  int first = -1;
  for (size_t i = 0; i < in.size(); ++i) {
    const ParamSpec* p = op.spec->input_spec(static_cast<int>(i));
    if (!p->generic() || in[i].absent || !in[i].known) continue;
    if (found == DType::undefined) {
      found = in[i].dtype;
      first = static_cast<int>(i);
    }
    if (found != in[i].dtype)
      throw Error(fmt::format("inputs \"{}\" and \"{}\" must have the same type, but are {} and {}",
                              op.def.input(first), op.def.input(static_cast<int>(i)), in[first], in[i]),
                  is_half(found) || is_half(in[i].dtype) ? "bring one of them to the other's type with Cast" : "");
  }
  return found;
}

void check_fixed_types(const BoundOp& op, std::span<const TensorType> in) {
  for (size_t i = 0; i < in.size(); ++i) {
    const ParamSpec& p = *op.spec->input_spec(static_cast<int>(i));
    if (p.types.empty() || in[i].absent || !in[i].known) continue;
    if (is_one_of(p.types, in[i].dtype)) continue;
    std::vector<std::string> names;
    for (const DType t : p.types) names.emplace_back(dtype_name(t));
    fail("input \"{}\" ({}) must be {}, but is {}", op.def.input(static_cast<int>(i)), p.name, fmt::join(names, " or "),
         in[i].str());
  }
}

void check_has_kernel(const BoundOp& op, DType dtype) {
  if (dtype == DType::undefined || op.spec->kernels.empty()) return;
  if (has_kernel_for(*op.spec, dtype)) return;
  std::vector<std::string> names;
  for (const Kernel& k : op.spec->kernels)
    if (std::find(names.begin(), names.end(), dtype_name(k.dtype)) == names.end())
      names.emplace_back(dtype_name(k.dtype));
  fail("there is no kernel for elements of type {}; there are kernels for {}", dtype_name(dtype),
       fmt::join(names, ", "));
}

std::vector<std::string> shape_texts(const BoundOp& op, std::span<const Tensor* const> in) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < in.size(); ++i)
    texts.push_back(in[i] ? fmt::format("{} is {}", op.def.input(static_cast<int>(i)), in[i]->str()) : "");
  return texts;
}

// True if the output is made another name of an input's storage, so that none is allocated for it.
bool is_alias(const OpSpec& spec, int out, std::span<const TensorType> in, std::span<const TensorType> types) {
  const int source = aliased_input(spec, out);
  return source >= 0 && (!may_be_alias(spec, out) || (types[out].known && types[out].shape == in[source].shape));
}

// Makes those other names of inputs that some shapes alone make, which no kernel does. Returns whether any was.
bool share_inputs(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out,
                  std::span<const TensorType> in_types, std::span<const TensorType> out_types) {
  bool any = false;
  for (size_t o = 0; o < out.size(); ++o) {
    const int output = static_cast<int>(o);
    if (!out[o] || !may_be_alias(*op.spec, output) || !is_alias(*op.spec, output, in_types, out_types)) continue;
    *out[o] = *in[static_cast<size_t>(aliased_input(*op.spec, output))];
    any = true;
  }
  return any;
}

// What operators of few inputs and outputs need without allocating.
constexpr size_t kFew = 8;
using TypesOfFew = InlineVector<TensorType, kFew>;

// An in-place output may change the shape of the tensor that is also the input: the kernel then gets the old one, which
// is kept in `before`.
void keep_reshaped(const BoundOp& op, std::span<const Tensor*> in, const Tensor* out, size_t o, const TensorType& type,
                   std::vector<Tensor>& before) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != out || (in[i]->dtype() == type.dtype && in[i]->shape() == type.shape)) continue;
    // A derivative that asks for the input's shape would be given the output's.
    const bool is_operand =
        broadcasts(*op.spec) && keeps_shape(*op.spec, op.def, static_cast<int>(i), static_cast<int>(o));
    const bool has_derivatives = !op.spec->derivatives.empty() || op.spec->composed;
    require(!is_operand && (!has_derivatives || in[i]->size() == type.shape.size()),
            "output {} is to be written in place of input {}, but would be {} instead of {}; write to another blob", o,
            i, type.shape, in[i]->shape());
    before.resize(in.size());
    before[i] = *in[i];
    in[i] = &before[i];
  }
}

// Shapes may follow from values: where one is unknown so far, integers on a GPU are brought to the host, which waits
// for what is queued there.
void infer_from_values(const BoundOp& op, std::span<const Tensor* const> in, std::span<TensorType> in_types,
                       std::span<TensorType> out_types) {
  const bool known = std::ranges::all_of(out_types, [](const TensorType& t) { return t.absent || t.known; });
  if (known || !op.spec->shape) return;
  std::vector<Tensor> values(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const bool integers = in[i] && (in[i]->dtype() == DType::int32 || in[i]->dtype() == DType::int64);
    if (!integers || in[i]->is_dry() || in[i]->device().kind == DeviceKind::cpu) continue;
    values[i] = copied_to(*in[i], {});
    in_types[i].value = &values[i];
  }
  infer_types(op, in_types, out_types);
  for (size_t i = 0; i < in.size(); ++i)
    if (values[i].defined()) in_types[i].value = nullptr;
}

void call_kernel(const BoundOp& op, std::span<const Tensor* const> given, std::span<Tensor* const> out, RunContext& run,
                 uint32_t accumulate_mask) {
  InlineVector<const Tensor*, kFew> in(given.size());
  std::copy(given.begin(), given.end(), in.begin());
  TypesOfFew in_types(in.size()), out_types(out.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i]) {
      in_types[i] = TensorType::of(in[i]->dtype(), in[i]->shape());
      if (!in[i]->storage() || in[i]->storage()->readable()) in_types[i].value = in[i];
    } else {
      in_types[i].absent = true;
    }
  }
  for (size_t o = 0; o < out.size(); ++o) out_types[o].absent = out[o] == nullptr;
  infer_types(op, in_types, out_types);
  if (op.device.kind != DeviceKind::cpu) infer_from_values(op, in, in_types, out_types);
  bound_outputs(op, out, out_types);
  if (!op.spec->aliases.empty() && accumulate_mask == 0 && share_inputs(op, in, out, in_types, out_types)) return;
  const auto is_shared = [&](size_t o) {
    return accumulate_mask == 0 && is_alias(*op.spec, static_cast<int>(o), in_types, out_types);
  };
  std::vector<Tensor> before;
  // Of many, only outputs that are inputs, too, are looked for among these.
  std::unordered_set<const Tensor*> given_here;
  if (in.size() > kFew && out.size() > kFew) given_here.insert(given.begin(), given.end());
  for (size_t o = 0; o < out.size(); ++o) {
    if (!out[o] || !out_types[o].known || is_shared(o)) continue;
    if (given_here.empty() || given_here.count(out[o]) > 0) keep_reshaped(op, in, out[o], o, out_types[o], before);
    out[o]->resize(out_types[o].dtype, out_types[o].shape, op.device);
  }
  Call call(in, out, run);
  call.accumulate_mask = accumulate_mask;
  if (op.spec->random)
    call.random_key =
        random_key(op.def.device_option().has_random_seed() ? op.def.device_option().random_seed() : run.seed,
                   op.net_name, draw_name(op.def), run.iteration, run.timestep);
  call_or_dry(op, pick_kernel(op, in_types, out_types), call);
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o] && !is_shared(o)) out[o]->mark_written();
}

}  // namespace

BoundOp bind_op(const OperatorDef& def, const std::string& net_name, int index, Device device,
                std::vector<std::string>* warnings) {
  BoundOp op;
  op.def = def;
  op.net_name = net_name;
  op.index = index;
  op.device = device;
  try {
    op.spec = &op_spec(def.type());
    check_count(op.spec->inputs, def.input_size(), "input");
    check_count(op.spec->outputs, def.output_size(), "output");
    check_names(op);
    check_in_place(op);
    std::vector<std::string> found;
    op.args = parse_args(*op.spec, def, &found);
    const std::string where = source_text(def);
    if (warnings)
      for (const std::string& w : found) warnings->push_back(where.empty() ? w : fmt::format("{}: {}", where, w));
  } catch (Error& e) {
    add_op_context(e, op);
    throw;
  }
  return op;
}

void infer_types(const BoundOp& op, std::span<const TensorType> in, std::span<TensorType> out) {
  check_fixed_types(op, in);
  check_has_kernel(op, generic_type(op, in));
  ShapeCall call(in, out);
  for (size_t o = 0; o < out.size(); ++o) {
    const ParamSpec* p = op.spec->output_spec(static_cast<int>(o));
    if (p->rule.like.empty()) continue;
    const int i = op.spec->input_index(p->rule.like);
    if (call.known(i)) call.set(static_cast<int>(o), in[i].dtype, in[i].shape);
  }
  if (op.spec->shape) op.spec->shape(op.args.get(), call);
}

namespace {

// Of a dry run no kernel runs: those of the CPU stand in for what this build does not have.
DeviceKind device_of_kernels(const BoundOp& op) {
  const DeviceKind wanted = op.device.kind;
  if (wanted == DeviceKind::cpu || !DryScope::now()) return wanted;
  return has_kernel(*op.spec, wanted) ? wanted : DeviceKind::cpu;
}

}  // namespace

const Kernel& pick_kernel(const BoundOp& op, std::span<const TensorType> in, std::span<const TensorType> out) {
  DType dtype = generic_type(op, in);
  if (dtype == DType::undefined)
    for (const TensorType& t : out)
      if (t.known) {
        dtype = t.dtype;
        break;
      }
  const Kernel* found = nullptr;
  bool device_has_any = false;
  const DeviceKind device = device_of_kernels(op);
  for (const Kernel& k : op.spec->kernels) {
    if (k.device != device) continue;
    device_has_any = true;
    if (k.dtype == dtype || k.dtype == DType::undefined) {
      found = &k;
      break;
    }
  }
  require(device_has_any, "there is no kernel for {}", op.device);
  if ((!found && is_half(dtype)) || needs_casts(*op.spec, in))
    if (const Kernel* on_casts = kernel_on_casts(*op.spec, device)) return *on_casts;
  if (!found) check_has_kernel(op, dtype);
  require(found != nullptr, "there is no kernel for {} and elements of type {}", op.device, dtype_name(dtype));
  return *found;
}

void run_op(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out, RunContext& run,
            uint32_t accumulate_mask) {
  try {
    const AnomalyCheck anomaly(op, in, run);
    call_kernel(op, in, out, run, accumulate_mask);
    anomaly.after(out);
  } catch (Error& e) {
    if (!e.has("op")) {
      const std::vector<std::string> shapes = shape_texts(op, in);
      add_op_context(e, op, shapes);
    }
    throw;
  }
}

void add_op_context(Error& error, const BoundOp& op, std::span<const std::string> shapes) {
  if (error.has("op")) return;
  const std::string type = op.def.type().empty() ? "operator" : op.def.type();
  if (!std::string_view(error.fact()).starts_with(type)) error.prefix(type);
  const std::string where = source_text(op.def);
  error.add("in",
            fmt::format("{}{}operator {} of net \"{}\"", where, where.empty() ? "" : ", ", op.index, op.net_name));
  const auto& d = op.def;
  std::string text = fmt::format("{} = {}({})", fmt::join(d.output(), ", "), type, fmt::join(d.input(), ", "));
  for (const std::string& s : shapes)
    if (!s.empty()) text += ", " + s;
  error.add("op", text);
}

std::string source_text(const OperatorDef& def) {
  // Of an operator that came from a definition: which one, and where that is used.
  const bool is_made = def.debug_info().starts_with(kOfDefinition);
  const std::string use = is_made ? def.debug_info() : "";
  if (!def.HasExtension(source)) return use;
  const SourcePosition& at = def.GetExtension(source);
  return fmt::format("{}:{}:{}{}{}", at.file(), at.line(), at.column(), is_made ? ", " : "", use);
}

std::string_view draw_name(const OperatorDef& def) {
  if (def.HasExtension(draws_as)) return def.GetExtension(draws_as);
  return def.output_size() > 0 ? std::string_view(def.output(0)) : std::string_view();
}

Device device_of(const OperatorDef& def, const NetDef& net) {
  const DeviceOption& option = def.has_device_option() ? def.device_option() : net.device_option();
  Device device;
  if (option.device_type() == CPU || option.device_type() == MKLDNN || option.device_type() == IDEEP) return device;
  require(option.device_type() == CUDA, "device type {} is not supported; 0 is the CPU and 1 is CUDA",
          option.device_type());
  require(option.device_id() >= 0 && option.device_id() < 128, "{} is no GPU's index", option.device_id());
  device.kind = DeviceKind::cuda;
  device.index = static_cast<int8_t>(option.device_id());
  return device;
}

}  // namespace stepnet
