#include "core/compute/product_epilogue.h"

namespace stepnet {
namespace {

thread_local EpilogueScope* innermost = nullptr;

}  // namespace

EpilogueScope::EpilogueScope(ProductEpilogue wanted) : before_(innermost), wanted_(wanted) { innermost = this; }
EpilogueScope::~EpilogueScope() { innermost = before_; }

ProductEpilogue wanted_epilogue() { return innermost ? innermost->wanted_ : ProductEpilogue::none; }
void epilogue_is_done() { innermost->done_ = true; }

}  // namespace stepnet
