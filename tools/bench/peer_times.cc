// Reading the lines, and the choice.
#include "tools/bench/peer_times.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "stepnet/error.h"

namespace stepnet::bench {
namespace {

template <class T>
bool parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

PeerTime parse_line(const std::string& line, const std::string& where) {
  PeerTime time;
  std::istringstream in(line);
  std::string ms;
  for (std::string* field : {&time.peer, &time.cell, &time.size, &time.mode, &time.threads, &time.waiting, &ms})
    require(static_cast<bool>(std::getline(in, *field, '\t')), "{}: \"{}\" has fewer than seven fields", where, line);
  int threads = 0;
  require(parse(ms, time.ms) && time.ms > 0 && parse(time.threads, threads), "{}: \"{}\" has no time or threads", where,
          line);
  return time;
}

}  // namespace

std::string PeerTime::setting() const {
  return fmt::format("{} {}, {} waiting", threads, threads == "1" ? "thread" : "threads", waiting);
}

PeerTimes::PeerTimes(const std::string& path) {
  if (path.empty()) return;
  std::ifstream in(path);
  require(in.good(), "cannot read {}", path);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number)
    all_.push_back(parse_line(line, fmt::format("{}:{}", path, number)));
}

std::vector<PeerTime> PeerTimes::best(std::string_view cell, const Size& size, std::string_view mode,
                                      int threads) const {
  std::map<std::string, PeerTime> best;
  for (const PeerTime& time : all_) {
    int used = 0;
    if (time.cell != cell || time.size != size.str() || time.mode != mode) continue;
    if (!parse(time.threads, used) || used > threads) continue;
    const auto [at, added] = best.emplace(time.peer, time);
    if (!added && time.ms < at->second.ms) at->second = time;
  }
  std::vector<PeerTime> result;
  for (const auto& [name, time] : best) result.push_back(time);
  return result;
}

}  // namespace stepnet::bench
