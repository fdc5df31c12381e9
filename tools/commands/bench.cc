// `stepnet bench`: how long a net takes, forward or as a training step, and how much memory.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/autograd/saved/offload_packer.h"
#include "core/compute/backend.h"
#include "core/compute/threads.h"
#include "core/estimate/report.h"
#include "core/io/json.h"
#include "core/io/npy.h"
#include "recurrent/train/memory_budget.h"
#include "stepnet/device.h"
#include "stepnet/profiler.h"
#include "stepnet/random.h"
#include "stepnet/tensor.h"
#include "tools/commands/cli/blob_text.h"
#include "tools/commands/cli/command_session.h"
#include "tools/commands/cli/device_choice.h"
#include "tools/commands/cli/feeds.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct BenchOptions {
  std::string file, init, loss, root, offload;
  std::vector<std::string> feeds, parameters;
  DeviceChoice device = DeviceChoice::automatic;
  OptimizerOptions optimizer;
  int64_t batch = 0, timesteps = 0, iterations = 0, warm_up = 3, memory_budget = 0;
  int threads = 0;
  uint64_t seed = 1;
  bool train = false, tf32 = false, json = false, strict = false;
};

// Sorted milliseconds of one run each.
struct Samples {
  std::vector<double> device, wall;  // by the device's own clock, on the CPU the same as by the host's
  static double median(const std::vector<double>& sorted) {
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

struct BenchResult {
  std::string net;
  Device device;
  Samples samples;
  int64_t peak = 0;             // bytes, of the net with all that it reads, from its first run on
  MemoryByCategory categories;  // live before is in it
  std::optional<Estimate> estimate;
};

class BenchCommand {
 public:
  explicit BenchCommand(const BenchOptions& options) : options_(options) {}

  void run() {
    set_threads(options_.threads);
    files_ = root_of(options_.root);
    net_ = load_short_net(options_.file);
    if (!options_.init.empty()) init_ = load_short_net(options_.init);
    report_unknown_args({&net_, &init_}, options_.strict);
    feeds_ = read_feeds(options_.feeds);
    parameters_ = parse_types("--parameter", options_.parameters);
    BenchResult result;
    result.net = net_.name().empty() ? options_.file : net_.name();
    const bool on_cpu = choose_device(options_.device, {&net_});
    if (options_.tf32) allow_tf32(!on_cpu);
    result.device = on_cpu ? Device{} : device_of(OperatorDef(), net_);
    require(result.device.kind == DeviceKind::cpu || (options_.memory_budget == 0 && options_.offload.empty()),
            "budgets and offloading are for training on the CPU");
    if (options_.memory_budget > 0) fitted_ = fit_training(training(result.device), options_.memory_budget).model;
    std::string unknown;
    try {
      DryScope scope(result.device.kind);
      result.estimate = estimate_session(*session(result.device), scope);
    } catch (const Error& e) {
      unknown = e.fact();  // if it is no matter of data, the run says it
    }
    with_estimate([&] { measure(result); }, result.device, [&] { return session(result.device); });
    if (!unknown.empty()) print_note("note: FLOPs are not known: {}\n", unknown);
    print_text("{}", options_.json ? json(result) : text(result));
  }

 private:
  std::unique_ptr<NetSession> session(Device device) const {
    if (!options_.train) {
      const std::optional<Model> model = model_in(net_, options_.batch, options_.timesteps);
      ForwardOptions forward{.feeds = feeds_.types, .parameters = parameters_, .init = model ? model->init : init_};
      forward.plan_memory = true;
      forward.device = device;
      forward.files = files_;
      return net_session(net_, model, std::move(forward));
    }
    return training_net_session(training(device));
  }

  TrainingEstimate training(Device device) const {
    const std::optional<Model> model = model_in(net_, options_.batch, options_.timesteps);
    TrainingEstimate training{.model = fitted_ ? *fitted_ : model ? *model : model_of(net_, init_, options_.loss)};
    training.model.device = training.device = device;
    training.model.files = files_;
    training.optimizer = options_.optimizer;
    training.feeds = feeds_.types;
    training.parameters = parameters_;
    training.plan_memory = true;
    return training;
  }

  // Small numbers where only types were given, so that nothing overflows however long the net is trained.
  void fill(NetSession& made) const {
    for (const Types* types : {&feeds_.types, &parameters_})
      for (const auto& [name, type] : *types) {
        Tensor& blob = made.blobs.at(name).tensor();
        if (const auto given = feeds_.values.find(name); given != feeds_.values.end())
          blob.copy_from(on_device(given->second, blob.device()));
        else if (is_floating(type.dtype))
          blob.copy_from(on_device(drawn(name, type, options_.seed), blob.device()));
      }
  }

  void measure(BenchResult& result) const {
    Allocator& memory = allocator(result.device);
    const int64_t before = memory.counters().live;
    const auto made = session(result.device);
    fill(*made);
    memory.reset_peak();  // what was drawn is the command's own
    RunContext context;
    context.seed = options_.seed;
    const auto warn = warn_of_runs(options_.strict);
    context.warn = &warn;
    std::optional<autograd::OffloadPacker> packer;
    if (!options_.offload.empty())
      context.packer = &packer.emplace(autograd::OffloadOptions{.folder = options_.offload});
    const auto once = [&] {
      made->net->run(context);
      if (made->advance) made->advance();
    };
    for (int64_t i = 0; i < options_.warm_up; ++i) once();
    memory.synchronize();
    take_samples(result, once);
    result.peak = memory.counters().peak - before;
    result.categories = memory_by_category(result.device);
  }

  // So many samples, else as many as take a second.
  template <class Once>
  void take_samples(BenchResult& result, const Once& once) const {
    constexpr int64_t kLeast = 5, kMost = 10'000;
    Samples& s = result.samples;
    const double start = now_seconds();
    const auto enough = [&](int64_t done) {
      if (options_.iterations > 0) return done >= options_.iterations;
      return done >= kMost || (done >= kLeast && now_seconds() - start > 1);
    };
    for (int64_t i = 0; !enough(i); ++i) {
      const double begin = now_seconds();
      double by_device = -1;
      if (result.device.kind == DeviceKind::cpu)
        once();
      else
        by_device = backend(result.device.kind).milliseconds(result.device, once);
      s.wall.push_back((now_seconds() - begin) * 1e3);
      s.device.push_back(by_device < 0 ? s.wall.back() : by_device);
    }
    std::ranges::sort(s.device);
    std::ranges::sort(s.wall);
  }

  double flops_per_second(const BenchResult& r) const {
    const double seconds = Samples::median(r.samples.device) / 1e3;
    return r.estimate && seconds > 0 ? r.estimate->flops / seconds : 0;
  }

  std::string text(const BenchResult& r) const {
    const Samples& s = r.samples;
    const bool gpu = r.device.kind != DeviceKind::cpu;
    std::string out = fmt::format("{}, {} on {}, {}\n", r.net, options_.train ? "a training step" : "forward", r.device,
                                  gpu ? "by the device's events" : fmt::format("{} threads", threads()));
    out += fmt::format("{:<12} {:>12.4f} ms of {} runs behind {}\n", "median", Samples::median(s.device),
                       s.device.size(), options_.warm_up);
    out += fmt::format("{:<12} {:>12.4f} ms\n", "min", s.device.front());
    if (gpu)
      out += fmt::format("{:<12} {:>12.4f} ms, the median by the host's clock\n", "wall", Samples::median(s.wall));
    out += fmt::format("{:<12} {:>12}, {} bytes\n", "peak", bytes_text(r.peak), r.peak);
    for (const MemoryCategory c : {MemoryCategory::reserve, MemoryCategory::workspace})
      if (const int64_t bytes = r.categories[static_cast<size_t>(c)].peak; bytes > 0)
        out += fmt::format("{:<12} {:>12}, {} bytes\n", memory_category_name(c), bytes_text(bytes), bytes);
    if (r.estimate)
      out += fmt::format("{:<12} {:>12.4g}, {:.4g} a second\n", "FLOPs", r.estimate->flops, flops_per_second(r));
    return out;
  }

  std::string json(const BenchResult& r) const {
    const Samples& s = r.samples;
    const auto peak = [&](MemoryCategory c) { return r.categories[static_cast<size_t>(c)].peak; };
    const auto milliseconds = [](double value) { return rounded_to_digits(value, 6); };
    Json json = Json::object();
    json.add("net", r.net)
        .add("device", fmt::format("{}", r.device))
        .add("training", options_.train)
        .add("tf32", options_.tf32);
    json.add("threads", threads()).add("iterations", s.device.size());
    json.add("median_ms", milliseconds(Samples::median(s.device))).add("min_ms", milliseconds(s.device.front()));
    json.add("wall_median_ms", milliseconds(Samples::median(s.wall))).add("peak_bytes", r.peak);
    json.add("reserve_bytes", peak(MemoryCategory::reserve)).add("workspace_bytes", peak(MemoryCategory::workspace));
    json.add("flops", r.estimate ? Json::count(r.estimate->flops) : Json(nullptr));
    json.add("flops_per_second", r.estimate ? Json(rounded_to_digits(flops_per_second(r), 6)) : Json(nullptr));
    json.add("bytes_moved", r.estimate ? Json::count(r.estimate->bytes_moved) : Json(nullptr));
    return json.pretty();
  }

  const BenchOptions& options_;
  NetDef net_, init_;
  std::optional<Model> fitted_;  // with the plan that keeps to a budget
  FileRootPtr files_;
  Feeds feeds_;
  Types parameters_;
};

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Time a net or its training step, and tell its memory");
  auto o = std::make_shared<BenchOptions>();  // shared with the callback, which runs after this returns
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* type, const char* help) {
    command->add_option(name, values, help)->allow_extra_args(false)->type_name(type);
  };
  command->add_option("FILE", o->file, "The net, as protobuf text or in binary form")->required()->type_name("");
  list("--feed", o->feeds, "BLOB=TYPE[SIZE,...]|FILE.npy", "A blob that is fed: its type, or values; may be repeated");
  list("--parameter", o->parameters, "BLOB=TYPE[SIZE,...]", "A parameter that no init net makes; may be repeated");
  command->add_option("--init", o->init, "A net that makes parameters; of a model, its own")->type_name("NET");
  add_root_option(*command, o->root);
  add_strict_option(*command, o->strict);
  command->add_option("--device", o->device, "Where to run: auto, cpu or cuda")
      ->transform(CLI::CheckedTransformer(device_names()).description(""))
      ->type_name("DEVICE");
  auto* train = command->add_flag("--train", o->train, "A training step: with gradients, and the update of parameters");
  command->add_option("--memory-budget", o->memory_budget, "With --train: the most memory that the step may take")
      ->transform(byte_count())
      ->type_name("BYTES")
      ->default_str("")
      ->needs(train);
  add_offload_option(*command, o->offload)->needs(train);
  command->add_option("--loss", o->loss, "What is differentiated; of a model, its loss")->type_name("BLOB");
  command->add_option("--optimizer", o->optimizer.optimizer, "Which optimizer")
      ->check(CLI::IsMember(optimizer_names()).description(""))
      ->type_name("NAME");
  command->add_option("--clip", o->optimizer.clip, "Largest norm of all gradients together; 0: off");
  command->add_option("--batch", o->batch, "Of a model; else as it says")->check(whole_number(1));
  command->add_option("--timesteps", o->timesteps, "Of a model; else as it says")->check(whole_number(1));
  command->add_option("--iterations", o->iterations, "Runs that are timed; else as many as take a second")
      ->check(whole_number(1, 1'000'000))
      ->type_name("N");
  command->add_option("--warm-up", o->warm_up, "Runs before them, which make what stays")
      ->check(whole_number(0, 1'000'000))
      ->type_name("N");
  command->add_option("--threads", o->threads, "Threads to use; 0: one per core")
      ->check(whole_number(0, 1024))
      ->type_name("N");
  command->add_option("--seed", o->seed, "Seed of all random draws")->type_name("N");
  command->add_flag("--tf32", o->tf32, kTf32Help);
  command->add_flag("--json", o->json, "Print one JSON object");
  command->callback([o] { BenchCommand(*o).run(); });
}

}  // namespace stepnet::tools
