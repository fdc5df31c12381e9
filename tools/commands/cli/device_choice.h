// --device: on which device nets run.
//
// Threads: pure functions; one line goes to standard error where a net does not run where it asks to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet::tools {

enum class DeviceChoice { automatic, cpu, cuda };
const std::map<std::string, DeviceChoice>& device_names();

// Decides where the nets run, and marks nets that do not say for the GPU if that is where. Returns true if everything
// has to run on the CPU (NetOptions::force_cpu).
//   cpu: all on the CPU.  cuda: on the GPU what does not ask for the CPU; throws Error if there is no GPU, or no
//   kernel. automatic: on the GPU if there is one and it has kernels for all operators, else on the CPU.
bool choose_device(DeviceChoice choice, const std::vector<NetDef*>& nets);

// --tf32: lets products of float32 on the GPU round their factors to TF32 (10 bits), for the rest of the process.
// Throws Error where nothing runs on a GPU.
void allow_tf32(bool on_gpu);
constexpr const char* kTf32Help = "On a GPU, products of float32 by TF32, whose factors have 10 bits";
constexpr const char* kDetectAnomalyHelp =
    "End at the first operator that makes a value that is not finite of finite ones, and name it; slow";

// Lets the net and the nets in it that do not say where they run ask for the GPU.
void use_gpu(NetDef& net);
// Lets what asks for a GPU, and does not say which, ask for this one.
void use_gpu(NetDef& net, int index);

}  // namespace stepnet::tools
