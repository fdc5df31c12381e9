// Stepnet inside a C++ program: load a net from its text, feed a blob, run, fetch the result.
#include <cstdio>

#include "stepnet/stepnet.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed NET.pbtxt\n");
    return 2;
  }
  try {
    const stepnet::NetDef def = stepnet::load_net(argv[1]);
    stepnet::Workspace workspace;
    workspace.tensor("x") = stepnet::Tensor::of<float>({3}, {-1, 0, 1});
    stepnet::Net net(def, workspace);
    stepnet::RunContext run;
    net.run(run);
    for (const float y : workspace.fetch("y").span<float>()) std::printf("%.6f\n", y);
  } catch (const stepnet::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
