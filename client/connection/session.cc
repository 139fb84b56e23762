#include "client/connection/session.h"

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "client/connection/error_detail.h"
#include "client/connection/guarded_fd.h"

namespace datasetd::client {
namespace {

// A deadline after a longer one may be beyond what a clock can tell.
constexpr absl::Duration kLongestTimeout = absl::Hours(24 * 365 * 10);
// gRPC's threads end within milliseconds.
constexpr absl::Duration kMaxGrpcEndTime = absl::Seconds(5);

// Sessions of this process whose channel exists.
std::atomic<int> g_num_channels{0};
// True if gRPC ends with the last of them. False if the program uses it, too.
std::atomic<bool> g_is_grpc_ours{false};

// True for codes that a call may return when its daemon ends.
bool MayBeTheDaemonsEnd(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    // A server that shuts down cancels the remaining calls.
    case absl::StatusCode::kCancelled:
    // gRPC's codes for a connection that breaks during a call.
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    // The daemon ended the session.
    case absl::StatusCode::kUnauthenticated:
      return true;
    default:
      return false;
  }
}

// A child of fork() has gRPC's state without its threads, and shares its epoll
// instance with the parent: either would get the other's events, with pointers
// that are not its own.
absl::Status CheckGrpcIsOwn() {
  // The process in which gRPC was started; 0 before.
  static std::atomic<uint64_t> owner{0};
  const uint64_t self = ForkGeneration();
  uint64_t expected = 0;
  if (!grpc_is_initialized()) {
    owner.store(self);
  } else if (!owner.compare_exchange_strong(expected, self) &&
             expected != self) {
    return WithDetail(
        absl::FailedPreconditionError(
            "this process was forked from one that is connected to a daemon, "
            "and gRPC does not survive that: fork before connecting, close the "
            "parent's clients first, or start the process anew "
            "(multiprocessing's \"spawn\")"),
        ErrorDetail::kForked);
  }
  return absl::OkStatus();
}

// Waits for gRPC's shutdown after the end of the last channel. A call that one
// of gRPC's threads still refers to keeps the channel, and gRPC then shuts down
// on a thread of its own: a child of a fork() at that moment would inherit its
// state.
void AwaitGrpcEnd() {
  const absl::Duration deadline = MonotonicNow() + kMaxGrpcEndTime;
  while (g_num_channels == 0 && g_is_grpc_ours && grpc_is_initialized()) {
    if (MonotonicNow() > deadline) g_is_grpc_ours = false;
    absl::SleepFor(absl::Microseconds(100));
  }
}

// False where the system refuses threads (ulimit -u, a limit of pids).
bool CanMakeThread() {
  pthread_t thread;
  const auto run = [](void*) -> void* { return nullptr; };
  if (pthread_create(&thread, nullptr, run, nullptr) != 0) return false;
  pthread_join(thread, nullptr);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(
    const Address& address, const CallLimits& limits) {
  DATASETD_RETURN_IF_ERROR(CheckGrpcIsOwn());
  absl::StatusOr<AttachSocket> socket =
      AttachSocket::Connect(address.socket_path, limits);
  if (DetailOf(socket.status()) == ErrorDetail::kDaemonGone) {
    return WithDetail(
        absl::UnavailableError(absl::StrCat(
            "no daemon listens at ", address.socket_path, " (",
            socket.status().message(),
            "): start datasetd, or name its socket by the address argument or "
            "$DATASETD_ADDRESS")),
        ErrorDetail::kDaemonGone);
  }
  DATASETD_RETURN_IF_ERROR(socket.status());
  DATASETD_RETURN_IF_ERROR(
      socket->Send(attach::Hello{MakeHeader(attach::MessageType::kHello),
                                 static_cast<int32_t>(getpid())}));
  DATASETD_ASSIGN_OR_RETURN(AttachSocket::Packet packet,
                            socket->Receive(limits));
  if (packet.type() != attach::MessageType::kWelcome ||
      packet.num_descriptors != 1) {
    return absl::InternalError(absl::StrCat(
        "socket ", address.socket_path, " answered HELLO with message ",
        static_cast<uint32_t>(packet.type()), " and ", packet.num_descriptors,
        " descriptors; WELCOME and one are due"));
  }
  const auto welcome = packet.As<attach::Welcome>();
  return std::unique_ptr<Session>(
      new Session(address, *std::move(socket),
                  std::string(reinterpret_cast<const char*>(welcome.token),
                              attach::kTokenBytes),
                  std::move(packet.descriptors[0])));
}

Session::Session(Address address, AttachSocket socket, std::string token,
                 GuardedFd requests)
    : address_(std::move(address)),
      token_(std::move(token)),
      fork_generation_(ForkGeneration()),
      socket_(std::move(socket)) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  const int fd = requests.Release();
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (g_num_channels++ == 0) g_is_grpc_ours = !grpc_is_initialized();
  stubs_ = std::make_unique<Stubs>(grpc::CreateCustomInsecureChannelFromFd(
      address_.socket_path, fd, arguments));
  was_refused_threads_ = !CanMakeThread();
}

Session::~Session() {
  // The last channel's end waits for all of gRPC's threads. A child of fork()
  // lacks them, and those that the system refused never come: the stubs are
  // leaked there.
  if (!CheckProcess().ok() || was_refused_threads_ || !CanMakeThread()) {
    (void)stubs_.release();
    return;
  }
  stubs_.reset();
  if (--g_num_channels == 0) AwaitGrpcEnd();
}

absl::Status Session::CheckProcess() const {
  if (fork_generation_ == ForkGeneration()) return absl::OkStatus();
  return ForkedError("this datasetd client");
}

void Session::Prepare(grpc::ClientContext* context, absl::Duration timeout) {
  if (timeout < kLongestTimeout) {
    context->set_deadline(std::chrono::system_clock::now() +
                          absl::ToChronoNanoseconds(timeout));
  }
}

absl::Status Session::ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status said(static_cast<absl::StatusCode>(status.error_code()),
                          PrintableUtf8(status.error_message()));
  // gRPC's own text, which names nothing.
  if (absl::IsDeadlineExceeded(said) && said.message() == "Deadline Exceeded") {
    return absl::DeadlineExceededError(
        absl::StrCat("the daemon at ", address_.socket_path,
                     " did not answer in time: it is stopped or hangs, or this "
                     "user has as many calls as its user_limits.max_calls "
                     "allows"));
  }
  if (!MayBeTheDaemonsEnd(said.code())) return said;
  const bool is_unavailable = absl::IsUnavailable(said);
  std::lock_guard lock(mutex_);
  if (ended_.ok()) {
    // The daemon closes both sockets together, so its last message has arrived
    // or is about to.
    const absl::Status last =
        socket_
            .Receive({.timeout = is_unavailable ? absl::Milliseconds(500)
                                                : absl::ZeroDuration()})
            .status();
    if (last.ok() || absl::IsDeadlineExceeded(last)) {
      if (!is_unavailable) return said;
      return WithDetail(absl::UnavailableError(
                            absl::StrCat("the daemon at ", address_.socket_path,
                                         " does not answer: ", said.message())),
                        ErrorDetail::kDaemonGone);
    }
    ended_ = last;
  }
  return ended_;
}

void Session::NoteReplicas(const v1::Dataset& dataset) {
  const bool has_replicas = dataset.placements_size() > 1 &&
                            !absl::StartsWith(dataset.device(), "shard");
  const std::lock_guard lock(mutex_);
  if (has_replicas) {
    replicated_.insert(dataset.name());
  } else {
    replicated_.erase(dataset.name());
  }
}

bool Session::HasReplicas(const std::string& dataset) {
  const std::lock_guard lock(mutex_);
  return replicated_.count(dataset) > 0;
}

}  // namespace datasetd::client
