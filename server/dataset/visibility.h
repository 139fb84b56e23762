// The visibility of a dataset and of everything about it: descriptions, feeds,
// errors and metrics. All such checks use this class.

#ifndef DATASETD_SERVER_DATASET_VISIBILITY_H_
#define DATASETD_SERVER_DATASET_VISIBILITY_H_

#include <cstdint>

#include "server/dataset/caller.h"

namespace datasetd {

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

#endif  // DATASETD_SERVER_DATASET_VISIBILITY_H_
