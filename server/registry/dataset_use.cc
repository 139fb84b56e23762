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
  }
  return *this;
}

std::vector<std::string> DatasetUse::class_names() const {
  return registry_ == nullptr ? std::vector<std::string>()
                              : registry_->ClassNames(entry_id_);
}

bool DatasetUse::IsReady() const {
  return registry_ != nullptr && registry_->IsReady(entry_id_);
}

void DatasetUse::Reset() {
  dataset_.reset();
  if (registry_ != nullptr) {
    std::exchange(registry_, nullptr)->EndUse(entry_id_, uid_);
  }
}

}  // namespace datasetd
