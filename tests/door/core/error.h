// Not Stepnet's: the program's own. Threads: a value.
#pragma once

struct OwnError {
  int code = 7;
};
