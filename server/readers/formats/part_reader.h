// Option part of every format: a part of a source's samples, for datasets that
// are divided over nodes.

#ifndef DATASETD_SERVER_READERS_FORMATS_PART_READER_H_
#define DATASETD_SERVER_READERS_FORMATS_PART_READER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

inline constexpr char kPartOption[] = "part";

// `text` is "i,j,.../n": parts i, j, ... of n, 0 <= i < j < ... < n. Of an
// encoded source part i has samples i, i + n, i + 2n, ...; of a plain one, the
// samples from i N / n up to (i + 1) N / n, both rounded down, where N is their
// number. Samples keep their order.
//   INVALID_ARGUMENT  the text is not as above; or there is no such sample
absl::StatusOr<std::unique_ptr<Reader>> TakePart(std::unique_ptr<Reader> whole,
                                                 const std::string& text);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FORMATS_PART_READER_H_
