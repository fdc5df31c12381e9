// NetTurns: at which operators of a net values come and go, so that none is in memory longer than the net needs it.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/net.pb.h"

namespace stepnet::autograd {

// By operator: which of some blobs, by their places in a list of names, have that turn there.
struct NetTurns {
  std::vector<std::vector<size_t>> first_named;   // as an input or an output
  std::vector<std::vector<size_t>> last_written;  // not of one that no operator writes
  // The last time that its value is read or written. A shape may be read after that.
  std::vector<std::vector<size_t>> last_used;
};

// Of the blobs that the net's operators name; others have no turn.
NetTurns net_turns(const NetDef& net, const std::vector<std::string>& names);

// True if the bytes of the blob may be seen under another name of the net, by which they may be overwritten.
bool may_have_alias(const NetDef& net, const std::string& name);

}  // namespace stepnet::autograd
