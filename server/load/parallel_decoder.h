// Reads, decodes and pretransforms the samples of an encoded source on its own
// threads.
//
// Chunks start and finish in order. Several may be in flight, so that no thread
// waits for the slowest sample of a chunk. Host memory: the caller's chunks,
// the samples' share of the decode budget, and kMaxKeptDecodeBytes per thread.
//
// Not thread-safe; the source is used by all decoder threads.

#ifndef DATASETD_SERVER_LOAD_PARALLEL_DECODER_H_
#define DATASETD_SERVER_LOAD_PARALLEL_DECODER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/sample_source.h"
#include "server/load/decode_budget.h"
#include "server/load/sample_transform.h"

namespace datasetd {

// Memory that a thread keeps between samples, over all buffers.
inline constexpr int64_t kMaxKeptDecodeBytes = 16 << 20;

class ParallelDecoder {
 public:
  // Takes one transform per field of the source. All arguments outlive the
  // decoder. After `is_cancelled` is set, samples are CANCELLED. A sample above
  // the budget's per-sample limit is INVALID_ARGUMENT. REQUIRES: num_threads >=
  // 1.
  ParallelDecoder(const SampleSource* source,
                  const std::vector<std::unique_ptr<SampleTransform>>* fields,
                  int num_threads, const DecodeAccount& account,
                  const std::atomic<bool>* is_cancelled);
  // Blocks until the samples in progress end; their pretransforms are cut
  // short.
  ~ParallelDecoder();
  ParallelDecoder(const ParallelDecoder&) = delete;
  ParallelDecoder& operator=(const ParallelDecoder&) = delete;

  // Starts decoding samples first, ..., first + count - 1. Field f is written
  // to fields[f], contiguous and in resident form; it stays valid until Finish.
  // For a packed field, places[f] gives each sample's place; a sample of
  // another size is DATA_LOSS. REQUIRES: count >= 1.
  void Start(int64_t first, int64_t count,
             std::vector<absl::Span<uint8_t>> fields,
             std::vector<std::vector<RaggedSample>> places = {});

  // Blocks until the oldest started chunk is done; returns its samples'
  // statuses. REQUIRES: a chunk was started.
  std::vector<absl::Status> Finish();

 private:
  struct Chunk;
  class Run;
  class Worker;

  void Work();

  const SampleSource* const source_;
  const std::vector<std::unique_ptr<SampleTransform>>* const fields_;
  const DecodeAccount account_;
  const std::atomic<bool>* const is_cancelled_;
  std::atomic<bool> is_ending_ = false;  // no caller waits any more

  Mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_PARALLEL_DECODER_H_
