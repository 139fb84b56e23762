#include "server/registry/dataset_use.h"

#include <utility>

#include "server/registry/dataset_registry.h"

namespace datasetd {

DatasetUse& DatasetUse::operator=(DatasetUse&& other) noexcept {
  if (this != &other) {
    Reset();
    registry_ = std::exchange(other.registry_, nullptr);
    entry_id_ = other.entry_id_;
    uid_ = other.uid_;
    visibility_ = other.visibility_;
    dataset_ = std::move(other.dataset_);
    backend_ = other.backend_;
    classes_ = std::move(other.classes_);
    is_ready_ = std::move(other.is_ready_);
  }
  return *this;
}

void DatasetUse::Reset() {
  dataset_.reset();
  if (registry_ != nullptr) {
    std::exchange(registry_, nullptr)->EndUse(entry_id_, uid_);
  }
}

}  // namespace datasetd
