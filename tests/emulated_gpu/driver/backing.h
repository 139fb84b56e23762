// The bytes of an allocation: a memfd, which other processes can map. Its name
// says what it is, since a descriptor that comes from elsewhere carries nothing
// else: "datasetd-gpu:KIND:UUID:ID", KIND 'm' for cuMemAlloc and 'v' for
// cuMemCreate.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_BACKING_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_BACKING_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/emulated_gpu/driver/settings.h"

namespace datasetd::emulated_driver {

enum class BackingKind : char { kMalloc = 'm', kVmm = 'v' };

// For memfd_create; `id` differs from that of every other backing.
std::string BackingName(BackingKind kind, const Uuid& uuid, uint64_t id);

class Backing {
 public:
  // Makes a backing of zeros. nullptr where the system has no memory or no
  // descriptor left.
  static std::shared_ptr<Backing> Create(BackingKind kind, const Uuid& uuid,
                                         uint64_t size_bytes);

  // Opens the backing of a descriptor, which is borrowed. nullptr if it is not
  // one of the kind.
  static std::shared_ptr<Backing> FromDescriptor(BackingKind kind, int fd);

  // Opens descriptor `fd` of another process. nullptr if that process or this
  // backing is gone, or the process is another user's.
  static std::shared_ptr<Backing> FromProcess(pid_t pid, int fd, uint64_t id);

  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  int fd() const { return fd_; }
  uint64_t id() const { return id_; }
  uint64_t size_bytes() const { return size_bytes_; }
  const Uuid& uuid() const { return uuid_; }

  // Writes `value` to the first bytes.
  void Fill(uint8_t value, uint64_t size_bytes);

  // An importer marks the backing as in use until it is destroyed or dies.
  void MarkInUse();
  // Somebody who opened it by FromProcess did so.
  bool IsInUseElsewhere() const;

 private:
  Backing(int fd, uint64_t id, const Uuid& uuid, uint64_t size_bytes);
  static std::shared_ptr<Backing> Adopt(BackingKind kind, int fd);

  const int fd_;
  const uint64_t id_;
  const Uuid uuid_;
  const uint64_t size_bytes_;
};

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_BACKING_H_
