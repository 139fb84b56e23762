// A source whose samples somebody sends: the fields of one sample after those
// of another, in blocks cut anywhere.
//
// Holds one block. Not thread-safe; Read waits for the sender.

#ifndef DATASETD_SERVER_LOAD_PUSHED_SOURCE_H_
#define DATASETD_SERVER_LOAD_PUSHED_SOURCE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/ragged_index.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

class PushedSource : public SampleSource {
 public:
  // Waits for the next block and leaves it in its argument; false at the end.
  using NextBlock = std::function<absl::StatusOr<bool>(std::string*)>;

  // `info` as CheckPushedInfo has found right.
  PushedSource(SourceInfo info, NextBlock next_block);

  const SourceInfo& info() const override { return info_; }

  //   INVALID_ARGUMENT  a size is none, or larger than the header said; or they
  //                     have together other pixels
  absl::StatusOr<RaggedIndex> ReadIndex(size_t field) override;

  //   INVALID_ARGUMENT  the blocks end before, or go on after, the last sample
  //   any error of next_block
  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override;

 private:
  absl::Status Copy(absl::Span<uint8_t> to);
  // Leaves is_ended_ or a block that is not empty.
  absl::Status FillBlock();

  const SourceInfo info_;
  const NextBlock next_block_;
  std::string block_;
  size_t block_offset_ = 0;
  bool is_ended_ = false;
  int64_t position_ = 0;
  // Of packed fields, as ReadIndex returned them.
  std::vector<std::optional<RaggedIndex>> indices_;
};

// Checks what a client says that it is going to send, and completes packed
// fields by packed_bytes.
//   INVALID_ARGUMENT  no sample, no field, too many; a field's name, dtype or
//                     shape; names the field
absl::Status CheckPushedInfo(SourceInfo* info);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_PUSHED_SOURCE_H_
