// Faults planted in the PTX of the project's kernels, one at a time. Each must
// be found: by a check of the executor, by other bits than the host's, or by
// the parser. docs/emulated-gpu.md lists them.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/pipeline.h"
#include "tests/cuda/kernels/augment_case.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/cuda/kernels/chain_runner.h"
#include "tests/emulated_gpu/kernels/block_runs_ptx.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

using emulated_gpu::Fault;
using emulated_gpu::FaultKind;
using emulated_gpu::FaultKindName;
using emulated_gpu::LaunchResult;
using emulated_gpu::Module;
using ::testing::AnyOfArray;
using testing::AugmentCase;
using testing::ChainRunner;
using testing::FieldBuilder;
using testing::IsOk;
using testing::RunAugmentBlocks;
using testing::StoreCounts;
using testing::TestPtxLaunches;

// A fault in one line of PTX.
struct Mutant {
  const char* name;
  const char* pattern;      // of the whole line, a regular expression
  const char* replacement;  // with $1, ...
  // Which of the matching lines that the case executes, from 0 on; -1: all.
  int nth;
  // The checks that may find it; which one does depends on the execution order.
  std::vector<std::string> found_by;
};

constexpr char kOtherBits[] = "other bits";
constexpr char kRefused[] = "refused by the parser";
constexpr char kWarpBarrier[] = R"(\tbar\.warp\.sync \t.*;)";

class MutantsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TestPtxLaunches().on_result = [this](const LaunchResult& result) {
      if (result.fault.has_value()) fault_ = result.fault;
      for (const auto& [line, count] : result.counters.by_ptx_line) {
        executed_[line] += count;
      }
      for (const auto& [line, count] : result.counters.barriers_by_ptx_line) {
        barriers_[line] += count;
      }
    };
    // An endless loop ends.
    TestPtxLaunches().config.max_warp_instructions = uint64_t{1} << 23;
  }
  void TearDown() override { TestPtxLaunches() = {}; }

  // `is_right` runs a case and says whether the results are the host's.
  using Case = std::function<bool()>;

  void PlantEach(const Case& is_right, const std::vector<Mutant>& mutants) {
    const std::string ptx = emulated_gpu::ReadAugmentPtx();
    std::vector<std::string> lines = absl::StrSplit(ptx, '\n');
    TestPtxLaunches().config.count_lines = true;
    ASSERT_TRUE(is_right());
    ASSERT_FALSE(fault_.has_value()) << fault_->ToString();
    TestPtxLaunches().config.count_lines = false;
    for (const Mutant& mutant : mutants) {
      SCOPED_TRACE(mutant.name);
      const std::regex pattern(mutant.pattern);
      std::map<int, std::string> originals;
      int left = mutant.nth;
      for (const auto& [number, count] : executed_) {
        std::string& line = lines[number - 1];
        if (!std::regex_match(line, pattern)) continue;
        if (mutant.nth >= 0 && left-- != 0) continue;
        originals[number] = line;
        line = std::regex_replace(line, pattern, mutant.replacement);
      }
      EXPECT_FALSE(originals.empty())
          << "the case executes no such line, but " << ExecutedOpcodes(lines);
      if (originals.empty()) continue;
      const std::string caught = Catch(absl::StrJoin(lines, "\n"), is_right);
      const auto& [number, original] = *originals.begin();
      std::cout << mutant.name << " | " << original << " -> "
                << lines[number - 1] << " | " << caught << std::endl;
      EXPECT_THAT(caught, AnyOfArray(mutant.found_by)) << original;
      for (const auto& [at, text] : originals) lines[at - 1] = text;
    }
  }

  // Without each barrier that the case comes to, all of which it needs.
  void DropBarriers(const Case& is_right, int at_least) {
    ASSERT_TRUE(is_right());
    const std::map<int, uint64_t> barriers = barriers_;
    int num_needed = 0;
    int num_unneeded = 0;
    for (const auto& [line, count] : barriers) {
      SCOPED_TRACE(absl::StrCat("PTX line ", line));
      fault_.reset();
      TestPtxLaunches().config.skipped_barrier_ptx_line = line;
      is_right();
      ++(fault_.has_value() ? num_needed : num_unneeded);
      if (!fault_.has_value()) continue;
      EXPECT_TRUE(fault_->kind == FaultKind::kRace ||
                  fault_->kind == FaultKind::kUninitialised)
          << fault_->ToString();
    }
    EXPECT_GE(num_needed, at_least);
    EXPECT_EQ(num_unneeded, 0);
    std::cout << num_needed << " dropped barriers found" << std::endl;
  }

  std::string Catch(const std::string& ptx, const Case& is_right) {
    const auto module = Module::Parse(ptx);
    if (!module.ok()) return kRefused;
    TestPtxLaunches().module = &*module;
    fault_.reset();
    const bool has_right_bits = is_right();
    TestPtxLaunches().module = nullptr;
    if (fault_.has_value()) return std::string(FaultKindName(fault_->kind));
    return has_right_bits ? "nothing" : kOtherBits;
  }

  std::string ExecutedOpcodes(const std::vector<std::string>& lines) const {
    std::set<std::string> opcodes;
    for (const auto& [number, count] : executed_) {
      const std::string& line = lines[number - 1];
      opcodes.insert(line.substr(0, line.find_first_of(" ;")));
    }
    return absl::StrJoin(opcodes, " ");
  }

  std::optional<Fault> fault_;
  std::map<int, uint64_t> executed_;  // by line of the PTX
  std::map<int, uint64_t> barriers_;
};

// Value ops are computed in the kernel for what is no byte.
AugmentCase FloatCase() {
  return AugmentCase({FieldBuilder(8, 8, 3)
                          .In(Dtype::kFloat32)
                          .Out(Dtype::kFloat32, Layout::kNchw)
                          .Divide(255.0f)
                          .Normalize()
                          .Build()},
                     5);
}

// Crops, flips and normalises as training on CIFAR-10 does.
AugmentCase CifarCase(Dtype dtype, Layout layout, PaddingMode padding,
                      int channels = 3) {
  return AugmentCase({FieldBuilder(32, 32, channels)
                          .Out(dtype, layout)
                          .Pad(4, 4, 4, 4, padding)
                          .RandomCrop(32, 32)
                          .HorizontalFlip(0.5f)
                          .Divide(255.0f)
                          .Normalize()
                          .Build()},
                     5);
}

// Runs of pixels, with padding.
AugmentCase RunsCase() {
  return CifarCase(Dtype::kFloat16, Layout::kNhwc, PaddingMode::kConstant);
}

// Each pixel is looked up, as those of four channels are.
AugmentCase FloatCifarCase() {
  return CifarCase(Dtype::kFloat32, Layout::kNchw, PaddingMode::kReflect, 4);
}

// AugmentKernel on a batch of a case.
class AugmentMutantsTest : public MutantsTest {
 protected:
  static bool IsRight(AugmentCase& test) {
    const BatchTask batch = test.NewBatch(1);
    StoreCounts counts;
    RunAugmentBlocks(test.program(), {batch}, test.Memory(), &counts);
    return test.Slot(batch) == test.ExpectedSlot(batch);
  }
  bool IsRight() { return IsRight(test_); }

  AugmentCase test_ = FloatCifarCase();
};

TEST_F(AugmentMutantsTest, EachBarrierOfRunsIsNeeded) {
  AugmentCase test = RunsCase();
  DropBarriers([&] { return IsRight(test); }, 4);
}

TEST_F(AugmentMutantsTest, EachFaultOfRunsIsFound) {
  AugmentCase test = RunsCase();
  PlantEach([&] { return IsRight(test); },
            {
                {"a vector is stored over the next one",
                 R"((\tst\.(?:global\.)?v4\.u32 \t\[%rd\d+)(\+\d+)?(\].*))",
                 "$1+64$3",
                 0,
                 {"race", "invalid address", kOtherBits}},
                {"a vector of the source is read late",
                 R"((\tld\.global\.nc\.v4\.u32 \{.*\}, \[%rd\d+)(\];))",
                 "$1+64$2",
                 -1,
                 {"invalid address", kOtherBits}},
                {"addresses are read before they are there",
                 kWarpBarrier,
                 "\t",
                 0,
                 {"race", "uninitialised read"}},
                {"vectors are put where addresses are",
                 kWarpBarrier,
                 "\t",
                 1,
                 {"race"}},
                {"vectors are taken before they are there",
                 kWarpBarrier,
                 "\t",
                 2,
                 {"race", "uninitialised read"}},
                {"vectors to store are read before they are there",
                 kWarpBarrier,
                 "\t",
                 4,
                 {"race", "uninitialised read"}},
                {"bytes are shifted by the word's own",
                 R"(\tshf\.r\.wrap\.b32 (%r\d+, )(%r\d+), (%r\d+)(, %r\d+;))",
                 "\tshf.r.wrap.b32 $1$2, $2$4",
                 -1,
                 {kOtherBits}},
                {"padding is a pixel, and a pixel padding",
                 R"(\tselp\.b32 (\t%r\d+, )(%r\d+), (%r\d+)(, %p\d+;))",
                 "\tselp.b32 $1$3, $2$4",
                 -1,
                 {"invalid address", "uninitialised read", "misaligned address",
                  kOtherBits}},
            });
}

TEST_F(AugmentMutantsTest, EachFaultOfMirroredPaddingIsFound) {
  AugmentCase test =
      CifarCase(Dtype::kFloat16, Layout::kNhwc, PaddingMode::kReflect);
  PlantEach([&] { return IsRight(test); },
            {
                {"the left is not mirrored",
                 R"(	max\.s32 (	%r\d+, )(%r\d+), (%r\d+);)",
                 "\tmin.s32 $1$2, $3;",
                 0,
                 {"invalid address", "uninitialised read", kOtherBits}},
                {"the right is not mirrored",
                 R"(	min\.s32 (	%r\d+, )(%r\d+), (%r\d+);)",
                 "\tmax.s32 $1$2, $3;",
                 0,
                 {"invalid address", "uninitialised read", kOtherBits}},
                {"pixels are taken before they are there",
                 kWarpBarrier,
                 "\t",
                 2,
                 {"race", "uninitialised read"}},
            });
}

TEST_F(AugmentMutantsTest, CopiedBytesAreTakenBeforeOthersAreStored) {
  AugmentCase test({FieldBuilder(32, 32, 3)
                        .Out(Dtype::kUint8, Layout::kNhwc)
                        .HorizontalFlip(0.5f)
                        .Build()},
                   5);
  PlantEach([&] { return IsRight(test); },
            {{"vectors are stored before all are taken",
              kWarpBarrier,
              "\t",
              3,
              {"race"}}});
}

TEST_F(AugmentMutantsTest, MirroredBytesAreTakenBeforeOthersAreStored) {
  AugmentCase test({FieldBuilder(32, 32, 3)
                        .Out(Dtype::kUint8, Layout::kNhwc)
                        .Pad(4, 4, 4, 4, PaddingMode::kReflect)
                        .RandomCrop(32, 32)
                        .Build()},
                   5);
  PlantEach([&] { return IsRight(test); },
            {{"vectors are stored before all pixels are taken",
              kWarpBarrier,
              "\t",
              3,
              {"race"}}});
}

TEST_F(AugmentMutantsTest, EachFaultOfValuesIsFound) {
  AugmentCase test = FloatCase();
  PlantEach([&] { return IsRight(test); }, {
                                               {"a difference is truncated",
                                                R"(\tsub\.rn\.f32 (.*))",
                                                "\tsub.rz.f32 $1",
                                                0,
                                                {kOtherBits}},
                                               {"a quotient is approximate",
                                                R"(\tdiv\.rn\.f32 (.*))",
                                                "\tdiv.approx.f32 $1",
                                                0,
                                                {kRefused}},
                                               {"a quotient flushes subnormals",
                                                R"(\tdiv\.rn\.f32 (.*))",
                                                "\tdiv.rn.ftz.f32 $1",
                                                0,
                                                {kRefused}},
                                           });
}

TEST_F(AugmentMutantsTest, EachBarrierIsNeeded) {
  DropBarriers([this] { return IsRight(); }, 4);
}

TEST_F(AugmentMutantsTest, EachFaultIsFound) {
  PlantEach([this] { return IsRight(); },
            {
                {"a vector is stored 4 bytes late",
                 R"((\tst\.(?:global\.)?v2\.u32 \t\[%rd\d+)(\+\d+)?(\].*))",
                 "$1+4$3",
                 0,
                 {"misaligned address"}},
                {"a vector is stored over the next one",
                 R"((\tst\.(?:global\.)?v2\.u32 \t\[%rd\d+)(\+\d+)?(\].*))",
                 "$1+8$3",
                 0,
                 {"race", "invalid address", kOtherBits}},
                {"an index is read 4 bytes late",
                 R"((\tld\.(?:global\.)?u64 \t%rd\d+, \[%rd\d+)(\+\d+)?(\].*))",
                 "$1+4$3",
                 0,
                 {"misaligned address", "invalid address"}},
                {"a pixel is read as two bytes",
                 R"(\tld\.global\.u8 (\t%rs\d+, \[%rd\d+(?:\+\d+)?\];))",
                 "\tld.global.u16 $1",
                 0,
                 {"misaligned address", "invalid address", kOtherBits}},
                {"shared memory is read beyond its end",
                 R"((\tld\.shared\.\S+ \t.*\[[^\]+]+)(\+\d+)?(\];))",
                 "$1+65536$3",
                 0,
                 {"invalid address"}},
                {"shared memory is not written",
                 R"(\tst\.shared\.\S+ \t.*)",
                 "\t",
                 0,
                 {"uninitialised read"}},
                {"a barrier is skipped by thread 0",
                 R"(\tbar\.sync \t0;)",
                 "\t{ .reg .pred q; .reg .b32 t; mov.u32 t, %tid.x; "
                 "setp.eq.u32 q, t, 0; @q ret; } bar.sync 0;",
                 1,
                 {"divergent barrier"}},
                {"a guard is inverted",
                 R"(\t@(%p\d+ bra \t\S+;))",
                 "\t@!$1",
                 0,
                 {"invalid address", "uninitialised read", "misaligned address",
                  "race", "divergent barrier", "instruction budget", kOtherBits,
                  "division by zero"}},
                {"a kernel never ends",
                 R"(\tbar\.sync \t0;)",
                 "\t.reg .pred q; .reg .b32 t; mov.u32 t, %tid.x; "
                 "setp.lt.u32 q, t, 4096; AGAIN: @q bra AGAIN; bar.sync 0;",
                 2,
                 {"instruction budget"}},
            });
}

// ChainKernel on a batch of three.
class ChainMutantsTest : public MutantsTest {
 protected:
  void SetUp() override {
    MutantsTest::SetUp();
    std::mt19937 engine(3);
    for (uint8_t& byte : image_) byte = static_cast<uint8_t>(engine());
    const FieldSpec field = {.name = "image",
                             .dtype = Dtype::kUint8,
                             .shape = {20, 24, 3},
                             .is_image = true};
    const auto program = CompileField(
        field, 0,
        {Op("random_resized_crop { size { height: 16 width: 16 } }"),
         Op("color_jitter { brightness { min: 0.6 max: 1.4 } contrast { min: "
            "0.6 max: 1.4 } saturation { min: 0.6 max: 1.4 } hue { min: -0.1 "
            "max: 0.1 } }"),
         Op("random_equalize { p: 1.0 }"),
         Op("gaussian_blur { kernel_size { height: 5 width: 5 } sigma { min: "
            "0.5 max: 1.5 } }"),
         Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }")},
        Layout::kNchw);
    ASSERT_THAT(program.status(), IsOk());
    field_ = *program;
    runner_ = std::make_unique<ChainRunner>(field_, image_);
    expected_ = runner_->Host(0, kSamples).bytes;
  }

  bool IsRight() {
    return runner_->Ranks(kMaxChainThreads, 0, kSamples).bytes == expected_;
  }

  // One after another in a block.
  const std::vector<int64_t> kSamples = {0, 1, 2};

  std::vector<uint8_t> image_ = std::vector<uint8_t>(20 * 24 * 3);
  FieldProgram field_;
  std::unique_ptr<ChainRunner> runner_;
  std::vector<uint8_t> expected_;
};

// Each part of the scratch memory that is too small by one element, or by as
// many as this case leaves unused.
TEST_F(ChainMutantsTest, EachBufferIsBounded) {
  struct Shortage {
    const char* name;
    int64_t* elements;
    int64_t left;
  };
  ChainScratch& scratch = field_.scratch;
  const ChainScratch planned = scratch;
  constexpr int64_t kImage = 16 * 16 * 3;
  EXPECT_EQ(planned.image_elements[0], kImage);
  EXPECT_EQ(planned.image_elements[1], kImage);
  for (const auto& [name, elements, left] :
       {Shortage{"first image", &scratch.image_elements[0], kImage - 1},
        Shortage{"second image", &scratch.image_elements[1], kImage - 1},
        Shortage{"rows", &scratch.row_elements, 1},
        Shortage{"taps", &scratch.tap_elements, 16},
        Shortage{"maps", &scratch.map_elements, 31}}) {
    SCOPED_TRACE(name);
    scratch = planned;
    ASSERT_GT(*elements, left);
    *elements = left;
    fault_.reset();
    ChainRunner(field_, image_).Ranks(kMaxChainThreads, 0, kSamples);
    ASSERT_TRUE(fault_.has_value());
    EXPECT_EQ(fault_->kind, FaultKind::kInvalidAddress) << fault_->ToString();
  }
}

TEST_F(ChainMutantsTest, EachBarrierIsNeeded) {
  DropBarriers([this] { return IsRight(); }, 8);
}

TEST_F(ChainMutantsTest, EachFaultIsFound) {
  PlantEach([this] { return IsRight(); },
            {
                {"an atomic addition is a plain one",
                 R"(\tatom\.shared\.add\.u32 \t(%r\d+), (\[.*\]), (\S+);)",
                 "\tld.shared.u32 $1, $2; add.u32 $1, $1, $3; "
                 "st.shared.u32 $2, $1;",
                 0,
                 {"race"}},
                {"a 64-bit atomic addition is a plain one",
                 R"(\tatom\.shared\.add\.u64 \t(%rd\d+), (\[.*\]), (\S+);)",
                 "\tld.shared.u64 $1, $2; add.u64 $1, $1, $3; "
                 "st.shared.u64 $2, $1;",
                 0,
                 {"race"}},
                {"scratch memory is read as constant",
                 R"(\tld\.f32 (\t%f\d+, \[%rd\d+(?:\+\d+)?\];))",
                 "\tld.global.nc.f32 $1",
                 -1,
                 {"read-only load of written memory"}},
                {"an element is stored elsewhere",
                 R"((\tst\.f32 \t\[%rd\d+)(\+\d+)?(\].*))",
                 "$1+4$3",
                 0,
                 {"race", "uninitialised read", "invalid address", kOtherBits}},
                {"an element is stored as a double",
                 R"(\tst\.f32 \t(\[%rd\d+(?:\+\d+)?\]), (%f\d+);)",
                 "\t{ .reg .f64 t; cvt.f64.f32 t, $2; st.f64 $1, t; }",
                 0,
                 {"misaligned address", "race", kOtherBits}},
                {"a stride is one byte off",
                 R"((\tmul\.wide\.s32 \t%rd\d+, %r\d+), 4;)",
                 "$1, 5;",
                 0,
                 {"misaligned address", "invalid address", kOtherBits,
                  "uninitialised read"}},
                {"a bound is one too high",
                 R"(\tsetp\.lt\.s32 (.*))",
                 "\tsetp.le.s32 $1",
                 0,
                 {"invalid address", "race", kOtherBits, "uninitialised read",
                  "misaligned address"}},
                {"a product is contracted",
                 R"(\tmul\.rn\.f32 \t(%f\d+), (%f\d+), (\S+);)",
                 "\tfma.rn.f32 $1, $2, $3, 0f80000000;",
                 0,
                 {kRefused}},
                {"a sum is truncated",
                 R"(\tadd\.rn\.f32 (.*))",
                 "\tadd.rz.f32 $1",
                 -1,
                 {kOtherBits}},
                {"a local array is not written",
                 R"(\tst\.local\.f32 \t.*)",
                 "\t",
                 0,
                 {kOtherBits}},
                {"a kernel's parameter is taken from 8 bytes on",
                 R"((\tld\.param\.u64 \t%rd\d+, \[%rd\d+)\+-8(\];))",
                 "$1$2",
                 0,
                 {"invalid address", "misaligned address"}},
            });
}

TEST_F(MutantsTest, SlotsElsewhere) {
  AugmentCase test = FloatCifarCase();
  StoreCounts counts;
  BatchTask batch = test.NewBatch(1);
  batch.slot += 4;
  RunAugmentBlocks(test.program(), {batch}, test.Memory(), &counts);
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->kind, FaultKind::kMisalignedAddress) << fault_->ToString();

  fault_.reset();
  batch.slot += test.slot_bytes() - 4;
  RunAugmentBlocks(test.program(), {batch}, test.Memory(), &counts);
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->kind, FaultKind::kInvalidAddress) << fault_->ToString();

  // Two batches of one launch in one slot.
  fault_.reset();
  batch = test.NewBatch(1);
  RunAugmentBlocks(test.program(), {batch, batch}, test.Memory(), &counts);
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->kind, FaultKind::kRace) << fault_->ToString();
}

TEST_F(MutantsTest, MemoryOneByteShort) {
  AugmentCase test(
      {FieldBuilder(31, 33, 3).Out(Dtype::kUint8, Layout::kNhwc).Build()}, 12);
  StoreCounts counts;
  const BatchTask batch = test.NewBatch(0);
  const FieldProgram& field = test.program().fields[0];
  // As much as the batch reads and writes, to the byte.
  const int64_t image = 31 * 33 * 3;
  int64_t last = 0;
  for (int i = 0; i < 12; ++i) last = std::max(last, batch.indices[i]);
  const int64_t source_bytes = last * field.sample_stride_bytes + image;
  const int64_t slot_bytes = test.program().indices_offset_bytes + 8 * 12;
  const int64_t exact[3] = {source_bytes, slot_bytes, 8 * 12};
  for (int shortened = -1; shortened < 3; ++shortened) {
    int64_t sizes[3] = {exact[0], exact[1], exact[2]};
    if (shortened >= 0) --sizes[shortened];
    fault_.reset();
    RunAugmentBlocks(test.program(), {batch},
                     {{field.source, sizes[0], false},
                      {batch.slot, sizes[1], true},
                      {batch.indices, sizes[2], false}},
                     &counts);
    if (shortened < 0) {
      EXPECT_FALSE(fault_.has_value()) << fault_->ToString();
    } else {
      ASSERT_TRUE(fault_.has_value()) << shortened;
      EXPECT_EQ(fault_->kind, FaultKind::kInvalidAddress) << fault_->ToString();
      EXPECT_THAT(fault_->message,
                  ::testing::HasSubstr("1 bytes beyond the end"));
    }
  }
}

}  // namespace
}  // namespace datasetd
