// CUDA kernels for Adam, AdamW, DecayAdagrad and SparseAdam. Meaning: see operators/optimizer/adam.cc.
#include "operators/optimizer/adam.h"

#include "gpu/loops/elementwise.h"
#include "gpu/loops/optimizer.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_adam {
namespace {

// A step's numbers, which follow from iter and lr, which are on the device; a negative iteration is noted, and counts
// as the first.
template <class Step>
struct StepOf {
  AdamArgs args;
  gpu::Scalar lr, iter;
  gpu::Bounds bounds;

  __device__ Step operator()() const {
    const double t = iter.value();
    if (t < 0) bounds.report(static_cast<int64_t>(t), INT64_MAX);
    return Step(args, lr.value(), t < 0 ? 0 : t);
  }
};
template <class Step>
StepOf<Step> step_of(const AdamArgs& args, const Tensor& lr, const Tensor& iter, const Call& call) {
  return {args, gpu::Scalar(lr), gpu::Scalar(iter), gpu::bounds(call, "iter")};
}

template <size_t kCount, class... T>
bool all_begin_groups(const T*... operands) {
  return (gpu::begins_a_group<kCount>(operands) && ...);
}

// A negative iteration changes nothing.
template <class T>
void update(const AdamArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> grad, const Tensor& lr,
            const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2, gpu::Out<T> new_grad,
            Call& call) {
  if (param.size == 0) return;
  const auto made = gpu::made_once(call, step_of<AdamStep<T>>(args, lr, iter, call));
  const AdamStep<T>* const step = made.data;
  const gpu::Scalar at(iter);
  constexpr size_t kCount = gpu::kSeveral<T>;
  const bool aligned = all_begin_groups<kCount>(param.data, m1.data, m2.data, grad.data, new_param.data, new_m1.data,
                                                new_m2.data, new_grad.data);
  const size_t groups = gpu::groups_of(param.size, kCount, aligned);
  gpu::each(call, param.size - groups * (kCount - 1), [=] __device__(size_t thread) {
    if (at.value() < 0) return;
    const AdamStep<T> now = *step;
    if (thread < groups) {
      const auto g = gpu::group_at<kCount>(grad.data, thread);
      auto p = gpu::group_at<kCount>(param.data, thread), a = gpu::group_at<kCount>(m1.data, thread),
           b = gpu::group_at<kCount>(m2.data, thread), change = g;
      now(kCount, g.values, p.values, a.values, b.values, p.values, a.values, b.values, change.values);
      gpu::group_at<kCount>(new_param.data, thread) = p;
      gpu::group_at<kCount>(new_m1.data, thread) = a;
      gpu::group_at<kCount>(new_m2.data, thread) = b;
      if (new_grad.data) gpu::group_at<kCount>(new_grad.data, thread) = change;
      return;
    }
    const size_t i = thread + groups * (kCount - 1);
    now(1, grad.data + i, param.data + i, m1.data + i, m2.data + i, new_param.data + i, new_m1.data + i,
        new_m2.data + i, new_grad.data ? new_grad.data + i : nullptr);
  });
}

REGISTER(adam_cuda) { return cuda<AdamArgs>("Adam", update<float>, update<double>); }
REGISTER(adam_w_cuda) { return cuda<AdamArgs>("AdamW", update<float>, update<double>); }

template <class T>
void decay_adagrad(const AdamArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> grad,
                   const Tensor& lr, const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2,
                   Call& call) {
  if (param.size == 0) return;
  const auto made = gpu::made_once(call, step_of<DecayAdagradStep<T>>(args, lr, iter, call));
  const DecayAdagradStep<T>* const step = made.data;
  const gpu::Scalar at(iter);
  gpu::each(call, param.size, [=] __device__(size_t i) {
    if (at.value() < 0) return;
    const DecayAdagradStep<T> now = *step;
    now(1, grad.data + i, param.data + i, m1.data + i, m2.data + i, new_param.data + i, new_m1.data + i,
        new_m2.data + i);
  });
}

REGISTER(decay_adagrad_cuda) { return cuda<AdamArgs>("DecayAdagrad", decay_adagrad<float>, decay_adagrad<double>); }

// Parameter and moments are in place: the outputs hold their values.
template <class T>
void sparse_adam(const AdamArgs& args, gpu::Out<T> param, gpu::Out<T> m1, gpu::Out<T> m2, gpu::Out<T> new_grad,
                 Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(4));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  if (call.in(3).size() == 0 || row == 0) return;
  const auto made = gpu::made_once(call, step_of<AdamStep<T>>(args, call.in(5), call.in(6), call));
  gpu::for_each_row(call, call.in(3), table[0], row, gpu::read_of(made),
                    [=] __device__(const AdamStep<T>& step, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const a = m1.data + at * row + column;
                      T* const b = m2.data + at * row + column;
                      T* const made = new_grad.data ? new_grad.data + k * row + column : nullptr;
                      step(1, grad.data + k * row + column, p, a, b, p, a, b, made);
                    });
}

// A thread has all rows of a part of the table: each of a row's elements needs the squares of all.
template <class T>
void row_wise_adam(const AdamArgs& args, gpu::Out<T> param, gpu::Out<T> m1, gpu::Out<T> m2, gpu::Out<T> new_grad,
                   Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(4));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  if (call.in(3).size() == 0) return;
  const auto made = gpu::made_once(call, step_of<AdamStep<T>>(args, call.in(5), call.in(6), call));
  gpu::for_each_row(call, call.in(3), table[0], 1, gpu::read_of(made),
                    [=] __device__(const AdamStep<T>& step, int64_t k, int64_t at, int64_t) {
                      const T* const g = grad.data + k * row;
                      T squares = 0;
                      for (int64_t i = 0; i < row; ++i) squares += g[i] * g[i];
                      const T root = step.grown_root(m2[static_cast<size_t>(at)], squares, row);
                      for (int64_t i = 0; i < row; ++i)
                        step.element(g[i], root, param.data + at * row + i, m1.data + at * row + i,
                                     new_grad.data ? new_grad.data + k * row + i : nullptr);
                    });
}

REGISTER(row_wise_sparse_adam_cuda) {
  return cuda<AdamArgs>("RowWiseSparseAdam", row_wise_adam<float>, row_wise_adam<double>);
}
REGISTER(sparse_adam_cuda) { return cuda<AdamArgs>("SparseAdam", sparse_adam<float>, sparse_adam<double>); }

}  // namespace
}  // namespace stepnet::gpu_adam
