// WeightedSum: Y = w_0 X_0 + w_1 X_1 + ..., each weight one value.
// WeightedSumGradient: dX = w dY.  WeightedSumWeightGradient: dw = sum of dY X, in w's type.
//
// dX_i reads w_i, dw_i reads X_i.

#include "core/compute/threads.h"
#include "core/operator/cast_kernels.h"
#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_weighted_sum {
namespace {

void check_weight(const ShapeCall& call, int i) {
  if (!call.known(i)) return;
  require(call.shape(i).size() == 1, "weight {} must be one value, but has shape {}", i / 2, call.shape(i));
  require(is_floating(call.dtype(i)), "weight {} must be float or double, but is {}", i / 2, dtype_name(call.dtype(i)));
}

void shape(const NoArgs&, ShapeCall& call) {
  require(call.inputs() % 2 == 0, "tensors and weights alternate, but there are {} inputs", call.inputs());
  for (int i = 0; i < call.inputs(); i += 2) {
    check_weight(call, i + 1);
    if (!call.known(0) || !call.known(i)) continue;
    require(call.dtype(i) == call.dtype(0) && call.shape(i) == call.shape(0),
            "tensor {} is {}, but the first tensor is {}", i / 2, call.in(i), call.in(0));
  }
  call.set_like(0, 0);
}

// Reads X_0 before it writes Y at the same place, so that Y may be X_0.
template <class T>
void weighted_sum(Call& call) {
  const Out<T> y = call.out_span<T>(0);
  const int terms = call.inputs() / 2;
  std::vector<In<T>> x;
  std::vector<T> w;
  for (int k = 0; k < terms; ++k) {
    x.push_back(call.in_span<T>(2 * k));
    w.push_back(static_cast<T>(call.in(2 * k + 1).item<double>()));
  }
  parallel_for(static_cast<int64_t>(y.size()), 0.5 * terms, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T sum = w[0] * x[0][i];
      for (int k = 1; k < terms; ++k) sum += w[k] * x[k][i];
      y[i] = sum;
    }
  });
}

void weighted_sum_on_casts(Call& call) {
  FloatCall floats(op_spec("WeightedSum"), call);
  weighted_sum<float>(floats.call());
  floats.cast_results();
}

void weighted_sum_any(Call& call) {
  const DType type = call.in(0).dtype();
  if (type == DType::float32) return weighted_sum<float>(call);
  if (is_half(type)) return weighted_sum_on_casts(call);
  require(type == DType::float64, "tensors must be float or double, but are {}", dtype_name(type));
  weighted_sum<double>(call);
}

template <class T>
void scale(In<T> dy, const Tensor& w, Out<T> dx) {
  const T weight = static_cast<T>(w.item<double>());
  parallel_for(static_cast<int64_t>(dy.size()), 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dx[i] = weight * dy[i];
  });
}

template <class T>
void sum_products(In<T> dy, In<T> x, Tensor& dw) {
  double sum = 0;
  for (size_t i = 0; i < dy.size(); ++i) sum += static_cast<double>(dy[i]) * static_cast<double>(x[i]);
  if (dw.dtype() == DType::float64) {
    *dw.data<double>() = sum;
  } else {
    *dw.data<float>() = static_cast<float>(sum);
  }
}

template <class T>
void weight_gradient(In<T> dy, In<T> x, const Tensor&, Tensor& dw) {
  sum_products(dy, x, dw);
}

// dY, then tensors and weights in turn; the gradients of all tensors, then of all weights, if these are outputs.
template <class T>
void gradient(Call& call) {
  const int terms = (call.inputs() - 1) / 2;
  const In<T> dy = call.in_span<T>(0);
  for (int k = 0; k < terms; ++k) {
    if (call.wants(k)) scale(dy, call.in(2 * k + 2), call.out_span<T>(k));
    if (call.wants(terms + k)) sum_products(dy, call.in_span<T>(2 * k + 1), call.out(terms + k));
  }
}

void gradient_on_casts(Call& call) {
  FloatCall floats(op_spec("WeightedSumGradient"), call);
  gradient<float>(floats.call());
  floats.cast_results();
}

void gradient_any(Call& call) {
  const DType type = call.in(0).dtype();
  if (type == DType::float32) return gradient<float>(call);
  if (is_half(type)) return gradient_on_casts(call);
  require(type == DType::float64, "dY must be float or double, but is {}", dtype_name(type));
  gradient<double>(call);
}

void gradient_shape(const NoArgs&, ShapeCall& call) {
  const int terms = (call.inputs() - 1) / 2;
  require(call.inputs() % 2 == 1 && terms > 0,
          "its inputs are dY, and then tensors and weights in turn, but there are {} inputs", call.inputs());
  require(call.outputs() == terms || call.outputs() == 2 * terms,
          "it has {} outputs for {} tensors, but must have one for each tensor, or for each tensor and each weight",
          call.outputs(), terms);
  for (int k = 0; k < terms; ++k) {
    const int x = 2 * k + 1, w = x + 1;
    if (call.known(w)) {
      require(call.shape(w).size() == 1, "weight {} must be one value, but has shape {}", k, call.shape(w));
      require(is_floating(call.dtype(w)), "weight {} must be float or double, but is {}", k, dtype_name(call.dtype(w)));
    }
    if (call.known(0) && call.known(x))
      require(call.dtype(x) == call.dtype(0) && call.shape(x) == call.shape(0), "tensor {} is {}, but dY is {}", k,
              call.in(x), call.in(0));
    call.set_like(k, 0);
    call.set_like(terms + k, w);
  }
}

double gradient_flops(const NoArgs&, const ShapeCall& call) {
  const int terms = (call.inputs() - 1) / 2;
  int each = 0;
  for (int k = 0; k < terms; ++k) each += int{call.wants(k)} + 2 * int{call.wants(terms + k)};
  return input_size(call, 0) * each;
}

std::vector<Value> gradient_body(Formula& f) {
  std::vector<Value> gradients;
  const int terms = (f.inputs() - 1) / 2;
  for (int k = 0; k < terms; ++k) gradients.push_back(f.op("WeightedSum", {f.x("dY"), f.x_at(2 * k + 2)}));
  for (int k = 0; terms + k < f.outputs(); ++k)
    gradients.push_back(f.op("WeightedSumWeightGradient", {f.x("dY"), f.x_at(2 * k + 1), f.x_at(2 * k + 2)}));
  return gradients;
}

void weight_gradient_shape(const NoArgs&, ShapeCall& call) {
  check_weight(call, 2);
  if (call.known(0) && call.known(1))
    require(call.shape(0) == call.shape(1), "dY has shape {}, but X {}", call.shape(0), call.shape(1));
}

REGISTER(weighted_sum) {
  return op("WeightedSum")
      .doc(
          "The sum of tensors, each times its weight. Inputs are X_0, w_0, X_1, w_1, ... With a parameter, the weight "
          "1, its gradient and a negative learning rate it is plain gradient descent; with a gradient, 1, its "
          "parameter and a decay it adds weight decay to the gradient.")
      .accepts("grad_on_w", "a weight has a gradient whenever it is asked for")
      .input("inputs", "tensors of one type and shape, each followed by its weight, one floating value")
      .any_type()
      .variadic(2)
      .output("output", "the sum, in the tensors' type", like("inputs"))
      .any_type()
      .in_place("inputs", "output")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) { return output_size(c, 0) * (c.inputs() - 1); })
      .cpu(weighted_sum_any)
      .variadic_derivative("inputs",
                           [](Formula& f, int i) -> Gradient {
                             const Value dy = f.dy("output");
                             if (i % 2 == 0) return f.op("WeightedSum", {dy, f.x_at(i + 1)});
                             return f.op("WeightedSumWeightGradient", {dy, f.x_at(i - 1), f.x_at(i)});
                           })
      .example({"inputs0=2,3", "inputs1=float,1:0.75", "inputs2=2,3", "inputs3=1"})
      .example({"inputs0=2,3", "inputs1=1", "inputs2=2,3", "inputs3="})
      .example({"inputs0=0,2", "inputs1=float,1:0.75", "inputs2=0,2", "inputs3=1"});
}

REGISTER(weighted_sum_gradient) {
  return op("WeightedSumGradient")
      .doc(
          "Gradients of WeightedSum, as nets of the public format have them: of every tensor dY times its weight, and "
          "of every weight, if there are outputs for these, the sum of dY times its tensor.")
      .accepts("grad_on_w", "as many outputs as there are say it")
      .input("dY", "gradient of the sum")
      .any_type()
      .input("inputs", "WeightedSum's: tensors, each followed by its weight")
      .any_type()
      .variadic(2)
      .output("gradients", "those of the tensors, and then, if there are as many more, those of the weights")
      .any_type()
      .variadic()
      .uses({"dY", "inputs"})
      .shape(gradient_shape)
      .flops(gradient_flops)
      .cpu(gradient_any)
      .composed(gradient_body)
      .example({"dY=2,3", "inputs0=2,3", "inputs1=float,1:0.75", "inputs2=2,3", "inputs3=1"}, {}, 2)
      .example({"dY=2,3", "inputs0=2,3", "inputs1=1", "inputs2=2,3", "inputs3="}, {}, 4)
      .example({"dY=0,2", "inputs0=0,2", "inputs1=1"}, {}, 2);
}

REGISTER(weighted_sum_weight_gradient) {
  return op("WeightedSumWeightGradient")
      .own()
      .doc("Gradient of WeightedSum with respect to one weight: the sum of dY times its tensor.")
      .input("dY", "gradient of the sum")
      .input("X", "the weight's tensor")
      .input("w", "the weight; its value is not read")
      .types({DType::float32, DType::float64})
      .shape_only()
      .output("dw", "gradient of the weight", like("w"))
      .types({DType::float32, DType::float64})
      .shape(weight_gradient_shape)
      .flops(flops_per_input(2))
      .cpu(weight_gradient<float>, weight_gradient<double>)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("WeightedSum", {f.x("X"), f.dy("dw")});
                  })
      .derivative("X",
                  [](Formula& f) {
                    return f.op("WeightedSum", {f.x("dY"), f.dy("dw")});
                  })
      .derivative("w", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_weighted_sum
