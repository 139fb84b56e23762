#include "server/load/load_plan.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/dataset/ragged_index.h"
#include "server/pipeline/pipeline.h"

namespace datasetd {
namespace {

constexpr int64_t kStagingTargetBytes = 8 << 20;
// A chunk of plain samples without pretransforms stays in the processor's cache
// while it is hashed and copied.
constexpr int64_t kPlainStagingTargetBytes = 2 << 20;
// So that all threads have a sample where samples are large.
constexpr int64_t kMaxStagingBytes = 64 << 20;
// Bounded, so that loads of small files report progress, too.
constexpr int64_t kMaxEncodedChunk = 512;
constexpr int64_t kMaxPackedChunk = 65536;
// One is copied from and hashed while others are read or decoded to.
constexpr int kNumBuffers = 3;
// One for each chunk that the workers have; see sample_loader.cc.
constexpr int kNumInputBuffers = 2;
constexpr int kNumTransformedBuffers = 2;

int NumThreads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// For each of these chunks a reader may have one of its own.
constexpr int kNumMoreBuffers = 2;

int64_t MaxStagingBytes(int64_t max_sample_bytes) {
  return std::max(2 * kMaxStagingBytes, max_sample_bytes);
}

// A buffer has room for one sample at least.
absl::Status CheckBuffers(const LoadPlan& plan) {
  const int64_t size_bytes = std::max(plan.staging_bytes, plan.input_bytes);
  if (size_bytes <= MaxStagingBytes(plan.limits.max_sample_bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a sample takes ", size_bytes,
                   " bytes of host memory, and max_sample_memory_mib of the "
                   "daemon's configuration is ",
                   plan.limits.max_sample_bytes >> 20,
                   ": make samples smaller where the dataset is made"));
}

absl::Status TooLarge(int64_t num_samples, int64_t sample_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(num_samples, " samples of ", sample_bytes,
                   " bytes are more than any memory holds"));
}

// Makes the field packed, or gives it its samples' size if that is always the
// same.
void ApplySizes(const SampleSizes& sizes, LoadPlan::FieldPlan& field) {
  FieldSpec& resident = field.resident;
  std::vector<int64_t> shape = resident.shape;
  if (shape.size() == 2) shape.push_back(1);
  shape[0] = shape[1] = kAnyExtent;
  resident.shape = std::move(shape);
  if (sizes == nullptr) {
    field.needs_sizes = true;
    return;
  }
  const int64_t pixel_bytes = PixelBytes(resident);
  bool are_alike = true;
  ImageSize first;
  for (const ImageSize size : *sizes) {
    if (size == ImageSize()) continue;
    if (first == ImageSize()) first = size;
    are_alike = are_alike && size == first;
    IncludeSize(size, resident.smallest, resident.largest);
    const int64_t num_pixels = SaturatingMultiply(size.height, size.width);
    resident.num_pixels = SaturatingAdd(resident.num_pixels, num_pixels);
    resident.packed_bytes = SaturatingAdd(
        resident.packed_bytes,
        PaddedSampleBytes(SaturatingMultiply(num_pixels, pixel_bytes)));
  }
  if (!are_alike) {
    field.sizes = sizes;
    return;
  }
  if (first == ImageSize()) first = {1, 1};  // all are bad: the load reports it
  resident.shape[0] = first.height;
  resident.shape[1] = first.width;
  resident.smallest = resident.largest = {};
  resident.num_pixels = resident.packed_bytes = 0;
}

// Size of a field's largest sample with padding.
int64_t LargestBytes(const FieldSpec& field) {
  if (!field.is_packed()) return field.sample_bytes();
  return PaddedSampleBytes(SaturatingProduct(
      field.largest.height, field.largest.width, PixelBytes(field)));
}

// Plans chunks that hold as many samples as fit.
void PlanPackedChunks(const SourceInfo& source, LoadPlan& plan) {
  int64_t sample_bytes = 0;
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    sample_bytes = SaturatingAdd(sample_bytes, LargestBytes(field.resident));
  }
  plan.staging_bytes = std::max(kStagingTargetBytes, sample_bytes);
  if (source.is_encoded) {
    plan.staging_bytes =
        std::max(plan.staging_bytes,
                 std::min(kMaxStagingBytes,
                          SaturatingMultiply(NumThreads(), sample_bytes)));
  }
  plan.staging_bytes = SaturatingAdd(
      plan.staging_bytes,
      static_cast<int64_t>(plan.fields.size()) * kStagingAlignment);
  plan.chunk_samples = std::clamp<int64_t>(
      source.num_samples, 1,
      source.is_encoded ? kMaxEncodedChunk : kMaxPackedChunk);
}

absl::Status CheckPretransforms(const Pretransforms& pretransforms,
                                const std::vector<FieldSpec>& fields) {
  for (const auto& [name, ops] : pretransforms) {
    if (std::none_of(
            fields.begin(), fields.end(),
            [&name = name](const FieldSpec& f) { return f.name == name; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("pretransforms: the source has no field '", name, "'"));
    }
    if (!ops.empty() &&
        std::any_of(fields.begin(), fields.end(),
                    [](const FieldSpec& field) { return field.is_packed(); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", name,
          "', pretransforms: samples of the dataset differ in "
          "size; make them one size before they are sent, or give the ops to "
          "the loader's transforms"));
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      if (IsDeterministic(absl::MakeConstSpan(&ops[i], 1))) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", name, "', pretransforms[", i, "] ", TransformName(ops[i]),
          ": a random op cannot run at load; give it to the loader's "
          "transforms"));
    }
  }
  return absl::OkStatus();
}

// The size that suffices for an image whose first op is a Resize and whose
// resident size is independent of its own; 0 x 0 if the full size is needed.
ImageSize EnoughFor(const Transforms& ops) {
  if (ops.empty() || !ops[0].has_resize()) return {};
  const v1::Resize& resize = ops[0].resize();
  if (resize.size().height() > 0 && resize.size().width() > 0) {
    return {resize.size().height(), resize.size().width()};
  }
  if (resize.shorter_edge() > 0 && resize.max_size() == 0 && ops.size() > 1 &&
      ops[1].has_center_crop()) {
    return {resize.shorter_edge(), resize.shorter_edge()};
  }
  return {};
}

// The size that suffices for all ragged fields.
ImageSize SmallerImages(const LoadPlan& plan, const SourceInfo& source) {
  ImageSize enough;
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    if (!source.fields[f].is_ragged) continue;
    const ImageSize size = EnoughFor(plan.fields[f].ops);
    if (size == ImageSize()) return {};
    enough.height = std::max(enough.height, size.height);
    enough.width = std::max(enough.width, size.width);
  }
  return enough;
}

// By field: null if the source's samples may differ in size and no op makes
// them equal, or if they are still to come.
std::vector<std::optional<SampleSizes>> UnknownSizes(
    const Pretransforms& pretransforms, const SourceInfo& source) {
  std::vector<std::optional<SampleSizes>> unknown(source.fields.size());
  for (size_t f = 0; f < source.fields.size(); ++f) {
    if (!source.is_encoded || !source.fields[f].is_ragged) continue;
    const auto ops = pretransforms.find(source.fields[f].name);
    if (ops != pretransforms.end() && !source.is_awaited &&
        std::any_of(ops->second.begin(), ops->second.end(), GivesOneSize)) {
      continue;
    }
    unknown[f] = SampleSizes();
  }
  return unknown;
}

}  // namespace

int64_t MaxLoadBufferBytes(int64_t max_sample_bytes) {
  return SaturatingMultiply(
      std::max(kNumBuffers, kNumTransformedBuffers + kNumInputBuffers) +
          kNumMoreBuffers,
      MaxStagingBytes(max_sample_bytes));
}

int64_t LoadPlan::buffer_bytes() const {
  return SaturatingAdd(
      SaturatingMultiply(num_staging_buffers + kNumMoreBuffers, staging_bytes),
      SaturatingMultiply(num_input_buffers, input_bytes));
}

bool LoadPlan::has_work() const {
  return is_encoded ||
         std::any_of(fields.begin(), fields.end(), [](const FieldPlan& field) {
           return field.is_transformed;
         });
}

bool LoadPlan::needs_sizes() const {
  return std::any_of(fields.begin(), fields.end(),
                     [](const FieldPlan& field) { return field.needs_sizes; });
}

int64_t LoadPlan::host_bytes(int64_t largest_sample_bytes,
                             int64_t decode_bytes) const {
  int64_t bytes =
      SaturatingAdd(SaturatingMultiply(num_staging_buffers, staging_bytes),
                    SaturatingMultiply(num_input_buffers, input_bytes));
  for (const FieldPlan& field : fields) {
    if (field.sizes == nullptr) continue;
    bytes = SaturatingAdd(bytes, static_cast<int64_t>(field.sizes->size() *
                                                      (sizeof(ImageSize) +
                                                       sizeof(RaggedSample))));
  }
  if (!has_work()) return bytes;
  return SaturatingAdd(
      bytes, std::min(SaturatingMultiply(num_workers, largest_sample_bytes),
                      decode_bytes));
}

absl::StatusOr<LoadPlan> PlanSource(
    const LoadRequest& request, const SourceInfo& source,
    std::vector<std::optional<SampleSizes>> own_sizes,
    const LoadLimits& limits) {
  const v1::DatasetSpec& spec = *request.spec;
  const std::vector<FieldSpec>& fields = source.fields;
  const int64_t num_samples = source.num_samples;
  if (fields.size() > static_cast<size_t>(kMaxDatasetFields)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the source has ", fields.size(), " fields; a dataset has at most ",
        kMaxDatasetFields, ": choose with option fields"));
  }
  DATASETD_RETURN_IF_ERROR(CheckPretransforms(request.pretransforms, fields));
  if (own_sizes.empty()) {
    own_sizes = UnknownSizes(request.pretransforms, source);
  }
  LoadPlan plan;
  plan.limits = limits;
  plan.num_samples = num_samples;
  plan.is_encoded = source.is_encoded;
  if (spec.bad_samples() != v1::BAD_SAMPLE_POLICY_UNSPECIFIED) {
    plan.bad_samples = spec.bad_samples();
  }
  plan.max_bad_samples = MaxBadSamples(spec);
  int64_t staged_sample_bytes = 0;
  int64_t input_sample_bytes = 0;
  int64_t resident_sample_bytes = 0;
  int64_t packed_bytes = 0;
  bool has_packed = false;
  for (size_t f = 0; f < fields.size(); ++f) {
    LoadPlan::FieldPlan field;
    field.resident = fields[f];
    field.resident.is_ragged = false;
    const auto ops = request.pretransforms.find(fields[f].name);
    if (ops != request.pretransforms.end()) field.ops = ops->second;
    if (!field.ops.empty() && !(source.is_awaited && fields[f].is_ragged)) {
      field.is_transformed = true;
      // Resident samples are [H, W, C].
      DATASETD_ASSIGN_OR_RETURN(
          const FieldProgram program,
          CompileField(fields[f], Narrow<int>(f), field.ops, Layout::kNhwc, {},
                       limits.transforms));
      field.resident.dtype = program.out_dtype;
      if (fields[f].is_image) {
        field.resident.shape = {program.out_height, program.out_width,
                                program.out_channels};
      } else {
        field.resident.shape = OutputShape(fields[f], program);
      }
      if (!source.is_encoded) {
        input_sample_bytes =
            SaturatingAdd(input_sample_bytes, fields[f].sample_bytes());
      }
    }
    if (own_sizes[f].has_value()) ApplySizes(*own_sizes[f], field);
    if (field.resident.is_packed()) {
      has_packed = true;
      resident_sample_bytes = SaturatingAdd(
          resident_sample_bytes, static_cast<int64_t>(sizeof(RaggedSample)));
      plan.index_bytes =
          SaturatingAdd(plan.index_bytes,
                        SaturatingMultiply(num_samples, sizeof(RaggedSample)));
      packed_bytes = SaturatingAdd(packed_bytes, field.resident.packed_bytes);
    } else {
      staged_sample_bytes =
          SaturatingAdd(staged_sample_bytes, field.resident.sample_bytes());
      resident_sample_bytes =
          SaturatingAdd(resident_sample_bytes, field.resident.sample_bytes());
    }
    plan.fields.push_back(std::move(field));
  }
  plan.resident_bytes = SaturatingAdd(
      SaturatingMultiply(num_samples, resident_sample_bytes), packed_bytes);
  if (plan.resident_bytes == std::numeric_limits<int64_t>::max()) {
    return TooLarge(num_samples, resident_sample_bytes);
  }
  if (plan.has_work() || !source.is_sequential) plan.num_workers = NumThreads();
  if (plan.is_encoded) plan.smaller_images = SmallerImages(plan, source);
  plan.num_staging_buffers = kNumBuffers;
  if (has_packed) {
    PlanPackedChunks(source, plan);
    DATASETD_RETURN_IF_ERROR(CheckBuffers(plan));
    return plan;
  }
  const int64_t sample_bytes =
      std::max<int64_t>({staged_sample_bytes, input_sample_bytes, 1});
  if (!plan.has_work()) {
    plan.chunk_samples = kPlainStagingTargetBytes / sample_bytes;
  } else {
    plan.chunk_samples =
        std::max(kStagingTargetBytes / sample_bytes,
                 std::min<int64_t>(kMaxStagingBytes / sample_bytes,
                                   std::min(NumThreads(), 512)));
    if (source.is_encoded) {
      plan.chunk_samples = std::min(plan.chunk_samples, kMaxEncodedChunk);
    }
  }
  plan.chunk_samples = std::clamp<int64_t>(plan.chunk_samples, 1,
                                           std::max<int64_t>(num_samples, 1));
  const auto chunk_bytes = [&](const FieldSpec& field) {
    return SaturatingRoundUp(
        SaturatingMultiply(plan.chunk_samples, field.sample_bytes()),
        kStagingAlignment);
  };
  for (size_t f = 0; f < fields.size(); ++f) {
    plan.staging_bytes =
        SaturatingAdd(plan.staging_bytes, chunk_bytes(plan.fields[f].resident));
    if (source.is_encoded || !plan.fields[f].is_transformed) continue;
    plan.num_staging_buffers = kNumTransformedBuffers;
    plan.num_input_buffers = kNumInputBuffers;
    plan.input_bytes = SaturatingAdd(plan.input_bytes, chunk_bytes(fields[f]));
  }
  DATASETD_RETURN_IF_ERROR(CheckBuffers(plan));
  return plan;
}

}  // namespace datasetd
