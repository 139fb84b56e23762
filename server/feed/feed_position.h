// A position in the endless sequence of a feed's batches.

#ifndef DATASETD_SERVER_FEED_FEED_POSITION_H_
#define DATASETD_SERVER_FEED_FEED_POSITION_H_

#include <cstdint>

namespace datasetd {

struct FeedPosition {
  uint64_t epoch = 0;
  uint64_t batch = 0;  // within the epoch
};

// The epoch is one 32-bit word of the Philox counter.
inline constexpr uint64_t kMaxEpoch = 0xFFFFFFFFu;

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_POSITION_H_
