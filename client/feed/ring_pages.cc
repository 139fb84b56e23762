#include "client/feed/ring_pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/shared_mapping.h"
#include "base/status_macros.h"
#include "client/connection/error_detail.h"
#include "client/connection/guarded_fd.h"

namespace datasetd::client {
namespace {

absl::StatusOr<void*> MapPage(int fd, size_t size, int protection,
                              const char* name) {
  if (!IsSealedAgainstShrinking(fd)) {
    return absl::InternalError(
        absl::StrCat("the ", name, " is not sealed against shrinking"));
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("fstat of the ", name));
  }
  // Reading beyond the end would raise SIGBUS.
  if (static_cast<size_t>(status.st_size) < size) {
    return absl::InternalError(absl::StrCat(
        "the ", name, " has ", status.st_size, " bytes, not ", size));
  }
  void* const page = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mmap of the ", name));
  }
  madvise(page, size, MADV_DONTFORK);
  return page;
}

}  // namespace

absl::StatusOr<RingPages> RingPages::Map(int daemon_fd, int client_fd,
                                         uint32_t num_slots) {
  RingPages pages;
  pages.fork_generation_ = ForkGeneration();
  DATASETD_ASSIGN_OR_RETURN(
      void* const daemon,
      MapPage(daemon_fd, sizeof(ring::DaemonPage), PROT_READ, "daemon page"));
  pages.daemon_ = static_cast<const ring::DaemonPage*>(daemon);
  DATASETD_ASSIGN_OR_RETURN(void* const client,
                            MapPage(client_fd, sizeof(ring::ClientPage),
                                    PROT_READ | PROT_WRITE, "client page"));
  pages.client_ = static_cast<ring::ClientPage*>(client);
  if (pages.daemon_->magic != ring::kMagic) {
    return absl::InternalError("the daemon page holds no ring");
  }
  if (pages.daemon_->version != ring::kVersion) {
    return WithDetail(
        absl::FailedPreconditionError(absl::StrCat(
            "the daemon's ring has version ", pages.daemon_->version,
            ", this client knows ", ring::kVersion,
            ": install the client that came with the daemon")),
        ErrorDetail::kVersionMismatch);
  }
  const uint32_t num_ring_slots = pages.daemon_->num_slots;
  if (num_ring_slots != num_slots || num_slots == 0 ||
      num_slots > ring::kMaxSlots) {
    return absl::InternalError(absl::StrCat("the ring has ", num_ring_slots,
                                            " slots, the feed ", num_slots));
  }
  return pages;
}

RingPages::RingPages(RingPages&& other) noexcept
    : daemon_(std::exchange(other.daemon_, nullptr)),
      client_(std::exchange(other.client_, nullptr)),
      fork_generation_(other.fork_generation_) {}

RingPages& RingPages::operator=(RingPages&& other) noexcept {
  std::swap(daemon_, other.daemon_);
  std::swap(client_, other.client_);
  std::swap(fork_generation_, other.fork_generation_);
  return *this;
}

RingPages::~RingPages() {
  // In a child of fork() the addresses may belong to something else.
  if (fork_generation_ != ForkGeneration()) return;
  if (daemon_ != nullptr) {
    munmap(const_cast<ring::DaemonPage*>(daemon_), sizeof(*daemon_));
  }
  if (client_ != nullptr) munmap(client_, sizeof(*client_));
}

}  // namespace datasetd::client
