// How an operator is written: one registration that says everything about it.
//
//   REGISTER(tanh) {
//     return op("Tanh")
//         .doc("Hyperbolic tangent, element by element.")
//         .input("X", "any shape")
//         .output("Y", "tanh(X)", like("X"))
//         .in_place("X", "Y")
//         .elementwise()
//         .cpu(forward<float>, forward<double>)
//         .derivative("X", [](Formula& f) { return f.op("TanhGradient", {f.y("Y"), f.dy("Y")}); });
//   }
//
// Inputs without a type rule are *generic*: they share one element type T, and the kernel for T is chosen. A kernel is
// a free function. Its parameters are, in order: the arguments struct (if the operator has one), then any of
//   In<T>          the next input's elements; empty if the input is absent
//   const Tensor&  the next input
//   Out<T>         the next output's elements; data() is null if the output is not wanted
//   Tensor&        the next output
//   Call&          everything, for kernels that need shapes of absent values, the random key, or `accumulate`
// The framework allocates outputs by the shape function before it calls the kernel. Where a shape depends on data the
// shape function leaves it unknown, the kernel takes Tensor& and calls `resize`.
// Kernels write every element of every wanted output, and do not read outputs unless they accumulate or are in place.
//
// Threads: registration runs before main; afterwards the registry is read-only.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stepnet/arguments.h"
#include "stepnet/op_spec.h"

namespace stepnet {

struct NoArgs {};

// Sets the last declared input's, output's or argument's rules by the calls that follow it; see each.
template <class Args = NoArgs>
class OpBuilder {
 public:
  explicit OpBuilder(std::string type) {
    spec_.type = std::move(type);
    spec_.make_args = [] { return std::static_pointer_cast<void>(std::make_shared<Args>()); };
  }

  OpBuilder& doc(std::string text) {
    spec_.doc = std::move(text);
    return *this;
  }

  // An argument with a default. std::optional<T> members have none: they are empty if the argument is absent.
  template <class T>
  OpBuilder& arg(std::string name, T Args::*member, T fallback, std::string doc, ArgCheck<T> check = {}) {
    ArgSpec& a = add_arg(std::move(name), member, std::move(doc), std::move(check));
    a.default_text = arg_text(fallback);
    a.set_default = [member, fallback](void* args) { static_cast<Args*>(args)->*member = fallback; };
    return *this;
  }
  template <class T>
  OpBuilder& required_arg(std::string name, T Args::*member, std::string doc, ArgCheck<T> check = {}) {
    add_arg(std::move(name), member, std::move(doc), std::move(check)).required = true;
    return *this;
  }
  // All arguments whose names begin with `prefix`, in the order in which they are given.
  OpBuilder& args_that_begin(std::string prefix, std::vector<Argument> Args::*member, std::string doc) {
    const auto add = [member](void* args, const Argument& arg) { (static_cast<Args*>(args)->*member).push_back(arg); };
    spec_.arg_families.push_back({std::move(prefix), std::move(doc), add});
    return *this;
  }
  // An argument of the public format that changes no result here, and why. A '*' at either end matches any text there.
  OpBuilder& accepts(std::string name, std::string why) {
    spec_.accepted_args.push_back({std::move(name), std::move(why)});
    return *this;
  }
  // An argument of the public format that would change results and is not implemented: an Error, which says what it
  // would do ("would ..."). With the value `harmless`, if there is one, it would do nothing, and is accepted.
  OpBuilder& refuses(std::string name, std::string would) {
    spec_.refused_args.push_back({std::move(name), std::move(would), {}});
    return *this;
  }
  template <class T>
  OpBuilder& refuses(const std::string& name, const T& harmless, std::string would) {
    spec_.refused_args.push_back({name, std::move(would), make_arg(name, harmless)});
    return *this;
  }
  // Of the arguments above, those that the public format's operator does not have.
  OpBuilder& own_args(std::initializer_list<const char*> names) {
    for (ArgSpec& a : spec_.args)
      if (std::find(names.begin(), names.end(), a.name) != names.end()) a.own = true;
    return *this;
  }
  // The public format has no such operator.
  OpBuilder& own() {
    spec_.own = true;
    return *this;
  }

  OpBuilder& input(std::string name, std::string doc) {
    spec_.inputs.push_back({.name = std::move(name), .doc = std::move(doc)});
    last_ = &spec_.inputs.back();
    return *this;
  }
  OpBuilder& output(std::string name, std::string doc, OutputRule rule = {}) {
    spec_.outputs.push_back({.name = std::move(name), .doc = std::move(doc), .rule = std::move(rule)});
    last_ = &spec_.outputs.back();
    return *this;
  }
  // Rules for the last input or output:
  OpBuilder& types(std::initializer_list<DType> types) {
    last_->types = types;
    return *this;
  }  // fixed, not generic
  OpBuilder& any_type() {
    last_->any = true;
    return *this;
  }  // a tensor of any type, not generic
  OpBuilder& object() {
    last_->object = true;
    return *this;
  }  // not a tensor (a mutex, a reader) or either
  OpBuilder& optional() {
    last_->optional = true;
    return *this;
  }  // may be left out at the end, or be ""
  OpBuilder& variadic(int at_least = 1) {
    last_->variadic = true;
    last_->at_least = at_least;
    return *this;
  }
  OpBuilder& shape_only() {
    last_->shape_only = true;
    return *this;
  }  // the kernel reads its shape, not its values
  // The values that this output is computed from; the default is all inputs. For gradient kernels of several outputs.
  OpBuilder& uses(std::initializer_list<const char*> names) {
    last_->uses.emplace();
    for (const char* n : names) last_->uses->emplace_back(n);
    return *this;
  }
  OpBuilder& accumulates() {
    last_->accumulates = true;
    return *this;
  }  // the kernel honours Call::accumulates(i)

  // The shapes and types of all outputs; not needed where each output has a rule such as like("X").
  OpBuilder& shape(std::function<void(const Args&, ShapeCall&)> fn) {
    spec_.shape = [fn = std::move(fn)](const void* a, ShapeCall& c) { fn(*static_cast<const Args*>(a), c); };
    return *this;
  }
  // Floating-point operations of one run (core/operator/dry_run.h); none if it only moves data.
  OpBuilder& flops(std::function<double(const Args&, const ShapeCall&)> fn) {
    spec_.flops = [fn = std::move(fn)](const void* a, const ShapeCall& c) {
      return fn(*static_cast<const Args*>(a), c);
    };
    return *this;
  }

  // The output may have the input's name. `forbidden_if_wanted`: not if the gradient of one of these inputs is wanted.
  OpBuilder& in_place(std::string in, std::string out, std::vector<std::string> forbidden_if_wanted = {}) {
    spec_.in_place.push_back({std::move(in), std::move(out), false, std::move(forbidden_if_wanted)});
    return *this;
  }
  OpBuilder& must_be_in_place(std::string in, std::string out) {
    spec_.in_place.push_back({std::move(in), std::move(out), true, {}});
    return *this;
  }
  // Of variadic ones: any of the outputs may have the name of any of the inputs.
  OpBuilder& in_place_anywhere(std::string in, std::string out) {
    spec_.in_place.push_back({std::move(in), std::move(out), false, {}, true});
    return *this;
  }
  // The output is another name for the input's storage (Alias), always or as the kernel decides.
  OpBuilder& alias(std::string in, std::string out) {
    spec_.aliases.push_back({std::move(in), std::move(out)});
    return *this;
  }

  // Traits, for the passes.
  OpBuilder& elementwise() {
    spec_.elementwise = true;
    spec_.rowwise = [](const void*, const ShapeCall&) { return Shape::kMaxRank; };
    return *this;
  }
  // Output 0 has the elements of input 0 in their order, in another shape.
  OpBuilder& reshapes() {
    spec_.reshapes = true;
    return *this;
  }
  // How many leading dimensions are rows: each output row depends on the same input row and on parameters only.
  OpBuilder& rowwise(std::function<int(const Args&, const ShapeCall&)> fn) {
    spec_.rowwise = [fn = std::move(fn)](const void* a, const ShapeCall& c) {
      return fn(*static_cast<const Args*>(a), c);
    };
    return *this;
  }
  OpBuilder& sums_rows() {
    spec_.sums_rows = true;
    return *this;
  }  // adds over rows, as dW and db do
  // The arithmetic of an element of the one output from the same element of each input; for an input with as many
  // elements as the last dimension has, the one of that column. Empty if the arguments make it something else.
  OpBuilder& fused(std::initializer_list<FusedInstruction> body) {
    return fused([body = FusedBody(body)](const Args&, int) { return body; });
  }
  OpBuilder& fused(std::function<FusedBody(const Args&, int inputs)> fn) {
    spec_.fused = [fn = std::move(fn)](const void* a, int inputs) { return fn(*static_cast<const Args*>(a), inputs); };
    return *this;
  }
  OpBuilder& takes_columns(std::function<std::vector<int64_t>(const Args&, const ShapeCall&)> fn) {
    spec_.takes_columns = [fn = std::move(fn)](const void* a, const ShapeCall& c) {
      return fn(*static_cast<const Args*>(a), c);
    };
    return *this;
  }
  OpBuilder& puts_columns(std::function<std::vector<int64_t>(const Args&, const ShapeCall&)> fn) {
    spec_.puts_columns = [fn = std::move(fn)](const void* a, const ShapeCall& c) {
      return fn(*static_cast<const Args*>(a), c);
    };
    return *this;
  }
  OpBuilder& outer_product(std::function<int64_t(const Args&, const ShapeCall&)> fn) {
    spec_.outer_product = [fn = std::move(fn)](const void* a, const ShapeCall& c) {
      return fn(*static_cast<const Args*>(a), c);
    };
    return *this;
  }
  OpBuilder& matrix_vector(std::function<MatrixVector(const Args&, const ShapeCall&)> fn) {
    spec_.matrix_vector = [fn = std::move(fn)](const void* a, const ShapeCall& c) {
      return fn(*static_cast<const Args*>(a), c);
    };
    return *this;
  }
  OpBuilder& fits_output() {
    spec_.fits_output = true;
    return *this;
  }  // its output is input 0, summed over the dimensions of which the output has 1
  OpBuilder& sums_inputs() {
    spec_.sums_inputs = true;
    return *this;
  }  // its output is the sum of its inputs, where these have one shape
  OpBuilder& saves_instead(std::string input, std::string arg, std::string gradient) {
    spec_.saves_instead = SavedInstead{std::move(input), std::move(arg), std::move(gradient)};
    return *this;
  }  // see SavedInstead
  OpBuilder& random() {
    spec_.random = true;
    return *this;
  }  // reads Call::random
  OpBuilder& side_effect() {
    spec_.side_effect = true;
    return *this;
  }  // prints or writes files: always run
  OpBuilder& role(Role role) {
    spec_.role = role;
    return *this;
  }
  OpBuilder& precision(Precision precision) {
    spec_.precision = precision;
    return *this;
  }  // see Precision

  // Kernels on tensors; the element type is that of the function's first In<T> or Out<T>, or any.
  template <class... Fn>
  OpBuilder& cpu(Fn... fns) {
    (add_kernel(DeviceKind::cpu, adapt_kernel<Args>(fns)), ...);
    return *this;
  }
  // The same of half types; their outputs that accumulate may be float32, as sums over time are.
  template <class... Fn>
  OpBuilder& cpu_halves(Fn... fns) {
    const auto add = [&](Kernel k) {
      k.sums_to_float = true;
      add_kernel(DeviceKind::cpu, std::move(k));
    };
    (add(adapt_kernel<Args>(fns)), ...);
    return *this;
  }
  template <class T, class Fn>
  OpBuilder& cpu_for(Fn fn) {
    auto k = adapt_kernel<Args>(fn);
    k.dtype = dtype_of<T>();
    add_kernel(DeviceKind::cpu, std::move(k));
    return *this;
  }
  // For float and double, kernels that do what `fused` says, which stands before this.
  OpBuilder& cpu_by_instructions() {
    for (const DType dtype : {DType::float32, DType::float64})
      add_kernel(DeviceKind::cpu, fused_kernel(dtype, spec_.fused));
    return *this;
  }
  // A kernel on blobs, for operators on objects, on the workspace, or on names. Runs on the host for every device.
  OpBuilder& blobs(void (*fn)(const Args&, BlobCall&)) {
    spec_.blob_kernel = [fn](const void* a, BlobCall& c) { fn(*static_cast<const Args*>(a), c); };
    return *this;
  }
  // Of a dry run (core/tensor/dry_device.h), which leaves kernels out: the part of the kernel that takes memory beside
  // its outputs, its products by stepnet/matmul.h, by element type. The kernel calls it, too; it must not touch an
  // element itself.
  template <class... Fn>
  OpBuilder& workspace(Fn... fns) {
    (spec_.workspace.push_back(adapt_kernel<Args>(fns)), ...);
    return *this;
  }
  // Of a dry run, also in builds without gpu/: the bytes of the blocks that the kernel of gpu/ takes beside its
  // outputs, which have their types, at the same time. Partial results of large sums, of which there is one for
  // hundreds of elements, are left out.
  OpBuilder& gpu_workspace(std::vector<int64_t> (*fn)(const Args&, const Call&)) {
    spec_.gpu_workspace = [fn](const void* a, const Call& c) { return fn(*static_cast<const Args*>(a), c); };
    return *this;
  }
  // The part of the kernel that writes outputs which follow from shapes; the others stay as they are.
  OpBuilder& known_outputs(void (*fn)(const Args&, Call&)) {
    spec_.known_outputs = [fn](const void* a, Call& c) { fn(*static_cast<const Args*>(a), c); };
    return *this;
  }
  // The kernel on blobs runs in a dry run too: it looks at no element of a tensor that is dry.
  OpBuilder& runs_dry() {
    spec_.runs_dry = true;
    return *this;
  }
  // What can be said to be wrong before anything runs, such as a file that is already there: throws Error. Called once
  // for each operator of a plan before its first net runs; the operator's inputs may not exist yet.
  OpBuilder& preflight(void (*fn)(const Args&, const OperatorDef&, const Workspace&)) {
    spec_.preflight = [fn](const void* a, const OperatorDef& def, const Workspace& w) {
      fn(*static_cast<const Args*>(a), def, w);
    };
    return *this;
  }

  // A call that the gradient checker tries: example({"X=2,3", "LENGTHS=int32,2:3,1"}, {"axis=1"}). The syntax is that
  // of `stepnet gradcheck`, see core/gradcheck/input_text.h; a variadic input's elements are named X0, X1, ...
  OpBuilder& example(std::vector<std::string> inputs, std::vector<std::string> args = {}, int outputs = 1) {
    spec_.examples.push_back({std::move(inputs), std::move(args), outputs});
    return *this;
  }
  // The same for an operator that needs others or nets around it: the text of a net, its feeds, and what of its blobs
  // is differentiated, if any. `$FOLDER` in the text is an empty folder for files.
  OpBuilder& example_net(std::string net, std::vector<std::string> feeds = {}, std::vector<std::string> losses = {}) {
    OpExample& example = spec_.examples.emplace_back();
    example.inputs = std::move(feeds);
    example.net = std::move(net);
    example.losses = std::move(losses);
    return *this;
  }

  // The gradient of one input, as a formula over other operators.
  OpBuilder& derivative(std::string input, std::function<Gradient(Formula&)> fn) {
    spec_.derivatives.push_back(
        {{std::move(input)}, [fn = std::move(fn)](Formula& f) { return std::vector<Gradient>{fn(f)}; }});
    return *this;
  }
  // One formula for several inputs (a fused kernel). It returns their gradients in this order, none() for one that
  // f.wants() says is not wanted, and must compute nothing for those.
  OpBuilder& derivatives(std::vector<std::string> inputs, std::function<std::vector<Gradient>(Formula&)> fn) {
    spec_.derivatives.push_back({std::move(inputs), std::move(fn)});
    return *this;
  }
  // One formula for each element of the variadic input; the element's index is its parameter.
  OpBuilder& variadic_derivative(std::string input, std::function<Gradient(Formula&, int)> fn) {
    spec_.derivatives.push_back({{std::move(input)}, {}, std::move(fn)});
    return *this;
  }
  // Gradients of everything at once, for operators whose inputs are found by their arguments (RecurrentNetwork):
  // returns one Gradient per actual input.
  OpBuilder& whole_derivative(std::function<std::vector<Gradient>(Formula&)> fn) {
    spec_.whole_derivative = std::move(fn);
    return *this;
  }
  // What the operator computes, in small operators over its own inputs: its outputs in their order, of which those that
  // it cannot compute, or that are not there, may be undefined. Where no derivative follows from it, an output may have
  // another shape of as many elements. Inputs without a derivative of their own get it from
  // there. Gradient checks compare it with the kernel.
  OpBuilder& composed(std::function<std::vector<Value>(Formula&)> fn) {
    spec_.composed = std::move(fn);
    return *this;
  }
  // The gradient ends here without a word (fills, iteration counters, comparisons).
  OpBuilder& stop_gradient() {
    spec_.gradient_rule = GradientRule::stop;
    return *this;
  }
  // Asking for a gradient is an Error that gives the reason (optimizers, Save).
  OpBuilder& no_gradient(std::string reason) {
    spec_.gradient_rule = GradientRule::refuse;
    spec_.no_gradient_reason = std::move(reason);
    return *this;
  }

  operator Registration() { return Registration{std::move(spec_)}; }

 private:
  template <class T>
  ArgSpec& add_arg(std::string name, T Args::*member, std::string doc, ArgCheck<T> check) {
    ArgSpec a{.name = std::move(name), .doc = std::move(doc), .type = arg_type_name(T{})};
    a.holds_net = std::is_same_v<T, NetArg>;
    a.read = [member, check = std::move(check), key = a.name](void* args, const Argument& arg) {
      T& value = static_cast<Args*>(args)->*member;
      read_value(arg, value);
      if (!check) return;
      if (const std::string rule = check(value); !rule.empty())
        fail("argument \"{}\" {}, but is {}", key, rule, arg_text(value));
    };
    spec_.args.push_back(std::move(a));
    return spec_.args.back();
  }
  void add_kernel(DeviceKind device, Kernel kernel) {
    kernel.device = device;
    spec_.kernels.push_back(std::move(kernel));
  }

  OpSpec spec_;
  ParamSpec* last_ = nullptr;
};

inline OpBuilder<> op(std::string type) { return OpBuilder<>(std::move(type)); }
template <class Args>
OpBuilder<Args> op(std::string type) {
  return OpBuilder<Args>(std::move(type));
}

// Kernels for another device, in the twin file under gpu/. `Args` is the operator's struct, from its header.
template <class Args = NoArgs, class... Fn>
Registration cuda(std::string type, Fn... fns) {
  Registration r;
  r.spec.type = std::move(type);
  auto add = [&r](Kernel k) {
    k.device = DeviceKind::cuda;
    r.spec.kernels.push_back(std::move(k));
  };
  (add(adapt_kernel<Args>(fns)), ...);
  r.kernels_only = true;
  return r;
}

// What is no operator, such as a backend: `add` puts it into its table.
inline Registration entry(std::function<void()> add) {
  Registration r;
  r.add = std::move(add);
  return r;
}

// Registers what the function body returns, when the library is loaded. The only macro with arguments in the tree.
#define REGISTER(name)                                                                          \
  static ::stepnet::Registration registration_##name();                                         \
  static const bool registered_##name = ::stepnet::register_op(&registration_##name, __FILE__); \
  static ::stepnet::Registration registration_##name()

}  // namespace stepnet
