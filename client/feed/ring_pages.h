// The two shared pages of a feed, mapped and checked.
//
// The pages stay mapped until the object is destroyed. A child of fork() does
// not inherit them (MADV_DONTFORK). Move-only.

#ifndef DATASETD_CLIENT_FEED_RING_PAGES_H_
#define DATASETD_CLIENT_FEED_RING_PAGES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/feed_ring.h"

namespace datasetd::client {

class RingPages {
 public:
  RingPages() = default;
  // Borrows the descriptors.
  //   INTERNAL                              too small, not sealed against
  //                                         shrinking, not a ring, or the
  //                                         number of slots is not `num_slots`
  //   FAILED_PRECONDITION(kVersionMismatch) a ring of another version
  static absl::StatusOr<RingPages> Map(int daemon_fd, int client_fd,
                                       uint32_t num_slots);
  RingPages(RingPages&& other) noexcept;
  RingPages& operator=(RingPages&& other) noexcept;
  ~RingPages();

  const ring::DaemonPage* daemon() const { return daemon_; }
  ring::ClientPage* client() const { return client_; }

 private:
  const ring::DaemonPage* daemon_ = nullptr;
  ring::ClientPage* client_ = nullptr;
  uint64_t fork_generation_ = 0;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_RING_PAGES_H_
