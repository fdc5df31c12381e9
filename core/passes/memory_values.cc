#include "core/passes/memory_values.h"

#include <algorithm>
#include <limits>

#include "core/net/liveness.h"
#include "core/operator/dry_run.h"
#include "core/operator/in_place.h"
#include "stepnet/net.h"

namespace stepnet {
namespace {

// At least one for each element that is written, so that nothing is run again for nothing.
double cost_of(const TypedOp& typed) {
  const OpSpec& spec = *typed.op.spec;
  if (may_be_alias(spec, 0) && typed.out[0].known && typed.in[aliased_input(spec, 0)].shape == typed.out[0].shape)
    return 0;
  double elements = 0;
  for (const TensorType& out : typed.out)
    if (out.known) elements += static_cast<double>(out.shape.size());
  return std::max(elements, op_flops(typed.op, typed.in, typed.out));
}

// The bytes of blobs; those that are not known are noted.
class Sizes {
 public:
  explicit Sizes(const MemoryQuestion& question) : question_(question) {}

  OpBytes of(const TypedOp& typed) {
    OpBytes bytes;
    for (size_t k = 0; k < typed.in.size(); ++k)
      bytes.in.push_back(of(typed.op.def.input(static_cast<int>(k)), typed.in[k]));
    for (size_t o = 0; o < typed.out.size(); ++o)
      bytes.out.push_back(of(typed.op.def.output(static_cast<int>(o)), typed.out[o]));
    return bytes;
  }

  void require_all() const {
    require(missing_.empty(),
            "the bytes of {} are not known: give the shapes of what the net reads, and the most bytes "
            "of what depends on data",
            fmt::join(missing_, ", "));
  }

 private:
  int64_t of(const std::string& name, const TensorType& type) {
    if (name.empty()) return 0;
    if (type.known) return allocated_bytes(type);
    if (const auto bound = question_.bounds.find(name); bound != question_.bounds.end())
      return allocated_bytes(bound->second);
    if (const auto given = question_.bytes.find(name); given != question_.bytes.end())
      return allocated_bytes(given->second);
    missing_.insert("\"" + name + "\"");
    return 0;
  }

  const MemoryQuestion& question_;
  std::set<std::string> missing_;
};

DataflowOptions options_for(const NetDef& net, const MemoryQuestion& question, const std::vector<OpBytes>& bytes) {
  DataflowOptions options{.visible = question.keep, .blob_ops_write_over = true, .bytes = bytes};
  options.visible.insert(net.external_output().begin(), net.external_output().end());
  options.visible.insert(net.external_input().begin(), net.external_input().end());
  for (const auto& [name, type] : question.feeds) options.visible.insert(name);
  return options;
}

void find_last_forward(MemoryValues& values) {
  values.last_forward.assign(values.flow.storages().size(), -1);
  for (int i = 0; i < values.forward; ++i)
    for (const std::span<const int> touched : {values.flow.reads(i), values.flow.outputs(i)})
      for (const int value : touched)
        if (value >= 0) values.last_forward[values.value(value).storage] = i;
}

// What comes after the forward part and writes its storage keeps a value where it is, too.
void find_by_name(MemoryValues& values) {
  for (const NetValue& value : values.flow.values())
    values.by_name.push_back(value.by_name || value.last_overwritten >= values.forward);
  for (int i = values.forward; i < static_cast<int>(values.ops.size()); ++i)
    for (const int value : values.flow.reads(i))
      if (value >= 0 && values.ops[i].op.spec->blob_kernel) values.by_name[value] = true;
}

bool is_fixed(const MemoryValues& values, int i, const TypedOp& typed) {
  const OpSpec& spec = *values.ops[i].op.spec;
  if (spec.side_effect || spec.blob_kernel) return true;
  for (size_t o = 0; o < typed.out.size(); ++o)
    if (!typed.out[o].absent && !typed.out[o].known) return true;
  const std::span<const int> inputs = values.flow.inputs(i), reads = values.flow.reads(i);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k] < 0) continue;
    const NetValue& value = values.value(values.flow.stored(inputs[k]));
    if (value.overwritten >= values.forward) continue;
    // It would read the shape of what the blob holds by then.
    if (reads[k] < 0 || value.writer < 0 || values.ops[value.writer].fixed) return true;
  }
  return false;
}

int64_t lasting_bytes(const MemoryValues& values, const MemoryQuestion& question) {
  int64_t lasting = 0;
  for (const ValueStorage& s : values.flow.storages())
    if (s.lasting) lasting += s.bytes;
  for (const auto& [name, type] : question.feeds)
    if (values.flow.find(name) < 0 && type.known) lasting += allocated_bytes(type);
  return lasting;
}

}  // namespace

int64_t allocated_bytes(const TensorType& type) {
  if (type.dtype == DType::string) return 0;
  const int64_t bytes = byte_size(type.dtype, type.shape);
  require(bytes <= std::numeric_limits<int64_t>::max() - allocated_bytes(1), "{} bytes are more than a machine has",
          bytes);
  return allocated_bytes(bytes);
}

int MemoryValues::last_use(int value) const {
  const std::vector<int>& readers = flow.value(value).readers;
  const int read = readers.empty() ? -1 : readers.back();
  return by_name[value] ? std::max(read, storage(flow.value(value).storage).last) : read;
}

bool MemoryValues::is_read_forward_from(int value, int op) const {
  const std::vector<int>& readers = flow.value(value).readers;
  const auto next = std::lower_bound(readers.begin(), readers.end(), op);
  return next != readers.end() && *next < forward;
}

MemoryValues value_net(const NetDef& net, int forward, const MemoryQuestion& question) {
  std::map<std::string, TensorType> known = question.feeds;
  std::vector<TypedOp> typed = infer_ops(net, known, question.bounds);
  Sizes sizes(question);
  std::vector<OpBytes> bytes;
  std::vector<const BoundOp*> bound;
  std::vector<MemoryValues::Op> ops;
  for (const TypedOp& op : typed) {
    bytes.push_back(sizes.of(op));
    bound.push_back(&op.op);
    ops.push_back({.op = op.op, .out_bytes = bytes.back().out, .flops = cost_of(op)});
  }
  sizes.require_all();
  MemoryValues values{.forward = forward,
                      .ops = std::move(ops),
                      .flow = Dataflow(std::span<const BoundOp* const>(bound), options_for(net, question, bytes))};
  find_last_forward(values);
  find_by_name(values);
  for (int i = 0; i < forward; ++i) values.ops[i].fixed = is_fixed(values, i, typed[i]);
  values.lasting = lasting_bytes(values, question);
  return values;
}

}  // namespace stepnet
