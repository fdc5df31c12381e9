// What the environment asks for, the number of the call, and the journal.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/faults/shim/shim.h"

namespace stepnet::testing {
namespace {

struct Plan {
  char root[PATH_MAX] = "";
  size_t root_bytes = 0;
  unsigned at = 0;
  Fault fault = Fault::none;
  int journal = -1;
  unsigned calls = 0;
};

Plan plan;
pthread_once_t plan_is_made = PTHREAD_ONCE_INIT;
pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

// Numbers of files that the program opens stay what they are without a journal.
int open_journal(const char* path) {
  using Open = int(const char*, int, ...);
  constexpr int kHigh = 900;
  const int fd = next<Open>("open")(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kHigh);
  next<int(int)>("close")(fd);
  return high;
}

void make_plan() {
  const char* root = getenv("STEPNET_FAULTS_ROOT");
  if (!root || strlen(root) >= sizeof(plan.root)) return;
  strcpy(plan.root, root);
  plan.root_bytes = strlen(root);
  if (const char* at = getenv("STEPNET_FAULTS_AT")) {
    char* end = nullptr;
    plan.at = static_cast<unsigned>(strtoul(at, &end, 10));
    plan.fault = static_cast<Fault>(strtoul(end, nullptr, 10));
  }
  if (const char* journal = getenv("STEPNET_FAULTS_JOURNAL")) plan.journal = open_journal(journal);
}

bool is_below_root(const char* path) {
  pthread_once(&plan_is_made, make_plan);
  return plan.root_bytes > 0 && strncmp(path, plan.root, plan.root_bytes) == 0 &&
         (path[plan.root_bytes] == '/' || path[plan.root_bytes] == '\0');
}

void path_of_open(int fd, char* path) {
  char link[32];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t bytes = readlink(link, path, PATH_MAX - 1);
  path[bytes < 0 ? 0 : bytes] = '\0';
}

bool is_in(Fault fault, unsigned number) {
  const bool stays = fault == Fault::eio_on || fault == Fault::enospc_on;
  return plan.at > 0 && (number == plan.at || (stays && number > plan.at));
}

}  // namespace

void* next_function(const char* name) {
  void* function = dlsym(RTLD_NEXT, name);
  if (!function) abort();
  return function;
}

void name_file(Call& call, int folder, const char* path) {
  const int before = errno;
  char* to = call.path[0] == '\0' ? call.path : call.other;
  if (path[0] != '/') {
    if (folder == AT_FDCWD) {
      if (!getcwd(to, PATH_MAX)) to[0] = '\0';
    } else {
      path_of_open(folder, to);
    }
    if (strcmp(path, ".") == 0) path = "";
    if (path[0] != '\0') strncat(to, "/", PATH_MAX - strlen(to) - 1);
  }
  strncat(to, path, PATH_MAX - strlen(to) - 1);
  call.counted = call.counted || is_below_root(to);
  errno = before;
}

void name_open_file(Call& call, int fd) {
  const int before = errno;
  call.fd = fd;
  path_of_open(fd, call.path);
  call.counted = is_below_root(call.path);
  errno = before;
}

Fault next_fault(Call& call) {
  pthread_mutex_lock(&one_at_a_time);
  call.number = ++plan.calls;
  pthread_mutex_unlock(&one_at_a_time);
  if (!is_in(plan.fault, call.number)) return Fault::none;
  if (plan.fault == Fault::kill) end_process();
  if (plan.fault == Fault::eio_on) return Fault::eio;
  if (plan.fault == Fault::enospc_on) return call.takes_room ? Fault::enospc : Fault::none;
  return plan.fault;
}

void write_record(const Call& call, long result, int error) {
  if (plan.journal < 0) return;
  const int before = errno;
  const bool has_data = call.kind == CallKind::write && result > 0;
  CallRecord record;
  record.number = call.number;
  record.kind = call.kind;
  record.fd = call.fd;
  record.error = error;
  record.flags = static_cast<uint32_t>(call.flags);
  record.offset = call.offset;
  record.path_bytes = static_cast<uint32_t>(strlen(call.path));
  record.other_bytes = static_cast<uint32_t>(strlen(call.other));
  record.data_bytes = has_data ? static_cast<uint32_t>(result) : 0;
  const iovec parts[] = {{&record, sizeof(record)},
                         {const_cast<char*>(call.path), record.path_bytes},
                         {const_cast<char*>(call.other), record.other_bytes},
                         {const_cast<void*>(call.data), record.data_bytes}};
  if (next<ssize_t(int, const iovec*, int)>("writev")(plan.journal, parts, 4) < 0) abort();
  errno = before;
}

void end_process() {
  for (;;) kill(getpid(), SIGKILL);
}

}  // namespace stepnet::testing
