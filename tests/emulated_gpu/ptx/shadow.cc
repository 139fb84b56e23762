#include "tests/emulated_gpu/ptx/shadow.h"

#include <mutex>
#include <utility>

namespace datasetd::emulated_gpu {
namespace {

// A record is segment << 7 | who. For a write, `who` is a lane, with kAtomic if
// it was atomic, or kManyAtomics. For reads it is a lane or one of the
// kMany..., with kReadOnly if an ld.global.nc was among them.
constexpr int kWhoBits = 7;
constexpr uint32_t kWhoMask = (1u << kWhoBits) - 1;
constexpr uint32_t kAtomic = 32;
constexpr uint32_t kManyAtomics = 64;
constexpr uint32_t kManyLanes = 32;
constexpr uint32_t kManyWarps = 33;
constexpr uint32_t kManyBlocks = 34;
constexpr uint32_t kReadOnly = 64;

Conflict Race(bool with_write, uint32_t record, bool is_one_lane) {
  Conflict conflict = {Conflict::Kind::kRace, with_write, record >> kWhoBits,
                       -1};
  if (is_one_lane) conflict.lane = static_cast<int>(record & 31);
  return conflict;
}

}  // namespace

SegmentId SegmentTable::Add(const Segment& segment) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (size_ > kMaxSegments) return 0;
  const uint32_t id = size_++;
  std::atomic<Segment*>& chunk = chunks_[id / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new Segment[kChunk], std::memory_order_release);
  }
  chunk.load(std::memory_order_relaxed)[id % kChunk] = segment;
  return id;
}

SegmentTable::~SegmentTable() {
  for (std::atomic<Segment*>& chunk : chunks_) delete[] chunk.load();
}

void ShadowPage::Clear() {
  is_bytes_ = false;
  records_.clear();
}

void ShadowPage::SplitIntoBytes() {
  is_bytes_ = true;
  if (records_.empty()) {
    records_.resize(kBytes);
    return;
  }
  std::vector<Record> bytes(kBytes);
  for (int i = 0; i < kBytes; ++i) bytes[i] = records_[i / 4];
  records_ = std::move(bytes);
}

template <ShadowAccess kAccess>
Conflict ShadowPage::ApplyOne(const SegmentTable& segments, Record& record,
                              bool must_be_written, SegmentId segment,
                              int lane) {
  const uint32_t mine = segment << kWhoBits | static_cast<uint32_t>(lane);
  if (record.write != 0) {
    const SegmentId other = record.write >> kWhoBits;
    const uint32_t who = record.write & kWhoMask;
    if constexpr (kAccess == ShadowAccess::kReadOnly) {
      return {Conflict::Kind::kReadOnlyWritten, true, other,
              who == kManyAtomics ? -1 : static_cast<int>(who & 31)};
    }
    if (who == kManyAtomics) {
      const Segment& a = segments.Get(other);
      const Segment& b = segments.Get(segment);
      if (kAccess != ShadowAccess::kAtomic &&
          (a.block != b.block || a.barrier_count == b.barrier_count)) {
        return Race(true, record.write, false);
      }
    } else if ((record.write & ~kAtomic) != mine &&
               !(kAccess == ShadowAccess::kAtomic && (who & kAtomic) != 0) &&
               (other == segment || !segments.IsOrdered(other, segment))) {
      return Race(true, record.write, true);
    }
  } else if (must_be_written && kAccess != ShadowAccess::kWrite) {
    return {Conflict::Kind::kUnwritten, false, 0, -1};
  }

  if constexpr (kAccess == ShadowAccess::kRead ||
                kAccess == ShadowAccess::kReadOnly) {
    const uint32_t sticky =
        (record.read & kReadOnly) |
        (kAccess == ShadowAccess::kReadOnly ? kReadOnly : 0);
    uint32_t next = mine;
    const uint32_t read = record.read & ~kReadOnly;
    if (read != 0 && read != mine) {
      const SegmentId other = read >> kWhoBits;
      const uint32_t who = read & kWhoMask;
      if (who == kManyBlocks) {
        next = read;
      } else if (other == segment) {
        next = who == kManyWarps ? read : segment << kWhoBits | kManyLanes;
      } else {
        const Segment& a = segments.Get(other);
        const Segment& b = segments.Get(segment);
        if (a.block != b.block) {
          next = segment << kWhoBits | kManyBlocks;
        } else if (a.barrier_count == b.barrier_count &&
                   (a.warp != b.warp || who == kManyWarps)) {
          next = segment << kWhoBits | kManyWarps;
        }
      }
    }
    record.read = next | sticky;
    return {};
  }

  if (record.read != 0) {
    if ((record.read & kReadOnly) != 0) {
      return {Conflict::Kind::kReadOnlyWritten, false, record.read >> kWhoBits,
              -1};
    }
    const SegmentId other = record.read >> kWhoBits;
    const uint32_t who = record.read & kWhoMask;
    const bool is_one_lane = who < 32;
    bool is_race = false;
    if (who == kManyBlocks) {
      is_race = true;
    } else if (who == kManyWarps) {
      const Segment& a = segments.Get(other);
      const Segment& b = segments.Get(segment);
      is_race = a.block != b.block || a.barrier_count == b.barrier_count;
    } else if (other == segment) {
      is_race = record.read != mine;
    } else {
      is_race = !segments.IsOrdered(other, segment);
    }
    if (is_race) return Race(false, record.read, is_one_lane);
    record.read = 0;
  }
  if constexpr (kAccess == ShadowAccess::kAtomic) {
    const uint32_t who = record.write & kWhoMask;
    const SegmentId other = record.write >> kWhoBits;
    bool has_others = false;
    if (record.write != 0 && who == kManyAtomics) {
      const Segment& a = segments.Get(other);
      const Segment& b = segments.Get(segment);
      has_others = a.block != b.block || a.barrier_count == b.barrier_count;
    } else if (record.write != 0 && (who & kAtomic) != 0) {
      has_others = (record.write & ~kAtomic) != mine &&
                   (other == segment || !segments.IsOrdered(other, segment));
    }
    // An atomic access of the thread that has just written plainly does not
    // order that write with those of others.
    record.write = has_others             ? segment << kWhoBits | kManyAtomics
                   : record.write == mine ? mine
                                          : mine | kAtomic;
  } else {
    record.write = mine;
  }
  return {};
}

template <ShadowAccess kAccess>
Conflict ShadowPage::Apply(const SegmentTable& segments, int offset,
                           int size_bytes, bool must_be_written,
                           SegmentId segment, int lane) {
  if (!is_bytes_ && (size_bytes % 4 != 0 || offset % 4 != 0)) {
    SplitIntoBytes();
  } else if (records_.empty()) {
    records_.resize(kBytes / 4);
  }
  const int shift = is_bytes_ ? 0 : 2;
  Record* record = &records_[offset >> shift];
  Record* const end = record + (size_bytes >> shift);
  for (; record != end; ++record) {
    const Conflict conflict =
        ApplyOne<kAccess>(segments, *record, must_be_written, segment, lane);
    if (conflict.kind != Conflict::Kind::kNone) return conflict;
  }
  return {};
}

template Conflict ShadowPage::Apply<ShadowAccess::kRead>(const SegmentTable&,
                                                         int, int, bool,
                                                         SegmentId, int);
template Conflict ShadowPage::Apply<ShadowAccess::kReadOnly>(
    const SegmentTable&, int, int, bool, SegmentId, int);
template Conflict ShadowPage::Apply<ShadowAccess::kWrite>(const SegmentTable&,
                                                          int, int, bool,
                                                          SegmentId, int);
template Conflict ShadowPage::Apply<ShadowAccess::kAtomic>(const SegmentTable&,
                                                           int, int, bool,
                                                           SegmentId, int);

}  // namespace datasetd::emulated_gpu
