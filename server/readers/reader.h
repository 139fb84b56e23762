// Reads samples from one on-disk format.
//
// A Reader is opened on a source, describes its contents, and then returns its
// samples. It verifies everything that the source declares: an error names the
// file and, where possible, the offset, and memory is bounded by the real size
// of the file.

#ifndef DATASETD_SERVER_READERS_READER_H_
#define DATASETD_SERVER_READERS_READER_H_

#include <cstdint>
#include <limits>

#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/files/file_system.h"

namespace datasetd {

// The input of a reader that is not in the request. Of the request it uses
// format, path, split and options.
struct ReaderContext {
  const FileSystem& files;  // outlives the reader
  // Limit on the inflated size of a compressed file; overrides the options.
  int64_t max_inflated_bytes = std::numeric_limits<int64_t>::max();
  // Pays for the samples that are looked at when the source is opened.
  DecodeAccount account = {};
};

using Reader = SampleSource;

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_READER_H_
