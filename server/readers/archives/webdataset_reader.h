// Format webdataset: tar shards as written by WebDataset.
//
// The path is a tar file or a pattern, DIR/train-{000..146}.tar. Consecutive
// members whose names are equal up to the first dot of the base name form one
// sample: a/0001.jpg, a/0001.cls, a/0001.seg.png. The rest of the name, in
// lower case, selects the field; by default:
//
//   jpg jpeg png bmp                   image, field `image`
//   cls                                int64 [], field `label`
//   cls2 class count index inx id      int64 [], field of that name
//   npy                                array, field `data`
//   X.jpg, X.cls, X.npy, ...           likewise, field X
//
// as found in the first sample, images first; other members, such as json and
// txt, are ignored. Option fields overrides this:
// "image:jpg;png,label:cls,audio:npy" lists fields with their endings,
// separated by semicolons. A sample that lacks a field is a bad sample. An
// array is one sample's, and has the dtype and shape of the first sample's.
// Also accepts the options of image_options.h and shard_files.h. No splits: a
// split is a pattern.
//
// Members may be in any directory, but names must not be absolute or contain
// "..". The archives are scanned completely at open; holds 16 bytes per field
// and sample. Archives may be gzip under any name (inflated_file.h).

#ifndef DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_
#define DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader and tar_walker.h.
absl::StatusOr<std::unique_ptr<Reader>> OpenWebdatasetReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_
