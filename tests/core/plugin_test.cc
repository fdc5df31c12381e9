// An operator registered by a shared library that is loaded while the program runs is an operator like any other.
#include <dlfcn.h>

#include "tests/operators/op_test.h"
#include "tools/source_path.h"

namespace stepnet::testing::plugin_test {
namespace {

// Loaded once, and never unloaded: the registry points into it.
void load_plugin() {
  static void* plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << dlerror();
}

TEST(Plugin, RegistersItsOperatorInTheOneRegistry) {
  ASSERT_FALSE(op_types().empty()) << "the library's own operators are registered before main";
  load_plugin();
  const OpSpec* spec = find_op("ScaleBy");
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(spec->doc, "Multiplies every element by a constant.");
}

TEST(Plugin, ItsOperatorRunsAndHasAGradient) {
  load_plugin();
  const Tensor x = Tensor::of<float>({2}, {1, -2});
  const auto y = run_op_on(make_op("ScaleBy", {"X"}, {"Y"}), {{"X", x}});
  EXPECT_EQ(compare(y.at(0), Tensor::of<float>({2}, {2, -4}), 0), "");
  const OperatorDef def = make_op("ScaleBy", {"X"}, {"Y"}, {make_arg("factor", 3.0f)});
  EXPECT_EQ(check_gradient(def, {{"X", normal<double>({2, 3})}}, {"X"}), "");
}

}  // namespace
}  // namespace stepnet::testing::plugin_test
