// GlobalNormClip: with n the Euclidean norm of all gradients together, each is multiplied by max_norm / n if n is
// greater than max_norm (Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks").
//
// Squares are summed in double over fixed blocks in a fixed order, so the norm does not depend on the thread count. A
// norm that is not finite is an Error that names the gradient at fault, before any parameter is harmed.
// No derivative: it changes gradients on their way to an optimizer.

#include "operators/optimizer/global_norm_clip.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/optimizer/optimizer.h"
#include "stepnet/device.h"

namespace stepnet {

NormClipOnDevice& norm_clip_on_device() {
  static NormClipOnDevice clip = nullptr;
  return clip;
}

namespace {

constexpr int64_t kBlock = 1 << 16;

template <class T>
double sum_squares(In<T> values) {
  const auto size = static_cast<int64_t>(values.size());
  std::vector<double> sums(static_cast<size_t>((size + kBlock - 1) / kBlock));
  parallel_for(static_cast<int64_t>(sums.size()), 0.2 * static_cast<double>(std::min(size, kBlock)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t b = begin; b < end; ++b)
                   sums[b] = vec_sum_squares(values.subspan(b * kBlock, std::min(kBlock, size - b * kBlock)));
               });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double sum_squares(const Tensor& t) {
  return t.dtype() == DType::float64 ? sum_squares(t.span<double>()) : sum_squares(t.span<float>());
}

template <class T>
void scale_into(In<T> from, Out<T> to, double factor) {
  const T f = static_cast<T>(factor);
  parallel_for(static_cast<int64_t>(from.size()), 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = f * from[i];
  });
}

void scale_into(const Tensor& from, Tensor& to, double factor) {
  if (from.dtype() == DType::float64) return scale_into(from.span<double>(), to.span<double>(), factor);
  scale_into(from.span<float>(), to.span<float>(), factor);
}

template <class T>
void report_element(const std::string& name, In<T> values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(fmt::format("the gradient \"{}\" has {} at element {}", name, values[i], i),
                  "use a smaller learning rate, or look for the operator that overflows first");
}

// Throws the Error for a norm that is not finite.
void report(const BlobCall& call) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Tensor& g = call.in[i]->tensor();
    const std::string& name = call.def.input(static_cast<int>(i));
    if (g.dtype() == DType::float64) {
      report_element(name, g.span<double>());
    } else {
      report_element(name, g.span<float>());
    }
  }
  fail("the norm of the gradients is too large for a double");
}

void check_inputs(const BlobCall& call) {
  require(call.out.size() == call.in.size() + 1,
          "{} gradients need {} outputs, the last for the norm, but there are {}", call.in.size(), call.in.size() + 1,
          call.out.size());
  for (size_t i = 0; i < call.in.size(); ++i) {
    const std::string& name = call.def.input(static_cast<int>(i));
    require(call.in[i] && call.out[i], "gradient {} has no name", i);
    const Tensor& g = std::as_const(*call.in[i]).tensor();
    require(g.defined(), "the gradient \"{}\" holds nothing yet", name);
    require(g.dtype() == DType::float32 || g.dtype() == DType::float64,
            "the gradient \"{}\" must be float or double, but is {}", name, g);
  }
}

void clip(const NormClipArgs& args, BlobCall& call) {
  check_inputs(call);
  const bool dry = std::ranges::any_of(call.in, [](const Blob* in) { return in->tensor().is_dry(); });
  const bool elsewhere =
      std::ranges::any_of(call.in, [](const Blob* in) { return in->tensor().device().kind != DeviceKind::cpu; });
  if (elsewhere && !dry && norm_clip_on_device()) return norm_clip_on_device()(args, call);
  Tensor scratch;  // what gpu/optimizer/global_norm_clip.cu works on, up to its end
  if (elsewhere && dry) {
    const MemoryScope scope(MemoryCategory::workspace);
    scratch = Tensor::empty(DType::float64, {static_cast<int64_t>(call.in.size()) + 2});
  }
  double sum = 0;
  for (Blob* in : call.in) sum += dry ? 0 : sum_squares(in->tensor());
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) report(call);
  const double factor = norm > args.max_norm ? args.max_norm / norm : 1;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const bool in_place = call.in[i] == call.out[i];
    if (in_place && factor == 1) continue;
    const Tensor from = call.in[i]->tensor();
    Tensor& to = call.out[i]->tensor();
    to.resize(from.dtype(), from.shape());
    if (!dry) scale_into(from, to, factor);
    to.mark_written();
  }
  if (Blob* out = call.out.back()) {
    out->tensor().resize(DType::float32, Shape{});
    if (!dry) *out->tensor().data<float>() = static_cast<float>(norm);
    out->tensor().mark_written();
  }
}

void shape(const NormClipArgs&, ShapeCall& call) {
  require(call.outputs() == call.inputs() + 1, "{} gradients need {} outputs, the last for the norm, but there are {}",
          call.inputs(), call.inputs() + 1, call.outputs());
  for (int i = 0; i < call.inputs(); ++i) call.set_like(i, i);
  call.set(call.inputs(), DType::float32, Shape{});
}

REGISTER(global_norm_clip) {
  return op<NormClipArgs>("GlobalNormClip")
      .own()
      .doc("Scales gradients down together so that their common Euclidean norm is at most max_norm.")
      .required_arg("max_norm", &NormClipArgs::max_norm, "the largest norm that stays as it is", greater_than(0))
      .input("gradients", "float or double, any shapes")
      .any_type()
      .variadic()
      .output("outputs", "the scaled gradients, then the norm before scaling, float without dimensions")
      .any_type()
      .variadic(2)
      .in_place("gradients", "outputs")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) {
        double elements = 0;
        for (int i = 0; i < c.inputs(); ++i) elements += input_size(c, i);
        return 3 * elements + 2;
      })
      .precision(Precision::float32)
      .blobs(clip)
      .runs_dry()
      .no_gradient("it changes gradients on their way to an optimizer")
      .example({"gradients0=2,3", "gradients1=float,4"}, {"max_norm=0.5"}, 3)
      .example({"gradients0=2,3"}, {"max_norm=100"}, 2)
      .example({"gradients0=0,3", "gradients1=1"}, {"max_norm=0.5"}, 3);
}

// ClipTensorByScaling: with t = threshold additional_threshold, Y = X t / val where val > t, else Y = X.
//
// `val` is the tensor's norm, or the common norm of several, that another operator has computed. No derivative: it
// changes gradients on their way to an optimizer.

void scaling_clip_shape(const ScalingClipArgs&, ShapeCall& call) {
  require_one_value(call, 1, "val");
  require_one_value(call, 2, "additional_threshold");
  call.set_like(0, 0);
}

template <class T>
void scaling_clip(const ScalingClipArgs& args, In<T> x, Out<T> y, Call& call) {
  const double more = call.has(2) ? call.in(2).item<double>() : 1;
  if (!(more >= 0)) fail("additional_threshold is {}, but must be at least 0", more);
  const double limit = args.threshold * more;
  const auto val = call.in(1).item<double>();
  const T factor = val > limit ? static_cast<T>(limit / val) : T{1};
  if (factor == 1 && x.data() == y.data()) return;
  parallel_for(static_cast<int64_t>(x.size()), 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = factor * x[i];
  });
}

REGISTER(clip_tensor_by_scaling) {
  return op<ScalingClipArgs>("ClipTensorByScaling")
      .doc(
          "Scales a tensor down if a value, such as its norm, is greater than a threshold, by their ratio. A value "
          "that is not a number is not greater. For the norm of several tensors together, with a check that it is "
          "finite, there is GlobalNormClip.")
      .required_arg("threshold", &ScalingClipArgs::threshold, "the greatest value that changes nothing",
                    greater_than(0))
      .input("input_tensor", "float or double, any shape")
      .input("val", "the value that is compared, one float or double")
      .types({DType::float32, DType::float64})
      .input("additional_threshold", "one value, at least 0, that the threshold is multiplied by")
      .types({DType::float32, DType::float64})
      .optional()
      .output("clipped", "the scaled tensor", like("input_tensor"))
      .in_place("input_tensor", "clipped")
      .shape(scaling_clip_shape)
      .flops([](const auto&, const ShapeCall& c) { return input_size(c, 0) + 1 + int{c.has(2)}; })
      .cpu(scaling_clip<float>, scaling_clip<double>)
      .no_gradient("it changes gradients on their way to an optimizer")
      .example({"input_tensor=2,3", "val=1:4"}, {"threshold=0.5"})
      .example({"input_tensor=2,3", "val=1:4", "additional_threshold=float,1:3"}, {"threshold=2"})
      .example({"input_tensor=0", "val=1:4"}, {"threshold=0.5"});
}

}  // namespace
}  // namespace stepnet
