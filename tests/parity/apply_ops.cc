// Runs pipelines on images for parity_test.py, as a feed on the host does: the
// wire's messages, the compiler, the host's executor. Requests on stdin,
// replies on stdout, until stdin ends.
//
// A request is a line of JSON and the image's elements, [H, W, C]:
//   {"dtype": "uint8" or "float32", "channels": C, "height": H, "width": W,
//    "is_mask": false, "seed": S, "epoch": E, "sample": I,
//    "pipeline": {"transforms": [...]}}
// with the pipeline as datasetd.v1.Pipeline has it in JSON. A reply is a line
// of JSON and the elements [C, H, W]:
//   {"dtype": ..., "channels": C, "height": H, "width": W,
//    "drawn": [{"position": P, "name": "Crop", "is_applied": true,
//               "parameters": {name: [number, ...], ...}}, ...]}
// or {"error": text} alone.

#include <google/protobuf/util/json_util.h>

#include <algorithm>
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
#include "cuda/kernels/params.h"
#include "datasetd/v1/transform.pb.h"
#include "nlohmann/json.hpp"
#include "server/core/explain.h"
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
  spec.is_mask = request.at("is_mask").get<bool>();
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
  const auto draws = ExplainSample(*program, epoch, sample);
  if (!draws.ok()) return {{"error", std::string(draws.status().message())}};
  AugmentHost(*program, {.slot = slot.get(),
                         .indices = &sample,
                         .num_samples = 1,
                         .epoch = epoch});
  out->assign(reinterpret_cast<const char*>(slot.get()),
              static_cast<size_t>(size_bytes));
  return {{"dtype", DtypeName(field->out_dtype)},
          {"channels", channels},
          {"height", field->out_height},
          {"width", field->out_width},
          {"drawn", Drawn(*draws)}};
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
