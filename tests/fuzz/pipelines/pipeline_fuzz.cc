// Input: an image field, dense, ragged or huge, or one of numbers, and ops on
// it, as PipelineReader reads them. Compiles the pipeline; if it is accepted
// and costs little, runs it in all builds of the kernels, as a feed does or as
// a load does, and compares what they make. A huge image lies in memory that is
// never written, so that it takes none.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/host/chain_host.h"
#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/ragged_index.h"
#include "server/feed/slot_layout.h"
#include "server/load/load_plan.h"
#include "server/load/sample_transform.h"
#include "server/pipeline/pipeline.h"
#include "tests/fuzz/pipelines/pipeline_reader.h"

namespace datasetd {
namespace {

// Limits under which a run takes less than a millisecond, and little memory.
constexpr int64_t kMaxOperations = 1 << 16;
constexpr int64_t kMaxScratchBytes = 16 << 20;
constexpr int64_t kMaxOutputBytes = 1 << 20;
constexpr int64_t kMaxSourceBytes = int64_t{1} << 33;
constexpr size_t kAlignment = 256;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "pipeline_fuzz: %s\n", what);
  abort();
}

// Pages of zeros.
const uint8_t* HugeSource() {
  static const uint8_t* const source = [] {
    void* const pages =
        mmap(nullptr, static_cast<size_t>(kMaxSourceBytes), PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    Check(pages != MAP_FAILED, "mmap");
    return static_cast<const uint8_t*>(pages);
  }();
  return source;
}

// Memory of exactly `size_bytes`: a sanitizer sees accesses beyond its end.
class Memory {
 public:
  Memory(int64_t size_bytes, uint8_t value)
      : data_(static_cast<uint8_t*>(::operator new(
            static_cast<size_t>(size_bytes), std::align_val_t(kAlignment)))) {
    std::memset(data_, value, static_cast<size_t>(size_bytes));
  }
  ~Memory() { ::operator delete(data_, std::align_val_t(kAlignment)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  uint8_t* data() { return data_; }

 private:
  uint8_t* const data_;
};

void Fill(uint8_t* bytes, int64_t size_bytes) {
  for (int64_t i = 0; i < size_bytes; ++i) {
    bytes[i] = static_cast<uint8_t>(i * 37 + i / 251);
  }
}

// Checks what the kernels rely on.
void CheckProgram(const FieldProgram& field, int64_t scratch_bytes) {
  Check(scratch_bytes >= 0, "scratch of a negative size");
  Check(field.num_steps >= 0 && field.num_steps <= kMaxSteps, "steps");
  __int128 elements = 0;
  for (int s = 0; s < field.num_steps; ++s) {
    const Step& step = field.steps[s];
    Check(step.out_height >= 1 && step.out_width >= 1, "an empty image");
    if (step.kind != StepKind::kResize) continue;
    const auto& params = ParamsAs<ResizeParams>(step);
    const int32_t num_taps = NumTaps({step.in_height, step.out_height,
                                      params.interpolation, params.antialias});
    Check(num_taps >= 1, "no taps");
    elements =
        std::max(elements, static_cast<__int128>(num_taps) * step.out_height);
  }
  Check(field.num_sized_steps > 0 || field.scratch.tap_elements >= elements,
        "too little memory for taps");
}

struct Result {
  int64_t size_bytes = 0;
  std::unique_ptr<Memory> slot;
};

class FeedRun {
 public:
  FeedRun(const FieldProgram& field, std::vector<int64_t> indices)
      : indices_(std::move(indices)),
        program_(std::make_unique<AugmentProgram>()) {
    program_->seed = 5;
    program_->indices_offset_bytes = -1;
    program_->num_fields = 1;
    program_->fields[0] = field;
    plan_ = PlanScratch(*program_, 1);
    size_bytes_ = static_cast<int64_t>(indices_.size()) * field.out_height *
                  field.out_width * field.out_channels *
                  DtypeSizeBytes(field.out_dtype);
  }

  int64_t size_bytes() const { return size_bytes_; }

  template <typename Run>
  std::unique_ptr<Memory> With(const Run& run) {
    std::optional<Memory> scratch;
    if (plan_.size_bytes > 0) {
      // NaNs show that memory is read before it is written.
      scratch.emplace(plan_.size_bytes, 0xFF);
      plan_.Give(scratch->data(), program_.get());
      ClearTeamFlags(*program_);
    }
    auto slot = std::make_unique<Memory>(size_bytes_, 0xEE);
    BatchTask batch = {};
    batch.slot = slot->data();
    batch.indices = indices_.data();
    batch.num_samples = static_cast<int32_t>(indices_.size());
    batch.epoch = 1;
    run(*program_, batch);
    return slot;
  }

  void CheckSame(Memory& expected, Memory& found, const char* what) const {
    Check(std::memcmp(expected.data(), found.data(),
                      static_cast<size_t>(size_bytes_)) == 0,
          what);
  }

 private:
  const std::vector<int64_t> indices_;
  const std::unique_ptr<AugmentProgram> program_;
  ScratchPlan plan_;
  int64_t size_bytes_;
};

void RunFeed(const FieldProgram& field, std::vector<int64_t> indices) {
  FeedRun feed(field, std::move(indices));
  if (feed.size_bytes() > kMaxOutputBytes) return;
  const auto host = feed.With(AugmentHost);
  if (field.num_steps == 0) return;
  for (const HostTarget target : HostTargets()) {
    const auto other =
        feed.With([&](const AugmentProgram& program, const BatchTask& batch) {
          const FieldProgram& run = program.fields[0];
          RunChainOn(target, program, run, batch, TeamMemory(program, run, 0));
        });
    const std::string what = absl::StrCat(
        "the code for ", HostTargetName(target), " makes other bytes");
    feed.CheckSame(*host, *other, what.c_str());
  }
}

// Compiles and runs the pipeline on a field whose samples are of `sizes`.
void HandleFeed(const Pipeline& pipeline) {
  FieldSpec field = pipeline.field;
  // Of noise that no op has there are no samples.
  const Noise& noise = pipeline.noise;
  RaggedIndex noise_index(PixelBytes(noise.spec));
  for (const ImageSize& size : noise.sizes) noise_index.Add(size);
  const int64_t noise_bytes =
      noise.spec.is_packed() ? noise_index.size_bytes()
                             : noise.spec.sample_bytes() *
                                   static_cast<int64_t>(noise.sizes.size());
  Memory noise_memory(noise_bytes, 0);
  Fill(noise_memory.data(), noise_bytes);
  const auto compiled = CompileField(
      field, 0, pipeline.ops, pipeline.layout, pipeline.sizes, {}, 0,
      [&](const v1::AddNoise&, const std::string&) {
        return NoiseField{.spec = noise.spec,
                          .num_samples = noise_index.num_samples(),
                          .source = noise_memory.data(),
                          .ragged = noise.spec.is_packed()
                                        ? noise_index.samples().data()
                                        : nullptr};
      });
  if (!compiled.ok()) {
    Check(absl::IsInvalidArgument(compiled.status()), "another error");
    return;
  }
  std::vector<FieldProgram> programs = {*compiled};
  const auto layout = ComputeSlotLayout({&field, 1}, absl::MakeSpan(programs),
                                        pipeline.batch_size);
  if (layout.ok()) {
    Check(static_cast<int64_t>(layout->slot_stride_bytes()) > 0,
          "a slot of a negative size");
  }
  auto program = std::make_unique<AugmentProgram>();
  program->num_fields = 1;
  program->fields[0] = *compiled;
  const int64_t scratch_bytes = PlanScratch(*program, 8).size_bytes;
  CheckProgram(*compiled, scratch_bytes);
  if (EstimatedOperations(*program) > kMaxOperations ||
      PlanScratch(*program, 1).size_bytes > kMaxScratchBytes) {
    return;
  }
  FieldProgram& run = program->fields[0];
  run.offset_bytes = 0;
  if (!field.is_packed()) {
    run.sample_stride_bytes = field.sample_bytes();
    if (pipeline.is_huge) {
      run.source = HugeSource();
      RunFeed(run, {0});
      return;
    }
    constexpr int64_t kNumSamples = 2;
    Memory source(kNumSamples * field.sample_bytes(), 0);
    Fill(source.data(), kNumSamples * field.sample_bytes());
    run.source = source.data();
    RunFeed(run, {0, 1, 0});
    return;
  }
  RaggedIndex index(PixelBytes(field));
  for (const ImageSize& size : pipeline.sizes) index.Add(size);
  Memory source(index.size_bytes(), 0);
  Fill(source.data(), index.size_bytes());
  run.source = source.data();
  run.ragged = index.samples().data();
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < index.num_samples(); ++i) indices.push_back(i);
  indices.push_back(0);
  RunFeed(run, std::move(indices));
}

void HandleLoad(const Pipeline& pipeline) {
  if (!IsDeterministic(pipeline.ops)) return;
  const FieldSpec& field = pipeline.field;
  if (!CompileField(field, 0, pipeline.ops, Layout::kNhwc).ok()) return;
  SourceInfo source;
  source.num_samples = std::max<int64_t>(pipeline.batch_size, 0);
  source.fields = {field};
  const LoadRequest request = {
      .spec = std::make_shared<const v1::DatasetSpec>(),
      .pretransforms = {{field.name, pipeline.ops}}};
  const std::vector<std::optional<SampleSizes>> one_size(1);
  const auto plain = PlanSource(request, source, one_size);
  if (plain.ok()) {
    Check(plain->staging_bytes >= 0 && plain->input_bytes >= 0 &&
              plain->resident_bytes >= 0 && plain->chunk_samples >= 1,
          "a load of a negative size");
  }
  source.is_encoded = true;
  const auto plan = PlanSource(request, source, one_size);
  if (!plan.ok() || pipeline.ops.empty()) return;
  const FieldSpec& resident = plan->fields[0].resident;
  const SampleTransform transform(field, 0, pipeline.ops, resident);
  SampleTransform::Runner runner(&transform);
  std::vector<ImageSize> sizes = {{field.shape[0], field.shape[1]}};
  if (!pipeline.is_huge) {
    sizes.push_back({field.shape[0] + 3, field.shape[1]});
  }
  for (const ImageSize& size : sizes) {
    const auto program = transform.ProgramOf(size);
    if (!program.ok()) {
      // A sample that is merely too large for the limits is a bad one.
      Check(absl::IsFailedPrecondition(program.status()) ||
                absl::IsInvalidArgument(program.status()),
            "another error");
      continue;
    }
    const auto scratch_bytes = transform.ScratchBytes(size);
    Check(scratch_bytes.ok() && *scratch_bytes >= 0, "no scratch");
    CheckProgram(**program, *scratch_bytes);
    const int64_t out_bytes = int64_t{(*program)->out_height} *
                              (*program)->out_width * (*program)->out_channels *
                              DtypeSizeBytes((*program)->out_dtype);
    AugmentProgram all = {};
    all.indices_offset_bytes = -1;
    all.num_fields = 1;
    all.fields[0] = **program;
    if (EstimatedOperations(all) > kMaxOperations ||
        *scratch_bytes > kMaxScratchBytes || out_bytes > kMaxOutputBytes) {
      continue;
    }
    FieldSpec spec = field;
    spec.shape[0] = size.height;
    spec.shape[1] = size.width;
    std::optional<Memory> small;
    const uint8_t* from = HugeSource();
    if (!pipeline.is_huge) {
      small.emplace(spec.sample_bytes(), 0);
      Fill(small->data(), spec.sample_bytes());
      from = small->data();
    }
    // In a chunk samples may begin anywhere.
    const int64_t shift = DtypeSizeBytes((*program)->out_dtype);
    Memory to(shift + out_bytes, 0);
    Check(runner
              .Run({from, static_cast<size_t>(spec.sample_bytes())}, size,
                   {to.data() + shift, static_cast<size_t>(out_bytes)})
              .ok(),
          "a sample that was accepted is not transformed");
  }
}

}  // namespace
}  // namespace datasetd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const datasetd::Pipeline pipeline = datasetd::ReadPipeline({data, size});
  if (pipeline.is_load) {
    datasetd::HandleLoad(pipeline);
  } else {
    datasetd::HandleFeed(pipeline);
  }
  return 0;
}
