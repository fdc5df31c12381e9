// Hooks on saved values: when they run, what they see, what they may do.
#include <gtest/gtest.h>

#include "core/autograd/op_node.h"
#include "stepnet/saved_value.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::autograd::testing::saved_hooks_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;
using stepnet::testing::read_all;
using stepnet::testing::TempFolder;
using stepnet::testing::write_all;

Tensor scaled(const Tensor& t, double factor) {
  Tensor result = t.clone();
  for (double& v : result.span<double>()) v *= factor;
  return result;
}

// Hooks that count themselves and keep a scaled copy.
struct Counted {
  int packs = 0, unpacks = 0;
  std::vector<std::string> types = {};
  SavedValueHooks hooks(double factor = 1) {
    return {[this, factor](const Tensor& t) -> std::any {
              ++packs;
              types.push_back(t.str());
              return scaled(t, factor);
            },
            [this](const std::any& object) {
              ++unpacks;
              return std::any_cast<Tensor>(object);
            }};
  }
};

OpNode& node_of(const Variable& v) { return dynamic_cast<OpNode&>(*v.grad_fn()); }

// Live bytes are at the end what they were.
class TapeSavedHooks : public ::testing::Test {
 protected:
  void SetUp() override {
    backward(sum_of(apply("Mul", {constant({1}), var({1})})));  // so that what operators keep is there
    before_ = live_bytes();
  }
  void TearDown() override { EXPECT_EQ(live_bytes(), before_); }

 private:
  int64_t before_ = 0;
};

TEST_F(TapeSavedHooks, SavedVariablePackingUnpackingSavedOriginalWithHooks) {
  Counted counted;
  const Variable x = var({2, 3});
  const Variable y = apply("Mul", {x, x});
  node_of(y).saved_input(0)->register_hooks(counted.hooks(2));
  EXPECT_EQ(counted.packs, 1);
  backward(sum_of(y), {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{6, 9}));  // one of the two factors is twice itself
  EXPECT_EQ(counted.unpacks, 1);
  // The unpacked value has the history of the original.
  const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(first), (Numbers{6, 9}));
  EXPECT_EQ(values_of(grad({sum_of(first)}, {x})[0].dense), (Numbers{2, 2}));
  expect_contains(error_text([&] {
                    const Variable z = apply("Mul", {x, x});
                    node_of(z).saved_input(0)->register_hooks(
                        {[](const Tensor&) { return std::any(1); }, [](const std::any&) { return Tensor(); }});
                    backward(sum_of(z));
                  }),
                  "returned nothing");
}

TEST_F(TapeSavedHooks, SavedVariablePackingUnpackingDidNotSaveOriginalWithHooks) {
  Counted counted;
  const Variable x = var({0, 0});
  const Variable y = apply("Exp", {x});
  ASSERT_NE(node_of(y).saved_output(0), nullptr);
  node_of(y).saved_output(0)->register_hooks(counted.hooks(3));
  backward(sum_of(y), {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{3, 3}));
  const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(grad({sum_of(first)}, {x})[0].dense), (Numbers{3, 3}));
  EXPECT_EQ(counted.packs, 1);
}

TEST_F(TapeSavedHooks, SavedVariablePackingUnpackingSavedOriginalWithDefaultHooks) {
  Counted counted;
  const Variable x = var({2, 3});
  Variable y;
  {
    const SavedValueHooksScope scope(counted.hooks());
    y = apply("Mul", {x, x});
    EXPECT_EQ(counted.packs, 2);
  }
  const Variable z = apply("Mul", {x, x});
  EXPECT_EQ(counted.packs, 2);
  backward(sum_of(y));
  EXPECT_EQ(counted.unpacks, 2);
  EXPECT_EQ(grad_of(x), (Numbers{4, 6}));
}

TEST_F(TapeSavedHooks, SettingDefaultSavedVariableHooksTwiceShouldUseInner) {
  Counted outer, inner;
  const Variable x = var({2, 3});
  const SavedValueHooksScope outside(outer.hooks(2));
  Variable y;
  {
    const SavedValueHooksScope inside(inner.hooks(3));
    y = apply("Mul", {x, x});
  }
  const Variable z = apply("Mul", {x, x});
  EXPECT_EQ(outer.packs, 2);
  EXPECT_EQ(inner.packs, 2);
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{12, 18}));
  EXPECT_EQ(outer.unpacks, 0);
}

TEST_F(TapeSavedHooks, DisablingSavedTensorHooks) {
  Counted counted;
  {
    const NoSavedValueHooks none("no hooks in here, please");
    expect_contains(error_text([&] { const SavedValueHooksScope scope(counted.hooks()); }), "no hooks in here, please");
    const Variable x = var({2, 3});
    const Variable y = apply("Mul", {x, x});  // works without
  }
  const SavedValueHooksScope scope(counted.hooks());
  expect_contains(error_text([&] { const NoSavedValueHooks none("there are some"); }), "there are some");
}

TEST_F(TapeSavedHooks, DisablingSavedTensorHooksNested) {
  Counted counted;
  const NoSavedValueHooks outer("outer");
  {
    const NoSavedValueHooks inner("inner");
    expect_contains(error_text([&] { const SavedValueHooksScope scope(counted.hooks()); }), "inner");
  }
  expect_contains(error_text([&] { const SavedValueHooksScope scope(counted.hooks()); }), "outer");
}

struct OwnProblem {
  int number;
};

TEST_F(TapeSavedHooks, SavedTensorHooksCustomErrorPropagation) {
  const Variable x = var({2, 3});
  Variable y;
  {
    const SavedValueHooksScope scope({[](const Tensor& t) -> std::any { return t.clone(); },
                                      [](const std::any&) -> Tensor { throw OwnProblem{7}; }});
    y = apply("Mul", {x, x});
  }
  try {
    backward(sum_of(y));
    FAIL();
  } catch (const OwnProblem& problem) {
    EXPECT_EQ(problem.number, 7);
  }
  const SavedValueHooksScope scope(
      {[](const Tensor&) -> std::any { throw OwnProblem{8}; }, [](const std::any&) { return Tensor(); }});
  EXPECT_THROW(apply("Mul", {x, x}), OwnProblem);
}

TEST_F(TapeSavedHooks, AnErrorOfAHookNamesTheValueAndTheOperator) {
  const Variable x = var({2, 3});
  const SavedValueHooksScope scope({[](const Tensor& t) -> std::any { return t.clone(); },
                                    [](const std::any&) -> Tensor { fail("the shelf is empty"); }});
  const Variable y = apply("Mul", {x, x});
  const std::string text = error_text([&] { backward(sum_of(y)); });
  expect_contains(text, "the shelf is empty");
  expect_contains(text, "of MulGradient, which ran forward at");
}

TEST_F(TapeSavedHooks, UnpackHooksExecCount) {
  Counted counted;
  const Variable x = var({2, 3}), k = constant({5, 7});
  Variable y;
  {
    const SavedValueHooksScope scope(counted.hooks());
    y = sum_of(apply("Mul", {x, k}));
  }
  EXPECT_EQ(counted.packs, 1);
  EXPECT_EQ(counted.unpacks, 0);
  backward(y);
  EXPECT_EQ(counted.packs, 1);
  EXPECT_EQ(counted.unpacks, 1);
  EXPECT_EQ(grad_of(x), (Numbers{5, 7}));
}

TEST_F(TapeSavedHooks, SavedTensorsHookVersionCounterNotShared) {
  const Variable x = var({2, 3});
  const Variable y = apply("Exp", {x});
  const Tensor replacement = Tensor::of<double>({2}, {10, 20});
  node_of(y).saved_output(0)->register_hooks({[&](const Tensor&) -> std::any { return replacement; },
                                              [](const std::any& object) { return std::any_cast<Tensor>(object); }});
  const uint64_t version = y.version();
  apply_in_place("Mul", {y, constant({2, 2})});  // the original is written, what stands for it is not
  EXPECT_GT(y.version(), version);
  EXPECT_EQ(replacement.version(), 0U);
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{20, 40}));
  EXPECT_EQ(replacement.version(), 0U);
}

TEST_F(TapeSavedHooks, AHookThatKeepsTheOriginalDoesNotHideAWriteInPlace) {
  const Variable x = var({2, 3});
  const SavedValueHooksScope scope({[](const Tensor& t) -> std::any { return t; },
                                    [](const std::any& object) { return std::any_cast<Tensor>(object); }});
  const Variable y = apply("Exp", {x});
  apply_in_place("Mul", {y, constant({2, 2})});
  expect_contains(error_text([&] { backward(sum_of(y)); }), "was saved at version");
}

TEST_F(TapeSavedHooks, PackHookWithInplaceModificationShouldFail) {
  const auto pack = [](const Tensor& t) -> std::any {
    Tensor same = t;
    same.fill_zero();
    same.mark_written();
    return t;
  };
  const Variable x = var({2, 3});
  const auto unpack = [](const std::any& object) { return std::any_cast<Tensor>(object); };
  {
    const SavedValueHooksScope scope({pack, unpack});
    expect_contains(error_text([&] { apply("Exp", {x}); }), "has written to it");
  }
  const Variable y = apply("Exp", {x});
  expect_contains(error_text([&] { node_of(y).saved_output(0)->register_hooks({pack, unpack}); }), "has written to it");
}

// Hooks around the forward run, the first backward pass, or both: each acts on what is saved there.
TEST_F(TapeSavedHooks, DefaultSavedTensorsHooksDoubleBackward) {
  const auto second = [](bool forward_hooks, bool backward_hooks) {
    Counted in_forward, in_backward;
    const Variable x = var({2});
    const auto scope = [](bool on, const SavedValueHooks& hooks) {
      return on ? std::make_unique<SavedValueHooksScope>(hooks) : nullptr;
    };
    Variable y, first;
    {
      const auto hooks = scope(forward_hooks, in_forward.hooks(2));
      y = apply("Mul", {apply("Mul", {x, x}), x});
    }
    {
      const auto hooks = scope(backward_hooks, in_backward.hooks(2));
      first = grad({y}, {x}, {.create_graph = true})[0].dense;
    }
    EXPECT_EQ(in_forward.packs, forward_hooks ? 4 : 0);
    EXPECT_EQ(in_backward.packs > 0, backward_hooks);
    return std::pair(values_of(first)[0], values_of(grad({first}, {x})[0].dense)[0]);
  };
  const auto plain = second(false, false), forward = second(true, false), backward = second(false, true);
  EXPECT_EQ(plain, std::pair(12.0, 12.0));
  // d/dx of x^3 with every saved factor doubled: x^2 at its end, and twice 2x times x in the middle.
  EXPECT_EQ(forward.first, 2 * 4 + 2 * 2 * (2 + 2) * 2);
  EXPECT_EQ(backward.first, 12.0);  // what was saved forward is as it was
  // The products of the pass double what they saved; the path through two of them, 2x of the 6x, twice.
  EXPECT_EQ(backward.second, 2 * (2 * 2 * 2 + 2 * 2 + 2 * 2));
  EXPECT_NE(forward.second, plain.second);
}

TEST_F(TapeSavedHooks, WrappedNumberSavedTensorsHooks) {
  Counted counted;
  const SavedValueHooksScope scope(counted.hooks());
  const Variable x = var({2, 3});
  const Variable y = run("Scale", {x}, {make_arg("scale", 3.0F)})[0];
  backward(sum_of(y));
  EXPECT_EQ(counted.packs, 0);
  EXPECT_EQ(grad_of(x), (Numbers{3, 3}));
}

TEST_F(TapeSavedHooks, NodePostHookRegisteredDuringUnpackHook) {
  const Variable x = var({2, 3}), k = constant({5, 7});
  int calls = 0;
  size_t seen = 0;
  Variable y;
  {
    const SavedValueHooksScope scope({[](const Tensor& t) -> std::any { return t.clone(); },
                                      [&](const std::any& object) {
                                        tape_state().running->register_post_hook(
                                            [&](const Gradients& computed, const Gradients& gradients) {
                                              ++calls;
                                              EXPECT_TRUE(computed[0].defined());
                                              for (const VariableGradient& g : gradients) seen += g.defined();
                                              return Gradients{};
                                            });
                                        return std::any_cast<Tensor>(object);
                                      }});
    y = sum_of(apply("Mul", {x, k}));
  }
  backward(y);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, 0U);
}

// A scope that is opened while a pass runs, and ended there, or after it in any order, keeps nothing alive.
TEST_F(TapeSavedHooks, SavedTensorHooksExtraEnterDuringBwNoLeak) {
  Counted counted;
  std::unique_ptr<SavedValueHooksScope> entered;
  {
    const Variable x = var({2, 3});
    const SavedValueHooksScope scope({[](const Tensor& t) -> std::any { return t.clone(); },
                                      [&](const std::any& object) {
                                        entered = std::make_unique<SavedValueHooksScope>(counted.hooks());
                                        return std::any_cast<Tensor>(object);
                                      }});
    backward(sum_of(apply("Exp", {x})));
    entered.reset();
  }
  EXPECT_EQ(tape_state().hooks, nullptr);
}

TEST_F(TapeSavedHooks, SavingVariableToDisk) {
  const TempFolder folder;
  const Variable x = var({2, 3});
  int number = 0;
  const auto pack = [&](const Tensor& t) -> std::any {
    const std::string file = folder.file(std::to_string(number++));
    write_all(file, std::string(reinterpret_cast<const char*>(t.raw()), t.bytes()));
    return file;
  };
  const auto unpack = [](const std::any& object) {
    const std::string bytes = read_all(std::any_cast<std::string>(object));
    Tensor t = Tensor::empty(DType::float64, {2});
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(t.raw()));
    return t;
  };
  const SavedValueHooksScope scope({pack, unpack});
  const Variable y = sum_of(apply("Mul", {x, apply("Mul", {x, x})}));
  EXPECT_EQ(folder.count(), 4);
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{12, 27}));
}

TEST_F(TapeSavedHooks, HooksOnOneValueAreOnePair) {
  Counted counted;
  const Variable x = var({2, 3});
  const Variable y = apply("Exp", {x});
  SavedValue& saved = *node_of(y).saved_output(0);
  saved.register_hooks(counted.hooks());
  expect_contains(error_text([&] { saved.register_hooks(counted.hooks()); }), "has hooks already");
  backward(sum_of(y));
  expect_contains(error_text([&] { saved.register_hooks(counted.hooks()); }), "has been released");
  SavedValue empty;
  expect_contains(error_text([&] { empty.register_hooks(counted.hooks()); }), "no saved value here");
}

TEST_F(TapeSavedHooks, AHookKnowsWhichNodeSaves) {
  std::vector<std::string> names;
  const SavedValueHooksScope scope({[&](const Tensor& t) -> std::any {
                                      names.push_back(tape_state().saving ? tape_state().saving->name() : "");
                                      return t.clone();
                                    },
                                    [](const std::any& object) { return std::any_cast<Tensor>(object); }});
  const Variable x = var({2, 3});
  backward(sum_of(apply("Exp", {apply("Mul", {x, constant({1, 1})})})));
  EXPECT_EQ(names, (std::vector<std::string>{"MulGradient", "ExpGradient"}));
  EXPECT_EQ(tape_state().saving, nullptr);
}

}  // namespace
}  // namespace stepnet::autograd::testing::saved_hooks_test
