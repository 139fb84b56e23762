// A dataset: N samples in the memory of one device, of several, or in pinned
// host memory that they read. Or a mixture (mixture.h): the samples of several
// such datasets, one after another, which has no memory of its own. Immutable.
//
// Shared by the registry and the feeds that draw from it; the memory is freed
// with the last reference. Thread-safe.

#ifndef DATASETD_SERVER_DATASET_DATASET_H_
#define DATASETD_SERVER_DATASET_DATASET_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/field_memory.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/load_notes.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/ragged_index.h"
#include "server/files/mapped_file.h"

namespace datasetd {

class Dataset {
 public:
  struct Contents {
    // For the memory below. Declared first, so that they are destroyed last.
    std::vector<Reservation> reservations;
    std::string name;
    // The first device's, where feeds run unless they ask for another one.
    // Backends outlive the dataset.
    Backend* backend = nullptr;
    // All devices where feeds may run; empty: the first alone.
    std::vector<Backend*> backends;
    int64_t num_samples = 0;
    std::vector<FieldSpec> fields;
    // One per field: samples back to back, or at the places given by the index.
    std::vector<FieldMemory> memory;
    // Empty, or one per field; set for packed fields only.
    struct Packed {
      std::optional<RaggedIndex> index;
      // The index's samples, where the field lies whole on the device.
      std::unique_ptr<DeviceMemory> memory;
    };
    std::vector<Packed> packed;
    // The file that the memory is mapped from; else null.
    std::shared_ptr<const MappedFile> file;
    std::string content_hash;     // hex
    BadSampleReport bad_samples;  // skipped or replaced
    std::vector<LoadNote> notes;
    // Of a mixture, whose memory and packed are empty. Else empty.
    std::vector<std::shared_ptr<const Dataset>> parts;
  };
  // Where a sample is: in this dataset, or a mixture's part.
  struct Place {
    const Dataset* dataset = nullptr;
    int64_t index = 0;  // within it
  };

  explicit Dataset(Contents contents) : contents_(std::move(contents)) {
    sizes_.resize(contents_.fields.size());
    value_ranges_.resize(contents_.fields.size());
    for (FieldMemory& memory : contents_.memory) {
      memory.SetBackend(contents_.backend);
    }
    if (contents_.backends.empty()) contents_.backends = {contents_.backend};
    for (size_t f = 0; f < contents_.packed.size(); ++f) {
      if (field_index(f) != nullptr) {
        sizes_[f] = field_index(f)->DistinctSizes();
      }
    }
    int64_t end = 0;
    for (const auto& part : contents_.parts) {
      part_ends_.push_back(end += part->num_samples());
      for (size_t f = 0; f < sizes_.size(); ++f) {
        const absl::Span<const ImageSize> sizes = part->field_sizes(f);
        sizes_[f].insert(sizes_[f].end(), sizes.begin(), sizes.end());
      }
    }
    if (contents_.parts.empty()) return;
    for (std::vector<ImageSize>& sizes : sizes_) KeepDistinct(sizes);
  }
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  const std::string& name() const { return contents_.name; }
  Backend& backend() const { return *contents_.backend; }
  const std::vector<Backend*>& backends() const { return contents_.backends; }
  int64_t num_samples() const { return contents_.num_samples; }
  const std::vector<FieldSpec>& fields() const { return contents_.fields; }
  const std::string& content_hash() const { return contents_.content_hash; }
  const BadSampleReport& bad_samples() const { return contents_.bad_samples; }
  const std::vector<LoadNote>& notes() const { return contents_.notes; }
  // Empty unless this is a mixture.
  const std::vector<std::shared_ptr<const Dataset>>& parts() const {
    return contents_.parts;
  }
  // REQUIRES: 0 <= sample < num_samples().
  Place Locate(int64_t sample) const {
    if (parts().empty()) return {this, sample};
    const auto end =
        std::upper_bound(part_ends_.begin(), part_ends_.end(), sample);
    const auto part = static_cast<size_t>(end - part_ends_.begin());
    return {parts()[part].get(),
            part == 0 ? sample : sample - part_ends_[part - 1]};
  }
  // DATA_LOSS once samples could not be read from the dataset's mapped file, or
  // that of a part: then nothing that was made from them may be used.
  absl::Status status() const {
    absl::Status status =
        file() == nullptr ? absl::OkStatus() : file()->status();
    for (const auto& part : parts()) status.Update(part->status());
    return status;
  }
  // Null unless the samples are in a mapped file; of a mixture always.
  const MappedFile* file() const { return contents_.file.get(); }
  bool has_mapped_files() const {
    return file() != nullptr ||
           std::any_of(parts().begin(), parts().end(), [](const auto& part) {
             return part->file() != nullptr;
           });
  }
  // REQUIRES: not a mixture.
  const FieldMemory& field_memory(size_t field) const {
    return contents_.memory[field];
  }
  // True if a field's samples, of each part of a mixture, lie in one memory of
  // that device.
  bool IsFieldWholeOn(size_t field, const Backend& backend) const {
    if (parts().empty()) return field_memory(field).IsWholeOn(backend);
    return std::all_of(parts().begin(), parts().end(), [&](const auto& part) {
      return part->field_memory(field).IsWholeOn(backend);
    });
  }
  // Bytes of a field's samples.
  int64_t field_bytes(size_t field) const {
    int64_t bytes = 0;
    for (const auto& part : parts()) bytes += part->field_bytes(field);
    if (!parts().empty()) return bytes;
    return fields()[field].is_packed()
               ? field_index(field)->size_bytes()
               : num_samples() * fields()[field].sample_bytes();
  }
  // Device address of a field's sample 0; null unless
  // IsFieldWholeOn(field, backend()), and of a mixture.
  const uint8_t* field_data(size_t field) const {
    return parts().empty() ? contents_.memory[field].data() : nullptr;
  }
  // The index of a packed field and its device address; null for other fields,
  // and the address also unless IsFieldWholeOn(field, backend()), and of a
  // mixture. The index REQUIRES: not a mixture.
  const RaggedIndex* field_index(size_t field) const {
    return fields()[field].is_packed() ? &*contents_.packed[field].index
                                       : nullptr;
  }
  const RaggedSample* field_index_data(size_t field) const {
    return fields()[field].is_packed() && parts().empty() &&
                   contents_.packed[field].memory != nullptr
               ? reinterpret_cast<const RaggedSample*>(
                     contents_.packed[field].memory->data())
               : nullptr;
  }
  // The distinct sizes of a packed field's samples; empty for other fields.
  absl::Span<const ImageSize> field_sizes(size_t field) const {
    return sizes_[field];
  }

  struct ValueRange {
    int64_t smallest = std::numeric_limits<int64_t>::max();
    int64_t largest = std::numeric_limits<int64_t>::min();
  };
  // The range of a field's values. The first call finds it by `find`, for which
  // others wait; an error is returned, and not kept.
  template <typename Find>
  absl::StatusOr<ValueRange> ValueRangeOf(size_t field, Find find) const {
    MutexLock lock(&mutex_);
    std::optional<ValueRange>& range = value_ranges_[field];
    if (!range.has_value()) {
      DATASETD_ASSIGN_OR_RETURN(range, find());
    }
    return *range;
  }

 private:
  static void KeepDistinct(std::vector<ImageSize>& sizes) {
    std::sort(
        sizes.begin(), sizes.end(), [](const ImageSize& a, const ImageSize& b) {
          return std::pair(a.height, a.width) < std::pair(b.height, b.width);
        });
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  }

  Contents contents_;               // not changed after construction
  std::vector<int64_t> part_ends_;  // in samples
  std::vector<std::vector<ImageSize>> sizes_;
  mutable Mutex mutex_;
  mutable std::vector<std::optional<ValueRange>> value_ranges_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_H_
