#include "core/compute/onednn_primitives.h"

#include <omp.h>

namespace stepnet::onednn {
namespace {

std::mutex& making_now() {
  static std::mutex one;
  return one;
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(cpu());
  return stream;
}

}  // namespace

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

OneThread::OneThread() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

Making::Making() : lock_(making_now()) {}

void execute(const dnnl::primitive& primitive, std::span<const dnnl_exec_arg_t> arguments) {
  const OneThread limit;
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive.get(), stream().get(), static_cast<int>(arguments.size()), arguments.data()),
      "a primitive of oneDNN failed");
}

}  // namespace stepnet::onednn
