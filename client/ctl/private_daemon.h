// A private daemon: `datasetd --private`, which sees to it that there is one of
// a directory.

#ifndef DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_
#define DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/connection/guarded_fd.h"

namespace datasetd::ctl {

// Returns the path of the daemon: `named` if not empty; else $DATASETD_DAEMON;
// else datasetd beside this program; else ../../server/datasetd from there,
// where Bazel puts it; else the one on PATH. NOT_FOUND lists the places
// searched.
absl::StatusOr<std::string> FindDaemon(const std::string& named);

// Not thread-safe.
class PrivateDaemon {
 public:
  struct Options {
    std::string program;
    std::string directory;
    // In addition, among them what ends the daemon.
    std::vector<std::string> arguments;
    absl::Duration timeout = absl::Seconds(60);
  };

  // Starts the daemon of the directory unless it runs, and blocks until it
  // serves. CANCELLED if one of the descriptors `interrupts` becomes readable
  // before.
  //   FAILED_PRECONDITION  it ended before that; includes the end of its log
  //   DEADLINE_EXCEEDED    it did not serve in time; includes the end of its
  //                        log
  static absl::StatusOr<PrivateDaemon> Start(
      const Options& options, absl::Span<const int> interrupts = {});

  // Returns the value for DATASETD_ADDRESS.
  std::string address() const { return directory_ + "/datasetd.sock"; }

  // A pidfd of the daemon; -1 if it is outside of this PID namespace.
  int process() const { return process_.get(); }
  // Returns the end of the log, which is in the directory.
  std::string LogTail() const;

  // Sends SIGTERM, and SIGKILL after 10 s. Blocks until the daemon has ended.
  void Stop();
  // Ends the daemon if no client is connected, and blocks until it has ended.
  void StopIfUnused();

 private:
  PrivateDaemon() = default;
  void Signal(int number) const;
  bool AwaitEnd(absl::Duration timeout) const;

  std::string directory_;
  client::GuardedFd process_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_
