// The digests of a dataset's fields, computed on threads of its own while the
// samples are still being read.
//
// A field is a stream of bytes. It is cut into leaves of kContentLeafBytes; the
// last may be shorter. Its digest is that of its leaves' digests, one after the
// other, and of its length as 8 bytes, little-endian: so that leaves are hashed
// in parallel, and the digest depends on nothing but the bytes.
//
// For one thread. Data is not copied: it stays as it is until Await returns.

#ifndef DATASETD_SERVER_DATASET_CONTENT_HASHER_H_
#define DATASETD_SERVER_DATASET_CONTENT_HASHER_H_

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
  // Names all data that was added before; 0: none.
  using Ticket = uint64_t;

  // REQUIRES: num_threads >= 1.
  ContentHasher(size_t num_fields, int num_threads);
  // Gives up what is not hashed yet.
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  // Appends to a field.
  Ticket Add(size_t field, absl::Span<const uint8_t> data);
  // Blocks until the data that `ticket` names is hashed.
  void Await(Ticket ticket);
  // Blocks until all is hashed. REQUIRES: called once for a field, last.
  Digest Finish(size_t field);

 private:
  struct Field {
    std::deque<Digest> leaves;
    std::shared_ptr<DigestHasher> hash;  // of the last leaf, while it is open
    size_t thread = 0;                   // that hashes the last leaf
    size_t leaf_bytes = 0;               // of the last leaf, so far
    uint64_t num_bytes = 0;
  };
  // Part of a leaf. All parts of one are hashed by one thread, in order.
  struct Piece {
    Ticket ticket = 0;
    std::shared_ptr<DigestHasher> hash;
    absl::Span<const uint8_t> data;
    Digest* digest = nullptr;  // of the last piece of a leaf
  };

  void AddPiece(Field& field, absl::Span<const uint8_t> data, bool is_last);
  void Run(size_t thread);

  std::vector<Field> fields_;
  size_t num_leaves_ = 0;
  Ticket last_ticket_ = 0;

  Mutex mutex_;
  // By thread: pieces that wait, the first of them being hashed.
  std::vector<std::deque<Piece>> pieces_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_CONTENT_HASHER_H_
