#include "tests/recurrent/full_form.h"

#include <algorithm>

#include "stepnet/text.h"

namespace stepnet::testing {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

// "a = b[1:3]" in its parts; the numbers are 0 and 1 if they are left out.
struct Row {
  std::string left, right;
  int64_t offset = 0, window = 1;
};

Row parse_row(const std::string& line) {
  Row row;
  const size_t equals = line.find(" = ");
  require(equals != line.npos, "the test writes \"{}\", which has no \" = \"", line);
  row.left = line.substr(0, equals);
  row.right = line.substr(equals + 3);
  const size_t bracket = row.right.find('[');
  if (bracket == row.right.npos) return row;
  const std::string numbers = row.right.substr(bracket + 1, row.right.size() - bracket - 2);
  row.right.resize(bracket);
  row.offset = std::stoll(numbers);
  if (const size_t colon = numbers.find(':'); colon != numbers.npos) row.window = std::stoll(numbers.substr(colon + 1));
  return row;
}

std::vector<Row> parse_rows(const Lines& lines) {
  std::vector<Row> rows;
  for (const std::string& line : lines) rows.push_back(parse_row(line));
  return rows;
}

template <class T>
std::vector<T> parts(const std::vector<Row>& rows, T Row::*member) {
  std::vector<T> values;
  for (const Row& row : rows) values.push_back(row.*member);
  return values;
}

class FormWriter {
 public:
  FormWriter(OperatorDef& op, const FullForm& form) : op_(op), form_(form) {}

  void write() {
    net_arg("step_net", "step", form_.step);
    const std::vector<Row> states = parse_rows(form_.states), views = parse_rows(form_.views);
    add("recurrent_states", parts(states, &Row::left));
    add("initial_recurrent_state_ids", indices(states, &Row::right));
    links("", form_.links);
    add("link_window", parts(parse_rows(form_.links), &Row::window));
    add("alias_src", parts(views, &Row::right));
    add("alias_dst", parts(views, &Row::left));
    add("alias_offset", parts(views, &Row::offset));
    add("outputs_with_grads", form_.outputs_with_grads);
    links("backward_", form_.backward_links);
    if (form_.backward.empty()) return;
    net_arg("backward_step_net", "backward_step", form_.backward);
    const std::vector<Row> params = parse_rows(form_.params);
    add("param", indices(params, &Row::left));
    if (!form_.unnamed_params) add("param_grads", parts(params, &Row::right));
    add("recompute_blobs_on_backward", form_.recompute);
  }

 private:
  template <class T>
  void add(const std::string& name, const T& value) {
    *op_.add_arg() = make_arg(name, value);
  }
  void links(const std::string& prefix, const Lines& lines) {
    const std::vector<Row> rows = parse_rows(lines);
    add(prefix + "link_internal", parts(rows, &Row::left));
    add(prefix + "link_external", parts(rows, &Row::right));
    add(prefix + "link_offset", parts(rows, &Row::offset));
  }
  void net_arg(const std::string& name, const std::string& net_name, const Lines& lines) {
    NetDef net = net_of_lines(lines);
    net.set_name(net_name);
    if (form_.text) {
      add(name, to_text(net));
    } else {
      add(name, net);
    }
  }
  Ints indices(const std::vector<Row>& rows, std::string Row::*member) const {
    Ints result;
    for (const Row& row : rows) result.push_back(std::ranges::find(form_.inputs, row.*member) - form_.inputs.begin());
    return result;
  }

  OperatorDef& op_;
  const FullForm& form_;
};

double weighted_outputs(Net& net, const Feeds& outside) {
  RunContext run;
  net.run(run);
  double sum = 0;
  for (const auto& [name, weights] : outside) {
    const Tensor& output = net.workspace().fetch(name);
    for (int64_t i = 0; i < output.size(); ++i) sum += output.data<double>()[i] * weights.data<double>()[i];
  }
  return sum;
}

}  // namespace

NetDef full_net(const FullForm& form, const Feeds& feeds) {
  NetDef net;
  net.set_name("outer");
  for (const auto& feed : feeds) net.add_external_input(feed.first);
  Strings outputs = form.outputs;
  outputs.emplace_back("steps");
  OperatorDef& op = *net.add_op();
  op = make_op("RecurrentNetwork", form.inputs, outputs);
  FormWriter(op, form).write();
  return net;
}

CellResults differences(const NetDef& net, const Feeds& feeds, const Feeds& outside, double step) {
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Net bound(net, workspace);
  CellResults results;
  for (const auto& [name, value] : feeds) {
    if (value.dtype() != DType::float64) continue;
    Tensor gradient = Tensor::empty(DType::float64, value.shape());
    double* at = workspace.tensor(name).data<double>();
    for (int64_t i = 0; i < value.size(); ++i) {
      const double middle = at[i];
      at[i] = middle + step;
      const double above = weighted_outputs(bound, outside);
      at[i] = middle - step;
      const double below = weighted_outputs(bound, outside);
      at[i] = middle;
      gradient.data<double>()[i] = (above - below) / (2 * step);
    }
    results.gradients[name] = gradient;
  }
  return results;
}

std::string check_differences(const NetDef& net, const Feeds& feeds, const Feeds& outside, double tol) {
  return compare_results({{}, run_with_gradients(net, feeds, outside).gradients}, differences(net, feeds, outside),
                         tol);
}

}  // namespace stepnet::testing
