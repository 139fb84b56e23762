// A daemon of this process's own, on a socket in a temporary directory that
// only this user may enter. It ends with this process, however that ends.

#ifndef DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_
#define DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace datasetd::ctl {

// The daemon's program: `named` if not empty; else $DATASETD_DAEMON; else
// datasetd beside this program; else ../../server/datasetd from here, where
// Bazel puts it; else the one on PATH. NOT_FOUND says where it was looked for.
absl::StatusOr<std::string> FindDaemon(const std::string& named);

// Not thread-safe. The destructor stops the daemon and removes the directory.
class PrivateDaemon {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> arguments;
    // Where its log is written; empty: into the directory, gone with it.
    std::string log_path;
    absl::Duration timeout = absl::Seconds(60);
  };

  // Starts it, and returns when it serves. `interrupt` is polled meanwhile:
  // when that descriptor can be read, CANCELLED.
  //   FAILED_PRECONDITION  it ended before; with the end of its log
  //   DEADLINE_EXCEEDED    it did not serve within the timeout; likewise
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(
      const Options& options, int interrupt);
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  // For DATASETD_ADDRESS.
  std::string address() const { return directory_ + "/datasetd.sock"; }
  pid_t pid() const { return pid_; }

  // Empty while it runs; then how it ended, with the end of its log.
  std::string Ending();

  // SIGTERM, and SIGKILL after 10 s. Returns when it has ended.
  void Stop();

 private:
  PrivateDaemon() = default;
  absl::Status AwaitReady(int notices, int interrupt, absl::Duration timeout);
  std::string LogTail() const;

  std::string directory_;
  std::string log_path_;
  std::string program_;
  pid_t pid_ = -1;
  bool has_ended_ = false;
  int wait_status_ = 0;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PRIVATE_DAEMON_H_
