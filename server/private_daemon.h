// A private daemon (--private): it runs in the background and has a directory
// of its user's alone, with its sockets and its log, that at most one daemon
// holds.
//
// The lock on DIR/datasetd.lock decides which of several starters becomes the
// daemon. The kernel releases it when the daemon's process ends, however that
// ends. The daemon removes the directory while it holds the lock; a process
// that locks a file which is no longer at its path starts over.

#ifndef DATASETD_SERVER_PRIVATE_DAEMON_H_
#define DATASETD_SERVER_PRIVATE_DAEMON_H_

#include <optional>
#include <string>
#include <utility>

#include "base/file_descriptor.h"

namespace datasetd {

class PrivateDaemon {
 public:
  // Closes the descriptors that this process inherited, apart from the standard
  // streams. REQUIRES: it has opened none that it needs.
  static void CloseInherited();

  // Forks the daemon, unless another one holds the directory: then waits until
  // that one serves, or takes its place if it ends. In the daemon returns
  // nullopt and sets `*daemon`: it is in a session of its own, and its output
  // goes to `log_path`, or to DIR/datasetd.log if that is empty. In the process
  // that was started returns the exit code, which is 0 once a daemon serves
  // (its pid is printed then); else the error or the end of the daemon's log is
  // printed.
  //
  // Also removes the directories beside this one, of the same name up to the
  // last '-', whose daemons were killed. REQUIRES: this process has one thread;
  // `directory` is absolute.
  static std::optional<int> Start(const std::string& directory,
                                  const std::string& log_path,
                                  std::optional<PrivateDaemon>* daemon);

  PrivateDaemon(PrivateDaemon&&) = default;
  PrivateDaemon& operator=(PrivateDaemon&&) = default;

  // A descriptor for poll(), which reports POLLERR when the process that was
  // started is gone; -1 after Announce.
  int starter() const { return starter_.get(); }
  // Reports that the daemon serves. False if its starter is gone: then it must
  // end.
  bool Announce();
  // Removes the directory, if this process is a private daemon: last of all
  // before the process ends, also by _Exit.
  static void RemoveOwn();

 private:
  PrivateDaemon(FileDescriptor lock, FileDescriptor starter)
      : lock_(std::move(lock)), starter_(std::move(starter)) {}

  FileDescriptor lock_;     // until the end of the process
  FileDescriptor starter_;  // a pipe
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_PRIVATE_DAEMON_H_
