// OpSpec: everything that is known about an operator, and Call, what its kernel gets.
//
// Operator authors use the builder in stepnet/operator.h; passes, executors and the tape read these structs.
// Threads: specs are immutable after start-up. A Call belongs to one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepnet/arguments.h"
#include "stepnet/elementwise_chain.h"
#include "stepnet/formula.h"
#include "stepnet/run_context.h"
#include "stepnet/tensor.h"
#include "stepnet/workspace.h"

namespace stepnet {

template <class T>
using In = std::span<const T>;
template <class T>
using Out = std::span<T>;

// What is known of a tensor before it exists. `value` is set where the tensor itself is at hand (a run), and null when
// shapes are only inferred; a shape function that needs a value then leaves its output unknown.
struct TensorType {
  DType dtype = DType::undefined;
  Shape shape;
  bool known = false;  // dtype and shape are valid
  const Tensor* value = nullptr;
  bool absent = false;  // an optional input or output that is not there
  static TensorType of(DType dtype, const Shape& shape) { return {dtype, shape, true, nullptr, false}; }
  std::string str() const;  // "float[2, 3]" or "unknown"
};

class ShapeCall {
 public:
  ShapeCall(std::span<const TensorType> in, std::span<TensorType> out) : in_(in), out_(out) {}
  int inputs() const { return static_cast<int>(in_.size()); }
  int outputs() const { return static_cast<int>(out_.size()); }
  bool has(int i) const { return i < inputs() && !in_[i].absent; }
  bool wants(int i) const { return i < outputs() && !out_[i].absent; }
  bool known(int i) const { return has(i) && in_[i].known; }
  bool all_known() const;                                   // every present input is known
  const Shape& shape(int i) const { return in_[i].shape; }  // of input i, which must be known
  DType dtype(int i) const { return in_[i].dtype; }
  const Tensor* value(int i) const { return has(i) ? in_[i].value : nullptr; }
  const TensorType& in(int i) const { return in_[i]; }
  const TensorType& out(int i) const { return out_[i]; }
  void set(int i, DType dtype, const Shape& shape);  // output i; ignored if it is not wanted
  void set_like(int i, int input) {
    if (known(input)) set(i, in_[input].dtype, in_[input].shape);
  }

 private:
  std::span<const TensorType> in_;
  std::span<TensorType> out_;
};

class Call {
 public:
  Call(std::span<const Tensor* const> in, std::span<Tensor* const> out, RunContext& run)
      : run(run), in_(in), out_(out) {}

  int inputs() const { return static_cast<int>(in_.size()); }
  int outputs() const { return static_cast<int>(out_.size()); }
  bool has(int i) const { return i < inputs() && in_[i] != nullptr; }
  bool wants(int i) const { return i < outputs() && out_[i] != nullptr; }
  const Tensor& in(int i) const;  // throws Error if absent
  Tensor& out(int i) const;
  template <class T>
  In<T> in_span(int i) const {
    return has(i) ? in_[i]->span<T>() : In<T>{};
  }
  template <class T>
  Out<T> out_span(int i) const {
    return wants(i) ? out_[i]->span<T>() : Out<T>{};
  }
  bool accumulates(int i) const { return (accumulate_mask >> i) & 1; }  // add to output i instead of writing it

  RunContext& run;
  uint64_t random_key = 0;  // of a random operator: seed, net, output, iteration and timestep mixed
  uint32_t accumulate_mask = 0;

 private:
  std::span<const Tensor* const> in_;
  std::span<Tensor* const> out_;
};

// What an operator on blobs gets. Absent inputs and outputs are null.
struct BlobCall {
  const OperatorDef& def;
  std::span<Blob* const> in;
  std::span<Blob* const> out;
  Workspace& workspace;
  RunContext& run;
  const NetDef& net;  // that the operator stands in
};

struct OutputRule {
  std::string like;  // the input whose type and shape the output has; "" if the operator's shape function says it
};
inline OutputRule like(std::string input) { return {std::move(input)}; }

struct ParamSpec {
  std::string name;
  std::string doc;
  OutputRule rule = {};           // outputs only
  std::vector<DType> types = {};  // empty and not `any`: generic
  bool any = false;
  bool object = false;
  bool optional = false;
  bool variadic = false;  // only the last input or output
  int at_least = 1;       // elements of a variadic
  bool shape_only = false;
  bool accumulates = false;
  std::optional<std::vector<std::string>> uses = {};
  bool generic() const { return types.empty() && !any && !object; }
};

// Of an operator with two inputs whose output 0 has products of matrices by vectors.
struct MatrixVector {
  int matrices = -1;     // the input that has the matrices, [..., M, K]; -1: the operator does something else
  bool columns = false;  // vectors of M elements multiply their columns, and not vectors of K elements their rows
};

struct InPlaceRule {
  std::string in, out;
  bool enforced = false;
  std::vector<std::string> forbidden_if_wanted;
  bool anywhere = false;  // of variadic ones: any output may be any input, not only the one in the same place
};

struct AliasRule {
  std::string in, out;
};

// The operator can overwrite its input `input`, by a last output in place, with what its gradient operator reads in
// place of that input's value, if both have the argument `arg` set: activated gates in place of their sums.
struct SavedInstead {
  std::string input, arg, gradient;
};

// Duties that core/ needs some operator for, without knowing its name.
enum class Role {
  none,
  sum,
  fill_like,
  concat,
  rows_to_dense,
  sum_to,
  alias,
  copy,
  cast,
  mask_by_length,
  add_rows,
  reshape
};

// The type that mixed precision (core/passes/mixed_precision.h) runs an operator in.
enum class Precision {
  follows_inputs,  // the half type, unless an input was computed in float32; float32 for a kernel on blobs
  float32,         // always: losses, what divides by small numbers or sums much, what names types itself
  half,            // always the half type: products, recurrent networks
};

enum class GradientRule { undefined, derivatives, stop, refuse };

struct Kernel {
  DeviceKind device = DeviceKind::cpu;
  DType dtype = DType::undefined;  // undefined: any
  bool sums_to_float = false;      // of a half type: outputs that accumulate may be float32
  std::function<void(const void* args, Call&)> run;
};

// A kernel that does what `body` says, which is OpSpec::fused.
Kernel fused_kernel(DType dtype, std::function<FusedBody(const void*, int)> body);

struct DerivativeSpec {
  std::vector<std::string> inputs;
  std::function<std::vector<Gradient>(Formula&)> fn;
  std::function<Gradient(Formula&, int)> element_fn = {};  // of a variadic input
};

// How the operator is called, for the gradient checker, the walk over bad input and the reference page. Either its
// inputs and arguments as a command line gives them (core/gradcheck/input_text.h), or a net as text whose feeds these
// inputs are.
struct OpExample {
  std::vector<std::string> inputs, args;
  int outputs = 1;  // of a variadic output
  std::string net = {};
  std::vector<std::string> losses = {};  // of a net: what is differentiated
};

// Arguments of the public format that the operator does not read. Those that change no result here are accepted; the
// others are refused, but for the value with which they do nothing.
struct AcceptedArg {
  std::string name;  // a '*' at either end stands for any text there
  std::string why;   // no result depends on it
};
struct RefusedArg {
  std::string name;
  std::string would;                 // what it would do
  std::optional<Argument> harmless;  // with this value it would do nothing, and is accepted
};

// Arguments whose names begin alike, as those of the parts of a composite learning rate do: how many there are and what
// follows the beginning is for the operator to read.
struct ArgFamily {
  std::string prefix, doc;
  std::function<void(void* args, const Argument& arg)> add;
};

struct OpSpec {
  std::string type, doc;
  std::string family;  // the folder that its registration stands in
  bool own = false;    // Stepnet's own: the public format has no such operator
  std::vector<ArgSpec> args;
  std::vector<ArgFamily> arg_families;
  std::vector<AcceptedArg> accepted_args;
  std::vector<RefusedArg> refused_args;
  std::function<std::shared_ptr<void>()> make_args;
  std::vector<ParamSpec> inputs, outputs;
  std::function<void(const void*, ShapeCall&)> shape;
  std::function<double(const void*, const ShapeCall&)> flops;
  std::function<int(const void*, const ShapeCall&)> rowwise;
  std::function<FusedBody(const void*, int)> fused;  // null, or an empty body: not an elementwise computation
  // The outputs are columns (elements of the last dimension) of input 0: the first of each; empty if they are not.
  std::function<std::vector<int64_t>(const void*, const ShapeCall&)> takes_columns;
  // Inputs are columns of output 0, among zeros: the first of each, -1 for an input that is not; empty if none is.
  std::function<std::vector<int64_t>(const void*, const ShapeCall&)> puts_columns;
  // Output 0, [..., M, N], has the products of M elements of input 0 by N elements of input 1, which follow one
  // another, for all that is in front of them: M; 0 if it is something else.
  std::function<int64_t(const void*, const ShapeCall&)> outer_product;
  std::function<MatrixVector(const void*, const ShapeCall&)> matrix_vector;
  std::vector<InPlaceRule> in_place;
  std::vector<AliasRule> aliases;
  std::optional<SavedInstead> saves_instead;
  bool elementwise = false, reshapes = false, sums_rows = false, sums_inputs = false, fits_output = false,
       random = false, side_effect = false;
  Role role = Role::none;
  Precision precision = Precision::follows_inputs;
  std::vector<Kernel> kernels;
  // Of a dry run (core/tensor/dry_device.h).
  std::vector<Kernel> workspace;
  std::function<std::vector<int64_t>(const void*, const Call&)> gpu_workspace;  // bytes of blocks at the same time
  std::function<void(const void*, Call&)> known_outputs;
  bool runs_dry = false;
  std::function<void(const void*, BlobCall&)> blob_kernel;
  std::function<void(const void*, const OperatorDef&, const Workspace&)> preflight;
  std::vector<OpExample> examples;
  std::vector<DerivativeSpec> derivatives;
  std::function<std::vector<Gradient>(Formula&)> whole_derivative;
  std::function<std::vector<Value>(Formula&)> composed;  // the outputs, by small operators; null: not said
  GradientRule gradient_rule = GradientRule::undefined;
  std::string no_gradient_reason;

  int input_index(std::string_view name) const;  // -1 if there is none
  int output_index(std::string_view name) const;
  // The declared parameter of actual input or output i (a variadic one covers the rest); null if there are too many.
  const ParamSpec* input_spec(int i) const;
  const ParamSpec* output_spec(int i) const;
  // Declared input `p` spans these actual indices when the operator has `count` inputs.
  std::pair<int, int> input_range(int p, int count) const;
  std::pair<int, int> output_range(int p, int count) const;
};

struct Registration {
  OpSpec spec;
  bool kernels_only = false;    // adds kernels of another device to an operator registered elsewhere
  std::function<void()> add{};  // puts what is no operator into its table; if there is one, nothing else is said
};

// Per actual input: whether the values of the wanted outputs are computed from its value (and not from its shape
// alone).
std::vector<bool> value_reads(const OpSpec& spec, int inputs, const std::vector<bool>& wanted_outputs);

// The registry. `register_op` is called before main; a second registration of a type is an assertion. `file`: where the
// registration stands.
bool register_op(Registration (*make)(), const char* file);
const OpSpec* find_op(std::string_view type);  // null if there is none
const OpSpec& op_spec(std::string_view type);  // throws Error with the nearest names
const OpSpec& op_with_role(Role role);         // asserts that one is registered
std::vector<std::string> op_types();           // all, sorted

// Parsed arguments of an operator; throws Error, also for an argument that it refuses. Warnings (of names that neither
// it nor the public format has for it) are appended, if asked for.
std::shared_ptr<const void> parse_args(const OpSpec& spec, const OperatorDef& def,
                                       std::vector<std::string>* warnings = nullptr);

// --- From a plain function to a Kernel ---------------------------------------------------------------------------

struct CallCursor {
  Call& call;
  int in = 0, out = 0;
};
template <class P>
struct KernelParam;
template <class T>
struct KernelParam<In<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static In<T> take(CallCursor& c) { return c.call.in_span<T>(c.in++); }
};
template <class T>
requires(!std::is_const_v<T>) struct KernelParam<Out<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static Out<T> take(CallCursor& c) { return c.call.out_span<T>(c.out++); }
};
template <>
struct KernelParam<const Tensor&> {
  static constexpr DType dtype = DType::undefined;
  static const Tensor& take(CallCursor& c) { return c.call.in(c.in++); }
};
template <>
struct KernelParam<Tensor&> {
  static constexpr DType dtype = DType::undefined;
  static Tensor& take(CallCursor& c) { return c.call.out(c.out++); }
};
template <>
struct KernelParam<Call&> {
  static constexpr DType dtype = DType::undefined;
  static Call& take(CallCursor& c) { return c.call; }
};

template <class... P>
constexpr DType first_dtype() {
  DType found = DType::undefined;
  ((found = found == DType::undefined ? KernelParam<P>::dtype : found), ...);
  return found;
}

template <class Args, class... P>
Kernel adapt_kernel(void (*fn)(const Args&, P...)) {
  Kernel k;
  k.dtype = first_dtype<P...>();
  k.run = [fn](const void* args, Call& call) {
    CallCursor cursor{call};
    // Braces evaluate left to right, which is what gives each parameter its input or output.
    std::tuple<P...> values{KernelParam<P>::take(cursor)...};
    std::apply([&](auto&&... v) { fn(*static_cast<const Args*>(args), static_cast<P>(v)...); }, values);
  };
  return k;
}
template <class Args, class... P>
Kernel adapt_kernel(void (*fn)(P...)) {
  Kernel k;
  k.dtype = first_dtype<P...>();
  k.run = [fn](const void*, Call& call) {
    CallCursor cursor{call};
    std::tuple<P...> values{KernelParam<P>::take(cursor)...};
    std::apply([&](auto&&... v) { fn(static_cast<P>(v)...); }, values);
  };
  return k;
}

}  // namespace stepnet
