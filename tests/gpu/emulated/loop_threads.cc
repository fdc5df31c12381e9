#include "tests/gpu/emulated/loop_threads.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/error.h"
#include "tests/gpu/emulated/fiber.h"
#include "tests/gpu/emulated/loop_races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulated {
namespace {

constexpr unsigned kLanes = 32;
constexpr size_t kStack = size_t{64} << 10, kBehindRoom = 4096;

// What a warp's lanes hand to each other, by turns in one of two places: a lane that is at the next call has read all
// of the call before.
struct Handed {
  WarpWords words[2][kLanes];
};

// Memory of threads' stacks and of what warps exchange, for the launches of a thread of the host.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks() { clear(); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  void reserve(size_t threads, size_t warps) {
    const size_t bytes = threads * kStack + warps * sizeof(Handed);
    if (bytes > bytes_) {
      clear();
      void* const memory =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      stepnet::require(memory != MAP_FAILED, "there is no memory for {} stacks", threads);
      memory_ = static_cast<char*>(memory);
      bytes_ = bytes;
    }
    handed_ = reinterpret_cast<Handed*>(memory_ + threads * kStack);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(memory_, bytes_);
#endif
  }
  char* stack(size_t thread) const { return memory_ + thread * kStack; }
  Handed& handed(size_t warp) const { return handed_[warp]; }
  const char* begin() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  void clear() {
    if (memory_) munmap(memory_, bytes_);
    memory_ = nullptr;
    bytes_ = 0;
  }

  char* memory_ = nullptr;
  size_t bytes_ = 0;
  Handed* handed_ = nullptr;
};

struct Thread {
  Context context;
  void* fake_stack = nullptr;
  const unsigned* counter = nullptr;  // that it has read last, and what it was
  unsigned counted = 0;
};

struct Warp {
  uint32_t ready = ~0u;  // lanes that may go on
  bool listed = true;    // in the machine's list
  uint32_t handing = 0;  // lanes that have come to the present call
  WarpCall call = WarpCall::shuffle;
  unsigned turn = 0;
};

enum class Order : unsigned { by_chance, first_block, last_block, one_late, first_warps_late };
constexpr unsigned kOrders = 5;

class Machine {
 public:
  Machine(const LoopKernel& kernel, const void* parameters, const LoopLaunch& launch, Stacks& stacks);
  void run();

  // Of the thread that runs.
  void read(const void* at, size_t bytes) { expect_no(races_.read(now(), at, bytes)); }
  void write(const void* at, size_t bytes) { expect_no(races_.write(now(), at, bytes)); }
  void misuse(const char* what) {
    expect_no(fmt::format("thread {} of block {} uses {}", now().thread, now().block, what));
  }
  void synchronize();
  const WarpWords* exchange(WarpCall call, const WarpWords& mine);
  void add_release(unsigned* to);
  unsigned read_acquire(const unsigned* from);
  char* room() { return rooms_.data() + rooms_at_ + now().block * room_stride_; }

 private:
  static void thread_main();

  unsigned warps_of_block() const { return launch_.threads / kLanes; }
  LoopThread now() const { return {running_ / launch_.threads, running_ % launch_.threads}; }
  Warp& warp_now() { return warps_[running_ / kLanes]; }
  uint32_t bit_now() const { return 1u << running_ % kLanes; }

  void make_ready(unsigned warp, uint32_t lanes);
  unsigned pick();
  void run_warp(unsigned warp);
  void enter(unsigned thread);
  void leave();  // until somebody has made this thread ready
  void expect_no(std::string fault);
  bool chance(unsigned of) { return random_() % of == 0; }

  const LoopKernel& kernel_;
  const void* parameters_;
  LoopLaunch launch_;
  Stacks& stacks_;
  size_t room_stride_;
  std::vector<char> rooms_;
  size_t rooms_at_ = 0;
  LoopRaces races_;
  std::minstd_rand random_;
  Order order_;
  unsigned late_block_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> listed_;         // warps with ready lanes
  std::vector<unsigned> synchronizing_;  // threads of each block that have come to __syncthreads
  std::vector<unsigned> counting_;       // threads that wait until a counter has changed
  unsigned running_ = 0, alive_ = 0;
  LoopIndices* indices_ = nullptr;
  std::string fault_;
  Context main_;
  const void* main_stack_ = nullptr;
  size_t main_size_ = 0;
};

thread_local Machine* machine = nullptr;

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

Machine::Machine(const LoopKernel& kernel, const void* parameters, const LoopLaunch& launch, Stacks& stacks)
    : kernel_(kernel),
      parameters_(parameters),
      launch_(launch),
      stacks_(stacks),
      room_stride_(aligned(launch.shared_bytes) + kBehindRoom),
      rooms_((launch.blocks + 1) * room_stride_, '\xff'),
      rooms_at_(aligned(reinterpret_cast<uintptr_t>(rooms_.data())) - reinterpret_cast<uintptr_t>(rooms_.data())),
      races_(launch.blocks, launch.threads, rooms_.data() + rooms_at_, room_stride_, launch.shared_bytes, launch.unit),
      random_(launch.seed + 1),
      order_(static_cast<Order>(launch.seed % kOrders)),
      late_block_(static_cast<unsigned>(random_()) % launch.blocks),
      threads_(launch.blocks * launch.threads),
      warps_(threads_.size() / kLanes),
      synchronizing_(launch.blocks),
      alive_(static_cast<unsigned>(threads_.size())) {
  stepnet::require(launch.threads % kLanes == 0, "a block has {} threads, which are no whole warps", launch.threads);
  stacks_.reserve(threads_.size(), warps_.size());
  for (unsigned t = 0; t < threads_.size(); ++t) prepare(threads_[t].context, stacks_.stack(t), kStack, thread_main);
  for (unsigned w = 0; w < warps_.size(); ++w) listed_.push_back(w);
}

void Machine::run() {
  machine = this;
  LoopCalls calls;
  calls.stacks = stacks_.begin();
  calls.stack_bytes = stacks_.bytes();
  calls.read = [](const void* at, size_t bytes) { machine->read(at, bytes); };
  calls.write = [](const void* at, size_t bytes) { machine->write(at, bytes); };
  calls.misuse = [](const char* what) { machine->misuse(what); };
  calls.synchronize = [] { machine->synchronize(); };
  calls.exchange = [](WarpCall call, const WarpWords& mine) { return machine->exchange(call, mine); };
  calls.add_release = [](unsigned* to) { machine->add_release(to); };
  calls.read_acquire = [](const unsigned* from) { return machine->read_acquire(from); };
  calls.room = [] { return machine->room(); };
  indices_ = kernel_.enter(calls);
  indices_->grid.x = launch_.blocks;
  indices_->block_size.x = launch_.threads;
  while (fault_.empty() && alive_ > 0) {
    if (listed_.empty())
      fault_ = fmt::format("{} threads wait for ever: {} for a counter, and others in __syncthreads or for their warps",
                           alive_, counting_.size());
    else
      run_warp(pick());
  }
  stepnet::require(fault_.empty(), "{}", fault_);
}

void Machine::make_ready(unsigned warp, uint32_t lanes) {
  warps_[warp].ready |= lanes;
  if (!std::exchange(warps_[warp].listed, true)) listed_.push_back(warp);
}

// A place in the list.
unsigned Machine::pick() {
  const auto any = static_cast<unsigned>(random_() % listed_.size());
  const auto rank = [&](unsigned warp) {
    const unsigned block = warp / warps_of_block();
    switch (order_) {
      case Order::first_block:
        return warp;
      case Order::last_block:
        return static_cast<unsigned>(warps_.size()) - warp;
      case Order::one_late:
        return unsigned{block == late_block_};
      case Order::first_warps_late:
        return unsigned{warp % warps_of_block() == 0};
      case Order::by_chance:
        break;
    }
    return 0u;
  };
  unsigned best = any;
  for (unsigned i = 0; i < listed_.size(); ++i)
    if (rank(listed_[i]) < rank(listed_[best])) best = i;
  return best;
}

// Its lanes as far as they come, or a part of the way.
void Machine::run_warp(unsigned place) {
  const unsigned warp = listed_[place];
  Warp& w = warps_[warp];
  const unsigned first = static_cast<unsigned>(random_() % kLanes);
  const bool part = order_ != Order::first_block && order_ != Order::last_block;
  do {
    for (unsigned i = 0; i < kLanes && fault_.empty(); ++i) {
      const unsigned lane = (first + i) % kLanes;
      if ((w.ready >> lane & 1) == 0) continue;
      w.ready &= ~(1u << lane);
      enter(warp * kLanes + lane);
    }
  } while (w.ready != 0 && fault_.empty() && !(part && chance(16)));
  if (w.ready != 0) return;
  w.listed = false;
  const auto at = std::ranges::find(listed_, warp);
  *at = listed_.back();
  listed_.pop_back();
}

void Machine::enter(unsigned thread) {
  running_ = thread;
  indices_->thread.x = now().thread;
  indices_->block.x = now().block;
  void* saved = nullptr;
  before_switch(&saved, stacks_.stack(thread), kStack);
  emulated::exchange(main_, threads_[thread].context);
  behind_switch(saved, nullptr, nullptr);
}

void Machine::leave() {
  Thread& t = threads_[running_];
  before_switch(&t.fake_stack, main_stack_, main_size_);
  emulated::exchange(t.context, main_);
  behind_switch(t.fake_stack, &main_stack_, &main_size_);
}

void Machine::thread_main() {
  Machine& m = *machine;
  behind_switch(nullptr, &m.main_stack_, &m.main_size_);
  m.kernel_.run(m.parameters_);
  --m.alive_;
  Thread& t = m.threads_[m.running_];
  before_switch(nullptr, m.main_stack_, m.main_size_);
  emulated::exchange(t.context, m.main_);
}

// A thread that has done what it must not is left where it is, and so are all others.
void Machine::expect_no(std::string fault) {
  if (fault.empty()) return;
  fault_ = std::move(fault);  // of which this stack keeps nothing, as nobody comes back to free it
  leave();
}

void Machine::synchronize() {
  const unsigned block = now().block;
  threads_[running_].counter = nullptr;
  if (++synchronizing_[block] < launch_.threads) return leave();
  synchronizing_[block] = 0;
  races_.synchronize(block);
  for (unsigned w = 0; w < warps_of_block(); ++w) make_ready(block * warps_of_block() + w, ~0u);
  leave();
}

const WarpWords* Machine::exchange(WarpCall call, const WarpWords& mine) {
  Warp& w = warp_now();
  if (w.handing == 0) w.call = call;
  if (w.call != call) expect_no("lanes of a warp are at different functions of warps");
  w.handing |= bit_now();
  WarpWords* const all = stacks_.handed(running_ / kLanes).words[w.turn % 2];
  all[running_ % kLanes] = mine;
  if (w.handing == ~0u) {
    w.handing = 0;
    ++w.turn;
    make_ready(running_ / kLanes, ~bit_now());
    return all;
  }
  leave();
  return all;
}

void Machine::add_release(unsigned* to) {
  races_.release(now(), to);
  ++*to;
  for (const unsigned thread : std::exchange(counting_, {})) make_ready(thread / kLanes, 1u << thread % kLanes);
  if (chance(2)) return;
  make_ready(running_ / kLanes, bit_now());
  leave();
}

// Who reads the same value again waits for a change.
unsigned Machine::read_acquire(const unsigned* from) {
  Thread& t = threads_[running_];
  while (t.counter == from && t.counted == *from) {
    counting_.push_back(running_);
    leave();
  }
  t.counter = from;
  t.counted = *from;
  races_.acquire(now(), from);
  return t.counted;
}

}  // namespace

void run_loop(const LoopKernel& kernel, const void* parameters, const LoopLaunch& launch) {
  static thread_local Stacks stacks;
  Machine(kernel, parameters, launch, stacks).run();
}

}  // namespace emulated
