// The lengths of a batch's sequences, as LSTMUnit and GRUUnit get them. A length may be greater than the number of
// timesteps that are run.
#pragma once

#include <cstdint>
#include <span>

#include "core/error.h"

namespace stepnet {

inline void check_lengths(std::span<const int32_t> lengths) {
  for (size_t n = 0; n < lengths.size(); ++n)
    if (lengths[n] < 0) fail("seq_lengths has {} for row {}; a length is at least 0", lengths[n], n);
}

}  // namespace stepnet
