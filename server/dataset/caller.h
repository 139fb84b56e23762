// The user and session behind a request, as identified by the attach socket,
// and what they may see.

#ifndef DATASETD_SERVER_DATASET_CALLER_H_
#define DATASETD_SERVER_DATASET_CALLER_H_

#include <cstdint>

namespace datasetd {

struct Caller {
  // The session of datasets that an earlier daemon had loaded for the user.
  static constexpr uint64_t kEarlierSession = ~uint64_t{0};

  uint64_t session_id = 0;  // 0: the daemon itself, whose holds never end
  uint32_t uid = 0;
  int32_t pid = 0;
  // Number of the process in its own PID namespace, as it says; 0: not told.
  int32_t own_pid = 0;
  // Root or the daemon's own user.
  bool is_privileged = false;
};

// The visibility of a dataset and of everything about it: descriptions, feeds,
// errors and metrics. All such checks use this class.
struct Visibility {
  bool is_private = false;
  uint32_t owner_uid = 0;

  // True if the dataset is public, or the caller is its owner, root or the
  // daemon's user.
  bool IsSeenBy(const Caller& caller) const {
    return !is_private || caller.is_privileged || caller.session_id == 0 ||
           caller.uid == owner_uid;
  }
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_CALLER_H_
