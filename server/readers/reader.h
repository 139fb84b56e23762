// Turns one on-disk format into samples.
//
// A Reader is opened on a source, says what it holds before it reads samples,
// and then hands out the samples in order. It checks everything that the
// source declares before it believes it: an error names the file and, where
// there is one, the offset, and memory is bounded by what the file really
// holds. Not thread-safe.

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
  // What one compressed file may inflate to, whatever the options say.
  int64_t max_inflated_bytes = std::numeric_limits<int64_t>::max();
  // Pays for the samples that are looked at when the source is opened.
  DecodeAccount account = {};
};

using Reader = SampleSource;

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_READER_H_
