// Plans the kernels' launches for direct_probe.py, which makes them in a
// process of its own: that has a framework beside it, so nothing of ours is
// linked there. Reads a request a line, and answers each with a line, both
// JSON:
//
//   {"transforms": a FieldOptions, "shape": [H, W, C] of uint8, "is_nhwc",
//    "seed", "batch_size", "num_slots", "num_multiprocessors"}
//       -> the bytes to allocate, and the labels' offset in a slot
//   {"source", "labels", "slots", "indices", "scratch", "program": addresses,
//    "program_file", "kernels_file": to write}
//       -> {}; the program's bytes go to its address
//   {"first_slot", "num_batches", "epoch"}
//       -> [{"kernel", "blocks", "threads", "parameters": in hex}, ...]
//
// Fields are an image and an int64 label; row i of slot s takes its sample from
// indices[s * batch_size + i]. What is wrong is answered as {"error": why}.

#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/transform.h"
#include "server/pipeline/pipeline.h"

// third_party/cuda/cuda.bzl
extern "C" {
extern const unsigned char augment_fatbin[];
}

namespace datasetd::testing {
namespace {

using nlohmann::json;

constexpr int64_t kAlignment = 256;

int64_t Align(int64_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
std::string HexOf(const T& parameters) {
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(&parameters), sizeof(parameters)));
}

// The kernels, as the driver loads them: a header, which says its own size and
// that of the rest.
absl::string_view Kernels() {
  uint16_t header_bytes;
  uint64_t bytes;
  std::memcpy(&header_bytes, augment_fatbin + 6, sizeof(header_bytes));
  std::memcpy(&bytes, augment_fatbin + 8, sizeof(bytes));
  return {reinterpret_cast<const char*>(augment_fatbin), header_bytes + bytes};
}

class Planner {
 public:
  absl::StatusOr<json> Answer(const json& request) {
    if (request.contains("transforms")) return Open(request);
    if (program_.num_fields == 0) {
      return absl::FailedPreconditionError("nothing is open");
    }
    if (request.contains("source")) return Place(request);
    return Plan(request);
  }

 private:
  absl::StatusOr<json> Open(const json& request) {
    v1::FieldOptions options;
    const auto parsed = google::protobuf::util::JsonStringToMessage(
        request.at("transforms").dump(), &options);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(std::string(parsed.message()));
    }
    DATASETD_ASSIGN_OR_RETURN(
        const Transforms ops,
        CompleteTransforms(options.transforms(), "image"));
    const FieldSpec image = {
        .name = "image",
        .dtype = Dtype::kUint8,
        .shape = request.at("shape").get<std::vector<int64_t>>(),
        .is_image = true};
    const FieldSpec label = {.name = "label", .dtype = Dtype::kInt64};
    program_ = {};
    FieldProgram& images = program_.fields[0];
    FieldProgram& labels = program_.fields[1];
    DATASETD_ASSIGN_OR_RETURN(
        images,
        CompileField(
            image, 0, ops,
            request.at("is_nhwc").get<bool>() ? Layout::kNhwc : Layout::kNchw));
    DATASETD_ASSIGN_OR_RETURN(labels,
                              CompileField(label, 1, {}, Layout::kNchw));
    images.sample_stride_bytes = image.sample_bytes();
    labels.sample_stride_bytes = sizeof(int64_t);
    batch_size_ = request.at("batch_size").get<int64_t>();
    const int channels =
        images.num_steps > 0 ? images.out_channels : images.channels;
    labels.offset_bytes =
        Align(batch_size_ * channels * images.out_height * images.out_width *
              DtypeSizeBytes(images.out_dtype));
    slot_bytes_ = Align(labels.offset_bytes +
                        batch_size_ * static_cast<int64_t>(sizeof(int64_t)));
    program_.seed = request.at("seed").get<uint64_t>();
    program_.indices_offset_bytes = -1;
    program_.num_fields = 2;
    scratch_ =
        PlanScratch(program_, kResidentChainThreads /
                                  ChainThreads(TeamScratchBytes(program_)) *
                                  request.at("num_multiprocessors").get<int>());
    return json{{"slot_bytes", slot_bytes_},
                {"labels_offset", labels.offset_bytes},
                {"scratch_bytes", scratch_.size_bytes},
                {"program_bytes", sizeof(DeviceProgram)}};
  }

  absl::StatusOr<json> Place(const json& request) {
    const auto address = [&](const char* name) {
      return reinterpret_cast<uint8_t*>(request.at(name).get<uint64_t>());
    };
    program_.fields[0].source = address("source");
    program_.fields[1].source = address("labels");
    if (scratch_.size_bytes > 0) {
      scratch_.Give(address("scratch"), &program_);
    }
    slots_ = address("slots");
    indices_ = reinterpret_cast<const int64_t*>(address("indices"));
    device_program_ =
        reinterpret_cast<const DeviceProgram*>(address("program"));
    std::ofstream(request.at("program_file").get<std::string>(),
                  std::ios::binary)
        .write(reinterpret_cast<const char*>(MakeDeviceProgram(program_).get()),
               sizeof(DeviceProgram));
    std::ofstream(request.at("kernels_file").get<std::string>(),
                  std::ios::binary)
        << Kernels();
    return json::object();
  }

  absl::StatusOr<json> Plan(const json& request) {
    const auto first = request.at("first_slot").get<int64_t>();
    const auto num_batches = request.at("num_batches").get<int>();
    std::vector<BatchTask> tasks;
    for (int64_t slot = first; slot < first + num_batches; ++slot) {
      tasks.push_back({.slot = slots_ + slot * slot_bytes_,
                       .indices = indices_ + slot * batch_size_,
                       .num_samples = static_cast<int32_t>(batch_size_),
                       .epoch = request.at("epoch").get<uint64_t>()});
    }
    AugmentPlan plan;
    if (!MakeAugmentPlan(device_program_, program_, tasks.data(), num_batches,
                         &plan)) {
      return absl::InvalidArgumentError("no plan for so many batches");
    }
    // As AugmentKernels::Launch.
    json launches = json::array();
    ChainPlan chain;
    const int64_t blocks = MakeChainPlan(device_program_, program_,
                                         tasks.data(), num_batches, &chain);
    if (blocks > 0) {
      launches.push_back(
          {{"kernel", "ChainKernel"},
           {"blocks", blocks},
           {"threads", ChainThreads(program_.team_scratch_bytes)},
           {"parameters", HexOf(chain)}});
    }
    if (plan.num_blocks() > 0) {
      launches.push_back({{"kernel", "AugmentKernel"},
                          {"blocks", plan.num_blocks()},
                          {"threads", kBlockThreads},
                          {"parameters", HexOf(plan)}});
    }
    return launches;
  }

  AugmentProgram program_ = {};
  ScratchPlan scratch_;
  int64_t batch_size_ = 0;
  int64_t slot_bytes_ = 0;
  uint8_t* slots_ = nullptr;
  const int64_t* indices_ = nullptr;
  const DeviceProgram* device_program_ = nullptr;
};

int Main() {
  const auto planner = std::make_unique<Planner>();
  std::string line;
  while (std::getline(std::cin, line)) {
    absl::StatusOr<json> answer;
    try {
      answer = planner->Answer(json::parse(line));
    } catch (const json::exception& error) {
      answer = absl::InvalidArgumentError(error.what());
    }
    std::cout << (answer.ok()
                      ? *answer
                      : json{{"error", std::string(answer.status().message())}})
                     .dump()
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace datasetd::testing

int main() { return datasetd::testing::Main(); }
