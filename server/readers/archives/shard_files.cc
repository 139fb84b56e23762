#include "server/readers/archives/shard_files.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/files/reopened_file.h"
#include "server/readers/brace_pattern.h"
#include "server/readers/inflated_file.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxOpenFiles = 64;
// Number of shards read concurrently, unless they are tiny.
constexpr size_t kMaxInflatedFiles = 4;
// Pixels expand 1 to 10 times, headers of small members and masks
// more; deflate's maximum is 1032.
constexpr int64_t kDefaultInflation = 100;
constexpr int64_t kMinDefaultLimit = 64 << 20;

constexpr absl::string_view kExpected =
    "a tar file, or a pattern of them as DIR/train-{000..146}.tar";
constexpr size_t kHeadBytes = 512;

// True for gzip, unless it is an archive whose first name starts with the same
// bytes.
bool IsGzip(absl::Span<const uint8_t> head) {
  const absl::string_view text(reinterpret_cast<const char*>(head.data()),
                               head.size());
  return absl::StartsWith(text, "\x1f\x8b") &&
         (text.size() < 262 || text.substr(257, 5) != "ustar");
}

int64_t DefaultLimit(int64_t size_bytes) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (size_bytes > kMax / kDefaultInflation) return kMax;
  return std::max(size_bytes * kDefaultInflation, kMinDefaultLimit);
}

}  // namespace

absl::StatusOr<ShardFiles> ShardFiles::Open(const v1::DatasetSpec& spec,
                                            const ReaderContext& context) {
  ShardFiles shards;
  shards.files_ = &context.files;
  shards.memory_ = std::make_unique<ListMemory>(context.account);
  DATASETD_ASSIGN_OR_RETURN(
      shards.max_inflated_bytes_,
      IntOption(spec, kOptionName, 0, 1, context.max_inflated_bytes));
  shards.configured_bytes_ = context.max_inflated_bytes;
  ListMemory path_memory(context.account);
  DATASETD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            ExpandBraces(spec.path(), path_memory));
  for (const std::string& path : paths) {
    DATASETD_ASSIGN_OR_RETURN(auto file,
                              OpenSourceFile(context.files, path, kExpected));
    // Twice, for SourceInfo::files.
    DATASETD_RETURN_IF_ERROR(
        shards.memory_->Add(2 * ListedBytes(file->info())));
    shards.infos_.push_back(file->info());
    uint8_t head[kHeadBytes];
    DATASETD_ASSIGN_OR_RETURN(const int64_t size,
                              file->ReadAt(0, absl::MakeSpan(head)));
    shards.is_compressed_.push_back(IsGzip({head, static_cast<size_t>(size)}));
  }
  shards.CloseAll();
  MutexLock lock(&shards.inflated_->mutex);
  shards.inflated_->size_bytes.resize(paths.size(), -1);
  return shards;
}

absl::StatusOr<std::shared_ptr<const RandomAccessFile>> ShardFiles::OpenOne(
    size_t shard) const {
  if (is_compressed_[shard]) return OpenInflated(shard);
  if (shard < open_.size()) return open_[shard];
  return OpenUnchanged(*files_, infos_[shard]);
}

void ShardFiles::CloseAll() {
  open_.resize(std::min(infos_.size(), kMaxOpenFiles));
  for (size_t shard = 0; shard < open_.size(); ++shard) {
    if (is_compressed_[shard]) continue;
    open_[shard] = OpenWhenRead(*files_, infos_[shard]);
  }
  MutexLock lock(&inflated_->mutex);
  inflated_->open.clear();
}

absl::StatusOr<std::shared_ptr<const RandomAccessFile>>
ShardFiles::OpenInflated(size_t shard) const {
  // Held while a shard is inflated to find its size, which only the first scan
  // does.
  MutexLock lock(&inflated_->mutex);
  auto& open = inflated_->open;
  for (auto it = open.begin(); it != open.end(); ++it) {
    if (it->first != shard) continue;
    open.splice(open.begin(), open, it);
    return it->second;
  }
  DATASETD_ASSIGN_OR_RETURN(auto file, OpenUnchanged(*files_, infos_[shard]));
  int64_t& size_bytes = inflated_->size_bytes[shard];
  if (size_bytes < 0) {
    const int64_t max_bytes =
        max_inflated_bytes_ > 0
            ? max_inflated_bytes_
            : std::min(DefaultLimit(file->info().size_bytes),
                       configured_bytes_);
    const auto inflated = InflatedBytes(*file, max_bytes);
    if (absl::IsInvalidArgument(inflated.status())) {
      return absl::InvalidArgumentError(absl::StrCat(
          inflated.status().message(), ", the limit of option ", kOptionName,
          " (by default ", kDefaultInflation,
          " times the file, or 64 MiB): give a higher one if the file is "
          "right, at most ",
          configured_bytes_,
          ", which is max_inflated_mib of the daemon's configuration"));
    }
    DATASETD_ASSIGN_OR_RETURN(size_bytes, inflated);
  }
  open.emplace_front(shard, OpenInflatedFile(std::move(file), size_bytes));
  if (open.size() > kMaxInflatedFiles) open.pop_back();
  return open.front().second;
}

absl::Status ShardFiles::ReadAt(size_t shard, int64_t offset,
                                absl::Span<uint8_t> buffer) const {
  DATASETD_ASSIGN_OR_RETURN(const auto file, OpenOne(shard));
  return ReadExactly(*file, offset, buffer);
}

}  // namespace datasetd
