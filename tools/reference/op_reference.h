// What is known of an operator, as text for people: from its registration alone, so that it cannot be out of date.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/operator/op_spec.h"

namespace stepnet::tools {

// A table of one operator's inputs, outputs or arguments.
struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

struct OpReference {
  std::string type, doc;
  std::vector<Table> tables;
  std::vector<std::string> notes;     // in-place rules, devices, gradient rules: a sentence each
  std::vector<std::string> examples;  // command lines
};

OpReference reference_of(const OpSpec& spec);

std::string plain_text(const OpReference& reference);
// A page of these operators with an index in front.
std::string markdown(const std::vector<OpReference>& references);

}  // namespace stepnet::tools
