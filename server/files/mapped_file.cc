#include "server/files/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/require.h"
#include "server/files/errno_status.h"

namespace datasetd {

// A mapping as the signal handler sees it. Guards are never freed, since a
// handler may look at them at any time, but used again. A free one has begin
// 0. The end is changed only while begin is 0.
struct MappingGuard {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;
  std::atomic<bool> is_damaged = false;
  MappingGuard* next = nullptr;
};

namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free);

std::atomic<MappingGuard*> all_guards = nullptr;
std::mutex guards_mutex;  // for changes
struct sigaction previous_action;

// Calls nothing but mmap and sigaction.
void OnBusError(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (MappingGuard* guard = all_guards.load(std::memory_order_acquire);
       guard != nullptr; guard = guard->next) {
    const uintptr_t begin = guard->begin.load(std::memory_order_acquire);
    const uintptr_t end = guard->end.load(std::memory_order_acquire);
    // Else the end may be that of another mapping.
    if (begin == 0 || begin != guard->begin.load(std::memory_order_acquire)) {
      continue;
    }
    if (address < begin || address >= end) continue;
    guard->is_damaged.store(true, std::memory_order_release);
    if (mmap(reinterpret_cast<void*>(begin), end - begin,
             PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
             0) != MAP_FAILED) {
      errno = error;
      return;
    }
  }
  // The access is repeated, and its signal goes to the handler before this one.
  sigaction(SIGBUS, &previous_action, nullptr);
  errno = error;
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    Require(sigaction(SIGBUS, &action, &previous_action) == 0,
            "a SIGBUS handler can be installed");
  });
}

MappingGuard* TakeGuard(uintptr_t begin, uintptr_t end) {
  const std::lock_guard lock(guards_mutex);
  MappingGuard* guard = all_guards.load(std::memory_order_relaxed);
  while (guard != nullptr && guard->begin.load() != 0) guard = guard->next;
  if (guard == nullptr) {
    guard = new MappingGuard;
    guard->next = all_guards.load(std::memory_order_relaxed);
    all_guards.store(guard, std::memory_order_release);
  }
  guard->is_damaged.store(false);
  guard->end.store(end);
  guard->begin.store(begin);
  return guard;
}

void FreeGuard(MappingGuard* guard) {
  const std::lock_guard lock(guards_mutex);
  guard->begin.store(0);
  guard->end.store(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Map(FileDescriptor fd,
                                                            std::string path,
                                                            int64_t size_bytes,
                                                            bool is_writable) {
  Require(size_bytes > 0, "a mapping has bytes");
  InstallHandler();
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return ErrnoStatus(path, "fstat");
  if (status.st_size < size_bytes) {
    return absl::DataLossError(absl::StrCat(path, ": has ", status.st_size,
                                            " bytes, expected ", size_bytes));
  }
  void* const data = mmap(nullptr, static_cast<size_t>(size_bytes),
                          is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
                          MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(path, "mmap");
  return std::unique_ptr<MappedFile>(new MappedFile(
      std::move(fd), std::move(path), static_cast<uint8_t*>(data), size_bytes));
}

MappedFile::MappedFile(FileDescriptor fd, std::string path, uint8_t* data,
                       int64_t size_bytes)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      data_(data),
      size_bytes_(size_bytes),
      guard_(TakeGuard(reinterpret_cast<uintptr_t>(data),
                       reinterpret_cast<uintptr_t>(data) +
                           static_cast<uintptr_t>(size_bytes))) {}

MappedFile::~MappedFile() {
  FreeGuard(guard_);
  munmap(data_, static_cast<size_t>(size_bytes_));
}

absl::Status MappedFile::status() const {
  if (!guard_->is_damaged.load(std::memory_order_acquire)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      path_,
      ": cannot be read any more: the disk failed, or the file was cut"));
}

bool MappedFile::is_cut() const {
  struct stat status;
  return fstat(fd_.get(), &status) == 0 && status.st_size < size_bytes_;
}

void MappedFile::Prefetch(const uint8_t* data, int64_t size_bytes) const {
  static const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin =
      reinterpret_cast<uintptr_t>(data) / page_bytes * page_bytes;
  const uintptr_t end =
      reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(size_bytes);
  // It is only advice.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

absl::Status MappedFile::Finish(int64_t size_bytes) const {
  if (ftruncate(fd_.get(), size_bytes) != 0) {
    return ErrnoStatus(path_, "ftruncate");
  }
  if (fsync(fd_.get()) != 0) return ErrnoStatus(path_, "fsync");
  return status();
}

}  // namespace datasetd
