#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/connection/guarded_fd.h"
#include "client/ctl/child_process.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/private_daemon.h"
#include "client/ctl/python_package.h"

namespace datasetd::ctl {
namespace {

// As in shells.
constexpr int kExitCannotRun = 126;
constexpr int kExitNoCommand = 127;

constexpr int kForwardedSignals[] = {SIGINT,  SIGTERM, SIGHUP,
                                     SIGQUIT, SIGUSR1, SIGUSR2};

bool IsIgnored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

class RunCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "run"; }
  const char* help() const override {
    return "Run COMMAND with a private daemon, whose address is in "
           "$DATASETD_ADDRESS. Returns COMMAND's exit code (128 "
           "plus the signal that killed it, 127 if the command does "
           "not exist, 126 if it cannot be executed), or 3 if the "
           "daemon cannot be started";
  }

  void AddTo(Arguments* arguments) override {
    arguments
        ->Add("--device", &devices_,
              "Device to serve: cpu or cuda:N; repeatable; default: "
              "every GPU, or cpu without a GPU")
        .OneValueEach();
    arguments
        ->Add("--data_root", &data_roots_,
              "Directory that the daemon may read; repeatable; "
              "default: all that this user may read")
        .OneValueEach();
    arguments->Add("--memory_budget_mib", &memory_budget_mib_,
                   "Memory limit of each device; default: nine tenths of "
                   "the free memory");
    arguments->Add("--host_threads", &host_threads_,
                   "Threads of the host backend; default: one per core");
    arguments->Add("--daemon", &daemon_,
                   "Path of the daemon program; default: $DATASETD_DAEMON, "
                   "the one next to datasetctl, or the one on PATH");
    arguments->Add("--daemon_log", &daemon_log_,
                   "File for the daemon's log; default: no log");
    arguments
        ->Add("--timeout", &timeout_seconds_,
              "Seconds to wait for the daemon to start")
        .Positive()
        .ShowDefault();
    const Argument per_node = arguments->AddFlag(
        "--per-node", &is_per_node_,
        "Share one daemon among all processes of a job on this "
        "node, each wrapped in this command. Runs `python3 -m "
        "datasetd run`");
    arguments
        ->Add("--job", &job_,
              "With --per-node: name of the job; processes with the "
              "same name share a daemon; default: the job of Slurm, "
              "torchrun or PMIx, else one daemon for this user")
        .Needs(per_node);
    arguments
        ->Add("--linger", &linger_seconds_,
              "With --per-node: seconds to keep the daemon after the "
              "last process failed or was killed")
        .Needs(per_node)
        .Positive()
        .ShowDefault();
    arguments->AddCommandLine(&command_);
  }

  int Run() override {
    if (command_.empty()) return FailUsage(kNoCommandLine);
    if (is_per_node_) return RunPerNode();
    auto program = FindDaemon(daemon_);
    if (!program.ok()) return FailWithoutDaemon(program.status());
    PrivateDaemon::Options options;
    options.program = *program;
    options.arguments = DaemonArguments();
    if (data_roots_.empty()) data_roots_ = {"/"};
    for (const std::string& root : data_roots_) {
      std::error_code error;
      const auto path = std::filesystem::absolute(root, error);
      if (error) {
        return FailUsage(absl::StrCat("--data_root '", root, "': ",
                                      error.message(), "; name a directory"));
      }
      options.arguments.push_back("--data_root=" +
                                  path.lexically_normal().string());
    }
    options.log_path = daemon_log_;
    options.timeout = absl::Seconds(timeout_seconds_);

    // Signals are read from a descriptor from now on, but for those that the
    // caller ignores, as nohup does. Children start unblocked.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const int signal : kForwardedSignals) {
      if (!IsIgnored(signal)) sigaddset(&set, signal);
    }
    sigprocmask(SIG_BLOCK, &set, nullptr);
    const client::GuardedFd signals(signalfd(-1, &set, SFD_CLOEXEC));
    // Only signals that end this program end the wait for the daemon.
    sigdelset(&set, SIGCHLD);
    sigdelset(&set, SIGUSR1);
    sigdelset(&set, SIGUSR2);
    const client::GuardedFd interrupt(
        signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));

    auto daemon = PrivateDaemon::Start(options, interrupt.get());
    if (absl::IsCancelled(daemon.status())) {
      signalfd_siginfo info = {};
      const ssize_t size = read(interrupt.get(), &info, sizeof(info));
      return size == sizeof(info) ? 128 + static_cast<int>(info.ssi_signo)
                                  : kExitNoDaemon;
    }
    if (!daemon.ok()) return FailWithoutDaemon(daemon.status());
    return RunIn(daemon->get(), signals.get());
  }

 private:
  int FailWithoutDaemon(const absl::Status& status) const {
    Fail(status);
    return kExitNoDaemon;
  }

  // The arguments that any daemon is given as they are.
  std::vector<std::string> DaemonArguments() const {
    std::vector<std::string> arguments;
    for (const std::string& device : devices_) {
      arguments.push_back("--device=" + device);
    }
    if (memory_budget_mib_ != 0) {
      arguments.push_back(
          absl::StrCat("--memory_budget_mib=", memory_budget_mib_));
    }
    if (host_threads_ != 0) {
      arguments.push_back(absl::StrCat("--host_threads=", host_threads_));
    }
    return arguments;
  }

  int RunPerNode() {
    std::vector<std::string> arguments = DaemonArguments();
    arguments.insert(arguments.begin(), {"run", "--per-node"});
    if (!job_.empty()) arguments.push_back("--job=" + job_);
    for (const std::string& root : data_roots_) {
      arguments.push_back("--data_root=" + root);
    }
    const auto program = FindDaemon(daemon_);
    if (program.ok()) {
      arguments.push_back("--daemon=" + *program);
    } else if (!daemon_.empty()) {
      return FailWithoutDaemon(program.status());
    }
    if (!daemon_log_.empty()) {
      arguments.push_back("--daemon_log=" + daemon_log_);
    }
    arguments.push_back(absl::StrCat("--linger=", linger_seconds_));
    arguments.push_back(absl::StrCat("--timeout=", timeout_seconds_));
    arguments.push_back("--");
    arguments.insert(arguments.end(), command_.begin(), command_.end());
    return FailWithoutDaemon(
        ExecPythonPackage("runs commands per node", arguments));
  }

  int RunIn(PrivateDaemon* daemon, int signals) {
    ChildProcess::Options child;
    child.arguments = command_;
    child.environment = {{"DATASETD_ADDRESS", daemon->address()}};
    const auto pid = ChildProcess::Start(child);
    if (!pid.ok()) {
      Fail(pid.status());
      return absl::IsNotFound(pid.status()) ? kExitNoCommand : kExitCannotRun;
    }
    bool is_daemon_gone = false;
    while (true) {
      signalfd_siginfo info = {};
      if (read(signals, &info, sizeof(info)) != sizeof(info)) {
        if (errno == EINTR) continue;
        kill(*pid, SIGTERM);
        return Fail(absl::ErrnoToStatus(errno, "read of a signalfd"));
      }
      if (info.ssi_signo != SIGCHLD) {
        // Signals from the terminal have reached the command already.
        if (info.ssi_code != SI_KERNEL) {
          kill(*pid, static_cast<int>(info.ssi_signo));
        }
        continue;
      }
      int status = 0;
      if (waitpid(*pid, &status, WNOHANG) == *pid) {
        daemon->Stop();
        return ExitCodeOfWaitStatus(status);
      }
      if (!is_daemon_gone) {
        const std::string ending = daemon->Ending();
        if (ending.empty()) continue;
        is_daemon_gone = true;
        Fail(absl::UnavailableError(ending));
      }
    }
  }

  std::vector<std::string> command_;
  std::vector<std::string> devices_, data_roots_;
  uint64_t memory_budget_mib_ = 0;
  uint32_t host_threads_ = 0;
  std::string daemon_, daemon_log_;
  double timeout_seconds_ = 60;
  bool is_per_node_ = false;
  std::string job_;
  double linger_seconds_ = 10;
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand(const GlobalFlags* flags) {
  return std::make_unique<RunCommand>(flags);
}

}  // namespace datasetd::ctl
