#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "client/connection/address.h"
#include "client/connection/guarded_fd.h"
#include "client/ctl/child_process.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/private_daemon.h"
#include "client/ctl/temporary_directory.h"
#include "proto/version.h"

namespace datasetd::ctl {
namespace {

// As in shells.
constexpr int kExitCannotRun = 126;
constexpr int kExitNoCommand = 127;

constexpr int kForwardedSignals[] = {SIGINT,  SIGTERM, SIGHUP,
                                     SIGQUIT, SIGUSR1, SIGUSR2};

// The variables that identify a job, and one of its nodes. The first group
// whose first variable is set counts.
constexpr const char* kJobVariables[][3] = {
    {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME"},
    {"TORCHELASTIC_RUN_ID", nullptr, nullptr},
    {"PMIX_NAMESPACE", nullptr, nullptr}};

// A daemon that ends more often is not started again.
constexpr size_t kMaxEnds = 3;
constexpr absl::Duration kEndsTime = absl::Minutes(1);

bool IsIgnored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// Returns the variable with its name; the name alone if it is not set.
std::string Setting(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? name : absl::StrCat(name, "=", value);
}

// Identifies the job that this process belongs to.
std::string JobKey() {
  for (const auto& names : kJobVariables) {
    const char* const first = getenv(names[0]);
    if (first == nullptr || *first == '\0') continue;
    std::string key;
    for (const char* const name : names) {
      if (name != nullptr) absl::StrAppend(&key, Setting(name), "\n");
    }
    return key;
  }
  return "";
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
    arguments->Add("--daemon", &daemon_path_,
                   "Path of the daemon program; default: $DATASETD_DAEMON, "
                   "the one next to datasetctl, or the one on PATH");
    arguments->Add("--daemon_log", &daemon_log_,
                   "File to append the daemon's log to; default: one that is "
                   "removed with the daemon");
    arguments
        ->Add("--timeout", &timeout_seconds_,
              "Seconds to wait for the daemon to start")
        .Positive()
        .ShowDefault();
    const Argument per_node = arguments->AddFlag(
        "--per-node", &is_per_node_,
        "Share one daemon among all processes of a job on this "
        "node, each wrapped in this command. The first one starts it, and it "
        "is started again if it is lost. It ends with the last one whose "
        "COMMAND succeeds. If this program is killed, so is COMMAND");
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
    const auto program = FindDaemon(daemon_path_);
    if (!program.ok()) return FailWithoutDaemon(program.status());
    options_.program = *program;
    options_.timeout = absl::Seconds(timeout_seconds_);
    if (const std::string problem = AddArguments(); !problem.empty()) {
      return FailUsage(problem);
    }
    std::unique_ptr<TemporaryDirectory> directory;
    if (is_per_node_) {
      options_.directory = absl::StrCat(client::SharedDirectoryPrefix(), "run",
                                        JobDigest().substr(0, 12));
    } else {
      auto made = TemporaryDirectory::Create("datasetd-job-");
      if (!made.ok()) return FailWithoutDaemon(made.status());
      directory = *std::move(made);
      options_.directory = directory->path();
      options_.arguments.push_back(
          absl::StrCat("--exit_with_parent=", getpid()));
    }

    // Signals are read from a descriptor from now on, but for those that the
    // caller ignores, as nohup does. Children start unblocked.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    sigdelset(&set, SIGPIPE);
    for (const int signal : kForwardedSignals) {
      if (!IsIgnored(signal)) sigaddset(&set, signal);
    }
    sigprocmask(SIG_BLOCK, &set, nullptr);
    const client::GuardedFd signals(
        signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    // Only signals that end this program end the wait for the daemon.
    sigdelset(&set, SIGUSR1);
    sigdelset(&set, SIGUSR2);
    const client::GuardedFd interrupt(
        signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));

    const absl::Status status = UseDaemon({interrupt.get()});
    if (absl::IsCancelled(status)) {
      signalfd_siginfo info = {};
      const ssize_t size = read(interrupt.get(), &info, sizeof(info));
      return size == sizeof(info) ? 128 + static_cast<int>(info.ssi_signo)
                                  : kExitNoDaemon;
    }
    if (!status.ok()) return FailWithoutDaemon(status);
    return RunBeside(signals.get());
  }

 private:
  int FailWithoutDaemon(const absl::Status& status) const {
    Fail(status);
    return kExitNoDaemon;
  }

  // Sets the daemon's arguments; returns what is wrong with this program's, or
  // an empty text.
  std::string AddArguments() {
    std::vector<std::string>& arguments = options_.arguments;
    for (const std::string& device : devices_) {
      arguments.push_back("--device=" + device);
    }
    for (const std::string& root : data_roots_) {
      std::error_code error;
      const auto path = std::filesystem::absolute(root, error);
      if (error) {
        return absl::StrCat("--data_root '", root, "': ", error.message(),
                            "; name a directory");
      }
      arguments.push_back("--data_root=" + path.lexically_normal().string());
    }
    if (memory_budget_mib_ != 0) {
      arguments.push_back(
          absl::StrCat("--memory_budget_mib=", memory_budget_mib_));
    }
    if (host_threads_ != 0) {
      arguments.push_back(absl::StrCat("--host_threads=", host_threads_));
    }
    if (!daemon_log_.empty()) arguments.push_back("--log_path=" + daemon_log_);
    if (is_per_node_) {
      arguments.push_back("--exit_when_idle=" +
                          absl::FormatDuration(absl::Seconds(linger_seconds_)));
      arguments.push_back("--set=drain_timeout=500ms");
    }
    return "";
  }

  // Identifies what processes that share a daemon have in common.
  std::string JobDigest() const {
    std::vector<std::string> key = options_.arguments;
    key.insert(key.end(),
               {kVersion, daemon_path_, Setting("CUDA_VISIBLE_DEVICES"),
                job_.empty() ? JobKey() : "--job=" + job_});
    return HexDigest(absl::StrJoin(key, absl::string_view("\0", 1)));
  }

  // Starts the daemon. One of a job is kept from being idle by a session, too.
  // CANCELLED as PrivateDaemon::Start.
  absl::Status UseDaemon(absl::Span<const int> interrupts) {
    const absl::Time deadline = absl::Now() + options_.timeout;
    while (true) {
      DATASETD_ASSIGN_OR_RETURN(PrivateDaemon daemon,
                                PrivateDaemon::Start(options_, interrupts));
      if (is_per_node_) {
        ClientOptions options;
        options.address = daemon.address();
        auto session = Client::Connect(options);
        // It was about to end, being idle.
        if (ExitCodeOf(session.status()) == kExitNoDaemon &&
            absl::Now() < deadline) {
          continue;
        }
        DATASETD_RETURN_IF_ERROR(session.status());
        session_.emplace(*std::move(session));
      }
      daemon_.emplace(std::move(daemon));
      return absl::OkStatus();
    }
  }

  int RunBeside(int signals) {
    ChildProcess::Options child;
    child.arguments = command_;
    child.environment = {{"DATASETD_ADDRESS", daemon_->address()}};
    child.is_killed_with_parent = is_per_node_;
    const auto pid = ChildProcess::Start(child);
    int code = 0;
    if (pid.ok()) {
      code = AwaitCommand(*pid, signals);
    } else {
      Fail(pid.status());
    }
    session_.reset();
    if (daemon_.has_value() && !is_per_node_) daemon_->Stop();
    // After a failure the daemon stays for a while, for the job's restart.
    if (daemon_.has_value() && is_per_node_ && code == 0) {
      daemon_->StopIfUnused();
    }
    if (pid.ok()) return code;
    return absl::IsNotFound(pid.status()) ? kExitNoCommand : kExitCannotRun;
  }

  // Passes signals on and keeps the daemon of a job alive until the command
  // ends; returns its exit code.
  int AwaitCommand(pid_t pid, int signals) {
    const client::GuardedFd command(
        static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    while (true) {
      pollfd waits[] = {
          {command.get(), POLLIN, 0},
          {signals, POLLIN, 0},
          {daemon_.has_value() ? daemon_->process() : -1, POLLIN, 0}};
      const bool is_missed = !daemon_.has_value() && !is_given_up_;
      poll(waits, 3, is_missed ? 0 : -1);
      int status = 0;
      if (waits[0].revents != 0 && waitpid(pid, &status, 0) == pid) {
        return ExitCodeOfWaitStatus(status);
      }
      signalfd_siginfo info = {};
      if (waits[1].revents != 0) {
        // Signals from the terminal have reached the command already.
        if (read(signals, &info, sizeof(info)) == sizeof(info) &&
            info.ssi_code != SI_KERNEL) {
          kill(pid, static_cast<int>(info.ssi_signo));
        }
      } else if (waits[2].revents != 0) {
        NoteEnd();
      } else if (is_missed) {
        const absl::Status used = UseDaemon({command.get(), signals});
        if (used.ok() || absl::IsCancelled(used)) continue;
        is_given_up_ = true;
        Fail(absl::Status(used.code(), absl::StrCat(used.message(),
                                                    "; no other is started")));
      }
    }
  }

  void NoteEnd() {
    const absl::Time now = absl::Now();
    std::erase_if(ends_, [&](absl::Time end) { return now - end > kEndsTime; });
    ends_.push_back(now);
    is_given_up_ = !is_per_node_ || ends_.size() > kMaxEnds;
    Fail(absl::UnavailableError(absl::StrCat(
        "the daemon has ended (",
        daemon_log_.empty() ? daemon_->LogTail() : "see " + daemon_log_, ")",
        !is_given_up_   ? "; another one is started"
        : !is_per_node_ ? ""
                        : absl::StrCat("; ", ends_.size(), " have within ",
                                       absl::FormatDuration(kEndsTime),
                                       ", so that no other is started"))));
    session_.reset();
    daemon_.reset();
  }

  std::vector<std::string> command_;
  std::vector<std::string> devices_, data_roots_;
  uint64_t memory_budget_mib_ = 0;
  uint32_t host_threads_ = 0;
  std::string daemon_path_, daemon_log_;
  double timeout_seconds_ = 60;
  bool is_per_node_ = false;
  std::string job_;
  double linger_seconds_ = 10;

  PrivateDaemon::Options options_;
  std::optional<PrivateDaemon> daemon_;
  std::optional<Client> session_;
  std::vector<absl::Time> ends_;  // of daemons
  bool is_given_up_ = false;      // no other daemon is started
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand(const GlobalFlags* flags) {
  return std::make_unique<RunCommand>(flags);
}

}  // namespace datasetd::ctl
