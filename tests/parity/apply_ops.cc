// Runs pipelines on images for parity_test.py, as a feed on the host does: the
// wire's messages, the compiler, the host's executor. Requests on stdin,
// replies on stdout, until stdin ends.
//
// A request is a line of JSON and the image's elements, [H, W, C]:
//   {"dtype": "uint8" or "float32", "channels": C, "height": H, "width": W,
//    "seed": S, "epoch": E, "sample": I, "pipeline": {"transforms": [...]}}
// with the pipeline as datasetd.v1.Pipeline has it in JSON. A reply is a line
// of JSON and the elements [C, H, W]:
//   {"dtype": ..., "channels": C, "height": H, "width": W,
//    "drawn": {place of the op: {name: [number, ...], ...}, ...}}
// or {"error": text} alone.

#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/dtype.h"
#include "cuda/kernels/augment.h"
#include "cuda/kernels/chain_scratch.h"
#include "cuda/kernels/move.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/params.h"
#include "datasetd/v1/transform.pb.h"
#include "nlohmann/json.hpp"
#include "server/core/pipeline.h"
#include "server/service/transform_convert.h"

namespace datasetd {
namespace {

using nlohmann::json;

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<uint8_t[], Free>;

// As the daemon's memory is.
Memory Allocate(int64_t size_bytes) {
  const int64_t aligned = AlignScratch(size_bytes + 1);
  return Memory(static_cast<uint8_t*>(
      std::aligned_alloc(kScratchAlignment, static_cast<size_t>(aligned))));
}

const char* const kJitterNames[] = {"brightness", "contrast", "saturation",
                                    "hue"};

void DescribeJitter(const StepDraw& step, json* drawn) {
  if (!step.is_applied) return;
  JitterOp op;
  float factor;
  switch (step.kind) {
    case StepKind::kAdjustBrightness:
      op = JitterOp::kBrightness;
      factor = step.As<AdjustBrightnessDraw>().factor;
      break;
    case StepKind::kAdjustContrast:
      op = JitterOp::kContrast;
      factor = step.As<AdjustContrastDraw>().factor;
      break;
    case StepKind::kAdjustSaturation:
      op = JitterOp::kSaturation;
      factor = step.As<AdjustSaturationDraw>().factor;
      break;
    default:
      op = JitterOp::kHue;
      factor = step.As<AdjustHueDraw>().factor;
      break;
  }
  (*drawn)["order"].push_back(static_cast<int>(op));
  (*drawn)[kJitterNames[static_cast<int>(op)]] = {factor};
}

void DescribeBox(const EraseDraw& box, json* drawn) {
  drawn->update({{"top", {box.top}},
                 {"left", {box.left}},
                 {"height", {box.height}},
                 {"width", {box.width}}});
}

// What a step drew, into its op's object.
void Describe(const Step& step, const StepDraw& draw, const DrawKey& key,
              json* drawn) {
  (*drawn)["applied"] = {draw.is_applied ? 1 : 0};
  if (!draw.is_applied) return;
  switch (step.kind) {
    case StepKind::kColorJitter:
      DescribeJitter(draw, drawn);
      break;
    case StepKind::kGaussianBlur:
      (*drawn)["sigma"] = {
          DrawGaussianBlurSigma(ParamsAs<GaussianBlurParams>(step), key)};
      break;
    case StepKind::kCutout:
      DescribeBox(draw.As<CutoutDraw>(), drawn);
      break;
    case StepKind::kRandomErasing:
      DescribeBox(draw.As<RandomErasingDraw>().box, drawn);
      break;
    case StepKind::kResize: {
      const ResizeDraw& window = draw.As<ResizeDraw>();
      drawn->update({{"top", {window.top}},
                     {"left", {window.left}},
                     {"height", {window.height}},
                     {"width", {window.width}}});
      break;
    }
    case StepKind::kAffine: {
      const AffineDraw& affine = draw.As<AffineDraw>();
      drawn->update({{"angle", {affine.angle}},
                     {"translate", {affine.translate[0], affine.translate[1]}},
                     {"scale", {affine.scale}},
                     {"shear", {affine.shear[0], affine.shear[1]}}});
      break;
    }
    default:
      break;
  }
}

// By the place of the op in the pipeline.
void DescribeMove(const Move& move, uint64_t seed, uint64_t epoch,
                  int64_t sample, json* drawn) {
  const AxisMove y = DrawAxisMove(move, Axis::kY, seed, epoch, sample);
  const AxisMove x = DrawAxisMove(move, Axis::kX, seed, epoch, sample);
  json& op = (*drawn)[std::to_string(move.op_index)];
  op["mirrored"] = {y.is_mirrored ? 1 : 0, x.is_mirrored ? 1 : 0};
  if (move.kind == MoveKind::kRandomCrop) {
    op["top"] = {y.origin};
    op["left"] = {x.origin};
  }
}

json Drawn(const FieldProgram& field, uint64_t seed, uint64_t epoch,
           int64_t sample) {
  json drawn = json::object();
  for (int i = 0; i < field.num_moves; ++i) {
    DescribeMove(field.moves[i], seed, epoch, sample, &drawn);
  }
  for (int i = 0; i < field.num_steps; ++i) {
    const Step& step = field.steps[i];
    if (step.kind == StepKind::kMove) {
      DescribeMove(ParamsAs<Move>(step), seed, epoch, sample, &drawn);
      continue;
    }
    StepDraw draw;
    DrawStep(step, seed, epoch, sample, &draw);
    Describe(step, draw, {seed, epoch, sample, step.op_index},
             &drawn[std::to_string(step.op_index)]);
  }
  return drawn;
}

absl::StatusOr<FieldProgram> Compile(const json& request) {
  v1::Pipeline pipeline;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      request.at("pipeline").dump(), &pipeline);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(std::string(parsed.message()));
  }
  const auto ops = TransformsFromProto(pipeline.transforms(), "pipeline");
  if (!ops.ok()) return ops.status();
  FieldSpec spec;
  spec.name = "image";
  spec.is_image = true;
  spec.dtype = request.at("dtype") == "uint8" ? Dtype::kUint8 : Dtype::kFloat32;
  spec.shape = {request.at("height").get<int64_t>(),
                request.at("width").get<int64_t>(),
                request.at("channels").get<int64_t>()};
  return CompileField(spec, 0, *ops, Layout::kNchw);
}

// The reply, and its elements in `out`.
json Run(const json& request, const std::string& image, std::string* out) {
  absl::StatusOr<FieldProgram> field = Compile(request);
  if (!field.ok()) return {{"error", std::string(field.status().message())}};
  const Memory source = Allocate(static_cast<int64_t>(image.size()));
  std::copy(image.begin(), image.end(), source.get());
  field->source = source.get();
  // Every sample is this one.
  field->sample_stride_bytes = 0;

  const auto program = std::make_unique<AugmentProgram>();
  program->seed = request.at("seed").get<uint64_t>();
  program->indices_offset_bytes = -1;
  program->num_fields = 1;
  program->fields[0] = *field;
  const ScratchPlan plan = PlanScratch(*program, 1);
  const Memory scratch = Allocate(plan.size_bytes);
  plan.Give(scratch.get(), program.get());
  ClearTeamFlags(*program);

  const int channels =
      field->num_steps > 0 ? field->out_channels : field->channels;
  const int64_t size_bytes = int64_t{channels} * field->out_height *
                             field->out_width *
                             DtypeSizeBytes(field->out_dtype);
  const Memory slot = Allocate(size_bytes);
  const int64_t sample = request.at("sample").get<int64_t>();
  const uint64_t epoch = request.at("epoch").get<uint64_t>();
  AugmentHost(*program, {slot.get(), &sample, 1, epoch});
  out->assign(reinterpret_cast<const char*>(slot.get()),
              static_cast<size_t>(size_bytes));
  return {{"dtype", DtypeName(field->out_dtype)},
          {"channels", channels},
          {"height", field->out_height},
          {"width", field->out_width},
          {"drawn", Drawn(*field, program->seed, epoch, sample)}};
}

void Serve(std::istream& in, std::ostream& out) {
  std::string line;
  while (std::getline(in, line)) {
    const json request = json::parse(line);
    const int64_t element_bytes = request.at("dtype") == "uint8" ? 1 : 4;
    std::string image(request.at("channels").get<int64_t>() *
                          request.at("height").get<int64_t>() *
                          request.at("width").get<int64_t>() * element_bytes,
                      '\0');
    in.read(image.data(), static_cast<std::streamsize>(image.size()));
    std::string result;
    const json reply = Run(request, image, &result);
    out << reply.dump() << "\n" << result << std::flush;
  }
}

}  // namespace
}  // namespace datasetd

int main() {
  datasetd::Serve(std::cin, std::cout);
  return 0;
}
