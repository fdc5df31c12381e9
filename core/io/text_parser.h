// The parts of the reader in stepnet/text.h: parsing one piece of text, and what follows for each of its operators.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "core/io/source_text.h"
#include "stepnet/error.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

// How deep messages may nest.
constexpr int kMaxNesting = 100;

// The first mistake in a text, with how far the reading got.
struct ParseFailure {
  Error error;
  size_t offset = 0;
};

// Parses a whole piece and annotates its operators. A text that is no such message gives a failure; a mistake inside
// nested text, or a missing field, throws Error. `depth`: how many messages are around the piece.
std::optional<ParseFailure> try_parse_text(const SourceText& source, NetDef& net, int depth = 0);
std::optional<ParseFailure> try_parse_text(const SourceText& source, PlanDef& plan);

// Parses the nets that a message read from a binary file holds as text.
void parse_nested_text(const SourceText& file, NetDef& net);
void parse_nested_text(const SourceText& file, PlanDef& plan);

}  // namespace stepnet
