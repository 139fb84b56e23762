#include "server/load/replicate.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/nvtx_range.h"
#include "base/status_macros.h"
#include "cuda/backend/device_failure.h"
#include "server/dataset/load_cancelled.h"

namespace datasetd {
namespace {

// A cancelled copy ends after this much.
constexpr int64_t kPeerChunkBytes = int64_t{64} << 20;
constexpr int64_t kStagedChunkBytes = int64_t{8} << 20;
// One is written to while the other is read.
constexpr int kNumCopyBuffers = 2;

class Replicator {
 public:
  Replicator(Backend& from, Backend& to, LoadCounters& counters,
             const DecodeAccount& account)
      : from_(from),
        to_(to),
        reads_peer_(to.CanReadPeer(from)),
        counters_(counters),
        account_(account),
        share_(account.staging, account.uid) {}
  ~Replicator() { counters_.SetStreams({}); }

  absl::Status Allocate() {
    const StreamOptions options = {.uid = account_.uid, .is_background = true};
    DATASETD_ASSIGN_OR_RETURN(writer_, to_.CreateStream(nullptr, options));
    std::vector<Stream*> streams = {writer_.get()};
    if (reads_peer_) {
      // Refused where a GPU has as many peers as it can have.
      const absl::Status status = to_.ReadPeer(from_);
      if (IsDeviceFailure(status)) return status;
      reads_peer_ = status.ok();
    }
    if (!reads_peer_) {
      DATASETD_RETURN_IF_ERROR(share_.Take(kNumCopyBuffers * kStagedChunkBytes,
                                           &counters_.is_cancelled));
      for (std::unique_ptr<HostMemory>& buffer : buffers_) {
        DATASETD_ASSIGN_OR_RETURN(buffer, to_.AllocateHost(kStagedChunkBytes));
      }
      DATASETD_ASSIGN_OR_RETURN(reader_, from_.CreateStream(nullptr, options));
      streams.push_back(reader_.get());
    }
    counters_.SetStreams(std::move(streams));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Copy(const uint8_t* from,
                                                     int64_t size_bytes) {
    DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory,
                              to_.Allocate(static_cast<size_t>(size_bytes)));
    absl::Status status = reads_peer_
                              ? CopyFromPeer(memory->data(), from, size_bytes)
                              : CopyStaged(memory->data(), from, size_bytes);
    if (status.ok()) status = CheckNotCancelled(counters_.is_cancelled);
    if (status.ok()) return memory;
    // Memory must not go before the copies to it.
    (void)writer_->Synchronize();
    return status;
  }

 private:
  absl::Status CopyFromPeer(uint8_t* to, const uint8_t* from,
                            int64_t size_bytes) {
    for (int64_t at = 0; at < size_bytes; at += kPeerChunkBytes) {
      DATASETD_RETURN_IF_ERROR(CheckNotCancelled(counters_.is_cancelled));
      const int64_t count = std::min(kPeerChunkBytes, size_bytes - at);
      DATASETD_RETURN_IF_ERROR(writer_->CopyFromPeer(
          to + at, from + at, static_cast<size_t>(count)));
      DATASETD_RETURN_IF_ERROR(writer_->Synchronize());
    }
    return absl::OkStatus();
  }

  absl::Status CopyStaged(uint8_t* to, const uint8_t* from,
                          int64_t size_bytes) {
    int turn = 0;
    for (int64_t at = 0; at < size_bytes; at += kStagedChunkBytes) {
      DATASETD_RETURN_IF_ERROR(CheckNotCancelled(counters_.is_cancelled));
      const auto count =
          static_cast<size_t>(std::min(kStagedChunkBytes, size_bytes - at));
      uint8_t* const buffer = buffers_[turn++ % kNumCopyBuffers]->data();
      // While the writer copies the other buffer.
      DATASETD_RETURN_IF_ERROR(reader_->CopyToHost(buffer, from + at, count));
      DATASETD_RETURN_IF_ERROR(reader_->Synchronize());
      DATASETD_RETURN_IF_ERROR(writer_->Synchronize());
      DATASETD_RETURN_IF_ERROR(writer_->CopyToDevice(to + at, buffer, count));
    }
    return writer_->Synchronize();
  }

  Backend& from_;
  Backend& to_;
  bool reads_peer_;
  LoadCounters& counters_;
  const DecodeAccount& account_;
  DecodeBudget::Share share_;
  std::unique_ptr<HostMemory> buffers_[kNumCopyBuffers];
  // Last, so that they are destroyed first and wait for pending work.
  std::unique_ptr<Stream> writer_;
  std::unique_ptr<Stream> reader_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> Replicate(
    const Dataset& dataset, Backend* backend, Reservation&& reservation,
    LoadCounters& counters, const DecodeAccount& account) {
  const NvtxRange range("replicate");
  Dataset::Contents contents;
  contents.name = dataset.name();
  contents.backend = backend;
  contents.num_samples = dataset.num_samples();
  contents.fields = dataset.fields();
  contents.content_hash = dataset.content_hash();
  Replicator replicator(dataset.backend(), *backend, counters, account);
  DATASETD_RETURN_IF_ERROR(replicator.Allocate());
  for (size_t f = 0; f < contents.fields.size(); ++f) {
    DATASETD_ASSIGN_OR_RETURN(
        contents.memory.emplace_back(),
        replicator.Copy(dataset.field_data(f), dataset.field_bytes(f)));
    Dataset::Contents::Packed& packed = contents.packed.emplace_back();
    if (const RaggedIndex* const index = dataset.field_index(f)) {
      packed.index = *index;
      DATASETD_ASSIGN_OR_RETURN(
          packed.memory, replicator.Copy(reinterpret_cast<const uint8_t*>(
                                             dataset.field_index_data(f)),
                                         index->index_bytes()));
    }
  }
  contents.reservations.push_back(std::move(reservation));
  return std::make_shared<const Dataset>(std::move(contents));
}

}  // namespace datasetd
