#include "core/visible_text.h"

#include <fmt/format.h>

#include <iterator>

namespace stepnet {
namespace {

constexpr unsigned char kFirstPrinted = 0x20, kDelete = 0x7f;
// In UTF-8 the control characters U+0080 to U+009F are this byte and one of 0x80 to 0x9f.
constexpr unsigned char kUpperControls = 0xc2, kFirstUpper = 0x80, kLastUpper = 0x9f;

bool is_control(unsigned char byte, unsigned char before) {
  if (before == kUpperControls && byte >= kFirstUpper && byte <= kLastUpper) return true;
  return byte < kFirstPrinted || byte == kDelete;
}

}  // namespace

std::string visible_text(std::string_view text, LineEnds ends) {
  const auto stays = [ends](char c) { return ends == LineEnds::stay && (c == '\n' || c == '\t'); };
  std::string shown;
  unsigned char before = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_control(byte, before) && !stays(c))
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", byte);
    else
      shown.push_back(c);
    before = byte;
  }
  return shown;
}

}  // namespace stepnet
