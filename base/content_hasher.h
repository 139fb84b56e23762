// Computes the digests of a dataset's fields on its own threads, while the
// samples are still being read. A client does it for a push that the daemon
// compares.
//
// A field is a byte stream, split into leaves of kContentLeafBytes; the last
// may be shorter. Its digest is the hash of the concatenated leaf digests
// followed by its length as 8 bytes, little-endian. Leaves are hashed in
// parallel, and the digest depends on the bytes only.
//
// Not thread-safe. Data is not copied: it must not change until Await returns.

#ifndef DATASETD_BASE_CONTENT_HASHER_H_
#define DATASETD_BASE_CONTENT_HASHER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/digest.h"
#include "base/mutex.h"

namespace datasetd {

inline constexpr size_t kContentLeafBytes = 1 << 20;

class ContentHasher {
 public:
  // Identifies all data added so far; 0: none.
  using Ticket = uint64_t;

  // As many as do not slow down who reads and copies.
  static int DefaultNumThreads();

  // With fewer threads where the system gives no more; without any, Add hashes.
  // REQUIRES: num_threads >= 1.
  ContentHasher(size_t num_fields, int num_threads);
  // Discards data that is not hashed yet.
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  // Appends data to a field.
  Ticket Add(size_t field, absl::Span<const uint8_t> data);
  // Blocks until the data covered by `ticket` is hashed.
  void Await(Ticket ticket);
  // Blocks until all data is hashed. REQUIRES: the last call for the field.
  Digest Finish(size_t field);

 private:
  struct Field {
    std::deque<Digest> leaves;
    std::shared_ptr<DigestHasher> hash;  // of the last leaf, until complete
    size_t thread = 0;                   // the thread that hashes the last leaf
    size_t leaf_bytes = 0;               // size of the last leaf so far
    uint64_t num_bytes = 0;
  };
  // A part of a leaf. One thread hashes all parts of a leaf, in order.
  struct Piece {
    Ticket ticket = 0;
    std::shared_ptr<DigestHasher> hash;
    absl::Span<const uint8_t> data;
    Digest* digest = nullptr;  // set on the last piece of a leaf
  };

  void AddPiece(Field& field, absl::Span<const uint8_t> data, bool is_last);
  static void Hash(const Piece& piece);
  void Run(size_t thread);

  std::vector<Field> fields_;
  size_t num_leaves_ = 0;
  Ticket last_ticket_ = 0;

  Mutex mutex_;
  // Waiting pieces by thread; the first is being hashed.
  std::vector<std::deque<Piece>> pieces_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_CONTENT_HASHER_H_
