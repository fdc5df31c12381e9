#include "core/operator/own_draws.h"

#include <utility>

namespace stepnet {
namespace {

thread_local bool drawn = false;

}  // namespace

void note_own_draws() { drawn = true; }
bool take_own_draws() { return std::exchange(drawn, false); }

}  // namespace stepnet
