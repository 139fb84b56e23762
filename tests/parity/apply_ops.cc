// Applies ops to images for parity_test.py: requests on stdin, replies on
// stdout, until stdin ends.
//
// A request is a line of JSON and the image's elements, [H, W, C]:
//   {"dtype": "uint8" or "float32", "channels": C, "height": H, "width": W,
//    "seed": S, "epoch": E, "sample": I, "transforms": [op, ...]}
// with ops as datasetd.v1.Transform has them in JSON. A reply is a line of JSON
// and the elements [C, H, W] of the same dtype:
//   {"channels": C, "height": H, "width": W,
//    "drawn": [{name: [number, ...], ...}, ...]}
// or {"error": text} alone.

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/ops/adjust_brightness.h"
#include "cuda/kernels/ops/adjust_contrast.h"
#include "cuda/kernels/ops/adjust_hue.h"
#include "cuda/kernels/ops/adjust_saturation.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/ops/autocontrast.h"
#include "cuda/kernels/ops/color_jitter.h"
#include "cuda/kernels/ops/cutout.h"
#include "cuda/kernels/ops/equalize.h"
#include "cuda/kernels/ops/erase.h"
#include "cuda/kernels/ops/gaussian_blur.h"
#include "cuda/kernels/ops/grayscale.h"
#include "cuda/kernels/ops/invert.h"
#include "cuda/kernels/ops/posterize.h"
#include "cuda/kernels/ops/random_erasing.h"
#include "cuda/kernels/ops/solarize.h"
#include "cuda/kernels/rounding.h"
#include "nlohmann/json.hpp"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"

namespace datasetd {
namespace {

using nlohmann::json;

template <typename Draw, typename Statistic, typename Partial>
using Op = StatisticOp<Draw, Statistic, Partial>;

OpImage Contrast(const OpImage& image, float factor) {
  const Op<AdjustContrastDraw, AdjustContrastStatistic, AdjustContrastPartial>
      op = {InitAdjustContrast, AccumulateAdjustContrast<PlainAtomics>,
            MergeAdjustContrast<PlainAtomics>, FinishAdjustContrast,
            ApplyAdjustContrast};
  return op.Run(image, {factor, image.bound, 0.0f}, 3);
}

OpImage Jitter(const OpImage& image, JitterOp op, float factor) {
  switch (op) {
    case JitterOp::kBrightness:
      return RunPointOp<AdjustBrightnessDraw>(image, {factor, image.bound},
                                              ApplyAdjustBrightness);
    case JitterOp::kContrast:
      return Contrast(image, factor);
    case JitterOp::kSaturation:
      return RunPointOp<AdjustSaturationDraw>(image, {factor, image.bound},
                                              ApplyAdjustSaturation);
    case JitterOp::kHue:
      return RunPointOp<AdjustHueDraw>(image, {factor, image.bound},
                                       ApplyAdjustHue);
  }
  throw std::runtime_error("no such op");
}

void SetValues(const json& values, float (&to)[kMaxChannels]) {
  for (size_t c = 0; c < kMaxChannels && !values.empty(); ++c) {
    to[c] = values[c < values.size() ? c : 0].get<float>();
  }
}

// One op; adds what it drew to `drawn`.
OpImage Apply(const std::string& name, const json& op, const DrawKey& key,
              const OpImage& image, json* drawn) {
  const float bound = image.bound;
  const auto jitter = [&](JitterOp jitter_op, const char* factor) {
    return Jitter(image, jitter_op, op.at(factor).get<float>());
  };
  if (name == "adjust_brightness") {
    return jitter(JitterOp::kBrightness, "brightness_factor");
  }
  if (name == "adjust_contrast") {
    return jitter(JitterOp::kContrast, "contrast_factor");
  }
  if (name == "adjust_saturation") {
    return jitter(JitterOp::kSaturation, "saturation_factor");
  }
  if (name == "adjust_hue") return jitter(JitterOp::kHue, "hue_factor");
  if (name == "adjust_sharpness") {
    return RunWindowOp<AdjustSharpnessDraw>(
        image, {op.at("sharpness_factor").get<float>(), bound},
        ApplyAdjustSharpness);
  }
  if (name == "grayscale") {
    const int channels = op.value("num_output_channels", 1);
    OpImage gray = RunPointOp<GrayscaleDraw>(image, {image.num_channels, bound},
                                             ApplyGrayscale);
    gray.num_channels = channels;
    const std::vector<float> plane(gray.values.begin(),
                                   gray.values.begin() + image.plane_size());
    gray.values.clear();
    for (int c = 0; c < channels; ++c) {
      gray.values.insert(gray.values.end(), plane.begin(), plane.end());
    }
    return gray;
  }
  if (name == "invert") {
    return RunPointOp<InvertDraw>(image, {bound}, ApplyInvert);
  }
  if (name == "posterize") {
    return RunPointOp<PosterizeDraw>(image, {op.at("bits").get<int>(), bound},
                                     ApplyPosterize);
  }
  if (name == "solarize") {
    return RunPointOp<SolarizeDraw>(
        image, {op.at("threshold").get<float>(), bound}, ApplySolarize);
  }
  if (name == "autocontrast") {
    const Op<AutocontrastDraw, AutocontrastStatistic, AutocontrastPartial>
        statistic = {InitAutocontrast, AccumulateAutocontrast<PlainAtomics>,
                     MergeAutocontrast<PlainAtomics>, FinishAutocontrast,
                     ApplyAutocontrast};
    return statistic.Run(image, {bound, {}, {}}, 3);
  }
  if (name == "equalize") {
    const Op<EqualizeDraw, EqualizeStatistic, EqualizePartial> statistic = {
        InitEqualize, AccumulateEqualize<PlainAtomics>,
        MergeEqualize<PlainAtomics>, FinishEqualize, ApplyEqualize};
    return statistic.Run(image, {bound}, 3);
  }
  if (name == "gaussian_blur") {
    const GaussianBlurParams params = {
        (op.at("kernel_size").at("width").get<int>() - 1) / 2,
        (op.at("kernel_size").at("height").get<int>() - 1) / 2,
        op.at("sigma").at("min").get<float>(),
        op.at("sigma").at("max").get<float>()};
    (*drawn)["sigma"] = {DrawGaussianBlurSigma(params, key)};
    const GaussianBlurDraw draw =
        DrawGaussianBlur(params, key, image.height, image.width);
    return RunWindowOp(RunWindowOp(image, draw, ApplyGaussianBlurX), draw,
                       ApplyGaussianBlurY);
  }
  if (name == "color_jitter") {
    ColorJitterParams params = {};
    const char* const parts[] = {"brightness", "contrast", "saturation", "hue"};
    for (int i = 0; i < kNumJitterOps; ++i) {
      params.is_present[i] = op.contains(parts[i]);
      if (!params.is_present[i]) continue;
      params.low[i] = op[parts[i]].at("min").get<float>();
      params.high[i] = op[parts[i]].at("max").get<float>();
    }
    const ColorJitterDraw draw = DrawColorJitter(params, key, 0, 0);
    OpImage result = image;
    for (int i = 0; i < draw.num_ops; ++i) {
      const int part = static_cast<int>(draw.order[i]);
      result = Jitter(result, draw.order[i], draw.factor[part]);
      (*drawn)["order"].push_back(part);
      (*drawn)[parts[part]] = {draw.factor[part]};
    }
    return result;
  }
  if (name == "erase") {
    EraseDraw draw = {op.value("top", 0),
                      op.value("left", 0),
                      op.value("height", 0),
                      op.value("width", 0),
                      {}};
    SetValues(op.value("value", json::array()), draw.value);
    return RunCoordinateOp(image, draw, key, ApplyErase);
  }
  if (name == "random_erasing") {
    RandomErasingParams params = {op.at("scale").at("min").get<float>(),
                                  op.at("scale").at("max").get<float>(),
                                  op.at("ratio").at("min").get<float>(),
                                  op.at("ratio").at("max").get<float>(),
                                  op.value("is_value_random", false),
                                  {}};
    SetValues(op.value("value", json::array()), params.value);
    const RandomErasingDraw draw =
        DrawRandomErasing(params, key, image.height, image.width);
    *drawn = {{"top", {draw.box.top}},
              {"left", {draw.box.left}},
              {"height", {draw.box.height}},
              {"width", {draw.box.width}}};
    return RunCoordinateOp(image, draw, key, ApplyRandomErasing);
  }
  if (name == "cutout") {
    CutoutParams params = {op.at("size").get<int>(), {}};
    SetValues(op.value("fill", json::array()), params.fill);
    const CutoutDraw draw = DrawCutout(params, key, image.height, image.width);
    *drawn = {{"top", {draw.top}}, {"left", {draw.left}}};
    return RunCoordinateOp(image, draw, key, ApplyCutout);
  }
  throw std::runtime_error("no such op: " + name);
}

json Run(const json& request, OpImage* image) {
  json drawn = json::array();
  uint32_t op_index = 0;
  for (const json& transform : request.at("transforms")) {
    DrawKey key = {request.at("seed").get<uint64_t>(),
                   request.at("epoch").get<uint64_t>(),
                   request.at("sample").get<int64_t>(), op_index++};
    json of_op = json::object();
    *image = Apply(transform.begin().key(), transform.begin().value(), key,
                   *image, &of_op);
    drawn.push_back(std::move(of_op));
  }
  return drawn;
}

void Serve(std::istream& in, std::ostream& out) {
  std::string line;
  while (std::getline(in, line)) {
    const json request = json::parse(line);
    OpImage image;
    image.num_channels = request.at("channels").get<int>();
    image.height = request.at("height").get<int>();
    image.width = request.at("width").get<int>();
    const bool is_uint8 = request.at("dtype") == "uint8";
    image.bound = is_uint8 ? 255.0f : 1.0f;
    const int64_t size = image.plane_size() * image.num_channels;
    std::string bytes(size * (is_uint8 ? 1 : 4), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    image.values.resize(size);
    const auto* const floats = reinterpret_cast<const float*>(bytes.data());
    for (int64_t i = 0; i < size; ++i) {
      const int64_t plane = i % image.num_channels;
      image.values[plane * image.plane_size() + i / image.num_channels] =
          is_uint8 ? static_cast<float>(static_cast<uint8_t>(bytes[i]))
                   : floats[i];
    }
    json reply;
    std::string result;
    try {
      reply["drawn"] = Run(request, &image);
      reply["channels"] = image.num_channels;
      reply["height"] = image.height;
      reply["width"] = image.width;
      if (is_uint8) {
        for (const float value : image.values) {
          result.push_back(static_cast<char>(FloatToUint8(value)));
        }
      } else {
        result.assign(reinterpret_cast<const char*>(image.values.data()),
                      image.values.size() * 4);
      }
    } catch (const std::exception& error) {
      reply["error"] = error.what();
    }
    out << reply.dump() << "\n" << result << std::flush;
  }
}

}  // namespace
}  // namespace datasetd

int main() {
  datasetd::Serve(std::cin, std::cout);
  return 0;
}
