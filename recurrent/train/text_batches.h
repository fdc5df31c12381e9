// Batches of a text, as a model names what they are fed to.
//
// Threads: one thread at a time.
#pragma once

#include <memory>

#include "core/data/batch_source.h"
#include "core/io/text_stream.h"
#include "recurrent/train/model.h"

namespace stepnet {

// Of each batch the shard's streams.
std::unique_ptr<BatchSource> text_batches(const Model& model, TextStreams streams, const Shard& shard = {});

}  // namespace stepnet
