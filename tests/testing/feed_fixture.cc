#include "tests/testing/feed_fixture.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

namespace datasetd::testing {
namespace {

int64_t RoundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) std::abort();
  return *std::move(value);
}

class FileMemory final : public DeviceMemory {
 public:
  FileMemory(std::shared_ptr<const MappedFile> file, int64_t num_samples)
      : file_(std::move(file)),
        size_bytes_(static_cast<size_t>(num_samples * kMappedSampleBytes)) {}
  uint8_t* data() const override { return file_->data(); }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const std::shared_ptr<const MappedFile> file_;
  const size_t size_bytes_;
};

}  // namespace

std::shared_ptr<const MappedFile> MakeMappedBytes(int64_t num_samples) {
  FileDescriptor fd(memfd_create("bytes", MFD_CLOEXEC));
  const int64_t size_bytes = num_samples * kMappedSampleBytes;
  if (!fd.has_value() || ftruncate(fd.get(), size_bytes) != 0) std::abort();
  auto file =
      ValueOrDie(MappedFile::Map(std::move(fd), "bytes", size_bytes, true));
  for (int64_t i = 0; i < num_samples; ++i) {
    file->data()[i * kMappedSampleBytes] = static_cast<uint8_t>(i);
  }
  return file;
}

std::shared_ptr<const Dataset> MakeByteDataset(
    Backend* backend, int64_t num_samples,
    std::shared_ptr<const MappedFile> file) {
  Dataset::Contents contents;
  contents.file = std::move(file);
  contents.name = "bytes";
  contents.backend = backend;
  contents.num_samples = num_samples;
  contents.fields = {{.name = "image",
                      .dtype = Dtype::kUint8,
                      .shape = {1, 1, 1},
                      .is_image = true}};
  contents.content_hash = "bytes";
  if (contents.file != nullptr) {
    contents.fields[0].shape = {1, kMappedSampleBytes, 1};
    contents.memory.emplace_back(
        std::make_unique<FileMemory>(contents.file, num_samples));
    return std::make_shared<const Dataset>(std::move(contents));
  }
  contents.memory.push_back(ValueOrDie(backend->Allocate(num_samples)));
  std::vector<uint8_t> bytes(num_samples);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const auto stream = ValueOrDie(backend->CreateStream(nullptr));
  if (!stream
           ->CopyToDevice(contents.memory[0].data(), bytes.data(), bytes.size())
           .ok() ||
      !stream->Synchronize().ok()) {
    std::abort();
  }
  return std::make_shared<const Dataset>(std::move(contents));
}

TestFeed MakeTestFeed(Backend* backend, const TestFeedOptions& options) {
  auto channel = std::make_unique<MemoryChannel>(options.num_slots);
  TestFeed made;
  made.channel = channel.get();
  made.feed = MakeTestFeed(backend, options, std::move(channel));
  return made;
}

std::unique_ptr<Feed> MakeTestFeed(Backend* backend,
                                   const TestFeedOptions& options,
                                   std::unique_ptr<FeedChannel> channel) {
  Feed::Options feed;
  feed.id = options.id;
  feed.uid = options.uid;
  feed.sample_operations = options.sample_operations;
  feed.dataset = MakeByteDataset(backend, options.num_samples, options.file);
  feed.program = std::make_unique<AugmentProgram>();
  feed.program->num_fields = 1;
  feed.program->indices_offset_bytes = RoundUp(options.batch_size);
  FieldProgram& field = feed.program->fields[0];
  feed.sources = {0};
  field.source = feed.dataset->field_data(0);
  field.sample_stride_bytes = options.file == nullptr ? 1 : kMappedSampleBytes;
  field.in_dtype = Dtype::kUint8;
  field.out_dtype = Dtype::kUint8;
  field.layout = Layout::kNchw;
  field.is_image = true;
  field.in_height = field.in_width = field.out_height = field.out_width = 1;
  field.channels = 1;
  feed.sampler.num_samples = options.num_samples;
  feed.sampler.batch_size = options.batch_size;
  feed.sampler.drop_last = options.drop_last;
  feed.sampler.shuffle = options.shuffle;
  feed.sampler.world_size = options.world_size;
  if (options.weights != nullptr) {
    feed.sampler.weights = options.weights;
    feed.sampler.num_draws = options.num_samples;
  }
  feed.num_slots = options.num_slots;
  feed.slot_stride_bytes = static_cast<uint64_t>(
      RoundUp(options.batch_size) +
      RoundUp(options.batch_size * static_cast<int64_t>(sizeof(int64_t))));
  feed.start = options.start;
  feed.order = options.order;
  feed.scratch = options.scratch;
  auto slab = ValueOrDie(
      backend->AllocateExported(options.num_slots * feed.slot_stride_bytes,
                                backend->export_kinds().front()));
  return ValueOrDie(Feed::Create(std::move(feed), std::move(slab),
                                 std::move(channel), options.on_done));
}

std::vector<uint8_t> BatchBytes(const Feed& feed,
                                const MemoryChannel::Published& published) {
  const uint8_t* const slot =
      feed.slab().data() + published.slot * feed.batch_bytes();
  return std::vector<uint8_t>(slot, slot + published.batch.num_samples);
}

}  // namespace datasetd::testing
