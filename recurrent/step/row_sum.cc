#include "recurrent/step/row_sum.h"

#include "core/compute/vector_math.h"
#include "stepnet/bound_op.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

// By the operator that sums, in place.
void add_on_device(const Tensor& from, Tensor& to) {
  OperatorDef def;
  def.set_type(op_with_role(Role::sum).type);
  for (const char* input : {"total", "step"}) def.add_input(input);
  def.add_output("total");
  static const BoundOp bound = bind_op(def, "sums over time", 0);
  BoundOp op = bound;
  op.device = to.device();
  const Tensor flat = from.reshaped(to.shape());
  const Tensor* in[] = {&to, &flat};
  Tensor* out[] = {&to};
  RunContext run;
  run_op(op, in, out, run);
}

}  // namespace

void add_elements(const Tensor& from, Tensor to) {
  if (to.is_dry()) return;
  if (to.device().kind != DeviceKind::cpu) return add_on_device(from, to);
  const auto add_halves = [&](auto zero) {
    const auto more = from.span<decltype(zero)>();
    const auto add = [&](auto sum) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + more[i];
    };
    to.dtype() == DType::float32 ? add(to.span<float>()) : add(to.span<decltype(zero)>());
  };
  if (with_half(from.dtype(), add_halves)) return;
  if (to.dtype() == DType::float32) {
    vec_axpy(1.0F, from.span<float>(), to.span<float>());
  } else {
    vec_axpy(1.0, from.span<double>(), to.span<double>());
  }
}

void RowSum::add(int64_t t, int64_t first, int64_t samples) const {
  const int64_t row = t + shift;
  if (row < start || row - start >= from.dim(0)) return;
  add_elements(from.row(row - start).rows(first, samples), to.row(row % to.dim(0)).rows(first, samples));
}

}  // namespace stepnet
