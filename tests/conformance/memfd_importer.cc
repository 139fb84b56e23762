#include "tests/conformance/memfd_importer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace datasetd::testing {
namespace {

class MemfdView final : public ImportedMemory {
 public:
  MemfdView(uint8_t* data, size_t size_bytes)
      : data_(data), size_bytes_(size_bytes) {}
  ~MemfdView() override { munmap(data_, size_bytes_); }

  absl::Status Read(size_t offset_bytes, absl::Span<uint8_t> bytes) override {
    std::copy_n(data_ + offset_bytes, bytes.size(), bytes.begin());
    return absl::OkStatus();
  }
  absl::Status Write(size_t offset_bytes,
                     absl::Span<const uint8_t> bytes) override {
    std::copy(bytes.begin(), bytes.end(), data_ + offset_bytes);
    return absl::OkStatus();
  }

 private:
  uint8_t* const data_;
  const size_t size_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImportedMemory>> ImportMemfd(
    const ExportDescription& description, FileDescriptor file) {
  void* data = mmap(nullptr, description.size_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    return absl::InternalError(absl::StrCat("mmap: ", strerror(errno)));
  }
  return std::make_unique<MemfdView>(static_cast<uint8_t*>(data),
                                     description.size_bytes);
}

}  // namespace datasetd::testing
