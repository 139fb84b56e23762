// Records who last wrote and read each byte, to find races and reads of memory
// that was not written.
//
// The program of a thread is a row of segments, cut at barriers of its block
// and at synchronisations of its warp. Two accesses are ordered if one thread
// does both, or if their segments are of one block with a barrier of the block
// between, or of one warp with one of the warp between. Two accesses to a byte
// that are not ordered, at least one of them a write, and not both atomic, are
// a race: CUDA C++ Programming Guide, "Memory Consistency Model".

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_SHADOW_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_SHADOW_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace datasetd::emulated_gpu {

using SegmentId = uint32_t;  // 0: none

struct Segment {
  uint32_t block = 0;
  uint32_t barrier_count = 0;
  uint32_t warp = 0;
  uint32_t warp_sync_count = 0;
};

// All segments of a launch. Thread-safe.
class SegmentTable {
 public:
  static constexpr uint32_t kMaxSegments = (1u << 25) - 1;

  // 0: the launch has more segments than can be told apart.
  SegmentId Add(const Segment& segment);
  const Segment& Get(SegmentId id) const {
    return chunks_[id / kChunk].load(std::memory_order_acquire)[id % kChunk];
  }
  // Whether all accesses of `earlier` come before those of `later`, which runs
  // now. Not for two accesses of one segment.
  bool IsOrdered(SegmentId earlier, SegmentId later) const {
    const Segment& a = Get(earlier);
    const Segment& b = Get(later);
    return a.block == b.block && (a.barrier_count != b.barrier_count ||
                                  (a.warp == b.warp && earlier != later));
  }

  SegmentTable() = default;
  SegmentTable(const SegmentTable&) = delete;
  SegmentTable& operator=(const SegmentTable&) = delete;
  ~SegmentTable();

 private:
  static constexpr uint32_t kChunk = 1u << 14;

  std::mutex mutex_;
  uint32_t size_ = 1;
  std::array<std::atomic<Segment*>, (kMaxSegments + 1) / kChunk> chunks_ = {};
};

enum class ShadowAccess { kRead, kReadOnly, kWrite, kAtomic };

struct Conflict {
  enum class Kind { kNone, kRace, kReadOnlyWritten, kUnwritten };
  Kind kind = Kind::kNone;
  bool with_write = false;
  SegmentId other = 0;  // of the earlier access; 0: several
  int lane = -1;        // of it; -1: several
};

// The records of one stretch of 1 KiB, one for each word until something
// smaller is accessed, then one for each byte.
class ShadowPage {
 public:
  static constexpr int kBytes = 1024;

  // [offset, offset + size_bytes) is aligned and in the page. Stops at the
  // first conflict.
  template <ShadowAccess kAccess>
  Conflict Apply(const SegmentTable& segments, int offset, int size_bytes,
                 bool must_be_written, SegmentId segment, int lane);
  void Clear();

  std::atomic_flag lock = ATOMIC_FLAG_INIT;

 private:
  struct Record {
    uint32_t write = 0;
    uint32_t read = 0;
  };

  template <ShadowAccess kAccess>
  static Conflict ApplyOne(const SegmentTable& segments, Record& record,
                           bool must_be_written, SegmentId segment, int lane);
  void SplitIntoBytes();

  bool is_bytes_ = false;
  std::vector<Record> records_;
};

// The pages of device memory, made as they are touched. Thread-safe.
class ShadowMemory {
 public:
  ShadowPage* Page(uint64_t address) {
    const uint64_t number = address / ShadowPage::kBytes;
    Shard& shard = shards_[number % kShards];
    std::lock_guard<std::mutex> lock(shard.mutex);
    std::unique_ptr<ShadowPage>& page = shard.pages[number];
    if (page == nullptr) page = std::make_unique<ShadowPage>();
    return page.get();
  }

 private:
  static constexpr int kShards = 16;
  struct Shard {
    std::mutex mutex;
    std::unordered_map<uint64_t, std::unique_ptr<ShadowPage>> pages;
  };
  Shard shards_[kShards];
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_SHADOW_H_
