// Worlds on MPI, in a library of its own (libstepnet_mpi.so), so that only nets that use it load MPI.
//
// All calls of MPI come from one thread, the engine's, which is started with the first world. It gets requests by a
// queue, starts them without blocking, in the order of the queue, and tests all that are open. Where somebody waits for
// one of them it does so for a short while without a pause, then with pauses of some microseconds, so that waiting does
// not take a core; where nobody does, with longer ones, as whoever computes meanwhile may have the same core.
//
// A collective operation has two stages. First all ranks exchange what they are about to do (Header, by
// MPI_Iallgather), which may overlap with other operations; if that is the same everywhere, the data moves. So ranks
// that disagree get an error in place of garbage, and the data of operation n is not touched before everybody is there.
// Large sums move in pieces. Of each, every rank gets its part of all others' values, adds it up, in the order of
// ranks, and gives the sum to all: so each element is added up once, all ranks have the same work, and what is in
// between stays in a cache. MPI's own sum that does not block lets one of two ranks do all of it.
//
// Whoever waits longer than the world's time tells the others where it waits (tag kWaitsTag), collects what they tell
// for a moment, and fails with the names of the ranks that have said nothing.
//
// At the end of a process that has succeeded the ranks wait for each other and finish MPI. After a failure, of MPI, of
// an operation or of the process (its exit status is not 0), MPI is left as it is: finishing it would wait for ranks
// that may not come. mpirun then notices that the process has gone, and ends the others.
#include <mpi.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "operators/collective/world.h"
#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet::mpi_world {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPieceBytes = int64_t{1} << 26;  // MPI counts by int, and smaller pieces overlap each other
// Of a world at the same time, as operations that take turns with more than the caches hold slow each other down; one
// in any case.
constexpr int64_t kMostMoving = int64_t{1} << 23;
constexpr int kWaitsTag = 1;
// A sum has pieces from so many bytes on, of so many bytes, so many of them at the same time; each message takes time,
// and more ranks than these leave it to MPI.
constexpr int64_t kLeastPieced = int64_t{1} << 16, kPiece = int64_t{1} << 20;
constexpr int kMostPieces = 4, kMostPiecedRanks = 16;
constexpr int kPieceTag = 2, kPieceTags = 8000;  // on the communicator of headers
constexpr auto kSpin = std::chrono::microseconds(500), kPause = std::chrono::microseconds(30);
constexpr auto kPauseBeside = std::chrono::microseconds(150);  // nobody waits
constexpr auto kIdlePause = std::chrono::milliseconds(5);      // MPI may have to go on with what it has taken over
constexpr Seconds kMostGrace(1.0), kUnresponsive(10.0);

enum class Kind : int64_t {
  create,
  allreduce,
  reduce,
  broadcast,
  allgather,
  allgather_parts,
  reduce_scatter,
  alltoall,
  barrier,
  finish,
  send,
  receive
};

const char* name_of(Kind kind) {
  constexpr std::array names = {"making a common world",
                                "Allreduce",
                                "Reduce",
                                "Broadcast",
                                "Allgather",
                                "Allgather of parts",
                                "ReduceScatter",
                                "Alltoall",
                                "Barrier",
                                "the end of the program",
                                "SendTensor",
                                "ReceiveTensor"};
  return names[static_cast<size_t>(kind)];
}

const char* name_of(ReduceOp op) { return op == ReduceOp::sum ? "sum" : op == ReduceOp::min ? "min" : "max"; }

bool reduces(Kind kind) { return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }

// What all ranks must agree on.
struct Header {
  Kind kind = Kind::barrier;
  int64_t number = 0;  // of the operation in its world
  int64_t count = 0, dtype = 0, op = 0, root = -1;
  int64_t on_gpu = 0;  // another engine moves it
  bool operator==(const Header&) const = default;

  std::string str() const {
    std::string text = name_of(kind);
    if (count > 0 || root >= 0 || reduces(kind))
      text += fmt::format(" of {} {} elements", count, dtype_name(static_cast<DType>(dtype)));
    if (reduces(kind) && op != 0) text += fmt::format(" ({})", name_of(static_cast<ReduceOp>(op)));
    if (root >= 0) text += fmt::format(", root {}", root);
    if (on_gpu) text += " on a GPU";
    return text + fmt::format(" (operation {})", number);
  }
};
constexpr int kHeaderLongs = sizeof(Header) / sizeof(int64_t);
static_assert(sizeof(Header) == kHeaderLongs * sizeof(int64_t));

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// "rank 1: Broadcast ...; ranks 0, 2: Allreduce ..."
std::string who_does_what(const std::map<int, Header>& by_rank) {
  std::vector<std::pair<Header, std::vector<int>>> groups;
  for (const auto& [rank, header] : by_rank) {
    const auto found = std::ranges::find(groups, header, &std::pair<Header, std::vector<int>>::first);
    if (found == groups.end())
      groups.push_back({header, {rank}});
    else
      found->second.push_back(rank);
  }
  std::vector<std::string> texts;
  for (const auto& [header, ranks] : groups) texts.push_back(fmt::format("{}: {}", rank_list(ranks), header));
  return fmt::format("{}", fmt::join(texts, "; "));
}

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("{}: {}", what, std::string_view(text.data(), static_cast<size_t>(length)));
}

// --- Types and reductions ------------------------------------------------------------------------------------------

template <class T, ReduceOp op>
void reduce_halves(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* a = static_cast<const T*>(in);
  T* b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) {
    const float x = a[i], y = b[i];
    b[i] = T(op == ReduceOp::sum ? x + y : op == ReduceOp::min ? std::min(x, y) : std::max(x, y));
  }
}

// MPI has no types of two bytes that are halves; these are made once, by the engine's thread.
struct HalfTypes {
  std::map<DType, MPI_Datatype> types;
  std::map<std::pair<DType, ReduceOp>, MPI_Op> ops;

  template <class T>
  void add(DType dtype) {
    MPI_Datatype& type = types[dtype];
    check(MPI_Type_contiguous(2, MPI_BYTE, &type), "MPI_Type_contiguous");
    check(MPI_Type_commit(&type), "MPI_Type_commit");
    add_op<T, ReduceOp::sum>(dtype);
    add_op<T, ReduceOp::min>(dtype);
    add_op<T, ReduceOp::max>(dtype);
  }
  template <class T, ReduceOp op>
  void add_op(DType dtype) {
    check(MPI_Op_create(reduce_halves<T, op>, 1, &ops[{dtype, op}]), "MPI_Op_create");
  }
  // MPICH complains of what is left when it is finished.
  void free() {
    for (auto& [key, op] : ops) MPI_Op_free(&op);
    for (auto& [key, type] : types) MPI_Type_free(&type);
  }
};
HalfTypes& half_types() {
  static auto& types = *new HalfTypes;  // they are freed with MPI, after destructors have run
  return types;
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::int16:
      return MPI_INT16_T;
    case DType::uint16:
      return MPI_UINT16_T;
    case DType::int8:
      return MPI_INT8_T;
    case DType::uint8:
    case DType::boolean:
      return MPI_UINT8_T;
    default:
      return half_types().types.at(dtype);
  }
}

MPI_Op mpi_op(DType dtype, ReduceOp op) {
  if (is_half(dtype)) return half_types().ops.at({dtype, op});
  return op == ReduceOp::sum ? MPI_SUM : op == ReduceOp::min ? MPI_MIN : MPI_MAX;
}

// --- Worlds and requests -------------------------------------------------------------------------------------------

struct Request;
using RequestPtr = std::shared_ptr<Request>;

// Of a world. Everything but the numbers of ranks, and what the mutex guards, belongs to the engine's thread.
struct Comm {
  MPI_Comm checks = MPI_COMM_NULL, data = MPI_COMM_NULL;  // for headers, and for everything else
  int rank = 0, size = 1;
  Machine machine;
  int64_t operations = 0;
  std::deque<RequestPtr> order;          // collective operations whose data has not been started
  int64_t moving = 0, moving_bytes = 0;  // of those whose data has

  void set_broken(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (broken_.empty()) broken_ = why;
  }
  std::string why_broken() {
    const std::lock_guard lock(mutex_);
    return broken_;
  }

 private:
  std::mutex mutex_;
  std::string broken_;
};
using CommPtr = std::shared_ptr<Comm>;

enum class Stage { queued, checking, agreed, moving };

// Of a sum over all ranks.
struct Piece {
  int64_t at = 0, count = 0;        // elements of the operation
  int tag = 0;                      // its sums have the next one
  bool shares = false;              // the sums are given to all; before that, values are exchanged
  int open = 0;                     // requests of MPI
  std::vector<std::byte> received;  // this rank's part of the others' values, in the order of ranks

  // Elements from which rank r adds up those up to rank r + 1's.
  int64_t begin(int r, int ranks) const { return at + count * r / ranks; }
};
using PiecePtr = std::shared_ptr<Piece>;

class Engine;

struct Request final : Pending, std::enable_shared_from_this<Request> {
  Header mine;
  CommPtr comm;
  const void* from = nullptr;
  void* to = nullptr;
  std::vector<int> counts, offsets;  // of `allgather_parts`: each rank's elements, and where they are to be
  int peer = World::kAny, wanted_tag = World::kAny;
  Seconds patience{0};
  CommPtr child;  // of `create`

  // Of the engine's thread.
  Stage stage = Stage::queued;
  std::vector<Header> all;
  int open = 0;        // requests of MPI
  int64_t pieced = 0;  // of a sum in pieces: elements in pieces that have begun
  int pieces = 0, moving_pieces = 0;
  int got_source = -1, got_tag = -1;
  int64_t got_bytes = 0;
  std::map<int, Header> waiting;  // after the time is over: the ranks that have said where they wait
  Clock::time_point fails_at{};

  bool is_collective() const { return mine.kind != Kind::send && mine.kind != Kind::receive; }
  DType dtype() const { return static_cast<DType>(mine.dtype); }
  int64_t bytes() const { return mine.count * static_cast<int64_t>(dtype_size(dtype())); }

  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() override;
  int source() const override { return got_source; }
  int tag() const override { return got_tag; }
  void finish(std::optional<Error> error = {}) {
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      done_ = true;
      error_ = std::move(error);
    }
    over_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::optional<Error> error_;
};

// --- The engine ----------------------------------------------------------------------------------------------------

class Engine {
 public:
  static Engine& get() {
    static auto* engine = new Engine;  // its thread may outlive all destructors
    return *engine;
  }

  void submit(const RequestPtr& request) { push({request, {}, false}); }
  void expire(const RequestPtr& request) { push({request, {}, true}); }
  void release(const CommPtr& comm) { push({{}, comm, false}); }

  // Returns the world that all others are copies of; throws Error if MPI does not start in this time.
  CommPtr root(Seconds patience) {
    std::unique_lock lock(mutex_);
    longest_ = std::max(longest_, patience);
    if (!changed_.wait_for(lock, patience, [&] { return ready_ || start_error_; }))
      throw Error(fmt::format("MPI has not started within {} s", patience.count()),
                  "every process that mpirun starts must make a common world; see whether one of them has failed");
    if (start_error_) throw Error(*start_error_);
    return root_;
  }

  void note_failure() { failed_ = true; }
  // Somebody begins to wait, or has waited.
  void begin_wait() {
    ++waiting_;
    changed_.notify_all();
  }
  void end_wait() { --waiting_; }
  // Returns when the thread makes no more calls.
  void stop();

 private:
  struct Command {
    RequestPtr request;
    CommPtr released;
    bool expired = false;
  };

  Engine() : process_(getpid()) {
    on_exit([](int status, void*) { get().leave(status); }, nullptr);
    thread_ = std::thread([this] { run(); });
  }

  void push(Command command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
      has_commands_ = true;
    }
    changed_.notify_all();
  }

  void run();
  void start_mpi();
  void loop();
  void pause(Clock::time_point last_progress);
  void pause_while_moving(Clock::time_point last_progress);
  bool take_commands();
  void start(const RequestPtr& r);
  void start_header(const RequestPtr& r);
  void start_data(const RequestPtr& r);
  void move_data(const RequestPtr& r);
  void start_pieces(const RequestPtr& r);
  void exchange_values(const RequestPtr& r, const PiecePtr& piece);
  void share_sums(const RequestPtr& r, const PiecePtr& piece);
  void go_on(const RequestPtr& r, const PiecePtr& piece);
  void start_agreed(Comm& comm);
  bool test();
  void step(const RequestPtr& r);
  void compare_headers(const RequestPtr& r);
  void finish_received(const RequestPtr& r);
  void finish_child(const RequestPtr& r);
  void say_that_it_waits(const RequestPtr& r);
  void listen();
  std::string lateness(const Request& r) const;
  void break_world(const RequestPtr& r, Error error);
  void free_comm(Comm& comm);
  void leave(int status);
  bool say_goodbye();

  MPI_Request* add(const RequestPtr& r, const PiecePtr& piece = nullptr) {
    ++r->open;
    if (piece) ++piece->open;
    owners_.push_back({r, piece});
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }

  // Whose a request of MPI is; the piece may be null.
  struct Owner {
    RequestPtr request;
    PiecePtr piece;
  };

  const pid_t process_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> commands_;
  std::atomic<bool> has_commands_ = false, failed_ = false;
  std::atomic<int> waiting_ = 0;  // threads
  bool ready_ = false, stop_ = false, stopped_ = false, finalize_ = false;
  std::optional<Error> start_error_;
  Seconds longest_{0};  // that a world waits
  CommPtr root_;

  // Of its thread.
  bool is_mpi_ours_ = true;
  std::vector<MPI_Request> requests_;  // that are open
  std::vector<Owner> owners_;
  std::vector<std::vector<std::byte>> spare_;  // of pieces that are over
  bool was_awaited_ = false;
  Clock::time_point awaited_since_{};
  std::vector<RequestPtr> late_;  // whose time is over, but which still listen to where others wait
};

void Request::wait() {
  const struct Waiting {
    Waiting() { Engine::get().begin_wait(); }
    ~Waiting() { Engine::get().end_wait(); }
  } waiting;
  const auto is_over = [&] { return done_; };
  std::unique_lock lock(mutex_);
  if (!over_.wait_for(lock, patience, is_over)) {
    lock.unlock();
    Engine::get().expire(shared_from_this());
    lock.lock();
    if (!over_.wait_for(lock, kMostGrace + kUnresponsive, is_over)) {
      Engine::get().note_failure();
      fail("rank {} of {}: MPI does not return from a call, in {}", comm->rank, comm->size, mine);
    }
  }
  if (error_) throw Error(*error_);
  let_go();
}

// Each rank tells those of its machine which cores it may use: a launcher may have given each its own.
Machine find_machine() {
  MPI_Comm here = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
  MPI_Comm_set_errhandler(here, MPI_ERRORS_RETURN);
  Machine machine;
  check(MPI_Comm_size(here, &machine.ranks), "MPI_Comm_size");
  check(MPI_Comm_rank(here, &machine.place), "MPI_Comm_rank");
  cpu_set_t cores = own_cores();
  check(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof(cores), MPI_BYTE, MPI_BOR, here), "MPI_Allreduce");
  machine.cores = count_cores(cores);
  check(MPI_Comm_free(&here), "MPI_Comm_free");
  return machine;
}

CommPtr world_of_all() {
  auto root = std::make_shared<Comm>();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  check(MPI_Comm_dup(MPI_COMM_WORLD, &root->checks), "MPI_Comm_dup");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &root->data), "MPI_Comm_dup");
  check(MPI_Comm_rank(root->data, &root->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(root->data, &root->size), "MPI_Comm_size");
  root->machine = find_machine();
  return root;
}

// Of MPI that is not ours: what is attached to MPI_COMM_SELF goes first when somebody finishes MPI.
void stop_before_finalize() {
  const auto stop = [](MPI_Comm, int, void*, void*) {
    Engine::get().stop();
    return MPI_SUCCESS;
  };
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, stop, &key, nullptr), "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
}

void Engine::start_mpi() {
  int is_initialized = 0, level = 0;
  check(MPI_Initialized(&is_initialized), "MPI_Initialized");
  is_mpi_ours_ = !is_initialized;
  if (is_mpi_ours_) {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    require(level >= MPI_THREAD_SERIALIZED, "this MPI cannot be called by a thread of its own");
  } else {
    stop_before_finalize();
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_MULTIPLE)
      throw Error("this program has started MPI without support for several threads",
                  "start it by MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave that to Stepnet");
  }
  half_types().add<float16>(DType::float16);
  half_types().add<bfloat16>(DType::bfloat16);
  root_ = world_of_all();
}

void Engine::run() {
  prctl(PR_SET_NAME, "stepnet-mpi");
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds; else each pause takes 50 microseconds more
  std::optional<Error> error;
  try {
    start_mpi();
  } catch (const Error& e) {
    error = e;
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = !error;
    start_error_ = error;
  }
  changed_.notify_all();
  if (!error) loop();
  if (finalize_ && is_mpi_ours_) {
    half_types().free();
    MPI_Finalize();
  }
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void Engine::loop() {
  Clock::time_point last_progress = Clock::now();
  while (take_commands()) {
    const bool progress = test();
    listen();
    if (progress) last_progress = Clock::now();
    if (!progress && !has_commands_) pause(last_progress);
  }
}

void Engine::pause(Clock::time_point last_progress) {
  if (!requests_.empty() || !late_.empty()) return pause_while_moving(last_progress);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kIdlePause, [&] { return has_commands_ || stop_; });
  }
  int any = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, kWaitsTag, root_->checks, &any, MPI_STATUS_IGNORE);
}

void Engine::pause_while_moving(Clock::time_point last_progress) {
  const bool awaited = waiting_ > 0;
  if (awaited && !std::exchange(was_awaited_, awaited)) awaited_since_ = Clock::now();
  was_awaited_ = awaited;
  if (awaited && Clock::now() - std::max(last_progress, awaited_since_) < kSpin) return std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const auto wakes = [&] { return has_commands_ || stop_ || (!awaited && waiting_ > 0); };
  changed_.wait_for(lock, awaited ? kPause : kPauseBeside, wakes);
}

// Returns false when there will be none any more.
bool Engine::take_commands() {
  std::deque<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    if (!has_commands_) return true;
    commands.swap(commands_);
    has_commands_ = false;
  }
  for (const Command& command : commands) {
    if (command.released)
      free_comm(*command.released);
    else if (command.expired)
      say_that_it_waits(command.request);
    else
      start(command.request);
  }
  return true;
}

void Engine::start(const RequestPtr& r) {
  try {
    const std::string broken = r->comm->why_broken();
    require(broken.empty(), "the common world has failed before: {}", broken);
    if (r->is_collective()) {
      r->mine.number = ++r->comm->operations;
      r->comm->order.push_back(r);
      start_header(r);
    } else {
      r->stage = Stage::moving;
      start_data(r);
    }
  } catch (const Error& e) {
    break_world(r, e);
  }
}

void Engine::start_header(const RequestPtr& r) {
  r->stage = Stage::checking;
  r->all.resize(static_cast<size_t>(r->comm->size));
  check(MPI_Iallgather(&r->mine, kHeaderLongs, MPI_INT64_T, r->all.data(), kHeaderLongs, MPI_INT64_T, r->comm->checks,
                       add(r)),
        "MPI_Iallgather");
}

void Engine::start_data(const RequestPtr& r) {
  if (!r->mine.on_gpu) move_data(r);
  if (r->open == 0) step(r);  // nothing was to be moved
}

// Calls fn(offset in bytes, elements) for pieces of so many elements in all; once for none of a message.
template <class Fn>
void each_piece(const Request& r, Fn fn) {
  const auto size = static_cast<int64_t>(dtype_size(r.dtype()));
  const int64_t most = kPieceBytes / size;
  if (r.mine.count == 0 && !r.is_collective()) return fn(0, 0);
  for (int64_t at = 0; at < r.mine.count; at += most)
    fn(at * size, static_cast<int>(std::min(most, r.mine.count - at)));
}

void Engine::move_data(const RequestPtr& r) {
  Comm& comm = *r->comm;
  const auto from = static_cast<const std::byte*>(r->from);
  const auto to = static_cast<std::byte*>(r->to);
  const DType dtype = r->dtype();
  const auto op = static_cast<ReduceOp>(r->mine.op);
  const auto root = static_cast<int>(r->mine.root);
  const auto whole = static_cast<int>(r->mine.count);
  switch (r->mine.kind) {
    case Kind::create:
      check(MPI_Comm_idup(comm.data, &r->child->checks, add(r)), "MPI_Comm_idup");
      return check(MPI_Comm_idup(comm.data, &r->child->data, add(r)), "MPI_Comm_idup");
    case Kind::allreduce:
      if (r->bytes() >= kLeastPieced && comm.size > 1 && comm.size <= kMostPiecedRanks) {
        if (from != to) std::memcpy(to, from, static_cast<size_t>(r->bytes()));
        return start_pieces(r);
      }
      return each_piece(*r, [&](int64_t at, int n) {
        check(MPI_Iallreduce(from == to ? MPI_IN_PLACE : from + at, to + at, n, mpi_type(dtype), mpi_op(dtype, op),
                             comm.data, add(r)),
              "MPI_Iallreduce");
      });
    case Kind::reduce:
      return each_piece(*r, [&](int64_t at, int n) {
        const bool in_place = comm.rank == root && from == to;
        check(MPI_Ireduce(in_place ? MPI_IN_PLACE : from + at, comm.rank == root ? to + at : nullptr, n,
                          mpi_type(dtype), mpi_op(dtype, op), root, comm.data, add(r)),
              "MPI_Ireduce");
      });
    case Kind::broadcast:
      return each_piece(*r, [&](int64_t at, int n) {
        check(MPI_Ibcast(to + at, n, mpi_type(dtype), root, comm.data, add(r)), "MPI_Ibcast");
      });
    case Kind::allgather:
      if (whole == 0) return;
      return check(MPI_Iallgather(from, whole, mpi_type(dtype), to, whole, mpi_type(dtype), comm.data, add(r)),
                   "MPI_Iallgather");
    case Kind::allgather_parts:
      if (whole == 0) return;
      return check(MPI_Iallgatherv(from, r->counts[static_cast<size_t>(comm.rank)], mpi_type(dtype), to,
                                   r->counts.data(), r->offsets.data(), mpi_type(dtype), comm.data, add(r)),
                   "MPI_Iallgatherv");
    case Kind::reduce_scatter:
      if (whole == 0) return;
      return check(MPI_Ireduce_scatter_block(from, to, whole, mpi_type(dtype), mpi_op(dtype, op), comm.data, add(r)),
                   "MPI_Ireduce_scatter_block");
    case Kind::alltoall:
      if (whole == 0) return;
      return check(MPI_Ialltoall(from, whole, mpi_type(dtype), to, whole, mpi_type(dtype), comm.data, add(r)),
                   "MPI_Ialltoall");
    case Kind::barrier:
    case Kind::finish:
      return;
    case Kind::send:
      return each_piece(*r, [&](int64_t at, int n) {
        check(MPI_Isend(from + at, n, mpi_type(dtype), r->peer, r->wanted_tag, comm.data, add(r)), "MPI_Isend");
      });
    case Kind::receive:
      return each_piece(*r, [&](int64_t at, int n) {
        check(MPI_Irecv(to + at, n, mpi_type(dtype), r->peer == World::kAny ? MPI_ANY_SOURCE : r->peer,
                        r->wanted_tag == World::kAny ? MPI_ANY_TAG : r->wanted_tag, comm.data, add(r)),
              "MPI_Irecv");
      });
  }
}

void Engine::start_pieces(const RequestPtr& r) {
  const int64_t most = kPiece / static_cast<int64_t>(dtype_size(r->dtype()));
  for (; r->moving_pieces < kMostPieces && r->pieced < r->mine.count; ++r->moving_pieces) {
    const auto piece = std::make_shared<Piece>();
    piece->at = r->pieced;
    piece->count = std::min(most, r->mine.count - r->pieced);
    // Those that may be on their way at a time differ: operations that move together have fewer pieces than 16.
    piece->tag = kPieceTag + 2 * static_cast<int>((16 * r->mine.number + r->pieces++) % kPieceTags);
    r->pieced += piece->count;
    exchange_values(r, piece);
  }
}

void Engine::exchange_values(const RequestPtr& r, const PiecePtr& piece) {
  const Comm& comm = *r->comm;
  const auto size = static_cast<int64_t>(dtype_size(r->dtype()));
  const auto to = static_cast<std::byte*>(r->to);
  const auto count = [&](int rank) {
    return static_cast<int>(piece->begin(rank + 1, comm.size) - piece->begin(rank, comm.size));
  };
  const int64_t own = count(comm.rank) * size;
  if (!spare_.empty()) {
    piece->received = std::move(spare_.back());
    spare_.pop_back();
  }
  piece->received.resize(static_cast<size_t>(own * (comm.size - 1)));
  std::byte* next = piece->received.data();
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank == comm.rank) continue;
    check(MPI_Irecv(next, count(comm.rank), mpi_type(r->dtype()), rank, piece->tag, comm.checks, add(r, piece)),
          "MPI_Irecv");
    next += own;
  }
  for (int rank = 0; rank < comm.size; ++rank)
    if (rank != comm.rank)
      check(MPI_Isend(to + piece->begin(rank, comm.size) * size, count(rank), mpi_type(r->dtype()), rank, piece->tag,
                      comm.checks, add(r, piece)),
            "MPI_Isend");
}

// Adds this rank's part up and gives it to all others, who give theirs.
void Engine::share_sums(const RequestPtr& r, const PiecePtr& piece) {
  const Comm& comm = *r->comm;
  const MPI_Datatype type = mpi_type(r->dtype());
  const MPI_Op op = mpi_op(r->dtype(), static_cast<ReduceOp>(r->mine.op));
  const auto size = static_cast<int64_t>(dtype_size(r->dtype()));
  const auto to = static_cast<std::byte*>(r->to);
  const auto place = [&](int rank) { return to + piece->begin(rank, comm.size) * size; };
  const auto count = [&](int rank) { return static_cast<int>((place(rank + 1) - place(rank)) / size); };
  std::byte *next = piece->received.data(), *sums = nullptr;
  for (int rank = 0; rank < comm.size; ++rank) {
    std::byte* const values = rank == comm.rank ? place(rank) : std::exchange(next, next + count(comm.rank) * size);
    const bool ends_here = rank == comm.rank;  // where the sums are to be
    if (sums)
      check(MPI_Reduce_local(ends_here ? sums : values, ends_here ? values : sums, count(comm.rank), type, op),
            "MPI_Reduce_local");
    if (!sums || ends_here) sums = values;
  }
  piece->shares = true;
  for (int rank = 0; rank < comm.size; ++rank)
    if (rank != comm.rank)
      check(MPI_Irecv(place(rank), count(rank), type, rank, piece->tag + 1, comm.checks, add(r, piece)), "MPI_Irecv");
  for (int rank = 0; rank < comm.size; ++rank)
    if (rank != comm.rank)
      check(MPI_Isend(place(comm.rank), count(comm.rank), type, rank, piece->tag + 1, comm.checks, add(r, piece)),
            "MPI_Isend");
}

// After all that was open of a piece.
void Engine::go_on(const RequestPtr& r, const PiecePtr& piece) {
  if (!piece->shares) return share_sums(r, piece);
  spare_.push_back(std::move(piece->received));
  if (spare_.size() > 2 * kMostPieces) spare_.pop_back();
  --r->moving_pieces;
  start_pieces(r);
}

// Starts the data of operations in their order, as far as ranks agree.
void Engine::start_agreed(Comm& comm) {
  while (!comm.order.empty() && comm.order.front()->stage == Stage::agreed) {
    const RequestPtr r = comm.order.front();
    if (comm.moving > 0 && comm.moving_bytes + r->bytes() > kMostMoving) return;
    comm.order.pop_front();
    r->stage = Stage::moving;
    ++comm.moving;
    comm.moving_bytes += r->bytes();
    try {
      start_data(r);
    } catch (const Error& e) {
      break_world(r, e);
    }
  }
}

// Returns whether something is over.
bool Engine::test() {
  if (requests_.empty()) return false;
  const auto count = static_cast<int>(requests_.size());
  std::vector<int> indices(requests_.size());
  std::vector<MPI_Status> statuses(requests_.size());
  int over = 0;
  const int code = MPI_Testsome(count, requests_.data(), &over, indices.data(), statuses.data());
  if (over == MPI_UNDEFINED || over <= 0) return false;
  std::vector<Owner> owners;
  for (int i = 0; i < over; ++i) {
    const auto& [r, piece] = owners.emplace_back(owners_[static_cast<size_t>(indices[i])]);
    --r->open;
    if (piece) --piece->open;
    try {
      if (code == MPI_ERR_IN_STATUS) check(statuses[i].MPI_ERROR, name_of(r->mine.kind));
      if (r->mine.kind != Kind::receive) continue;
      int bytes = 0;
      check(MPI_Get_count(&statuses[i], mpi_type(r->dtype()), &bytes), "MPI_Get_count");
      r->got_source = statuses[i].MPI_SOURCE;
      r->got_tag = statuses[i].MPI_TAG;
      r->got_bytes += bytes * static_cast<int64_t>(dtype_size(r->dtype()));
    } catch (const Error& e) {
      break_world(r, e);
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    owners_[kept++] = owners_[i];
  }
  requests_.resize(kept);
  owners_.resize(kept);
  std::set<PiecePtr> seen;
  for (const auto& [r, piece] : owners) {
    if (!piece || piece->open > 0 || r->done() || !seen.insert(piece).second) continue;
    try {
      go_on(r, piece);
    } catch (const Error& e) {
      break_world(r, e);
    }
  }
  for (const Owner& owner : owners)
    if (owner.request->open == 0 && !owner.request->done()) step(owner.request);
  for (const Owner& owner : owners) start_agreed(*owner.request->comm);
  return true;
}

// What comes after all that was open of a request.
void Engine::step(const RequestPtr& r) {
  if (r->stage == Stage::checking) return compare_headers(r);
  if (r->stage != Stage::moving) return;
  if (r->mine.kind == Kind::create) finish_child(r);
  if (r->mine.kind == Kind::receive) return finish_received(r);
  r->finish();
  if (!r->is_collective()) return;
  --r->comm->moving;
  r->comm->moving_bytes -= r->bytes();
}

void Engine::compare_headers(const RequestPtr& r) {
  if (std::ranges::all_of(r->all, [&](const Header& h) { return h == r->mine; })) {
    r->stage = Stage::agreed;
  } else {
    std::map<int, Header> by_rank;
    for (size_t i = 0; i < r->all.size(); ++i) by_rank[static_cast<int>(i)] = r->all[i];
    std::erase(r->comm->order, r);
    r->finish(Error(fmt::format("rank {} of {}: the ranks of the common world do different things: {}", r->comm->rank,
                                r->comm->size, who_does_what(by_rank)),
                    "all ranks must run the same operators on it in the same order, on tensors of the same type and "
                    "shape"));
  }
}

void Engine::finish_received(const RequestPtr& r) {
  if (r->got_bytes == r->bytes()) return r->finish();
  const int64_t size = static_cast<int64_t>(dtype_size(r->dtype()));
  r->finish(
      Error(fmt::format("rank {} of {} has received {} elements from rank {} with tag {}, and not {}", r->comm->rank,
                        r->comm->size, r->got_bytes / size, r->got_source, r->got_tag, r->mine.count)));
}

void Engine::finish_child(const RequestPtr& r) {
  for (const MPI_Comm comm : {r->child->checks, r->child->data}) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  r->child->rank = r->comm->rank;
  r->child->size = r->comm->size;
  r->child->machine = r->comm->machine;
}

// --- When the time is over -----------------------------------------------------------------------------------------

void Engine::say_that_it_waits(const RequestPtr& r) {
  if (r->done()) return;
  const Seconds grace = std::min(kMostGrace, r->patience * 0.25);
  r->fails_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(grace);
  r->waiting[r->comm->rank] = r->mine;
  late_.push_back(r);
  if (!r->is_collective() || r->stage == Stage::moving) return;
  for (int rank = 0; rank < r->comm->size; ++rank) {
    if (rank == r->comm->rank) continue;
    // Small enough to be taken over by MPI at once; nobody has to receive it.
    MPI_Isend(&r->mine, kHeaderLongs, MPI_INT64_T, rank, kWaitsTag, r->comm->checks, add(r));
  }
}

// Takes what others say who are late, too.
void Engine::listen() {
  for (size_t i = 0; i < late_.size(); ++i) {
    const RequestPtr r = late_[i];
    int is_there = 1;
    while (is_there) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, kWaitsTag, r->comm->checks, &is_there, &status) != MPI_SUCCESS || !is_there) break;
      Header header;
      MPI_Recv(&header, kHeaderLongs, MPI_INT64_T, status.MPI_SOURCE, kWaitsTag, r->comm->checks, MPI_STATUS_IGNORE);
      // Others may have been late for earlier operations, and come after all.
      const bool is_old = !r->comm->order.empty() && header.number < r->comm->order.front()->mine.number;
      if (!is_old) r->waiting[status.MPI_SOURCE] = header;
    }
    if (r->done()) {
      late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i--));
    } else if (Clock::now() >= r->fails_at) {
      late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i--));
      break_world(r, Error(lateness(*r),
                           "see whether another rank has failed or runs another net; CreateCommonWorld's timeout_sec "
                           "gives it more time"));
    }
  }
}

std::string lateness(int rank, int size, double seconds, const Header& mine) {
  return fmt::format("rank {} of {} has waited for {:g} s in {}", rank, size, seconds, mine);
}

std::string Engine::lateness(const Request& r) const {
  const Comm& comm = *r.comm;
  std::string text = mpi_world::lateness(comm.rank, comm.size, r.patience.count(), r.mine);
  if (!r.is_collective())
    return text +
           (r.peer == World::kAny ? " for any rank" : fmt::format(" for rank {} with tag {}", r.peer, r.wanted_tag));
  if (r.stage == Stage::moving) return text + "; all ranks came, but the data does not";
  std::vector<int> missing;
  std::map<int, Header> elsewhere;
  for (int rank = 0; rank < comm.size; ++rank)
    if (const auto said = r.waiting.find(rank); said == r.waiting.end())
      missing.push_back(rank);
    else if (!(said->second == r.mine))
      elsewhere[rank] = said->second;
  if (!missing.empty()) text += fmt::format("; {} did not come", rank_list(missing));
  if (!elsewhere.empty()) text += fmt::format("; others wait elsewhere: {}", who_does_what(elsewhere));
  return text;
}

// Fails the request and all that were started after it. What MPI still has open of them stays where it is, with the
// memory that was given to hold().
void Engine::break_world(const RequestPtr& r, Error error) {
  failed_ = true;
  r->comm->set_broken(error.fact());
  for (const RequestPtr& other : std::exchange(r->comm->order, {}))
    if (other != r) other->finish(Error(fmt::format("the common world has failed before: {}", error.fact())));
  r->finish(std::move(error));
}

// Gives a world back that nobody uses any more, unless MPI still has something open in it.
void Engine::free_comm(Comm& comm) {
  const auto uses_it = [&](const Owner& owner) { return owner.request->comm.get() == &comm; };
  if (failed_ || !comm.order.empty() || std::ranges::any_of(owners_, uses_it)) return;
  for (MPI_Comm* c : {&comm.checks, &comm.data})
    if (*c != MPI_COMM_NULL) MPI_Comm_free(c);
}

void Engine::stop() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kUnresponsive, [&] { return stopped_; });
}

// --- The end of the process ----------------------------------------------------------------------------------------

// Waits for the others to come to their end, too. Returns false if MPI cannot be finished.
bool Engine::say_goodbye() {
  const auto request = std::make_shared<Request>();
  request->mine.kind = Kind::finish;
  request->comm = root_;
  {
    const std::lock_guard lock(mutex_);
    request->patience = longest_;
  }
  submit(request);
  try {
    request->wait();
    return true;
  } catch (const Error& e) {
    std::fprintf(stderr, "stepnet: %s\n", e.what());
    return false;
  }
}

void Engine::leave(int status) {
  if (getpid() != process_) return;  // a child that was forked has no thread
  bool is_ready = false;
  {
    const std::lock_guard lock(mutex_);
    is_ready = ready_;
  }
  const bool is_clean = is_ready && status == 0 && !failed_ && (!is_mpi_ours_ || say_goodbye());
  bool is_stopped = false;
  {
    std::unique_lock lock(mutex_);
    finalize_ = is_clean;
    stop_ = true;
    changed_.notify_all();
    is_stopped = changed_.wait_for(lock, is_ready ? kUnresponsive : Seconds(0.1), [&] { return stopped_; });
  }
  if (is_stopped && (is_clean || !is_ready || status != 0)) return thread_.join();
  // It is in a call of MPI that does not return, or the process would end as if it had succeeded.
  std::fflush(nullptr);
  _exit(status != 0 ? status : 1);
}

// --- The world -----------------------------------------------------------------------------------------------------

class MpiWorld final : public World {
 public:
  MpiWorld(CommPtr comm, Seconds timeout) : comm_(std::move(comm)), timeout_(timeout) {}
  ~MpiWorld() override { Engine::get().release(comm_); }

  static std::shared_ptr<World> make(const CommPtr& parent, Seconds timeout) {
    const auto request = std::make_shared<Request>();
    request->mine.kind = Kind::create;
    request->comm = parent;
    request->child = std::make_shared<Comm>();
    request->patience = timeout;
    Engine::get().submit(request);
    request->wait();
    return std::make_shared<MpiWorld>(request->child, timeout);
  }

  int rank() const override { return comm_->rank; }
  int size() const override { return comm_->size; }
  Seconds timeout() const override { return timeout_; }
  Machine machine() const override { return comm_->machine; }

  PendingPtr start_allreduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp op) override {
    return start({Kind::allreduce, 0, count, code(dtype), code(op)}, from, to);
  }
  PendingPtr start_reduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp op, int root) override {
    check_rank(root, "root");
    return start({Kind::reduce, 0, count, code(dtype), code(op), root}, from, to);
  }
  PendingPtr start_broadcast(void* data, int64_t count, DType dtype, int root) override {
    check_rank(root, "root");
    return start({Kind::broadcast, 0, count, code(dtype), 0, root}, data, data);
  }
  PendingPtr start_allgather(const void* from, void* to, int64_t count, DType dtype) override {
    check_whole(count);
    return start({Kind::allgather, 0, count, code(dtype)}, from, to);
  }
  PendingPtr start_allgather_parts(const void* from, void* to, const std::vector<int64_t>& counts,
                                   DType dtype) override {
    require(std::ssize(counts) == size(), "there are {} counts for {} ranks", counts.size(), size());
    int64_t all = 0;
    for (const int64_t count : counts) {
      require(count >= 0, "a rank cannot have {} elements", count);
      require(count <= std::numeric_limits<int>::max() - all,
              "the elements of {} ranks are more than the {} in all that MPI can count", size(),
              std::numeric_limits<int>::max());
      all += count;
    }
    const RequestPtr request = make({Kind::allgather_parts, 0, all, code(dtype)}, from, to);
    int at = 0;
    for (const int64_t count : counts) {
      request->offsets.push_back(at);
      at += request->counts.emplace_back(static_cast<int>(count));
    }
    Engine::get().submit(request);
    return request;
  }
  PendingPtr start_reduce_scatter(const void* from, void* to, int64_t count, DType dtype, ReduceOp op) override {
    check_whole(count);
    return start({Kind::reduce_scatter, 0, count, code(dtype), code(op)}, from, to);
  }
  PendingPtr start_alltoall(const void* from, void* to, int64_t count, DType dtype) override {
    check_whole(count);
    return start({Kind::alltoall, 0, count, code(dtype)}, from, to);
  }
  PendingPtr start_barrier() override { return start({Kind::barrier}, nullptr, nullptr); }
  PendingPtr start_send(const void* data, int64_t count, DType dtype, int to, int tag) override {
    check_rank(to, "destination");
    check_tag(tag);
    return start({Kind::send, 0, count, code(dtype)}, data, nullptr, to, tag);
  }
  PendingPtr start_receive(void* data, int64_t count, DType dtype, int from, int tag) override {
    if (from != kAny) check_rank(from, "source");
    if (tag != kAny) check_tag(tag);
    return start({Kind::receive, 0, count, code(dtype)}, nullptr, data, from, tag);
  }
  PendingPtr start_agreement(Collective what, int64_t count, DType dtype, ReduceOp op, int root) override {
    constexpr std::array kinds = {Kind::allreduce, Kind::reduce, Kind::broadcast, Kind::allgather,
                                  Kind::reduce_scatter};
    if (root >= 0) check_rank(root, "root");
    return start({kinds[static_cast<size_t>(what)], 0, count, code(dtype), code(op), root, 1}, nullptr, nullptr);
  }
  std::shared_ptr<World> clone(Seconds timeout) override { return make(comm_, timeout); }

 private:
  static int64_t code(DType dtype) { return static_cast<int64_t>(dtype); }
  static int64_t code(ReduceOp op) { return static_cast<int64_t>(op); }

  void check_rank(int rank, const char* what) const {
    require(rank >= 0 && rank < size(), "the {} is rank {}, but the common world has ranks 0 to {}", what, rank,
            size() - 1);
  }
  static void check_tag(int tag) {
    constexpr int most = 32767;  // what every MPI has
    require(tag >= 0 && tag <= most, "a tag must be from 0 to {}, but is {}", most, tag);
  }
  // These have the elements of all ranks in one piece.
  void check_whole(int64_t count) const {
    require(count <= std::numeric_limits<int>::max() / size(),
            "{} elements for each of {} ranks are more than the {} in all that MPI can count", count, size(),
            std::numeric_limits<int>::max());
  }

  PendingPtr start(const Header& header, const void* from, void* to, int peer = kAny, int tag = kAny) const {
    const RequestPtr request = make(header, from, to);
    request->peer = peer;
    request->wanted_tag = tag;
    Engine::get().submit(request);
    return request;
  }

  RequestPtr make(const Header& header, const void* from, void* to) const {
    const DType dtype = static_cast<DType>(header.dtype);
    require(dtype != DType::string, "strings cannot be sent to other ranks");
    require(!reduces(header.kind) || dtype != DType::boolean,
            "bools cannot be added up; bring them to int32 with Cast");
    const auto request = std::make_shared<Request>();
    request->mine = header;
    request->comm = comm_;
    request->from = from;
    request->to = to;
    request->patience = timeout_;
    return request;
  }

  CommPtr comm_;
  Seconds timeout_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void stepnet_mpi_world(Seconds timeout, WorldPtr* made) {
  *made = MpiWorld::make(Engine::get().root(timeout), timeout);
}

}  // namespace stepnet::mpi_world
