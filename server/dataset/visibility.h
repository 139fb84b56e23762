// Who sees a dataset, and all that tells of it: descriptions, feeds, errors,
// metrics. Nothing else decides it.

#ifndef DATASETD_SERVER_DATASET_VISIBILITY_H_
#define DATASETD_SERVER_DATASET_VISIBILITY_H_

#include <cstdint>

#include "server/dataset/caller.h"

namespace datasetd {

struct Visibility {
  bool is_private = false;
  uint32_t owner_uid = 0;

  // A private dataset is its owner's, root's and the daemon's user's.
  bool IsSeenBy(const Caller& caller) const {
    return !is_private || caller.is_privileged || caller.session_id == 0 ||
           caller.uid == owner_uid;
  }
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_VISIBILITY_H_
