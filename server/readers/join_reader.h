// Format join: several sources side by side; sample i combines sample i of
// each.
//
// The path is a directory. Option parts lists the sources, FORMAT:PATH
// separated by commas, each path below the directory:
// "image_folder:faces,npy:audio". A part's options and split are prefixed with
// its index: "0.channels=1", "1.split=train". All parts have the same number of
// samples; each format defines its order of samples.
//
// Fields are those of the parts, in order. Option fields selects and renames
// them: "image:0.image,label,audio:1.data", where a bare field means the first
// part that has it. Without the option, field names must be unique over all
// parts. Class names are those of the first part that has any. No splits.
//
// Parts must be of formats that read samples in any order: image_folder,
// image_csv, webdataset, tfrecord, npy, raw.

#ifndef DATASETD_SERVER_READERS_JOIN_READER_H_
#define DATASETD_SERVER_READERS_JOIN_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

using ReaderOpener = absl::StatusOr<std::unique_ptr<Reader>> (*)(
    const SourceSpec&, const FileSystem&);

// Opens the parts with `open`. Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenJoinReader(const SourceSpec& spec,
                                                       const FileSystem& files,
                                                       ReaderOpener open);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_JOIN_READER_H_
