// Input: a cache entry, as a file. If its first byte is 1, the rest is the
// body of a header, and gets a right prefix and samples of zeros.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/cache/cache_entry.h"
#include "server/cache/cached_source.h"

namespace {

using datasetd::CacheHeader;
using datasetd::CacheLayout;

class MemoryFile : public datasetd::RandomAccessFile {
 public:
  explicit MemoryFile(std::string data) : data_(std::move(data)) {
    info_.path = "fuzz";
    info_.size_bytes = static_cast<int64_t>(data_.size());
  }
  const datasetd::FileInfo& info() const override { return info_; }
  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    if (offset < 0) abort();
    if (offset >= info_.size_bytes) return 0;
    const size_t count = std::min(buffer.size(), data_.size() - offset);
    std::memcpy(buffer.data(), data_.data() + offset, count);
    return static_cast<int64_t>(count);
  }

 private:
  const std::string data_;
  datasetd::FileInfo info_;
};

std::string WithPrefix(const std::string& body) {
  const uint64_t size = body.size() + 32;
  const uint64_t checksum = datasetd::CacheChecksum(absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(body.data()), body.size()));
  std::string file("dsdcache\4\0\0\0\0\0\0\0", 16);
  file.append(reinterpret_cast<const char*>(&size), sizeof(size));
  file.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return file + body;
}

// Reads all of it, a few samples at a time.
void ReadSamples(datasetd::CachedSource& source) {
  const datasetd::SourceInfo& info = source.info();
  constexpr int64_t kChunk = 7;
  for (int64_t first = 0; first < info.num_samples; first += kChunk) {
    const int64_t count = std::min(kChunk, info.num_samples - first);
    std::vector<std::vector<uint8_t>> buffers;
    std::vector<absl::Span<uint8_t>> spans;
    for (const datasetd::FieldSpec& field : info.fields) {
      buffers.emplace_back(count * field.sample_bytes());
    }
    for (auto& buffer : buffers) spans.push_back(absl::MakeSpan(buffer));
    const absl::Status status = source.Read(first, count, spans);
    if (status.ok()) continue;
    if (status.code() != absl::StatusCode::kDataLoss) abort();
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  constexpr int64_t kMaxFileBytes = 1 << 20;
  if (!file.empty() && file[0] == 1) {
    file = WithPrefix(file.substr(1));
    const auto header = datasetd::DecodeCacheHeader(absl::MakeConstSpan(
        reinterpret_cast<const uint8_t*>(file.data()), file.size()));
    if (header.ok()) {
      const auto layout = datasetd::LayOutCacheEntry(*header);
      if (!layout.ok()) abort();
      if (layout->file_bytes > kMaxFileBytes) return 0;
      file.resize(layout->file_bytes);
    }
  }
  auto opened = std::make_unique<MemoryFile>(std::move(file));
  auto header = datasetd::ReadCacheHeader(*opened);
  if (!header.ok()) {
    // Damaged, or of another version.
    if (header.status().code() != absl::StatusCode::kDataLoss &&
        header.status().code() != absl::StatusCode::kFailedPrecondition) {
      abort();
    }
    return 0;
  }
  auto layout = datasetd::LayOutCacheEntry(*header);
  if (!layout.ok() || layout->file_bytes != opened->info().size_bytes) abort();
  datasetd::CachedSource source(std::move(opened), *std::move(header),
                                *std::move(layout));
  ReadSamples(source);
  return 0;
}
