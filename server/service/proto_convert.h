// Converts between the messages of proto/datasetd/v1 and the daemon's structs.
// Input is checked for form here, and for meaning where it is used.

#ifndef DATASETD_SERVER_SERVICE_PROTO_CONVERT_H_
#define DATASETD_SERVER_SERVICE_PROTO_CONVERT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.pb.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/sample_source.h"
#include "server/feed/latency_histogram.h"

namespace datasetd {

// The header of a push. Nothing is checked yet.
struct PushSpec {
  v1::DatasetSpec spec;
  SourceInfo info;
  std::vector<bool> is_encoded;  // by field
  bool accepts_same = false;
  bool has_encoded() const {
    return std::find(is_encoded.begin(), is_encoded.end(), true) !=
           is_encoded.end();
  }
};
absl::StatusOr<PushSpec> PushSpecFromProto(const v1::PushHeader& header);

void HistogramToProto(
    const LatencyHistogram::Snapshot& snapshot,
    google::protobuf::RepeatedPtrField<v1::DurationBucket>* buckets);

// A page of a list request with this size fits in one message, however long the
// names are.
inline constexpr size_t kMaxPageSize = 256;

// The page size for a request of `wanted` items; 0: the maximum.
inline size_t PageSize(uint32_t wanted) {
  return wanted == 0 || wanted > kMaxPageSize ? kMaxPageSize : wanted;
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_PROTO_CONVERT_H_
