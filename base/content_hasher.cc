#include "base/content_hasher.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/background_thread.h"

namespace datasetd {

int ContentHasher::DefaultNumThreads() {
  constexpr int kMost = 4;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2,
                    1, kMost);
}

ContentHasher::ContentHasher(size_t num_fields, int num_threads)
    : fields_(num_fields), pieces_(static_cast<size_t>(num_threads)) {
  for (size_t i = 0; i < static_cast<size_t>(num_threads); ++i) {
    auto thread = StartThread([this, i] { Run(i); });
    if (!thread.ok()) break;
    threads_.push_back(*std::move(thread));
  }
}

ContentHasher::~ContentHasher() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

ContentHasher::Ticket ContentHasher::Add(size_t field,
                                         absl::Span<const uint8_t> data) {
  Field& to = fields_[field];
  to.num_bytes += data.size();
  while (!data.empty()) {
    const size_t size =
        std::min(data.size(), kContentLeafBytes - to.leaf_bytes);
    const bool is_last = to.leaf_bytes + size == kContentLeafBytes;
    AddPiece(to, data.subspan(0, size), is_last);
    data.remove_prefix(size);
  }
  return last_ticket_;
}

void ContentHasher::AddPiece(Field& field, absl::Span<const uint8_t> data,
                             bool is_last) {
  if (field.hash == nullptr) {
    field.hash = std::make_shared<DigestHasher>();
    field.thread = num_leaves_++ % std::max<size_t>(threads_.size(), 1);
    field.leaves.emplace_back();
  }
  Piece piece;
  piece.ticket = ++last_ticket_;
  piece.hash = field.hash;
  piece.data = data;
  field.leaf_bytes += data.size();
  if (is_last) {
    piece.digest = &field.leaves.back();
    field.hash = nullptr;
    field.leaf_bytes = 0;
  }
  if (threads_.empty()) {
    Hash(piece);
    return;
  }
  MutexLock lock(&mutex_);
  pieces_[field.thread].push_back(std::move(piece));
}

void ContentHasher::Hash(const Piece& piece) {
  piece.hash->Update(piece.data);
  if (piece.digest != nullptr) *piece.digest = piece.hash->Finish();
}

void ContentHasher::Await(Ticket ticket) {
  const auto is_done = [this, ticket]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return std::all_of(pieces_.begin(), pieces_.end(), [&](const auto& queue) {
      return queue.empty() || queue.front().ticket > ticket;
    });
  };
  MutexLock lock(&mutex_, Condition(&is_done));
}

Digest ContentHasher::Finish(size_t field) {
  Field& finished = fields_[field];
  if (finished.hash != nullptr) AddPiece(finished, {}, /*is_last=*/true);
  Await(last_ticket_);
  DigestHasher hash;
  for (const Digest& leaf : finished.leaves) hash.Update(leaf);
  uint8_t length[8];
  for (size_t i = 0; i < sizeof(length); ++i) {
    length[i] = static_cast<uint8_t>(finished.num_bytes >> (8 * i));
  }
  hash.Update(length);
  return hash.Finish();
}

void ContentHasher::Run(size_t thread) {
  pthread_setname_np(pthread_self(), "hash");
  const auto has_work = [this, thread]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || !pieces_[thread].empty();
  };
  while (true) {
    Piece piece;
    {
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      piece = pieces_[thread].front();
    }
    Hash(piece);
    MutexLock lock(&mutex_);
    pieces_[thread].pop_front();
  }
}

}  // namespace datasetd
