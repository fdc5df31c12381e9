// Memory of the CPU that no tensor has. Threads: any.
#pragma once

namespace stepnet {

// Blocks that are kept for later requests, and pages that the C library holds free, go back to the system. Behind it
// each new block costs page faults, so it is for where what is asked for from then on has other sizes.
void give_back_free_memory();

}  // namespace stepnet
