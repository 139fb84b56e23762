// Mixed batches against the naive reference, and all ways to run them against
// each other, bit for bit.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/host/chain_host.h"
#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "gtest/gtest.h"
#include "server/feed/slot_layout.h"
#include "server/pipeline/mix_labels.h"
#include "server/pipeline/pipeline.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/reference/mix_reference.h"
#include "tests/testing/long_form.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

using testing::ChainBlockSizes;
using testing::IsOk;
using testing::MemoryRange;
using testing::RunChainBlocks;
using testing::RunsCase;

constexpr int kNumSamples = 9;
constexpr int kNumClasses = 5;

struct Shape {
  int height, width, channels;
};

int64_t NumElements(const v1::SlotField& field) {
  return std::accumulate(field.shape().begin(), field.shape().end(), int64_t{1},
                         std::multiplies<>());
}

// A dataset of random images and labels, and batches of it.
class MixCase {
 public:
  MixCase(Shape shape, Transforms ops, Layout layout = Layout::kNchw,
          uint64_t seed = 11)
      : fields_{{.name = "image",
                 .dtype = Dtype::kUint8,
                 .shape = {shape.height, shape.width, shape.channels},
                 .is_image = true},
                {.name = "label", .dtype = Dtype::kUint8}} {
    std::mt19937 engine(17);
    images_.resize(kNumSamples * fields_[0].sample_bytes());
    for (uint8_t& byte : images_) byte = static_cast<uint8_t>(engine());
    for (uint8_t& label : labels_) {
      label = static_cast<uint8_t>(engine() % kNumClasses);
    }
    const std::vector<Transforms> transforms = {ops, {}};
    for (size_t f = 0; f < 2; ++f) {
      auto program =
          CompileField(fields_[f], static_cast<int>(f), transforms[f], layout);
      EXPECT_THAT(program.status(), IsOk());
      programs_.push_back(*program);
    }
    EXPECT_THAT(LinkMixedLabels(fields_, transforms, absl::MakeSpan(programs_)),
                IsOk());
    program_->seed = seed;
    program_->num_fields = 2;
  }

  void Lay(int num_rows) {
    layout_ = *ComputeSlotLayout(fields_, absl::MakeSpan(programs_), num_rows);
    program_->indices_offset_bytes = layout_.indices_offset_bytes();
    std::copy(programs_.begin(), programs_.end(), program_->fields);
    program_->fields[0].source = images_.data();
    program_->fields[0].sample_stride_bytes = fields_[0].sample_bytes();
    program_->fields[1].source = labels_;
    program_->fields[1].sample_stride_bytes = 1;
    const ScratchPlan plan = PlanScratch(*program_, 1);
    // NaNs show that memory is read before it is written.
    scratch_.assign(plan.size_bytes + kScratchAlignment, 0xFF);
    const auto start = reinterpret_cast<uintptr_t>(scratch_.data());
    plan.Give(scratch_.data() + (AlignScratch(static_cast<int64_t>(start)) -
                                 static_cast<int64_t>(start)),
              program_.get());
    ClearTeamFlags(*program_);
  }

  std::vector<MemoryRange> Memory(const BatchTask& batch) const {
    const ScratchPlan plan = PlanScratch(*program_, 1);
    return {
        {images_.data(), static_cast<int64_t>(images_.size()), false},
        {labels_, sizeof(labels_), false},
        {batch.indices, int64_t{8} * batch.num_samples, false},
        {program_->scratch, plan.size_bytes, true},
        {batch.slot, static_cast<int64_t>(layout_.slot_stride_bytes()), true},
    };
  }

  // A slot, filled by `run`.
  template <typename Run>
  std::vector<uint8_t> Fill(const std::vector<int64_t>& indices,
                            uint32_t batch_index, uint64_t epoch,
                            const Run& run) {
    Lay(static_cast<int>(indices.size()));
    std::vector<uint8_t> slot(layout_.slot_stride_bytes(), 0xAB);
    BatchTask batch = {};
    batch.slot = slot.data();
    batch.indices = indices.data();
    batch.num_samples = static_cast<int32_t>(indices.size());
    batch.batch_index = batch_index;
    batch.epoch = epoch;
    run(*program_, batch);
    return slot;
  }
  std::vector<uint8_t> Host(const std::vector<int64_t>& indices,
                            uint32_t batch_index = 0, uint64_t epoch = 0) {
    return Fill(indices, batch_index, epoch, AugmentHost);
  }

  // The same, checked to have the same bits in every other way to run.
  std::vector<uint8_t> All(const std::vector<int64_t>& indices,
                           uint32_t batch_index, uint64_t epoch) {
    const std::vector<uint8_t> host = Host(indices, batch_index, epoch);
    const auto expect_same = [&](const char* name, const auto& run) {
      std::vector<uint8_t> slot = Fill(indices, batch_index, epoch, run);
      // Indices are not the chain's.
      const size_t size = layout_.indices_offset_bytes();
      EXPECT_TRUE(std::equal(host.begin(), host.begin() + size, slot.begin()))
          << name;
    };
    const auto memory = [](const AugmentProgram& program) {
      return TeamMemory(program, program.fields[0], 0);
    };
    for (const HostTarget target : HostTargets()) {
      expect_same(HostTargetName(target), [&](const auto& program,
                                              const auto& batch) {
        RunChainOn(target, program, program.fields[0], batch, memory(program));
      });
    }
    for (const int num_ranks : ChainBlockSizes()) {
      for (const int num_strips : {1, 3}) {
        if (num_strips > 1 && image().num_passes > 1) continue;
        expect_same("ranks", [&](const auto& program, const auto& batch) {
          RunChainBlocks(program, 0, batch, Memory(batch), num_ranks,
                         num_strips);
        });
      }
    }
    return host;
  }

  const FieldProgram& image() const { return program_->fields[0]; }
  const AugmentProgram& program() const { return *program_; }
  int label(int64_t sample) const { return labels_[sample]; }

  // Row `row` of a field of float32.
  std::vector<double> Row(const std::vector<uint8_t>& slot, int field,
                          int row) const {
    const v1::SlotField& at = layout_.fields(field);
    const int64_t elements = NumElements(at) / at.shape(0);
    std::vector<float> values(elements);
    std::memcpy(values.data(),
                slot.data() + at.offset_bytes() + row * elements * 4,
                elements * 4);
    return {values.begin(), values.end()};
  }
  const v1::SlotLayout& layout() const { return layout_; }

 private:
  std::vector<FieldSpec> fields_;
  std::vector<uint8_t> images_;
  uint8_t labels_[kNumSamples];
  std::vector<FieldProgram> programs_;
  std::unique_ptr<AugmentProgram> program_ = std::make_unique<AugmentProgram>();
  v1::SlotLayout layout_;
  std::vector<uint8_t> scratch_;
};

double Worst(const std::vector<double>& actual,
             const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double worst = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

// Rows of chains with a resize, an affine map, statistics, windows; none.
std::vector<Transforms> Pipelines() {
  const v1::Transform to_float =
      Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }");
  const v1::Transform normalize = Op("normalize { mean: 0.4 std: 0.25 }");
  return {
      {to_float},
      {Op("random_horizontal_flip {}"), to_float, normalize},
      {Op("random_resized_crop { size { height: 12 width: 70 } }"), to_float},
      {Op("color_jitter { brightness { min: 0.5 max: 1.5 } contrast { min: 0.5 "
          "max: 1.5 } }"),
       Op("random_rotation { degrees { min: -30.0 max: 30.0 } }"), to_float,
       normalize},
      {Op("random_adjust_sharpness { sharpness_factor: 2.0 }"),
       Op("random_equalize {}"), to_float},
  };
}

void CheckAgainstReference(const std::string& name, bool per_sample) {
  constexpr Shape kShapes[] = {{1, 1, 1}, {2, 3, 3}, {20, 67, 3}, {33, 31, 1}};
  const std::vector<Transforms> pipelines = Pipelines();
  for (const Shape& shape : kShapes) {
    for (const Transforms& ops : pipelines) {
      MixCase plain(shape, ops);
      Transforms mixed_ops = ops;
      mixed_ops.push_back(Op("$0 { num_classes: $1 per_sample: $2 }", name,
                             kNumClasses, per_sample));
      MixCase mixed(shape, mixed_ops);
      for (const int num_rows : {1, 2, 7}) {
        const int sum =
            static_cast<int>((&shape - kShapes) + (&ops - pipelines.data())) +
            (num_rows == 7 ? 0 : num_rows);
        if (!RunsCase(sum, 3)) continue;
        SCOPED_TRACE(absl::StrCat(shape.height, "x", shape.width, "x",
                                  shape.channels, ", rows ", num_rows));
        std::vector<int64_t> indices;
        for (int row = 0; row < num_rows; ++row) {
          indices.push_back((row * 4 + 3) % kNumSamples);
        }
        const std::vector<uint8_t> images = plain.Host(indices, 5, 2);
        const std::vector<uint8_t> slot = mixed.All(indices, 5, 2);
        const FieldProgram& field = mixed.image();
        for (int row = 0; row < num_rows; ++row) {
          BatchTask batch = {};
          batch.num_samples = num_rows;
          batch.batch_index = 5;
          batch.epoch = 2;
          const MixDraw drawn = DrawMix(field.mix, mixed.program().seed, batch,
                                        row, field.out_height, field.out_width);
          const int before = (row + num_rows - 1) % num_rows;
          const std::vector<double> own = plain.Row(images, 0, row);
          const std::vector<double> partner = plain.Row(images, 0, before);
          const bool is_mix_up = field.mix.kind == MixKind::kMixUp;
          const std::vector<double> expected =
              is_mix_up ? reference::MixUp(own, partner, drawn.lambda)
                        : reference::CutMix(
                              own, partner, field.out_height, field.out_width,
                              {drawn.top, drawn.left, drawn.bottom, drawn.right,
                               drawn.lambda});
          EXPECT_LE(Worst(mixed.Row(slot, 0, row), expected),
                    is_mix_up ? 1e-6 : 0.0);
          EXPECT_LE(Worst(mixed.Row(slot, 1, row),
                          reference::MixLabels(mixed.label(indices[row]),
                                               mixed.label(indices[before]),
                                               kNumClasses, drawn.lambda)),
                    1e-7);
        }
      }
    }
  }
}

TEST(ChainMixTest, MixUpIsTheReferences) {
  CheckAgainstReference("mix_up", false);
}
TEST(ChainMixTest, MixUpPerSampleIsTheReferences) {
  CheckAgainstReference("mix_up", true);
}
TEST(ChainMixTest, CutMixIsTheReferences) {
  CheckAgainstReference("cut_mix", false);
}
TEST(ChainMixTest, CutMixPerSampleIsTheReferences) {
  CheckAgainstReference("cut_mix", true);
}

TEST(ChainMixTest, EveryLayoutAndDtypeHasTheSameBitsEverywhere) {
  constexpr Dtype kDtypes[] = {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16,
                               Dtype::kFloat32};
  for (const Dtype& dtype : kDtypes) {
    for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
      for (const int channels : {1, 2, 3, 4}) {
        Transforms ops = {Op("random_horizontal_flip {}")};
        if (dtype != Dtype::kUint8) {
          ops.push_back(Op("to_dtype { dtype: $0 scale: true }", dtype));
        }
        for (const v1::Transform& mix :
             {Op("mix_up { num_classes: $0 }", kNumClasses),
              Op("cut_mix { num_classes: $0 per_sample: true }",
                 kNumClasses)}) {
          const int sum = static_cast<int>(&dtype - kDtypes) + channels +
                          (layout == Layout::kNhwc ? 1 : 0) +
                          (mix.has_cut_mix() ? 2 : 0);
          if (!RunsCase(sum, 4)) continue;
          Transforms all = ops;
          all.push_back(mix);
          MixCase({19, 70, channels}, all, layout).All({3, 1, 4, 1, 5}, 8, 1);
        }
      }
    }
  }
}

TEST(ChainMixTest, UnmixedRowsAreUntouchedByTheMix) {
  // Bytes of rows beyond the batch stay as they were.
  MixCase mix({8, 8, 3}, {Op("mix_up { num_classes: $0 }", kNumClasses)});
  const auto slot = mix.Fill(
      {1, 2, 3, 4}, 0, 0, [](const AugmentProgram& program, BatchTask batch) {
        batch.num_samples = 2;
        AugmentHost(program, batch);
      });
  EXPECT_EQ(NumElements(mix.layout().fields(1)), 4 * kNumClasses);
  for (const v1::SlotField& field : mix.layout().fields()) {
    const int64_t size_bytes =
        NumElements(field) * DtypeSizeBytes(static_cast<Dtype>(field.dtype()));
    for (int64_t i = size_bytes / 2; i < size_bytes; ++i) {
      ASSERT_EQ(slot[field.offset_bytes() + i], 0xAB);
    }
  }
}

// Ends at every sample.
class ImpatientRun final : public HostRun {
 public:
  ImpatientRun() { SetWish(kEndAtSample); }
  bool Pause() override { return true; }
};

TEST(ChainMixTest, ABatchInPartsIsTheSame) {
  for (const v1::Transform& op :
       {Op("mix_up { num_classes: $0 }", kNumClasses),
        v1::Transform(
            Op("cut_mix { num_classes: $0 per_sample: true }", kNumClasses))}) {
    MixCase mix({19, 40, 3}, {Op("random_horizontal_flip {}"), op});
    const std::vector<int64_t> indices = {3, 1, 4, 1, 5};
    const auto whole = mix.Fill(
        indices, 0, 0, [](const AugmentProgram& program, BatchTask batch) {
          AugmentHost(program, batch);
        });
    for (const int32_t rows : {1, 2, 4}) {
      const auto parts = mix.Fill(
          indices, 0, 0, [&](const AugmentProgram& program, BatchTask batch) {
            batch.num_rows = rows;
            for (; NumRows(batch) > 0; batch.first_row += rows) {
              AugmentHost(program, batch);
            }
          });
      EXPECT_EQ(parts, whole) << rows;
    }
    const auto interrupted = mix.Fill(
        indices, 0, 0, [](const AugmentProgram& program, BatchTask batch) {
          ImpatientRun run;
          const ScopedHostRun scoped_run(&run);
          HostPosition position;
          int num_calls = 1;
          while (!AugmentHostFrom(program, batch, &position)) ++num_calls;
          EXPECT_GE(num_calls, batch.num_samples);
        });
    EXPECT_EQ(interrupted, whole);
  }
}

TEST(ChainMixTest, TheOtherKernelLeavesMixedLabelsAlone) {
  MixCase mix({8, 8, 3}, {Op("mix_up { num_classes: $0 }", kNumClasses)});
  mix.Lay(4);
  BatchTask batch = {};
  batch.num_samples = 4;
  auto plan = std::make_unique<AugmentPlan>();
  ASSERT_TRUE(MakeAugmentPlan(nullptr, mix.program(), &batch, 1, plan.get()));
  ASSERT_EQ(plan->num_fields, 1);
  EXPECT_EQ(plan->fields[0].field_index, kIndicesField);
}

}  // namespace
}  // namespace datasetd
