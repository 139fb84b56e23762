#include "server/core/dataset_loader.h"

#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cuda/kernels/chain_scratch.h"
#include "cuda/status_macros.h"
#include "server/core/bad_sample_filter.h"
#include "server/core/decode_budget.h"
#include "server/core/parallel_decoder.h"
#include "server/core/sample_transform.h"

namespace datasetd {
namespace {

constexpr int64_t kStagingTargetBytes = 8 << 20;
// So that all threads have a sample where samples are large.
constexpr int64_t kMaxStagingBytes = 64 << 20;
// So that small samples, too, tell how far they are.
constexpr int64_t kMaxEncodedChunk = 512;
// BatchTask::slot.
constexpr int64_t kSlotAlignment = 256;
// Encoded: one is copied from while two are decoded to.
constexpr int kNumPlainBuffers = 2;
constexpr int kNumEncodedBuffers = 3;

struct HashStateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashState = std::unique_ptr<XXH3_state_t, HashStateDeleter>;

HashState NewHashState() {
  HashState state(XXH3_createState());
  XXH3_128bits_reset(state.get());
  return state;
}

void UpdateHash(HashState& state, const void* data, size_t size_bytes) {
  XXH3_128bits_update(state.get(), data, size_bytes);
}

std::string HexDigest(const HashState& state) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(canonical.digest),
                        sizeof(canonical.digest)));
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A program of one field, which writes no indices.
AugmentProgram ProgramOf(const FieldProgram& field) {
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  program.fields[0] = field;
  return program;
}

// The hash of names, types, shapes and every field's bytes.
std::string ContentHash(const LoadPlan& plan, int64_t num_samples,
                        const std::vector<HashState>& fields) {
  HashState all = NewHashState();
  std::string text = absl::StrCat("datasetd content 1\n", num_samples, "\n");
  for (size_t f = 0; f < fields.size(); ++f) {
    const FieldSpec& field = plan.fields[f].resident;
    absl::StrAppend(&text, field.name, " ", DtypeName(field.dtype));
    for (const int64_t extent : field.shape) {
      absl::StrAppend(&text, " ", extent);
    }
    absl::StrAppend(&text,
                    field.is_mask    ? " mask "
                    : field.is_image ? " image "
                                     : " tensor ",
                    HexDigest(fields[f]), "\n");
  }
  UpdateHash(all, text.data(), text.size());
  return HexDigest(all);
}

// One field's samples of a chunk, on their way.
struct Staging {
  std::unique_ptr<HostMemory> memory;
  std::unique_ptr<Event> event;
  std::vector<absl::Span<uint8_t>> fields;
};

class Loader {
 public:
  Loader(const LoadPlan& plan, SampleSource& source, Backend* backend,
         LoadCounters& counters)
      : plan_(plan), source_(source), backend_(backend), counters_(counters) {}

  absl::Status Allocate();
  absl::Status Run() {
    return plan_.is_encoded ? RunEncoded() : RunPlain();
  }
  // After Run.
  int64_t num_samples() const { return num_placed_; }
  BadSampleReport TakeBadSamples() { return std::move(bad_samples_); }
  std::vector<std::unique_ptr<DeviceMemory>> TakeMemory() {
    return std::move(memory_);
  }
  std::string content_hash() const {
    return ContentHash(plan_, num_placed_, hashes_);
  }

 private:
  absl::Status RunPlain();
  absl::Status RunEncoded();
  // True where the field's pretransforms run on the device.
  bool HasProgram(size_t field) const {
    return plan_.fields[field].has_program && !plan_.is_encoded;
  }
  // Of a sample of a field in staging memory.
  int64_t StagedBytes(size_t field) const {
    return plan_.is_encoded ? plan_.fields[field].resident.sample_bytes()
                            : source_.info().fields[field].sample_bytes();
  }
  // Lets the fields stand one after the other.
  void Divide(Staging& staging, int64_t count) const;
  absl::Status Place(Staging& staging, int64_t first, int64_t count);
  absl::Status Transform(size_t field, const Staging& staging, int64_t first,
                         int64_t count);
  absl::Status WaitFor(Event& event);

  const LoadPlan& plan_;
  SampleSource& source_;
  Backend* const backend_;
  LoadCounters& counters_;

  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<HashState> hashes_;
  std::vector<Staging> staging_;
  int64_t num_placed_ = 0;
  BadSampleReport bad_samples_;
  // Of fields with pretransforms: the chunk as read, and the programs.
  std::vector<std::unique_ptr<DeviceMemory>> scratch_;
  std::vector<std::unique_ptr<DeviceMemory>> chain_scratch_;
  std::vector<std::unique_ptr<LoadedProgram>> programs_;
  std::unique_ptr<HostMemory> indices_;
  std::unique_ptr<HostMemory> readback_;
  // Last, so that it goes first and waits for pending work.
  std::unique_ptr<Stream> stream_;
};

absl::Status Loader::Allocate() {
  const int64_t num_samples = source_.info().num_samples;
  const size_t num_fields = plan_.fields.size();
  scratch_.resize(num_fields);
  chain_scratch_.resize(num_fields);
  programs_.resize(num_fields);
  int64_t readback_bytes = 0;
  for (size_t f = 0; f < num_fields; ++f) {
    const LoadPlan::FieldPlan& field = plan_.fields[f];
    DATASETD_ASSIGN_OR_RETURN(
        auto memory,
        backend_->Allocate(num_samples * field.resident.sample_bytes()));
    memory_.push_back(std::move(memory));
    hashes_.push_back(NewHashState());
    if (!HasProgram(f)) continue;
    DATASETD_ASSIGN_OR_RETURN(
        scratch_[f],
        backend_->Allocate(plan_.chunk_samples *
                           source_.info().fields[f].sample_bytes()));
    AugmentProgram program = ProgramOf(field.program);
    program.fields[0].source = scratch_[f]->data();
    program.fields[0].sample_stride_bytes = source_.info().fields[f].sample_bytes();
    program.fields[0].offset_bytes = 0;
    if (const ScratchPlan plan = PlanScratch(program, backend_->max_teams());
        plan.size_bytes > 0) {
      DATASETD_ASSIGN_OR_RETURN(chain_scratch_[f],
                                backend_->Allocate(plan.size_bytes));
      plan.Give(chain_scratch_[f]->data(), &program);
    }
    DATASETD_ASSIGN_OR_RETURN(programs_[f], backend_->Load(program));
    readback_bytes = std::max(
        readback_bytes, plan_.chunk_samples * field.resident.sample_bytes());
  }
  if (readback_bytes > 0) {
    DATASETD_ASSIGN_OR_RETURN(readback_,
                              backend_->AllocateHost(readback_bytes));
    DATASETD_ASSIGN_OR_RETURN(
        indices_,
        backend_->AllocateHost(plan_.chunk_samples * sizeof(int64_t)));
    int64_t* indices = reinterpret_cast<int64_t*>(indices_->data());
    std::iota(indices, indices + plan_.chunk_samples, int64_t{0});
  }
  staging_.resize(static_cast<size_t>(plan_.num_staging_buffers));
  for (Staging& staging : staging_) {
    DATASETD_ASSIGN_OR_RETURN(staging.memory,
                              backend_->AllocateHost(plan_.staging_bytes));
    DATASETD_ASSIGN_OR_RETURN(staging.event, backend_->CreateEvent());
    staging.fields.resize(num_fields);
  }
  DATASETD_ASSIGN_OR_RETURN(stream_, backend_->CreateStream(nullptr));
  return absl::OkStatus();
}

void Loader::Divide(Staging& staging, int64_t count) const {
  int64_t offset = 0;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const int64_t size = count * StagedBytes(f);
    staging.fields[f] = absl::MakeSpan(staging.memory->data() + offset, size);
    offset += RoundUp(size, kSlotAlignment);
  }
}

absl::Status Loader::RunPlain() {
  const int64_t num_samples = source_.info().num_samples;
  size_t turn = 0;
  for (int64_t first = 0; first < num_samples; ++turn) {
    if (counters_.is_cancelled.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the load was cancelled");
    }
    const int64_t count = std::min(plan_.chunk_samples, num_samples - first);
    Staging& staging = staging_[turn % staging_.size()];
    DATASETD_RETURN_IF_ERROR(WaitFor(*staging.event));
    Divide(staging, count);
    DATASETD_RETURN_IF_ERROR(source_.Read(count, staging.fields));
    DATASETD_RETURN_IF_ERROR(Place(staging, first, count));
    first += count;
    counters_.num_samples.store(first, std::memory_order_relaxed);
  }
  num_placed_ = num_samples;
  return stream_->Synchronize();
}

absl::Status Loader::RunEncoded() {
  const SourceInfo& info = source_.info();
  std::vector<std::unique_ptr<SampleTransform>> transforms;
  std::vector<int64_t> sample_bytes;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const LoadPlan::FieldPlan& field = plan_.fields[f];
    transforms.push_back(std::make_unique<SampleTransform>(
        info.fields[f], static_cast<int>(f), field.ops, field.resident));
    sample_bytes.push_back(field.resident.sample_bytes());
  }
  source_.AllowSmallerImages(plan_.smaller_images);
  BadSampleFilter filter(plan_.bad_samples, plan_.max_bad_samples, &source_,
                         std::move(sample_bytes));
  // Goes before the staging buffers.
  ParallelDecoder decoder(&source_, &transforms, plan_.num_decode_threads,
                          &counters_.is_cancelled);
  int64_t num_started = 0;
  int64_t num_finished = 0;
  size_t start_turn = 0;
  const auto start_next = [&]() -> absl::Status {
    const int64_t count =
        std::min(plan_.chunk_samples, info.num_samples - num_started);
    if (count == 0) return absl::OkStatus();
    Staging& staging = staging_[start_turn++ % staging_.size()];
    DATASETD_RETURN_IF_ERROR(WaitFor(*staging.event));
    Divide(staging, count);
    decoder.Start(num_started, count, staging.fields);
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
      staging.fields[f] = staging.fields[f].subspan(
          0, static_cast<size_t>(count * StagedBytes(f)));
    }
    if (count > 0) {
      DATASETD_RETURN_IF_ERROR(Place(staging, num_placed_, count));
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
  return stream_->Synchronize();
}

// Buffers take turns, so this waits only where the device is slower than the
// reader.
absl::Status Loader::WaitFor(Event& event) {
  DATASETD_ASSIGN_OR_RETURN(const bool is_done, event.IsDone());
  return is_done ? absl::OkStatus() : stream_->Synchronize();
}

absl::Status Loader::Place(Staging& staging, int64_t first, int64_t count) {
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    const int64_t sample_bytes = plan_.fields[f].resident.sample_bytes();
    if (HasProgram(f)) {
      DATASETD_RETURN_IF_ERROR(Transform(f, staging, first, count));
    } else {
      DATASETD_RETURN_IF_ERROR(stream_->CopyToDevice(
          memory_[f]->data() + first * sample_bytes, staging.fields[f].data(),
          staging.fields[f].size()));
      UpdateHash(hashes_[f], staging.fields[f].data(),
                 staging.fields[f].size());
    }
    counters_.num_bytes.fetch_add(count * sample_bytes,
                                  std::memory_order_relaxed);
  }
  return stream_->Record(*staging.event);
}

absl::Status Loader::Transform(size_t field, const Staging& staging,
                               int64_t first, int64_t count) {
  const int64_t sample_bytes = plan_.fields[field].resident.sample_bytes();
  uint8_t* const resident = memory_[field]->data() + first * sample_bytes;
  DATASETD_RETURN_IF_ERROR(stream_->CopyToDevice(
      scratch_[field]->data(), staging.fields[field].data(),
      staging.fields[field].size()));
  BatchTask task = {};
  task.slot = resident;
  task.indices = reinterpret_cast<const int64_t*>(indices_->data());
  task.num_samples = static_cast<int32_t>(count);
  DATASETD_RETURN_IF_ERROR(
      stream_->Augment(*programs_[field], absl::MakeConstSpan(&task, 1)));
  DATASETD_RETURN_IF_ERROR(stream_->CopyToHost(readback_->data(), resident,
                                               count * sample_bytes));
  DATASETD_RETURN_IF_ERROR(stream_->Synchronize());
  UpdateHash(hashes_[field], readback_->data(), count * sample_bytes);
  return absl::OkStatus();
}

}  // namespace

int64_t LoadPlan::host_bytes(int64_t largest_sample_bytes) const {
  const int64_t staging = num_staging_buffers * staging_bytes;
  if (!is_encoded) return staging;
  // The budget lets one sample in beyond its limit.
  const int64_t all = num_decode_threads * largest_sample_bytes;
  return staging + std::min(all, kDecodeLimitBytes + largest_sample_bytes);
}

absl::StatusOr<LoadPlan> PlanLoad(
    const SourceInfo& source,
    const std::vector<std::optional<FieldProgram>>& programs, int max_teams) {
  const std::vector<FieldSpec>& fields = source.fields;
  const int64_t num_samples = source.num_samples;
  LoadPlan plan;
  plan.is_encoded = source.is_encoded;
  plan.num_staging_buffers =
      source.is_encoded ? kNumEncodedBuffers : kNumPlainBuffers;
  int64_t staged_sample_bytes = 0;
  int64_t resident_sample_bytes = 0;
  int64_t alignment_samples = 1;
  for (size_t f = 0; f < fields.size(); ++f) {
    LoadPlan::FieldPlan field;
    field.resident = fields[f];
    field.resident.is_ragged = false;
    if (programs[f].has_value()) {
      field.has_program = true;
      field.program = *programs[f];
      field.resident.dtype = field.program.out_dtype;
      if (fields[f].is_image) {
        field.resident.shape = {field.program.out_height,
                                field.program.out_width,
                                field.program.out_channels};
      }
      // A chunk that a kernel writes begins at an aligned address.
      if (!source.is_encoded) {
        alignment_samples =
            std::max(alignment_samples,
                     kSlotAlignment / std::gcd(kSlotAlignment,
                                               field.resident.sample_bytes()));
      }
    }
    staged_sample_bytes += source.is_encoded ? field.resident.sample_bytes()
                                             : fields[f].sample_bytes();
    resident_sample_bytes += field.resident.sample_bytes();
    plan.fields.push_back(std::move(field));
  }
  if (__builtin_mul_overflow(num_samples, resident_sample_bytes,
                             &plan.resident_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_samples, " samples of ", resident_sample_bytes,
                     " bytes are more than any memory holds"));
  }
  const int64_t sample_bytes = std::max<int64_t>(staged_sample_bytes, 1);
  plan.chunk_samples = kStagingTargetBytes / sample_bytes;
  if (source.is_encoded) {
    plan.chunk_samples = std::clamp(
        plan.chunk_samples,
        std::min<int64_t>(kMaxStagingBytes / sample_bytes,
                          std::min(std::thread::hardware_concurrency(), 512u)),
        kMaxEncodedChunk);
  }
  plan.chunk_samples = std::clamp<int64_t>(plan.chunk_samples, 1,
                                           std::max<int64_t>(num_samples, 1));
  plan.chunk_samples = RoundUp(plan.chunk_samples, alignment_samples);
  for (size_t f = 0; f < fields.size(); ++f) {
    const int64_t field_bytes =
        plan.chunk_samples * (source.is_encoded
                                  ? plan.fields[f].resident.sample_bytes()
                                  : fields[f].sample_bytes());
    plan.staging_bytes += RoundUp(field_bytes, kSlotAlignment);
    if (!plan.fields[f].has_program || source.is_encoded) continue;
    plan.scratch_bytes +=
        field_bytes +
        PlanScratch(ProgramOf(plan.fields[f].program), max_teams).size_bytes;
  }
  return plan;
}

absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, Reservation reservation, LoadCounters& counters) {
  Loader loader(plan, source, backend, counters);
  DATASETD_RETURN_IF_ERROR(loader.Allocate());
  DATASETD_RETURN_IF_ERROR(loader.Run());
  Dataset::Contents contents;
  contents.name = name;
  contents.backend = backend;
  contents.num_samples = loader.num_samples();
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    contents.fields.push_back(field.resident);
  }
  contents.content_hash = loader.content_hash();
  contents.bad_samples = loader.TakeBadSamples();
  contents.memory = loader.TakeMemory();
  contents.reservation = std::move(reservation);
  return std::make_shared<const Dataset>(std::move(contents));
}

}  // namespace datasetd
