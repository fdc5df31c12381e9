// `stepnet expand`: prints a net or plan in its full form, as the public format's readers take it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/io/files.h"
#include "core/net/dataflow.h"
#include "core/net/expansions.h"
#include "core/operator/nets_inside.h"
#include "core/passes/gradient_checks.h"
#include "core/passes/jacobians.h"
#include "recurrent/form/keep_bits.h"
#include "recurrent/form/per_sample.h"
#include "recurrent/form/sensitivities.h"
#include "recurrent/form/short_form.h"
#include "stepnet/error.h"
#include "stepnet/gradients.h"
#include "tools/commands/cli/feeds.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct ExpandOptions {
  std::string file, output, loss, learning;
  ReadAs as = ReadAs::automatic;
  std::vector<std::string> tangents, of, samples, feeds, parameters;
  std::string per_sample, jacobian, hessian;
  bool gradients = false, forward_only = false, keep_bits = false;
  bool binary = false, strict = false;
};

// What the public format has no place for.
void drop_extensions(NetDef& net) {
  for_each_net(net, [](NetDef& inner) { inner.ClearExtension(model); });
}

// Of a net that says how it is trained, the parameters are what its init net makes.
Sensitivities carry_sensitivities(NetDef& net, const ExpandOptions& options) {
  SensitivityRequest request{.rule = learning_rule(options.learning),
                             .parameters = {options.parameters.begin(), options.parameters.end()}};
  if (request.parameters.empty() && net.HasExtension(model))
    request.parameters = written_names(net.GetExtension(model).init());
  request.parameters.erase("");
  return add_sensitivities(net, request);
}

void append_gradients(LoadedFile& file, const std::string& loss, const ExpandOptions& options,
                      const Sensitivities& sensitivities) {
  require(!file.is_plan(), "--gradients takes a net, but the file holds a plan");
  require(!loss.empty(), "--gradients needs --loss BLOB, the blob to differentiate");
  GradientRequest request;
  request.targets = {{loss, ""}};
  request.wanted = {options.of.begin(), options.of.end()};
  for (const CarriedSensitivity& carried : sensitivities.carried) request.stop.insert(carried.first);
  if (options.keep_bits) keep_bits(file.net(), request);
  add_gradient_operators(file.net(), request);
}

// Where derivatives of the loss end, if it depends on what is moved at all.
std::string why_not(const NetDef& net, const ExpandOptions& options) {
  const BoundNet bound(net);
  std::set<int> moved;
  for (const std::string& name : options.tangents) moved.insert(bound.flow.meant(bound.flow.find(name)));
  const std::string end = where_derivatives_end(bound, moved, {bound.flow.last(bound.flow.find(options.loss))});
  return end.empty() ? "" : "; " + end;
}

// Of the loss alone, if one is named. Returns its tangent.
std::string add_tangents(LoadedFile& file, const ExpandOptions& options) {
  require(!file.is_plan(), "--tangents takes a net, but the file holds a plan");
  TangentRequest request;
  for (const std::string& name : options.tangents) request.given[name] = "";
  if (!options.loss.empty()) request.wanted = {options.loss};
  const NetDef given = file.net();  // whose operators have the numbers that people know
  const TangentResult result = add_tangent_operators(file.net(), request);
  const auto tangent = result.tangents.find(options.loss);
  if (!options.loss.empty() && tangent == result.tangents.end())
    fail("\"{}\" depends on none of --tangents {}{}", options.loss, fmt::join(options.tangents, ", "),
         why_not(given, options));
  return options.loss.empty() ? "" : tangent->second;
}

// BLOB=AXIS.
std::map<std::string, int> read_axes(const std::vector<std::string>& texts) {
  std::map<std::string, int> axes;
  for (const std::string& text : texts) {
    const size_t at = text.rfind('=');
    const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    require(at != text.npos && at > 0 && text.size() == at + 2 && is_digit(text[at + 1]),
            "--samples takes BLOB=AXIS, such as X=1, but got \"{}\"", text);
    axes[text.substr(0, at)] = text[at + 1] - '0';
  }
  return axes;
}

void rename_output(NetDef& net, const std::string& from, const std::string& to) {
  for (OperatorDef& op : *net.mutable_op()) {
    std::ranges::replace(*op.mutable_input(), from, to);
    std::ranges::replace(*op.mutable_output(), from, to);
  }
}

SampleRequest sample_request(const ExpandOptions& options) {
  require(!options.loss.empty() && !options.samples.empty() && !options.feeds.empty(),
          "--per-sample needs --loss, --samples and a --feed for every blob that the net reads");
  SampleRequest request{.loss = options.loss,
                        .parameters = {},
                        .types = read_feeds(options.feeds).types,
                        .batch_axes = read_axes(options.samples),
                        .samples = 0};
  const auto& [name, axis] = *request.batch_axes.begin();
  const auto first = request.types.find(name);
  require(first != request.types.end() && axis < first->second.shape.rank(),
          "--samples {}={} names no dimension of a --feed", name, axis);
  request.samples = first->second.shape[axis];
  for (const auto& [blob, a] : request.batch_axes)  // others may have timesteps in the same dimension
    if (const auto type = request.types.find(blob); type != request.types.end() && a < type->second.shape.rank())
      request.samples = std::min(request.samples, type->second.shape[a]);
  for (const auto& [blob, type] : request.types)
    if (request.batch_axes.count(blob) == 0 && is_floating(type.dtype)) request.parameters.insert(blob);
  return request;
}

void append_per_sample(NetDef& net, SampleTaps& taps, const ExpandOptions& options) {
  differentiate_taps(net, taps, options.loss, "", {});
  if (options.per_sample == "norms") {
    OperatorDef root;
    root.set_type("Sqrt");
    root.add_input(add_squared_norms(net, taps));
    root.add_output("per_sample_norms");
    *net.add_op() = root;
    net.add_external_output("per_sample_norms");
    return;
  }
  for (const auto& [parameter, name] : add_sample_gradients(net, taps)) {
    rename_output(net, name, parameter + "_per_sample");
    net.add_external_output(parameter + "_per_sample");
  }
}

bool wants_matrix(const ExpandOptions& options) { return !options.jacobian.empty() || !options.hessian.empty(); }

void check_matrix_options(const LoadedFile& file, const ExpandOptions& options) {
  if (!wants_matrix(options)) {
    require(options.of.empty() || options.gradients, "--of is only used with --gradients, --jacobian or --hessian");
    return;
  }
  require(options.jacobian.empty() || options.hessian.empty(), "--jacobian and --hessian are not used together");
  require(!options.gradients && options.tangents.empty() && options.per_sample.empty(),
          "--jacobian and --hessian are not used with --gradients, --tangents or --per-sample");
  require(!options.of.empty() && !options.feeds.empty(),
          "--jacobian and --hessian need --of and a --feed for every blob that the net reads");
  require(!file.is_plan(), "--jacobian and --hessian take a net, but the file holds a plan");
}

// The Jacobian or Hessian becomes outputs of the net.
void append_matrix(NetDef& net, const ExpandOptions& options) {
  const bool is_hessian = !options.hessian.empty();
  const JacobianRequest request{.output = is_hessian ? options.hessian : options.jacobian,
                                .inputs = options.of,
                                .types = read_feeds(options.feeds).types};
  if (is_hessian) {
    for (const auto& [blobs, name] : add_hessian_operators(net, request)) net.add_external_output(name);
  } else {
    for (const auto& [blob, name] : add_jacobian_operators(net, request)) net.add_external_output(name);
  }
}

void expand(const ExpandOptions& options) {
  LoadedFile file = load_net_or_plan(options.file, options.as);
  Sensitivities sensitivities;
  if (!options.learning.empty()) {
    require(options.gradients && options.tangents.empty(),
            "--learning is only used with --gradients, and without --tangents");
    require(!file.is_plan(), "--learning takes a net, but the file holds a plan");
    sensitivities = carry_sensitivities(file.net(), options);
    for (const CarriedSensitivity& carried : sensitivities.carried)
      print_note("note: a run reads \"{}\" where the one before wrote \"{}\"; the first reads zeros\n", carried.first,
                 carried.last);
  }
  require(options.parameters.empty() || !options.learning.empty(), "--parameter is only used with --learning");
  require(!options.per_sample.empty() || options.samples.empty(), "--samples is only used with --per-sample");
  require(!options.per_sample.empty() || wants_matrix(options) || options.feeds.empty(),
          "--feed is only used with --per-sample, --jacobian or --hessian");
  check_matrix_options(file, options);
  SampleTaps taps;
  if (!options.per_sample.empty()) {
    require(!options.gradients && options.tangents.empty(), "--per-sample is not used with --gradients or --tangents");
    require(!file.is_plan(), "--per-sample takes a net, but the file holds a plan");
    taps = tap_parameters(file.net(), sample_request(options));
  }
  for (NetDef* net : nets_of(file)) expand_recurrent(*net);
  Warnings warnings;
  check_structure(file, warnings);
  warnings.report(options.strict);
  require(options.gradients || !options.tangents.empty() || !options.per_sample.empty() || options.loss.empty(),
          "--loss is only used with --gradients, --tangents or --per-sample");
  std::string loss = options.loss;
  if (!options.tangents.empty()) loss = add_tangents(file, options);
  require(options.gradients || !options.keep_bits, "--keep-bits is only used with --gradients");
  if (options.gradients) append_gradients(file, loss, options, sensitivities);
  if (!options.per_sample.empty()) append_per_sample(file.net(), taps, options);
  if (wants_matrix(options)) append_matrix(file.net(), options);
  for (NetDef* net : nets_of(file)) {
    if (options.forward_only) *net = forward_only(*net);
    drop_extensions(*net);
  }
  const std::string out = options.binary ? (file.is_plan() ? to_binary(file.plan()) : to_binary(file.net()))
                                         : (file.is_plan() ? to_text(file.plan()) : to_text(file.net()));
  if (options.output.empty()) {
    std::cout << out << std::flush;
    return;
  }
  write_file(options.output, out);
}

}  // namespace

void add_expand_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("expand", "Print a net or plan in the full form of the public format");
  auto o = std::make_shared<ExpandOptions>();  // shared with the callback, which runs after this returns
  command->add_option("FILE", o->file, "The net or plan")->required()->type_name("");
  command->add_option("--as", o->as, "What FILE holds: auto, net or plan")
      ->transform(CLI::CheckedTransformer(read_as_names()).description(""))
      ->type_name("KIND");
  command
      ->add_option("--tangents", o->tangents,
                   "Put in the operators that compute how outputs, or --loss, change where this blob moves along a "
                   "direction, its tangent; may be repeated")
      ->allow_extra_args(false)
      ->type_name("BLOB");
  command->add_flag("--gradients", o->gradients,
                    "Append the gradient operators of --loss, or with --tangents those of its tangent");
  command->add_flag("--forward-only", o->forward_only,
                    "Nothing will be differentiated any more: networks that no gradient operator reads keep nothing");
  command->add_option("--loss", o->loss, "The blob to differentiate")->type_name("BLOB");
  command->add_flag("--keep-bits", o->keep_bits,
                    "With --gradients, keep a bit for each element where the gradient of Relu, LeakyRelu, Clip or "
                    "Dropout would keep a value or a mask that no other gradient reads, by operators of Stepnet's own");
  command
      ->add_option(
          "--of", o->of,
          "What derivatives are with respect to; may be repeated. Else, with --gradients, all that --loss depends "
          "on")
      ->allow_extra_args(false)
      ->type_name("BLOB");
  command
      ->add_option("--per-sample", o->per_sample,
                   "Append operators for what each sample adds to the gradient of --loss: norms, one over all "
                   "parameters, or gradients. Parameters are the floating blobs of --feed without --samples")
      ->check(CLI::IsMember({"norms", "gradients"}))
      ->type_name("KIND");
  command->add_option("--samples", o->samples, "For --per-sample: which dimension of a blob holds samples")
      ->allow_extra_args(false)
      ->type_name("BLOB=AXIS");
  command
      ->add_option("--jacobian", o->jacobian,
                   "Append operators that compute the Jacobian of this blob by --of, in one backward pass")
      ->type_name("BLOB");
  command
      ->add_option("--hessian", o->hessian,
                   "Append operators that compute the second derivatives of this blob, a loss, by --of")
      ->type_name("BLOB");
  command
      ->add_option("--feed", o->feeds,
                   "For --per-sample, --jacobian and --hessian: the type of a blob that the net reads")
      ->allow_extra_args(false)
      ->type_name("BLOB=TYPE[SIZE,...]");
  command
      ->add_option("--learning", o->learning,
                   "Let the gradients of a stream that is run in chunks be those of the whole: rtrl (exact), snap1 or "
                   "eprop")
      ->check(CLI::IsMember(learning_rule_names()).description(""))
      ->type_name("RULE");
  command
      ->add_option("--parameter", o->parameters,
                   "With --learning, what is trained; may be repeated. Else what the net's init net makes, or all that "
                   "comes from outside but states and sequences of networks")
      ->allow_extra_args(false)
      ->type_name("BLOB");
  command->add_option("-o,--output", o->output, "Write to this file instead of standard output")->type_name("FILE");
  command->add_flag("--binary", o->binary, "Write the binary form");
  add_strict_option(*command, o->strict);
  command->callback([o] { expand(*o); });
}

}  // namespace stepnet::tools
