// Reads samples from one on-disk format.
//
// A Reader is opened on a source, describes its contents, and then returns the
// samples in order. It verifies everything that the source declares: an error
// names the file and, where possible, the offset, and memory is bounded by the
// real size of the file. Not thread-safe.

#ifndef DATASETD_SERVER_READERS_READER_H_
#define DATASETD_SERVER_READERS_READER_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/dataset/sample_source.h"
#include "server/files/file_system.h"
#include "server/load/decode_budget.h"

namespace datasetd {

struct SourceSpec {
  std::string format;
  std::string path;   // absolute
  std::string split;  // empty: the reader's default
  std::map<std::string, std::string> options;
  // Limit on the inflated size of a compressed file; overrides the options.
  int64_t max_inflated_bytes = std::numeric_limits<int64_t>::max();
  // Pays for the samples that are looked at when the source is opened.
  DecodeAccount account = {};
};

using Reader = SampleSource;

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_READER_H_
