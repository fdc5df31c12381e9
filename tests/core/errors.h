// What the tests of files share. Threads: pure functions.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "stepnet/error.h"

namespace stepnet::testing {

// The text of the Error that `fn` must throw; "" and a test failure if it does not.
template <class Fn>
std::string error_text(Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

}  // namespace stepnet::testing
