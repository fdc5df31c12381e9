// Not Stepnet's: the program's own. Threads: a value.
#pragma once

struct OwnMessage {
  int size = 8;
};
