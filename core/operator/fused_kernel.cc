#include "core/operator/fused_kernel.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/compute/threads.h"
#include "stepnet/half.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

struct ReadInputs {
  int count = 0;
  int all[2 * kMostFusedValues];  // each instruction reads two at most
};

// From the operator's numbers of operands to those of a loop over tensors, which are the inputs that it reads and the
// output.
ReadInputs number_operands(FusedBody& body, int inputs) {
  ReadInputs read;
  for (int i = 0; i < inputs; ++i)
    if (reads_input(body, i)) read.all[read.count++] = i;
  const int output = read.count;
  for (size_t i = 0; i < body.size(); ++i) {
    FusedInstruction& made = body[i];
    for (int* operand : {&made.a, &made.b}) {
      if (*operand >= inputs) {
        *operand += output + 1 - inputs;
      } else {
        const int* const place = std::find(read.all, read.all + output, *operand);
        *operand = place == read.all + output ? 0 : static_cast<int>(place - read.all);
      }
    }
    made.to = output + 1 + static_cast<int>(i);
  }
  body.back().to = output;
  return read;
}

template <class T>
void run_body(FusedBody& body, Call& call) {
  const ReadInputs read = number_operands(body, call.inputs());
  const int sources = read.count;
  FusedOperand<T> tensors[kMostFusedTensors];
  for (int t = 0; t < sources; ++t)
    tensors[t].first = const_cast<T*>(call.in_span<T>(read.all[t]).data());  // is only read
  tensors[sources].first = call.out_span<T>(0).data();
  const FusedLoop<T> loop{body.data(), static_cast<int>(body.size()), tensors, sources + 1, call.out(0).size(),
                          sources};
  const auto range = [&](int64_t begin, int64_t end) { fused_kernels().run(loop, begin, end); };
  parallel_for(fused_pieces(1, loop.width), fused_nanoseconds(body) * kFusedPiece, std::ref(range));
}

}  // namespace

bool reads_input(const FusedBody& body, int input) {
  return std::ranges::any_of(
      body, [=](const FusedInstruction& i) { return i.a == input || (fused_code(i.code).reads_b && i.b == input); });
}

void run_fused_body(const FusedBody& given, Call& call) {
  FusedBody body = given;
  const auto run = [&](auto zero) { run_body<decltype(zero)>(body, call); };
  const DType type = call.out(0).dtype();
  if (!with_half(type, run)) type == DType::float32 ? run(0.0F) : run(0.0);
}

Kernel fused_kernel(DType dtype, std::function<FusedBody(const void*, int)> body) {
  Kernel kernel;
  kernel.dtype = dtype;
  kernel.run = [body = std::move(body)](const void* args, Call& call) {
    run_fused_body(body(args, call.inputs()), call);
  };
  return kernel;
}

}  // namespace stepnet
