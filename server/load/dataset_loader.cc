#include "server/load/dataset_loader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/digest.h"
#include "base/nvtx_range.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "server/dataset/content_hasher.h"
#include "server/dataset/ragged_index.h"
#include "server/load/bad_sample_filter.h"
#include "server/load/field_writer.h"
#include "server/load/parallel_decoder.h"
#include "server/load/sample_transform.h"

namespace datasetd {
namespace {

// More threads slow down reading and copying.
constexpr int kMaxHashThreads = 4;

int NumHashThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2,
                    1, kMaxHashThreads);
}

// The hash of names, dtypes, shapes and every field's bytes.
std::string ContentHash(const LoadPlan& plan, int64_t num_samples,
                        ContentHasher& fields) {
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
                    ToHex(fields.Finish(f)), "\n");
  }
  return HexDigest(text);
}

// A chunk in staging memory.
struct Staging {
  std::unique_ptr<HostMemory> memory;
  std::unique_ptr<Event> event;
  Stream* stream = nullptr;  // that the event was recorded on
  ContentHasher::Ticket hash_ticket = 0;
  std::vector<absl::Span<uint8_t>> fields;
  // For packed fields of an encoded source: the place of each sample in its
  // span.
  std::vector<std::vector<RaggedSample>> places;
};

// A stream that works on one chunk at a time. For each field with pretransforms
// it has memory for the chunk as read, scratch memory, and the program.
struct Lane {
  std::vector<std::unique_ptr<DeviceMemory>> source;
  std::vector<std::unique_ptr<DeviceMemory>> scratch;
  // Where the program's samples go, unless they are written in place.
  std::vector<std::unique_ptr<DeviceMemory>> output;
  std::vector<std::unique_ptr<LoadedProgram>> programs;
  // The chunk that it makes, until that is hashed.
  Staging* staging = nullptr;
  int64_t first = 0;
  int64_t num_samples = 0;
  // Last, so that it is destroyed first and waits for pending work.
  std::unique_ptr<Stream> stream;
};

class Loader {
 public:
  Loader(const LoadPlan& plan, const Placement& placement, SampleSource& source,
         Backend* backend, LoadCounters& counters, const DecodeAccount& account,
         SampleStore* store)
      : plan_(plan),
        placement_(placement),
        source_(source),
        backend_(backend),
        store_(store),
        counters_(counters),
        account_(account) {}
  ~Loader() { counters_.SetStreams({}); }

  absl::Status Allocate();
  absl::Status Run() { return plan_.is_encoded ? RunEncoded() : RunPlain(); }
  // REQUIRES: Run has returned.
  int64_t num_samples() const { return num_placed_; }
  BadSampleReport TakeBadSamples() {
    return plan_.is_encoded ? std::move(bad_samples_)
                            : source_.info().bad_samples;
  }
  std::vector<FieldMemory> TakeMemory() {
    if (!placement_.is_whole()) return writer_.TakeMemory();
    return {std::make_move_iterator(memory_.begin()),
            std::make_move_iterator(memory_.end())};
  }
  std::vector<Dataset::Contents::Packed> TakePacked() {
    return std::move(packed_);
  }
  // REQUIRES: called once.
  std::string FinishContentHash() {
    return ContentHash(plan_, num_placed_, *hasher_);
  }

 private:
  absl::Status RunPlain();
  absl::Status RunEncoded();
  // True if the field's pretransforms run on the device.
  bool HasProgram(size_t field) const {
    return plan_.fields[field].has_program && !plan_.is_encoded;
  }
  // Size of one sample of a field in staging memory.
  int64_t StagedBytes(size_t field) const {
    return plan_.is_encoded ? plan_.fields[field].resident.sample_bytes()
                            : source_.info().fields[field].sample_bytes();
  }
  bool IsPacked(size_t field) const {
    return plan_.fields[field].resident.is_packed();
  }
  // Size of `count` samples of a field in staging memory, starting at `first`.
  int64_t StagedBytes(size_t field, int64_t first, int64_t count) const;
  // The number of samples in the next chunk, which starts at `first`.
  int64_t NextCount(int64_t first) const;
  // Lays out the fields one after the other.
  void Divide(Staging& staging, int64_t first, int64_t count) const;
  absl::Status Place(Staging& staging, Lane& lane, int64_t first,
                     int64_t count);
  // Copies samples of a field to where they are to lie, and has them hashed.
  absl::Status Write(size_t field, absl::Span<const uint8_t> samples,
                     Staging& staging, Lane& lane, int64_t first,
                     int64_t count);
  absl::Status Record(Staging& staging, Lane& lane);
  // For a packed field of an encoded source: appends the samples of `rows`.
  void Pack(size_t field, absl::Span<const int64_t> rows, Staging& staging);
  absl::Status PlaceIndices();
  absl::Status AllocateLane(Lane& lane);
  absl::Status FillIndices();
  absl::Status Transform(size_t field, const Staging& staging, Lane& lane,
                         int64_t first, int64_t count);
  // Waits for the chunk with pretransforms that the lane works on, if any, and
  // has it hashed.
  absl::Status Finish(Lane& lane);
  absl::Status WaitFor(Staging& staging);

  const LoadPlan& plan_;
  const Placement& placement_;
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
  int64_t num_placed_ = 0;
  BadSampleReport bad_samples_;
  std::unique_ptr<DeviceMemory> indices_;  // 0, 1, ...: for pretransforms
  // Declared last, so that they are destroyed first and wait for pending work.
  FieldWriter writer_;
  std::vector<Lane> lanes_;
  std::optional<ContentHasher> hasher_;
};

absl::Status Loader::Allocate() {
  const int64_t num_samples = source_.info().num_samples;
  const size_t num_fields = plan_.fields.size();
  bool has_programs = false;
  if (!placement_.is_whole()) {
    DATASETD_RETURN_IF_ERROR(
        writer_.Allocate(placement_, num_fields, backend_, account_.uid));
  }
  for (size_t f = 0; f < num_fields; ++f) {
    const LoadPlan::FieldPlan& field = plan_.fields[f];
    Dataset::Contents::Packed& packed = packed_.emplace_back();
    if (placement_.is_whole()) {
      const int64_t field_bytes =
          IsPacked(f) ? field.resident.packed_bytes
                      : num_samples * field.resident.sample_bytes();
      DATASETD_ASSIGN_OR_RETURN(
          auto memory, store_ != nullptr ? store_->Allocate(f, field_bytes)
                                         : backend_->Allocate(field_bytes));
      memory_.push_back(std::move(memory));
    }
    if (IsPacked(f)) {
      if (placement_.is_whole()) {
        DATASETD_ASSIGN_OR_RETURN(
            packed.memory,
            backend_->Allocate(num_samples *
                               static_cast<int64_t>(sizeof(RaggedSample))));
      }
      packed.index.emplace(PixelBytes(field.resident));
      if (plan_.is_encoded) packed.index->Reserve(num_samples);
    }
    has_programs = has_programs || HasProgram(f);
  }
  if (has_programs) {
    DATASETD_ASSIGN_OR_RETURN(
        indices_, backend_->Allocate(plan_.chunk_samples * sizeof(int64_t)));
  }
  staging_.resize(static_cast<size_t>(plan_.num_staging_buffers));
  for (Staging& staging : staging_) {
    DATASETD_ASSIGN_OR_RETURN(staging.memory,
                              backend_->AllocateHost(plan_.staging_bytes));
    DATASETD_ASSIGN_OR_RETURN(staging.event, backend_->CreateEvent());
    staging.fields.resize(num_fields);
    staging.places.resize(num_fields);
  }
  packed_bytes_.resize(num_fields);
  hasher_.emplace(num_fields, NumHashThreads());
  lanes_.resize(static_cast<size_t>(plan_.num_streams));
  std::vector<Stream*> streams;
  for (Lane& lane : lanes_) {
    DATASETD_RETURN_IF_ERROR(AllocateLane(lane));
    streams.push_back(lane.stream.get());
  }
  counters_.SetStreams(std::move(streams));
  return indices_ == nullptr ? absl::OkStatus() : FillIndices();
}

absl::Status Loader::AllocateLane(Lane& lane) {
  const size_t num_fields = plan_.fields.size();
  lane.source.resize(num_fields);
  lane.scratch.resize(num_fields);
  lane.output.resize(num_fields);
  lane.programs.resize(num_fields);
  for (size_t f = 0; f < num_fields; ++f) {
    if (!HasProgram(f)) continue;
    const int64_t sample_bytes = source_.info().fields[f].sample_bytes();
    DATASETD_ASSIGN_OR_RETURN(
        lane.source[f], backend_->Allocate(plan_.chunk_samples * sample_bytes));
    if (!placement_.is_whole()) {
      DATASETD_ASSIGN_OR_RETURN(
          lane.output[f],
          backend_->Allocate(plan_.chunk_samples *
                             plan_.fields[f].resident.sample_bytes()));
    }
    AugmentProgram program = ProgramOf(plan_.fields[f].program);
    program.fields[0].source = lane.source[f]->data();
    program.fields[0].sample_stride_bytes = sample_bytes;
    program.fields[0].offset_bytes = 0;
    if (const ScratchPlan plan = PlanScratch(program, backend_->max_teams());
        plan.size_bytes > 0) {
      DATASETD_ASSIGN_OR_RETURN(lane.scratch[f],
                                backend_->Allocate(plan.size_bytes));
      plan.Give(lane.scratch[f]->data(), &program);
    }
    DATASETD_ASSIGN_OR_RETURN(lane.programs[f], backend_->Load(program));
  }
  DATASETD_ASSIGN_OR_RETURN(
      lane.stream, backend_->CreateStream(
                       nullptr, {.uid = account_.uid, .is_background = true}));
  return absl::OkStatus();
}

absl::Status Loader::FillIndices() {
  std::vector<int64_t> indices(static_cast<size_t>(plan_.chunk_samples));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  Stream& stream = *lanes_[0].stream;
  DATASETD_RETURN_IF_ERROR(stream.CopyToDevice(
      indices_->data(), reinterpret_cast<const uint8_t*>(indices.data()),
      indices.size() * sizeof(int64_t)));
  return stream.Synchronize();
}

int64_t Loader::StagedBytes(size_t field, int64_t first, int64_t count) const {
  if (!IsPacked(field)) return count * StagedBytes(field);
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
    offset += RoundUpTo(
        HasProgram(f) ? count * plan_.StagedBytes(source_.info(), f) : size,
        kStagingAlignment);
    if (!IsPacked(f) || !plan_.is_encoded) continue;
    std::vector<RaggedSample>& places = staging.places[f];
    places.clear();
    int64_t place = 0;
    for (int64_t i = first; i < first + count; ++i) {
      const ImageSize planned =
          (*plan_.fields[f].sizes)[static_cast<size_t>(i)];
      places.push_back({.offset_bytes = place,
                        .height = Narrow<int32_t>(planned.height),
                        .width = Narrow<int32_t>(planned.width)});
      place += StagedBytes(f, i, 1);
    }
  }
}

absl::Status Loader::RunPlain() {
  const int64_t num_samples = source_.info().num_samples;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (!IsPacked(f)) continue;
    DATASETD_ASSIGN_OR_RETURN(packed_[f].index, source_.ReadIndex(f));
  }
  size_t turn = 0;
  for (int64_t first = 0; first < num_samples; ++turn) {
    if (counters_.is_cancelled.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the load was cancelled");
    }
    const int64_t count = NextCount(first);
    Staging& staging = staging_[turn % staging_.size()];
    Lane& lane = lanes_[turn % lanes_.size()];
    DATASETD_RETURN_IF_ERROR(Finish(lane));
    DATASETD_RETURN_IF_ERROR(WaitFor(staging));
    Divide(staging, first, count);
    DATASETD_RETURN_IF_ERROR(source_.Read(count, staging.fields));
    DATASETD_RETURN_IF_ERROR(Place(staging, lane, first, count));
    first += count;
    counters_.num_samples.store(first, std::memory_order_relaxed);
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    DATASETD_RETURN_IF_ERROR(Finish(lanes_[turn++ % lanes_.size()]));
  }
  num_placed_ = num_samples;
  return PlaceIndices();
}

absl::Status Loader::RunEncoded() {
  const SourceInfo& info = source_.info();
  std::vector<std::unique_ptr<SampleTransform>> transforms;
  std::vector<int64_t> sample_bytes;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const LoadPlan::FieldPlan& field = plan_.fields[f];
    transforms.push_back(std::make_unique<SampleTransform>(
        info.fields[f], Narrow<int>(f), field.ops, field.resident,
        plan_.limits.transforms));
    sample_bytes.push_back(IsPacked(f) ? 0 : field.resident.sample_bytes());
  }
  source_.AllowSmallerImages(plan_.smaller_images);
  BadSampleFilter filter(plan_.bad_samples, plan_.max_bad_samples, &source_,
                         std::move(sample_bytes));
  // Destroyed before the staging buffers.
  ParallelDecoder decoder(&source_, &transforms, plan_.num_decode_threads,
                          account_, &counters_.is_cancelled);
  int64_t num_started = 0;
  int64_t num_finished = 0;
  size_t start_turn = 0;
  const auto start_next = [&]() -> absl::Status {
    if (num_started == info.num_samples) return absl::OkStatus();
    const int64_t count = NextCount(num_started);
    Staging& staging = staging_[start_turn++ % staging_.size()];
    DATASETD_RETURN_IF_ERROR(WaitFor(staging));
    Divide(staging, num_started, count);
    decoder.Start(num_started, count, staging.fields, staging.places);
    num_started += count;
    return absl::OkStatus();
  };
  for (size_t i = 0; i + 1 < staging_.size(); ++i) {
    DATASETD_RETURN_IF_ERROR(start_next());
  }
  for (size_t turn = 0; num_finished < info.num_samples; ++turn) {
    const std::vector<absl::Status> statuses = decoder.Finish();
    if (counters_.is_cancelled.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the load was cancelled");
    }
    Staging& staging = staging_[turn % staging_.size()];
    DATASETD_ASSIGN_OR_RETURN(
        const int64_t count,
        filter.Filter(num_finished, statuses, staging.fields));
    for (size_t f = 0; f < staging.fields.size(); ++f) {
      if (IsPacked(f)) {
        Pack(f, filter.rows(), staging);
      } else {
        staging.fields[f] = staging.fields[f].subspan(
            0, static_cast<size_t>(count * StagedBytes(f)));
      }
    }
    if (count > 0) {
      DATASETD_RETURN_IF_ERROR(Place(staging, lanes_[0], num_placed_, count));
    }
    num_placed_ += count;
    num_finished += static_cast<int64_t>(statuses.size());
    counters_.num_samples.store(num_finished, std::memory_order_relaxed);
    counters_.num_bad_samples.store(filter.report().num_samples,
                                    std::memory_order_relaxed);
    DATASETD_RETURN_IF_ERROR(start_next());
  }
  if (num_placed_ == 0) return filter.NothingLeft();
  counters_.num_samples.store(num_placed_, std::memory_order_relaxed);
  bad_samples_ = filter.report();
  return PlaceIndices();
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
  for (const Lane& lane : lanes_) {
    DATASETD_RETURN_IF_ERROR(lane.stream->Synchronize());
  }
  DATASETD_RETURN_IF_ERROR(writer_.Await());
  Stream& stream = *lanes_[0].stream;
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
      DATASETD_RETURN_IF_ERROR(stream.CopyToDevice(
          packed_[f].memory->data() + offset, buffer.data(), size));
      DATASETD_RETURN_IF_ERROR(stream.Synchronize());
    }
    counters_.num_bytes.fetch_add(index.index_bytes(),
                                  std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

// Buffers alternate, so this blocks only if the device or the hash is slower
// than the reader.
absl::Status Loader::WaitFor(Staging& staging) {
  hasher_->Await(staging.hash_ticket);
  DATASETD_RETURN_IF_ERROR(writer_.Await());
  DATASETD_ASSIGN_OR_RETURN(const bool is_done, staging.event->IsDone());
  return is_done ? absl::OkStatus() : staging.stream->Synchronize();
}

absl::Status Loader::Finish(Lane& lane) {
  if (lane.staging == nullptr) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(lane.stream->Synchronize());
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (!HasProgram(f)) continue;
    const auto num_bytes = static_cast<size_t>(
        lane.num_samples * plan_.fields[f].resident.sample_bytes());
    const absl::Span<const uint8_t> samples(lane.staging->fields[f].data(),
                                            num_bytes);
    if (placement_.is_whole()) {
      lane.staging->hash_ticket = hasher_->Add(f, samples);
      counters_.num_bytes.fetch_add(static_cast<int64_t>(num_bytes),
                                    std::memory_order_relaxed);
    } else {
      DATASETD_RETURN_IF_ERROR(
          Write(f, samples, *lane.staging, lane, lane.first, lane.num_samples));
    }
  }
  Staging& staging = *std::exchange(lane.staging, nullptr);
  return placement_.is_whole() ? absl::OkStatus() : Record(staging, lane);
}

absl::Status Loader::Record(Staging& staging, Lane& lane) {
  staging.stream = lane.stream.get();
  return lane.stream->Record(*staging.event);
}

absl::Status Loader::Write(size_t field, absl::Span<const uint8_t> samples,
                           Staging& staging, Lane& lane, int64_t first,
                           int64_t count) {
  if (placement_.is_whole()) {
    const int64_t offset =
        IsPacked(field) ? packed_bytes_[field]
                        : first * plan_.fields[field].resident.sample_bytes();
    DATASETD_RETURN_IF_ERROR(lane.stream->CopyToDevice(
        memory_[field]->data() + offset, samples.data(), samples.size()));
  } else {
    absl::Span<const RaggedSample> places;
    if (IsPacked(field)) {
      places =
          absl::MakeConstSpan(packed_[field].index->samples())
              .subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    }
    DATASETD_RETURN_IF_ERROR(
        writer_.Append(field, samples, places, *lane.stream));
  }
  staging.hash_ticket = hasher_->Add(field, samples);
  const auto num_bytes = static_cast<int64_t>(samples.size());
  packed_bytes_[field] += num_bytes;
  counters_.num_bytes.fetch_add(num_bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status Loader::Place(Staging& staging, Lane& lane, int64_t first,
                           int64_t count) {
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const absl::Span<uint8_t> samples = staging.fields[f];
    if (HasProgram(f)) {
      DATASETD_RETURN_IF_ERROR(Transform(f, staging, lane, first, count));
      lane.staging = &staging;
      lane.first = first;
      lane.num_samples = count;
      continue;
    }
    DATASETD_RETURN_IF_ERROR(Write(f, samples, staging, lane, first, count));
  }
  return Record(staging, lane);
}

absl::Status Loader::Transform(size_t field, const Staging& staging, Lane& lane,
                               int64_t first, int64_t count) {
  const int64_t sample_bytes = plan_.fields[field].resident.sample_bytes();
  uint8_t* const resident = placement_.is_whole()
                                ? memory_[field]->data() + first * sample_bytes
                                : lane.output[field]->data();
  uint8_t* const staged = staging.fields[field].data();
  DATASETD_RETURN_IF_ERROR(lane.stream->CopyToDevice(
      lane.source[field]->data(), staged, staging.fields[field].size()));
  BatchTask task = {};
  task.slot = resident;
  task.indices = reinterpret_cast<const int64_t*>(indices_->data());
  task.num_samples = Narrow<int32_t>(count);
  DATASETD_RETURN_IF_ERROR(lane.stream->Augment(*lane.programs[field],
                                                absl::MakeConstSpan(&task, 1)));
  return lane.stream->CopyToHost(staged, resident,
                                 static_cast<size_t>(count * sample_bytes));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, PlacedMemory&& memory, LoadCounters& counters,
    const DecodeAccount& account, const std::string& expected_hash,
    SampleStore* store) {
  const NvtxRange range("load");
  // Goes after the buffers.
  DecodeBudget::Share buffers(account.staging, account.uid);
  DATASETD_RETURN_IF_ERROR(buffers.Take(plan.buffer_bytes()));
  Loader loader(plan, memory.placement, source, backend, counters, account,
                store);
  DATASETD_RETURN_IF_ERROR(loader.Allocate());
  DATASETD_RETURN_IF_ERROR(loader.Run());
  Dataset::Contents contents;
  contents.name = name;
  contents.backend = backend;
  for (const ServedDevice* const device : memory.placement.devices) {
    contents.backends.push_back(device->backend.get());
  }
  contents.num_samples = loader.num_samples();
  contents.packed = loader.TakePacked();
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    contents.fields.push_back(plan.fields[f].resident);
    if (contents.packed[f].index.has_value()) {
      contents.packed[f].index->Describe(&contents.fields[f]);
    }
  }
  contents.content_hash = loader.FinishContentHash();
  if (!expected_hash.empty() && contents.content_hash != expected_hash) {
    return absl::DataLossError(
        absl::StrCat("the samples have the content hash ",
                     contents.content_hash, ", expected ", expected_hash));
  }
  contents.bad_samples = loader.TakeBadSamples();
  contents.memory = loader.TakeMemory();
  contents.reservations = std::move(memory.reservations);
  if (store != nullptr) {
    DATASETD_RETURN_IF_ERROR(store->Finish(contents));
  }
  return std::make_shared<const Dataset>(std::move(contents));
}

}  // namespace datasetd
