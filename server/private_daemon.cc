#include "server/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "server/exit_codes.h"

namespace datasetd {
namespace {

constexpr char kLock[] = "/datasetd.lock";
constexpr char kLog[] = "/datasetd.log";
constexpr char kSocket[] = "/datasetd.sock";
// What a daemon leaves beside its lock. Nothing else is ever removed.
constexpr const char* kFiles[] = {
    kSocket, "/attach.sock", "/datasetd.sock.lock", kLog, "/datasetd.log.1"};
constexpr int kPollMilliseconds = 10;
constexpr size_t kLogTailBytes = 2000;

// Of the daemon that this process is. Never freed: any thread may end it.
const std::string* own_directory = nullptr;

// Returns why the directory is not this user's alone; empty if it is.
std::string ProblemOf(const struct stat& status) {
  if (!S_ISDIR(status.st_mode)) return "it is no directory";
  if (status.st_uid != geteuid()) {
    return absl::StrCat("it belongs to uid ", status.st_uid, ", not to ",
                        geteuid());
  }
  if ((status.st_mode & 077) != 0) {
    return absl::StrFormat("others may enter it (mode %04o)",
                           status.st_mode & 07777);
  }
  return "";
}

absl::Status Unusable(absl::StatusCode code, const std::string& directory,
                      const std::string& problem) {
  return absl::Status(
      code, absl::StrCat(directory, " is for a private daemon, but ", problem,
                         ": remove it, or name another directory (of those "
                         "that datasetd chooses, set XDG_RUNTIME_DIR to a "
                         "directory of yours with mode 0700)"));
}

// True if the file of the descriptor is the one at the path.
bool IsAt(int fd, const std::string& path) {
  struct stat opened = {};
  struct stat present = {};
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &present) == 0 &&
         opened.st_dev == present.st_dev && opened.st_ino == present.st_ino;
}

int OpenLock(const std::string& directory, int flags) {
  // Does not follow a link, nor wait for the other end of a pipe.
  return open((directory + kLock).c_str(),
              O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0600);
}

// Returns the contents of a lock: the boot ID of the daemon's machine, and a
// newline once the daemon serves.
std::string ReadLock(int lock) {
  char text[64];
  const ssize_t size = pread(lock, text, sizeof(text), 0);
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(0, size)));
}

// Returns the pid of the daemon that serves the directory; nullopt if none
// does, 0 if it is outside of this PID namespace.
std::optional<pid_t> ServingDaemon(const std::string& directory) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  const std::string path = directory + kSocket;
  if (path.size() >= sizeof(name.sun_path)) return std::nullopt;
  std::memcpy(name.sun_path, path.data(), path.size());
  const FileDescriptor probe(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&name),
              sizeof(name)) != 0) {
    // That of protocol 2 and before listens there for streams.
    return errno == EPROTOTYPE ? std::optional<pid_t>(0) : std::nullopt;
  }
  if (getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return std::nullopt;
  }
  return peer.pid;
}

struct Election {
  FileDescriptor lock;  // if this process is to become the daemon
  pid_t daemon = 0;     // else the one that serves
};

absl::StatusOr<Election> Elect(const std::string& directory) {
  const pid_t parent = getppid();
  while (true) {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      return Unusable(
          absl::StatusCode::kFailedPrecondition, directory,
          absl::StrCat("it cannot be made: ", std::strerror(errno)));
    }
    // ENOENT: the daemon before has removed it meanwhile.
    struct stat status = {};
    if (lstat(directory.c_str(), &status) != 0 && errno == ENOENT) continue;
    const std::string problem = ProblemOf(status);
    if (!problem.empty()) {
      return Unusable(absl::StatusCode::kPermissionDenied, directory, problem);
    }
    FileDescriptor lock(OpenLock(directory, O_CREAT));
    if (!lock.has_value() && errno == ENOENT) continue;
    if (!lock.has_value()) {
      return Unusable(
          absl::StatusCode::kFailedPrecondition, directory,
          absl::StrCat("its lock cannot be opened: ", std::strerror(errno)));
    }
    while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        return Unusable(absl::StatusCode::kFailedPrecondition, directory,
                        absl::StrCat("flock: ", std::strerror(errno)));
      }
      // One whose starter is gone by then ends, though its socket is there.
      const auto pid = absl::EndsWith(ReadLock(lock.get()), "\n")
                           ? ServingDaemon(directory)
                           : std::nullopt;
      if (pid.has_value()) return Election{FileDescriptor(), *pid};
      if (getppid() != parent) {
        return absl::CancelledError("the process that started this has ended");
      }
      poll(nullptr, 0, kPollMilliseconds);
    }
    if (IsAt(lock.get(), directory + kLock)) return Election{std::move(lock)};
  }
}

// REQUIRES: this process holds the directory's lock.
void RemoveDirectory(const std::string& directory) {
  for (const char* const file : kFiles) unlink((directory + file).c_str());
  // From here on another daemon may make and lock a new file; then the
  // directory is not empty.
  unlink((directory + kLock).c_str());
  rmdir(directory.c_str());
}

// Locks are of one machine, and $TMPDIR may be of several.
std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Removes the directory of a daemon of this user and machine that has ended
// without doing so.
void RemoveIfAbandoned(const std::string& directory) {
  struct stat status = {};
  if (lstat(directory.c_str(), &status) != 0 || !ProblemOf(status).empty()) {
    return;
  }
  const FileDescriptor lock(OpenLock(directory, 0));
  if (!lock.has_value()) {
    // A starter was killed, or makes it again.
    if (errno == ENOENT) rmdir(directory.c_str());
    return;
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 ||
      !IsAt(lock.get(), directory + kLock)) {
    return;
  }
  const std::string contents = ReadLock(lock.get());
  const absl::string_view boot = absl::StripAsciiWhitespace(contents);
  if (boot.empty() || boot == BootId()) RemoveDirectory(directory);
}

void RemoveAbandonedBeside(const std::string& directory) {
  const std::filesystem::path path(directory);
  const std::string name = path.filename().string();
  const std::string prefix = name.substr(0, name.rfind('-') + 1);
  if (prefix.empty()) return;
  std::error_code error;
  std::filesystem::directory_iterator entry(path.parent_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string other = entry->path().filename().string();
    if (other != name && absl::StartsWith(other, prefix)) {
      RemoveIfAbandoned(entry->path().string());
    }
  }
}

// The log of a daemon, for it to write and for its starter to read.
struct LogFile {
  std::string path;
  FileDescriptor writer;
  FileDescriptor reader;
  off_t begin = 0;  // of what this daemon writes
};

absl::StatusOr<LogFile> OpenLog(const std::string& directory,
                                const std::string& path) {
  LogFile log;
  log.path = path.empty() ? directory + kLog : path;
  if (path.empty()) rename(log.path.c_str(), (log.path + ".1").c_str());
  // Does not wait for the reader of a pipe.
  const int flags = O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  log.writer =
      FileDescriptor(open(log.path.c_str(), O_WRONLY | O_CREAT | flags, 0600));
  struct stat status = {};
  if (!log.writer.has_value() || fstat(log.writer.get(), &status) != 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("the log ", log.path, " cannot be opened"));
  }
  fcntl(log.writer.get(), F_SETFL,
        fcntl(log.writer.get(), F_GETFL) & ~O_NONBLOCK);
  if (S_ISREG(status.st_mode)) {
    log.begin = status.st_size;
    log.reader = FileDescriptor(open(log.path.c_str(), O_RDONLY | flags));
  }
  return log;
}

std::string TailOf(const LogFile& log) {
  struct stat status = {};
  if (!log.reader.has_value() || fstat(log.reader.get(), &status) != 0) {
    return absl::StrCat("see ", log.path);
  }
  char text[kLogTailBytes];
  const ssize_t size =
      pread(log.reader.get(), text, sizeof(text),
            std::max<off_t>(log.begin, status.st_size - off_t{kLogTailBytes}));
  const absl::string_view tail = absl::StripAsciiWhitespace(
      absl::string_view(text, static_cast<size_t>(std::max<ssize_t>(0, size))));
  return tail.empty() ? "it logged nothing" : std::string(tail);
}

int FailStart(const absl::Status& status) {
  std::fprintf(stderr, "datasetd: %s\n", std::string(status.message()).c_str());
  return absl::IsPermissionDenied(status) ? kExitForbidden : kExitFailure;
}

int Succeed(pid_t daemon) {
  std::printf("%d\n", daemon);
  std::fflush(stdout);
  return EXIT_SUCCESS;
}

// Waits until the child serves, or has ended.
int AwaitDaemon(pid_t child, FileDescriptor announcement,
                const std::string& directory, const LogFile& log) {
  char byte = 0;
  ssize_t size = 0;
  do {
    size = read(announcement.get(), &byte, 1);
  } while (size < 0 && errno == EINTR);
  if (size == 1) return Succeed(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string tail = TailOf(log);
  RemoveIfAbandoned(directory);
  if (WIFSIGNALED(status)) {
    std::fprintf(stderr, "the daemon was killed by signal %d (%s): %s\n",
                 WTERMSIG(status), strsignal(WTERMSIG(status)), tail.c_str());
    return kExitFailure;
  }
  std::fprintf(stderr, "%s\n", tail.c_str());
  return WEXITSTATUS(status) == 0 ? kExitFailure : WEXITSTATUS(status);
}

}  // namespace

void PrivateDaemon::CloseInherited() {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  if (syscall(SYS_close_range, kFirst, UINT_MAX, 0) == 0) return;
  // Before Linux 5.9.
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  std::vector<int> open;
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    open.push_back(std::atoi(entry->path().filename().c_str()));
  }
  for (const int fd : open) {
    if (fd >= static_cast<int>(kFirst)) close(fd);
  }
}

std::optional<int> PrivateDaemon::Start(const std::string& directory,
                                        const std::string& log_path,
                                        std::optional<PrivateDaemon>* daemon) {
  // A parent may have ignored it; then no end of a child would be reported.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  auto election = Elect(directory);
  if (!election.ok()) return FailStart(election.status());
  if (!election->lock.has_value()) return Succeed(election->daemon);
  RemoveAbandonedBeside(directory);
  const auto log = OpenLog(directory, log_path);
  if (!log.ok()) {
    RemoveDirectory(directory);
    return FailStart(log.status());
  }
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) {
    return FailStart(absl::ErrnoToStatus(errno, "pipe"));
  }
  FileDescriptor reader(pipe[0]);
  FileDescriptor writer(pipe[1]);
  const pid_t child = fork();
  if (child < 0) return FailStart(absl::ErrnoToStatus(errno, "fork"));
  if (child > 0) {
    // The daemon alone holds the lock, and the end of the pipe.
    election->lock.Reset();
    writer.Reset();
    return AwaitDaemon(child, std::move(reader), directory, *log);
  }
  reader.Reset();
  setsid();
  umask(077);
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(null.get(), STDIN_FILENO);
  dup2(log->writer.get(), STDOUT_FILENO);
  dup2(log->writer.get(), STDERR_FILENO);
  // It is nobody's service.
  for (const char* const name : {"NOTIFY_SOCKET", "WATCHDOG_USEC",
                                 "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"}) {
    unsetenv(name);
  }
  const std::string boot = BootId();
  (void)!ftruncate(election->lock.get(), 0);
  (void)!pwrite(election->lock.get(), boot.data(), boot.size(), 0);
  own_directory = new std::string(directory);
  daemon->emplace(PrivateDaemon(std::move(election->lock), std::move(writer)));
  return std::nullopt;
}

bool PrivateDaemon::Announce() {
  const bool is_heard = write(starter_.get(), "R", 1) == 1;
  starter_.Reset();
  // No earlier: paths may be relative, also those of libraries.
  (void)!chdir("/");
  if (is_heard) {
    lseek(lock_.get(), 0, SEEK_END);
    (void)!write(lock_.get(), "\n", 1);
  }
  return is_heard;
}

void PrivateDaemon::RemoveOwn() {
  if (own_directory != nullptr) RemoveDirectory(*own_directory);
}

}  // namespace datasetd
