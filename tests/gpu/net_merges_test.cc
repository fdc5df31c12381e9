// Nets whose products take the Relu behind them along give what they give operator by operator, as an observed run does
// them.
#include <cstdlib>
#include <random>

#include "core/io/files.h"
#include "core/operator/observer.h"
#include "core/operator/op_devices.h"
#include "stepnet/net.h"
#include "stepnet/run_context.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::net_merges_test {
namespace {

constexpr int64_t kSize = 8;
const std::vector<std::string>& fed_names() {
  static const std::vector<std::string> names = {"x0", "x1", "w0", "w1", "b"};
  return names;
}

// Products, each often with a Relu behind it or somewhat later, of blobs that others read, overwrite, and share bytes
// with. All are square, so that any of them may be a weight.
NetDef random_net(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  NetDef net;
  net.mutable_device_option()->set_device_type(CUDA);
  std::vector<std::string> names = {"x0", "x1", "w0", "w1"};
  const auto any = [&] { return names[below(names.size())]; };
  const auto add = [&](const std::string& type, const std::vector<std::string>& in, const std::string& out) {
    *net.add_op() = make_op(type, in, {out});
    if (std::ranges::find(names, out) == names.end()) names.push_back(out);
  };
  for (int i = 0; i < 12; ++i) {
    const std::string fresh = "a" + std::to_string(i), made = below(4) == 0 ? any() : fresh, x = any();
    if (below(5) == 0) {
      if (made == fresh) add("Alias", {x}, made);
      continue;
    }
    if (below(3) == 0) {
      add("Tanh", {x}, below(2) == 0 ? x : made);
      continue;
    }
    const std::string w = below(3) == 0 ? any() : "w" + std::to_string(below(2));
    if (made == x || made == w) continue;
    std::vector<std::string> in = {x, w};
    if (below(2) == 0) in.emplace_back("b");
    add(below(3) == 0 ? "FCTransposed" : "FC", in, made);
    if (below(6) == 0) add("Tanh", {any()}, "t" + std::to_string(i));
    const size_t to = below(6);
    if (to < 5) add("Relu", {made}, to < 2 ? made : to < 4 ? "r" + std::to_string(i) : any());
  }
  for (const std::string& name : fed_names()) net.add_external_input(name);
  net.add_external_output(names.back());
  net.add_external_output(any());
  return net;
}

NetDef on_one_stream(NetDef net) {
  Argument& arg = *net.add_arg();
  arg.set_name("streams");
  arg.set_i(1);
  return net;
}

class Nobody : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
};

class GpuNetMerges : public GpuTest {
 protected:
  void TearDown() override { unsetenv("STEPNET_PRODUCT_CHOICES"); }

  // All blobs that hold something after three runs.
  static std::map<std::string, Tensor> results(const NetDef& def, const NetOptions& options, bool observed) {
    Workspace blobs;
    uint64_t seed = 0;
    for (const std::string& name : fed_names()) {
      const Tensor value = uniform<float>(name == "b" ? Shape{kSize} : Shape{kSize, kSize}, -0.4, 0.4, ++seed);
      blobs.tensor(name) = on_gpu(value);
    }
    Net net(def, blobs, options);
    Nobody nobody;
    RunContext run;
    run.observer = observed ? &nobody : nullptr;
    for (int i = 0; i < 3; ++i) net.run(run);
    std::map<std::string, Tensor> found;
    for (const std::string& name : blobs.names())
      if (const Blob* blob = blobs.find(name); blob->is_tensor() && blob->tensor().raw())
        found[name] = copied_to(blob->tensor(), {});
    return found;
  }

  static void compare_random_nets(double tol) {
    for (uint32_t seed = 0; seed < 150; ++seed) {
      const NetDef net = seed % 2 == 0 ? random_net(seed) : on_one_stream(random_net(seed));
      const NetOptions options{.release_intermediates = seed % 3 != 0};
      const auto together = results(net, options, false), apart = results(net, options, true);
      ASSERT_EQ(together.size(), apart.size()) << seed;
      for (const auto& [name, value] : apart) EXPECT_EQ(compare(together.at(name), value, tol), "") << seed << name;
    }
  }
};

TEST_F(GpuNetMerges, ResultsAreThoseOfOperatorsOneByOne) { compare_random_nets(0); }

// As above, with Relu in the products where that is faster.
TEST_F(GpuNetMerges, ResultsAreThoseOfOperatorsOneByOneWithAFile) {
  const TemporaryFolder folder;
  setenv("STEPNET_PRODUCT_CHOICES", folder.file("choices").c_str(), 1);
  compare_random_nets(1e-5);
}

// What is not let go of is there, as it was made.
TEST_F(GpuNetMerges, AValueThatOthersSeeIsThere) {
  NetDef net;
  net.mutable_device_option()->set_device_type(CUDA);
  *net.add_op() = make_op("FC", {"x0", "w0", "b"}, {"z"});
  *net.add_op() = make_op("Relu", {"z"}, {"y"});
  for (const std::string& name : fed_names()) net.add_external_input(name);
  net.add_external_output("y");
  const auto released = results(net, {.release_intermediates = true}, false),
             kept = results(net, {.release_intermediates = true, .keep = {"z"}}, false),
             plain = results(net, {}, false), apart = results(net, {}, true);
  EXPECT_EQ(released.count("z"), 0U);
  for (const auto* found : {&kept, &plain}) EXPECT_EQ(compare(found->at("z"), apart.at("z"), 0), "");
  for (const auto* found : {&kept, &plain, &released}) EXPECT_EQ(compare(found->at("y"), apart.at("y"), 0), "");
}

// Somebody has made what Relu writes a part of what the product reads, which nobody could know beforehand.
TEST_F(GpuNetMerges, SomebodyElsesViewsAreSeen) {
  NetDef net;
  net.mutable_device_option()->set_device_type(CUDA);
  *net.add_op() = make_op("FC", {"x", "w"}, {"z"});
  *net.add_op() = make_op("Relu", {"z"}, {"y"});
  for (const char* name : {"x", "w"}) net.add_external_input(name);
  net.add_external_output("y");
  const Tensor x = normal<float>({kSize, kSize}, 1), w = normal<float>({kSize, kSize}, 2);
  Workspace blobs;
  blobs.tensor("x") = on_gpu(x);
  blobs.tensor("w") = on_gpu(w);
  blobs.tensor("y") = blobs.tensor("x");
  RunContext run;
  Net(net, blobs, {.release_intermediates = true}).run(run);
  const Tensor z = run_op_on(make_op("FC", {"x", "w"}, {"z"}), {{"x", x}, {"w", w}})[0],
               y = run_op_on(make_op("Relu", {"z"}, {"y"}), {{"z", z}})[0];
  EXPECT_EQ(compare(copied_to(blobs.fetch("y"), {}), y, 1e-5), "");
}

// Another name of what Relu writes goes on showing what it showed.
TEST_F(GpuNetMerges, AnotherNameKeepsItsBytes) {
  NetDef net;
  net.mutable_device_option()->set_device_type(CUDA);
  *net.add_op() = make_op("Tanh", {"x0"}, {"y"});
  *net.add_op() = make_op("Alias", {"y"}, {"k"});
  *net.add_op() = make_op("FC", {"x1", "w0", "b"}, {"z"});
  *net.add_op() = make_op("Relu", {"z"}, {"y"});
  for (const std::string& name : fed_names()) net.add_external_input(name);
  for (const char* name : {"y", "k"}) net.add_external_output(name);
  const auto together = results(on_one_stream(net), {.release_intermediates = true}, false),
             apart = results(net, {.release_intermediates = true}, true);
  for (const char* name : {"y", "k"}) EXPECT_EQ(compare(together.at(name), apart.at(name), 0), "") << name;
  EXPECT_NE(compare(apart.at("k"), apart.at("y"), 1e-3), "");
}

}  // namespace
}  // namespace stepnet::testing::net_merges_test
