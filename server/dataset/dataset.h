// A dataset: N samples resident in the memory of one device. Immutable.
//
// Shared by the registry and the feeds that draw from it; the memory is freed
// with the last reference. Thread-safe.

#ifndef DATASETD_SERVER_DATASET_DATASET_H_
#define DATASETD_SERVER_DATASET_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cuda/device/backend.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {

class Dataset {
 public:
  struct Contents {
    std::string name;
    Backend* backend = nullptr;  // outlives the dataset
    int64_t num_samples = 0;
    std::vector<FieldSpec> fields;
    // One per field: samples back to back, or at the places given by the index.
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    // Empty, or one per field; set for packed fields only.
    struct Packed {
      std::optional<RaggedIndex> index;
      std::unique_ptr<DeviceMemory> memory;  // the index's samples
    };
    std::vector<Packed> packed;
    std::string content_hash;     // hex
    BadSampleReport bad_samples;  // skipped or replaced
    Reservation reservation;
  };

  explicit Dataset(Contents contents) : contents_(std::move(contents)) {
    sizes_.resize(contents_.fields.size());
    for (size_t f = 0; f < contents_.packed.size(); ++f) {
      if (field_index(f) != nullptr) {
        sizes_[f] = field_index(f)->DistinctSizes();
      }
    }
  }
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  const std::string& name() const { return contents_.name; }
  Backend& backend() const { return *contents_.backend; }
  int64_t num_samples() const { return contents_.num_samples; }
  const std::vector<FieldSpec>& fields() const { return contents_.fields; }
  const std::string& content_hash() const { return contents_.content_hash; }
  const BadSampleReport& bad_samples() const { return contents_.bad_samples; }
  // Device address of a field's sample 0.
  const uint8_t* field_data(size_t field) const {
    return contents_.memory[field]->data();
  }
  // The index of a packed field and its device address; null for other fields.
  const RaggedIndex* field_index(size_t field) const {
    return fields()[field].is_packed() ? &*contents_.packed[field].index
                                       : nullptr;
  }
  const RaggedSample* field_index_data(size_t field) const {
    return fields()[field].is_packed()
               ? reinterpret_cast<const RaggedSample*>(
                     contents_.packed[field].memory->data())
               : nullptr;
  }
  // The distinct sizes of a packed field's samples; empty for other fields.
  absl::Span<const ImageSize> field_sizes(size_t field) const {
    return sizes_[field];
  }

 private:
  const Contents contents_;
  std::vector<std::vector<ImageSize>> sizes_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_H_
