// The datasets that a feed draws from: one, or those of a mixture, and those
// that its ops take noise from. Its use of each ends on destruction, after the
// Dataset that is made of them.

#ifndef DATASETD_SERVER_FEED_FEED_DATASETS_H_
#define DATASETD_SERVER_FEED_FEED_DATASETS_H_

#include <google/protobuf/map.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset.h"
#include "server/feed/noise_datasets.h"
#include "server/registry/dataset_registry.h"
#include "server/registry/dataset_use.h"

namespace datasetd {

class FeedDatasets {
 public:
  FeedDatasets() = default;
  FeedDatasets(FeedDatasets&&) = default;
  FeedDatasets& operator=(FeedDatasets&& other) noexcept;

  // Begins to use the datasets that `options` names, on one device. Errors as
  // DatasetRegistry::Use and MakeMixture, and
  //   INVALID_ARGUMENT  datasets of a mixture have different class names, or
  //                     they or those of noise are not on one device; names
  //                     them
  // REQUIRES: CheckFeedOptions(options) is OK.
  static absl::StatusOr<FeedDatasets> Use(const v1::FeedOptions& options,
                                          const Caller& caller,
                                          DatasetRegistry* registry);

  // The same of one dataset and the ops of its fields.
  using FieldsMessage = google::protobuf::Map<std::string, v1::FieldOptions>;
  static absl::StatusOr<FeedDatasets> Use(const std::string& name,
                                          const FieldsMessage& fields,
                                          const Caller& caller,
                                          DatasetRegistry* registry);

  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }
  const NoiseDatasets& noise() const { return noise_; }
  // The backend of the device that the feed runs on.
  Backend* backend() const { return backend_; }
  // Who sees the feed: private if any dataset is. Valid also after Reset.
  const Visibility& visibility() const { return visibility_; }
  // True if the feed draws from `dataset`.
  bool Has(const Dataset* dataset) const;
  // FAILED_PRECONDITION once one of the datasets is UNLOADING, which it names.
  absl::Status CheckReady() const;
  void Reset();

 private:
  absl::Status UseOne(const std::string& name, const std::string& device,
                      const Caller& caller, DatasetRegistry* registry);
  absl::Status Mix(const v1::FeedOptions& options, const Caller& caller,
                   DatasetRegistry* registry);
  absl::Status UseNoise(const std::vector<std::string>& names,
                        const Caller& caller, DatasetRegistry* registry);
  // Keeps a further use.
  void Add(DatasetUse use, const Caller& caller);

  std::vector<DatasetUse> uses_;
  std::shared_ptr<const Dataset> dataset_;
  NoiseDatasets noise_;
  Backend* backend_ = nullptr;
  Visibility visibility_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_DATASETS_H_
