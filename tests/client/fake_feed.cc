#include "tests/client/fake_feed.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace datasetd::testing {
namespace {

constexpr uint64_t kImageRowBytes = 12;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

int MakeMemory(const char* name, uint64_t size) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  Check(fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) == 0, name);
  return fd;
}

template <typename T>
T* MapMemory(int fd, uint64_t size) {
  void* const address =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Check(address != MAP_FAILED, "mmap");
  return static_cast<T*>(address);
}

// A slot holds images, labels and indices, in this order.
uint64_t LabelOffset(uint32_t rows) { return (kImageRowBytes * rows + 7) & ~7; }
uint64_t IndexOffset(uint32_t rows) { return LabelOffset(rows) + 8 * rows; }
uint64_t SlotBytes(uint32_t rows) { return IndexOffset(rows) + 8 * rows; }

}  // namespace

FakeFeed::FakeFeed(const Options& options)
    : options_(options),
      daemon_fd_(MakeMemory("daemon_page", sizeof(ring::DaemonPage))),
      client_fd_(MakeMemory("client_page", sizeof(ring::ClientPage))),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      slab_fd_(MakeMemory(options.slab_name.c_str(), options.slab_bytes)),
      daemon_(MapMemory<ring::DaemonPage>(daemon_fd_.get(),
                                          sizeof(ring::DaemonPage))),
      client_(MapMemory<ring::ClientPage>(client_fd_.get(),
                                          sizeof(ring::ClientPage))),
      slab_(MapMemory<char>(slab_fd_.get(), options.slab_bytes)),
      ring_(daemon_, client_, options.num_slots) {
  Check(fcntl(slab_fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
        "F_ADD_SEALS");
  if (!options.is_sealed) return;
  // As the daemon does: nobody else may map it writable.
  Check(fcntl(daemon_fd_.get(), F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE |
                  F_SEAL_SEAL) == 0,
        "F_ADD_SEALS");
  Check(fcntl(client_fd_.get(), F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
        "F_ADD_SEALS");
}

FakeFeed::~FakeFeed() {
  StopProducing();
  munmap(daemon_, sizeof(*daemon_));
  munmap(client_, sizeof(*client_));
  munmap(slab_, options_.slab_bytes);
}

v1::OpenFeedResponse FakeFeed::Describe() const {
  const uint32_t rows = options_.batch_size;
  v1::OpenFeedResponse response;
  response.set_feed_id(1);
  v1::SlotLayout* const layout = response.mutable_layout();
  layout->set_num_slots(options_.num_slots);
  layout->set_slot_stride_bytes(SlotBytes(rows));
  v1::SlotField* const image = layout->add_fields();
  image->set_name("image");
  image->set_dtype(v1::DTYPE_UINT8);
  for (int64_t extent : {int64_t{rows}, int64_t{3}, int64_t{2}, int64_t{2}}) {
    image->add_shape(extent);
  }
  // NHWC.
  for (int64_t stride : {12, 1, 6, 3}) image->add_strides(stride);
  v1::SlotField* const label = layout->add_fields();
  label->set_name("label");
  label->set_dtype(v1::DTYPE_INT64);
  label->add_shape(rows);
  label->add_strides(1);
  label->set_offset_bytes(LabelOffset(rows));
  layout->set_indices_offset_bytes(IndexOffset(rows));
  v1::SlabExport* const slab = response.mutable_slab();
  slab->set_kind(v1::EXPORT_KIND_MEMFD);
  slab->set_size_bytes(options_.slab_bytes);
  slab->set_device("cpu");
  response.set_batches_per_epoch(options_.batches_per_epoch);
  response.set_num_samples(rows * options_.batches_per_epoch);
  response.set_content_hash("c0ffee");
  response.set_transforms_hash("7ea");
  response.set_prefetch(options_.num_slots - 2);
  return response;
}

int FakeFeed::FreeSlot() const {
  for (uint32_t slot = 0; slot < options_.num_slots; ++slot) {
    if (ring_.ReleaseDone(slot) == slot_sequences_[slot]) {
      return static_cast<int>(slot);
    }
  }
  return -1;
}

uint32_t FakeFeed::num_held() const {
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < options_.num_slots; ++slot) {
    if (ring_.ReleaseDone(slot) != slot_sequences_[slot]) ++count;
  }
  return count;
}

bool FakeFeed::PublishRows(uint32_t num_samples, uint32_t num_padding) {
  if (const auto seek = ring_.ReadSeek()) {
    generation_ = seek->generation;
    epoch_ = seek->epoch;
    batch_ = seek->batch;
  }
  const int slot = FreeSlot();
  if (slot < 0) return false;
  const uint32_t rows = options_.batch_size;
  const uint64_t sequence = sequence_.load() + 1;
  char* const base = slab_ + slot * SlotBytes(rows);
  memset(base, static_cast<int>(sequence & 0xff), kImageRowBytes * rows);
  for (uint32_t row = 0; row < rows; ++row) {
    const auto value = static_cast<int64_t>(batch_ * rows + row);
    memcpy(base + LabelOffset(rows) + 8 * row, &value, 8);
    memcpy(base + IndexOffset(rows) + 8 * row, &value, 8);
  }
  PublishRaw(static_cast<uint32_t>(slot), {.sequence = sequence,
                                           .generation = generation_,
                                           .epoch = epoch_,
                                           .batch = batch_,
                                           .num_samples = num_samples,
                                           .num_padding = num_padding});
  if (++batch_ == options_.batches_per_epoch) {
    batch_ = 0;
    ++epoch_;
  }
  return true;
}

void FakeFeed::PublishRaw(uint32_t slot,
                          const ring::SlotDescriptor& descriptor) {
  slot_sequences_[slot] = descriptor.sequence;
  sequence_.store(descriptor.sequence);
  if (ring_.Publish(slot, descriptor)) WakeClient();
}

void FakeFeed::PublishBadSlot() {
  const uint64_t sequence = sequence_.load() + 1;
  daemon_->published[sequence % options_.num_slots].store(
      ring::PackPublished(sequence, options_.num_slots));
  WakeClient();
}

void FakeFeed::WakeClient() {
  daemon_->wake.fetch_add(1);
  syscall(SYS_futex, ring_.wake_word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

void FakeFeed::CloseRing() {
  ring_.Close();
  WakeClient();
}

uint64_t FakeFeed::ReadEvent() const {
  uint64_t count = 0;
  return read(event_fd_.get(), &count, sizeof(count)) == sizeof(count) ? count
                                                                       : 0;
}

void FakeFeed::StartProducing() {
  producer_ = std::thread([this] { Produce(); });
}

void FakeFeed::StopProducing() {
  if (!producer_.joinable()) return;
  is_stopping_.store(true);
  const uint64_t one = 1;
  Check(write(event_fd_.get(), &one, sizeof(one)) == sizeof(one), "write");
  producer_.join();
}

void FakeFeed::Produce() {
  while (!is_stopping_.load()) {
    if (Publish()) continue;
    ring_.SetIdle(true);
    const bool has_published = Publish();
    if (!has_published && !is_stopping_.load()) {
      pollfd entry = {.fd = event_fd_.get(), .events = POLLIN};
      poll(&entry, 1, -1);
    }
    ring_.SetIdle(false);
    ReadEvent();
  }
}

}  // namespace datasetd::testing
