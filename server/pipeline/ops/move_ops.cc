#include "server/pipeline/ops/move_ops.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/sized_step.h"

namespace datasetd {
namespace {

absl::Status CheckPadding(const Padding& padding) {
  const std::pair<const char*, int64_t> sides[] = {{"left", padding.left},
                                                   {"top", padding.top},
                                                   {"right", padding.right},
                                                   {"bottom", padding.bottom}};
  for (const auto& [name, extent] : sides) {
    if (extent < 0 || extent > kMaxElements) {
      return Invalid(absl::StrCat("the padding is ", extent, " on the ", name,
                                  ": it must be within 0..", kMaxElements));
    }
  }
  return absl::OkStatus();
}

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
  return Invalid(
      "the padding_mode is unknown: use constant, edge, reflect or symmetric");
}

// The padding of a RandomCrop for an image of height x width.
Padding PaddingFor(const RandomCropSpec& op, int64_t height, int64_t width) {
  Padding padding = op.padding;
  if (!op.pad_if_needed) return padding;
  const int64_t lack_y =
      std::max<int64_t>(op.height - height - padding.top - padding.bottom, 0);
  const int64_t lack_x =
      std::max<int64_t>(op.width - width - padding.left - padding.right, 0);
  padding.top += lack_y;
  padding.bottom += lack_y;
  padding.left += lack_x;
  padding.right += lack_x;
  return padding;
}

// Checks mode and fill, and initialises the move.
absl::Status BeginPad(const std::vector<float>& fill, PaddingMode mode,
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
absl::Status AddRaggedPad(const std::vector<float>& fill, PaddingMode mode,
                          const SizeChange& change, ImageCompiler& image,
                          const Padding& padding = {}) {
  Move move = {};
  DATASETD_RETURN_IF_ERROR(BeginPad(fill, mode, image, move));
  move.top = Narrow<int32_t>(padding.top);
  move.left = Narrow<int32_t>(padding.left);
  return image.AddMove(move, 0, 0, change);
}

// Checks the arguments; adds no step if nothing is padded.
absl::Status AddPad(const Padding& padding, const std::vector<float>& fill,
                    PaddingMode mode, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(CheckPadding(padding));
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
  DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckP(p));
  if (p == 0.0) return absl::OkStatus();
  Move move = {};
  move.kind = kind;
  move.probability = static_cast<float>(p);
  return image.AddMove(move, image.height(), image.width(), {SizeRule::kKeep});
}

}  // namespace

absl::Status CompileOp(const PadSpec& op, ImageCompiler& image) {
  return AddPad(op.padding, op.fill, op.padding_mode, image);
}

absl::Status PadToWindow(int64_t* top, int64_t* left, int64_t height,
                         int64_t width, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(height, width));
  const std::pair<const char*, int64_t> corner[] = {{"top", *top},
                                                    {"left", *left}};
  for (const auto& [name, at] : corner) {
    if (at < -kMaxElements || at > kMaxElements) {
      return Invalid(absl::StrCat(name, " is ", at, ": it must be within ",
                                  -kMaxElements, "..", kMaxElements));
    }
  }
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

absl::Status CompileOp(const CropSpec& op, ImageCompiler& image) {
  int64_t top = op.top;
  int64_t left = op.left;
  DATASETD_RETURN_IF_ERROR(
      PadToWindow(&top, &left, op.height, op.width, image));
  return AddCrop(top, left, op.height, op.width, image);
}

absl::Status CompileOp(const CenterCropSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(op.height, op.width));
  if (image.is_ragged()) {
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckRaggedChange({op.height, op.width}));
    DATASETD_RETURN_IF_ERROR(
        AddRaggedPad({}, PaddingMode::kConstant,
                     {SizeRule::kPadForCenter,
                      {Narrow<int32_t>(op.height), Narrow<int32_t>(op.width)}},
                     image));
    Move move = {};
    move.kind = MoveKind::kCrop;
    return image.AddMove(move, op.height, op.width, {SizeRule::kCenter});
  }
  const int64_t lack_y = std::max<int64_t>(op.height - image.height(), 0);
  const int64_t lack_x = std::max<int64_t>(op.width - image.width(), 0);
  DATASETD_RETURN_IF_ERROR(AddPad({.left = lack_x / 2,
                                   .top = lack_y / 2,
                                   .right = (lack_x + 1) / 2,
                                   .bottom = (lack_y + 1) / 2},
                                  {}, PaddingMode::kConstant, image));
  return AddCrop(RoundedHalf(Narrow<int32_t>(image.height() - op.height)),
                 RoundedHalf(Narrow<int32_t>(image.width() - op.width)),
                 op.height, op.width, image);
}

absl::Status CompileOp(const RandomCropSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(op.height, op.width));
  DATASETD_RETURN_IF_ERROR(CheckPadding(op.padding));
  const auto check = [&](int64_t height, int64_t width,
                         const char* of) -> absl::Status {
    const Padding padding = PaddingFor(op, height, width);
    const int64_t padded_height = height + padding.top + padding.bottom;
    const int64_t padded_width = width + padding.left + padding.right;
    if (padded_height >= op.height && padded_width >= op.width) {
      return absl::OkStatus();
    }
    const bool is_padded = padded_height != height || padded_width != width;
    return Invalid(absl::StrCat(
        "the size ", SizeText(op.height, op.width),
        " (height x width) is larger than ", of, is_padded ? "padded " : "",
        "image of ", SizeText(padded_height, padded_width),
        ": it can be at most that, or set padding or pad_if_needed"));
  };
  Move move = {};
  move.kind = MoveKind::kRandomCrop;
  if (image.is_ragged()) {
    DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRaggedChange(
        {op.height, op.width, op.padding.left, op.padding.top, op.padding.right,
         op.padding.bottom}));
    for (const SampleSize& size : image.sizes()) {
      DATASETD_RETURN_IF_ERROR(check(size.height, size.width, "a sample's "));
      DATASETD_RETURN_IF_ERROR(
          CheckPaddingMode(PaddingFor(op, size.height, size.width),
                           op.padding_mode, size.height, size.width));
    }
    SizeChange change = {
        SizeRule::kPad,
        {Narrow<int32_t>(op.padding.right), Narrow<int32_t>(op.padding.bottom),
         Narrow<int32_t>(op.height), Narrow<int32_t>(op.width)}};
    if (op.pad_if_needed) change.rule = SizeRule::kPadIfNeeded;
    DATASETD_RETURN_IF_ERROR(
        AddRaggedPad(op.fill, op.padding_mode, change, image, op.padding));
    return image.AddMove(move, op.height, op.width, {SizeRule::kTo});
  }
  DATASETD_RETURN_IF_ERROR(check(image.height(), image.width(), "the "));
  DATASETD_RETURN_IF_ERROR(AddPad(PaddingFor(op, image.height(), image.width()),
                                  op.fill, op.padding_mode, image));
  if (op.height == image.height() && op.width == image.width()) {
    return absl::OkStatus();
  }
  return image.AddMove(move, op.height, op.width, {SizeRule::kTo});
}

absl::Status CompileOp(const HorizontalFlipSpec&, ImageCompiler& image) {
  return AddFlip(MoveKind::kHorizontalFlip, 1.0, image);
}

absl::Status CompileOp(const VerticalFlipSpec&, ImageCompiler& image) {
  return AddFlip(MoveKind::kVerticalFlip, 1.0, image);
}

absl::Status CompileOp(const RandomHorizontalFlipSpec& op,
                       ImageCompiler& image) {
  return AddFlip(MoveKind::kHorizontalFlip, op.p, image);
}

absl::Status CompileOp(const RandomVerticalFlipSpec& op, ImageCompiler& image) {
  return AddFlip(MoveKind::kVerticalFlip, op.p, image);
}

absl::Status CompileOp(const AlternatingFlipSpec&, ImageCompiler& image) {
  Move move = {};
  move.kind = MoveKind::kAlternatingFlip;
  return image.AddMove(move, image.height(), image.width(), {SizeRule::kKeep});
}

}  // namespace datasetd
