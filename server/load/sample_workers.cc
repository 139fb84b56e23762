#include "server/load/sample_workers.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "server/dataset/load_cancelled.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {
namespace {

// Encoded samples take long.
constexpr int64_t kMaxEncodedAtOnce = 32;
constexpr int64_t kMaxPlainAtOnce = 4096;
// Less would be many calls of the source.
constexpr int64_t kMinPlainBytes = 256 << 10;
// So many samples have a multiple of an aligned output's size in bytes.
constexpr int64_t kAlignedSamples = AlignedBuffer::kAlignment;

ParallelFor::Options OptionsOf(const SampleSource& source, int num_threads) {
  ParallelFor::Options options = {.thread_name = "decode",
                                  .num_threads = num_threads,
                                  .max_at_once = kMaxEncodedAtOnce};
  if (!source.info().is_encoded) {
    int64_t sample_bytes = 1;
    for (const FieldSpec& field : source.info().fields) {
      if (field.is_packed()) continue;
      sample_bytes = SaturatingAdd(sample_bytes, field.sample_bytes());
    }
    options.max_at_once = kMaxPlainAtOnce;
    options.min_at_once =
        std::clamp<int64_t>(kMinPlainBytes / sample_bytes, 1, kMaxPlainAtOnce);
    options.alignment = kAlignedSamples;
  }
  return options;
}

void ShrinkTo(size_t size_bytes, std::vector<uint8_t>& bytes) {
  if (bytes.capacity() > size_bytes) std::vector<uint8_t>().swap(bytes);
}

}  // namespace

// Cancels the pretransforms of a sample.
class SampleWorkers::Run final : public HostRun {
 public:
  explicit Run(const SampleWorkers* workers) : workers_(*workers) {
    SetWish(kPause);
  }
  bool Pause() override {
    return !workers_.is_cancelled_->load(std::memory_order_relaxed) &&
           !workers_.is_ending_.load(std::memory_order_relaxed);
  }

 private:
  const SampleWorkers& workers_;
};

// The buffers of one thread.
class SampleWorkers::Worker {
 public:
  explicit Worker(SampleWorkers* workers)
      : workers_(*workers), run_(workers), buffers_(workers->fields_->size()) {
    for (const auto& field : *workers_.fields_) {
      runners_.emplace_back(field.get());
      has_transforms_ = has_transforms_ || !field->is_identity();
    }
  }

  void Work(int64_t begin, int64_t end) {
    const ScopedHostRun scoped_run(&run_);
    Started& started = workers_.ChunkOf(begin);
    const SourceInfo& info = workers_.source_->info();
    if (!info.is_encoded) {
      absl::Status read = info.is_sequential ? ReadInTurn(started, begin, end)
                                             : Read(started, begin, end);
      begin -= started.first;
      end -= started.first;
      if (read.ok()) {
        read = Guarded([&](DecodeBudget::Share& share) {
          return Transform(started.chunk, begin, end, share);
        });
      }
      started.statuses[static_cast<size_t>(begin)] = std::move(read);
      return;
    }
    begin -= started.first;
    end -= started.first;
    for (int64_t row = begin; row < end; ++row) {
      started.statuses[static_cast<size_t>(row)] =
          Guarded([&](DecodeBudget::Share& share) {
            return Decode(started, row, share);
          });
    }
  }

 private:
  template <typename F>
  absl::Status Guarded(F make) {
    DATASETD_RETURN_IF_ERROR(CheckNotCancelled(*workers_.is_cancelled_));
    DecodeBudget::Share share(workers_.account_.budget, workers_.account_.uid);
    absl::Status status = make(share);
    // Before the memory is released from the budget.
    KeepAtMost(kMaxKeptDecodeBytes);
    return status;
  }

  // Waits until all samples before `begin` were read, which other threads do,
  // and reads these. Reads nothing after an error.
  absl::Status ReadInTurn(const Started& started, int64_t begin, int64_t end) {
    const auto is_turn = [&]() ABSL_SHARED_LOCKS_REQUIRED(workers_.mutex_) {
      return workers_.num_read_ == begin;
    };
    absl::Status status = absl::CancelledError("an earlier sample failed");
    bool has_failed = false;
    {
      MutexLock lock(&workers_.mutex_, Condition(&is_turn));
      has_failed = workers_.has_read_failed_;
    }
    if (!has_failed) status = Read(started, begin, end);
    MutexLock lock(&workers_.mutex_);
    workers_.num_read_ = end;
    workers_.has_read_failed_ = !status.ok();
    return status;
  }

  // Reads samples of a plain source to their rows, or to the inputs of their
  // pretransforms.
  absl::Status Read(const Started& started, int64_t begin, int64_t end) {
    DATASETD_RETURN_IF_ERROR(CheckNotCancelled(*workers_.is_cancelled_));
    const Chunk& chunk = started.chunk;
    const int64_t first = begin - started.first;
    const int64_t last = end - started.first;
    places_.clear();
    for (size_t f = 0; f < runners_.size(); ++f) {
      const SampleTransform& transform = TransformOf(f);
      if (!transform.is_identity()) {
        places_.push_back(
            Rows(chunk.inputs[f], transform.source(), first, last));
      } else if (!transform.resident().is_packed()) {
        places_.push_back(
            Rows(chunk.fields[f], transform.resident(), first, last));
      } else {
        const std::vector<RaggedSample>& places = chunk.places[f];
        const int64_t from = places[static_cast<size_t>(first)].offset_bytes;
        const int64_t to = last < chunk.count
                               ? places[static_cast<size_t>(last)].offset_bytes
                               : static_cast<int64_t>(chunk.fields[f].size());
        places_.push_back(chunk.fields[f].subspan(
            static_cast<size_t>(from), static_cast<size_t>(to - from)));
      }
    }
    return workers_.source_->Read(begin, end - begin, places_);
  }

  // Runs the pretransforms of samples of a plain source, which all have one
  // size.
  absl::Status Transform(const Chunk& chunk, int64_t begin, int64_t end,
                         DecodeBudget::Share& share) {
    if (!has_transforms_) return absl::OkStatus();
    probe_ = SampleProbe();
    DATASETD_RETURN_IF_ERROR(FindSizes());
    DATASETD_ASSIGN_OR_RETURN(const int64_t scratch_bytes, ScratchBytes());
    DATASETD_RETURN_IF_ERROR(share.Take(scratch_bytes));
    for (size_t f = 0; f < runners_.size(); ++f) {
      if (TransformOf(f).is_identity()) continue;
      DATASETD_RETURN_IF_ERROR(runners_[f].Run(
          Rows(absl::Span<const uint8_t>(chunk.inputs[f]),
               TransformOf(f).source(), begin, end),
          sizes_[f],
          Rows(chunk.fields[f], TransformOf(f).resident(), begin, end),
          end - begin));
    }
    return absl::OkStatus();
  }

  template <typename T>
  static absl::Span<T> Rows(absl::Span<T> field, const FieldSpec& spec,
                            int64_t begin, int64_t end) {
    const int64_t size_bytes = spec.sample_bytes();
    return field.subspan(static_cast<size_t>(begin * size_bytes),
                         static_cast<size_t>((end - begin) * size_bytes));
  }

  absl::Status Decode(const Started& started, int64_t row,
                      DecodeBudget::Share& share) {
    const SampleSource& source = *workers_.source_;
    const int64_t index = started.first + row;
    int64_t size_bytes = source.Locate(index).size_bytes;
    while (true) {
      DATASETD_RETURN_IF_ERROR(share.Take(size_bytes));
      DATASETD_RETURN_IF_ERROR(source.Fetch(index, raw_));
      probe_ = SampleProbe();
      DATASETD_RETURN_IF_ERROR(InBytes(source.Probe(index, raw_, probe_)));
      DATASETD_RETURN_IF_ERROR(FindSizes());
      DATASETD_ASSIGN_OR_RETURN(size_bytes, NeededBytes());
      DATASETD_ASSIGN_OR_RETURN(const bool is_enough,
                                share.TryGrowTo(size_bytes));
      if (is_enough) break;
      // Start again with memory for the whole sample.
      KeepAtMost(0);
      share.Release();
    }
    DATASETD_RETURN_IF_ERROR(FindRows(started.chunk, row));
    ChoosePlaces();
    DATASETD_RETURN_IF_ERROR(InBytes(source.Decode(index, raw_, places_)));
    for (size_t f = 0; f < runners_.size(); ++f) {
      if (TransformOf(f).is_identity()) continue;
      DATASETD_RETURN_IF_ERROR(
          runners_[f].Run(places_[f], sizes_[f], rows_[f]));
    }
    if (probe_.has_unapplied_exif) {
      workers_.num_unapplied_exif_.fetch_add(1, std::memory_order_relaxed);
    }
    return absl::OkStatus();
  }

  // Total memory of the sample, including its raw bytes.
  absl::StatusOr<int64_t> NeededBytes() const {
    DATASETD_ASSIGN_OR_RETURN(const int64_t scratch_bytes, ScratchBytes());
    return SaturatingSum(RawBytes(raw_), probe_.decode_bytes, scratch_bytes);
  }

  absl::StatusOr<int64_t> ScratchBytes() const {
    int64_t bytes = 0;
    for (size_t f = 0; f < runners_.size(); ++f) {
      DATASETD_ASSIGN_OR_RETURN(const int64_t scratch_bytes,
                                TransformOf(f).ScratchBytes(sizes_[f]));
      bytes = SaturatingAdd(bytes, scratch_bytes);
    }
    return bytes;
  }

  // Frees the memory of large samples.
  void KeepAtMost(int64_t size_bytes) {
    // A runner has two buffers.
    const size_t num_buffers =
        buffers_.size() + raw_.parts.size() + 2 * runners_.size();
    const size_t share = static_cast<size_t>(size_bytes) / num_buffers;
    for (std::vector<uint8_t>& buffer : buffers_) ShrinkTo(share, buffer);
    for (std::vector<uint8_t>& part : raw_.parts) ShrinkTo(share, part);
    for (SampleTransform::Runner& runner : runners_) runner.ShrinkTo(share);
  }

  // Finds the resident sizes of the sample's images.
  absl::Status FindSizes() {
    sizes_.clear();
    absl::Span<const ImageSize> ragged = probe_.sizes;
    for (size_t f = 0; f < runners_.size(); ++f) {
      sizes_.push_back(TransformOf(f).TakeSize(ragged));
      DATASETD_RETURN_IF_ERROR(TransformOf(f).Check(sizes_.back()));
    }
    return absl::OkStatus();
  }

  // Finds the place of each field of the sample in the chunk.
  absl::Status FindRows(const Chunk& chunk, int64_t row) {
    rows_.clear();
    for (size_t f = 0; f < runners_.size(); ++f) {
      const SampleTransform& transform = TransformOf(f);
      const FieldSpec& resident = transform.resident();
      if (!resident.is_packed()) {
        const auto size = static_cast<size_t>(resident.sample_bytes());
        rows_.push_back(
            chunk.fields[f].subspan(static_cast<size_t>(row) * size, size));
        continue;
      }
      const RaggedSample& place = chunk.places[f][static_cast<size_t>(row)];
      const ImageSize planned = {place.height, place.width};
      DATASETD_ASSIGN_OR_RETURN(const ImageSize size,
                                transform.ResidentSize(sizes_[f]));
      if (size != planned) {
        return absl::DataLossError(absl::StrCat(
            "it has become ", size.height, "x", size.width, " (height x width)",
            planned == ImageSize() ? std::string(", and was damaged")
                                   : absl::StrCat(", and was ", planned.height,
                                                  "x", planned.width),
            " when the load began: do not change files while they are loaded"));
      }
      rows_.push_back(
          chunk.fields[f].subspan(static_cast<size_t>(place.offset_bytes),
                                  static_cast<size_t>(size.height * size.width *
                                                      PixelBytes(resident))));
    }
    return absl::OkStatus();
  }

  // Chooses where the source decodes each field: its row, or a buffer for
  // pretransforms.
  void ChoosePlaces() {
    places_.clear();
    for (size_t f = 0; f < runners_.size(); ++f) {
      const SampleTransform& transform = TransformOf(f);
      if (transform.is_identity()) {
        places_.push_back(rows_[f]);
        continue;
      }
      FieldSpec spec = transform.source();
      if (spec.is_image) {
        spec.shape[0] = sizes_[f].height;
        spec.shape[1] = sizes_[f].width;
      }
      buffers_[f].resize(static_cast<size_t>(spec.sample_bytes()));
      places_.push_back(absl::MakeSpan(buffers_[f]));
    }
  }

  const SampleTransform& TransformOf(size_t field) const {
    return *(*workers_.fields_)[field];
  }

  SampleWorkers& workers_;
  SampleWorkers::Run run_;
  std::vector<SampleTransform::Runner> runners_;
  bool has_transforms_ = false;
  RawSample raw_;
  SampleProbe probe_;
  std::vector<std::vector<uint8_t>> buffers_;
  std::vector<absl::Span<uint8_t>> places_;
  std::vector<absl::Span<uint8_t>> rows_;
  std::vector<ImageSize> sizes_;
};

SampleWorkers::SampleWorkers(SampleSource* source,
                             const SampleTransforms* fields, int num_threads,
                             const DecodeAccount& account,
                             const std::atomic<bool>* is_cancelled)
    : source_(source),
      fields_(fields),
      account_(account),
      is_cancelled_(is_cancelled),
      samples_(OptionsOf(*source, num_threads), [this]() -> ParallelFor::Body {
        return [worker = std::make_shared<Worker>(this)](
                   int64_t begin, int64_t end) { worker->Work(begin, end); };
      }) {}

SampleWorkers::~SampleWorkers() {
  is_ending_.store(true, std::memory_order_relaxed);
}

SampleWorkers::Started& SampleWorkers::ChunkOf(int64_t index) {
  MutexLock lock(&mutex_);
  const auto behind =
      std::find_if(chunks_.begin(), chunks_.end(),
                   [&](const Started& chunk) { return chunk.first > index; });
  return *std::prev(behind);
}

void SampleWorkers::Start(Chunk chunk) {
  const int64_t count = chunk.count;
  {
    MutexLock lock(&mutex_);
    chunks_.push_back(
        {.first = num_started_,
         .chunk = std::move(chunk),
         .statuses = std::vector<absl::Status>(static_cast<size_t>(count))});
    num_started_ += count;
  }
  samples_.Start(count);
}

std::vector<absl::Status> SampleWorkers::Finish() {
  samples_.Finish();
  MutexLock lock(&mutex_);
  std::vector<absl::Status> statuses = std::move(chunks_.front().statuses);
  chunks_.pop_front();
  return statuses;
}

}  // namespace datasetd
