// Tar shards, as WebDataset has them: format webdataset.
//
// The path is a tar file or a pattern of them, DIR/train-{000..146}.tar.
// Members that follow one another and are alike up to the first dot of their
// base name are one sample: a/0001.jpg, a/0001.cls, a/0001.seg.png. What
// follows the dot, in small letters, tells the field; by default
//
//   jpg jpeg png bmp                             image, field `image`
//   cls                                          int64 [], field `label`
//   cls2 class count index inx id                int64 [], field of that name
//   npy                                          array, field `data`
//   X.jpg, X.cls, X.npy, ...                     likewise, field X
//
// as the first sample has them, images first; others, such as json and txt, are
// left out. Option fields says it: "image:jpg;png,label:cls,audio:npy" names
// fields and, with semicolons between, the endings that each is made of. A
// sample without one of its fields is a bad sample. Arrays are a sample's, and
// have the dtype and shape of the first. Options beside: those of
// image_options.h and shard_files.h. No splits: a split is a pattern.
//
// Members may be anywhere, but their names neither absolute nor with "..". The
// whole archives are walked at the start; 16 bytes for each field of each
// sample are held. Archives may be gzip, whatever their names end in:
// inflated_file.h.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_
#define DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader, and of tar_walker.h.
absl::StatusOr<std::unique_ptr<Reader>> OpenWebdatasetReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_
