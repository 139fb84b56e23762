#ifndef DATASETD_SERVER_REGISTRY_DATASET_USE_H_
#define DATASETD_SERVER_REGISTRY_DATASET_USE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/backend/backend.h"
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
             Backend* backend,
             std::shared_ptr<const std::vector<std::string>> classes,
             std::shared_ptr<const std::atomic<bool>> is_ready)
      : registry_(registry),
        entry_id_(entry_id),
        uid_(uid),
        visibility_(visibility),
        dataset_(std::move(dataset)),
        backend_(backend),
        classes_(std::move(classes)),
        is_ready_(std::move(is_ready)) {}
  DatasetUse(DatasetUse&& other) noexcept { *this = std::move(other); }
  DatasetUse& operator=(DatasetUse&& other) noexcept;
  ~DatasetUse() { Reset(); }

  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }
  // The backend of the device that the feed runs on.
  Backend* backend() const { return backend_; }
  // Valid also after Reset.
  const Visibility& visibility() const { return visibility_; }
  // REQUIRES: Reset was not called.
  const std::vector<std::string>& class_names() const { return *classes_; }
  // False once the dataset is UNLOADING.
  bool IsReady() const {
    return registry_ != nullptr && is_ready_->load(std::memory_order_relaxed);
  }
  void Reset();

 private:
  DatasetRegistry* registry_ = nullptr;
  uint64_t entry_id_ = 0;
  uint32_t uid_ = 0;
  Visibility visibility_;
  std::shared_ptr<const Dataset> dataset_;
  Backend* backend_ = nullptr;
  std::shared_ptr<const std::vector<std::string>> classes_;
  std::shared_ptr<const std::atomic<bool>> is_ready_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_USE_H_
