// Random numbers that are not those of the CPU: a kernel whose library draws by itself says so, and who compares
// devices does not compare its results. Threads: what the calling thread's kernels have said.
#pragma once

namespace stepnet {

void note_own_draws();
bool take_own_draws();  // whether any kernel has since the last call

}  // namespace stepnet
