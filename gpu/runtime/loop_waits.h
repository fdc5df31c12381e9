// What operators of a loop touch in which timestep, by addresses; so which blocks wait for which, and where. Threads:
// pure functions.
#pragma once

#include "gpu/runtime/loop_plan.h"

namespace stepnet::gpu {

// These go through all timesteps of a plan that has its operators and places. What cannot be is a LoopRefusal.

// Nobody writes weights, biases, lengths or numbers of timesteps: they are read at any time.
void expect_constants(const LoopPlan& plan);
void expect_numbers(const LoopPlan& plan);
// What is written under one name and read under another in the same timestep would be read too early.
void expect_one_name(const LoopPlan& plan);
// Lets blocks wait for those of their group where they must, in front of operators, and finds out whether groups are of
// a head, of rows, or of all. What is read early is read before a block waits, and what is not shared is written after
// it has said that it is there: neither may be what others touch on the other side. Nor may the one be the other of two
// points before.
void set_waits(LoopPlan& plan);

}  // namespace stepnet::gpu
