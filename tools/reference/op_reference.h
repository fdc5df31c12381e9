// What is known of an operator, as text for people: from its registration alone, so that it cannot be out of date.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/op_spec.h"

namespace stepnet::tools {

// A table of one operator's inputs, outputs or arguments.
struct ReferenceTable {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

struct OpReference {
  std::string type, doc;
  std::string family;       // the title of its part of the page
  std::string gradient_of;  // the operator whose gradient it computes, below which it stands; empty if there is none
  std::vector<ReferenceTable> tables;
  std::vector<std::string> notes;     // in-place rules, devices, gradient rules: a sentence each
  std::vector<std::string> examples;  // command lines
};

OpReference reference_of(const OpSpec& spec);

// Puts them by family, each before the operators that compute its gradients, and otherwise by name.
std::vector<OpReference> by_family(std::vector<OpReference> references);

std::string plain_text(const OpReference& reference);
// A line for each operator, of its first sentence, below the titles of the families.
std::string list_text(const std::vector<OpReference>& references);
// A page of these operators with an index in front; those that compute gradients are folded below their operator.
std::string markdown(const std::vector<OpReference>& references);

}  // namespace stepnet::tools
