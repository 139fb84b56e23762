// N samples resident in one device's memory. Immutable.
//
// Shared by the registry and by every feed that draws from it: the memory goes
// back when the last of them lets go. Thread-safe.

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
    // One for each field: samples back to back, or as its index says.
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    // None, or one for each field; empty but of packed ones.
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
  // Device address of sample 0 of a field.
  const uint8_t* field_data(size_t field) const {
    return contents_.memory[field]->data();
  }
  // Of a packed field: its index, and the device address of that; else null.
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
  // Each size that a sample of a packed field has, once; else none.
  absl::Span<const ImageSize> field_sizes(size_t field) const {
    return sizes_[field];
  }

 private:
  const Contents contents_;
  std::vector<std::vector<ImageSize>> sizes_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_H_
