#include "server/load/sample_loader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/content_hasher.h"
#include "base/digest.h"
#include "base/nvtx_range.h"
#include "base/status_macros.h"
#include "server/dataset/load_cancelled.h"
#include "server/dataset/ragged_index.h"
#include "server/files/aligned_buffer.h"
#include "server/load/bad_sample_filter.h"
#include "server/load/field_writer.h"
#include "server/load/sample_transform.h"
#include "server/load/sample_workers.h"

namespace datasetd {
namespace {

// Chunks that are begun before the oldest one is copied; no more than
// LoadPlan::num_input_buffers.
constexpr size_t kNumChunksAhead = 2;
// A chunk in staging memory.
struct Staging {
  std::unique_ptr<HostMemory> memory;
  std::unique_ptr<Event> event;  // after its copies
  ContentHasher::Ticket hash_ticket = 0;
  std::vector<absl::Span<uint8_t>> fields;
  // For packed fields: the place of each sample in its span.
  std::vector<std::vector<RaggedSample>> places;
};

class Loader {
 public:
  // Without a placement the samples are hashed alone.
  Loader(const LoadPlan& plan, const Placement* placement, SampleSource& source,
         Backend* backend, LoadCounters& counters, const DecodeAccount& account,
         SampleStore* store);
  ~Loader() { counters_.SetStreams({}); }

  absl::Status Allocate();
  absl::Status Run();
  // What was read: numbers, fields, hash, reports. REQUIRES: Run has returned
  // OK; called once.
  Dataset::Contents TakeContents();
  // REQUIRES: as TakeContents, and a placement.
  absl::StatusOr<std::shared_ptr<const Dataset>> TakeDataset(
      const std::string& name, const std::string& expected_hash,
      std::vector<Reservation>&& reservations);

 private:
  // The samples of a chunk, from Begin to End.
  struct Chunk {
    Staging* staging = nullptr;
    int64_t count = 0;
  };

  bool IsPacked(size_t field) const {
    return plan_.fields[field].resident.is_packed();
  }
  // True if the fields lie whole on the device, or in the store.
  bool IsWhole() const {
    return placement_ != nullptr && placement_->is_whole();
  }
  // Allocates the memory that keeps a field.
  absl::Status AllocateField(size_t field);
  // True if the field is read to an input buffer.
  bool HasInput(size_t field) const {
    return !plan_.is_encoded && plan_.fields[field].is_transformed;
  }
  // Size of `count` samples of a field in staging memory, starting at `first`.
  int64_t StagedBytes(size_t field, int64_t first, int64_t count) const;
  // The number of samples in the next chunk, which starts at `first`.
  int64_t NextCount(int64_t first) const;
  // Lays out the fields one after the other.
  void Divide(Staging& staging, int64_t first, int64_t count) const;
  // Has the workers begin the next chunk.
  absl::Status Begin();
  // Memory for the samples of a plain source that have pretransforms.
  std::vector<absl::Span<uint8_t>> Inputs(int64_t count);
  // Waits for the oldest chunk, and has its samples hashed and copied.
  absl::Status End();
  // Waits for the workers, and removes the chunk's bad samples. Returns how
  // many are left.
  absl::StatusOr<int64_t> Finish(Staging& staging);
  absl::Status Place(Staging& staging, int64_t count);
  // Copies samples of a field to where they are to lie.
  absl::Status Write(size_t field, absl::Span<const uint8_t> samples,
                     int64_t count);
  // For a packed field of an encoded source: appends the samples of `rows`.
  void Pack(size_t field, absl::Span<const int64_t> rows, Staging& staging);
  absl::Status PlaceIndices();
  absl::Status WaitFor(Staging& staging);

  const LoadPlan& plan_;
  const Placement* const placement_;
  SampleSource& source_;
  Backend* const backend_;
  SampleStore* const store_;  // may be null
  LoadCounters& counters_;
  const DecodeAccount account_;

  // The fields, if they lie whole on the device; else the writer has them.
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<Dataset::Contents::Packed> packed_;
  std::vector<int64_t> packed_bytes_;  // written so far
  std::vector<Staging> staging_;
  std::vector<AlignedBuffer> inputs_;
  int64_t num_begun_ = 0;  // samples
  size_t begin_turn_ = 0;
  std::deque<Chunk> chunks_;
  int64_t num_ended_ = 0;   // samples
  int64_t num_placed_ = 0;  // of them, without bad ones
  BadSampleFilter filter_;
  // Declared last, so that they are destroyed first and wait for pending work.
  FieldWriter writer_;
  std::unique_ptr<Stream> stream_;
  std::optional<ContentHasher> hasher_;
  SampleTransforms transforms_;
  std::optional<SampleWorkers> workers_;
};

std::vector<int64_t> FixedSampleBytes(const LoadPlan& plan) {
  std::vector<int64_t> bytes;
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    bytes.push_back(field.resident.is_packed() ? 0
                                               : field.resident.sample_bytes());
  }
  return bytes;
}

Loader::Loader(const LoadPlan& plan, const Placement* placement,
               SampleSource& source, Backend* backend, LoadCounters& counters,
               const DecodeAccount& account, SampleStore* store)
    : plan_(plan),
      placement_(placement),
      source_(source),
      backend_(backend),
      store_(store),
      counters_(counters),
      account_(account),
      filter_(plan.bad_samples, plan.max_bad_samples, &source,
              FixedSampleBytes(plan)) {}

absl::Status Loader::Allocate() {
  const size_t num_fields = plan_.fields.size();
  if (placement_ != nullptr && !placement_->is_whole()) {
    DATASETD_RETURN_IF_ERROR(writer_.Allocate(*placement_, num_fields, backend_,
                                              account_.uid,
                                              counters_.is_cancelled));
  }
  for (size_t f = 0; f < num_fields; ++f) {
    Dataset::Contents::Packed& packed = packed_.emplace_back();
    if (IsWhole()) DATASETD_RETURN_IF_ERROR(AllocateField(f));
    if (IsPacked(f)) {
      packed.index.emplace(PixelBytes(plan_.fields[f].resident));
      if (plan_.is_encoded) packed.index->Reserve(source_.info().num_samples);
    }
  }
  staging_.resize(static_cast<size_t>(plan_.num_staging_buffers));
  for (Staging& staging : staging_) {
    DATASETD_ASSIGN_OR_RETURN(staging.memory,
                              backend_->AllocateHost(plan_.staging_bytes));
    DATASETD_ASSIGN_OR_RETURN(staging.event, backend_->CreateEvent());
    staging.fields.resize(num_fields);
    staging.places.resize(num_fields);
  }
  inputs_.resize(static_cast<size_t>(plan_.num_input_buffers));
  for (AlignedBuffer& input : inputs_) {
    input.Reserve(static_cast<size_t>(plan_.input_bytes));
  }
  packed_bytes_.resize(num_fields);
  hasher_.emplace(num_fields, ContentHasher::DefaultNumThreads());
  DATASETD_ASSIGN_OR_RETURN(
      stream_, backend_->CreateStream(
                   nullptr, {.uid = account_.uid, .is_background = true}));
  counters_.SetStreams({stream_.get()});
  return absl::OkStatus();
}

absl::Status Loader::AllocateField(size_t field) {
  const int64_t num_samples = source_.info().num_samples;
  const FieldSpec& resident = plan_.fields[field].resident;
  const int64_t field_bytes = IsPacked(field)
                                  ? resident.packed_bytes
                                  : num_samples * resident.sample_bytes();
  DATASETD_ASSIGN_OR_RETURN(
      auto memory, store_ != nullptr ? store_->Allocate(field, field_bytes)
                                     : backend_->Allocate(field_bytes));
  memory_.push_back(std::move(memory));
  if (!IsPacked(field)) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(
      packed_[field].memory,
      backend_->Allocate(num_samples *
                         static_cast<int64_t>(sizeof(RaggedSample))));
  return absl::OkStatus();
}

int64_t Loader::StagedBytes(size_t field, int64_t first, int64_t count) const {
  if (!IsPacked(field)) {
    return count * plan_.fields[field].resident.sample_bytes();
  }
  if (!plan_.is_encoded) {
    const RaggedIndex& index = *packed_[field].index;
    return index.BytesBefore(first + count) - index.BytesBefore(first);
  }
  const FieldSpec& resident = plan_.fields[field].resident;
  const std::vector<ImageSize>& sizes = *plan_.fields[field].sizes;
  int64_t bytes = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const ImageSize size = sizes[static_cast<size_t>(i)];
    bytes += PaddedSampleBytes(size.height * size.width * PixelBytes(resident));
  }
  return bytes;
}

int64_t Loader::NextCount(int64_t first) const {
  const int64_t most =
      std::min(plan_.chunk_samples, source_.info().num_samples - first);
  bool has_packed = false;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    has_packed = has_packed || IsPacked(f);
  }
  if (!has_packed) return most;
  // At least one sample fits; each field may need padding for alignment.
  int64_t left = plan_.staging_bytes -
                 static_cast<int64_t>(plan_.fields.size()) * kStagingAlignment;
  int64_t count = 0;
  for (; count < most; ++count) {
    for (size_t f = 0; f < plan_.fields.size(); ++f) {
      left -= StagedBytes(f, first + count, 1);
    }
    if (left < 0) break;
  }
  return std::max<int64_t>(count, 1);
}

void Loader::Divide(Staging& staging, int64_t first, int64_t count) const {
  int64_t offset = 0;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const int64_t size = StagedBytes(f, first, count);
    staging.fields[f] = absl::MakeSpan(staging.memory->data() + offset, size);
    offset += SaturatingRoundUp(size, kStagingAlignment);
    if (!IsPacked(f)) continue;
    std::vector<RaggedSample>& places = staging.places[f];
    places.clear();
    int64_t place = 0;
    for (int64_t i = first; i < first + count; ++i) {
      ImageSize planned;
      if (plan_.is_encoded) {
        planned = (*plan_.fields[f].sizes)[static_cast<size_t>(i)];
      }
      places.push_back({.offset_bytes = place,
                        .height = Narrow<int32_t>(planned.height),
                        .width = Narrow<int32_t>(planned.width)});
      place += StagedBytes(f, i, 1);
    }
  }
}

absl::Status Loader::Run() {
  const SourceInfo& info = source_.info();
  transforms_ = MakeTransforms(info, plan_);
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (!IsPacked(f) || plan_.is_encoded) continue;
    DATASETD_ASSIGN_OR_RETURN(packed_[f].index, source_.ReadIndex(f));
  }
  if (plan_.is_encoded) source_.AllowSmallerImages(plan_.smaller_images);
  workers_.emplace(&source_, &transforms_, plan_.num_workers, account_,
                   &counters_.is_cancelled);
  DATASETD_RETURN_IF_ERROR(workers_->status());
  while (num_ended_ < info.num_samples) {
    while (num_begun_ < info.num_samples && chunks_.size() < kNumChunksAhead) {
      DATASETD_RETURN_IF_ERROR(Begin());
    }
    DATASETD_RETURN_IF_ERROR(End());
  }
  DATASETD_RETURN_IF_ERROR(source_.CheckUnchanged());
  if (plan_.is_encoded && num_placed_ == 0) return filter_.NothingLeft();
  counters_.num_samples.store(num_placed_, std::memory_order_relaxed);
  return PlaceIndices();
}

absl::Status Loader::Begin() {
  DATASETD_RETURN_IF_ERROR(CheckNotCancelled(counters_.is_cancelled));
  const int64_t count = NextCount(num_begun_);
  Staging& staging = staging_[begin_turn_ % staging_.size()];
  DATASETD_RETURN_IF_ERROR(WaitFor(staging));
  if (store_ != nullptr) DATASETD_RETURN_IF_ERROR(store_->status());
  Divide(staging, num_begun_, count);
  workers_->Start({.count = count,
                   .fields = staging.fields,
                   .inputs = Inputs(count),
                   .places = staging.places});
  chunks_.push_back({&staging, count});
  ++begin_turn_;
  num_begun_ += count;
  return absl::OkStatus();
}

std::vector<absl::Span<uint8_t>> Loader::Inputs(int64_t count) {
  std::vector<absl::Span<uint8_t>> inputs(plan_.fields.size());
  int64_t offset = 0;
  for (size_t f = 0; f < inputs.size(); ++f) {
    if (!HasInput(f)) continue;
    // No chunk that is still worked on has the same one.
    uint8_t* const input = inputs_[begin_turn_ % inputs_.size()].data();
    const int64_t size = count * source_.info().fields[f].sample_bytes();
    inputs[f] = absl::MakeSpan(input + offset, static_cast<size_t>(size));
    offset += SaturatingRoundUp(size, kStagingAlignment);
  }
  return inputs;
}

absl::Status Loader::End() {
  const Chunk chunk = chunks_.front();
  chunks_.pop_front();
  DATASETD_ASSIGN_OR_RETURN(const int64_t count, Finish(*chunk.staging));
  if (count > 0) DATASETD_RETURN_IF_ERROR(Place(*chunk.staging, count));
  num_placed_ += count;
  num_ended_ += chunk.count;
  counters_.num_samples.store(num_ended_, std::memory_order_relaxed);
  counters_.num_bad_samples.store(filter_.report().num_samples,
                                  std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Loader::Finish(Staging& staging) {
  const std::vector<absl::Status> statuses = workers_->Finish();
  DATASETD_RETURN_IF_ERROR(CheckNotCancelled(counters_.is_cancelled));
  if (!plan_.is_encoded) {
    for (const absl::Status& status : statuses) {
      DATASETD_RETURN_IF_ERROR(status);
    }
    return static_cast<int64_t>(statuses.size());
  }
  DATASETD_ASSIGN_OR_RETURN(
      const int64_t count,
      filter_.Filter(num_ended_, statuses, staging.fields));
  for (size_t f = 0; f < staging.fields.size(); ++f) {
    if (IsPacked(f)) {
      Pack(f, filter_.rows(), staging);
    } else {
      staging.fields[f] = staging.fields[f].subspan(
          0, static_cast<size_t>(StagedBytes(f, num_ended_, count)));
    }
  }
  return count;
}

void Loader::Pack(size_t field, absl::Span<const int64_t> rows,
                  Staging& staging) {
  RaggedIndex& index = *packed_[field].index;
  uint8_t* const data = staging.fields[field].data();
  int64_t end = 0;
  int64_t last_row = BadSampleFilter::kEarlierRow;
  for (const int64_t row : rows) {
    if (row == last_row) {
      index.Repeat();
      continue;
    }
    last_row = row;
    const RaggedSample& from = staging.places[field][static_cast<size_t>(row)];
    index.Add({from.height, from.width});
    const int64_t bytes = index.sample_bytes(index.num_samples() - 1);
    std::memmove(data + end, data + from.offset_bytes,
                 static_cast<size_t>(bytes));
    const int64_t padded = PaddedSampleBytes(bytes);
    std::memset(data + end + bytes, 0, static_cast<size_t>(padded - bytes));
    end += padded;
  }
  staging.fields[field] =
      staging.fields[field].subspan(0, static_cast<size_t>(end));
}

absl::Status Loader::PlaceIndices() {
  DATASETD_RETURN_IF_ERROR(stream_->Synchronize());
  DATASETD_RETURN_IF_ERROR(writer_.Await());
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (!IsPacked(f)) continue;
    const RaggedIndex& index = *packed_[f].index;
    const auto* const data =
        reinterpret_cast<const uint8_t*>(index.samples().data());
    hasher_->Add(
        f, absl::MakeConstSpan(data, static_cast<size_t>(index.index_bytes())));
    if (packed_[f].memory == nullptr) {
      // The staging memory is used no more; the index is the dataset's.
      continue;
    }
    hasher_->Await(staging_[0].hash_ticket);
    HostMemory& buffer = *staging_[0].memory;
    for (int64_t offset = 0; offset < index.index_bytes();
         offset += plan_.staging_bytes) {
      const auto size = static_cast<size_t>(
          std::min(plan_.staging_bytes, index.index_bytes() - offset));
      std::memcpy(buffer.data(), data + offset, size);
      DATASETD_RETURN_IF_ERROR(stream_->CopyToDevice(
          packed_[f].memory->data() + offset, buffer.data(), size));
      DATASETD_RETURN_IF_ERROR(stream_->Synchronize());
    }
    counters_.num_bytes.fetch_add(index.index_bytes(),
                                  std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

// Buffers alternate, so this blocks only if the device or the hash is slower
// than what fills them.
absl::Status Loader::WaitFor(Staging& staging) {
  hasher_->Await(staging.hash_ticket);
  DATASETD_RETURN_IF_ERROR(writer_.Await());
  DATASETD_ASSIGN_OR_RETURN(const bool is_done, staging.event->IsDone());
  return is_done ? absl::OkStatus() : stream_->Synchronize();
}

absl::Status Loader::Place(Staging& staging, int64_t count) {
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const absl::Span<uint8_t> samples = staging.fields[f];
    staging.hash_ticket = hasher_->Add(f, samples);
    DATASETD_RETURN_IF_ERROR(Write(f, samples, count));
    const auto num_bytes = static_cast<int64_t>(samples.size());
    packed_bytes_[f] += num_bytes;
    counters_.num_bytes.fetch_add(num_bytes, std::memory_order_relaxed);
  }
  return stream_->Record(*staging.event);
}

absl::Status Loader::Write(size_t field, absl::Span<const uint8_t> samples,
                           int64_t count) {
  if (placement_ == nullptr) return absl::OkStatus();
  if (IsWhole()) {
    const int64_t offset =
        IsPacked(field)
            ? packed_bytes_[field]
            : num_placed_ * plan_.fields[field].resident.sample_bytes();
    return stream_->CopyToDevice(memory_[field]->data() + offset,
                                 samples.data(), samples.size());
  }
  absl::Span<const RaggedSample> places;
  if (IsPacked(field)) {
    places = absl::MakeConstSpan(packed_[field].index->samples())
                 .subspan(static_cast<size_t>(num_placed_),
                          static_cast<size_t>(count));
  }
  return writer_.Append(field, samples, places, *stream_);
}

Dataset::Contents Loader::TakeContents() {
  Dataset::Contents contents;
  contents.num_samples = num_placed_;
  contents.packed = std::move(packed_);
  std::vector<Digest> digests;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    contents.fields.push_back(plan_.fields[f].resident);
    digests.push_back(hasher_->Finish(f));
    if (contents.packed[f].index.has_value()) {
      contents.packed[f].index->Describe(&contents.fields[f]);
    }
  }
  contents.content_hash = ContentHash(plan_, num_placed_, digests);
  contents.bad_samples =
      plan_.is_encoded ? filter_.report() : source_.info().bad_samples;
  contents.notes = source_.info().notes;
  AddExifNote(workers_->num_unapplied_exif(), contents.notes);
  return contents;
}

absl::StatusOr<std::shared_ptr<const Dataset>> Loader::TakeDataset(
    const std::string& name, const std::string& expected_hash,
    std::vector<Reservation>&& reservations) {
  Dataset::Contents contents = TakeContents();
  contents.name = name;
  contents.backend = backend_;
  for (const ServedDevice* const device : placement_->devices) {
    contents.backends.push_back(device->backend.get());
  }
  if (!expected_hash.empty() && contents.content_hash != expected_hash) {
    return absl::DataLossError(
        absl::StrCat("the samples have the content hash ",
                     contents.content_hash, ", expected ", expected_hash));
  }
  if (IsWhole()) {
    contents.memory = {std::make_move_iterator(memory_.begin()),
                       std::make_move_iterator(memory_.end())};
  } else {
    contents.memory = writer_.TakeMemory();
  }
  contents.reservations = std::move(reservations);
  if (store_ != nullptr) {
    DATASETD_RETURN_IF_ERROR(store_->Finish(contents));
  }
  return std::make_shared<const Dataset>(std::move(contents));
}

}  // namespace

std::string ContentHash(const LoadPlan& plan, int64_t num_samples,
                        absl::Span<const Digest> fields) {
  std::string text = absl::StrCat("datasetd content 2\n", num_samples, "\n");
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    const FieldSpec& field = plan.fields[f].resident;
    absl::StrAppend(&text, field.name.size(), ":", field.name, " ",
                    DtypeName(field.dtype));
    for (const int64_t extent : field.shape) {
      absl::StrAppend(&text, " ", extent);
    }
    absl::StrAppend(&text,
                    field.is_mask    ? " mask "
                    : field.is_image ? " image "
                                     : " tensor ",
                    ToHex(fields[f]), "\n");
  }
  return HexDigest(text);
}

absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, PlacedMemory&& memory, LoadCounters& counters,
    const DecodeAccount& account, const std::string& expected_hash,
    SampleStore* store) {
  const NvtxRange range("load");
  // Goes after the buffers.
  DecodeBudget::Share buffers(account.staging, account.uid);
  DATASETD_RETURN_IF_ERROR(
      buffers.Take(plan.buffer_bytes(), &counters.is_cancelled));
  Loader loader(plan, &memory.placement, source, backend, counters, account,
                store);
  DATASETD_RETURN_IF_ERROR(loader.Allocate());
  DATASETD_RETURN_IF_ERROR(loader.Run());
  return loader.TakeDataset(name, expected_hash,
                            std::move(memory.reservations));
}

absl::StatusOr<Dataset::Contents> HashSamples(const LoadPlan& plan,
                                              SampleSource& source,
                                              Backend* backend,
                                              LoadCounters& counters,
                                              const DecodeAccount& account) {
  const NvtxRange range("hash");
  // Goes after the buffers.
  DecodeBudget::Share buffers(account.staging, account.uid);
  DATASETD_RETURN_IF_ERROR(
      buffers.Take(plan.buffer_bytes(), &counters.is_cancelled));
  Loader loader(plan, /*placement=*/nullptr, source, backend, counters, account,
                /*store=*/nullptr);
  DATASETD_RETURN_IF_ERROR(loader.Allocate());
  DATASETD_RETURN_IF_ERROR(loader.Run());
  return loader.TakeContents();
}

}  // namespace datasetd
