// The datasets that the AddNoise of a feed take noise from.
//
// Copyable; thread-safe while it is not changed.

#ifndef DATASETD_SERVER_FEED_NOISE_DATASETS_H_
#define DATASETD_SERVER_FEED_NOISE_DATASETS_H_

#include <google/protobuf/map.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/dataset.h"
#include "server/pipeline/ops/noise_field.h"

namespace datasetd {

// Appends the names of the datasets that the ops name, in the order of fields
// and ops, those that are not in `names` yet.
void AddNoiseNames(
    const google::protobuf::Map<std::string, v1::FieldOptions>& fields,
    std::vector<std::string>& names);

class NoiseDatasets {
 public:
  void Add(std::string name, std::shared_ptr<const Dataset> dataset) {
    datasets_.push_back({std::move(name), std::move(dataset)});
  }

  // Finds fields in the memory of `backend`, which the feed runs on; null: in
  // host memory, their sizes alone, for explanations. Refers to this object.
  // Errors:
  //   INVALID_ARGUMENT  there is no such field, or it is not whole in that
  //                     memory
  NoiseFinder FinderOn(const Backend* backend) const;

  // For OpenFeedResponse.
  void Describe(v1::OpenFeedResponse* response) const;

 private:
  struct Named {
    std::string name;
    std::shared_ptr<const Dataset> dataset;
  };

  absl::StatusOr<NoiseField> Find(const v1::AddNoise& op,
                                  const std::string& field,
                                  const Backend* backend) const;

  std::vector<Named> datasets_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_NOISE_DATASETS_H_
