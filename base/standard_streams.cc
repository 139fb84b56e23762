#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace datasetd {

void ReserveStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // It gets the lowest free number.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
      return;
    }
  }
}

}  // namespace datasetd
