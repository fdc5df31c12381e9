#include "core/gradcheck/gradient_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace stepnet {
namespace {

Json list_of(const auto& texts) {
  Json list = Json::list();
  for (const std::string& text : texts) list.append(text);
  return list;
}

Json object_of(const std::map<std::string, std::string>& texts) {
  Json object = Json::object();
  for (const auto& [name, text] : texts) object.add(name, text);
  return object;
}

Json row_json(const GradientRow& row) {
  Json json = Json::object();
  json.add("check", row.check).add("input", row.input).add("order", row.order).add("right", row.right);
  json.add("error", row.error).add("where", row.where);
  json.add("derivative", row.derivative).add("differences", row.differences);
  json.add("tried", row.tried).add("kinks", row.kinks).add("elements", row.elements);
  return json;
}

std::string wrong_text(const GradientRow& row) {
  if (row.check == "hessian") {
    const bool symmetry = row.input == "symmetry", differences = row.input == "differences";
    return fmt::format("the Hessian at {}: {} {:.9g}, but {} {:.9g}\n", row.where,
                       symmetry ? "u.(H v) is" : "reverse over reverse mode gives", row.derivative,
                       symmetry      ? "v.(H u) is"
                       : differences ? "differences are"
                                     : row.input + " gives",
                       row.differences);
  }
  return fmt::format("{} of \"{}\" at {}: the derivative is {:.9g}, but differences are {:.9g}\n",
                     row.order > 1 ? std::string(order_name(row.order)) + " derivative" : "gradient", row.input,
                     row.where, row.derivative, row.differences);
}

// With every line but the first further in.
std::string indented(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() && text[i] == '\n') break;
    result += text[i];
    if (text[i] == '\n') result += "    ";
  }
  return result;
}

}  // namespace

const char* order_name(int order) { return order == 1 ? "first" : order == 2 ? "second" : "third"; }

Json report_json(const GradientReport& report) {
  Json rows = Json::list(), blamed = Json::list();
  for (const GradientRow& row : report.rows) rows.append(row_json(row));
  for (const BlamedOperator& op : report.blamed) {
    Json one = Json::object();
    one.add("path", op.path).add("type", op.type).add("what", op.what);
    blamed.append(std::move(one));
  }
  Json json = Json::object();
  json.add("right", report.right()).add("rows", std::move(rows)).add("broken", list_of(report.broken));
  json.add("refused", object_of(report.refused)).add("operators", list_of(report.operators));
  json.add("searched", report.searched).add("blamed", std::move(blamed));
  json.add("unsearched", object_of(report.unsearched));
  return json;
}

Json options_json(const GradientCheckOptions& options) {
  Json json = Json::object();
  json.add("order", options.order).add("forward", options.forward).add("hessian", options.hessian);
  json.add("directions", options.directions ? Json(*options.directions) : Json(nullptr));
  json.add("many_elements", options.many_elements).add("tolerance", options.tolerance).add("step", options.step);
  json.add("seed", static_cast<size_t>(options.seed));
  return json;
}

bool GradientReport::right() const {
  return broken.empty() && std::ranges::all_of(rows, [](const GradientRow& row) { return row.right; });
}

std::string GradientReport::str() const {
  std::string text;
  for (const GradientRow& row : rows)
    if (!row.right) text += wrong_text(row);
  for (const std::string& sentence : broken) text += sentence + "\n";
  return text + blamed_text();
}

std::string GradientReport::blamed_text() const {
  std::string text;
  for (const BlamedOperator& op : blamed) text += fmt::format("{} is wrong alone: {}\n", op.path, indented(op.what));
  for (const auto& [path, why] : unsearched) text += fmt::format("{} cannot be checked alone: {}\n", path, why);
  if (searched && blamed.empty())
    text += fmt::format("no {}operator is wrong alone, so it is how their derivatives are put together\n",
                        unsearched.empty() ? "" : "other ");
  return text;
}

}  // namespace stepnet
