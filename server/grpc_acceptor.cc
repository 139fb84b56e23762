#include "server/grpc_acceptor.h"

#include <grpcpp/server_posix.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"

namespace datasetd {
namespace {

// Without descriptors or memory: until the next try.
constexpr int kRetryMilliseconds = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcAcceptor>> GrpcAcceptor::Start(
    FileDescriptor listener, grpc::Server* server) {
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.has_value()) {
    return absl::ErrnoToStatus(errno, "gRPC acceptor: eventfd");
  }
  std::unique_ptr<GrpcAcceptor> acceptor(
      new GrpcAcceptor(std::move(listener), std::move(stop), server));
  acceptor->thread_ = std::thread([a = acceptor.get()] { a->Run(); });
  return acceptor;
}

GrpcAcceptor::GrpcAcceptor(FileDescriptor listener, FileDescriptor stop,
                           grpc::Server* server)
    : listener_(std::move(listener)), stop_(std::move(stop)), server_(server) {}

GrpcAcceptor::~GrpcAcceptor() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void GrpcAcceptor::Run() {
  pthread_setname_np(pthread_self(), "accept");
  while (true) {
    pollfd waits[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    poll(waits, 2, -1);
    if (waits[0].revents != 0) return;
    const int fd = accept4(listener_.get(), nullptr, nullptr,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      grpc::AddInsecureChannelFromFd(server_, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      poll(waits, 1, kRetryMilliseconds);
    }
  }
}

}  // namespace datasetd
