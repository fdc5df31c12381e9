// A small language model, a small text, and runs on them, for the tests of training. Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "stepnet/checkpoint.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing {

// An LSTM of 12 units over 32 tokens; `classes` scores.
std::string tiny_net_text(int classes = 32);
inline NetDef tiny_net(int classes = 32) { return parse_net_text(tiny_net_text(classes), "tiny.pbtxt"); }

// At least `bytes` of sentences about a few animals.
std::string tiny_text(size_t bytes = 3000);

// Options for a short run on `text_file`.
TrainOptions tiny_options(const std::string& text_file, int64_t iterations);

// The tensors of the newest checkpoint, as bytes.
std::map<std::string, std::string> saved_bytes(const std::string& folder);

}  // namespace stepnet::testing
