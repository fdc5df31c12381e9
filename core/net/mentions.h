// Mentions: which of many names may stand in a message, be it as a field, in nets inside of it or in nets as text.
//
// Operators on blobs may read what their arguments name (a step net reads blobs of the net around it by name), and nets
// of a plan what others have written. Wrong only in saying yes.
// Owns: the names. Threads: one at a time.
#pragma once

#include <bitset>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

class Mentions {
 public:
  void add(const std::string& name);
  // Those of the names that may stand there, each once. Linear in the message, but for looking names up.
  std::vector<std::string> in(std::string_view serialized) const;

 private:
  static constexpr size_t kOneByteLength = 128;  // shorter texts have a byte with their length before them

  std::set<std::string, std::less<>> names_;
  std::set<std::string> quoted_;         // have quotes in them, which would be hard to tell from those around them
  std::bitset<kOneByteLength> lengths_;  // of names
  size_t longest_ = 0;
};

}  // namespace stepnet
