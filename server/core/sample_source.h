// Samples in order: what a dataset is loaded from. Readers
// (server/readers/reader.h) are sample sources. Not thread-safe.

#ifndef DATASETD_SERVER_CORE_SAMPLE_SOURCE_H_
#define DATASETD_SERVER_CORE_SAMPLE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/core/field_spec.h"
#include "server/core/file_system.h"

namespace datasetd {

struct SourceInfo {
  int64_t num_samples = 0;
  std::vector<FieldSpec> fields;         // at least one, names unique
  std::vector<std::string> class_names;  // may be empty
  std::vector<FileInfo> files;           // all that was or will be read
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const SourceInfo& info() const = 0;

  // Reads the next `count` samples: field f of them, contiguous, to
  // fields[f], whose size is count * info().fields[f].sample_bytes().
  // REQUIRES: count samples are left.
  //   DATA_LOSS         truncated or damaged; names file and offset
  //   INVALID_ARGUMENT  a value out of its range, such as a label
  virtual absl::Status Read(
      int64_t count, absl::Span<const absl::Span<uint8_t>> fields) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_SAMPLE_SOURCE_H_
