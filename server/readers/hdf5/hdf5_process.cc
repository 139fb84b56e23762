#include "server/readers/hdf5/hdf5_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

using hdf5::Kind;

constexpr int kTimeoutMs = 60'000;
constexpr char kWorkerVariable[] = "DATASETD_HDF5_WORKER";

std::string WorkerPath() {
  const char* const named = getenv(kWorkerVariable);
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path() / "datasetd-hdf5";
}

// Starts the worker with its end of the socket as standard input and no other
// descriptor of the daemon.
absl::StatusOr<pid_t> Spawn(const std::string& path, int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  char* const arguments[] = {const_cast<char*>(path.c_str()), nullptr};
  char* const environment[] = {nullptr};
  pid_t pid = -1;
  const int code = posix_spawn(&pid, path.c_str(), &actions, &attributes,
                               arguments, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (code == 0) return pid;
  return absl::FailedPreconditionError(
      absl::StrCat("format hdf5 needs the program ", path,
                   ", and it cannot be started (", strerror(code),
                   "); build //server:datasetd-hdf5 and put it there, or "
                   "save the arrays as .npy"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hdf5Process>> Hdf5Process::Start(
    std::unique_ptr<RandomAccessFile> file) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  DATASETD_ASSIGN_OR_RETURN(const pid_t pid, Spawn(WorkerPath(), theirs.get()));
  return std::unique_ptr<Hdf5Process>(
      new Hdf5Process(std::move(file), std::move(ours), pid));
}

Hdf5Process::~Hdf5Process() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<std::string> Hdf5Process::Open(const std::string& fields) {
  const auto size = static_cast<uint64_t>(info().size_bytes);
  std::vector<uint8_t> payload(sizeof(size) + fields.size());
  memcpy(payload.data(), &size, sizeof(size));
  std::copy(fields.begin(), fields.end(), payload.begin() + sizeof(size));
  absl::Status sent = hdf5::Send(socket_.get(), Kind::kOpen, payload);
  if (!sent.ok()) return Failed(sent);
  DATASETD_ASSIGN_OR_RETURN(const uint64_t text_bytes,
                            AwaitAnswer(Kind::kInfo));
  if (text_bytes > hdf5::kMaxTextBytes) {
    return Failed(absl::InternalError("a description of the wrong size"));
  }
  auto text = hdf5::ReceiveText(socket_.get(), kTimeoutMs, text_bytes);
  if (!text.ok()) return Failed(text.status());
  return text;
}

absl::Status Hdf5Process::ReadRows(uint64_t field, uint64_t first,
                                   uint64_t count, absl::Span<uint8_t> buffer) {
  const uint64_t request[] = {field, first, count};
  absl::Status status =
      hdf5::Send(socket_.get(), Kind::kRows, hdf5::BytesOf(request));
  if (!status.ok()) return Failed(status);
  DATASETD_ASSIGN_OR_RETURN(const uint64_t size, AwaitAnswer(Kind::kData));
  if (size != buffer.size()) {
    return Failed(absl::InternalError("rows of the wrong size"));
  }
  status = hdf5::Receive(socket_.get(), kTimeoutMs, buffer);
  return status.ok() ? status : Failed(status);
}

absl::StatusOr<uint64_t> Hdf5Process::AwaitAnswer(Kind kind) {
  while (true) {
    const auto frame = hdf5::ReceiveFrame(socket_.get(), kTimeoutMs);
    if (!frame.ok()) return Failed(frame.status());
    // The library may ignore a failed read, so the disk's error takes
    // precedence.
    if (frame->kind == kind && !disk_error_.ok()) return Failed(disk_error_);
    if (frame->kind == kind) return frame->size_bytes;
    if (frame->kind == Kind::kNeed && frame->size_bytes == 16) {
      const absl::Status served = ServeNeed();
      if (!served.ok()) return Failed(served);
      continue;
    }
    uint64_t code = 0;
    if (frame->kind != Kind::kError || frame->size_bytes < sizeof(code) ||
        frame->size_bytes > hdf5::kMaxTextBytes) {
      return Failed(absl::InternalError("an answer that is none"));
    }
    const auto text =
        hdf5::ReceiveText(socket_.get(), kTimeoutMs, frame->size_bytes);
    if (!text.ok()) return Failed(text.status());
    if (!disk_error_.ok()) return disk_error_;
    memcpy(&code, text->data(), sizeof(code));
    return absl::Status(
        code == static_cast<uint64_t>(absl::StatusCode::kInvalidArgument)
            ? absl::StatusCode::kInvalidArgument
            : absl::StatusCode::kDataLoss,
        absl::StrCat(info().path, ": ", text->substr(sizeof(code))));
  }
}

absl::Status Hdf5Process::ServeNeed() {
  uint64_t need[2] = {};  // offset, size
  DATASETD_RETURN_IF_ERROR(hdf5::Receive(
      socket_.get(), kTimeoutMs,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(need), sizeof(need))));
  const auto size = static_cast<uint64_t>(info().size_bytes);
  if (need[1] > hdf5::kMaxNeedBytes || need[0] > size ||
      need[1] > size - need[0]) {
    return hdf5::Send(socket_.get(), Kind::kNoBytes, {});
  }
  std::vector<uint8_t> bytes(need[1]);
  const absl::Status read =
      ReadExactly(*file_, static_cast<int64_t>(need[0]), absl::MakeSpan(bytes));
  if (read.ok()) return hdf5::Send(socket_.get(), Kind::kBytes, bytes);
  disk_error_ = read;
  return hdf5::Send(socket_.get(), Kind::kNoBytes, {});
}

// Kills the worker and returns the error, with the way it ended.
absl::Status Hdf5Process::Failed(const absl::Status& why) {
  if (!disk_error_.ok()) return disk_error_;
  int state = 0;
  std::string how(why.message());
  if (pid_ >= 0) {
    // The socket closes only after the cause of the exit is set.
    const bool is_gone = absl::IsUnavailable(why);
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &state, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (is_gone && WIFSIGNALED(state)) {
      how = absl::StrCat("it was ended by signal ", WTERMSIG(state));
    } else if (is_gone && WIFEXITED(state)) {
      how = absl::StrCat("it ended with ", WEXITSTATUS(state));
    }
  }
  return absl::DataLossError(
      absl::StrCat(info().path,
                   ": the HDF5 library gave up on the file, which "
                   "may be damaged: ",
                   how));
}

}  // namespace datasetd
