// N samples resident in one device's memory. Immutable.
//
// Shared by the registry and by every feed that draws from it: the memory goes
// back when the last of them lets go. Thread-safe.

#ifndef DATASETD_SERVER_CORE_DATASET_H_
#define DATASETD_SERVER_CORE_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/backend.h"
#include "server/core/bad_samples.h"
#include "server/core/field_spec.h"
#include "server/core/memory_budget.h"

namespace datasetd {

class Dataset {
 public:
  struct Contents {
    std::string name;
    Backend* backend = nullptr;  // outlives the dataset
    int64_t num_samples = 0;
    std::vector<FieldSpec> fields;
    // One for each field: samples back to back.
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    std::string content_hash;  // hex
    BadSampleReport bad_samples;  // skipped or replaced
    Reservation reservation;
  };

  explicit Dataset(Contents contents) : contents_(std::move(contents)) {}
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

 private:
  const Contents contents_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_DATASET_H_
