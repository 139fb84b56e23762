// Opens a source and reads all of it, within stated bounds.

#ifndef DATASETD_TESTS_SERVER_READERS_READ_ALL_H_
#define DATASETD_TESTS_SERVER_READERS_READ_ALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd::testing {

// No plain reader may declare more bytes than this many times those of its
// files.
inline constexpr int64_t kMaxExpansion = 1032;

struct AllSamples {
  SourceInfo info;
  std::vector<std::string> fields;
};

// Reads `block` samples at a time, from the last block to the first. Ragged
// samples stand one after the other, each in its own size. The path is before
// the error of an encoded sample. INTERNAL if the reader breaks its own
// contract: bad fields, or more bytes declared than its files can hold.
absl::StatusOr<AllSamples> ReadAll(const v1::DatasetSpec& spec,
                                   const FileSystem& files, int64_t block);

// The fields of one sample. Thread-safe.
absl::StatusOr<std::vector<std::string>> ReadSample(SampleSource& source,
                                                    int64_t index);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_READ_ALL_H_
