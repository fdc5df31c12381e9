// Typed calls: operators on tensors as functions of variables, such as ops::mul(a, b).
//
// Written by `stepnet ops --cpp -o operators/ops.h` from the registrations; it is not edited by hand.
// Arguments are given by name, as in ops::softmax(x, {.axis = 1}), and those that are not given are the operator's
// defaults. Inputs that may be absent are undefined variables. Outputs that may be absent are there if derivatives
// cannot do without them, or if more are asked for. A function whose name ends with an underscore writes its result
// over its first input and returns that. (C++ keywords have an underscore too: ops::and_, and in place
// ops::and_in_place.) What operators do in full, and the gradients they have, is in operators/README.md.
// Threads: as run() in core/autograd/record.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/typed_call.h"

// clang-format off
namespace stepnet::ops {

using autograd::AnyArg;
using autograd::ArgList;
using autograd::joined;
using autograd::ListArg;
using autograd::Place;
using autograd::TypedCall;
using autograd::Variable;

// The absolute value, element by element.
inline Variable abs(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Abs");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable abs_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Abs", {0});
  return call.run1({&x, 1}, {}, place);
}

struct AdagradArgs {
  std::optional<float> decay = {};  // how much of the moment remains, from 0 to 1; 1 if not given
  std::optional<float> epsilon = {};  // added to the square root of the moment; 1e-05 if not given
  ArgList list() const { return ArgList().add("decay", decay).add("epsilon", epsilon); }
};
struct AdagradOutputs {
  // the parameter after the step
  Variable output_param;
  // the moment after the step
  Variable output_moment_1;
};
// One step of Adagrad.
inline AdagradOutputs adagrad(const Variable& param, const Variable& moment, const Variable& grad, const Variable& lr,
    const AdagradArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Adagrad");
  const Variable given[] = {param, moment, grad, lr};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}
// The same, written over param, moment.
inline AdagradOutputs adagrad_(const Variable& param, const Variable& moment, const Variable& grad, const Variable& lr,
    const AdagradArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Adagrad", {0, 1});
  const Variable given[] = {param, moment, grad, lr};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct AdamArgs {
  std::optional<float> beta1 = {};  // decay of the first moment; 0.9 if not given
  std::optional<float> beta2 = {};  // decay of the second moment; 0.999 if not given
  std::optional<float> epsilon = {};  // added to the square root of the second moment; 1e-05 if not given
  ArgList list() const {
    return ArgList()
        .add("beta1", beta1)
        .add("beta2", beta2)
        .add("epsilon", epsilon);
  }
};
struct AdamOutputs {
  // the parameter after the step
  Variable output_param;
  // the first moment after the step
  Variable output_moment_1;
  // the second moment after the step
  Variable output_moment_2;
};
// One step of Adam.
inline AdamOutputs adam(const Variable& param, const Variable& moment_1, const Variable& moment_2, const Variable& grad,
    const Variable& lr, const Variable& iter, const AdamArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Adam");
  const Variable given[] = {param, moment_1, moment_2, grad, lr, iter};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}
// The same, written over param, moment_1, moment_2.
inline AdamOutputs adam_(const Variable& param, const Variable& moment_1, const Variable& moment_2,
    const Variable& grad, const Variable& lr, const Variable& iter, const AdamArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Adam", {0, 1, 2});
  const Variable given[] = {param, moment_1, moment_2, grad, lr, iter};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct AdamWArgs {
  std::optional<float> beta1 = {};  // decay of the first moment; 0.9 if not given
  std::optional<float> beta2 = {};  // decay of the second moment; 0.999 if not given
  std::optional<float> epsilon = {};  // added to the square root of the second moment; 1e-05 if not given
  // times the learning rate: the share that a parameter loses; 0.01 if not given
  std::optional<float> weight_decay = {};
  ArgList list() const {
    return ArgList()
        .add("beta1", beta1)
        .add("beta2", beta2)
        .add("epsilon", epsilon)
        .add("weight_decay", weight_decay);
  }
};
struct AdamWOutputs {
  // the parameter after the step
  Variable output_param;
  // the first moment after the step
  Variable output_moment_1;
  // the second moment after the step
  Variable output_moment_2;
};
// One step of Adam with decoupled weight decay.
inline AdamWOutputs adam_w(const Variable& param, const Variable& moment_1, const Variable& moment_2,
    const Variable& grad, const Variable& lr, const Variable& iter, const AdamWArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AdamW");
  const Variable given[] = {param, moment_1, moment_2, grad, lr, iter};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}
// The same, written over param, moment_1, moment_2.
inline AdamWOutputs adam_w_(const Variable& param, const Variable& moment_1, const Variable& moment_2,
    const Variable& grad, const Variable& lr, const Variable& iter, const AdamWArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AdamW", {0, 1, 2});
  const Variable given[] = {param, moment_1, moment_2, grad, lr, iter};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct AddArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Sum of two tensors, element by element.
inline Variable add(const Variable& a, const Variable& b, const AddArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Add");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable add_(const Variable& a, const Variable& b, const AddArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Add", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct AddBMMArgs {
  std::optional<float> beta = {};  // the factor of what is added; if it is 0, its values are not used; 1 if not given
  std::optional<float> alpha = {};  // the factor of the product; 1 if not given
  ArgList list() const { return ArgList().add("beta", beta).add("alpha", alpha); }
};
// The sum of a batch's matrix products, added to a matrix.
inline Variable add_bmm(const Variable& m, const Variable& a, const Variable& b, const AddBMMArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddBMM");
  const Variable given[] = {m, a, b};
  return call.run1(given, args.list(), place);
}

struct AddCDivArgs {
  std::optional<float> value = {};  // the factor of what is added; 1 if not given
  ArgList list() const { return ArgList().add("value", value); }
};
// A quotient element by element, times a constant, added to a tensor.
inline Variable add_cdiv(const Variable& t, const Variable& a, const Variable& b, const AddCDivArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddCDiv");
  const Variable given[] = {t, a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over t.
inline Variable add_cdiv_(const Variable& t, const Variable& a, const Variable& b, const AddCDivArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddCDiv", {0});
  const Variable given[] = {t, a, b};
  return call.run1(given, args.list(), place);
}

struct AddCMulArgs {
  std::optional<float> value = {};  // the factor of what is added; 1 if not given
  ArgList list() const { return ArgList().add("value", value); }
};
// A product element by element, times a constant, added to a tensor.
inline Variable add_cmul(const Variable& t, const Variable& a, const Variable& b, const AddCMulArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddCMul");
  const Variable given[] = {t, a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over t.
inline Variable add_cmul_(const Variable& t, const Variable& a, const Variable& b, const AddCMulArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddCMul", {0});
  const Variable given[] = {t, a, b};
  return call.run1(given, args.list(), place);
}

struct AddMVArgs {
  std::optional<float> beta = {};  // the factor of what is added; if it is 0, its values are not used; 1 if not given
  std::optional<float> alpha = {};  // the factor of the product; 1 if not given
  ArgList list() const { return ArgList().add("beta", beta).add("alpha", alpha); }
};
// A matrix times a vector, added to a vector, which is not repeated.
inline Variable add_mv(const Variable& v, const Variable& a, const Variable& x, const AddMVArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddMV");
  const Variable given[] = {v, a, x};
  return call.run1(given, args.list(), place);
}

struct AddPaddingArgs {
  std::optional<int64_t> padding_width = {};  // rows in front of each segment; 1 if not given
  // rows behind each segment; negative: as many as in front; -1 if not given
  std::optional<int64_t> end_padding_width = {};
  int outputs = 1;  // how many are asked for, the first so many of 2
  ArgList list() const { return ArgList().add("padding_width", padding_width).add("end_padding_width",
    end_padding_width); }
};
struct AddPaddingOutputs {
  // [sum of lengths_out, ...]; undefined if not asked for
  Variable data_out;
  // [N], or [1] without lengths: how many rows each segment has now; undefined if not asked for
  Variable lengths_out;
  operator const Variable&() const { return data_out; }
};
// Rows in front of and behind each segment.
inline AddPaddingOutputs add_padding(const Variable& data_in, const Variable& lengths = {},
    const Variable& start_padding = {}, const Variable& end_padding = {}, const AddPaddingArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddPadding");
  const Variable given[] = {data_in, lengths, start_padding, end_padding};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct AddRArgs {
  std::optional<float> beta = {};  // the factor of what is added; if it is 0, its values are not used; 1 if not given
  std::optional<float> alpha = {};  // the factor of the product; 1 if not given
  ArgList list() const { return ArgList().add("beta", beta).add("alpha", alpha); }
};
// The outer product of two vectors, added to a matrix, which is not repeated.
inline Variable add_r(const Variable& m, const Variable& x, const Variable& y, const AddRArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddR");
  const Variable given[] = {m, x, y};
  return call.run1(given, args.list(), place);
}
// The same, written over m.
inline Variable add_r_(const Variable& m, const Variable& x, const Variable& y, const AddRArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("AddR", {0});
  const Variable given[] = {m, x, y};
  return call.run1(given, args.list(), place);
}

// Another name for the same storage: writing one in place changes the other.
inline Variable alias(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("Alias");
  return call.run1({&input, 1}, {}, place);
}

struct AndArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where both A and B are true, element by element.
inline Variable and_(const Variable& a, const Variable& b, const AndArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("And");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable and_in_place(const Variable& a, const Variable& b, const AndArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("And", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct ArgMaxArgs {
  // the dimension to search along, a negative one counted from the end; -1 if not given
  std::optional<int32_t> axis = {};
  std::optional<bool> keepdims = {};  // whether it stays in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axis", axis).add("keepdims", keepdims); }
};
// Places of the greatest elements along an axis.
inline Variable arg_max(const Variable& x, const ArgMaxArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ArgMax");
  return call.run1({&x, 1}, args.list(), place);
}

// The mean of all elements; 0 if there are none.
inline Variable averaged_loss(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("AveragedLoss");
  return call.run1({&x, 1}, {}, place);
}

struct BAddBMMArgs {
  std::optional<float> beta = {};  // the factor of what is added; if it is 0, its values are not used; 1 if not given
  std::optional<float> alpha = {};  // the factor of the product; 1 if not given
  ArgList list() const { return ArgList().add("beta", beta).add("alpha", alpha); }
};
// Products of the matrices in two batches, each added to a matrix of a third batch.
inline Variable badd_bmm(const Variable& m, const Variable& a, const Variable& b, const BAddBMMArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("BAddBMM");
  const Variable given[] = {m, a, b};
  return call.run1(given, args.list(), place);
}

// Rows of each of several tables by the same indices.
inline Variable batch_gather(const Variable& data, const Variable& indices, Place place = Place::here()) {
  static const TypedCall call("BatchGather");
  const Variable given[] = {data, indices};
  return call.run1(given, {}, place);
}

struct BatchMatMulArgs {
  std::optional<bool> trans_a = {};  // A's matrices are transposed; false if not given
  std::optional<bool> trans_b = {};  // the same for B; false if not given
  std::optional<bool> broadcast = {};  // let batch sizes of 1 and missing batch dimensions repeat; false if not given
  ArgList list() const {
    return ArgList()
        .add("trans_a", trans_a)
        .add("trans_b", trans_b)
        .add("broadcast", broadcast);
  }
};
// Products of the matrices in two batches.
inline Variable batch_mat_mul(const Variable& a, const Variable& b, const BatchMatMulArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("BatchMatMul");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct BatchNormArgs {
  // normalize by est_mean and est_var, and leave them as they are; false if not given
  std::optional<bool> is_test = {};
  std::optional<float> epsilon = {};  // added to variances; 1e-05 if not given
  std::optional<float> momentum = {};  // how much of the running statistics stays with each run; 0.9 if not given
  std::optional<std::string> order = {};  // NCHW: channels are dimension 1; NHWC: the last one; "NCHW" if not given
  // how many are asked for, the first so many of 5; 5 if not given, and with is_test 1
  std::optional<int> outputs = {};
  ArgList list() const {
    return ArgList()
        .add("is_test", is_test)
        .add("epsilon", epsilon)
        .add("momentum", momentum)
        .add("order", order);
  }
};
struct BatchNormOutputs {
  // like X
  Variable y;
  // est_mean, updated in place; not with is_test, nor any of the following; undefined if not asked for
  Variable running_mean;
  // est_var, updated in place; undefined if not asked for
  Variable running_var;
  // [C], of this batch; backward reads it; undefined if not asked for
  Variable saved_mean;
  // [C], 1 / sqrt(variance + epsilon) of this batch; backward reads it; undefined if not asked for
  Variable saved_inv_std;
  operator const Variable&() const { return y; }
};
// Normalizes each channel by its mean and variance over the batch and all other dimensions, then scales and shifts it.
inline BatchNormOutputs batch_norm(const Variable& x, const Variable& scale, const Variable& bias,
    const Variable& est_mean, const Variable& est_var, const BatchNormArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("BatchNorm", {-1, 3, 4, -1, -1});
  const Variable given[] = {x, scale, bias, est_mean, est_var};
  std::array<Variable, 5> made;
  call.run_into(made, given, args.list(), args.outputs.value_or(args.is_test.value_or(false) ? 1 : 5), place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3]), std::move(made[4])};
}
// The same, written over x, est_mean, est_var.
inline BatchNormOutputs batch_norm_(const Variable& x, const Variable& scale, const Variable& bias,
    const Variable& est_mean, const Variable& est_var, const BatchNormArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("BatchNorm", {0, 3, 4, -1, -1});
  const Variable given[] = {x, scale, bias, est_mean, est_var};
  std::array<Variable, 5> made;
  call.run_into(made, given, args.list(), args.outputs.value_or(args.is_test.value_or(false) ? 1 : 5), place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3]), std::move(made[4])};
}

struct CastArgs {
  AnyArg to = {};  // the type, as a number of the format or by name; required
  AnyArg from_type = {};  // the input's type, in which its gradient is made; known without
  ArgList list() const { return ArgList().add("to", to).add("from_type", from_type); }
};
// Converts the element type.
inline Variable cast(const Variable& input, const CastArgs& args, Place place = Place::here()) {
  static const TypedCall call("Cast");
  return call.run1({&input, 1}, args.list(), place);
}

// Converts to the element type of another tensor: the gradient of Cast.
inline Variable cast_like(const Variable& input, const Variable& like, Place place = Place::here()) {
  static const TypedCall call("CastLike");
  const Variable given[] = {input, like};
  return call.run1(given, {}, place);
}

struct ClipArgs {
  std::optional<float> min = {};  // the least value; -inf if not given
  std::optional<float> max = {};  // the greatest value; inf if not given
  ArgList list() const { return ArgList().add("min", min).add("max", max); }
};
// Brings every element between two bounds.
inline Variable clip(const Variable& x, const ClipArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Clip");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable clip_(const Variable& x, const ClipArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Clip", {0});
  return call.run1({&x, 1}, args.list(), place);
}

struct ClipTensorByScalingArgs {
  std::optional<float> threshold = {};  // the greatest value that changes nothing; required
  ArgList list() const { return ArgList().add("threshold", threshold); }
};
// Scales a tensor down if a value, such as its norm, is greater than a threshold, by their ratio.
inline Variable clip_tensor_by_scaling(const Variable& input_tensor, const Variable& val,
    const Variable& additional_threshold, const ClipTensorByScalingArgs& args, Place place = Place::here()) {
  static const TypedCall call("ClipTensorByScaling");
  const Variable given[] = {input_tensor, val, additional_threshold};
  return call.run1(given, args.list(), place);
}
// The same, written over input_tensor.
inline Variable clip_tensor_by_scaling_(const Variable& input_tensor, const Variable& val,
    const Variable& additional_threshold, const ClipTensorByScalingArgs& args, Place place = Place::here()) {
  static const TypedCall call("ClipTensorByScaling", {0});
  const Variable given[] = {input_tensor, val, additional_threshold};
  return call.run1(given, args.list(), place);
}

struct ConcatArgs {
  std::optional<int64_t> axis = {};  // the dimension, from the end if negative; 1 if neither this nor "order" is given
  std::optional<std::string> order = {};  // NCHW (dimension 1) or NHWC (dimension 3), instead of "axis"
  // parts lack the dimension: Concat stacks them on a new one, Split drops it; false if not given
  std::optional<bool> add_axis = {};
  int outputs = 1;  // how many are asked for, the first so many of 2
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("order", order)
        .add("add_axis", add_axis);
  }
};
struct ConcatOutputs {
  // the joined tensor
  Variable concat_result;
  // the size of each input along the dimension, int32; undefined if not asked for
  Variable split_info;
  operator const Variable&() const { return concat_result; }
};
// Joins tensors along a dimension.
inline ConcatOutputs concat(const std::vector<Variable>& inputs, const ConcatArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Concat");
  std::array<Variable, 2> made;
  call.run_into(made, inputs, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct ConstantFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg value = {};  // the value, in f, i or s as its type needs; 0 or the empty string if absent
  std::optional<int64_t> dtype = {};  // the element type as a number of the format
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("value", value)
        .add("dtype", dtype);
  }
};
// A tensor whose elements are all equal.
inline Variable constant_fill(const Variable& input = {}, const ConstantFillArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("ConstantFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable constant_fill_(const Variable& input, const ConstantFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ConstantFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

// A copy of a tensor of any type.
inline Variable copy(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("Copy");
  return call.run1({&input, 1}, {}, place);
}
// The same, written over input.
inline Variable copy_(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("Copy", {0});
  return call.run1({&input, 1}, {}, place);
}

// A copy on the accelerator of a tensor on the CPU.
inline Variable copy_cpu_to_gpu(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("CopyCPUToGPU");
  return call.run1({&input, 1}, {}, place);
}

// A copy on the operator's device of a tensor on the CPU.
inline Variable copy_from_cpu_input(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("CopyFromCPUInput");
  return call.run1({&input, 1}, {}, place);
}

// A copy on the CPU of a tensor on the accelerator.
inline Variable copy_gpu_to_cpu(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("CopyGPUToCPU");
  return call.run1({&input, 1}, {}, place);
}

// The cosine, element by element.
inline Variable cos(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Cos");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable cos_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Cos", {0});
  return call.run1({&x, 1}, {}, place);
}

// Cosines of the angles between rows.
inline Variable cosine_similarity(const Variable& x, const Variable& y, Place place = Place::here()) {
  static const TypedCall call("CosineSimilarity");
  const Variable given[] = {x, y};
  return call.run1(given, {}, place);
}

struct CrossArgs {
  std::optional<int32_t> axis = {};  // the dimension of 3 elements along which the vectors lie; -1 if not given
  ArgList list() const { return ArgList().add("axis", axis); }
};
// Cross products of the vectors along one axis.
inline Variable cross(const Variable& a, const Variable& b, const CrossArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Cross");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

// Cross entropy of the probabilities in each row with a distribution; one below 1e-20 counts as 1e-20.
inline Variable cross_entropy(const Variable& x, const Variable& label, Place place = Place::here()) {
  static const TypedCall call("CrossEntropy");
  const Variable given[] = {x, label};
  return call.run1(given, {}, place);
}

struct CumsumArgs {
  std::optional<int32_t> axis = {};  // the dimension to add along, a negative one counted from the end; required
  std::optional<bool> exclusive = {};  // leave the element itself out, so that the first sum is 0; false if not given
  std::optional<bool> reverse = {};  // begin at the end; false if not given
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("exclusive", exclusive)
        .add("reverse", reverse);
  }
};
// Sums of all elements up to each along an axis.
inline Variable cumsum(const Variable& x, const CumsumArgs& args, Place place = Place::here()) {
  static const TypedCall call("Cumsum");
  return call.run1({&x, 1}, args.list(), place);
}

struct DiagonalFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg value = {};  // the value, in f, i or s as its type needs; 0 or the empty string if absent
  std::optional<int64_t> dtype = {};  // the element type as a number of the format
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("value", value)
        .add("dtype", dtype);
  }
};
// A tensor that is one value where all indices are equal, and 0 elsewhere; the type is as ConstantFill's.
inline Variable diagonal_fill(const Variable& input = {}, const DiagonalFillArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("DiagonalFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable diagonal_fill_(const Variable& input, const DiagonalFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("DiagonalFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct DivArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Quotient of two tensors, element by element.
inline Variable div(const Variable& a, const Variable& b, const DivArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Div");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable div_(const Variable& a, const Variable& b, const DivArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Div", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

// Dot products of rows; of two vectors, given as [1, K], it is one number.
inline Variable dot_product(const Variable& x, const Variable& y, Place place = Place::here()) {
  static const TypedCall call("DotProduct");
  const Variable given[] = {x, y};
  return call.run1(given, {}, place);
}

struct DropoutArgs {
  std::optional<float> ratio = {};  // the probability of 0; 0.5 if not given
  std::optional<bool> is_test = {};  // drop nothing; false if not given
  // of data [N, C, ...], drop whole channels: one draw for each [N, C]; false if not given
  std::optional<bool> channels = {};
  int outputs = 2;  // how many are asked for, the first so many of 2
  ArgList list() const {
    return ArgList()
        .add("ratio", ratio)
        .add("is_test", is_test)
        .add("channels", channels);
  }
};
struct DropoutOutputs {
  // the data with gaps
  Variable output;
  // true where the data was kept; undefined if not asked for
  Variable mask;
  operator const Variable&() const { return output; }
};
// Sets elements, or whole channels, to 0 at random and scales the others by 1 / (1 - ratio), so that the mean stays.
inline DropoutOutputs dropout(const Variable& data, const DropoutArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Dropout");
  std::array<Variable, 2> made;
  call.run_into(made, {&data, 1}, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}
// The same, written over data.
inline DropoutOutputs dropout_(const Variable& data, const DropoutArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Dropout", {0, -1});
  std::array<Variable, 2> made;
  call.run_into(made, {&data, 1}, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct EQArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A equals B, element by element.
inline Variable eq(const Variable& a, const Variable& b, const EQArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("EQ");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct ElementwiseLinearArgs {
  // X is flattened to a matrix whose rows are the dimensions before this one; 1 if not given
  std::optional<int32_t> axis = {};
  ArgList list() const { return ArgList().add("axis", axis); }
};
// A factor and an addend for each column: Y = X w + b.
inline Variable elementwise_linear(const Variable& x, const Variable& w, const Variable& b,
    const ElementwiseLinearArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ElementwiseLinear");
  const Variable given[] = {x, w, b};
  return call.run1(given, args.list(), place);
}
// The same, written over x.
inline Variable elementwise_linear_(const Variable& x, const Variable& w, const Variable& b,
    const ElementwiseLinearArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ElementwiseLinear", {0});
  const Variable given[] = {x, w, b};
  return call.run1(given, args.list(), place);
}

struct EluArgs {
  std::optional<float> alpha = {};  // minus the limit for small X; 1 if not given
  ArgList list() const { return ArgList().add("alpha", alpha); }
};
// X where it is positive, else alpha (exp(X) - 1).
inline Variable elu(const Variable& x, const EluArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Elu");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable elu_(const Variable& x, const EluArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Elu", {0});
  return call.run1({&x, 1}, args.list(), place);
}

// A copy on the CPU of a tensor on any device.
inline Variable ensure_cpu_output(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("EnsureCPUOutput");
  return call.run1({&input, 1}, {}, place);
}

// The identity; marks a blob whose gradient is wanted dense.
inline Variable ensure_dense(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("EnsureDense");
  return call.run1({&input, 1}, {}, place);
}
// The same, written over input.
inline Variable ensure_dense_(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("EnsureDense", {0});
  return call.run1({&input, 1}, {}, place);
}

// The error function, element by element.
inline Variable erf(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Erf");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable erf_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Erf", {0});
  return call.run1({&x, 1}, {}, place);
}

// The exponential function, element by element.
inline Variable exp(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Exp");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable exp_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Exp", {0});
  return call.run1({&x, 1}, {}, place);
}

struct ExpandArgs {
  ListArg<int64_t> shape = {};  // the new shape, unless it is an input; -1 keeps a size
  ArgList list() const { return ArgList().add("shape", shape); }
};
// Repeats a tensor along dimensions of size 1, and along new leading ones, to a larger shape.
inline Variable expand(const Variable& x, const Variable& shape = {}, const ExpandArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Expand");
  const Variable given[] = {x, shape};
  return call.run1(given, args.list(), place);
}

struct ExpandDimsArgs {
  ListArg<int64_t> dims = {};  // places in the longer shape, from 0; required
  ArgList list() const { return ArgList().add("dims", dims); }
};
// Inserts dimensions of size 1.
inline Variable expand_dims(const Variable& data, const ExpandDimsArgs& args, Place place = Place::here()) {
  static const TypedCall call("ExpandDims");
  return call.run1({&data, 1}, args.list(), place);
}
// The same, written over data.
inline Variable expand_dims_(const Variable& data, const ExpandDimsArgs& args, Place place = Place::here()) {
  static const TypedCall call("ExpandDims", {0});
  return call.run1({&data, 1}, args.list(), place);
}

// The exponential function less 1, exact for small numbers, too, element by element.
inline Variable expm1(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Expm1");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable expm1_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Expm1", {0});
  return call.run1({&x, 1}, {}, place);
}

struct FCArgs {
  // X is flattened to a matrix whose rows are the dimensions before this one; 1 if not given
  std::optional<int32_t> axis = {};
  std::optional<int32_t> axis_w = {};  // the same for W; 1 if not given
  ArgList list() const { return ArgList().add("axis", axis).add("axis_w", axis_w); }
};
// Fully connected layer: Y = X W^T + b.
inline Variable fc(const Variable& x, const Variable& w, const Variable& b, const FCArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("FC");
  const Variable given[] = {x, w, b};
  return call.run1(given, args.list(), place);
}

struct FCColumnsArgs {
  // X is flattened to a matrix whose rows are the dimensions before this one; 1 if not given
  std::optional<int32_t> axis = {};
  // the first of W's columns that X is multiplied by; not with parts; 0 if not given
  std::optional<int64_t> first = {};
  // how many of the parts have the columns before X's; the others follow X's; 0 if not given
  std::optional<int64_t> before = {};
  std::optional<bool> from_end = {};  // columns are counted from W's last one, not from its first; false if not given
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("first", first)
        .add("before", before)
        .add("from_end", from_end);
  }
};
// Fully connected layer with some columns of the weights: Y = X W[:, first : first + k]^T + b.
inline Variable fc_columns(const Variable& x, const Variable& w, const Variable& b = {},
    const std::vector<Variable>& parts = {}, const FCColumnsArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("FCColumns");
  return call.run1(joined({x, w, b}, parts), args.list(), place);
}

struct FCTransposedArgs {
  // X is flattened to a matrix whose rows are the dimensions before this one; 1 if not given
  std::optional<int32_t> axis = {};
  std::optional<int32_t> axis_w = {};  // the same for W; 1 if not given
  ArgList list() const { return ArgList().add("axis", axis).add("axis_w", axis_w); }
};
// Fully connected layer whose weights are [K, N]: Y = X W + b.
inline Variable fc_transposed(const Variable& x, const Variable& w, const Variable& b,
    const FCTransposedArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("FCTransposed");
  const Variable given[] = {x, w, b};
  return call.run1(given, args.list(), place);
}

struct FModArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// The remainder of a division, with A's sign, element by element; NaN where B is 0.
inline Variable fmod(const Variable& a, const Variable& b, const FModArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("FMod");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable fmod_(const Variable& a, const Variable& b, const FModArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("FMod", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct FlattenArgs {
  std::optional<int64_t> axis = {};  // the first dimension that is columns; those before it are rows; 1 if not given
  ArgList list() const { return ArgList().add("axis", axis); }
};
// The same elements as a matrix.
inline Variable flatten(const Variable& input, const FlattenArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Flatten");
  return call.run1({&input, 1}, args.list(), place);
}

// The same elements in one dimension.
inline Variable flatten_to_vec(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("FlattenToVec");
  return call.run1({&input, 1}, {}, place);
}

// The largest integer that is not greater, element by element.
inline Variable floor(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Floor");
  return call.run1({&x, 1}, {}, place);
}

struct GEArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A is at least B, element by element.
inline Variable ge(const Variable& a, const Variable& b, const GEArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("GE");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct GRUUnitArgs {
  // rows past their length get zeros instead of keeping states; false if not given
  std::optional<bool> drop_states = {};
  std::optional<bool> sequence_lengths = {};  // whether there is an input seq_lengths; true if not given
  ArgList list() const { return ArgList().add("drop_states", drop_states).add("sequence_lengths", sequence_lengths); }
};
// The end of one step of a GRU from its gates' sums.
inline Variable gru_unit(const Variable& h_prev, const Variable& gates, const Variable& seq_lengths_or_timestep,
    const Variable& timestep = {}, const GRUUnitArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("GRUUnit");
  const Variable given[] = {h_prev, gates, seq_lengths_or_timestep, timestep};
  return call.run1(given, args.list(), place);
}

struct GTArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A is greater than B, element by element.
inline Variable gt(const Variable& a, const Variable& b, const GTArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("GT");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct GatherArgs {
  // give DATA a dense gradient of its full size instead of rows and their indices; false if not given
  std::optional<bool> dense_gradient = {};
  ArgList list() const { return ArgList().add("dense_gradient", dense_gradient); }
};
// Rows of a table by index.
inline Variable gather(const Variable& data, const Variable& indices, const GatherArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Gather");
  const Variable given[] = {data, indices};
  return call.run1(given, args.list(), place);
}

struct GatherPaddingArgs {
  std::optional<int64_t> padding_width = {};  // rows in front of each segment; 1 if not given
  // rows behind each segment; negative: as many as in front; -1 if not given
  std::optional<int64_t> end_padding_width = {};
  ArgList list() const { return ArgList().add("padding_width", padding_width).add("end_padding_width",
    end_padding_width); }
};
// The sum of all rows of padding in front of segments, and of those behind; or, with one output, of all.
inline std::vector<Variable> gather_padding(const Variable& data_in, const Variable& lengths, int outputs,
    const GatherPaddingArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("GatherPadding");
  const Variable given[] = {data_in, lengths};
  return call.run(given, args.list(), outputs, place);
}

struct GatherRangesArgs {
  int outputs = 1;  // how many are asked for, the first so many of 2
  ArgList list() const { return ArgList(); }
};
struct GatherRangesOutputs {
  // [rows of all ranges, ...]
  Variable output;
  // [N], how many rows each example has, int32; undefined if not asked for
  Variable lengths;
  operator const Variable&() const { return output; }
};
// Rows of a tensor by ranges, one after the other.
inline GatherRangesOutputs gather_ranges(const Variable& data, const Variable& ranges,
    const GatherRangesArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("GatherRanges");
  const Variable given[] = {data, ranges};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct GaussianFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  std::optional<int64_t> dtype = {};  // FLOAT (1) or DOUBLE (13); 1 if not given
  std::optional<float> mean = {};  // the mean; 0 if not given
  std::optional<float> std = {};  // the standard deviation; 1 if not given
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("dtype", dtype)
        .add("mean", mean)
        .add("std", std);
  }
};
// Random numbers of the normal distribution.
inline Variable gaussian_fill(const Variable& input = {}, const GaussianFillArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("GaussianFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable gaussian_fill_(const Variable& input, const GaussianFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("GaussianFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct GeluArgs {
  std::optional<bool> fast_gelu = {};  // an approximation, which is not there; false if not given
  ArgList list() const { return ArgList().add("fast_gelu", fast_gelu); }
};
// X times the normal distribution function of X, element by element.
inline Variable gelu(const Variable& x, const GeluArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Gelu");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable gelu_(const Variable& x, const GeluArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Gelu", {0});
  return call.run1({&x, 1}, args.list(), place);
}

// The outer product of two vectors.
inline Variable ger(const Variable& x, const Variable& y, Place place = Place::here()) {
  static const TypedCall call("Ger");
  const Variable given[] = {x, y};
  return call.run1(given, {}, place);
}

struct GivenTensorBoolFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg values = {};  // the elements in row-major order: floats, ints or strings; required
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("values", values);
  }
};
// A bool tensor of given values; integers other than 0 are true.
inline Variable given_tensor_bool_fill(const Variable& input, const GivenTensorBoolFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorBoolFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable given_tensor_bool_fill_(const Variable& input, const GivenTensorBoolFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorBoolFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct GivenTensorDoubleFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg values = {};  // the elements in row-major order: floats, ints or strings; required
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("values", values);
  }
};
// A double tensor of given values, read from floats.
inline Variable given_tensor_double_fill(const Variable& input, const GivenTensorDoubleFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorDoubleFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable given_tensor_double_fill_(const Variable& input, const GivenTensorDoubleFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorDoubleFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct GivenTensorFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg values = {};  // the elements in row-major order: floats, ints or strings; required
  std::optional<int64_t> dtype = {};  // the element type as a number of the format; 1 if not given
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("values", values)
        .add("dtype", dtype);
  }
};
// A tensor of given values, float unless "dtype" says otherwise.
inline Variable given_tensor_fill(const Variable& input, const GivenTensorFillArgs& args, Place place = Place::here()) {
  static const TypedCall call("GivenTensorFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable given_tensor_fill_(const Variable& input, const GivenTensorFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct GivenTensorInt64FillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg values = {};  // the elements in row-major order: floats, ints or strings; required
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("values", values);
  }
};
// An int64 tensor of given values.
inline Variable given_tensor_int64_fill(const Variable& input, const GivenTensorInt64FillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorInt64Fill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable given_tensor_int64_fill_(const Variable& input, const GivenTensorInt64FillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorInt64Fill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct GivenTensorIntFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg values = {};  // the elements in row-major order: floats, ints or strings; required
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("values", values);
  }
};
// An int32 tensor of given values.
inline Variable given_tensor_int_fill(const Variable& input, const GivenTensorIntFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorIntFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable given_tensor_int_fill_(const Variable& input, const GivenTensorIntFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorIntFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct GivenTensorStringFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  AnyArg values = {};  // the elements in row-major order: floats, ints or strings; required
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("values", values);
  }
};
// A string tensor of given values.
inline Variable given_tensor_string_fill(const Variable& input, const GivenTensorStringFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorStringFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable given_tensor_string_fill_(const Variable& input, const GivenTensorStringFillArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("GivenTensorStringFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct HardSigmoidArgs {
  std::optional<float> alpha = {};  // the slope between the bounds; 0.2 if not given
  std::optional<float> beta = {};  // the value at 0; 0.5 if not given
  ArgList list() const { return ArgList().add("alpha", alpha).add("beta", beta); }
};
// A line between the bounds 0 and 1, element by element.
inline Variable hard_sigmoid(const Variable& x, const HardSigmoidArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("HardSigmoid");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable hard_sigmoid_(const Variable& x, const HardSigmoidArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("HardSigmoid", {0});
  return call.run1({&x, 1}, args.list(), place);
}

struct IndexAddArgs {
  std::optional<int32_t> axis = {};  // the dimension that is indexed; 0 if not given
  ArgList list() const { return ArgList().add("axis", axis); }
};
// Adds slices to a tensor at given indices of one axis; those of equal indices add up.
inline Variable index_add(const Variable& data, const Variable& indices, const Variable& src,
    const IndexAddArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("IndexAdd");
  const Variable given[] = {data, indices, src};
  return call.run1(given, args.list(), place);
}
// The same, written over data.
inline Variable index_add_(const Variable& data, const Variable& indices, const Variable& src,
    const IndexAddArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("IndexAdd", {0});
  const Variable given[] = {data, indices, src};
  return call.run1(given, args.list(), place);
}

// Sums of the absolute differences of rows.
inline Variable l1_distance(const Variable& x, const Variable& y, Place place = Place::here()) {
  static const TypedCall call("L1Distance");
  const Variable given[] = {x, y};
  return call.run1(given, {}, place);
}

struct LEArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A is at most B, element by element.
inline Variable le(const Variable& a, const Variable& b, const LEArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LE");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct LSTMUnitArgs {
  std::optional<float> forget_bias = {};  // added to the forget gate before its sigmoid; 0 if not given
  // rows past their length get zeros instead of keeping states; false if not given
  std::optional<bool> drop_states = {};
  std::optional<bool> sequence_lengths = {};  // whether there is an input seq_lengths; true if not given
  // the gradient reads the third output, the gates' values, in place of their sums; false if not given
  std::optional<bool> activated_gates = {};
  int outputs = 2;  // how many are asked for, the first so many of 3
  ArgList list() const {
    return ArgList()
        .add("forget_bias", forget_bias)
        .add("drop_states", drop_states)
        .add("sequence_lengths", sequence_lengths)
        .add("activated_gates", activated_gates);
  }
};
struct LSTMUnitOutputs {
  // like H_prev
  Variable h;
  // like C_prev
  Variable c;
  // like gates: i, f, o, g; undefined in rows past their length; undefined if not asked for
  Variable activated;
};
// One step of an LSTM from its gates' sums.
inline LSTMUnitOutputs lstm_unit(const Variable& h_prev, const Variable& c_prev, const Variable& gates,
    const Variable& seq_lengths_or_timestep, const Variable& timestep = {}, const LSTMUnitArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("LSTMUnit");
  const Variable given[] = {h_prev, c_prev, gates, seq_lengths_or_timestep, timestep};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct LTArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A is less than B, element by element.
inline Variable lt(const Variable& a, const Variable& b, const LTArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LT");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

// Negative logarithm of the probability of each row's label; one below 1e-20 counts as 1e-20.
inline Variable label_cross_entropy(const Variable& x, const Variable& label, Place place = Place::here()) {
  static const TypedCall call("LabelCrossEntropy");
  const Variable given[] = {x, label};
  return call.run1(given, {}, place);
}

struct LayerNormArgs {
  std::optional<int32_t> axis = {};  // where a row begins; 1 if not given
  std::optional<float> epsilon = {};  // added to the variance; 1e-05 if not given
  std::optional<bool> elementwise_affine = {};  // whether there are inputs gamma and beta; false if not given
  int outputs = 3;  // how many are asked for, the first so many of 3
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("epsilon", epsilon)
        .add("elementwise_affine", elementwise_affine);
  }
};
struct LayerNormOutputs {
  // like X
  Variable y;
  // of each row: X's dimensions before axis, then 1; undefined if not asked for
  Variable mean;
  // of each row, epsilon included: like mean; undefined if not asked for
  Variable std;
  operator const Variable&() const { return y; }
};
// Each row less its mean, divided by its standard deviation; with elementwise_affine scaled and shifted.
inline LayerNormOutputs layer_norm(const Variable& x, const Variable& gamma = {}, const Variable& beta = {},
    const LayerNormArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LayerNorm");
  const Variable given[] = {x, gamma, beta};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct LeakyReluArgs {
  std::optional<float> alpha = {};  // the slope of what is negative; 0.01 if not given
  ArgList list() const { return ArgList().add("alpha", alpha); }
};
// X where it is positive, else alpha X.
inline Variable leaky_relu(const Variable& x, const LeakyReluArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LeakyRelu");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable leaky_relu_(const Variable& x, const LeakyReluArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LeakyRelu", {0});
  return call.run1({&x, 1}, args.list(), place);
}

struct LearningRateArgs {
  std::optional<float> base_lr = {};  // the rate at multiplier 1; negative for WeightedSum and Adam; required
  // fixed, step, exp, inv, poly, linearWarmup, constantWarmup, alter or hill; required
  std::optional<std::string> policy = {};
  std::optional<float> gamma = {};  // step, exp, inv, hill: the factor
  std::optional<float> power = {};  // inv, poly, hill: the exponent
  std::optional<int64_t> stepsize = {};  // step: iterations between two changes
  std::optional<int64_t> max_iter = {};  // poly: the iteration at which the rate is 0
  std::optional<float> start_multiplier = {};  // linearWarmup, hill: the first multiplier
  std::optional<int64_t> num_iter = {};  // linearWarmup, constantWarmup, hill: iterations of warm-up
  std::optional<float> multiplier = {};  // constantWarmup: the multiplier during warm-up; 0.5 if not given
  std::optional<int64_t> active_period = {};  // alter: iterations at 1
  std::optional<int64_t> inactive_period = {};  // alter: iterations at 0
  std::optional<bool> active_first = {};  // alter: begin at 1; true if not given
  std::optional<float> end_multiplier = {};  // hill: the least multiplier after warm-up; 0 if not given
  ArgList list() const {
    return ArgList()
        .add("base_lr", base_lr)
        .add("policy", policy)
        .add("gamma", gamma)
        .add("power", power)
        .add("stepsize", stepsize)
        .add("max_iter", max_iter)
        .add("start_multiplier", start_multiplier)
        .add("num_iter", num_iter)
        .add("multiplier", multiplier)
        .add("active_period", active_period)
        .add("inactive_period", inactive_period)
        .add("active_first", active_first)
        .add("end_multiplier", end_multiplier);
  }
};
// base_lr times a multiplier that depends on the iteration; see the policies.
inline Variable learning_rate(const Variable& iter, const LearningRateArgs& args, Place place = Place::here()) {
  static const TypedCall call("LearningRate");
  return call.run1({&iter, 1}, args.list(), place);
}

// The largest of each segment's rows, column by column; zeros for an empty segment.
inline Variable lengths_max(const Variable& data, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsMax");
  const Variable given[] = {data, lengths};
  return call.run1(given, {}, place);
}

// The mean of each segment's rows.
inline Variable lengths_mean(const Variable& data, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsMean");
  const Variable given[] = {data, lengths};
  return call.run1(given, {}, place);
}

// The numbers from 0 to length - 1, for each segment.
inline Variable lengths_range_fill(const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsRangeFill");
  return call.run1({&lengths, 1}, {}, place);
}

// The sum of each segment's rows.
inline Variable lengths_sum(const Variable& data, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsSum");
  const Variable given[] = {data, lengths};
  return call.run1(given, {}, place);
}

// Each row as often as its length says, one after the other.
inline Variable lengths_tile(const Variable& data, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsTile");
  const Variable given[] = {data, lengths};
  return call.run1(given, {}, place);
}

// The first place and the length of each segment.
inline Variable lengths_to_ranges(const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsToRanges");
  return call.run1({&lengths, 1}, {}, place);
}

// The segment that each place belongs to.
inline Variable lengths_to_segment_ids(const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsToSegmentIds");
  return call.run1({&lengths, 1}, {}, place);
}

// The number of segments and the length that all of them have.
inline Variable lengths_to_shape(const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("LengthsToShape");
  return call.run1({&lengths, 1}, {}, place);
}

struct LengthsToWeightsArgs {
  std::optional<float> power = {};  // the weight is 1 / length^power; 0.5 if not given
  ArgList list() const { return ArgList().add("power", power); }
};
// A weight for each place, by the length of its segment.
inline Variable lengths_to_weights(const Variable& lengths, const LengthsToWeightsArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("LengthsToWeights");
  return call.run1({&lengths, 1}, args.list(), place);
}

// The weighted sum of each segment's rows.
inline Variable lengths_weighted_sum(const Variable& data, const Variable& weights, const Variable& lengths,
    Place place = Place::here()) {
  static const TypedCall call("LengthsWeightedSum");
  const Variable given[] = {data, weights, lengths};
  return call.run1(given, {}, place);
}

// The natural logarithm, element by element.
inline Variable log(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Log");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable log_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Log", {0});
  return call.run1({&x, 1}, {}, place);
}

// The natural logarithm of 1 + X, exact for small numbers, too, element by element.
inline Variable log1p(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Log1p");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable log1p_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Log1p", {0});
  return call.run1({&x, 1}, {}, place);
}

struct LogSoftmaxArgs {
  std::optional<int32_t> axis = {};  // where a row begins; 1 if not given
  ArgList list() const { return ArgList().add("axis", axis); }
};
// The logarithm of Softmax, over everything from axis on, exact also where Softmax is too small for its type.
inline Variable log_softmax(const Variable& x, const LogSoftmaxArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LogSoftmax");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable log_softmax_(const Variable& x, const LogSoftmaxArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("LogSoftmax", {0});
  return call.run1({&x, 1}, args.list(), place);
}

// The mean of the squared differences of all elements.
inline Variable mse_loss(const Variable& x, const Variable& y, Place place = Place::here()) {
  static const TypedCall call("MSELoss");
  const Variable given[] = {x, y};
  return call.run1(given, {}, place);
}

struct MSRAFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  std::optional<int64_t> dtype = {};  // FLOAT (1) or DOUBLE (13); 1 if not given
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("dtype", dtype);
  }
};
// Initial weights, normal with deviation sqrt(2 / fan_out), where fan_out is the size over the second dimension.
inline Variable msra_fill(const Variable& input = {}, const MSRAFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MSRAFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable msra_fill_(const Variable& input, const MSRAFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MSRAFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct MVArgs {
  std::optional<bool> trans = {};  // A is transposed; false if not given
  ArgList list() const { return ArgList().add("trans", trans); }
};
// A matrix times a vector.
inline Variable mv(const Variable& a, const Variable& x, const MVArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MV");
  const Variable given[] = {a, x};
  return call.run1(given, args.list(), place);
}

struct MaskByLengthArgs {
  std::optional<bool> beyond = {};  // keep the rows of samples that are over, and no others; false if not given
  ArgList list() const { return ArgList().add("beyond", beyond); }
};
// Rows of samples that are not over; in the others zero, or another tensor's rows.
inline Variable mask_by_length(const Variable& x, const Variable& lengths, const Variable& timestep,
    const Variable& beyond = {}, const MaskByLengthArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MaskByLength");
  const Variable given[] = {x, lengths, timestep, beyond};
  return call.run1(given, args.list(), place);
}
// The same, written over x.
inline Variable mask_by_length_(const Variable& x, const Variable& lengths, const Variable& timestep,
    const Variable& beyond = {}, const MaskByLengthArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MaskByLength", {0});
  const Variable given[] = {x, lengths, timestep, beyond};
  return call.run1(given, args.list(), place);
}

struct MatMulArgs {
  std::optional<int32_t> axis_a = {};  // A's rows are its dimensions before this one; 1 if not given
  std::optional<int32_t> axis_b = {};  // the same for B; 1 if not given
  std::optional<bool> trans_a = {};  // A is transposed after flattening; false if not given
  std::optional<bool> trans_b = {};  // the same for B; false if not given
  // where Y_shape is flattened; for gradients of operands with other axes; 1 if not given
  std::optional<int32_t> axis_y = {};
  ArgList list() const {
    return ArgList()
        .add("axis_a", axis_a)
        .add("axis_b", axis_b)
        .add("trans_a", trans_a)
        .add("trans_b", trans_b)
        .add("axis_y", axis_y);
  }
};
// Product of two matrices.
inline Variable mat_mul(const Variable& a, const Variable& b, const Variable& y_shape = {}, const MatMulArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("MatMul");
  const Variable given[] = {a, b, y_shape};
  return call.run1(given, args.list(), place);
}

// Makes one dimension of the first two.
inline Variable merge_dim(const Variable& data, Place place = Place::here()) {
  static const TypedCall call("MergeDim");
  return call.run1({&data, 1}, {}, place);
}

struct MomentumSGDArgs {
  std::optional<float> momentum = {};  // how much of the last step remains; 0 if not given
  std::optional<bool> nesterov = {};  // look ahead by the momentum; false if not given
  ArgList list() const { return ArgList().add("momentum", momentum).add("nesterov", nesterov); }
};
struct MomentumSGDOutputs {
  // the step
  Variable output_grad;
  // the momentum after the step
  Variable output_momentum;
};
// The step of gradient descent with momentum, plain or by Nesterov; another operator subtracts it from the parameter.
inline MomentumSGDOutputs momentum_sgd(const Variable& grad, const Variable& momentum, const Variable& lr,
    const MomentumSGDArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MomentumSGD");
  const Variable given[] = {grad, momentum, lr};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}
// The same, written over grad, momentum.
inline MomentumSGDOutputs momentum_sgd_(const Variable& grad, const Variable& momentum, const Variable& lr,
    const MomentumSGDArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MomentumSGD", {0, 1});
  const Variable given[] = {grad, momentum, lr};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct MomentumSGDUpdateArgs {
  std::optional<float> momentum = {};  // how much of the last step remains; 0 if not given
  std::optional<bool> nesterov = {};  // look ahead by the momentum; false if not given
  ArgList list() const { return ArgList().add("momentum", momentum).add("nesterov", nesterov); }
};
struct MomentumSGDUpdateOutputs {
  // the step
  Variable output_grad;
  // the momentum after the step
  Variable output_momentum;
  // the parameter after the step
  Variable output_param;
};
// Gradient descent with momentum, plain or by Nesterov: subtracts the step from the parameter.
inline MomentumSGDUpdateOutputs momentum_sgd_update(const Variable& grad, const Variable& momentum, const Variable& lr,
    const Variable& param, const MomentumSGDUpdateArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MomentumSGDUpdate");
  const Variable given[] = {grad, momentum, lr, param};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}
// The same, written over grad, momentum, param.
inline MomentumSGDUpdateOutputs momentum_sgd_update_(const Variable& grad, const Variable& momentum, const Variable& lr,
    const Variable& param, const MomentumSGDUpdateArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("MomentumSGDUpdate", {0, 1, 3});
  const Variable given[] = {grad, momentum, lr, param};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct MulArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Product of two tensors, element by element.
inline Variable mul(const Variable& a, const Variable& b, const MulArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Mul");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable mul_(const Variable& a, const Variable& b, const MulArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Mul", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct NEArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A differs from B, element by element.
inline Variable ne(const Variable& a, const Variable& b, const NEArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("NE");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

// Passes a tensor through, or fails with the place of its first element that is NaN or infinite.
inline Variable nan_check(const Variable& x, const std::vector<Variable>& others = {}, Place place = Place::here()) {
  static const TypedCall call("NanCheck");
  return call.run1(joined({x}, others), {}, place);
}
// The same, written over x.
inline Variable nan_check_(const Variable& x, const std::vector<Variable>& others = {}, Place place = Place::here()) {
  static const TypedCall call("NanCheck", {0});
  return call.run1(joined({x}, others), {}, place);
}

// The negative, element by element.
inline Variable negative(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Negative");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable negative_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Negative", {0});
  return call.run1({&x, 1}, {}, place);
}

struct NormalizeArgs {
  // the dimension that lines run along, a negative one counted from the end; -1 if not given
  std::optional<int32_t> axis = {};
  ArgList list() const { return ArgList().add("axis", axis); }
};
// Divides each line along an axis by its Euclidean norm, if that is not below 1e-12.
inline Variable normalize(const Variable& x, const NormalizeArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Normalize");
  return call.run1({&x, 1}, args.list(), place);
}

// Where X is false, element by element.
inline Variable not_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Not");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable not_in_place(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Not", {0});
  return call.run1({&x, 1}, {}, place);
}

// Rows that are 1 at an index and 0 elsewhere.
inline Variable one_hot(const Variable& indices, const Variable& index_size, Place place = Place::here()) {
  static const TypedCall call("OneHot");
  const Variable given[] = {indices, index_size};
  return call.run1(given, {}, place);
}

struct OrArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where A or B or both are true, element by element.
inline Variable or_(const Variable& a, const Variable& b, const OrArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Or");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable or_in_place(const Variable& a, const Variable& b, const OrArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Or", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct PReluArgs {
  std::optional<std::string> order = {};  // whether channels are dimension 1 or the last; "NCHW" if not given
  ArgList list() const { return ArgList().add("order", order); }
};
// X where it is positive, else X times a slope, which is a parameter.
inline Variable prelu(const Variable& x, const Variable& slope, const PReluArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("PRelu");
  const Variable given[] = {x, slope};
  return call.run1(given, args.list(), place);
}
// The same, written over x.
inline Variable prelu_(const Variable& x, const Variable& slope, const PReluArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("PRelu", {0});
  const Variable given[] = {x, slope};
  return call.run1(given, args.list(), place);
}

// Samples that stand one after the other become columns of a sequence, with zeros behind their ends.
inline Variable pack_rnn_sequence(const Variable& values, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("PackRNNSequence");
  const Variable given[] = {values, lengths};
  return call.run1(given, {}, place);
}

struct PackSegmentsArgs {
  std::optional<bool> pad_minf = {};  // minus infinity, not zero, stands behind the ends; false if not given
  std::optional<bool> return_presence_mask = {};  // there is a second output; false if not given
  // how many rows of each segment are kept, and the length of the packed ones; -1: that of the longest; -1 if not given
  std::optional<int64_t> max_length = {};
  int outputs = 1;  // how many are asked for, the first so many of 2
  ArgList list() const {
    return ArgList()
        .add("pad_minf", pad_minf)
        .add("return_presence_mask", return_presence_mask)
        .add("max_length", max_length);
  }
};
struct PackSegmentsOutputs {
  // [N, longest, ...], or [N, max_length, ...]
  Variable packed_tensor;
  // [N, longest], true where a segment has a row; undefined if not asked for
  Variable presence_mask;
  operator const Variable&() const { return packed_tensor; }
};
// Segments that stand one after the other become rows of one length.
inline PackSegmentsOutputs pack_segments(const Variable& lengths, const Variable& tensor,
    const PackSegmentsArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("PackSegments");
  const Variable given[] = {lengths, tensor};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct PadArgs {
  // how many elements more each dimension has at its beginning, for all dimensions, then how many at its end; negative:
  // fewer; required
  ListArg<int64_t> pads = {};
  std::optional<std::string> mode = {};  // what they are: constant, edge or reflect; "constant" if not given
  std::optional<float> value = {};  // mode constant: the value; a whole number for integers; 0 if not given
  ArgList list() const {
    return ArgList()
        .add("pads", pads)
        .add("mode", mode)
        .add("value", value);
  }
};
// More elements at the beginnings and ends of dimensions: one value, the nearest element, or the elements on the other
// side of the edge, of which there must be as many.
inline Variable pad(const Variable& x, const PadArgs& args, Place place = Place::here()) {
  static const TypedCall call("Pad");
  return call.run1({&x, 1}, args.list(), place);
}

struct PowArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  std::optional<float> exponent = {};  // the exponent, unless it is an input
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order)
        .add("exponent", exponent);
  }
};
// X to the power of the exponent, element by element.
inline Variable pow(const Variable& x, const Variable& exponent = {}, const PowArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Pow");
  const Variable given[] = {x, exponent};
  return call.run1(given, args.list(), place);
}
// The same, written over x.
inline Variable pow_(const Variable& x, const Variable& exponent = {}, const PowArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Pow", {0});
  const Variable given[] = {x, exponent};
  return call.run1(given, args.list(), place);
}

struct PrependDimArgs {
  std::optional<int64_t> dim_size = {};  // the size of the first of the two; required
  ArgList list() const { return ArgList().add("dim_size", dim_size); }
};
// Makes two dimensions of the first.
inline Variable prepend_dim(const Variable& data, const PrependDimArgs& args, Place place = Place::here()) {
  static const TypedCall call("PrependDim");
  return call.run1({&data, 1}, args.list(), place);
}

// Numbers at equal distances, from start (0) up to, and without, stop.
inline Variable range(const std::vector<Variable>& bounds, Place place = Place::here()) {
  static const TypedCall call("Range");
  return call.run1(bounds, {}, place);
}

struct RangeFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape);
  }
};
// The numbers 0, 1, 2, ..
inline Variable range_fill(const Variable& input = {}, const RangeFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("RangeFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable range_fill_(const Variable& input, const RangeFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("RangeFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

// One divided by X, element by element.
inline Variable reciprocal(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Reciprocal");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable reciprocal_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Reciprocal", {0});
  return call.run1({&x, 1}, {}, place);
}

struct RecurrentArgs {
  std::optional<int64_t> hidden_size = {};  // H, the width of a state; required
  std::optional<int64_t> num_layers = {};  // L, how many stand on each other; required
  // each layer also runs from the last timestep to the first; false if not given
  std::optional<bool> bidirectional = {};
  // lstm, gru (whose reset gate is applied behind the product), rnn_tanh or rnn_relu; required
  std::optional<std::string> rnn_mode = {};
  // linear; or skip: in place of matrices of the first layer's input there is the identity; required
  std::optional<std::string> input_mode = {};
  // if less than 1, the probability of 0 between layers; 1 or more: nothing is dropped; 1 if not given
  std::optional<float> dropout = {};
  std::optional<int64_t> seed = {};  // makes other draws of the dropout; 0 if not given
  std::optional<bool> is_test = {};  // drop nothing, and keep nothing for a gradient; false if not given
  int outputs = 4;  // how many are asked for, the first so many of 5
  ArgList list() const {
    return ArgList()
        .add("hidden_size", hidden_size)
        .add("num_layers", num_layers)
        .add("bidirectional", bidirectional)
        .add("rnn_mode", rnn_mode)
        .add("input_mode", input_mode)
        .add("dropout", dropout)
        .add("seed", seed)
        .add("is_test", is_test);
  }
};
struct RecurrentOutputs {
  // [T, B, D * H], zeros behind the end of a sample; undefined if not asked for
  Variable output;
  // [L * D, B, H], the last states; undefined if not asked for
  Variable hidden_output;
  // like HIDDEN_OUTPUT, zeros unless it is lstm; undefined if not asked for
  Variable cell_output;
  // bytes for the gradient: on a GPU cuDNN's reserve; undefined if not asked for
  Variable rnn_scratch;
  // bytes for the gradient: on a GPU the states of cuDNN's random numbers; undefined if not asked for
  Variable dropout_states;
  operator const Variable&() const { return output; }
};
// Layers of LSTM, GRU or RNN with all weights in one vector, in the order of cuDNN (recurrent/layers/vendor_weights.h),
// which runs them on a GPU; on the CPU they run as step nets.
inline RecurrentOutputs recurrent(const Variable& input, const Variable& hidden_input, const Variable& cell_input,
    const Variable& weight, const Variable& lengths, const RecurrentArgs& args, Place place = Place::here()) {
  static const TypedCall call("Recurrent");
  const Variable given[] = {input, hidden_input, cell_input, weight, lengths};
  std::array<Variable, 5> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3]), std::move(made[4])};
}

struct RecurrentParamGetArgs {
  std::optional<int64_t> hidden_size = {};  // H, the width of a state; required
  std::optional<int64_t> num_layers = {};  // L, how many stand on each other; required
  // each layer also runs from the last timestep to the first; false if not given
  std::optional<bool> bidirectional = {};
  // lstm, gru (whose reset gate is applied behind the product), rnn_tanh or rnn_relu; required
  std::optional<std::string> rnn_mode = {};
  // linear; or skip: in place of matrices of the first layer's input there is the identity; required
  std::optional<std::string> input_mode = {};
  std::optional<int64_t> layer = {};  // its number; of layers in both directions layer * 2 + direction; 0 if not given
  // the gate, and w for its matrix or b for its bias: of lstm input_gate_w, forget_gate_w, cell_w, output_gate_w,
  // input_gate_b and so on; of gru reset_gate_w, update_gate_w, cell_w; of others cell_w; required
  std::optional<std::string> param_type = {};
  // recurrent: what is applied to the state; anything else: to the input; "" if not given
  std::optional<std::string> input_type = {};
  ArgList list() const {
    return ArgList()
        .add("hidden_size", hidden_size)
        .add("num_layers", num_layers)
        .add("bidirectional", bidirectional)
        .add("rnn_mode", rnn_mode)
        .add("input_mode", input_mode)
        .add("layer", layer)
        .add("param_type", param_type)
        .add("input_type", input_type);
  }
};
// Reads one matrix or bias out of the weights of Recurrent.
inline Variable recurrent_param_get(const Variable& input, const Variable& all_params,
    const RecurrentParamGetArgs& args, Place place = Place::here()) {
  static const TypedCall call("RecurrentParamGet");
  const Variable given[] = {input, all_params};
  return call.run1(given, args.list(), place);
}

struct RecurrentParamSetArgs {
  std::optional<int64_t> hidden_size = {};  // H, the width of a state; required
  std::optional<int64_t> num_layers = {};  // L, how many stand on each other; required
  // each layer also runs from the last timestep to the first; false if not given
  std::optional<bool> bidirectional = {};
  // lstm, gru (whose reset gate is applied behind the product), rnn_tanh or rnn_relu; required
  std::optional<std::string> rnn_mode = {};
  // linear; or skip: in place of matrices of the first layer's input there is the identity; required
  std::optional<std::string> input_mode = {};
  std::optional<int64_t> layer = {};  // its number; of layers in both directions layer * 2 + direction; 0 if not given
  // the gate, and w for its matrix or b for its bias: of lstm input_gate_w, forget_gate_w, cell_w, output_gate_w,
  // input_gate_b and so on; of gru reset_gate_w, update_gate_w, cell_w; of others cell_w; required
  std::optional<std::string> param_type = {};
  // recurrent: what is applied to the state; anything else: to the input; "" if not given
  std::optional<std::string> input_type = {};
  ArgList list() const {
    return ArgList()
        .add("hidden_size", hidden_size)
        .add("num_layers", num_layers)
        .add("bidirectional", bidirectional)
        .add("rnn_mode", rnn_mode)
        .add("input_mode", input_mode)
        .add("layer", layer)
        .add("param_type", param_type)
        .add("input_type", input_type);
  }
};
// Writes one matrix or bias into the weights of Recurrent.
inline Variable recurrent_param_set_(const Variable& input, const Variable& all_params, const Variable& param,
    const RecurrentParamSetArgs& args, Place place = Place::here()) {
  static const TypedCall call("RecurrentParamSet", {1});
  const Variable given[] = {input, all_params, param};
  return call.run1(given, args.list(), place);
}

struct ReduceL1Args {
  ListArg<int64_t> axes = {};  // the dimensions to reduce, negative ones counted from the end; all if not given
  std::optional<bool> keepdims = {};  // whether they stay in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axes", axes).add("keepdims", keepdims); }
};
// Sums of absolute values over some dimensions.
inline Variable reduce_l1(const Variable& x, const ReduceL1Args& args = {}, Place place = Place::here()) {
  static const TypedCall call("ReduceL1");
  return call.run1({&x, 1}, args.list(), place);
}

struct ReduceL2Args {
  ListArg<int64_t> axes = {};  // the dimensions to reduce, negative ones counted from the end; all if not given
  std::optional<bool> keepdims = {};  // whether they stay in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axes", axes).add("keepdims", keepdims); }
};
// Euclidean norms over some dimensions.
inline Variable reduce_l2(const Variable& x, const ReduceL2Args& args = {}, Place place = Place::here()) {
  static const TypedCall call("ReduceL2");
  return call.run1({&x, 1}, args.list(), place);
}

struct ReduceMaxArgs {
  ListArg<int64_t> axes = {};  // the dimensions to reduce, negative ones counted from the end; all if not given
  std::optional<bool> keepdims = {};  // whether they stay in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axes", axes).add("keepdims", keepdims); }
};
// Maxima over some dimensions.
inline Variable reduce_max(const Variable& x, const ReduceMaxArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ReduceMax");
  return call.run1({&x, 1}, args.list(), place);
}

struct ReduceMeanArgs {
  ListArg<int64_t> axes = {};  // the dimensions to reduce, negative ones counted from the end; all if not given
  std::optional<bool> keepdims = {};  // whether they stay in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axes", axes).add("keepdims", keepdims); }
};
// Means over some dimensions.
inline Variable reduce_mean(const Variable& x, const ReduceMeanArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ReduceMean");
  return call.run1({&x, 1}, args.list(), place);
}

struct ReduceMinArgs {
  ListArg<int64_t> axes = {};  // the dimensions to reduce, negative ones counted from the end; all if not given
  std::optional<bool> keepdims = {};  // whether they stay in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axes", axes).add("keepdims", keepdims); }
};
// Minima over some dimensions.
inline Variable reduce_min(const Variable& x, const ReduceMinArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ReduceMin");
  return call.run1({&x, 1}, args.list(), place);
}

struct ReduceSumArgs {
  ListArg<int64_t> axes = {};  // the dimensions to reduce, negative ones counted from the end; all if not given
  std::optional<bool> keepdims = {};  // whether they stay in the result, with size 1; true if not given
  ArgList list() const { return ArgList().add("axes", axes).add("keepdims", keepdims); }
};
// Sums over some dimensions.
inline Variable reduce_sum(const Variable& x, const ReduceSumArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ReduceSum");
  return call.run1({&x, 1}, args.list(), place);
}

// The larger of X and 0, element by element.
inline Variable relu(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Relu");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable relu_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Relu", {0});
  return call.run1({&x, 1}, {}, place);
}

struct RemovePaddingArgs {
  std::optional<int64_t> padding_width = {};  // rows in front of each segment; 1 if not given
  // rows behind each segment; negative: as many as in front; -1 if not given
  std::optional<int64_t> end_padding_width = {};
  int outputs = 1;  // how many are asked for, the first so many of 2
  ArgList list() const { return ArgList().add("padding_width", padding_width).add("end_padding_width",
    end_padding_width); }
};
struct RemovePaddingOutputs {
  // [sum of lengths_out, ...]; undefined if not asked for
  Variable data_out;
  // [N], or [1] without lengths: how many rows each segment has now; undefined if not asked for
  Variable lengths_out;
  operator const Variable&() const { return data_out; }
};
// Takes the rows of padding away.
inline RemovePaddingOutputs remove_padding(const Variable& data_in, const Variable& lengths = {},
    const RemovePaddingArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("RemovePadding");
  const Variable given[] = {data_in, lengths};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct ReshapeArgs {
  ListArg<int64_t> shape = {};  // the new shape, unless it is an input
  int outputs = 1;  // how many are asked for, the first so many of 2
  ArgList list() const { return ArgList().add("shape", shape); }
};
struct ReshapeOutputs {
  // the elements in the new shape
  Variable reshaped;
  // the input's shape, int64 or the new shape's type; undefined if not asked for
  Variable old_shape;
  operator const Variable&() const { return reshaped; }
};
// The same elements in another shape.
inline ReshapeOutputs reshape(const Variable& data, const Variable& new_shape = {}, const ReshapeArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Reshape");
  const Variable given[] = {data, new_shape};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}
// The same, written over data.
inline ReshapeOutputs reshape_(const Variable& data, const Variable& new_shape = {}, const ReshapeArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Reshape", {0, -1});
  const Variable given[] = {data, new_shape};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1])};
}

// The elements of one tensor in the shape of another.
inline Variable resize_like(const Variable& data, const Variable& shape_tensor, Place place = Place::here()) {
  static const TypedCall call("ResizeLike");
  const Variable given[] = {data, shape_tensor};
  return call.run1(given, {}, place);
}
// The same, written over data.
inline Variable resize_like_(const Variable& data, const Variable& shape_tensor, Place place = Place::here()) {
  static const TypedCall call("ResizeLike", {0});
  const Variable given[] = {data, shape_tensor};
  return call.run1(given, {}, place);
}

// Turns each sample of a sequence around, up to its own length.
inline Variable reverse_packed_segs(const Variable& data, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("ReversePackedSegs");
  const Variable given[] = {data, lengths};
  return call.run1(given, {}, place);
}

struct RmsPropArgs {
  std::optional<float> decay = {};  // how much of the mean square remains; 0.9 if not given
  std::optional<float> momentum = {};  // how much of the last step remains; 0 if not given
  std::optional<float> epsilon = {};  // added to the mean square; 1e-05 if not given
  ArgList list() const {
    return ArgList()
        .add("decay", decay)
        .add("momentum", momentum)
        .add("epsilon", epsilon);
  }
};
struct RmsPropOutputs {
  // the step
  Variable output_grad;
  // the mean square after the step
  Variable output_mean_squares;
  // the step once more, for the next time
  Variable output_mom;
};
// The step of RmsProp; another operator, such as WeightedSum, applies it to the parameter.
inline RmsPropOutputs rms_prop(const Variable& grad, const Variable& mean_squares, const Variable& mom,
    const Variable& lr, const RmsPropArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("RmsProp");
  const Variable given[] = {grad, mean_squares, mom, lr};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}
// The same, written over grad, mean_squares, mom.
inline RmsPropOutputs rms_prop_(const Variable& grad, const Variable& mean_squares, const Variable& mom,
    const Variable& lr, const RmsPropArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("RmsProp", {0, 1, 2});
  const Variable given[] = {grad, mean_squares, mom, lr};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

// The nearest integer, of two the even one, element by element.
inline Variable round(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Round");
  return call.run1({&x, 1}, {}, place);
}

struct RowWiseSparseAdagradArgs {
  std::optional<float> epsilon = {};  // added to the square root of the moment; 1e-05 if not given
  ArgList list() const { return ArgList().add("epsilon", epsilon); }
};
struct RowWiseSparseAdagradOutputs {
  // the parameter after the step
  Variable output_param;
  // the moment after the step
  Variable output_moment_1;
};
// One step of Adagrad, with one moment for a whole row, on those rows of a table that the gradient has; all others stay
// as they are.
inline RowWiseSparseAdagradOutputs row_wise_sparse_adagrad_(const Variable& param, const Variable& moment,
    const Variable& indices, const Variable& grad, const Variable& lr, const RowWiseSparseAdagradArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("RowWiseSparseAdagrad", {0, 1});
  const Variable given[] = {param, moment, indices, grad, lr};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

// One divided by the square root, element by element.
inline Variable rsqrt(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Rsqrt");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable rsqrt_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Rsqrt", {0});
  return call.run1({&x, 1}, {}, place);
}

struct ScaleArgs {
  std::optional<float> scale = {};  // the constant; 1 if not given
  ArgList list() const { return ArgList().add("scale", scale); }
};
// Multiplies every element by a constant.
inline Variable scale(const Variable& x, const ScaleArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Scale");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable scale_(const Variable& x, const ScaleArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Scale", {0});
  return call.run1({&x, 1}, args.list(), place);
}

struct ScatterAddArgs {
  std::optional<int32_t> axis = {};  // the dimension that is indexed; 0 if not given
  ArgList list() const { return ArgList().add("axis", axis); }
};
// Adds single elements to a tensor, each at its own index along one axis; those of equal places add up.
inline Variable scatter_add(const Variable& data, const Variable& indices, const Variable& src,
    const ScatterAddArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ScatterAdd");
  const Variable given[] = {data, indices, src};
  return call.run1(given, args.list(), place);
}
// The same, written over data.
inline Variable scatter_add_(const Variable& data, const Variable& indices, const Variable& src,
    const ScatterAddArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("ScatterAdd", {0});
  const Variable given[] = {data, indices, src};
  return call.run1(given, args.list(), place);
}

// Overwrites rows of a tensor, by index.
inline Variable scatter_assign_(const Variable& data, const Variable& indices, const Variable& slices,
    Place place = Place::here()) {
  static const TypedCall call("ScatterAssign", {0});
  const Variable given[] = {data, indices, slices};
  return call.run1(given, {}, place);
}

// Adds weighted rows to rows of a tensor, by index.
inline Variable scatter_weighted_sum_(const Variable& x_0, const Variable& weight_0, const Variable& indices,
    const std::vector<Variable>& inputs, Place place = Place::here()) {
  static const TypedCall call("ScatterWeightedSum", {0});
  return call.run1(joined({x_0, weight_0, indices}, inputs), {}, place);
}

// The number of places of each segment.
inline Variable segment_ids_to_lengths(const Variable& segment_ids, const Variable& data = {},
    Place place = Place::here()) {
  static const TypedCall call("SegmentIdsToLengths");
  const Variable given[] = {segment_ids, data};
  return call.run1(given, {}, place);
}

// The first place and the number of places of each segment.
inline Variable segment_ids_to_ranges(const Variable& segment_ids, const Variable& data = {},
    Place place = Place::here()) {
  static const TypedCall call("SegmentIdsToRanges");
  const Variable given[] = {segment_ids, data};
  return call.run1(given, {}, place);
}

struct SequenceMaskArgs {
  // what is masked: sequence, window, upper, lower, upperdiag, lowerdiag; required
  std::optional<std::string> mode = {};
  std::optional<int64_t> axis = {};  // the first dimension that is columns; those before it are rows; 1 if not given
  std::optional<int64_t> radius = {};  // mode window: how far from the centre is kept; 10 if not given
  std::optional<int64_t> batch = {};  // dimensions up to this one are no rows: each index has a matrix of its own
  // mode sequence: dimensions from this one on are no columns but masked together
  std::optional<int64_t> repeat_from_axis = {};
  std::optional<float> fill_val = {};  // what stands in masked places; -inf if not given
  std::optional<bool> grad = {};  // masked places are 0, whatever fill_val says; false if not given
  ArgList list() const {
    return ArgList()
        .add("mode", mode)
        .add("axis", axis)
        .add("radius", radius)
        .add("batch", batch)
        .add("repeat_from_axis", repeat_from_axis)
        .add("fill_val", fill_val)
        .add("grad", grad);
  }
};
// Puts one value in place of what lies behind a length, outside of a window, or beside a diagonal.
inline Variable sequence_mask(const Variable& input, const Variable& sequence_lengths, const SequenceMaskArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("SequenceMask");
  const Variable given[] = {input, sequence_lengths};
  return call.run1(given, args.list(), place);
}
// The same, written over input.
inline Variable sequence_mask_(const Variable& input, const Variable& sequence_lengths, const SequenceMaskArgs& args,
    Place place = Place::here()) {
  static const TypedCall call("SequenceMask", {0});
  const Variable given[] = {input, sequence_lengths};
  return call.run1(given, args.list(), place);
}

struct ShapeArgs {
  ListArg<int64_t> axes = {};  // dimensions whose sizes are asked for, in this order; all if absent
  ArgList list() const { return ArgList().add("axes", axes); }
};
// The sizes of a tensor's dimensions.
inline Variable shape(const Variable& x, const ShapeArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Shape");
  return call.run1({&x, 1}, args.list(), place);
}

// Logistic function, element by element.
inline Variable sigmoid(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sigmoid");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable sigmoid_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sigmoid", {0});
  return call.run1({&x, 1}, {}, place);
}

// Mean cross entropy of targets with the sigmoids of scores, over the last dimension.
inline Variable sigmoid_cross_entropy_with_logits(const Variable& logits, const Variable& targets,
    Place place = Place::here()) {
  static const TypedCall call("SigmoidCrossEntropyWithLogits");
  const Variable given[] = {logits, targets};
  return call.run1(given, {}, place);
}

// The sign: 1, -1 or 0, element by element.
inline Variable sign(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sign");
  return call.run1({&x, 1}, {}, place);
}

// The sine, element by element.
inline Variable sin(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sin");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable sin_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sin", {0});
  return call.run1({&x, 1}, {}, place);
}

// The number of a tensor's elements.
inline Variable size(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Size");
  return call.run1({&x, 1}, {}, place);
}

struct SliceArgs {
  ListArg<int64_t> starts = {};  // the first index of each dimension
  ListArg<int64_t> ends = {};  // the index after the last of each dimension; -1 is the end
  ArgList list() const { return ArgList().add("starts", starts).add("ends", ends); }
};
// A range of indices of one dimension.
inline Variable slice(const Variable& data, const Variable& starts = {}, const Variable& ends = {},
    const SliceArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Slice");
  const Variable given[] = {data, starts, ends};
  return call.run1(given, args.list(), place);
}

struct SoftmaxArgs {
  std::optional<int32_t> axis = {};  // where a row begins; 1 if not given
  ArgList list() const { return ArgList().add("axis", axis); }
};
// Exponentials divided by their sum, over everything from axis on.
inline Variable softmax(const Variable& x, const SoftmaxArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Softmax");
  return call.run1({&x, 1}, args.list(), place);
}
// The same, written over x.
inline Variable softmax_(const Variable& x, const SoftmaxArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Softmax", {0});
  return call.run1({&x, 1}, args.list(), place);
}

struct SoftmaxWithLossArgs {
  std::optional<float> scale = {};  // a factor of the loss; 1 if not given
  std::optional<bool> only_loss = {};  // accepted, and makes no difference; false if not given
  std::optional<bool> label_prob = {};  // T holds a distribution per row, not a label; false if not given
  std::optional<int32_t> axis = {};  // where a row of X begins; 1 if not given
  ArgList list() const {
    return ArgList()
        .add("scale", scale)
        .add("only_loss", only_loss)
        .add("label_prob", label_prob)
        .add("axis", axis);
  }
};
struct SoftmaxWithLossOutputs {
  // probabilities, like X
  Variable p;
  // a scalar
  Variable loss;
};
// Softmax of scores and the mean cross entropy of their labels.
inline SoftmaxWithLossOutputs softmax_with_loss(const Variable& x, const Variable& t, const Variable& weights = {},
    const SoftmaxWithLossArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SoftmaxWithLoss");
  const Variable given[] = {x, t, weights};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

// ln(1 + exp(X)), element by element: a smooth Relu.
inline Variable softplus(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Softplus");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable softplus_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Softplus", {0});
  return call.run1({&x, 1}, {}, place);
}

// X / (1 + |X|), element by element.
inline Variable softsign(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Softsign");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable softsign_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Softsign", {0});
  return call.run1({&x, 1}, {}, place);
}

struct SparseAdagradArgs {
  std::optional<float> epsilon = {};  // added to the square root of the moment; 1e-05 if not given
  ArgList list() const { return ArgList().add("epsilon", epsilon); }
};
struct SparseAdagradOutputs {
  // the parameter after the step
  Variable output_param;
  // the moment after the step
  Variable output_moment_1;
};
// One step of Adagrad on those rows of a table that the gradient has; all others stay as they are.
inline SparseAdagradOutputs sparse_adagrad_(const Variable& param, const Variable& moment, const Variable& indices,
    const Variable& grad, const Variable& lr, const SparseAdagradArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SparseAdagrad", {0, 1});
  const Variable given[] = {param, moment, indices, grad, lr};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct SparseAdamArgs {
  std::optional<float> beta1 = {};  // decay of the first moment; 0.9 if not given
  std::optional<float> beta2 = {};  // decay of the second moment; 0.999 if not given
  std::optional<float> epsilon = {};  // added to the square root of the second moment; 1e-05 if not given
  ArgList list() const {
    return ArgList()
        .add("beta1", beta1)
        .add("beta2", beta2)
        .add("epsilon", epsilon);
  }
};
struct SparseAdamOutputs {
  // the parameter after the step
  Variable output_param;
  // the first moment after the step
  Variable output_moment_1;
  // the second moment after the step
  Variable output_moment_2;
};
// One step of Adam on those rows of a table that the gradient has; all others stay as they are, their moments too.
inline SparseAdamOutputs sparse_adam_(const Variable& param, const Variable& moment_1, const Variable& moment_2,
    const Variable& indices, const Variable& grad, const Variable& lr, const Variable& iter,
    const SparseAdamArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SparseAdam", {0, 1, 2});
  const Variable given[] = {param, moment_1, moment_2, indices, grad, lr, iter};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

// The mean of each segment's rows, which are rows of a table by index.
inline Variable sparse_lengths_mean(const Variable& data, const Variable& indices, const Variable& lengths,
    Place place = Place::here()) {
  static const TypedCall call("SparseLengthsMean");
  const Variable given[] = {data, indices, lengths};
  return call.run1(given, {}, place);
}

// The sum of each segment's rows, which are rows of a table by index.
inline Variable sparse_lengths_sum(const Variable& data, const Variable& indices, const Variable& lengths,
    Place place = Place::here()) {
  static const TypedCall call("SparseLengthsSum");
  const Variable given[] = {data, indices, lengths};
  return call.run1(given, {}, place);
}

// The weighted sum of each segment's rows, which are rows of a table by index.
inline Variable sparse_lengths_weighted_sum(const Variable& data, const Variable& weights, const Variable& indices,
    const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("SparseLengthsWeightedSum");
  const Variable given[] = {data, weights, indices, lengths};
  return call.run1(given, {}, place);
}

struct SparseMomentumSGDUpdateArgs {
  std::optional<float> momentum = {};  // how much of the last step remains; 0 if not given
  std::optional<bool> nesterov = {};  // look ahead by the momentum; false if not given
  ArgList list() const { return ArgList().add("momentum", momentum).add("nesterov", nesterov); }
};
struct SparseMomentumSGDUpdateOutputs {
  // the steps, of the gradient's shape
  Variable output_grad;
  // the momentum after the step
  Variable output_momentum;
  // the table after the step
  Variable output_param;
};
// Gradient descent with momentum, plain or by Nesterov, on those rows of a table that the gradient has; all others stay
// as they are, their momentum too.
inline SparseMomentumSGDUpdateOutputs sparse_momentum_sgd_update(const Variable& grad, const Variable& momentum,
    const Variable& lr, const Variable& param, const Variable& indices, const SparseMomentumSGDUpdateArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("SparseMomentumSGDUpdate", {-1, 1, 3});
  const Variable given[] = {grad, momentum, lr, param, indices};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}
// The same, written over grad, momentum, param.
inline SparseMomentumSGDUpdateOutputs sparse_momentum_sgd_update_(const Variable& grad, const Variable& momentum,
    const Variable& lr, const Variable& param, const Variable& indices, const SparseMomentumSGDUpdateArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("SparseMomentumSGDUpdate", {0, 1, 3});
  const Variable given[] = {grad, momentum, lr, param, indices};
  std::array<Variable, 3> made;
  call.run_into(made, given, args.list(), 3, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct SparseToDenseArgs {
  // the number of rows, if there is no third input; else one more than the largest index
  std::optional<int64_t> output_first_dim = {};
  ArgList list() const { return ArgList().add("output_first_dim", output_first_dim); }
};
// Adds rows into a tensor of zeros at the given indices.
inline Variable sparse_to_dense(const Variable& indices, const Variable& values, const Variable& data_to_infer_dim = {},
    const SparseToDenseArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SparseToDense");
  const Variable given[] = {indices, values, data_to_infer_dim};
  return call.run1(given, args.list(), place);
}

struct SpatialBNArgs {
  // normalize by est_mean and est_var, and leave them as they are; false if not given
  std::optional<bool> is_test = {};
  std::optional<float> epsilon = {};  // added to variances; 1e-05 if not given
  std::optional<float> momentum = {};  // how much of the running statistics stays with each run; 0.9 if not given
  std::optional<std::string> order = {};  // NCHW: channels are dimension 1; NHWC: the last one; "NCHW" if not given
  // how many are asked for, the first so many of 5; 5 if not given, and with is_test 1
  std::optional<int> outputs = {};
  ArgList list() const {
    return ArgList()
        .add("is_test", is_test)
        .add("epsilon", epsilon)
        .add("momentum", momentum)
        .add("order", order);
  }
};
struct SpatialBNOutputs {
  // like X
  Variable y;
  // est_mean, updated in place; not with is_test, nor any of the following; undefined if not asked for
  Variable running_mean;
  // est_var, updated in place; undefined if not asked for
  Variable running_var;
  // [C], of this batch; backward reads it; undefined if not asked for
  Variable saved_mean;
  // [C], 1 / sqrt(variance + epsilon) of this batch; backward reads it; undefined if not asked for
  Variable saved_inv_std;
  operator const Variable&() const { return y; }
};
// BatchNorm, by its name in the public format.
inline SpatialBNOutputs spatial_bn(const Variable& x, const Variable& scale, const Variable& bias,
    const Variable& est_mean, const Variable& est_var, const SpatialBNArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SpatialBN", {-1, 3, 4, -1, -1});
  const Variable given[] = {x, scale, bias, est_mean, est_var};
  std::array<Variable, 5> made;
  call.run_into(made, given, args.list(), args.outputs.value_or(args.is_test.value_or(false) ? 1 : 5), place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3]), std::move(made[4])};
}
// The same, written over x, est_mean, est_var.
inline SpatialBNOutputs spatial_bn_(const Variable& x, const Variable& scale, const Variable& bias,
    const Variable& est_mean, const Variable& est_var, const SpatialBNArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SpatialBN", {0, 3, 4, -1, -1});
  const Variable given[] = {x, scale, bias, est_mean, est_var};
  std::array<Variable, 5> made;
  call.run_into(made, given, args.list(), args.outputs.value_or(args.is_test.value_or(false) ? 1 : 5), place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3]), std::move(made[4])};
}

struct SpatialSoftmaxWithLossArgs {
  std::optional<float> scale = {};  // a factor of the loss; 1 if not given
  std::optional<bool> only_loss = {};  // accepted, and makes no difference; false if not given
  std::optional<std::string> order = {};  // the classes are in dimension 1; "NCHW" if not given
  ArgList list() const {
    return ArgList()
        .add("scale", scale)
        .add("only_loss", only_loss)
        .add("order", order);
  }
};
struct SpatialSoftmaxWithLossOutputs {
  // probabilities, like X
  Variable p;
  // a scalar
  Variable loss;
};
// Softmax over dimension 1 of scores, and the mean cross entropy of the labels of all places.
inline SpatialSoftmaxWithLossOutputs spatial_softmax_with_loss(const Variable& x, const Variable& t,
    const Variable& weights = {}, const SpatialSoftmaxWithLossArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SpatialSoftmaxWithLoss");
  const Variable given[] = {x, t, weights};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

struct SplitArgs {
  std::optional<int64_t> axis = {};  // the dimension, from the end if negative; 1 if neither this nor "order" is given
  std::optional<std::string> order = {};  // NCHW (dimension 1) or NHWC (dimension 3), instead of "axis"
  // parts lack the dimension: Concat stacks them on a new one, Split drops it; false if not given
  std::optional<bool> add_axis = {};
  ListArg<int64_t> split = {};  // the size of each part; equal parts if neither this nor the input is given
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("order", order)
        .add("add_axis", add_axis)
        .add("split", split);
  }
};
// Cuts a tensor along a dimension into one part per output.
inline std::vector<Variable> split(const Variable& input, const Variable& split, int outputs,
    const SplitArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Split");
  const Variable given[] = {input, split};
  return call.run(given, args.list(), outputs, place);
}

struct SplitByRowsArgs {
  std::optional<int64_t> axis = {};  // the dimension, from the end if negative; 1 if neither this nor "order" is given
  std::optional<std::string> order = {};  // NCHW (dimension 1) or NHWC (dimension 3), instead of "axis"
  // parts lack the dimension: Concat stacks them on a new one, Split drops it; false if not given
  std::optional<bool> add_axis = {};
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("order", order)
        .add("add_axis", add_axis);
  }
};
// Cuts a tensor along a dimension into parts as wide as matrices have rows.
inline std::vector<Variable> split_by_rows(const Variable& x, const std::vector<Variable>& w, int outputs,
    const SplitByRowsArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SplitByRows");
  return call.run(joined({x}, w), args.list(), outputs, place);
}

struct SplitLikeArgs {
  std::optional<int64_t> axis = {};  // the dimension, from the end if negative; 1 if neither this nor "order" is given
  std::optional<std::string> order = {};  // NCHW (dimension 1) or NHWC (dimension 3), instead of "axis"
  // parts lack the dimension: Concat stacks them on a new one, Split drops it; false if not given
  std::optional<bool> add_axis = {};
  ArgList list() const {
    return ArgList()
        .add("axis", axis)
        .add("order", order)
        .add("add_axis", add_axis);
  }
};
// The inverse of Concat: cuts a tensor into parts of the shapes of others.
inline std::vector<Variable> split_like(const Variable& input, const std::vector<Variable>& parts, int outputs,
    const SplitLikeArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SplitLike");
  return call.run(joined({input}, parts), args.list(), outputs, place);
}

// The square, element by element.
inline Variable sqr(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sqr");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable sqr_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sqr", {0});
  return call.run1({&x, 1}, {}, place);
}

// The square root, element by element.
inline Variable sqrt(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sqrt");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable sqrt_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Sqrt", {0});
  return call.run1({&x, 1}, {}, place);
}

// Half the squared Euclidean distances of rows.
inline Variable squared_l2_distance(const Variable& x, const Variable& y, Place place = Place::here()) {
  static const TypedCall call("SquaredL2Distance");
  const Variable given[] = {x, y};
  return call.run1(given, {}, place);
}

struct SqueezeArgs {
  ListArg<int64_t> dims = {};  // places in the longer shape, from 0; required
  ArgList list() const { return ArgList().add("dims", dims); }
};
// Removes dimensions of size 1.
inline Variable squeeze(const Variable& data, const SqueezeArgs& args, Place place = Place::here()) {
  static const TypedCall call("Squeeze");
  return call.run1({&data, 1}, args.list(), place);
}
// The same, written over data.
inline Variable squeeze_(const Variable& data, const SqueezeArgs& args, Place place = Place::here()) {
  static const TypedCall call("Squeeze", {0});
  return call.run1({&data, 1}, args.list(), place);
}

// A copy through which no gradient flows back.
inline Variable stop_gradient(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("StopGradient");
  return call.run1({&input, 1}, {}, place);
}
// The same, written over input.
inline Variable stop_gradient_(const Variable& input, Place place = Place::here()) {
  static const TypedCall call("StopGradient", {0});
  return call.run1({&input, 1}, {}, place);
}

struct SubArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Difference of two tensors, element by element.
inline Variable sub(const Variable& a, const Variable& b, const SubArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Sub");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable sub_(const Variable& a, const Variable& b, const SubArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Sub", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

// Sum of any number of tensors of one shape, element by element.
inline Variable sum(const std::vector<Variable>& x, Place place = Place::here()) {
  static const TypedCall call("Sum");
  return call.run1(x, {}, place);
}
// The same, written over x.
inline Variable sum_(const std::vector<Variable>& x, Place place = Place::here()) {
  static const TypedCall call("Sum", {0});
  return call.run1(x, {}, place);
}

struct SumElementsArgs {
  std::optional<bool> average = {};  // divide by the number of elements; false if not given
  ArgList list() const { return ArgList().add("average", average); }
};
// The sum of all elements.
inline Variable sum_elements(const Variable& x, const SumElementsArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SumElements");
  return call.run1({&x, 1}, args.list(), place);
}

struct SumReduceLikeArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Sums A to the shape of B, which must go with A by broadcasting.
inline Variable sum_reduce_like(const Variable& a, const Variable& b, const SumReduceLikeArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("SumReduceLike");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct SumSqrElementsArgs {
  std::optional<bool> average = {};  // divide by the number of elements; false if not given
  ArgList list() const { return ArgList().add("average", average); }
};
// The sum of the squares of all elements.
inline Variable sum_sqr_elements(const Variable& x, const SumSqrElementsArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("SumSqrElements");
  return call.run1({&x, 1}, args.list(), place);
}

// X times the logistic function of X, element by element.
inline Variable swish(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Swish");
  return call.run1({&x, 1}, {}, place);
}

// Hyperbolic tangent, element by element.
inline Variable tanh(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Tanh");
  return call.run1({&x, 1}, {}, place);
}
// The same, written over x.
inline Variable tanh_(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("Tanh", {0});
  return call.run1({&x, 1}, {}, place);
}

struct TileArgs {
  std::optional<int64_t> tiles = {};  // how many copies; not read if there is an input for it; 1 if not given
  // the dimension along which they stand; not read if there is an input for it; 0 if not given
  std::optional<int32_t> axis = {};
  ArgList list() const { return ArgList().add("tiles", tiles).add("axis", axis); }
};
// Copies of a tensor, one after the other along a dimension.
inline Variable tile(const Variable& x, const Variable& tiles = {}, const Variable& axis = {},
    const TileArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Tile");
  const Variable given[] = {x, tiles, axis};
  return call.run1(given, args.list(), place);
}

struct TopKArgs {
  std::optional<int64_t> k = {};  // how many elements; required
  // the dimension to search along, a negative one counted from the end; -1 if not given
  std::optional<int32_t> axis = {};
  int outputs = 2;  // how many are asked for, the first so many of 3
  ArgList list() const { return ArgList().add("k", k).add("axis", axis); }
};
struct TopKOutputs {
  // like X, but k along the axis
  Variable values;
  // where they stand along the axis, like Values
  Variable indices;
  // where they stand among all elements of X: one dimension, in the order of Values; undefined if not asked for
  Variable flattened_indices;
};
// The k greatest elements along an axis, in descending order.
inline TopKOutputs top_k(const Variable& x, const TopKArgs& args, Place place = Place::here()) {
  static const TypedCall call("TopK");
  std::array<Variable, 3> made;
  call.run_into(made, {&x, 1}, args.list(), args.outputs, place);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

struct TransposeArgs {
  ListArg<int64_t> axes = {};  // the permutation; the reverse order if absent
  ArgList list() const { return ArgList().add("axes", axes); }
};
// Permutes the dimensions: dimension k of the output is dimension axes[k] of the input.
inline Variable transpose(const Variable& data, const TransposeArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Transpose");
  return call.run1({&data, 1}, args.list(), place);
}

struct TruncDivArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// The quotient without its fraction, element by element; NaN where B is 0.
inline Variable trunc_div(const Variable& a, const Variable& b, const TruncDivArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("TruncDiv");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

struct UniformFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  std::optional<int64_t> dtype = {};  // FLOAT (1) or DOUBLE (13); 1 if not given
  std::optional<float> min = {};  // the lower bound; 0 if absent
  std::optional<float> max = {};  // the upper bound; 1 if absent
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("dtype", dtype)
        .add("min", min)
        .add("max", max);
  }
};
// Random numbers, uniform from min to max.
inline Variable uniform_fill(const Variable& input = {}, const Variable& min = {}, const Variable& max = {},
    const UniformFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UniformFill");
  const Variable given[] = {input, min, max};
  return call.run1(given, args.list(), place);
}
// The same, written over input.
inline Variable uniform_fill_(const Variable& input, const Variable& min = {}, const Variable& max = {},
    const UniformFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UniformFill", {0});
  const Variable given[] = {input, min, max};
  return call.run1(given, args.list(), place);
}

struct UniformIntFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  std::optional<int32_t> min = {};  // the lower bound; 0 if absent
  std::optional<int32_t> max = {};  // the upper bound; 1 if absent
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("min", min)
        .add("max", max);
  }
};
// Random integers from min to max, both included.
inline Variable uniform_int_fill(const Variable& input = {}, const Variable& min = {}, const Variable& max = {},
    const UniformIntFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UniformIntFill");
  const Variable given[] = {input, min, max};
  return call.run1(given, args.list(), place);
}
// The same, written over input.
inline Variable uniform_int_fill_(const Variable& input, const Variable& min = {}, const Variable& max = {},
    const UniformIntFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UniformIntFill", {0});
  const Variable given[] = {input, min, max};
  return call.run1(given, args.list(), place);
}

struct UniqueUniformFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  std::optional<int64_t> min = {};  // the least integer; 0 if not given
  std::optional<int64_t> max = {};  // the greatest integer; 1 if not given
  std::optional<int64_t> dtype = {};  // INT32 (2) or INT64 (10); 2 if not given
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("min", min)
        .add("max", max)
        .add("dtype", dtype);
  }
};
// Random integers from min to max, both included, no two of which are equal.
inline Variable unique_uniform_fill(const Variable& input = {}, const Variable& avoid = {},
    const UniqueUniformFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UniqueUniformFill");
  const Variable given[] = {input, avoid};
  return call.run1(given, args.list(), place);
}
// The same, written over input.
inline Variable unique_uniform_fill_(const Variable& input, const Variable& avoid = {},
    const UniqueUniformFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UniqueUniformFill", {0});
  const Variable given[] = {input, avoid};
  return call.run1(given, args.list(), place);
}

// Columns of a sequence become samples that stand one after the other; what is behind their ends is dropped.
inline Variable unpack_rnn_sequence(const Variable& values, const Variable& lengths, Place place = Place::here()) {
  static const TypedCall call("UnpackRNNSequence");
  const Variable given[] = {values, lengths};
  return call.run1(given, {}, place);
}

struct UnpackSegmentsArgs {
  // how many rows of each segment are kept, and the length of the packed ones; -1: that of the longest; -1 if not given
  std::optional<int64_t> max_length = {};
  ArgList list() const { return ArgList().add("max_length", max_length); }
};
// Rows of one length become segments that stand one after the other; what is behind their ends is dropped.
inline Variable unpack_segments(const Variable& lengths, const Variable& tensor, const UnpackSegmentsArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("UnpackSegments");
  const Variable given[] = {lengths, tensor};
  return call.run1(given, args.list(), place);
}

// Divides gradients by the scale that their loss had, and says whether all of them are finite.
inline std::vector<Variable> unscale_gradients(const Variable& scale, const std::vector<Variable>& gradients,
    int outputs, Place place = Place::here()) {
  static const TypedCall call("UnscaleGradients");
  return call.run(joined({scale}, gradients), {}, outputs, place);
}

struct UpdateLossScaleArgs {
  std::optional<float> growth_factor = {};  // of the scale after growth_interval good steps; 2 if not given
  std::optional<float> backoff_factor = {};  // of the scale after a step that overflowed; 0.5 if not given
  std::optional<int64_t> growth_interval = {};  // good steps in a row; 2000 if not given
  ArgList list() const {
    return ArgList()
        .add("growth_factor", growth_factor)
        .add("backoff_factor", backoff_factor)
        .add("growth_interval", growth_interval);
  }
};
struct UpdateLossScaleOutputs {
  // for the next step
  Variable scale;
  // with this step
  Variable good_steps;
};
// Makes the scale of the loss smaller after gradients that overflowed, and larger after many that did not.
inline UpdateLossScaleOutputs update_loss_scale(const Variable& scale, const Variable& good_steps,
    const Variable& finite, const UpdateLossScaleArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UpdateLossScale");
  const Variable given[] = {scale, good_steps, finite};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}
// The same, written over scale, good_steps.
inline UpdateLossScaleOutputs update_loss_scale_(const Variable& scale, const Variable& good_steps,
    const Variable& finite, const UpdateLossScaleArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("UpdateLossScale", {0, 1});
  const Variable given[] = {scale, good_steps, finite};
  std::array<Variable, 2> made;
  call.run_into(made, given, args.list(), 2, place);
  return {std::move(made[0]), std::move(made[1])};
}

// The sum of tensors, each times its weight.
inline Variable weighted_sum(const std::vector<Variable>& inputs, Place place = Place::here()) {
  static const TypedCall call("WeightedSum");
  return call.run1(inputs, {}, place);
}
// The same, written over inputs.
inline Variable weighted_sum_(const std::vector<Variable>& inputs, Place place = Place::here()) {
  static const TypedCall call("WeightedSum", {0});
  return call.run1(inputs, {}, place);
}

struct WhereArgs {
  std::optional<bool> enable_broadcast = {};  // C has one element for each row of X and Y; false if not given
  ArgList list() const { return ArgList().add("enable_broadcast", enable_broadcast); }
};
// Takes each element from one of two tensors, as a third one says.
inline Variable where(const Variable& c, const Variable& x, const Variable& y, const WhereArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Where");
  const Variable given[] = {c, x, y};
  return call.run1(given, args.list(), place);
}

struct XavierFillArgs {
  ListArg<int64_t> shape = {};  // sizes of the output, if there is no input; none: a scalar
  ListArg<int64_t> extra_shape = {};  // sizes appended to those from the input; read only with an input
  std::optional<bool> input_as_shape = {};  // the input's values are the shape; false if not given
  std::optional<int64_t> dtype = {};  // FLOAT (1) or DOUBLE (13); 1 if not given
  ArgList list() const {
    return ArgList()
        .add("shape", shape)
        .add("extra_shape", extra_shape)
        .add("input_as_shape", input_as_shape)
        .add("dtype", dtype);
  }
};
// Initial weights, uniform in +-sqrt(3 / fan_in), where fan_in is the size over the first dimension.
inline Variable xavier_fill(const Variable& input = {}, const XavierFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("XavierFill");
  return call.run1({&input, 1}, args.list(), place);
}
// The same, written over input.
inline Variable xavier_fill_(const Variable& input, const XavierFillArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("XavierFill", {0});
  return call.run1({&input, 1}, args.list(), place);
}

struct XorArgs {
  std::optional<bool> broadcast = {};  // let sizes of 1 and missing leading dimensions repeat; false if not given
  std::optional<int64_t> axis = {};  // lay B over A from this dimension on; -1: align both at the end; -1 if not given
  std::optional<std::string> axis_str = {};  // the same as a letter of order; "" if not given
  std::optional<std::string> order = {};  // names of A's dimensions for axis_str, NCHW if not given; "" if not given
  ArgList list() const {
    return ArgList()
        .add("broadcast", broadcast)
        .add("axis", axis)
        .add("axis_str", axis_str)
        .add("order", order);
  }
};
// Where one of A and B is true, and not both, element by element.
inline Variable xor_(const Variable& a, const Variable& b, const XorArgs& args = {}, Place place = Place::here()) {
  static const TypedCall call("Xor");
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}
// The same, written over a.
inline Variable xor_in_place(const Variable& a, const Variable& b, const XorArgs& args = {},
    Place place = Place::here()) {
  static const TypedCall call("Xor", {0});
  const Variable given[] = {a, b};
  return call.run1(given, args.list(), place);
}

// Zeros of the input's type and shape.
inline Variable zeros_like(const Variable& x, Place place = Place::here()) {
  static const TypedCall call("ZerosLike");
  return call.run1({&x, 1}, {}, place);
}

}  // namespace stepnet::ops
