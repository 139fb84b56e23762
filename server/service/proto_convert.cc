#include "server/service/proto_convert.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/dtype.h"
#include "cuda/status_macros.h"
#include "server/core/transforms_hash.h"

namespace datasetd {
namespace {

template <typename Enum>
constexpr int AsInt(Enum value) {
  return static_cast<int>(value);
}

// The core's enums have the numbers of the wire.
static_assert(AsInt(Dtype::kUint8) == v1::DTYPE_UINT8);
static_assert(AsInt(Dtype::kInt16) == v1::DTYPE_INT16);
static_assert(AsInt(Dtype::kInt32) == v1::DTYPE_INT32);
static_assert(AsInt(Dtype::kInt64) == v1::DTYPE_INT64);
static_assert(AsInt(Dtype::kFloat16) == v1::DTYPE_FLOAT16);
static_assert(AsInt(Dtype::kBfloat16) == v1::DTYPE_BFLOAT16);
static_assert(AsInt(Dtype::kFloat32) == v1::DTYPE_FLOAT32);
static_assert(AsInt(Dtype::kFloat64) == v1::DTYPE_FLOAT64);
static_assert(AsInt(PaddingMode::kConstant) == v1::PADDING_MODE_CONSTANT);
static_assert(AsInt(PaddingMode::kEdge) == v1::PADDING_MODE_EDGE);
static_assert(AsInt(PaddingMode::kReflect) == v1::PADDING_MODE_REFLECT);
static_assert(AsInt(PaddingMode::kSymmetric) == v1::PADDING_MODE_SYMMETRIC);
static_assert(AsInt(Layout::kNchw) == v1::LAYOUT_NCHW);
static_assert(AsInt(Layout::kNhwc) == v1::LAYOUT_NHWC);
static_assert(AsInt(DatasetState::kLoading) == v1::DATASET_STATE_LOADING);
static_assert(AsInt(DatasetState::kReady) == v1::DATASET_STATE_READY);
static_assert(AsInt(DatasetState::kFailed) == v1::DATASET_STATE_FAILED);
static_assert(AsInt(DatasetState::kUnloading) == v1::DATASET_STATE_UNLOADING);
static_assert(AsInt(ExportKind::kMemfd) == v1::EXPORT_KIND_MEMFD);
static_assert(AsInt(ExportKind::kCudaIpcHandle) ==
              v1::EXPORT_KIND_CUDA_IPC_HANDLE);
static_assert(AsInt(ExportKind::kCudaVmmFd) == v1::EXPORT_KIND_CUDA_VMM_FD);

absl::StatusOr<PaddingMode> PaddingModeFromProto(v1::PaddingMode mode) {
  if (mode == v1::PADDING_MODE_UNSPECIFIED) return PaddingMode::kConstant;
  if (mode > v1::PADDING_MODE_UNSPECIFIED && v1::PaddingMode_IsValid(mode)) {
    return static_cast<PaddingMode>(mode);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "padding_mode: ", AsInt(mode),
      " is unknown; one of constant, edge, reflect, symmetric"));
}

Padding PaddingFromProto(const v1::Padding& padding) {
  return {.left = padding.left(),
          .top = padding.top(),
          .right = padding.right(),
          .bottom = padding.bottom()};
}

absl::StatusOr<TransformSpec> TransformFromProto(const v1::Transform& op) {
  switch (op.op_case()) {
    case v1::Transform::kPad: {
      PadSpec spec;
      spec.padding = PaddingFromProto(op.pad().padding());
      spec.fill.assign(op.pad().fill().begin(), op.pad().fill().end());
      DATASETD_ASSIGN_OR_RETURN(spec.padding_mode,
                                PaddingModeFromProto(op.pad().padding_mode()));
      return spec;
    }
    case v1::Transform::kCenterCrop:
      return CenterCropSpec{.height = op.center_crop().height(),
                            .width = op.center_crop().width()};
    case v1::Transform::kRandomCrop: {
      const v1::RandomCrop& crop = op.random_crop();
      RandomCropSpec spec;
      spec.height = crop.height();
      spec.width = crop.width();
      spec.padding = PaddingFromProto(crop.padding());
      spec.pad_if_needed = crop.pad_if_needed();
      spec.fill.assign(crop.fill().begin(), crop.fill().end());
      DATASETD_ASSIGN_OR_RETURN(spec.padding_mode,
                                PaddingModeFromProto(crop.padding_mode()));
      return spec;
    }
    case v1::Transform::kRandomHorizontalFlip: {
      const v1::RandomHorizontalFlip& flip = op.random_horizontal_flip();
      RandomHorizontalFlipSpec spec;
      if (flip.has_p()) spec.p = flip.p();
      return spec;
    }
    case v1::Transform::kRandomVerticalFlip: {
      const v1::RandomVerticalFlip& flip = op.random_vertical_flip();
      RandomVerticalFlipSpec spec;
      if (flip.has_p()) spec.p = flip.p();
      return spec;
    }
    case v1::Transform::kAlternatingFlip:
      return AlternatingFlipSpec{};
    case v1::Transform::kToDtype: {
      const v1::Dtype dtype = op.to_dtype().dtype();
      if (dtype == v1::DTYPE_UNSPECIFIED || !v1::Dtype_IsValid(dtype)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "ToDtype: dtype ", AsInt(dtype), " is unknown or missing"));
      }
      return ToDtypeSpec{.dtype = static_cast<Dtype>(dtype),
                         .scale = op.to_dtype().scale()};
    }
    case v1::Transform::kNormalize: {
      const v1::Normalize& normalize = op.normalize();
      NormalizeSpec spec;
      spec.mean.assign(normalize.mean().begin(), normalize.mean().end());
      spec.std.assign(normalize.std().begin(), normalize.std().end());
      return spec;
    }
    case v1::Transform::OP_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "unknown transform; this daemon may be older than the client");
}

void FieldToProto(const FieldSpec& spec, v1::Field* field) {
  field->set_name(spec.name);
  field->set_dtype(static_cast<v1::Dtype>(spec.dtype));
  field->mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
  field->set_is_image(spec.is_image);
}

}  // namespace

absl::StatusOr<std::vector<TransformSpec>> TransformsFromProto(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms,
    const std::string& where) {
  std::vector<TransformSpec> specs;
  for (int i = 0; i < transforms.size(); ++i) {
    auto spec = TransformFromProto(transforms[i]);
    if (!spec.ok()) {
      return absl::Status(
          spec.status().code(),
          absl::StrCat(where, "[", i, "]: ", spec.status().message()));
    }
    specs.push_back(*std::move(spec));
  }
  return specs;
}

absl::StatusOr<DatasetSpec> DatasetSpecFromProto(const v1::DatasetSpec& spec) {
  DatasetSpec to;
  to.name = spec.name();
  to.format = spec.format();
  to.path = spec.path();
  to.split = spec.split();
  to.device = spec.device();
  to.options.insert(spec.options().begin(), spec.options().end());
  to.is_pinned = spec.pin();
  to.is_private = spec.private_();
  std::vector<FieldPipeline> pipelines;
  for (const auto& [field, pipeline] : spec.pretransforms()) {
    DATASETD_ASSIGN_OR_RETURN(
        to.pretransforms[field],
        TransformsFromProto(
            pipeline.transforms(),
            absl::StrCat("field '", field, "', pretransforms")));
  }
  for (const auto& [field, ops] : to.pretransforms) {
    pipelines.push_back({.field = field, .transforms = ops});
  }
  to.pretransforms_key = TransformsHash(pipelines);
  return to;
}

absl::StatusOr<PushSpec> PushSpecFromProto(const v1::PushHeader& header) {
  v1::DatasetSpec spec;
  spec.set_name(header.name());
  spec.set_format("push");
  spec.set_device(header.device());
  *spec.mutable_pretransforms() = header.pretransforms();
  spec.set_pin(header.pin());
  spec.set_private_(header.private_());
  PushSpec to;
  DATASETD_ASSIGN_OR_RETURN(to.spec, DatasetSpecFromProto(spec));
  to.info.num_samples = header.num_samples();
  to.info.class_names.assign(header.class_names().begin(),
                             header.class_names().end());
  for (const v1::Field& field : header.fields()) {
    if (field.dtype() == v1::DTYPE_UNSPECIFIED ||
        !v1::Dtype_IsValid(field.dtype())) {
      return absl::InvalidArgumentError(
          absl::StrCat("field '", field.name(), "': dtype ",
                       AsInt(field.dtype()), " is unknown or missing"));
    }
    to.info.fields.push_back(
        {.name = field.name(),
         .dtype = static_cast<Dtype>(field.dtype()),
         .shape = {field.shape().begin(), field.shape().end()},
         .is_image = field.is_image()});
  }
  return to;
}

void DatasetInfoToProto(const DatasetInfo& info, v1::Dataset* dataset) {
  dataset->set_name(info.spec.name);
  dataset->set_state(static_cast<v1::DatasetState>(info.state));
  if (!info.error.ok()) {
    dataset->set_error(std::string(info.error.message()));
  }
  dataset->set_device(info.spec.device);
  dataset->set_format(info.spec.format);
  dataset->set_path(info.spec.path);
  dataset->set_split(info.spec.split);
  dataset->set_num_samples(info.num_samples);
  for (const FieldSpec& field : info.fields) {
    FieldToProto(field, dataset->add_fields());
  }
  dataset->set_resident_bytes(info.resident_bytes);
  dataset->set_spec_id(info.spec_id);
  dataset->set_content_hash(info.content_hash);
  dataset->mutable_class_names()->Assign(info.class_names.begin(),
                                         info.class_names.end());
  dataset->set_num_feeds(info.num_feeds);
  dataset->set_num_holders(info.num_holders);
  dataset->set_owner_uid(info.owner.uid);
  dataset->set_is_pinned(info.spec.is_pinned);
  dataset->set_is_private(info.spec.is_private);
  v1::LoadProgress* const progress = dataset->mutable_progress();
  progress->set_num_samples_loaded(info.num_samples_loaded);
  progress->set_num_samples(info.num_samples);
  progress->set_loaded_bytes(info.loaded_bytes);
  progress->set_resident_bytes(info.resident_bytes);
  progress->set_elapsed_seconds(absl::ToDoubleSeconds(info.elapsed));
}

absl::StatusOr<FeedOptions> FeedOptionsFromProto(
    const v1::OpenFeedRequest& request) {
  const v1::FeedOptions& options = request.options();
  FeedOptions to;
  to.name = options.name();
  to.dataset = options.dataset();
  to.device = options.device();
  to.batch_size = options.batch_size();
  to.shuffle = options.shuffle();
  to.seed = options.seed();
  to.drop_last = options.drop_last();
  to.rank = options.rank();
  to.world_size = options.world_size() == 0 ? 1 : options.world_size();
  if (options.has_prefetch()) {
    if (options.prefetch() == 0) {
      return absl::InvalidArgumentError(
          "prefetch: 0 is out of range; at least 1, or unset to let the daemon "
          "choose");
    }
    to.prefetch = options.prefetch();
  }
  to.start = {options.start().epoch(), options.start().batch()};
  for (const auto& [field, field_options] : options.fields()) {
    FeedFieldOptions& to_field = to.fields[field];
    DATASETD_ASSIGN_OR_RETURN(
        to_field.transforms,
        TransformsFromProto(field_options.transforms(),
                            absl::StrCat("field '", field, "', transforms")));
    switch (field_options.layout()) {
      case v1::LAYOUT_UNSPECIFIED:
      case v1::LAYOUT_NCHW:
        to_field.layout = Layout::kNchw;
        break;
      case v1::LAYOUT_NHWC:
        to_field.layout = Layout::kNhwc;
        break;
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            "field '", field, "': layout ", AsInt(field_options.layout()),
            " is unknown; one of NCHW, NHWC"));
    }
  }
  for (const int kind : request.excluded_exports()) {
    to.excluded_exports.push_back(static_cast<ExportKind>(kind));
  }
  return to;
}

void OpenedFeedToProto(const OpenedFeed& opened,
                       v1::OpenFeedResponse* response) {
  response->set_feed_id(opened.id);
  v1::SlotLayout* const layout = response->mutable_layout();
  layout->set_num_slots(opened.num_slots);
  layout->set_slot_stride_bytes(opened.layout.slot_stride_bytes);
  layout->set_indices_offset_bytes(opened.layout.indices_offset_bytes);
  for (const SlotField& field : opened.layout.fields) {
    v1::SlotField* const to = layout->add_fields();
    to->set_name(field.name);
    to->set_dtype(static_cast<v1::Dtype>(field.dtype));
    to->mutable_shape()->Assign(field.shape.begin(), field.shape.end());
    to->mutable_strides()->Assign(field.strides.begin(), field.strides.end());
    to->set_offset_bytes(field.offset_bytes);
  }
  v1::SlabExport* const slab = response->mutable_slab();
  slab->set_kind(static_cast<v1::ExportKind>(opened.export_kind));
  slab->set_size_bytes(opened.slab_bytes);
  slab->set_cuda_ipc_handle(opened.ipc_handle.data(), opened.ipc_handle.size());
  slab->set_device(opened.device);
  if (opened.export_kind != ExportKind::kMemfd) {
    slab->set_gpu_uuid(opened.uuid.data(), opened.uuid.size());
  }
  response->set_batches_per_epoch(opened.batches_per_epoch);
  response->set_num_samples(opened.num_samples);
  response->set_content_hash(opened.content_hash);
  response->set_transforms_hash(opened.transforms_hash);
  response->set_prefetch(opened.prefetch);
}

void FeedInfoToProto(const FeedInfo& info, v1::Feed* feed) {
  feed->set_feed_id(info.id);
  feed->set_name(info.name);
  feed->set_dataset(info.dataset);
  feed->set_uid(info.owner.uid);
  feed->set_pid(info.owner.pid);
  feed->set_batch_size(static_cast<uint32_t>(info.batch_size));
  feed->set_rank(static_cast<uint32_t>(info.rank));
  feed->set_world_size(static_cast<uint32_t>(info.world_size));
  feed->set_seed(info.seed);
  feed->mutable_position()->set_epoch(info.next.epoch);
  feed->mutable_position()->set_batch(info.next.batch);
  feed->set_num_batches(info.num_batches);
  feed->set_num_samples(info.num_samples);
  feed->set_client_wait_seconds(info.client_wait_seconds);
  feed->set_daemon_wait_seconds(info.daemon_wait_seconds);
  feed->set_slab_bytes(info.slab_bytes);
  feed->set_num_slots(info.num_slots);
  feed->set_num_slots_held(info.num_slots_held);
  feed->set_num_ignored_releases(info.num_ignored_releases);
  feed->set_num_ignored_seeks(info.num_ignored_seeks);
  feed->set_num_launches(info.num_launches);
  feed->set_is_attached(info.phase == FeedPhase::kAttached);
}

}  // namespace datasetd
