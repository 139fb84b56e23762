#include "server/feed/stager.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {
namespace {

constexpr int64_t kHalves = 2;
// A launch takes several batches while their samples stay below this.
constexpr int64_t kLaunchBytes = int64_t{32} << 20;
// A list ends with the row that reaches this: about a millisecond of work.
constexpr int64_t kListCopies = 50'000;

int64_t Aligned(int64_t bytes) {
  return SaturatingRoundUp(bytes, kStageAlignment);
}

int64_t NumPieces(int64_t bytes) {
  return (bytes + kStagePieceBytes - 1) / kStagePieceBytes;
}

int64_t LargestSample(const Dataset& dataset, size_t field) {
  int64_t largest = 0;
  for (const ImageSize size : dataset.field_sizes(field)) {
    largest = std::max(largest, size.height * size.width);
  }
  return PaddedSampleBytes(
      SaturatingMultiply(largest, PixelBytes(dataset.fields()[field])));
}

// Bytes of an area in memory_, both halves.
int64_t AreaBytes(const StagingPlan& plan, const StagingPlan::Field& field) {
  const auto bytes = field.place_bytes > 0
                         ? field.place_bytes
                         : static_cast<int64_t>(sizeof(RaggedSample));
  return SaturatingProduct(kHalves, plan.num_places, bytes);
}

int64_t ListBytes(const StagingPlan& plan) {
  return Aligned(SaturatingProduct(kHalves, plan.num_copies,
                                   static_cast<int64_t>(sizeof(StageCopy))));
}

}  // namespace

int64_t StagingPlan::size_bytes() const {
  if (!is_needed()) return 0;
  int64_t bytes =
      SaturatingSum(SaturatingMultiply(kHalves, packed_bytes),
                    SaturatingProduct(kHalves, num_places,
                                      static_cast<int64_t>(sizeof(int64_t))),
                    ListBytes(*this));
  for (const Field& field : fields) {
    bytes = SaturatingAdd(bytes, AreaBytes(*this, field));
  }
  return bytes;
}

StagingPlan PlanStaging(const Dataset& dataset, const Backend& backend,
                        absl::Span<const size_t> sources,
                        const AugmentProgram& program, int64_t batch_size,
                        int64_t num_slots, const StagedWindows& windows) {
  StagingPlan plan;
  if (std::all_of(sources.begin(), sources.end(), [&](size_t source) {
        return dataset.IsFieldWholeOn(source, backend);
      })) {
    return plan;
  }
  plan.batch_size = batch_size;
  int64_t row_bytes = 0;
  int64_t row_pieces = 0;
  int64_t num_packed = 0;
  for (size_t f = 0; f < sources.size(); ++f) {
    const FieldSpec& spec = dataset.fields()[sources[f]];
    if (program.fields[f].mix.kind != MixKind::kNone) plan.has_mix = true;
    const auto same = std::find_if(
        plan.fields.begin(), plan.fields.end(),
        [&](const auto& field) { return field.source == sources[f]; });
    plan.field_of.push_back(static_cast<size_t>(same - plan.fields.begin()));
    plan.shift_bytes.push_back(windows.shifts.empty() || spec.is_packed()
                                   ? 0
                                   : windows.shifts[f] * spec.sample_bytes());
    if (same != plan.fields.end()) continue;
    StagingPlan::Field& field = plan.fields.emplace_back();
    field.source = sources[f];
    if (spec.is_packed()) {
      ++num_packed;
      const int64_t all = dataset.field_bytes(sources[f]);
      // Most batches fit, and two rows always do.
      plan.packed_bytes = SaturatingSum(
          plan.packed_bytes,
          Aligned(SaturatingMultiply(all / dataset.num_samples() + 1,
                                     batch_size + batch_size / 4)),
          2 * LargestSample(dataset, sources[f]));
    } else {
      field.sample_bytes = spec.sample_bytes();
      field.row_bytes =
          SaturatingMultiply(field.sample_bytes, windows.num_steps);
      field.place_bytes = Aligned(std::max<int64_t>(field.row_bytes, 1));
      row_bytes = SaturatingAdd(row_bytes, field.place_bytes);
      row_pieces += NumPieces(field.row_bytes);
    }
  }
  const int64_t most =
      num_packed > 0 ? 1 : std::min<int64_t>(num_slots, kMaxBatchesPerLaunch);
  const auto per_batch = [&](int64_t per_row) {
    return std::max<int64_t>(1, SaturatingMultiply(per_row, batch_size));
  };
  plan.max_batches = static_cast<int>(
      std::clamp<int64_t>(std::min(kLaunchBytes / per_batch(row_bytes),
                                   kListCopies / per_batch(row_pieces)),
                          1, most));
  plan.num_places = plan.max_batches * batch_size;
  const int64_t all_copies =
      SaturatingSum(SaturatingMultiply(plan.num_places, row_pieces),
                    SaturatingMultiply(num_packed, plan.num_places + 1),
                    NumPieces(plan.packed_bytes));
  const int64_t row_copies =
      SaturatingSum(row_pieces, num_packed, NumPieces(plan.packed_bytes));
  plan.num_copies =
      std::min(all_copies,
               SaturatingAdd(kListCopies, SaturatingMultiply(2, row_copies)));
  return plan;
}

absl::StatusOr<std::unique_ptr<Stager>> Stager::Create(
    const StagingPlan& plan, const Dataset& dataset, Backend& backend,
    uint32_t uid, std::function<void()> on_done) {
  std::unique_ptr<Stager> stager(new Stager(plan, dataset));
  stager->rows_.reserve(kMaxBatchesPerLaunch);
  stager->num_rows_.reserve(kMaxBatchesPerLaunch);
  DATASETD_ASSIGN_OR_RETURN(
      stager->stream_, backend.CreateStream(std::move(on_done), {.uid = uid}));
  DATASETD_RETURN_IF_ERROR(stager->Allocate(backend));
  return stager;
}

absl::Status Stager::Allocate(Backend& backend) {
  DATASETD_ASSIGN_OR_RETURN(
      memory_, backend.Allocate(static_cast<size_t>(plan_.size_bytes())));
  uint8_t* at = memory_->data();
  packed_ = at;
  at += kHalves * plan_.packed_bytes;
  int64_t ragged_bytes = 0;
  for (const StagingPlan::Field& field : plan_.fields) {
    areas_.push_back(at);
    at += AreaBytes(plan_, field);
    if (field.place_bytes == 0) ragged_bytes += AreaBytes(plan_, field);
  }
  places_ = reinterpret_cast<int64_t*>(at);
  const int64_t num_places = kHalves * plan_.num_places;
  const auto places_bytes = static_cast<size_t>(num_places) * sizeof(*places_);
  at += places_bytes;
  device_copies_ = reinterpret_cast<StageCopy*>(at);

  DATASETD_ASSIGN_OR_RETURN(host_, backend.AllocateHost(static_cast<size_t>(
                                       ListBytes(plan_) + ragged_bytes)));
  copies_ = reinterpret_cast<StageCopy*>(host_->data());
  uint8_t* next = host_->data() + ListBytes(plan_);
  for (const StagingPlan::Field& field : plan_.fields) {
    ragged_.push_back(reinterpret_cast<RaggedSample*>(next));
    if (field.place_bytes == 0) next += AreaBytes(plan_, field);
  }

  std::vector<int64_t> places(static_cast<size_t>(num_places));
  std::iota(places.begin(), places.end(), int64_t{0});
  DATASETD_RETURN_IF_ERROR(stream_->CopyToDevice(
      reinterpret_cast<uint8_t*>(places_),
      reinterpret_cast<const uint8_t*>(places.data()), places_bytes));
  return stream_->Synchronize();
}

void Stager::SetSources(AugmentProgram* program) const {
  for (size_t f = 0; f < plan_.field_of.size(); ++f) {
    const size_t field = plan_.field_of[f];
    FieldProgram& to = program->fields[f];
    if (plan_.fields[field].place_bytes > 0) {
      to.source = areas_[field] + plan_.shift_bytes[f];
      to.sample_stride_bytes = plan_.fields[field].place_bytes;
    } else {
      to.source = packed_;
      to.ragged = reinterpret_cast<const RaggedSample*>(areas_[field]);
    }
  }
}

void Stager::Begin(absl::Span<const BatchTask> tasks) {
  half_ = 1 - half_;
  staged_end_ = 0;
  rows_.clear();
  num_rows_.clear();
  for (const BatchTask& task : tasks) {
    rows_.push_back(task.indices);
    num_rows_.push_back(task.num_samples);
  }
}

void Stager::NamePlaces(absl::Span<BatchTask> tasks) const {
  int64_t place = half_ * plan_.num_places;
  for (BatchTask& task : tasks) {
    task.samples = task.indices;
    task.indices = places_ + place;
    place += plan_.batch_size;
  }
}

void Stager::Add(const Dataset& dataset, size_t field, int64_t offset_bytes,
                 int64_t size_bytes, uint8_t* to) {
  if (size_bytes == 0) return;  // no extent need have the place
  const Extent& extent =
      dataset.field_memory(plan_.fields[field].source).At(offset_bytes);
  const uint8_t* from = extent.data + (offset_bytes - extent.offset_bytes);
  StageCopy* const copies = copies_ + half_ * plan_.num_copies;
  for (int64_t done = 0; done < size_bytes; done += kStagePieceBytes) {
    copies[num_copies_++] = {
        .from = from + done,
        .to = to + done,
        .size_bytes = std::min(kStagePieceBytes, size_bytes - done)};
  }
}

void Stager::AddPlaces(size_t batch, int32_t row) {
  const int64_t place = half_ * plan_.num_places +
                        static_cast<int64_t>(batch) * plan_.batch_size + row;
  const Dataset::Place sample = dataset_.Locate(rows_[batch][row]);
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (plan_.fields[f].place_bytes == 0) continue;
    Add(*sample.dataset, f, sample.index * plan_.fields[f].sample_bytes,
        plan_.fields[f].row_bytes, PlaceOf(f, place));
  }
}

bool Stager::AddPacked(int32_t row) {
  const auto [dataset, sample] = dataset_.Locate(rows_[0][row]);
  int64_t needed = 0;
  for (const StagingPlan::Field& field : plan_.fields) {
    if (field.place_bytes > 0) continue;
    const RaggedIndex& index = *dataset->field_index(field.source);
    needed += PaddedSampleBytes(index.sample_bytes(sample));
  }
  if (needed > plan_.packed_bytes - packed_used_) return false;
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (plan_.fields[f].place_bytes > 0) continue;
    const RaggedIndex& index = *dataset->field_index(plan_.fields[f].source);
    const RaggedSample& from = index.samples()[static_cast<size_t>(sample)];
    const int64_t bytes = index.sample_bytes(sample);
    const int64_t to = half_ * plan_.packed_bytes + packed_used_;
    ragged_[f][half_ * plan_.num_places + row] = {
        .offset_bytes = to, .height = from.height, .width = from.width};
    Add(*dataset, f, from.offset_bytes, bytes, packed_ + to);
    packed_used_ += PaddedSampleBytes(bytes);
  }
  return true;
}

absl::Status Stager::CopyRagged(int32_t begin, int32_t end) {
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (plan_.fields[f].place_bytes > 0) continue;
    const int64_t first = half_ * plan_.num_places + begin;
    auto* const places = reinterpret_cast<RaggedSample*>(areas_[f]);
    DATASETD_RETURN_IF_ERROR(stream_->CopyToDevice(
        reinterpret_cast<uint8_t*>(places + first),
        reinterpret_cast<const uint8_t*>(ragged_[f] + first),
        static_cast<size_t>(end - begin) * sizeof(RaggedSample)));
  }
  return absl::OkStatus();
}

absl::Status Stager::Stage(int32_t row) {
  num_copies_ = 0;
  packed_used_ = 0;
  if (rows_.size() > 1) {
    for (size_t b = 0; b < rows_.size(); ++b) {
      for (int32_t r = 0; r < num_rows_[b]; ++r) AddPlaces(b, r);
    }
    staged_end_ = std::numeric_limits<int32_t>::max();
  } else {
    const int32_t num_rows = num_rows_[0];
    // A mix also takes the row before (ops/mix.h, PartnerRow).
    const int32_t partner = row == 0 ? num_rows - 1 : row - 1;
    if (plan_.has_mix) AddPacked(partner);
    staged_end_ = row;
    while (staged_end_ < num_rows &&
           (staged_end_ == row || num_copies_ < kListCopies) &&
           AddPacked(staged_end_)) {
      AddPlaces(/*batch=*/0, staged_end_++);
    }
    if (plan_.has_mix && (partner < row || partner >= staged_end_)) {
      if (row == 0) AddPlaces(/*batch=*/0, partner);
      DATASETD_RETURN_IF_ERROR(CopyRagged(partner, partner + 1));
    }
    DATASETD_RETURN_IF_ERROR(CopyRagged(row, staged_end_));
  }
  const int64_t first = half_ * plan_.num_copies;
  DATASETD_RETURN_IF_ERROR(stream_->CopyToDevice(
      reinterpret_cast<uint8_t*>(device_copies_ + first),
      reinterpret_cast<const uint8_t*>(copies_ + first),
      static_cast<size_t>(num_copies_) * sizeof(StageCopy)));
  return stream_->StageIn(device_copies_ + first, num_copies_);
}

}  // namespace datasetd
