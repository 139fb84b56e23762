// Copies the samples of a feed's batches to scratch memory of the device that
// the feed runs on, where the dataset does not lie whole in its memory. The
// augment kernels then read the scratch memory alone.
//
// The scratch memory has two halves, which launches use in turn: one is filled
// while a launch reads the other. A half has a place for each row, of the size
// of a sample. Samples of a packed field lie one after the other in the rest;
// if those of a batch do not fit, they are staged some rows at a time.
//
// Which sample lies where is looked up here, and the device is given a list of
// copies. A list takes a millisecond at most, as other feeds wait meanwhile: a
// batch that needs a longer one is staged some rows at a time, too.
//
// Belongs to its feed, and is not thread-safe either. Allocates only in Create.
// REQUIRES for destruction: no launch reads the scratch memory.

#ifndef DATASETD_SERVER_FEED_STAGER_H_
#define DATASETD_SERVER_FEED_STAGER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/backend/backend.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"
#include "server/dataset/dataset.h"

namespace datasetd {

// The memory of a Stager, planned before it is taken. By default: none needed.
struct StagingPlan {
  struct Field {
    size_t source = 0;  // the dataset's field
    int64_t sample_bytes = 0;
    int64_t row_bytes = 0;    // of a sample, or a window of them
    int64_t place_bytes = 0;  // of one row; 0: packed
  };
  std::vector<Field> fields;
  // By field of the program: its field above, and where it begins in a place.
  std::vector<size_t> field_of;
  std::vector<int64_t> shift_bytes;
  bool has_mix = false;
  int64_t batch_size = 0;
  int max_batches = 0;       // of a launch
  int64_t num_places = 0;    // of a half
  int64_t packed_bytes = 0;  // of a half, for all packed fields
  int64_t num_copies = 0;    // of a half's list, at most

  bool is_needed() const { return !fields.empty(); }
  // Memory of the device.
  int64_t size_bytes() const;
};

// Rows that are windows of samples (FeedFields::shifts, WindowPlan::num_steps).
struct StagedWindows {
  std::vector<int64_t> shifts;  // by field of the program; empty: all 0
  int64_t num_steps = 1;
};

// `sources` are the dataset's fields of `program`, one for each. REQUIRES: the
// fields of windows have one extent.
StagingPlan PlanStaging(const Dataset& dataset, const Backend& backend,
                        absl::Span<const size_t> sources,
                        const AugmentProgram& program, int64_t batch_size,
                        int64_t num_slots, const StagedWindows& windows = {});

class Stager {
 public:
  // `on_done` as for Backend::CreateStream. The dataset outlives it. REQUIRES:
  // plan.is_needed().
  static absl::StatusOr<std::unique_ptr<Stager>> Create(
      const StagingPlan& plan, const Dataset& dataset, Backend& backend,
      uint32_t uid, std::function<void()> on_done);
  // Lets `program` read the places.
  void SetSources(AugmentProgram* program) const;

  int max_batches() const { return plan_.max_batches; }
  // The half that the launch uses, 0 or 1.
  int half() const { return half_; }
  Stream& stream() { return *stream_; }

  // Begins a launch of these batches, whose indices are those of samples, in
  // host memory that stays unchanged until the launch has ended. REQUIRES: at
  // most one launch before it still reads its samples.
  void Begin(absl::Span<const BatchTask> tasks);
  // Once the indices name their copies on the device: makes them `samples`, and
  // the places `indices`.
  void NamePlaces(absl::Span<BatchTask> tasks) const;
  // True if the launch can go on from this row of its only batch; or, of
  // several, if their samples were staged.
  bool IsStaged(int32_t row) const { return row < staged_end_; }
  // The first row that was not staged.
  int32_t staged_end() const { return staged_end_; }
  // Enqueues the copies of samples from `row` on, as many as fit into memory
  // and list. What was staged of the batch's earlier rows stays, except packed
  // samples. REQUIRES: no launch reads this half.
  absl::Status Stage(int32_t row);

 private:
  Stager(const StagingPlan& plan, const Dataset& dataset)
      : plan_(plan), dataset_(dataset) {}
  absl::Status Allocate(Backend& backend);
  void Add(const Dataset& dataset, size_t field, int64_t offset_bytes,
           int64_t size_bytes, uint8_t* to);
  // Adds a row's samples of fields of one size.
  void AddPlaces(size_t batch, int32_t row);
  // Adds the packed samples of a row of the only batch. Returns false if they
  // do not fit any more.
  bool AddPacked(int32_t row);
  // Copies the RaggedSamples of these rows to the device.
  absl::Status CopyRagged(int32_t begin, int32_t end);
  uint8_t* PlaceOf(size_t field, int64_t place) const {
    return areas_[field] + place * plan_.fields[field].place_bytes;
  }

  const StagingPlan plan_;
  const Dataset& dataset_;

  std::unique_ptr<DeviceMemory> memory_;
  // In memory_: for each field its places, or RaggedSamples; the packed
  // samples; 0, 1, 2, ...; and the lists.
  std::vector<uint8_t*> areas_;
  uint8_t* packed_ = nullptr;
  int64_t* places_ = nullptr;
  StageCopy* device_copies_ = nullptr;
  // Copied to the device: both lists, and the RaggedSamples of each field.
  std::unique_ptr<HostMemory> host_;
  StageCopy* copies_ = nullptr;
  std::vector<RaggedSample*> ragged_;

  std::vector<const int64_t*> rows_;  // of the launch's batches
  std::vector<int32_t> num_rows_;
  int half_ = 0;
  int32_t staged_end_ = 0;
  int64_t num_copies_ = 0;   // in this half's list
  int64_t packed_used_ = 0;  // of this half
  // Last, so that it is destroyed first and waits for pending work.
  std::unique_ptr<Stream> stream_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_STAGER_H_
