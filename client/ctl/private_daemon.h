// A private daemon, on a socket in a temporary directory that only this user
// can enter. It ends when this process ends, even if that is killed.

#ifndef DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_
#define DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/ctl/temporary_directory.h"

namespace datasetd::ctl {

// Returns the path of the daemon: `named` if not empty; else $DATASETD_DAEMON;
// else datasetd beside this program; else ../../server/datasetd from there,
// where Bazel puts it; else the one on PATH. NOT_FOUND lists the places
// searched.
absl::StatusOr<std::string> FindDaemon(const std::string& named);

// Not thread-safe. The destructor stops the daemon and removes the directory.
class PrivateDaemon {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> arguments;
    // Path of the log. Empty: a file in the temporary directory.
    std::string log_path;
    absl::Duration timeout = absl::Seconds(60);
  };

  // Starts the daemon and blocks until it serves. CANCELLED if the descriptor
  // `interrupt` becomes readable before.
  //   FAILED_PRECONDITION  it ended before that; includes the end of its log
  //   DEADLINE_EXCEEDED    it did not serve in time; includes the end of its
  //                        log
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(
      const Options& options, int interrupt);
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  // Returns the value for DATASETD_ADDRESS.
  std::string address() const { return directory_->path() + "/datasetd.sock"; }

  // Returns how the daemon ended, with the end of its log; empty while it runs.
  std::string Ending();

  // Sends SIGTERM, and SIGKILL after 10 s. Blocks until the daemon has ended.
  void Stop();

 private:
  PrivateDaemon() = default;
  absl::Status AwaitReady(int notices, int interrupt, absl::Duration timeout);
  std::string LogTail() const;

  std::unique_ptr<TemporaryDirectory> directory_;
  std::string log_path_;
  std::string program_;
  pid_t pid_ = -1;
  bool has_ended_ = false;
  int wait_status_ = 0;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_
