#include "tests/operators/malformed_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/runs.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"

namespace stepnet::testing {
namespace {

constexpr uint64_t kSeed = 7;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

using Visit = std::function<void(const Mutation&)>;
using Calls = std::map<std::string, std::vector<OpCall>>;

const Tensor* tensor_in(const Workspace& workspace, const std::string& name) {
  const Blob* blob = name.empty() ? nullptr : workspace.find(name);
  return blob && blob->is_tensor() && !blob->empty() ? &blob->tensor() : nullptr;
}

// Runs the net operator by operator and keeps each one's call.
void collect(const GradientSubject& subject, const std::string& folder, Calls& calls) {
  empty_folder(folder);
  Workspace workspace;
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = value.clone();
  NetDef before;
  for (const OperatorDef& op : subject.net.op()) {
    OpCall call{op, before, {}, folder};
    bool objects = false;
    for (const std::string& name : op.input())
      if (const Tensor* value = tensor_in(workspace, name))
        call.feeds[name] = value->clone();
      else
        objects = objects || !name.empty();
    if (!objects) call.before.Clear();
    for (const auto& [name, value] : subject.feeds)
      if (objects) call.feeds.emplace(name, value.clone());
    calls[op.type()].push_back(std::move(call));
    *before.add_op() = op;
    NetDef one;
    *one.add_op() = op;
    RunContext context;
    context.seed = kSeed;
    context.keep_values = true;  // a network's second gradient runs in a net of its own
    run_net_once(one, workspace, context);
  }
}

// The subject's net with the gradients of its outputs, which are given.
GradientSubject with_gradients(GradientSubject subject) {
  subject.net.clear_external_input();
  for (const auto& feed : subject.feeds) subject.net.add_external_input(feed.first);
  const MovedRuns runs(subject, kSeed);
  try {
    return gradients_as_subject(subject, runs.weights());
  } catch (const NoDependence&) {
    return subject;  // a constant, such as the gradient of X to the power of 0
  }
}

void collect_with_gradients(const GradientSubject& subject, const std::string& folder, Calls& calls) {
  collect(subject, folder, calls);
  if (subject.inputs.empty() || subject.outputs.empty()) return;
  GradientSubject first = with_gradients(subject);
  collect(first, folder, calls);
  std::erase_if(first.inputs, [&](const std::string& input) { return !refusal(first, input).empty(); });
  if (first.outputs.empty() || first.inputs.empty()) return;
  collect(with_gradients(first), folder, calls);
}

std::string key_of(const OpCall& call) {
  std::string key = call.def.SerializeAsString();
  for (const auto& [name, value] : call.feeds) key += name + value.str();
  return key;
}

void keep_different(std::vector<OpCall>& calls, size_t most) {
  std::set<std::string> seen;
  std::erase_if(calls, [&](const OpCall& call) { return !seen.insert(key_of(call)).second; });
  if (calls.size() > most) calls.resize(most);
}

template <class T>
Tensor constant(const Shape& shape, T value) {
  Tensor t = Tensor::empty(dtype_of<T>(), shape);
  std::fill_n(t.data<T>(), t.size(), value);
  return t;
}

Tensor of_type(DType type, const Shape& shape) {
  Tensor t = Tensor::empty(type, shape);
  if (type != DType::string) std::memset(t.raw(), 0, t.bytes());
  return t;
}

// Values of the first elements again and again, so that they stay what the operator can take.
Tensor reshaped(const Tensor& value, const Shape& shape) {
  Tensor t = of_type(value.dtype(), shape);
  if (value.size() == 0 || value.dtype() == DType::string) return t;
  const size_t size = dtype_size(value.dtype());
  const auto step = static_cast<int64_t>(size);
  for (int64_t i = 0; i < t.size(); ++i) std::memcpy(t.raw() + i * step, value.raw() + i % value.size() * step, size);
  return t;
}

std::vector<Shape> other_shapes(const Shape& shape) {
  std::vector<Shape> shapes = {Shape{}, Shape{0}, Shape{1}, Shape{1, 1, 1, 1, 1, 1, 1, 1}, Shape{3, 0, 2}};
  std::vector<int64_t> dims(shape.begin(), shape.end());
  for (size_t d = 0; d < dims.size(); ++d)
    for (const int64_t size : {int64_t{0}, int64_t{1}, dims[d] + 1, std::max<int64_t>(0, dims[d] - 1), dims[d] * 2}) {
      std::vector<int64_t> other = dims;
      other[d] = size;
      shapes.emplace_back(std::span<const int64_t>(other));
    }
  if (dims.size() < 8) {
    for (const int64_t size : {1, 2}) {
      std::vector<int64_t> longer = dims;
      longer.push_back(size);
      shapes.emplace_back(std::span<const int64_t>(longer));
      longer.pop_back();
      longer.insert(longer.begin(), size);
      shapes.emplace_back(std::span<const int64_t>(longer));
    }
  }
  if (!dims.empty()) shapes.emplace_back(std::span<const int64_t>(dims).first(dims.size() - 1));
  return shapes;
}

Mutation with_value(const OpCall& call, const std::string& input, Tensor value, std::string what) {
  Mutation m{std::move(what), input, call};
  m.call.feeds[input] = std::move(value);
  return m;
}

template <class T>
void mutate_elements(const OpCall& call, const std::string& input, std::initializer_list<T> values,
                     const Visit& visit) {
  const Tensor& given = call.feeds.at(input);
  const Shape shape = given.shape();
  for (const T value : values) {
    visit(with_value(call, input, constant<T>(shape, value), fmt::format("{} all {}", input, value)));
    for (const int64_t i : {int64_t{0}, shape.size() - 1}) {
      if (i < 0 || shape.size() < 2) continue;
      Tensor one = given.clone();
      one.data<T>()[i] = value;
      visit(with_value(call, input, std::move(one), fmt::format("{} with {} at {}", input, value, i)));
    }
  }
}

std::vector<Argument> other_arguments(const ArgSpec& spec) {
  const std::string& name = spec.name;
  std::vector<Argument> args;
  for (const int64_t v :
       {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{-2}, int64_t{7}, int64_t{100}, int64_t{INT32_MAX},
        int64_t{1} << 31, int64_t{INT32_MIN}, (int64_t{1} << 32) + 1, int64_t{1} << 42, kMost, kLeast})
    args.push_back(make_arg(name, v));
  for (const float v : {0.0F, -1.0F, 1e30F, -1e30F, std::nanf(""), static_cast<float>(kInfinite)})
    args.push_back(make_arg(name, v));
  for (const char* v : {"", "bogus", "NCHW", "op { type: \"Nothing\" }"}) args.push_back(make_arg(name, v));
  for (const std::vector<int64_t>& v : {std::vector<int64_t>{},
                                        {0},
                                        {-1},
                                        {0, 0},
                                        {7, 9},
                                        {kMost, kMost},
                                        {kLeast},
                                        {int64_t{1} << 40},
                                        {int64_t{INT32_MAX}},
                                        {(int64_t{1} << 32) + 1},
                                        {1, -1, 2},
                                        {2, 3},
                                        {0, 1, 2, 3, 4, 5, 6, 7, 8}})
    args.push_back(make_arg(name, v));
  args.push_back(make_arg(name, std::vector<float>{}));
  args.push_back(make_arg(name, std::vector<float>{1e30F, std::nanf("")}));
  args.push_back(make_arg(name, std::vector<std::string>{"a", ""}));
  Argument empty;
  empty.set_name(name);
  args.push_back(empty);
  return args;
}

}  // namespace

void empty_folder(const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
}

std::map<std::string, std::vector<OpCall>> calls_of_all_operators(const std::string& folder) {
  constexpr size_t kMostOfOthers = 3, kMostOwn = 12;
  Calls own, others;
  int number = 0;
  for (const std::string& type : op_types())
    for (const OpExample& example : op_spec(type).examples) {
      const std::string place = fmt::format("{}/{}", folder, ++number);
      Calls calls;
      collect_with_gradients(example_subject(op_spec(type), example, kSeed, place), place, calls);
      for (auto& [called, list] : calls) {
        auto& kept = called == type ? own[called] : others[called];
        std::ranges::move(list, std::back_inserter(kept));
      }
    }
  for (auto& [type, calls] : others) {
    keep_different(calls, kMostOfOthers);
    own.emplace(type, calls);
  }
  for (auto& [type, calls] : own) keep_different(calls, kMostOwn);
  return own;
}

void mutate_inputs(const OpCall& call, const Visit& visit) {
  for (const auto& [name, value] : call.feeds) {
    for (const DType type : {DType::float32, DType::float64, DType::int32, DType::int64, DType::boolean, DType::string,
                             DType::uint8, DType::int8, DType::uint16, DType::float16})
      if (type != value.dtype())
        visit(with_value(call, name, of_type(type, value.shape()), fmt::format("{} of {}", name, dtype_name(type))));
    for (const Shape& shape : other_shapes(value.shape()))
      if (shape != value.shape())
        visit(with_value(call, name, reshaped(value, shape), fmt::format("{} of shape {}", name, shape)));
    visit(with_value(call, name, Tensor(), name + " undefined"));
  }
}

void mutate_values(const OpCall& call, const Visit& visit) {
  for (const auto& [name, value] : call.feeds) {
    const auto size = static_cast<int32_t>(value.size());
    if (value.dtype() == DType::int32)
      mutate_elements<int32_t>(call, name, {-1, 0, 1, size, 100, INT32_MAX, INT32_MIN}, visit);
    if (value.dtype() == DType::int64)
      mutate_elements<int64_t>(call, name, {-1, 0, 1, size, 100, int64_t{1} << 42, kMost, kLeast}, visit);
    if (value.dtype() == DType::float64)
      mutate_elements<double>(call, name, {0, -1, 1e300, -1e300, kInfinite, -kInfinite, std::nan("")}, visit);
    if (value.dtype() == DType::boolean) mutate_elements<bool>(call, name, {false, true}, visit);
  }
}

void mutate_arguments(const OpCall& call, const Visit& visit) {
  for (const ArgSpec& spec : op_spec(call.def.type()).args) {
    Mutation m{"without " + spec.name, "", call};
    auto& args = *m.call.def.mutable_arg();
    args.erase(std::remove_if(args.begin(), args.end(), [&](const Argument& a) { return a.name() == spec.name; }),
               args.end());
    visit(m);
    for (const Argument& arg : other_arguments(spec)) {
      Mutation other = m;
      *other.call.def.add_arg() = arg;
      other.what = arg.ShortDebugString();
      visit(other);
    }
  }
}

void mutate_names(const OpCall& call, const Visit& visit) {
  const auto changed = [&](const std::string& what, const std::function<void(OperatorDef&)>& change) {
    Mutation m{what, "", call};
    change(m.call.def);
    visit(m);
  };
  changed("no inputs", [](OperatorDef& def) { def.clear_input(); });
  changed("no outputs", [](OperatorDef& def) { def.clear_output(); });
  changed("one input more", [](OperatorDef& def) { def.add_input(def.input_size() > 0 ? def.input(0) : "nothing"); });
  changed("one output more", [](OperatorDef& def) { def.add_output("one_more"); });
  changed("a missing blob", [](OperatorDef& def) { def.add_input("nobody_wrote_this"); });
  for (int i = 0; i < call.def.input_size(); ++i) {
    changed(fmt::format("input {} absent", i), [&](OperatorDef& def) { def.set_input(i, ""); });
    changed(fmt::format("input {} undefined", i), [&](OperatorDef& def) { def.set_input(i, "nobody_wrote_this"); });
    for (int j = 0; j < call.def.output_size(); ++j)
      changed(fmt::format("output {} on input {}", j, i), [&](OperatorDef& def) { def.set_output(j, def.input(i)); });
    for (int j = 0; j < i; ++j)
      changed(fmt::format("input {} as input {}", j, i), [&](OperatorDef& def) { def.set_input(i, def.input(j)); });
  }
  if (call.def.input_size() > 0) changed("one input less", [](OperatorDef& d) { d.mutable_input()->RemoveLast(); });
  if (call.def.output_size() > 0) changed("one output less", [](OperatorDef& d) { d.mutable_output()->RemoveLast(); });
  for (int j = 0; j < call.def.output_size(); ++j)
    changed(fmt::format("output {} not wanted", j), [&](OperatorDef& def) { def.set_output(j, ""); });
}

}  // namespace stepnet::testing
