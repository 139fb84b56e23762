#include "cuda/backend/host_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_descriptor.h"
#include "base/shared_mapping.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

absl::Status CheckAvailable(size_t size_bytes) {
  if (size_bytes == 0) {
    return absl::InvalidArgumentError("an allocation of 0 bytes");
  }
  return CheckAvailableHostBytes(size_bytes);
}

class Mapping {
 public:
  Mapping(void* data, size_t size_bytes)
      : data_(static_cast<uint8_t*>(data)), size_bytes_(size_bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(other.size_bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, size_bytes_);
  }

  uint8_t* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  uint8_t* data_;
  size_t size_bytes_;
};

absl::StatusOr<Mapping> MapPrivate(size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckAvailable(size_bytes));
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return HostMemoryError("mmap", size_bytes, errno);
  // Advice only: fewer page faults and TLB misses over a resident dataset.
  madvise(data, size_bytes, MADV_HUGEPAGE);
  return Mapping(data, size_bytes);
}

// DeviceMemory or HostMemory, which are the same here.
template <typename Base>
class MappedMemory final : public Base {
 public:
  explicit MappedMemory(Mapping mapping) : mapping_(std::move(mapping)) {}

  uint8_t* data() const override { return mapping_.data(); }
  size_t size_bytes() const override { return mapping_.size_bytes(); }

 private:
  const Mapping mapping_;
};

class MemfdMemory final : public ExportedMemory {
 public:
  MemfdMemory(FileDescriptor file, Mapping mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}

  uint8_t* data() const override { return mapping_.data(); }
  size_t size_bytes() const override { return mapping_.size_bytes(); }
  ExportKind export_kind() const override { return ExportKind::kMemfd; }
  absl::Span<const uint8_t> ipc_handle() const override { return {}; }
  int file_descriptor() const override { return file_.get(); }
  void Revoke() override {
    // Cannot fail: nothing seals the file against writing, since this process
    // maps it for writing and F_SEAL_SEAL is set.
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(mapping_.size_bytes()));
  }

 private:
  const FileDescriptor file_;
  const Mapping mapping_;
};

// The files of a control group.
struct GroupFiles {
  const char* limit;
  const char* usage;
  // Lines of memory.stat: page cache, which the kernel takes back.
  const char* active_file;
  const char* inactive_file;
};
constexpr GroupFiles kVersion2 = {"/memory.max", "/memory.current",
                                  "active_file", "inactive_file"};
// Whose lines without "total_" leave out the groups below.
constexpr GroupFiles kVersion1 = {"/memory.limit_in_bytes",
                                  "/memory.usage_in_bytes", "total_active_file",
                                  "total_inactive_file"};

size_t FileBytes(const std::string& stat_path, const GroupFiles& files) {
  std::ifstream file(stat_path);
  std::string name;
  size_t value = 0;
  size_t total = 0;
  while (file >> name >> value) {
    if (name == files.active_file || name == files.inactive_file) {
      total += value;
    }
  }
  return total;
}

// Adds the limits of `group` ("/" or "/a/b") and its parents below
// `mount_path`. Returns false if none of them is there.
bool AddGroups(const GroupFiles& files, const std::string& mount_path,
               std::string group, ControlGroupLimits* limits) {
  bool is_seen = false;
  // The last one is the mount itself: in a container, the container's group.
  for (;; group.resize(group.rfind('/'))) {
    const std::string directory = mount_path + group;
    std::ifstream limit_file(directory + files.limit);
    // Each group has this file; the root of version 2 has no limit.
    is_seen = is_seen || std::ifstream(directory + "/cgroup.procs").is_open();
    size_t limit = 0;
    size_t usage = 0;
    if ((limit_file >> limit) &&
        (std::ifstream(directory + files.usage) >> usage)) {
      usage -= std::min(usage, FileBytes(directory + "/memory.stat", files));
      limits->limit_bytes = std::min(limits->limit_bytes, limit);
      limits->room_bytes =
          std::min(limits->room_bytes, limit - std::min(limit, usage));
    }
    if (group.empty()) break;
  }
  return is_seen;
}

}  // namespace

absl::Status HostMemoryError(const char* call, size_t size_bytes, int error) {
  const std::string message =
      absl::StrCat(call, " of ", size_bytes, " bytes: ", strerror(error));
  if (error == ENOMEM || error == ENOSPC) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

absl::StatusOr<size_t> AvailableHostBytes() {
  std::ifstream file("/proc/meminfo");
  if (!file) {
    return absl::ErrnoToStatus(
        errno,
        "cannot open /proc/meminfo, which says how much memory is free (if "
        "there are too many open files, raise LimitNOFILE= or ulimit -n)");
  }
  std::string line;
  unsigned long long kib = 0;
  bool found = false;
  while (!found && std::getline(file, line)) {
    found = std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1;
  }
  if (!found) return absl::InternalError("/proc/meminfo has no MemAvailable");
  return std::min(static_cast<size_t>(kib) * 1024,
                  ReadControlGroups().room_bytes);
}

absl::Status CheckAvailableHostBytes(size_t size_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const size_t available, AvailableHostBytes());
  if (size_bytes > available) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot take ", size_bytes, " bytes of host memory: ", available,
        " bytes are available"));
  }
  return absl::OkStatus();
}

ControlGroupLimits ReadControlGroups(const std::string& list_path,
                                     const std::string& mount_path) {
  ControlGroupLimits limits;
  std::ifstream list(list_path);
  std::string line;
  std::optional<bool> is_seen1;  // version 1's group, if memory has one
  std::optional<bool> is_seen2;
  // HIERARCHY:CONTROLLERS:PATH, where version 2 has hierarchy 0 and no
  // controllers.
  while (std::getline(list, line)) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (line[0] == '0' && parts[1].empty()) {
      is_seen2 = AddGroups(kVersion2, mount_path, parts[2], &limits);
    } else if (std::find(controllers.begin(), controllers.end(), "memory") !=
               controllers.end()) {
      is_seen1 =
          AddGroups(kVersion1, mount_path + "/memory", parts[2], &limits);
    }
  }
  // Where version 1 limits memory, version 2 is mounted elsewhere.
  limits.has_hidden = !is_seen1.value_or(is_seen2.value_or(true));
  return limits;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateHostDeviceMemory(
    size_t size_bytes) {
  DATASETD_ASSIGN_OR_RETURN(Mapping mapping, MapPrivate(size_bytes));
  return std::make_unique<MappedMemory<DeviceMemory>>(std::move(mapping));
}

absl::StatusOr<std::unique_ptr<HostMemory>> AllocatePlainHostMemory(
    size_t size_bytes) {
  DATASETD_ASSIGN_OR_RETURN(Mapping mapping, MapPrivate(size_bytes));
  return std::make_unique<MappedMemory<HostMemory>>(std::move(mapping));
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateMemfd(
    size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckAvailable(size_bytes));
  const size_t rounded = (size_bytes + kExportAlignmentBytes - 1) /
                         kExportAlignmentBytes * kExportAlignmentBytes;
  DATASETD_RETURN_IF_ERROR(CheckAvailable(rounded));
  FileDescriptor file(
      memfd_create("datasetd-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.has_value()) return HostMemoryError("memfd_create", rounded, errno);
  if (ftruncate(file.get(), static_cast<off_t>(rounded)) != 0) {
    return HostMemoryError("ftruncate", rounded, errno);
  }
  TakeHugePages(file.get(), rounded);
  // Takes the other pages, and says so if there are none; a later fault would
  // be a SIGBUS.
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(rounded)) != 0) {
    return HostMemoryError("fallocate", rounded, errno);
  }
  void* data = MapShared(file.get(), rounded);
  if (data == MAP_FAILED) return HostMemoryError("mmap", rounded, errno);
  Mapping mapping(data, rounded);
  if (fcntl(file.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return HostMemoryError("fcntl(F_ADD_SEALS)", rounded, errno);
  }
  return std::make_unique<MemfdMemory>(std::move(file), std::move(mapping));
}

}  // namespace datasetd
