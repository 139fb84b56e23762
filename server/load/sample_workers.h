// Makes samples resident on background threads: reads them, decodes those of an
// encoded source, and runs the pretransforms.
//
// Chunks start and finish in order; several may be in flight. Host memory: the
// caller's chunks, the samples' share of the decode budget, and
// kMaxKeptDecodeBytes per thread.
//
// Not thread-safe; the source is used by all threads, a sequential one by one
// at a time.

#ifndef DATASETD_SERVER_LOAD_SAMPLE_WORKERS_H_
#define DATASETD_SERVER_LOAD_SAMPLE_WORKERS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/load/sample_transform.h"

namespace datasetd {

// Memory that a thread keeps between samples, over all buffers.
inline constexpr int64_t kMaxKeptDecodeBytes = 16 << 20;

class SampleWorkers {
 public:
  // Memory of the samples of a chunk; valid until Finish.
  struct Chunk {
    int64_t count = 0;
    // Field f is written to fields[f], contiguous and in resident form.
    std::vector<absl::Span<uint8_t>> fields;
    // Plain sources: memory to read the fields with pretransforms to.
    std::vector<absl::Span<uint8_t>> inputs;
    // Packed fields: the place of each sample in its field. Of an encoded
    // source, a sample of another size is DATA_LOSS.
    std::vector<std::vector<RaggedSample>> places;
  };

  // Takes one transform per field of the source. All arguments outlive the
  // workers. After `is_cancelled` is set, samples are CANCELLED. A sample above
  // the budget's per-sample limit is INVALID_ARGUMENT. REQUIRES: num_threads >=
  // 1.
  SampleWorkers(SampleSource* source, const SampleTransforms* fields,
                int num_threads, const DecodeAccount& account,
                const std::atomic<bool>* is_cancelled);
  // Blocks until the samples in progress end; their pretransforms are cut
  // short.
  ~SampleWorkers();
  SampleWorkers(const SampleWorkers&) = delete;
  SampleWorkers& operator=(const SampleWorkers&) = delete;

  // RESOURCE_EXHAUSTED if the system gave no thread.
  const absl::Status& status() const { return samples_.status(); }

  // Starts work on the samples that follow those of the chunk before. REQUIRES:
  // chunk.count >= 1, status() is OK.
  void Start(Chunk chunk);

  // Blocks until the oldest started chunk is done; returns its samples'
  // statuses. A plain source's samples are read by runs, whose error is that of
  // the first one. REQUIRES: a chunk was started.
  std::vector<absl::Status> Finish();

  // The samples made so far whose probe has_unapplied_exif.
  int64_t num_unapplied_exif() const {
    return num_unapplied_exif_.load(std::memory_order_relaxed);
  }

 private:
  struct Started {
    int64_t first = 0;
    Chunk chunk;
    // Each is written by the thread that makes the sample.
    std::vector<absl::Status> statuses;
  };
  class Run;
  class Worker;

  // The chunk of a sample.
  Started& ChunkOf(int64_t index);

  SampleSource* const source_;
  const SampleTransforms* const fields_;
  const DecodeAccount account_;
  const std::atomic<bool>* const is_cancelled_;
  std::atomic<bool> is_ending_ = false;  // no caller waits any more
  std::atomic<int64_t> num_unapplied_exif_ = 0;

  Mutex mutex_;
  int64_t num_started_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of samples of a sequential source that were read, or were skipped
  // because an earlier one could not be read.
  int64_t num_read_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_read_failed_ ABSL_GUARDED_BY(mutex_) = false;
  // An element stays where it is until Finish.
  std::deque<Started> chunks_ ABSL_GUARDED_BY(mutex_);
  ParallelFor samples_;  // last: its threads use the others
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_WORKERS_H_
