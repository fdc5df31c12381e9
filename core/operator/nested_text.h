// A net given as protobuf text inside a string argument.
//
// Files are loaded by stepnet/text.h, which replaces such text by a message and maps positions to the file. This is for
// nets that were built in code or came as binary.
// Threads: pure functions.
#pragma once

#include <string>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Throws Error with the line and column inside the text. Nesting deeper than 100 messages is refused.
NetDef parse_nested_net(const std::string& text, const std::string& argument);

}  // namespace stepnet
