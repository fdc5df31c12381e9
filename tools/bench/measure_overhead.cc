// A step net of tiny operators, against a bare loop that calls the same kernels on tensors that are bound once. The
// difference is what the step net adds to an operator's own call; it may be negative where operators are fused.
#include <fmt/format.h>

#include "recurrent/form/short_form.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/net.h"
#include "tools/bench/measure.h"
#include "tools/bench/stepnet_net.h"
#include "tools/bench/timing.h"

namespace stepnet::bench {
namespace {

constexpr const char* kFile = "tools/bench/nets/small_ops.pbtxt";
const Size kSize{1000, 1, 4, 4, 1};

std::vector<float> numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(0.01F * static_cast<float>(i % 97) - 0.5F);
  return values;
}

class SmallOps : public Contender {
 public:
  SmallOps() : Contender("small_ops") {
    workspace_.tensor("x") = Tensor::of<float>({kSize.steps, 1, kSize.hidden}, numbers(kSize.steps * kSize.hidden));
    workspace_.tensor("h0") = Tensor::of<float>({1, 1, kSize.hidden}, numbers(kSize.hidden));
    NetDef def = load_net(kFile, kSize.hidden);
    expand_recurrent(def);
    net_ = std::make_unique<Net>(def, workspace_);
  }

  void run() override {
    RunContext context;
    net_->run(context);
  }

  Values results() const override {
    const std::span<const float> last = workspace_.fetch("h_last").span<float>();
    return {{"h_last", {last.begin(), last.end()}}};
  }

 private:
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

class BareKernels : public Contender {
 public:
  BareKernels() : Contender("bare kernels"), x_(numbers(kSize.steps * kSize.hidden)) {
    const NetDef step = load_net(kFile, kSize.hidden).op(0).GetExtension(recurrent).step_net();
    for (const std::string& blob : step.external_input()) tensor(blob);
    for (int i = 0; i < step.op_size(); ++i) calls_.push_back(bind(step, i));
  }

  // The input's and the state's rows are copied, which is part of no kernel, but four numbers are next to nothing.
  void run() override {
    const std::vector<float> start = numbers(kSize.hidden);
    auto *x = tensor("x_t").data<float>(), *h_prev = tensor("h_prev").data<float>();
    const auto* h = tensor("h").data<float>();
    std::copy(start.begin(), start.end(), h_prev);
    for (int64_t t = 0; t < kSize.steps; ++t) {
      std::copy_n(x_.data() + t * kSize.hidden, kSize.hidden, x);
      for (const KernelCall& c : calls_) {
        Call call(c.in, c.out, context_);
        c.kernel->run(c.op.args.get(), call);
      }
      std::copy_n(h, kSize.hidden, h_prev);
    }
  }

  Values results() const override {
    const std::span<const float> h = tensors_.at("h")->span<float>();
    return {{"h_last", {h.begin(), h.end()}}};
  }

  size_t operators() const { return calls_.size(); }

 private:
  struct KernelCall {
    BoundOp op;
    const Kernel* kernel;
    std::vector<const Tensor*> in;
    std::vector<Tensor*> out;
  };

  Tensor& tensor(const std::string& name) {
    std::unique_ptr<Tensor>& tensor = tensors_[name];
    if (!tensor) tensor = std::make_unique<Tensor>(Tensor::zeros(DType::float32, {1, 1, kSize.hidden}));
    return *tensor;
  }

  KernelCall bind(const NetDef& step, int index) {
    const TensorType type = TensorType::of(DType::float32, {1, 1, kSize.hidden});
    KernelCall call{bind_op(step.op(index), step.name(), index), nullptr, {}, {}};
    for (const std::string& input : step.op(index).input()) call.in.push_back(&tensor(input));
    for (const std::string& output : step.op(index).output()) call.out.push_back(&tensor(output));
    const std::vector<TensorType> in(call.in.size(), type), out(call.out.size(), type);
    call.kernel = &pick_kernel(call.op, in, out);
    return call;
  }

  std::vector<float> x_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<KernelCall> calls_;
  RunContext context_;
};

}  // namespace

void measure_overhead(const Options& options, Report& report) {
  if (!options.wants("overhead") || !options.wants("small_ops", kSize)) return;
  use_threads(1);
  SmallOps net;
  BareKernels bare;
  net.run();
  bare.run();
  require(net.results() == bare.results(), "the step net of small operators and their kernels differ");
  const MachineLoad load;
  const std::vector<Times> times = time_in_turns({&net, &bare}, options.rounds);
  load.warn("the operators' overhead");
  Row row{net.name(), kSize, 1, "overhead", times[0], bare.name(), times[1]};
  row.overhead_ns = 1e6 * (times[0].minimum - times[1].minimum) / static_cast<double>(kSize.steps) /
                    static_cast<double>(bare.operators());
  report.add(row);
}

}  // namespace stepnet::bench
