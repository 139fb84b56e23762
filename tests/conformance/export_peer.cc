#include "tests/conformance/export_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

extern char** environ;

namespace datasetd::testing {
namespace {

constexpr char kPeerFlag[] = "--export_peer_socket=";
constexpr int kSocketInPeer = 3;
constexpr int kTimeoutSeconds = 60;

enum class Command : uint8_t { kImport, kRead, kWrite, kTruncate, kExtend };

// One datagram either way; an answer has `error` and `bytes` only.
struct Message {
  Command command = Command::kImport;
  ExportDescription description;
  size_t offset_bytes = 0;
  size_t size_bytes = 0;
  int error = 0;  // an errno; -1 with a text in `bytes`
  uint8_t bytes[ExportPeer::kMaxBytes] = {};
};

absl::Status Errno(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", strerror(errno)));
}

absl::Status Send(int socket, const Message& message, int fd = -1) {
  iovec data = {const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof(message))) {
    return Errno("sendmsg");
  }
  return absl::OkStatus();
}

// NOT_FOUND: the other end is closed.
absl::Status Receive(int socket, Message* message, FileDescriptor* file) {
  iovec data = {message, sizeof(*message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (size == 0) return absl::NotFoundError("the other process is gone");
  if (size != static_cast<ssize_t>(sizeof(*message))) return Errno("recvmsg");
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(int));
    file->Reset(fd);
  }
  return absl::OkStatus();
}

absl::Status AnswerStatus(const Message& answer) {
  if (answer.error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "in the other process: ", reinterpret_cast<const char*>(answer.bytes)));
}

absl::StatusOr<Message> Ask(int socket, const Message& question, int fd = -1) {
  DATASETD_RETURN_IF_ERROR(Send(socket, question, fd));
  Message answer;
  FileDescriptor ignored;
  DATASETD_RETURN_IF_ERROR(Receive(socket, &answer, &ignored));
  return answer;
}

Message Refusal(const absl::Status& status) {
  Message answer;
  answer.error = -1;
  const std::string text = status.ToString();
  std::memcpy(answer.bytes, text.data(),
              std::min(text.size(), ExportPeer::kMaxBytes - 1));
  return answer;
}

class Peer {
 public:
  explicit Peer(const Importer& importer) : importer_(importer) {}

  Message Obey(const Message& question, FileDescriptor file) {
    if (question.command == Command::kImport) {
      // Kept to be tried on, as a hostile importer would.
      if (file.has_value()) file_.Reset(fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
      auto memory = importer_(question.description, std::move(file));
      if (!memory.ok()) return Refusal(memory.status());
      memory_ = *std::move(memory);
      return {};
    }
    if (memory_ == nullptr) {
      return Refusal(absl::FailedPreconditionError("nothing is imported"));
    }
    Message answer;
    absl::Status status;
    switch (question.command) {
      case Command::kRead:
        status = memory_->Read(question.offset_bytes,
                               {answer.bytes, question.size_bytes});
        break;
      case Command::kWrite:
        status = memory_->Write(question.offset_bytes,
                                {question.bytes, question.size_bytes});
        break;
      case Command::kTruncate:
        if (ftruncate(file_.get(), question.size_bytes) != 0) {
          answer.error = errno;
        }
        break;
      case Command::kExtend:
        if (fallocate(file_.get(), 0, 0, question.size_bytes) != 0) {
          answer.error = errno;
        }
        break;
      case Command::kImport:
        break;
    }
    return status.ok() ? answer : Refusal(status);
  }

 private:
  const Importer importer_;
  FileDescriptor file_;
  std::unique_ptr<ImportedMemory> memory_;
};

}  // namespace

std::optional<int> RunExportPeerIfAsked(int argc, char** argv,
                                        const Importer& importer) {
  if (argc != 2 ||
      std::strncmp(argv[1], kPeerFlag, sizeof(kPeerFlag) - 1) != 0) {
    return std::nullopt;
  }
  const FileDescriptor socket(atoi(argv[1] + sizeof(kPeerFlag) - 1));
  Peer peer(importer);
  while (true) {
    Message question;
    FileDescriptor file;
    const absl::Status status = Receive(socket.get(), &question, &file);
    if (absl::IsNotFound(status)) return EXIT_SUCCESS;
    if (!status.ok()) return EXIT_FAILURE;
    if (!Send(socket.get(), peer.Obey(question, std::move(file))).ok()) {
      return EXIT_FAILURE;
    }
  }
}

absl::StatusOr<std::unique_ptr<ExportPeer>> ExportPeer::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Errno("socketpair");
  }
  FileDescriptor ours(ends[0]);
  // Not at kSocketInPeer already: dup2 would leave it CLOEXEC.
  const FileDescriptor theirs(fcntl(ends[1], F_DUPFD_CLOEXEC, 10));
  close(ends[1]);
  if (!theirs.has_value()) return Errno("fcntl(F_DUPFD_CLOEXEC)");
  const timeval timeout = {.tv_sec = kTimeoutSeconds};
  if (setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout,
                 sizeof(timeout)) != 0) {
    return Errno("setsockopt(SO_RCVTIMEO)");
  }

  std::string flag = absl::StrCat(kPeerFlag, kSocketInPeer);
  std::string name = "export_peer";
  char* arguments[] = {name.data(), flag.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kSocketInPeer);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr,
                                arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("posix_spawn: ", strerror(error)));
  }
  return std::unique_ptr<ExportPeer>(new ExportPeer(pid, std::move(ours)));
}

ExportPeer::ExportPeer(pid_t pid, FileDescriptor socket)
    : pid_(pid), socket_(std::move(socket)) {}

ExportPeer::~ExportPeer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::Status ExportPeer::Import(const ExportedMemory& memory) {
  Message question;
  question.command = Command::kImport;
  question.description.kind = memory.export_kind();
  question.description.size_bytes = memory.size_bytes();
  std::copy(memory.ipc_handle().begin(), memory.ipc_handle().end(),
            question.description.ipc_handle);
  DATASETD_ASSIGN_OR_RETURN(
      const Message answer,
      Ask(socket_.get(), question, memory.file_descriptor()));
  return AnswerStatus(answer);
}

absl::StatusOr<std::vector<uint8_t>> ExportPeer::Read(size_t offset_bytes,
                                                      size_t size_bytes) {
  Message question;
  question.command = Command::kRead;
  question.offset_bytes = offset_bytes;
  question.size_bytes = std::min(size_bytes, kMaxBytes);
  DATASETD_ASSIGN_OR_RETURN(const Message answer, Ask(socket_.get(), question));
  DATASETD_RETURN_IF_ERROR(AnswerStatus(answer));
  return std::vector<uint8_t>(answer.bytes, answer.bytes + question.size_bytes);
}

absl::Status ExportPeer::Write(size_t offset_bytes,
                               absl::Span<const uint8_t> bytes) {
  Message question;
  question.command = Command::kWrite;
  question.offset_bytes = offset_bytes;
  question.size_bytes = std::min(bytes.size(), kMaxBytes);
  std::copy_n(bytes.begin(), question.size_bytes, question.bytes);
  DATASETD_ASSIGN_OR_RETURN(const Message answer, Ask(socket_.get(), question));
  return AnswerStatus(answer);
}

absl::StatusOr<int> ExportPeer::Truncate(size_t size_bytes) {
  Message question;
  question.command = Command::kTruncate;
  question.size_bytes = size_bytes;
  DATASETD_ASSIGN_OR_RETURN(const Message answer, Ask(socket_.get(), question));
  return answer.error;
}

absl::StatusOr<int> ExportPeer::Extend(size_t size_bytes) {
  Message question;
  question.command = Command::kExtend;
  question.size_bytes = size_bytes;
  DATASETD_ASSIGN_OR_RETURN(const Message answer, Ask(socket_.get(), question));
  return answer.error;
}

}  // namespace datasetd::testing
