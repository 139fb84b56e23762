#include "server/load/parallel_decoder.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/background_thread.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {
namespace {

// A thread takes several samples at a time if there are many.
constexpr int64_t kMaxSamplesAtOnce = 32;
void ShrinkTo(size_t size_bytes, std::vector<uint8_t>& bytes) {
  if (bytes.capacity() > size_bytes) std::vector<uint8_t>().swap(bytes);
}

}  // namespace

struct ParallelDecoder::Chunk {
  int64_t first = 0;
  int64_t count = 0;
  std::vector<absl::Span<uint8_t>> fields;
  std::vector<std::vector<RaggedSample>> places;
  // Guarded by the decoder's mutex.
  int64_t num_taken = 0;
  int64_t num_done = 0;
  // Each is written by the thread that took the sample, before num_done.
  std::vector<absl::Status> statuses;
};

// Cancels the pretransforms of a sample.
class ParallelDecoder::Run final : public HostRun {
 public:
  explicit Run(const ParallelDecoder* decoder) : decoder_(*decoder) {
    SetWish(kPause);
  }
  bool Pause() override {
    return !decoder_.is_cancelled_->load(std::memory_order_relaxed) &&
           !decoder_.is_ending_.load(std::memory_order_relaxed);
  }

 private:
  const ParallelDecoder& decoder_;
};

// The buffers of one thread.
class ParallelDecoder::Worker {
 public:
  explicit Worker(ParallelDecoder* decoder)
      : decoder_(*decoder), buffers_(decoder->fields_->size()) {
    for (const auto& field : *decoder_.fields_) {
      runners_.emplace_back(field.get());
    }
  }

  absl::Status Run(const Chunk& chunk, int64_t row) {
    if (decoder_.is_cancelled_->load(std::memory_order_relaxed)) {
      return absl::CancelledError("the load was cancelled");
    }
    DecodeBudget::Share share(decoder_.account_.budget, decoder_.account_.uid);
    absl::Status status = Decode(chunk, row, share);
    // Before the memory is released from the budget.
    KeepAtMost(kMaxKeptDecodeBytes);
    return status;
  }

 private:
  absl::Status Decode(const Chunk& chunk, int64_t row,
                      DecodeBudget::Share& share) {
    const SampleSource& source = *decoder_.source_;
    const int64_t index = chunk.first + row;
    int64_t size_bytes = source.Locate(index).size_bytes;
    while (true) {
      DATASETD_RETURN_IF_ERROR(share.Take(size_bytes));
      DATASETD_RETURN_IF_ERROR(source.ReadRaw(index, raw_));
      probe_ = SampleProbe();
      DATASETD_RETURN_IF_ERROR(source.Probe(index, raw_, probe_));
      DATASETD_RETURN_IF_ERROR(FindSizes());
      DATASETD_ASSIGN_OR_RETURN(size_bytes, NeededBytes());
      DATASETD_ASSIGN_OR_RETURN(const bool is_enough,
                                share.TryGrowTo(size_bytes));
      if (is_enough) break;
      // Start again with memory for the whole sample.
      KeepAtMost(0);
      share.Release();
    }
    DATASETD_RETURN_IF_ERROR(FindRows(chunk, row));
    ChoosePlaces();
    DATASETD_RETURN_IF_ERROR(source.Decode(index, raw_, places_));
    for (size_t f = 0; f < runners_.size(); ++f) {
      if (TransformOf(f).is_identity()) continue;
      DATASETD_RETURN_IF_ERROR(
          runners_[f].Run(places_[f], sizes_[f], rows_[f]));
    }
    return absl::OkStatus();
  }

  // Total memory of the sample, including its raw bytes.
  absl::StatusOr<int64_t> NeededBytes() const {
    int64_t bytes = SaturatingAdd(RawBytes(raw_), probe_.decode_bytes);
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
    size_t num_ragged = 0;
    for (size_t f = 0; f < runners_.size(); ++f) {
      const SampleTransform& transform = TransformOf(f);
      const FieldSpec& spec = transform.source();
      ImageSize size;
      if (spec.is_image) size = {spec.shape[0], spec.shape[1]};
      if (spec.is_ragged) size = probe_.sizes[num_ragged++];
      DATASETD_RETURN_IF_ERROR(transform.Check(size));
      sizes_.push_back(size);
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
    return *(*decoder_.fields_)[field];
  }

  ParallelDecoder& decoder_;
  std::vector<SampleTransform::Runner> runners_;
  RawSample raw_;
  SampleProbe probe_;
  std::vector<std::vector<uint8_t>> buffers_;
  std::vector<absl::Span<uint8_t>> places_;
  std::vector<absl::Span<uint8_t>> rows_;
  std::vector<ImageSize> sizes_;
};

ParallelDecoder::ParallelDecoder(
    const SampleSource* source,
    const std::vector<std::unique_ptr<SampleTransform>>* fields,
    int num_threads, const DecodeAccount& account,
    const std::atomic<bool>* is_cancelled)
    : source_(source),
      fields_(fields),
      account_(account),
      is_cancelled_(is_cancelled) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

ParallelDecoder::~ParallelDecoder() {
  is_ending_.store(true, std::memory_order_relaxed);
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ParallelDecoder::Start(int64_t first, int64_t count,
                            std::vector<absl::Span<uint8_t>> fields,
                            std::vector<std::vector<RaggedSample>> places) {
  auto chunk = std::make_shared<Chunk>();
  chunk->first = first;
  chunk->count = count;
  chunk->fields = std::move(fields);
  chunk->places = std::move(places);
  chunk->statuses.resize(static_cast<size_t>(count));
  MutexLock lock(&mutex_);
  chunks_.push_back(std::move(chunk));
}

std::vector<absl::Status> ParallelDecoder::Finish() {
  const auto is_done = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return chunks_.front()->num_done == chunks_.front()->count;
  };
  MutexLock lock(&mutex_, Condition(&is_done));
  std::vector<absl::Status> statuses = std::move(chunks_.front()->statuses);
  chunks_.pop_front();
  return statuses;
}

void ParallelDecoder::Work() {
  BecomeBackgroundThread("decode");
  Worker worker(this);
  Run run(this);
  const ScopedHostRun scoped_run(&run);
  while (true) {
    std::shared_ptr<Chunk> chunk;
    int64_t begin = 0;
    int64_t end = 0;
    {
      const auto next = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return std::find_if(chunks_.begin(), chunks_.end(),
                            [](const std::shared_ptr<Chunk>& chunk) {
                              return chunk->num_taken < chunk->count;
                            });
      };
      const auto has_work = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || next() != chunks_.end();
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      chunk = *next();
      begin = chunk->num_taken;
      const int64_t share =
          (chunk->count - begin) / (4 * static_cast<int64_t>(threads_.size()));
      end = begin + std::clamp<int64_t>(share, 1, kMaxSamplesAtOnce);
      chunk->num_taken = end;
    }
    for (int64_t i = begin; i < end; ++i) {
      chunk->statuses[static_cast<size_t>(i)] = worker.Run(*chunk, i);
    }
    MutexLock lock(&mutex_);
    chunk->num_done += end - begin;
  }
}

}  // namespace datasetd
