#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace datasetd {

void ReserveStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // The lowest free number is this one, unless the open fails.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
      return;
    }
  }
}

}  // namespace datasetd
