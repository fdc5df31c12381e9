#include "core/operator/nested_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "stepnet/error.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {
namespace {

constexpr int kMaxNesting = 100;

// Keeps the first error; lines and columns from 1.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text.empty()) text = fmt::format("line {} column {}: {}", line + 1, column + 1, message);
  }
  std::string text;
};

}  // namespace

NetDef parse_nested_net(const std::string& text, const std::string& argument) {
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxNesting);
  NetDef net;
  if (!parser.ParseFromString(text, &net)) fail("the text in argument \"{}\" is not a net: {}", argument, error.text);
  return net;
}

}  // namespace stepnet
