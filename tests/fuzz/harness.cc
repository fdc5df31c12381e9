// The list of harnesses.
#include "tests/fuzz/harness.h"

namespace stepnet::testing {
namespace {

constexpr Harness kHarnesses[] = {
    {"net_text", fuzz_net_text},     {"net_binary", fuzz_net_binary},
    {"plan_text", fuzz_plan_text},   {"plan_binary", fuzz_plan_binary},
    {"tensor", fuzz_tensor},         {"npy", fuzz_npy},
    {"minidb", fuzz_minidb},         {"lmdb", fuzz_lmdb},
    {"checkpoint", fuzz_checkpoint}, {"run_folder", fuzz_run_folder},
    {"vocabulary", fuzz_vocabulary}, {"check", fuzz_check},
};

}  // namespace

std::span<const Harness> harnesses() { return kHarnesses; }

}  // namespace stepnet::testing
