// Reads, decodes and pretransforms the samples of an encoded source on threads
// of its own.
//
// Chunks are started in order and finished in order; several may be under way,
// so that no thread waits for the slowest sample of a chunk. Host memory: the
// caller's chunks, what the samples take of the decode budget, and
// kMaxKeptDecodeBytes for each thread.
//
// For one thread; the source is used by all of them.

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

// Memory that a thread keeps for its next sample, all buffers together.
inline constexpr int64_t kMaxKeptDecodeBytes = 16 << 20;

class ParallelDecoder {
 public:
  // One transform for each field of the source. All outlive this; once
  // `is_cancelled` is set, samples are CANCELLED. A sample that needs more than
  // the account's budget has for one is INVALID_ARGUMENT.
  // REQUIRES: num_threads >= 1.
  ParallelDecoder(const SampleSource* source,
                  const std::vector<std::unique_ptr<SampleTransform>>* fields,
                  int num_threads, const DecodeAccount& account,
                  const std::atomic<bool>* is_cancelled);
  // Waits for the samples that are being worked on; their pretransforms are cut
  // short.
  ~ParallelDecoder();
  ParallelDecoder(const ParallelDecoder&) = delete;
  ParallelDecoder& operator=(const ParallelDecoder&) = delete;

  // Begins with samples first, ..., first + count - 1; field f of them,
  // contiguous and as resident, to fields[f], which stay valid until Finish. Of
  // a packed field places[f] says where each goes; one that has not that size
  // is DATA_LOSS. REQUIRES: count >= 1.
  void Start(int64_t first, int64_t count,
             std::vector<absl::Span<uint8_t>> fields,
             std::vector<std::vector<RaggedSample>> places = {});

  // Waits for the chunk that was started first; the statuses of its samples.
  // REQUIRES: one was started.
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
  std::atomic<bool> is_ending_ = false;  // nobody waits for samples any more

  Mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_PARALLEL_DECODER_H_
