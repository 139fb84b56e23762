// Makes RPCs that no client would make: any method, any request.
//
// Usage: rpc_probe FD, a session's gRPC connection. Each line of stdin is
// "METHOD JSON": the method as gRPC names it (/package.Service/Method), the
// request. Each answer is one line of JSON: {"code",
// "message", "responses"}; a response of a method whose messages this program
// does not know is a string of hex.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "datasetd/v1/feed.pb.h"
#include "datasetd/v1/server.pb.h"

namespace {

namespace pb = google::protobuf;

constexpr std::chrono::seconds kDeadline(60);

std::unique_ptr<pb::Message> NewMessage(const pb::Descriptor* type) {
  return std::unique_ptr<pb::Message>(
      pb::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

nlohmann::json Decode(const std::string& bytes,
                      const pb::MethodDescriptor* method) {
  if (method == nullptr) return absl::BytesToHexString(bytes);
  const std::unique_ptr<pb::Message> message =
      NewMessage(method->output_type());
  message->ParseFromString(bytes);
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  (void)pb::util::MessageToJsonString(*message, &json, options);
  return nlohmann::json::parse(json);
}

nlohmann::json Call(grpc::GenericStub& stub, const std::string& path,
                    const std::string& request) {
  const std::string name = absl::StrReplaceAll(path.substr(1), {{"/", "."}});
  const pb::MethodDescriptor* const method =
      pb::DescriptorPool::generated_pool()->FindMethodByName(name);
  std::string bytes;
  if (method != nullptr) {
    const std::unique_ptr<pb::Message> message =
        NewMessage(method->input_type());
    const auto parsed = pb::util::JsonStringToMessage(request, message.get());
    if (!parsed.ok()) {
      return {{"code", -1}, {"message", parsed.ToString()}};
    }
    bytes = message->SerializeAsString();
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  grpc::CompletionQueue queue;
  void* tag;
  bool is_ok = false;
  const auto await = [&] { return queue.Next(&tag, &is_ok) && is_ok; };
  const auto stream = stub.PrepareCall(&context, path, &queue);
  stream->StartCall(nullptr);
  await();
  const grpc::Slice slice(bytes);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  await();
  nlohmann::json responses = nlohmann::json::array();
  while (true) {
    grpc::ByteBuffer response;
    stream->Read(&response, nullptr);
    if (!await()) break;
    responses.push_back(Decode(Text(response), method));
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  await();
  queue.Shutdown();
  while (queue.Next(&tag, &is_ok)) {
  }
  return {{"code", static_cast<int>(status.error_code())},
          {"message", status.error_message()},
          {"responses", responses}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: rpc_probe FD\n";
    return 2;
  }
  // Whoever names a message here keeps its file linked.
  (void)datasetd::v1::OpenFeedRequest::descriptor();
  (void)datasetd::v1::GetStatusRequest::descriptor();
  grpc::GenericStub stub(
      grpc::CreateInsecureChannelFromFd("datasetd", std::atoi(argv[1])));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string method;
    std::string request;
    words >> method;
    std::getline(words, request);
    std::cout << Call(stub, method, request)
                     .dump(-1, ' ', false,
                           nlohmann::json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}
