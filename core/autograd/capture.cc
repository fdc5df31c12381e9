#include "core/autograd/capture.h"

#include <algorithm>
#include <cctype>

#include "core/operator/in_place.h"
#include "stepnet/arguments.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {
namespace {

std::string lowered(const std::string& text) {
  std::string low = text;
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return low;
}

void set_device(OperatorDef& op, Device device) {
  if (device.kind == DeviceKind::cpu) return;
  op.mutable_device_option()->set_device_type(CUDA);
  op.mutable_device_option()->set_device_id(device.index);
}

}  // namespace

TapeCapture::TapeCapture(std::string title) { net_.set_name(std::move(title)); }

std::string TapeCapture::fresh(const std::string& wanted) {
  std::string name = wanted;
  for (int n = 2; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
  return name;
}

// "mul1", "mul2"; in the order of running.
std::string TapeCapture::numbered(const std::string& base) {
  while (true)
    if (const std::string name = fmt::format("{}{}", base, ++counts_[base]); taken_.insert(name).second) return name;
}

void TapeCapture::add_value(Bytes& bytes, const Tensor& value, const std::string& name) {
  std::erase_if(bytes.values, [&](const Named& n) {
    return n.range.begin == value.offset() && n.dtype == value.dtype() && n.shape == value.shape();
  });
  bytes.values.push_back({range_of(value), value.dtype(), value.shape(), name});
  by_type_.emplace(value.str(), name);
}

void TapeCapture::add_first(Bytes& bytes, const Tensor& value, const std::string& name) {
  add_value(bytes, value, name);
  bytes.first.push_back(bytes.values.back());
}

void TapeCapture::add_input(const std::string& name, const Tensor& value) {
  require(!name.empty(), "an input of the captured net has no name");
  require(taken_.insert(name).second, "two inputs of the captured net are called \"{}\"", name);
  require(value.storage() != nullptr, "the input \"{}\" of the captured net, {}, has no bytes", name, value);
  Bytes& bytes = storages_.try_emplace(value.storage(), Bytes{value.version()}).first->second;
  const Range range = range_of(value);
  for (const Named& other : bytes.values)
    if (other.range.overlaps(range) || (other.range.begin == range.begin && other.shape == value.shape()))
      fail("the inputs \"{}\" and \"{}\" of the captured net are the same bytes", other.name, name);
  add_first(bytes, value, name);
  given_.emplace(name, value);
  net_.add_external_input(name);
}

void TapeCapture::wish_name(const std::string& name, const Tensor& constant) {
  require(!name.empty() && taken_.insert(name).second, "\"{}\" cannot name a constant of the captured net", name);
  wishes_.emplace_back(name, constant);
}

std::string TapeCapture::constant_name(const Tensor& value) {
  for (const auto& [name, wished] : wishes_)
    if (wished.shares_storage(value) && wished.offset() == value.offset() && wished.shape() == value.shape())
      return name;
  return numbered(is_parameter(value) ? "w" : "c");
}

std::string TapeCapture::add_constant(Bytes& bytes, const Tensor& value) {
  std::string name = constant_name(value);
  add_first(bytes, value, name);
  constants_.emplace(name, value);
  return name;
}

void TapeCapture::allow_constant(const Tensor& value) {
  require(value.storage() != nullptr, "a constant of {} has no bytes", value);
  if (const std::string* name = known(value); name && constants_.contains(*name)) return;
  require(storages_.find(value.storage()) == storages_.end(), "{} is known to the capture already, and is no constant",
          value);
  storages_.try_emplace(value.storage(), Bytes{value.version(), true});
}

const TapeCapture::Named* TapeCapture::find(const Bytes& bytes, const Tensor& value) {
  const auto it = std::ranges::find_if(bytes.values, [&](const Named& n) {
    return n.range.begin == value.offset() && n.dtype == value.dtype() && n.shape == value.shape();
  });
  return it == bytes.values.end() ? nullptr : &*it;
}

const std::string* TapeCapture::known(const Tensor& value) const {
  const auto it = storages_.find(value.storage());
  if (!value.storage() || it == storages_.end() || it->second.version != value.version()) return nullptr;
  const Named* named = find(it->second, value);
  return named ? &named->name : nullptr;
}

void TapeCapture::fail_unknown(const Tensor& value) {
  throw Error(fmt::format("a capture meets {}, which was made during the capture, but not by an operator", value),
              "compute it by operators (not in a function's own code, in a hook, or on another thread), make it before "
              "the capture, or call it a constant with captured_constant");
}

void TapeCapture::fail_written(const Tensor& value) {
  throw Error(
      fmt::format("a capture meets {}, whose bytes were written during the capture, but not by an operator", value),
      "write them by operators, or before the capture");
}

// The same bytes in another shape.
std::string TapeCapture::reshaped(Bytes& bytes, const Tensor& value) {
  const Range range = range_of(value);
  const auto it = std::ranges::find_if(bytes.values, [&](const Named& n) {
    return n.range.begin == range.begin && n.range.end == range.end && n.dtype == value.dtype();
  });
  if (it == bytes.values.end()) return "";
  OperatorDef op;
  op.set_type(op_with_role(Role::reshape).type);
  op.add_input(it->name);
  std::vector<int64_t> shape;
  for (int i = 0; i < value.rank(); ++i) shape.push_back(value.dim(i));
  *op.add_arg() = make_arg("shape", shape);
  std::string name = numbered("reshape");
  op.add_output(name);
  op.add_output(fresh(name + "_old_shape"));
  add_operator(op, value.device());
  add_value(bytes, value, name);
  return name;
}

std::string TapeCapture::name_of(const Tensor& value) {
  if (!value.storage()) return like_name(value);
  auto it = storages_.find(value.storage());
  if (it == storages_.end()) {
    if (watch_.has_seen(value.storage().get())) fail_unknown(value);
    it = storages_.try_emplace(value.storage(), Bytes{value.version(), true}).first;
  }
  Bytes& bytes = it->second;
  if (value.version() != bytes.version) fail_written(value);
  if (const Named* named = find(bytes, value)) return named->name;
  const Range range = range_of(value);
  const auto overlaps = [&](const Range& r) { return r.overlaps(range); };
  if (bytes.may_be_constant && std::ranges::none_of(bytes.written, overlaps)) return add_constant(bytes, value);
  if (std::string name = reshaped(bytes, value); !name.empty()) return name;
  if (!bytes.stale.empty())
    throw Error(fmt::format("a capture meets {}, a view of bytes that were overwritten, with \"{}\", under another "
                            "name since it was taken",
                            value, bytes.stale),
                "take the view again, or write to a copy");
  throw Error(
      fmt::format("a capture meets {}, a part of an input or of an operator's result that no operator took", value),
      "take it with Slice or Reshape");
}

// Of a tensor without bytes.
std::string TapeCapture::like_name(const Tensor& value) {
  if (const auto it = likes_.find(&value); it != likes_.end()) return it->second.second;
  if (const auto it = by_type_.find(value.str()); it != by_type_.end()) return it->second;
  const Tensor zeros = Tensor::zeros(value.dtype(), value.shape());
  const std::string name = numbered("like");
  constants_.emplace(name, zeros);
  by_type_.emplace(value.str(), name);
  return name;
}

void TapeCapture::before_write(const Tensor& target) {
  const auto it = storages_.find(target.storage());
  if (it == storages_.end()) return;
  if (it->second.version != target.version()) fail_written(target);
  for (const Named& n : it->second.values) {
    if (!n.range.overlaps(range_of(target))) continue;
    for (auto* kept : {&given_, &constants_})
      if (const auto found = kept->find(n.name); found != kept->end() && found->second.shares_storage(target))
        found->second = found->second.clone();
  }
}

std::string TapeCapture::name_to_copy(const Tensor& source, const Tensor& target) {
  require(source.device() == target.device(), "copy_ from {} to {} cannot be captured", source.device(),
          target.device());
  std::string name = name_of(source);
  before_write(target);
  return name;
}

void TapeCapture::wrote(const std::string& name, const Tensor& target) {
  const auto [it, is_new] = storages_.try_emplace(target.storage());
  Bytes& bytes = it->second;
  if (is_new) bytes.may_be_constant = !watch_.has_seen(target.storage().get());
  const Range range = range_of(target);
  if (std::erase_if(bytes.values, [&](const Named& n) { return n.range.overlaps(range); }) > 0) bytes.stale = name;
  bytes.written.push_back(range);
  bytes.version = target.version();
  add_value(bytes, target, name);
}

void TapeCapture::shows(const std::string& name, const Tensor& value) {
  const auto it = storages_.find(value.storage());
  if (it == storages_.end() || it->second.version != value.version()) return wrote(name, value);
  add_value(it->second, value, name);
}

void TapeCapture::check_made(const Tensor& value, std::string_view by) const {
  if (known(value)) return;
  throw Error(fmt::format("a capture meets {}, which {} has made by other means than operators", value, by),
              "compute it by operators, which a net has, too");
}

void TapeCapture::note_types(const std::shared_ptr<const Node>& owner, std::span<const TensorType> types,
                             const std::vector<std::string>& names) {
  for (size_t i = 0; i < types.size(); ++i)
    if (!names[i].empty()) types_[&types[i]] = {owner, names[i]};
}

void TapeCapture::note_like(const Variable& like, const TensorType& type) {
  const Tensor* const key = &like.value();
  likes_.erase(key);
  const auto it = types_.find(&type);
  if (it != types_.end() && !it->second.first.expired()) likes_[key] = {like, it->second.second};
}

void TapeCapture::check_operator(const BoundOp& op) const {
  if (op.spec->random)
    throw Error(fmt::format("{} is random, and a captured net would draw other numbers than it did", op.def.type()),
                "draw before the capture, and give the numbers as an input");
  require(!op.spec->blob_kernel, "{} works on blobs, and cannot be captured", op.def.type());
  for (int o = 0; o < op.def.output_size(); ++o)
    require(!keeps_value(*op.spec, op.def.input_size(), o),
            "{} goes on with what its output {} holds from the run before, which a capture cannot tell", op.def.type(),
            o);
}

OperatorDef& TapeCapture::add_operator(const OperatorDef& op, Device device) {
  OperatorDef& added = *net_.add_op() = op;
  set_device(added, device);
  return added;
}

void TapeCapture::add_copy(const std::string& from, const std::string& to, Device device) {
  OperatorDef copy;
  copy.set_type(op_with_role(Role::copy).type);
  copy.add_input(from);
  copy.add_output(to);
  add_operator(copy, device);
}

std::string TapeCapture::output_name(const OpSpec& spec, int o, const std::string& first) {
  if (first.empty()) return numbered(lowered(spec.type));
  const ParamSpec& p = *spec.output_spec(o);
  const int place = o - spec.output_index(p.name);
  return fresh(p.variadic ? fmt::format("{}_{}{}", first, lowered(p.name), place)
                          : fmt::format("{}_{}", first, lowered(p.name)));
}

// An operator that can only write in place writes over a copy.
void TapeCapture::write_apart(OperatorDef& op, const OpSpec& spec, Device device) {
  for (const InPlaceRule& rule : spec.in_place) {
    const int i = spec.input_index(rule.in), o = spec.output_index(rule.out);
    if (!rule.enforced || i >= op.input_size() || o >= op.output_size() || op.output(o).empty()) continue;
    add_copy(op.input(i), op.output(o), device);
    op.set_input(i, op.output(o));
  }
}

void TapeCapture::run(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out,
                      RunContext& context) {
  check_operator(op);
  OperatorDef def = op.def;
  def.clear_is_gradient_op();
  for (size_t i = 0; i < in.size(); ++i) def.set_input(static_cast<int>(i), in[i] ? name_of(*in[i]) : "");
  for (const Tensor* t : out)
    if (t && t->storage()) before_write(*t);
  run_op(op, in, out, context);
  std::string first;
  for (size_t o = 0; o < out.size(); ++o) {
    const std::string name = out[o] ? output_name(*op.spec, static_cast<int>(o), first) : "";
    if (first.empty()) first = name;
    def.set_output(static_cast<int>(o), name);
  }
  write_apart(def, *op.spec, op.device);
  add_operator(def, op.device);
  std::vector<bool> is_alias(out.size());  // another name of what is there, not a write
  for (size_t o = 0; o < out.size(); ++o) {
    if (!out[o]) continue;
    const auto it = storages_.find(out[o]->storage());
    is_alias[o] = it != storages_.end() && it->second.version == out[o]->version();
  }
  for (size_t o = 0; o < out.size(); ++o) {
    if (!out[o]) continue;
    const std::string& name = def.output(static_cast<int>(o));
    if (is_alias[o])
      add_value(storages_.find(out[o]->storage())->second, *out[o], name);
    else
      wrote(name, *out[o]);
  }
}

// A whole net, whose operators are added with names of their own.

namespace {

// Bytes that two names show are not followed here, so none of them may be overwritten.
void check_aliases(const NetDef& net) {
  std::set<std::string> written, again;
  for (const std::string& name : net.external_input()) written.insert(name);
  for (const OperatorDef& op : net.op())
    for (const std::string& name : op.output())
      if (!name.empty() && !written.insert(name).second) again.insert(name);
  for (const OperatorDef& op : net.op()) {
    const OpSpec& spec = op_spec(op.type());
    for (const AliasRule& rule : spec.aliases) {
      const int in = spec.input_index(rule.in), out = spec.output_index(rule.out);
      if (in >= op.input_size() || out >= op.output_size() || op.input(in) == op.output(out)) continue;
      for (const std::string& name : {op.input(in), op.output(out)})
        if (again.contains(name))
          throw Error(fmt::format("net \"{}\" writes \"{}\" again, whose bytes {} shows under another name, and cannot "
                                  "be captured",
                                  net.name(), name, op.type()),
                      "let the net write to another blob");
    }
  }
}

}  // namespace

TapeCapture::Names TapeCapture::add_net(const NetDef& net, Names names) {
  check_aliases(net);
  const std::string prefix = numbered(net.name().empty() ? "net" : net.name());
  for (int index = 0; index < net.op_size(); ++index) {
    const OperatorDef& before = net.op(index);
    const Device device = device_of(before, net);
    check_operator(bind_op(before, net.name(), index, device));
    require(before.control_input_size() == 0, "{} of net \"{}\" has control inputs, which a capture cannot follow",
            before.type(), net.name());
    OperatorDef op = before;
    op.clear_is_gradient_op();
    for (std::string& name : *op.mutable_input())
      if (!name.empty()) name = names.at(name);
    for (std::string& name : *op.mutable_output())
      if (!name.empty()) name = fresh(fmt::format("{}/{}", prefix, name));
    write_apart(op, op_spec(op.type()), device);
    for (int o = 0; o < op.output_size(); ++o)
      if (!op.output(o).empty()) names[before.output(o)] = op.output(o);
    add_operator(op, device);
  }
  return names;
}

std::string TapeCapture::add_output(const Tensor& value) {
  std::string name = name_of(value);
  if (given_.contains(name) || constants_.contains(name) || outputs_.contains(name)) {
    const std::string copy = numbered("copy");
    add_copy(name, copy, value.device());
    name = copy;
  }
  outputs_.insert(name);
  net_.add_external_output(name);
  return name;
}

// The values that stand in these bytes now where an operator has written. Throws Error if that is several parts.
void TapeCapture::list_written(const std::shared_ptr<Storage>& storage, const Bytes& bytes,
                               std::vector<Written>& written) {
  std::set<size_t> listed;
  for (const Range& range : bytes.written) {
    const auto at = [&](const Named& n) { return n.range.begin == range.begin && n.range.end == range.end; };
    const auto now = std::ranges::find_if(bytes.values, at);
    if (now == bytes.values.end()) {
      const auto holds = [&](const Named& n) { return n.range.begin <= range.begin && range.end <= n.range.end; };
      if (std::ranges::none_of(bytes.values, holds))
        throw Error("a capture ends with bytes, from before it, that were overwritten as a whole and then in parts",
                    "overwrite them alike, or copy them before");
      continue;
    }
    if (!listed.insert(range.begin).second) continue;
    const auto over = std::ranges::find_if(bytes.first, at);
    written.push_back({now->name, over == bytes.first.end() ? "" : over->name,
                       Tensor::view(storage, range.begin, now->dtype, now->shape)});
  }
}

std::vector<TapeCapture::Written> TapeCapture::add_written() {
  std::vector<Written> written;
  for (const auto& [weak, bytes] : storages_)
    if (const std::shared_ptr<Storage> storage = weak.lock(); storage && !watch_.has_seen(storage.get()))
      list_written(storage, bytes, written);
  // Storages stand in the order of their addresses, which differs from run to run.
  std::ranges::sort(written, {}, &Written::name);
  for (Written& w : written)
    if (!outputs_.contains(w.name)) w.name = add_output(w.bytes);
  return written;
}

// Operators are in the order of running, so that those from the last on say what is needed before.
NetDef TapeCapture::take_net() {
  std::set<std::string> needed = outputs_;
  std::vector<OperatorDef> kept;
  for (int i = net_.op_size() - 1; i >= 0; --i) {
    OperatorDef& op = *net_.mutable_op(i);
    const bool is_needed = op_spec(op.type()).side_effect || op.output_size() == 0 ||
                           std::ranges::any_of(op.output(), [&](const std::string& o) { return needed.contains(o); });
    if (!is_needed) continue;
    for (const std::string& name : op.input()) needed.insert(name);
    kept.push_back(std::move(op));
  }
  net_.clear_op();
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) *net_.add_op() = std::move(*it);
  std::erase_if(constants_, [&](const auto& constant) { return !needed.contains(constant.first); });
  for (const auto& [name, value] : constants_) net_.add_external_input(name);
  return std::move(net_);
}

std::map<std::string, Tensor> TapeCapture::constants() const { return constants_; }

void run_captured(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out,
                  RunContext& context) {
  if (TapeCapture* capture = tape_state().capture) return capture->run(op, in, out, context);
  run_op(op, in, out, context);
}

Tensor clone_captured(const Tensor& value) {
  Tensor copy = value.clone();
  if (TapeCapture* capture = tape_state().capture) capture->wrote(capture->name_of(value), copy);
  return copy;
}

Variable type_only(const TensorType& type) {
  Tensor t;
  t.set_type(type.dtype, type.shape);
  Variable like(std::move(t));
  if (TapeCapture* capture = tape_state().capture) capture->note_like(like, type);
  return like;
}

void refuse_captured(std::string_view what, std::string_view hint) {
  if (tape_state().capture) throw Error(fmt::format("{} cannot be captured", what), std::string(hint));
}

}  // namespace stepnet::autograd
