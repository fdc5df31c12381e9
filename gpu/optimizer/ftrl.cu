// CUDA kernels for Ftrl, GFtrl and SparseFtrl. Meaning: see operators/optimizer/ftrl.cc.
#include "operators/optimizer/ftrl.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_ftrl {
namespace {

// The step's numbers, with alpha from input `i` if that is there.
template <class T>
struct StepOf {
  FtrlArgs args;
  gpu::Scalar alpha;

  StepOf(const FtrlArgs& a, const Call& call, int i)
      : args(a), alpha(call.has(i) ? call.in(i) : Tensor::scalar<double>(a.alpha.value_or(kFtrlAlpha))) {}
  __device__ FtrlStep<T> operator()() const { return FtrlStep<T>(args, alpha.value()); }
};

template <class T>
void ftrl(const FtrlArgs& args, gpu::In<T> param, gpu::In<T> nz, gpu::In<T> grad, Call& call) {
  const StepOf<T> start(args, call, 3);
  const gpu::Out<T> new_param = gpu::out_span<T>(call.out(0)), new_nz = gpu::out_span<T>(call.out(1));
  gpu::each(call, param.size, [=] __device__(size_t i) {
    start()(param.data + i, nz.data + 2 * i, grad[i], new_param.data + i, new_nz.data + 2 * i);
  });
}

template <class T>
void gftrl(const FtrlArgs& args, gpu::In<T> param, gpu::In<T> nz, gpu::In<T> grad, Call& call) {
  const StepOf<T> start(args, call, 3);
  const gpu::Out<T> new_param = gpu::out_span<T>(call.out(0)), new_nz = gpu::out_span<T>(call.out(1));
  const Shape& shape = call.in(0).shape();
  const int64_t rows = shape[0], columns = shape.size_between(1, shape.rank());
  gpu::each(call, static_cast<size_t>(columns), [=] __device__(size_t j) {
    gftrl_column(start(), rows, columns, param.data + j, nz.data + 2 * j, grad.data + j, new_param.data + j,
                 new_nz.data + 2 * j);
  });
}

// Table and n_z are in place: the outputs hold their values.
template <class T>
void sparse_ftrl(const FtrlArgs& args, gpu::Out<T> param, gpu::Out<T> nz, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  gpu::for_each_row(call, call.in(2), table[0], row, StepOf<T>(args, call, 4),
                    [=] __device__(const FtrlStep<T>& step, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const state = nz.data + 2 * (at * row + column);
                      step(p, state, grad.data[k * row + column], p, state);
                    });
}

REGISTER(ftrl_cuda) { return cuda<FtrlArgs>("Ftrl", ftrl<float>, ftrl<double>); }
REGISTER(gftrl_cuda) { return cuda<FtrlArgs>("GFtrl", gftrl<float>, gftrl<double>); }
REGISTER(sparse_ftrl_cuda) { return cuda<FtrlArgs>("SparseFtrl", sparse_ftrl<float>, sparse_ftrl<double>); }

}  // namespace
}  // namespace stepnet::gpu_ftrl
