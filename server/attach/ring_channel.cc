#include "server/attach/ring_channel.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/attach/seqpacket.h"

namespace datasetd {
namespace {

absl::Status DescriptorError(const char* call) {
  const int error = errno;
  if (error != EMFILE && error != ENFILE) {
    return absl::ErrnoToStatus(error, absl::StrCat("ring: ", call));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("ring: ", call, ": ", kNoDescriptorLeft));
}

// Creates a zeroed, resident mapping of a new memfd, then seals it:
// FUTURE_WRITE leaves this mapping writable.
absl::StatusOr<void*> MapNew(const char* name, size_t size_bytes, int seals,
                             FileDescriptor& fd) {
  fd = FileDescriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.has_value()) return DescriptorError("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
    return absl::ErrnoToStatus(errno, "ring: ftruncate");
  }
  void* const page = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (page == MAP_FAILED) return absl::ErrnoToStatus(errno, "ring: mmap");
  if (fcntl(fd.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | seals) != 0) {
    const absl::Status status =
        absl::ErrnoToStatus(errno, "ring: sealing a memfd (Linux 5.1)");
    munmap(page, size_bytes);
    return status;
  }
  return page;
}

void WakeFutex(std::atomic<uint32_t>* word) {
  // One thread of the client waits, in turns (FeedCore).
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FeedChannel>> RingChannel::Create(
    uint32_t num_slots) {
  FileDescriptor daemon_fd;
  FileDescriptor client_fd;
  FileDescriptor wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.has_value()) return DescriptorError("eventfd");
  DATASETD_ASSIGN_OR_RETURN(
      void* const daemon_page,
      MapNew("datasetd-daemon-page", sizeof(ring::DaemonPage),
             F_SEAL_FUTURE_WRITE, daemon_fd));
  auto client_page =
      MapNew("datasetd-client-page", sizeof(ring::ClientPage), 0, client_fd);
  if (!client_page.ok()) {
    munmap(daemon_page, sizeof(ring::DaemonPage));
    return client_page.status();
  }
  return std::unique_ptr<FeedChannel>(new RingChannel(
      std::move(daemon_fd), std::move(client_fd), std::move(wake_fd),
      daemon_page, *client_page, num_slots));
}

RingChannel::RingChannel(FileDescriptor daemon_fd, FileDescriptor client_fd,
                         FileDescriptor wake_fd, void* daemon_page,
                         void* client_page, uint32_t num_slots)
    : daemon_fd_(std::move(daemon_fd)),
      client_fd_(std::move(client_fd)),
      wake_fd_(std::move(wake_fd)),
      daemon_page_(daemon_page),
      client_page_(client_page),
      descriptors_{daemon_fd_.get(), client_fd_.get(), wake_fd_.get()},
      ring_(new (daemon_page) ring::DaemonPage(),
            new (client_page) ring::ClientPage(), num_slots) {
  // The daemon does not write to the client page any more.
  mprotect(client_page_, sizeof(ring::ClientPage), PROT_READ);
}

RingChannel::~RingChannel() {
  munmap(daemon_page_, sizeof(ring::DaemonPage));
  munmap(client_page_, sizeof(ring::ClientPage));
}

void RingChannel::Publish(uint32_t slot, const ring::SlotDescriptor& batch) {
  if (ring_.Publish(slot, batch)) WakeFutex(ring_.wake_word());
}

void RingChannel::Close() {
  ring_.Close();
  WakeFutex(ring_.wake_word());
}

}  // namespace datasetd
