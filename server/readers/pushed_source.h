// A source whose samples a client sends, sample by sample with all fields of
// one together, in blocks split anywhere.
//
// Buffers one block. Not thread-safe; Read waits for the sender.

#ifndef DATASETD_SERVER_READERS_PUSHED_SOURCE_H_
#define DATASETD_SERVER_READERS_PUSHED_SOURCE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/ragged_index.h"
#include "server/dataset/sample_source.h"
#include "server/readers/list_memory.h"

namespace datasetd {

class PushedSource : public SampleSource {
 public:
  // Waits for the next block and stores it in the argument; false at the end.
  using NextBlock = std::function<absl::StatusOr<bool>(std::string*)>;

  // The account pays for the sizes of packed fields' samples. REQUIRES:
  // CheckPushedInfo accepted `info`.
  PushedSource(SourceInfo info, NextBlock next_block,
               const DecodeAccount& account = DecodeAccount());

  const SourceInfo& info() const override { return info_; }

  //   INVALID_ARGUMENT    a size is invalid or larger than the header declared,
  //                       or the total differs from the declared one
  //   RESOURCE_EXHAUSTED  the user may not have so much host memory
  absl::StatusOr<RaggedIndex> ReadIndex(size_t field) override;

  // REQUIRES: `first` is the end of the last Read. INVALID_ARGUMENT if the
  // blocks end before the last sample or continue after it; also any error of
  // next_block.
  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override;

 private:
  absl::Status Copy(absl::Span<uint8_t> to);
  // On success, is_ended_ is set or a non-empty block is buffered.
  absl::Status FillBlock();

  SourceInfo info_;
  const NextBlock next_block_;
  std::string block_;
  size_t block_offset_ = 0;
  bool is_ended_ = false;
  int64_t position_ = 0;
  // For packed fields, as returned by ReadIndex.
  std::vector<std::optional<RaggedIndex>> indices_;
  ListMemory index_memory_;
  int64_t index_bytes_ = 0;
};

// Checks what a client declares that it will send, sets packed_bytes of packed
// fields, and escapes the notes. `is_encoded` says by field whether it comes as
// files; empty: none does.
//   INVALID_ARGUMENT  no sample, no field or too many of either; or a bad field
//                     name, dtype or shape; names the field
absl::Status CheckPushedInfo(SourceInfo* info,
                             const std::vector<bool>& is_encoded = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_PUSHED_SOURCE_H_
