#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/sized_step.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
namespace {

// Pixels added on each side; sums of them do not overflow.
struct Padding {
  int64_t left = 0;
  int64_t top = 0;
  int64_t right = 0;
  int64_t bottom = 0;
};

Padding ToPadding(const v1::Padding& padding) {
  return {.left = padding.left(),
          .top = padding.top(),
          .right = padding.right(),
          .bottom = padding.bottom()};
}

using Fill = google::protobuf::RepeatedField<float>;

absl::Status CheckReach(const char* mode, int64_t largest, const char* axis,
                        int64_t before, int64_t after, int64_t size) {
  const int64_t padding = std::max(before, after);
  if (padding <= largest) return absl::OkStatus();
  return Invalid(absl::StrCat(
      mode, " padding of ", padding, " on an image of ", axis, " ", size,
      ": it can be at most ", largest,
      "; use a smaller padding, or padding_mode edge or constant"));
}

absl::Status CheckPaddingMode(const Padding& padding, PaddingMode mode,
                              int64_t height, int64_t width) {
  switch (mode) {
    case PaddingMode::kConstant:
    case PaddingMode::kEdge:
      return absl::OkStatus();
    case PaddingMode::kReflect:
      DATASETD_RETURN_IF_ERROR(CheckReach("reflect", height - 1, "height",
                                          padding.top, padding.bottom, height));
      return CheckReach("reflect", width - 1, "width", padding.left,
                        padding.right, width);
    case PaddingMode::kSymmetric:
      DATASETD_RETURN_IF_ERROR(CheckReach("symmetric", height, "height",
                                          padding.top, padding.bottom, height));
      return CheckReach("symmetric", width, "width", padding.left,
                        padding.right, width);
  }
  return absl::InternalError(
      "CheckTransform lets no other padding_mode through");
}

// The padding of a RandomCrop for an image of height x width.
Padding PaddingFor(const v1::RandomCrop& op, int64_t height, int64_t width) {
  Padding padding = ToPadding(op.padding());
  if (!op.pad_if_needed()) return padding;
  const int64_t lack_y =
      std::max<int64_t>(op.height() - height - padding.top - padding.bottom, 0);
  const int64_t lack_x =
      std::max<int64_t>(op.width() - width - padding.left - padding.right, 0);
  padding.top += lack_y;
  padding.bottom += lack_y;
  padding.left += lack_x;
  padding.right += lack_x;
  return padding;
}

// Checks mode and fill, and initialises the move.
absl::Status BeginPad(const Fill& fill, PaddingMode mode,
                      const ImageCompiler& image, Move& move) {
  move.kind = MoveKind::kPad;
  move.padding_mode = mode;
  if (!fill.empty()) {
    DATASETD_RETURN_IF_ERROR(image.PerChannel("fill", fill, move.fill));
  }
  for (float value : move.fill) {
    if (image.dtype() == Dtype::kUint8 &&
        (value < 0.0f || value > 255.0f || value != std::floor(value))) {
      return Invalid(absl::StrCat(
          "fill is ", value,
          " on a uint8 image: it must be an integer within 0..255, in the "
          "units of the image at this op; or put ToDtype before it"));
    }
  }
  if (mode != PaddingMode::kConstant) {
    std::fill(std::begin(move.fill), std::end(move.fill), 0.0f);
  }
  return absl::OkStatus();
}

// Adds a step that pads each sample as `change` says.
absl::Status AddRaggedPad(const Fill& fill, PaddingMode mode,
                          const SizeChange& change, ImageCompiler& image,
                          const Padding& padding = {}) {
  Move move = {};
  DATASETD_RETURN_IF_ERROR(BeginPad(fill, mode, image, move));
  move.top = Narrow<int32_t>(padding.top);
  move.left = Narrow<int32_t>(padding.left);
  return image.AddMove(move, 0, 0, change);
}

// Checks the arguments; adds no step if nothing is padded.
absl::Status AddPad(const Padding& padding, const Fill& fill, PaddingMode mode,
                    ImageCompiler& image) {
  if (image.is_ragged()) {
    DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRaggedChange(
        {padding.left, padding.top, padding.right, padding.bottom}));
    for (const SampleSize& size : image.sizes()) {
      DATASETD_RETURN_IF_ERROR(
          CheckPaddingMode(padding, mode, size.height, size.width));
    }
    return AddRaggedPad(
        fill, mode,
        {SizeRule::kPad,
         {Narrow<int32_t>(padding.right), Narrow<int32_t>(padding.bottom)}},
        image, padding);
  }
  Move move = {};
  DATASETD_RETURN_IF_ERROR(BeginPad(fill, mode, image, move));
  DATASETD_RETURN_IF_ERROR(
      CheckPaddingMode(padding, mode, image.height(), image.width()));
  const int64_t height = image.height() + padding.top + padding.bottom;
  const int64_t width = image.width() + padding.left + padding.right;
  if (height == image.height() && width == image.width()) {
    return absl::OkStatus();
  }
  if (!FitsInSample(height, width, image.channels())) {
    return Invalid(absl::StrCat("the padded image of ", SizeText(height, width),
                                " with ", image.channels(),
                                " channels is more than ", kMaxElements,
                                " elements"));
  }
  move.top = Narrow<int32_t>(padding.top);
  move.left = Narrow<int32_t>(padding.left);
  return image.AddMove(move, height, width, {SizeRule::kPad});
}

absl::Status AddCrop(int64_t top, int64_t left, int64_t height, int64_t width,
                     ImageCompiler& image) {
  if (!image.is_ragged() && height == image.height() &&
      width == image.width()) {
    return absl::OkStatus();
  }
  Move move = {};
  move.kind = MoveKind::kCrop;
  move.top = Narrow<int32_t>(top);
  move.left = Narrow<int32_t>(left);
  return image.AddMove(move, height, width, {SizeRule::kTo});
}

absl::Status AddFlip(MoveKind kind, double p, ImageCompiler& image) {
  if (p == 0.0) return absl::OkStatus();
  Move move = {};
  move.kind = kind;
  move.probability = static_cast<float>(p);
  return image.AddMove(move, image.height(), image.width(), {SizeRule::kKeep});
}

absl::Status AddWindow(const v1::Crop& op, ImageCompiler& image) {
  int64_t top = op.top();
  int64_t left = op.left();
  DATASETD_RETURN_IF_ERROR(
      PadToWindow(&top, &left, op.height(), op.width(), image));
  return AddCrop(top, left, op.height(), op.width(), image);
}

absl::Status AddCenterCrop(int64_t height, int64_t width,
                           ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(height, width));
  if (image.is_ragged()) {
    DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRaggedChange({height, width}));
    DATASETD_RETURN_IF_ERROR(
        AddRaggedPad({}, PaddingMode::kConstant,
                     {SizeRule::kPadForCenter,
                      {Narrow<int32_t>(height), Narrow<int32_t>(width)}},
                     image));
    Move move = {};
    move.kind = MoveKind::kCrop;
    return image.AddMove(move, height, width, {SizeRule::kCenter});
  }
  const int64_t lack_y = std::max<int64_t>(height - image.height(), 0);
  const int64_t lack_x = std::max<int64_t>(width - image.width(), 0);
  DATASETD_RETURN_IF_ERROR(AddPad({.left = lack_x / 2,
                                   .top = lack_y / 2,
                                   .right = (lack_x + 1) / 2,
                                   .bottom = (lack_y + 1) / 2},
                                  {}, PaddingMode::kConstant, image));
  return AddCrop(RoundedHalf(Narrow<int32_t>(image.height() - height)),
                 RoundedHalf(Narrow<int32_t>(image.width() - width)), height,
                 width, image);
}

absl::Status AddRandomCrop(const v1::RandomCrop& op, ImageCompiler& image) {
  const int64_t crop_height = op.height();
  const int64_t crop_width = op.width();
  const Padding given = ToPadding(op.padding());
  const PaddingMode mode = ToPaddingMode(op.padding_mode());
  DATASETD_RETURN_IF_ERROR(image.CheckSize(crop_height, crop_width));
  const auto check = [&](int64_t height, int64_t width,
                         const char* of) -> absl::Status {
    const Padding padding = PaddingFor(op, height, width);
    const int64_t padded_height = height + padding.top + padding.bottom;
    const int64_t padded_width = width + padding.left + padding.right;
    if (padded_height >= crop_height && padded_width >= crop_width) {
      return absl::OkStatus();
    }
    const bool is_padded = padded_height != height || padded_width != width;
    return Invalid(absl::StrCat(
        "the size ", SizeText(crop_height, crop_width),
        " (height x width) is larger than ", of, is_padded ? "padded " : "",
        "image of ", SizeText(padded_height, padded_width),
        ": it can be at most that, or set padding or pad_if_needed"));
  };
  Move move = {};
  move.kind = MoveKind::kRandomCrop;
  if (image.is_ragged()) {
    DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRaggedChange(
        {crop_height, crop_width, given.left, given.top, given.right,
         given.bottom}));
    for (const SampleSize& size : image.sizes()) {
      DATASETD_RETURN_IF_ERROR(check(size.height, size.width, "a sample's "));
      DATASETD_RETURN_IF_ERROR(
          CheckPaddingMode(PaddingFor(op, size.height, size.width), mode,
                           size.height, size.width));
    }
    SizeChange change = {
        SizeRule::kPad,
        {Narrow<int32_t>(given.right), Narrow<int32_t>(given.bottom),
         Narrow<int32_t>(crop_height), Narrow<int32_t>(crop_width)}};
    if (op.pad_if_needed()) change.rule = SizeRule::kPadIfNeeded;
    DATASETD_RETURN_IF_ERROR(
        AddRaggedPad(op.fill(), mode, change, image, given));
    return image.AddMove(move, crop_height, crop_width, {SizeRule::kTo});
  }
  DATASETD_RETURN_IF_ERROR(check(image.height(), image.width(), "the "));
  DATASETD_RETURN_IF_ERROR(AddPad(PaddingFor(op, image.height(), image.width()),
                                  op.fill(), mode, image));
  if (crop_height == image.height() && crop_width == image.width()) {
    return absl::OkStatus();
  }
  return image.AddMove(move, crop_height, crop_width, {SizeRule::kTo});
}

}  // namespace

absl::Status PadToWindow(int64_t* top, int64_t* left, int64_t height,
                         int64_t width, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(height, width));
  if (image.is_ragged()) {
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckRaggedChange({*top, *left, height, width}));
    DATASETD_RETURN_IF_ERROR(
        AddRaggedPad({}, PaddingMode::kConstant,
                     {SizeRule::kPadForWindow,
                      {Narrow<int32_t>(*top), Narrow<int32_t>(*left),
                       Narrow<int32_t>(height), Narrow<int32_t>(width)}},
                     image));
    *top = std::max<int64_t>(*top, 0);
    *left = std::max<int64_t>(*left, 0);
    return absl::OkStatus();
  }
  const Padding padding = {
      .left = std::max<int64_t>(-*left, 0),
      .top = std::max<int64_t>(-*top, 0),
      .right = std::max<int64_t>(*left + width - image.width(), 0),
      .bottom = std::max<int64_t>(*top + height - image.height(), 0)};
  const absl::Status padded =
      AddPad(padding, {}, PaddingMode::kConstant, image);
  if (!padded.ok()) {
    return Invalid(absl::StrCat("top is ", *top, " and left ", *left, ": ",
                                padded.message(),
                                ": it must be nearer to the image"));
  }
  *top += padding.top;
  *left += padding.left;
  return absl::OkStatus();
}

absl::Status CompileMoveOp(const v1::Transform& op, ImageCompiler& image) {
  switch (op.op_case()) {
    case v1::Transform::kPad:
      return AddPad(ToPadding(op.pad().padding()), op.pad().fill(),
                    ToPaddingMode(op.pad().padding_mode()), image);
    case v1::Transform::kCrop:
      return AddWindow(op.crop(), image);
    case v1::Transform::kCenterCrop:
      return AddCenterCrop(op.center_crop().height(), op.center_crop().width(),
                           image);
    case v1::Transform::kRandomCrop:
      return AddRandomCrop(op.random_crop(), image);
    case v1::Transform::kHorizontalFlip:
      return AddFlip(MoveKind::kHorizontalFlip, 1.0, image);
    case v1::Transform::kVerticalFlip:
      return AddFlip(MoveKind::kVerticalFlip, 1.0, image);
    case v1::Transform::kRandomHorizontalFlip:
      return AddFlip(MoveKind::kHorizontalFlip, op.random_horizontal_flip().p(),
                     image);
    case v1::Transform::kRandomVerticalFlip:
      return AddFlip(MoveKind::kVerticalFlip, op.random_vertical_flip().p(),
                     image);
    case v1::Transform::kAlternatingFlip: {
      Move move = {};
      move.kind = MoveKind::kAlternatingFlip;
      return image.AddMove(move, image.height(), image.width(),
                           {SizeRule::kKeep});
    }
    default:
      return NoCompiler(op);
  }
}

}  // namespace datasetd
