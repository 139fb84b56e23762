// Runs pipelines on images for parity_test.py, as a feed does: the wire's
// messages, the compiler, the executor (run_program.h). Requests on stdin,
// replies on stdout, until stdin ends.
//
// A request is a line of JSON and the images' elements, [N, H, W, C]:
//   {"dtype": "uint8" or "float32", "num_images": N, "channels": C,
//    "height": H, "width": W, "is_mask": false, "seed": S, "epoch": E,
//    "batch": B, "sample": I, "labels": [class, ...],
//    "pipeline": {"transforms": [...]}}
// with the pipeline as datasetd.v1.Pipeline has it in JSON, the first image as
// sample I, and labels or not. A reply is a line of JSON and the elements [N,
// C, H, W], then those of the labels, float32 [N, num_classes], if an op mixes:
//   {"dtype": ..., "channels": C, "height": H, "width": W, "num_classes": K,
//    "drawn": [{"position": P, "name": "Crop", "is_applied": true,
//               "parameters": {name: [number, ...], ...}}, ...],
//    "mixed": [{"lambda": L, "top": T, "left": L, "bottom": B, "right": R},
//              ...]}
// where drawn is of the first image, and mixed of each row of a mixed batch;
// or {"error": text} alone.
//
// With "shape": [...] instead of channels, height and width the field is one of
// numbers, of any dtype, and so are its elements; the reply has the "shape" of
// a sample, and its elements follow. With "noise": {"dtype": ..., "channels":
// C, "steps": [T, ...]} that is what AddNoise adds, packed recordings [T, C],
// or [T] if C is 0, whose elements come after the field's.
//
// With "num_drawn": N nothing is applied, and "drawn" is a list of each of N
// samples from I on; such a request has "num_images": 0.
//
// The request {"describe": true} alone has the reply of DescribeOps.

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/transform.pb.h"
#include "nlohmann/json.hpp"
#include "server/dataset/ragged_index.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/mix_labels.h"
#include "server/pipeline/pipeline.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/parity/describe_ops.h"
#include "tests/parity/run_program.h"

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

json Drawn(const std::vector<OpDraw>& draws) {
  json drawn = json::array();
  for (const OpDraw& draw : draws) {
    json parameters = json::object();
    for (const auto& [name, values] : draw.parameters) {
      parameters[name] = values;
    }
    drawn.push_back({{"position", draw.position},
                     {"name", draw.name},
                     {"is_applied", draw.is_applied},
                     {"parameters", parameters}});
  }
  return drawn;
}

Dtype DtypeOf(const std::string& name) {
  for (int i = 1; i < 256; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (DtypeSizeBytes(dtype) > 0 && name == DtypeName(dtype)) return dtype;
  }
  return Dtype{};
}

FieldSpec SpecOf(const json& request) {
  FieldSpec spec;
  spec.dtype = DtypeOf(request.at("dtype").get<std::string>());
  if (request.contains("shape")) {
    spec.name = "sequence";
    spec.shape = request.at("shape").get<std::vector<int64_t>>();
    return spec;
  }
  spec.name = "image";
  spec.is_image = true;
  spec.is_mask = request.at("is_mask").get<bool>();
  spec.shape = {request.at("height").get<int64_t>(),
                request.at("width").get<int64_t>(),
                request.at("channels").get<int64_t>()};
  return spec;
}

// Recordings for AddNoise, packed as those of a dataset.
class Noise {
 public:
  Noise(const json& request, const std::string& elements) {
    const json& noise = request.at("noise");
    const auto channels = noise.at("channels").get<int64_t>();
    spec_.name = "noise";
    spec_.dtype = DtypeOf(noise.at("dtype").get<std::string>());
    spec_.shape = {kAnyExtent};
    if (channels > 0) spec_.shape.push_back(channels);
    index_ = RaggedIndex(PixelBytes(spec_));
    for (const int64_t steps : StepsOf(request)) index_.Add({steps, 1});
    memory_ = Allocate(index_.size_bytes());
    const char* from = elements.data();
    for (int64_t i = 0; i < index_.num_samples(); ++i) {
      const int64_t bytes = index_.sample_bytes(i);
      std::memcpy(memory_.get() + index_.samples()[i].offset_bytes, from,
                  static_cast<size_t>(bytes));
      from += bytes;
    }
  }
  static std::vector<int64_t> StepsOf(const json& request) {
    return request.at("noise").at("steps").get<std::vector<int64_t>>();
  }
  // Of its elements behind a request.
  static int64_t SizeBytes(const json& request) {
    const json& noise = request.at("noise");
    const std::vector<int64_t> steps = StepsOf(request);
    return std::accumulate(steps.begin(), steps.end(), int64_t{0}) *
           std::max<int64_t>(1, noise.at("channels").get<int64_t>()) *
           DtypeSizeBytes(DtypeOf(noise.at("dtype").get<std::string>()));
  }

  NoiseField field() const {
    return {.spec = spec_,
            .num_samples = index_.num_samples(),
            .source = memory_.get(),
            .ragged = index_.samples().data()};
  }
  std::vector<testing::MemoryRange> memory() const {
    return {{memory_.get(), index_.size_bytes(), false},
            {index_.samples().data(), index_.index_bytes(), false}};
  }

 private:
  FieldSpec spec_;
  RaggedIndex index_{1};
  Memory memory_;
};

// The image's program, and after it that of the labels, if there are any.
absl::StatusOr<std::vector<FieldProgram>> Compile(
    const json& request, const std::optional<Noise>& noise) {
  v1::Pipeline pipeline;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      request.at("pipeline").dump(), &pipeline);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(std::string(parsed.message()));
  }
  auto ops = CompleteTransforms(pipeline.transforms(), "pipeline");
  if (!ops.ok()) return ops.status();
  std::vector<FieldSpec> specs = {SpecOf(request)};
  std::vector<Transforms> transforms = {*std::move(ops)};
  if (request.contains("labels")) {
    specs.push_back({.name = "label", .dtype = Dtype::kInt64});
    transforms.emplace_back();
  }
  std::vector<FieldProgram> programs;
  for (size_t f = 0; f < specs.size(); ++f) {
    auto program = CompileField(
        specs[f], static_cast<int>(f), transforms[f], Layout::kNchw, {}, {}, 0,
        [&](const v1::AddNoise&,
            const std::string&) -> absl::StatusOr<NoiseField> {
          if (noise.has_value()) return noise->field();
          return absl::InvalidArgumentError("there is no noise");
        });
    if (!program.ok()) return program.status();
    programs.push_back(*program);
  }
  const absl::Status linked =
      LinkMixedLabels(specs, transforms, absl::MakeSpan(programs));
  if (!linked.ok()) return linked;
  return programs;
}

json Mixed(const AugmentProgram& program, const BatchTask& batch) {
  json rows = json::array();
  const FieldProgram& image = program.fields[0];
  if (image.mix.kind == MixKind::kNone) return rows;
  for (int32_t row = 0; row < batch.num_samples; ++row) {
    const MixDraw mix = DrawMix(image.mix, program.seed, batch, row,
                                image.out_height, image.out_width);
    rows.push_back({{"lambda", mix.lambda},
                    {"top", mix.top},
                    {"left", mix.left},
                    {"bottom", mix.bottom},
                    {"right", mix.right}});
  }
  return rows;
}

json DrawnOfEach(const json& request, const AugmentProgram& program) {
  const auto epoch = request.at("epoch").get<uint64_t>();
  const auto first = request.at("sample").get<int64_t>();
  const auto num_samples = request.at("num_drawn").get<int64_t>();
  json samples = json::array();
  for (int64_t i = 0; i < num_samples; ++i) {
    const auto draws = ExplainSample(program, epoch, first + i);
    if (!draws.ok()) return {{"error", std::string(draws.status().message())}};
    samples.push_back(Drawn(*draws));
  }
  return {{"drawn", samples}};
}

// The reply, and its elements in `out`.
json Run(const json& request, const std::string& images,
         const std::optional<Noise>& noise, std::string* out) {
  const auto fields = Compile(request, noise);
  if (!fields.ok()) return {{"error", std::string(fields.status().message())}};
  const auto num_images = request.at("num_images").get<int64_t>();
  std::vector<int64_t> labels;
  if (request.contains("labels")) {
    labels = request.at("labels").get<std::vector<int64_t>>();
  }
  const auto program = std::make_unique<AugmentProgram>();
  program->seed = request.at("seed").get<uint64_t>();
  program->indices_offset_bytes = -1;
  program->num_fields = static_cast<int32_t>(fields->size());
  std::copy(fields->begin(), fields->end(), program->fields);
  if (request.contains("num_drawn")) return DrawnOfEach(request, *program);

  const Memory source = Allocate(static_cast<int64_t>(images.size()));
  std::memcpy(source.get(), images.data(), images.size());
  FieldProgram& image = program->fields[0];
  image.source = source.get();
  // A single image is every sample.
  image.sample_stride_bytes =
      num_images == 1 ? 0 : static_cast<int64_t>(images.size()) / num_images;
  const int channels =
      image.num_steps > 0 ? image.out_channels : image.channels;
  const int64_t image_bytes = num_images * channels * image.out_height *
                              image.out_width * DtypeSizeBytes(image.out_dtype);
  int64_t label_bytes = 0;
  if (!labels.empty()) {
    FieldProgram& label = program->fields[1];
    label.source = reinterpret_cast<const uint8_t*>(labels.data());
    label.sample_stride_bytes = sizeof(int64_t);
    label.offset_bytes = AlignScratch(image_bytes);
    label_bytes =
        num_images * label.out_width * DtypeSizeBytes(label.out_dtype);
  }
  const ScratchPlan plan = PlanScratch(*program, 1);
  const Memory scratch = Allocate(plan.size_bytes);
  plan.Give(scratch.get(), program.get());
  ClearTeamFlags(*program);

  const Memory slot = Allocate(AlignScratch(image_bytes) + label_bytes);
  std::vector<int64_t> samples(num_images);
  std::iota(samples.begin(), samples.end(),
            request.at("sample").get<int64_t>());
  const BatchTask batch = {.slot = slot.get(),
                           .indices = samples.data(),
                           .num_samples = static_cast<int32_t>(num_images),
                           .batch_index = request.at("batch").get<uint32_t>(),
                           .epoch = request.at("epoch").get<uint64_t>()};
  const auto draws = ExplainSample(*program, batch.epoch, samples[0]);
  if (!draws.ok()) return {{"error", std::string(draws.status().message())}};
  std::vector<testing::MemoryRange> memory = {
      {source.get(), static_cast<int64_t>(images.size()), false},
      {labels.data(), static_cast<int64_t>(8 * labels.size()), false},
      {samples.data(), static_cast<int64_t>(8 * samples.size()), false},
      {scratch.get(), plan.size_bytes, true},
      {slot.get(), AlignScratch(image_bytes) + label_bytes, true},
  };
  if (noise.has_value()) {
    for (const testing::MemoryRange& range : noise->memory()) {
      memory.push_back(range);
    }
  }
  if (const absl::Status status = RunProgram(*program, batch, memory);
      !status.ok()) {
    return {{"error", std::string(status.message())}};
  }
  const char* const from = reinterpret_cast<const char*>(slot.get());
  out->assign(from, static_cast<size_t>(image_bytes));
  out->append(from + AlignScratch(image_bytes),
              static_cast<size_t>(label_bytes));
  return {{"dtype", DtypeName(image.out_dtype)},
          {"shape", OutputShape(SpecOf(request), image)},
          {"channels", channels},
          {"height", image.out_height},
          {"width", image.out_width},
          {"num_classes", labels.empty() ? 0 : program->fields[1].out_width},
          {"drawn", Drawn(*draws)},
          {"mixed", Mixed(*program, batch)}};
}

void Serve(std::istream& in, std::ostream& out) {
  std::string line;
  while (std::getline(in, line)) {
    const json request = json::parse(line);
    if (request.contains("describe")) {
      out << DescribeOps().dump() << "\n" << std::flush;
      continue;
    }
    std::string images(request.at("num_images").get<int64_t>() *
                           SpecOf(request).sample_bytes(),
                       '\0');
    in.read(images.data(), static_cast<std::streamsize>(images.size()));
    std::optional<Noise> noise;
    if (request.contains("noise")) {
      std::string elements(Noise::SizeBytes(request), '\0');
      in.read(elements.data(), static_cast<std::streamsize>(elements.size()));
      noise.emplace(request, elements);
    }
    std::string result;
    const json reply = Run(request, images, noise, &result);
    out << reply.dump() << "\n" << result << std::flush;
  }
}

}  // namespace
}  // namespace datasetd

int main() {
  datasetd::Serve(std::cin, std::cout);
  return 0;
}
