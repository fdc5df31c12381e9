// Reading and writing nets as lines, for tests of the gradient pass.
#include "tests/core/gradient_testing.h"

#include <fmt/format.h>

#include <regex>
#include <sstream>

#include "stepnet/arguments.h"

namespace stepnet::testing {
namespace {

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  const std::regex name(R"([^,\s]+)");
  for (std::sregex_iterator it(list.begin(), list.end(), name), end; it != end; ++it)
    names.push_back(it->str() == "-" ? "" : it->str());
  return names;
}

template <class Names>
std::string joined(const Names& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(name.empty() ? "-" : name);
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::string text_of(const GradientName& name) {
  return name.is_sparse() ? name.indices + ";" + name.values : name.dense;
}

OperatorDef op_of_line(const std::string& line) {
  static const std::regex pattern(R"(\s*([^=]*?)\s*=?\s*(\w+)\(([^)]*)\)\s*(.*))");
  std::smatch match;
  require(std::regex_match(line, match, pattern), "the test's line \"{}\" is no operator", line);
  OperatorDef op;
  op.set_type(match[2]);
  for (const std::string& name : names_in(match[1])) op.add_output(name);
  for (const std::string& name : names_in(match[3])) op.add_input(name);
  for (const std::string& arg : names_in(match[4])) {
    const size_t equals = arg.find('=');
    std::vector<int64_t> values;
    std::stringstream list(arg.substr(equals + 1));
    for (std::string value; std::getline(list, value, '/');) values.push_back(std::stoll(value));
    *op.add_arg() =
        values.size() == 1 ? make_arg(arg.substr(0, equals), values[0]) : make_arg(arg.substr(0, equals), values);
  }
  return op;
}

}  // namespace

NetDef net_of_lines(const Lines& lines) {
  NetDef net;
  net.set_name("lines");
  for (const std::string& line : lines) *net.add_op() = op_of_line(line);
  return net;
}

std::string line_of(const OperatorDef& op) {
  const std::string outputs = joined(op.output());
  return fmt::format("{}{}{}({})", outputs, outputs.empty() ? "" : " = ", op.type(), joined(op.input()));
}

Lines lines_of(const NetDef& net, int first) {
  Lines lines;
  for (int i = first; i < net.op_size(); ++i) lines.push_back(line_of(net.op(i)));
  return lines;
}

Backward differentiate(const NetDef& net, const Targets& targets, const std::set<std::string>& wanted) {
  Backward b;
  b.net = net;
  b.result = add_gradient_operators(b.net, {.targets = targets, .wanted = wanted, .stop = {}});
  b.lines = lines_of(b.net, b.result.first_gradient_op);
  for (const auto& [blob, name] : b.result.gradients) b.map[blob] = text_of(name);
  return b;
}

Backward differentiate(const Lines& lines, const Targets& targets, const std::set<std::string>& wanted) {
  return differentiate(net_of_lines(lines), targets, wanted);
}

}  // namespace stepnet::testing
