// What must hold of every net and plan that was read.
//
// Threads: one harness at a time.
#pragma once

#include <string>

#include "stepnet/text.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {

inline NetDef parse_text(const NetDef&, const std::string& text) { return parse_net_text(text); }
inline PlanDef parse_text(const PlanDef&, const std::string& text) { return parse_plan_text(text); }

// The text that it is printed as is read back to the same message.
template <class Def>
void must_come_back(const Def& def) {
  const std::string text = to_text(def);
  must_work(
      [&] { must(to_text(parse_text(def, text)) == text, "a net or plan is printed as text that is read back"); });
}

inline void must_come_back(LoadedFile file) {
  if (file.is_plan())
    must_come_back(file.plan());
  else
    must_come_back(file.net());
}

}  // namespace stepnet::testing
