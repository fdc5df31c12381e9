// The registry, and the parsing of arguments against it.
#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>

#include "core/operator/arg_names.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

// Those of operators/collective, which builds without MPI do not have.
constexpr std::array<std::string_view, 22> kOfMpi = {"Allgather",
                                                     "AllgatherSlices",
                                                     "Allreduce",
                                                     "Barrier",
                                                     "Broadcast",
                                                     "CloneCommonWorld",
                                                     "CreateCommonWorld",
                                                     "DestroyCommonWorld",
                                                     "FinishAllreduce",
                                                     "FinishReduceScatter",
                                                     "GatherShards",
                                                     "ReceiveTensor",
                                                     "Reduce",
                                                     "ReduceScatter",
                                                     "SendTensor",
                                                     "ShardedNormClip",
                                                     "StartAllreduce",
                                                     "StartReduceScatter",
                                                     "SyncBatchNorm",
                                                     "SyncBatchNormGradient",
                                                     "SyncSpatialBN",
                                                     "TakeShard"};

struct Registry {
  std::map<std::string, OpSpec, std::less<>> ops;
  std::map<std::string, std::vector<Kernel>, std::less<>> waiting;  // twins that came before their operator
};

Registry& registry() {
  static Registry all;
  return all;
}

void add_kernels(OpSpec& spec, const std::vector<Kernel>& kernels) {
  spec.kernels.insert(spec.kernels.end(), kernels.begin(), kernels.end());
}

void merge_duplicates(const OperatorDef& def) {
  std::unordered_map<std::string_view, const Argument*> first;
  for (const Argument& arg : def.arg()) {
    const auto [known, is_new] = first.emplace(arg.name(), &arg);
    require(is_new || known->second->SerializeAsString() == arg.SerializeAsString(),
            "argument \"{}\" is given twice, with different values", arg.name());
  }
}

}  // namespace

bool register_op(Registration (*make)(), const char* file) {
  Registration made = make();
  if (made.add) {
    made.add();
    return true;
  }
  made.spec.family = std::filesystem::path(file).parent_path().filename().string();
  Registry& all = registry();
  const std::string type = made.spec.type;
  if (made.kernels_only) {
    const auto it = all.ops.find(type);
    if (it != all.ops.end()) {
      add_kernels(it->second, made.spec.kernels);
    } else {
      auto& waiting = all.waiting[type];
      waiting.insert(waiting.end(), made.spec.kernels.begin(), made.spec.kernels.end());
    }
    return true;
  }
  if (all.ops.count(type) > 0) fail("the operator {} is registered twice", type);
  OpSpec& spec = all.ops.emplace(type, std::move(made.spec)).first->second;
  if (const auto it = all.waiting.find(type); it != all.waiting.end()) add_kernels(spec, it->second);
  return true;
}

const OpSpec* find_op(std::string_view type) {
  const auto it = registry().ops.find(type);
  return it == registry().ops.end() ? nullptr : &it->second;
}

const OpSpec& op_spec(std::string_view type) {
  assert(!registry().ops.empty() && "no operator is registered: the library was linked without its objects");
  if (const OpSpec* spec = find_op(type)) return *spec;
  if (type.empty()) fail("an operator has no type");
  if (std::ranges::find(kOfMpi, type) != kOfMpi.end())
    throw Error(fmt::format("there is no operator \"{}\", because this build has no MPI", type),
                "build with MPI: see -DSTEPNET_MPI in docs/building.md");
  const std::string nearest = suggest(type, op_types());
  throw Error(fmt::format("there is no operator \"{}\".{}", type, nearest),
              nearest.empty() ? "`stepnet ops` lists all; your own come in a library, with --plugin FILE.so" : "");
}

const OpSpec& op_with_role(Role role) {
  for (const auto& [type, spec] : registry().ops)
    if (spec.role == role) return spec;
  assert(false && "no operator has this role");
  fail("no operator with role {} is registered", static_cast<int>(role));
}

std::vector<std::string> op_types() {
  std::vector<std::string> types;
  for (const auto& [type, spec] : registry().ops) types.push_back(type);
  return types;
}

std::shared_ptr<const void> parse_args(const OpSpec& spec, const OperatorDef& def, std::vector<std::string>* warnings) {
  merge_duplicates(def);
  for (const Argument& arg : def.arg()) {
    std::string warning = check_arg_name(spec, arg);
    if (warnings && !warning.empty()) warnings->push_back(std::move(warning));
  }
  std::shared_ptr<void> parsed = spec.make_args();
  for (const ArgSpec& a : spec.args) {
    if (a.set_default) a.set_default(parsed.get());
    const Argument* given = find_arg(def, a.name);
    if (given) {
      a.read(parsed.get(), *given);
    } else if (a.required) {
      fail("argument \"{}\" ({}) is missing: {}", a.name, a.type, a.doc);
    }
  }
  for (const Argument& arg : def.arg())
    if (const ArgFamily* family = arg_family(spec, arg.name())) family->add(parsed.get(), arg);
  return parsed;
}

int OpSpec::input_index(std::string_view name) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].name == name) return static_cast<int>(i);
  return -1;
}

int OpSpec::output_index(std::string_view name) const {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].name == name) return static_cast<int>(i);
  return -1;
}

namespace {

const ParamSpec* param_at(const std::vector<ParamSpec>& params, int i) {
  if (i < static_cast<int>(params.size())) return &params[i];
  return !params.empty() && params.back().variadic ? &params.back() : nullptr;
}

std::pair<int, int> param_range(const std::vector<ParamSpec>& params, int p, int count) {
  if (p >= count) return {count, count};
  return {p, params[p].variadic ? count : p + 1};
}

}  // namespace

const ParamSpec* OpSpec::input_spec(int i) const { return param_at(inputs, i); }
const ParamSpec* OpSpec::output_spec(int i) const { return param_at(outputs, i); }
std::pair<int, int> OpSpec::input_range(int p, int count) const { return param_range(inputs, p, count); }
std::pair<int, int> OpSpec::output_range(int p, int count) const { return param_range(outputs, p, count); }

std::vector<bool> value_reads(const OpSpec& spec, int inputs, const std::vector<bool>& wanted_outputs) {
  std::set<const ParamSpec*> wanted;  // a variadic one once; null: an output that the operator does not declare
  for (size_t o = 0; o < wanted_outputs.size(); ++o)
    if (wanted_outputs[o]) wanted.insert(spec.output_spec(static_cast<int>(o)));
  std::vector<bool> reads(inputs, false);
  for (int i = 0; i < inputs; ++i) {
    const ParamSpec* in = spec.input_spec(i);
    if (!in) continue;
    const bool read =
        wanted_outputs.empty() || spec.side_effect || std::ranges::any_of(wanted, [&](const ParamSpec* out) {
          return !out || !out->uses || std::ranges::find(*out->uses, in->name) != out->uses->end();
        });
    reads[i] = read && !in->shape_only;
  }
  return reads;
}

std::string TensorType::str() const {
  if (absent) return "absent";
  return known ? fmt::format("{}{}", dtype_name(dtype), shape.str()) : "unknown";
}

bool ShapeCall::all_known() const {
  return std::all_of(in_.begin(), in_.end(), [](const TensorType& t) { return t.absent || t.known; });
}

void ShapeCall::set(int i, DType dtype, const Shape& shape) {
  if (!wants(i)) return;
  out_[i].dtype = dtype;
  out_[i].shape = shape;
  out_[i].known = true;
}

const Tensor& Call::in(int i) const {
  if (!has(i)) fail("input {} is missing", i);
  return *in_[i];
}

Tensor& Call::out(int i) const {
  if (!wants(i)) fail("output {} is missing", i);
  return *out_[i];
}

}  // namespace stepnet
