#include "client/ctl/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace datasetd::ctl {
namespace {

std::vector<std::string> MakeEnvironment(
    const std::map<std::string, std::string>& added) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.count(text.substr(0, text.find('='))) == 0) {
      environment.push_back(text);
    }
  }
  for (const auto& [name, value] : added) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In a child of fork(), where nothing may be allocated: becomes the program.
// Writes the error to `failure` if it cannot.
[[noreturn]] void Become(const ChildProcess::Options& options, pid_t parent,
                         char* const* arguments, char* const* environment,
                         int failure) {
  if (options.is_killed_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) _exit(EXIT_FAILURE);
  }
  if (options.output_fd >= 0) {
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(options.output_fd, STDOUT_FILENO);
    dup2(options.output_fd, STDERR_FILENO);
  }
  if (options.output_to_stderr) dup2(STDERR_FILENO, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  (void)!write(failure, &error, sizeof(error));
  _exit(EXIT_FAILURE);
}

}  // namespace

absl::StatusOr<pid_t> ChildProcess::Start(const Options& options) {
  std::vector<std::string> words = options.arguments;
  std::vector<std::string> variables = MakeEnvironment(options.environment);
  const std::vector<char*> arguments = Pointers(&words);
  const std::vector<char*> environment = Pointers(&variables);
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become(options, parent, arguments.data(), environment.data(), failure[1]);
  }
  int error = pid < 0 ? errno : 0;
  close(failure[1]);
  if (pid > 0 && read(failure[0], &error, sizeof(error)) != 0) {
    waitpid(pid, nullptr, 0);
  }
  close(failure[0]);
  if (error == 0) return pid;
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat("cannot start ", options.arguments[0], ": ",
                                   strerror(error)));
}

std::string DescribeWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", signal, " (",
                        strsignal(signal), ")");
  }
  return absl::StrCat("ended with code ", WEXITSTATUS(wait_status));
}

int ExitCodeOfWaitStatus(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

}  // namespace datasetd::ctl
