// Who asks, as the attach socket found out.

#ifndef DATASETD_SERVER_DATASET_CALLER_H_
#define DATASETD_SERVER_DATASET_CALLER_H_

#include <cstdint>

namespace datasetd {

struct Caller {
  // Of a dataset that an earlier daemon had loaded for the user.
  static constexpr uint64_t kEarlierSession = ~uint64_t{0};

  uint64_t session_id = 0;  // 0: the daemon itself; its holds last for ever
  uint32_t uid = 0;
  int32_t pid = 0;
  // Root, or the daemon's own user.
  bool is_privileged = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_CALLER_H_
