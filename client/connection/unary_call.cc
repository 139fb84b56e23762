#include "client/connection/unary_call.h"

#include <google/protobuf/descriptor.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace datasetd::client {
namespace {

constexpr char kBrokenOff[] = "waiting for the daemon's answer was broken off";

// Returns the path of the method that takes messages of this type.
std::string PathOf(const google::protobuf::Descriptor* type) {
  const google::protobuf::FileDescriptor* const file = type->file();
  for (int i = 0; i < file->service_count(); ++i) {
    const google::protobuf::ServiceDescriptor* const service = file->service(i);
    for (int j = 0; j < service->method_count(); ++j) {
      if (service->method(j)->input_type() == type) {
        return absl::StrCat("/", service->full_name(), "/",
                            service->method(j)->name());
      }
    }
  }
  std::abort();  // not a request
}

template <typename Attempt>
grpc::Status Call(Session* session, const google::protobuf::Message& request,
                  const CallLimits& limits, const Attempt& attempt) {
  const std::string path = PathOf(request.GetDescriptor());
  grpc::ClientContext context;
  session->Prepare(&context, limits.timeout);
  CallQueue queue;
  bool is_cancelled = false;
  const grpc::Status status = attempt(&context, path, &queue, [&] {
    if (is_cancelled || limits.MayGoOn()) return;
    is_cancelled = true;
    context.TryCancel();
  });
  if (is_cancelled && !status.ok()) {
    return {grpc::StatusCode::CANCELLED, kBrokenOff};
  }
  return status;
}

}  // namespace

CallQueue::~CallQueue() {
  queue_.Shutdown();
  void* tag;
  bool is_ok;
  while (queue_.Next(&tag, &is_ok)) {
  }
}

bool CallQueue::Await(absl::FunctionRef<void()> on_wait) {
  const auto interval = absl::ToChronoMilliseconds(kWaitInterval);
  void* tag;
  bool is_ok = false;
  while (queue_.AsyncNext(&tag, &is_ok,
                          std::chrono::system_clock::now() + interval) ==
         grpc::CompletionQueue::TIMEOUT) {
    on_wait();
  }
  return is_ok;
}

grpc::Status UnaryCall(Session* session,
                       const google::protobuf::Message& request,
                       const CallLimits& limits,
                       google::protobuf::Message* response) {
  return Call(session, request, limits,
              [&](grpc::ClientContext* context, const std::string& path,
                  CallQueue* queue, absl::FunctionRef<void()> on_wait) {
                grpc::Status status;
                const auto call = session->any_method()->PrepareUnaryCall(
                    context, path, request, queue->get());
                call->StartCall();
                call->Finish(response, &status, queue);
                queue->Await(on_wait);
                return status;
              });
}

grpc::Status StreamCall(Session* session,
                        const google::protobuf::Message& request,
                        const CallLimits& limits,
                        google::protobuf::Message* response,
                        absl::FunctionRef<void()> on_response) {
  return Call(session, request, limits,
              [&](grpc::ClientContext* context, const std::string& path,
                  CallQueue* queue, absl::FunctionRef<void()> on_wait) {
                const auto call = session->any_method()->PrepareCall(
                    context, path, queue->get());
                call->StartCall(queue);
                bool is_open = queue->Await(on_wait);
                if (is_open) {
                  call->WriteLast(request, grpc::WriteOptions(), queue);
                  is_open = queue->Await(on_wait);
                }
                while (is_open) {
                  call->Read(response, queue);
                  is_open = queue->Await(on_wait);
                  if (is_open) on_response();
                }
                grpc::Status status;
                call->Finish(&status, queue);
                queue->Await(on_wait);
                return status;
              });
}

}  // namespace datasetd::client
