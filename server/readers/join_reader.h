// Several sources side by side: sample i of the result is sample i of each.
// Format join.
//
// The path is a directory. Option parts names the sources, FORMAT:PATH with
// commas between, each path below the directory:
// "image_folder:faces,npy:audio". A part's own options, and its split, are
// given with its place before: "0.channels=1", "1.split=train". All parts have
// equally many samples, in one order; which order a format has, its own page
// says.
//
// Fields are those of the parts, in order. Option fields chooses and renames
// them: "image:0.image,label,audio:1.data", where a field alone means the first
// part that has it. Without it, two parts may not have a field of one name.
// Class names are those of the first part that has some. No splits.
//
// Formats that can be parts are those that read samples in any order:
// image_folder, image_csv, webdataset, tfrecord, npy, raw.

#ifndef DATASETD_SERVER_READERS_JOIN_READER_H_
#define DATASETD_SERVER_READERS_JOIN_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

using ReaderOpener = absl::StatusOr<std::unique_ptr<Reader>> (*)(
    const SourceSpec&, const FileSystem&);

// Errors as of OpenReader, with which `open` opens the parts.
absl::StatusOr<std::unique_ptr<Reader>> OpenJoinReader(const SourceSpec& spec,
                                                       const FileSystem& files,
                                                       ReaderOpener open);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_JOIN_READER_H_
