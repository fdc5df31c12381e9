// The parts of the reader in core/io/text.h: parsing one piece of text, and what follows for each of its operators.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "core/error.h"
#include "core/io/source_text.h"
#include "proto/recurrent.pb.h"

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

// Calls `fn` for the net and every net inside it: in arguments, step nets and initialisers.
template <class Fn>
void for_each_net(NetDef& net, const Fn& fn) {
  fn(net);
  for (OperatorDef& op : *net.mutable_op()) {
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.has_n()) for_each_net(*arg.mutable_n(), fn);
      for (NetDef& inner : *arg.mutable_nets()) for_each_net(inner, fn);
    }
    if (op.HasExtension(recurrent) && op.GetExtension(recurrent).has_step_net())
      for_each_net(*op.MutableExtension(recurrent)->mutable_step_net(), fn);
  }
  if (net.HasExtension(model) && net.GetExtension(model).has_init())
    for_each_net(*net.MutableExtension(model)->mutable_init(), fn);
}

}  // namespace stepnet
