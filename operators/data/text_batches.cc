// CreateTextReader, ReadTextBatch: a text file as batches of tokens for training.
//
// The reader is a TextStreams object: B parts of the text read side by side, T timesteps at a time, so that each batch
// continues where the last one stopped; after the last batch it starts again. There is no derivative.

#include "core/io/text_stream.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_text_batches {
namespace {

struct ReaderArgs {
  std::string file, vocabulary;
  int64_t batch = 0, timesteps = 0, begin = 0, end = 0;
};

void create(const ReaderArgs& args, BlobCall& call) {
  const std::string text = read_text_file(net_file(call.workspace, args.file, PathStart::as_it_is));
  const auto size = static_cast<int64_t>(text.size());
  const int64_t end = args.end < 0 ? size : args.end;
  require(args.begin <= end && end <= size, "the range from {} to {} is not in the {} bytes of \"{}\"", args.begin, end,
          size, args.file);
  const std::string_view part = std::string_view(text).substr(args.begin, end - args.begin);
  const std::string what = fmt::format("\"{}\"", args.file);
  const Vocabulary vocabulary = args.vocabulary.empty() ? Vocabulary::of_text(part) : Vocabulary(args.vocabulary);
  if (call.out[0])
    call.out[0]->emplace<TextStreams>(vocabulary.encode(part, what, args.begin), args.batch, args.timesteps, what);
}

void read(const NoArgs&, BlobCall& call) {
  require(call.in[0] != nullptr, "the reader has an empty name");
  Tensor unused_input, unused_target;
  call.in[0]->get<TextStreams>().next(call.out[0] ? call.out[0]->tensor() : unused_input,
                                      call.out[1] ? call.out[1]->tensor() : unused_target);
}

// The text is the elements of a .npy file, behind the 128 bytes of its header.
constexpr const char* kExample = R"(
  op { type: 'SaveNpy' input: 'text' arg { name: 'path' s: '$FOLDER/text' } arg { name: 'absolute_path' i: 1 } }
  op { type: 'CreateTextReader' output: 'reader' arg { name: 'file' s: '$FOLDER/text' } arg { name: 'batch' i: 2 }
       arg { name: 'timesteps' i: 2 } arg { name: 'begin' i: 128 } }
  op { type: 'ReadTextBatch' input: 'reader' output: 'X' output: 'target' }
  op { type: 'ReadTextBatch' input: 'reader' output: 'X' output: 'target' })";

constexpr const char* kSmallestExample = R"(
  op { type: 'SaveNpy' input: 'text' arg { name: 'path' s: '$FOLDER/text' } arg { name: 'absolute_path' i: 1 } }
  op { type: 'CreateTextReader' output: 'reader' arg { name: 'file' s: '$FOLDER/text' } arg { name: 'batch' i: 1 }
       arg { name: 'timesteps' i: 1 } arg { name: 'begin' i: 129 } arg { name: 'end' i: 131 }
       arg { name: 'vocabulary' s: 'cba' } }
  op { type: 'ReadTextBatch' input: 'reader' output: 'X' output: 'target' })";

REGISTER(create_text_reader) {
  return op<ReaderArgs>("CreateTextReader")
      .own()
      .doc("Opens a text file as B streams of tokens that are read side by side. Running it again starts anew.")
      .required_arg("file", &ReaderArgs::file, "path of the text")
      .required_arg("batch", &ReaderArgs::batch, "B, the number of streams", at_least(1))
      .required_arg("timesteps", &ReaderArgs::timesteps, "T, the length of a batch", at_least(1))
      .arg("begin", &ReaderArgs::begin, int64_t{0}, "the first byte of the part that is read", at_least(0))
      .arg("end", &ReaderArgs::end, int64_t{-1}, "the byte behind that part; -1: the end of the file", at_least(-1))
      .arg("vocabulary", &ReaderArgs::vocabulary, std::string(),
           "the known bytes in the order of their tokens; empty: those of the part, in byte order")
      .output("READER", "the reader")
      .object()
      .stop_gradient()
      .example_net(kExample, {"text=uint8,10:97,98,97,99,98,98,97,10,99,97"})
      .example_net(kSmallestExample, {"text=uint8,4:97,98,97,99"})
      .blobs(create);
}

REGISTER(read_text_batch) {
  return op("ReadTextBatch")
      .own()
      .doc("The next batch of a text reader, from the start again after the last one.")
      .input("READER", "of CreateTextReader")
      .object()
      .output("INPUT", "[T, B], tokens")
      .types({DType::int32})
      .output("TARGET", "[T * B], the tokens that follow those of INPUT")
      .types({DType::int32})
      .side_effect()
      .stop_gradient()
      .example_net(kExample, {"text=uint8,9:97,98,97,99,98,98,97,99,97"})
      .blobs(read);
}

}  // namespace
}  // namespace stepnet::cpu_text_batches
