#ifndef DATASETD_SERVER_REGISTRY_DATASET_USE_H_
#define DATASETD_SERVER_REGISTRY_DATASET_USE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device/backend.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset.h"

namespace datasetd {

class DatasetRegistry;

// One feed's use of a dataset; ends on destruction.
class DatasetUse {
 public:
  DatasetUse() = default;
  // `uid` is the user of the feed.
  DatasetUse(DatasetRegistry* registry, uint64_t entry_id, uint32_t uid,
             Visibility visibility, std::shared_ptr<const Dataset> dataset,
             Backend* backend)
      : registry_(registry),
        entry_id_(entry_id),
        uid_(uid),
        visibility_(visibility),
        dataset_(std::move(dataset)),
        backend_(backend) {}
  DatasetUse(DatasetUse&& other) noexcept { *this = std::move(other); }
  DatasetUse& operator=(DatasetUse&& other) noexcept;
  ~DatasetUse() { Reset(); }

  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }
  // The backend of the device that the feed runs on.
  Backend* backend() const { return backend_; }
  // Valid also after Reset.
  const Visibility& visibility() const { return visibility_; }
  // Empty once the dataset is gone.
  std::vector<std::string> class_names() const;
  // False once the dataset is UNLOADING.
  bool IsReady() const;
  void Reset();

 private:
  DatasetRegistry* registry_ = nullptr;
  uint64_t entry_id_ = 0;
  uint32_t uid_ = 0;
  Visibility visibility_;
  std::shared_ptr<const Dataset> dataset_;
  Backend* backend_ = nullptr;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_USE_H_
