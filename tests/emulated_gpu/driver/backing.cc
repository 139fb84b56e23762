#include "tests/emulated_gpu/driver/backing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace datasetd::emulated_driver {
namespace {

constexpr char kPrefix[] = "datasetd-gpu:";

uint64_t RandomId() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) != sizeof(id)) abort();
  return id;
}

// Open file description locks belong to the description, not to the process.
struct flock WholeFile(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool ParseName(const std::string& name, BackingKind kind, Uuid* uuid,
               uint64_t* id) {
  const std::string start =
      std::string("/memfd:") + kPrefix + static_cast<char>(kind) + ":";
  if (name.compare(0, start.size(), start) != 0 ||
      name.size() < start.size() + 32 + 1 + 16) {
    return false;
  }
  const char* text = name.c_str() + start.size();
  for (uint8_t& byte : *uuid) {
    unsigned value = 0;
    if (sscanf(text, "%2x", &value) != 1) return false;
    byte = static_cast<uint8_t>(value);
    text += 2;
  }
  return sscanf(text, ":%16" SCNx64, id) == 1;
}

std::string NameOf(const std::string& path) {
  char name[256];
  const ssize_t size = readlink(path.c_str(), name, sizeof(name));
  return size < 0 ? "" : std::string(name, static_cast<size_t>(size));
}

std::string PathOf(const std::string& process, int fd) {
  return "/proc/" + process + "/fd/" + std::to_string(fd);
}

}  // namespace

std::string BackingName(BackingKind kind, const Uuid& uuid, uint64_t id) {
  std::string name = std::string(kPrefix) + static_cast<char>(kind) + ":";
  char hex[32];
  for (const uint8_t byte : uuid) {
    snprintf(hex, sizeof(hex), "%02x", byte);
    name += hex;
  }
  snprintf(hex, sizeof(hex), ":%016" PRIx64, id);
  return name + hex;
}

std::shared_ptr<Backing> Backing::Create(BackingKind kind, const Uuid& uuid,
                                         uint64_t size_bytes) {
  if (size_bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return nullptr;
  }
  const uint64_t id = RandomId();
  const int fd = memfd_create(BackingName(kind, uuid, id).c_str(), MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  std::shared_ptr<Backing> backing(new Backing(fd, id, uuid, size_bytes));
  return ftruncate(fd, static_cast<off_t>(size_bytes)) == 0 ? backing : nullptr;
}

std::shared_ptr<Backing> Backing::Adopt(BackingKind kind, int fd) {
  Uuid uuid;
  uint64_t id = 0;
  struct stat status = {};
  if (!ParseName(NameOf(PathOf("self", fd)), kind, &uuid, &id) ||
      fstat(fd, &status) != 0) {
    close(fd);
    return nullptr;
  }
  return std::shared_ptr<Backing>(
      new Backing(fd, id, uuid, static_cast<uint64_t>(status.st_size)));
}

std::shared_ptr<Backing> Backing::FromDescriptor(BackingKind kind, int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return copy < 0 ? nullptr : Adopt(kind, copy);
}

std::shared_ptr<Backing> Backing::FromProcess(pid_t pid, int fd, uint64_t id) {
  const std::string path = PathOf(std::to_string(pid), fd);
  Uuid uuid;
  uint64_t found = 0;
  // The number may be another descriptor's by now, which opening could change.
  if (!ParseName(NameOf(path), BackingKind::kMalloc, &uuid, &found)) {
    return nullptr;
  }
  const int copy = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (copy < 0) return nullptr;
  auto backing = Adopt(BackingKind::kMalloc, copy);
  return backing != nullptr && backing->id() == id ? backing : nullptr;
}

Backing::Backing(int fd, uint64_t id, const Uuid& uuid, uint64_t size_bytes)
    : fd_(fd), id_(id), uuid_(uuid), size_bytes_(size_bytes) {}

Backing::~Backing() { close(fd_); }

void Backing::Fill(uint8_t value, uint64_t size_bytes) {
  size_bytes = std::min(size_bytes, size_bytes_);
  if (size_bytes == 0) return;
  void* const bytes = mmap(nullptr, size_bytes, PROT_WRITE, MAP_SHARED, fd_, 0);
  if (bytes == MAP_FAILED) abort();
  memset(bytes, value, size_bytes);
  munmap(bytes, size_bytes);
}

void Backing::MarkInUse() {
  struct flock lock = WholeFile(F_RDLCK);
  fcntl(fd_, F_OFD_SETLK, &lock);
}

bool Backing::IsInUseElsewhere() const {
  struct flock lock = WholeFile(F_WRLCK);
  return fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace datasetd::emulated_driver
