// The rules of docs/randomness.md, "Host and device give the same bits", as far
// as the PTX of the kernels shows them.

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/chain_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"

namespace datasetd::emulated_gpu {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The opcodes with their modifiers, and how often each is there.
std::map<std::string, int> Opcodes() {
  const std::string ptx = ReadAugmentPtx();
  std::map<std::string, int> opcodes;
  for (absl::string_view line : absl::StrSplit(ptx, '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (!absl::EndsWith(line, ";") || absl::StartsWith(line, ".")) continue;
    if (absl::StartsWith(line, "@")) {
      const size_t end = line.find_first_of(" \t");
      if (end == absl::string_view::npos) continue;
      line = absl::StripLeadingAsciiWhitespace(line.substr(end));
    }
    ++opcodes[std::string(line.substr(0, line.find_first_of(" \t;")))];
  }
  return opcodes;
}

TEST(PtxGrepTest, HasNoContractedFlushedOrApproximateOperation) {
  const std::map<std::string, int> opcodes = Opcodes();
  EXPECT_GT(opcodes.size(), 100);
  for (const auto& [opcode, count] : opcodes) {
    const std::vector<std::string> parts = absl::StrSplit(opcode, '.');
    EXPECT_NE(parts[0], "fma") << opcode << ", " << count;
    for (const char* bad : {"ftz", "approx", "full"}) {
      EXPECT_THAT(parts, Not(Contains(bad))) << opcode << ", " << count;
    }
  }
}

// Arithmetic on floats is IEEE 754's, rounded to nearest even, and nothing
// else: no exp2, no sine, no mad.
TEST(PtxGrepTest, FloatsAreRoundedToNearestByIeeeOperationsOnly) {
  int num_rounded = 0;
  for (const auto& [opcode, count] : Opcodes()) {
    const std::vector<std::string> parts = absl::StrSplit(opcode, '.');
    const bool is_float = absl::c_linear_search(parts, "f32") ||
                          absl::c_linear_search(parts, "f64");
    if (!is_float) continue;
    if (absl::c_linear_search(
            std::vector<std::string>{"add", "sub", "mul", "div", "sqrt", "rcp"},
            parts[0])) {
      EXPECT_THAT(parts, Contains("rn")) << opcode;
      num_rounded += count;
      continue;
    }
    EXPECT_THAT(parts[0], AnyOf("abs", "cvt", "ld", "max", "min", "mov", "neg",
                                "selp", "setp", "st"))
        << opcode;
    if (parts[0] != "cvt") continue;
    // To an integer: toward zero, as static_cast. From one, or narrower: to
    // nearest. Wider is exact, and so is the floor.
    if (absl::StartsWith(parts.back(), "f") &&
        !absl::StartsWith(parts[parts.size() - 2], "f")) {
      EXPECT_EQ(parts[1], "rzi") << opcode;
    } else {
      EXPECT_THAT(opcode, AnyOf(StartsWith("cvt.rn."), "cvt.f32.f16",
                                "cvt.f64.f32", "cvt.rmi.f32.f32"));
    }
  }
  EXPECT_GT(num_rounded, 100);
}

// Fields that a kernel takes by value are as large on both sides.
TEST(PtxGrepTest, ParametersHaveTheSizeOfTheirStructs) {
  EXPECT_EQ(FindKernel(AugmentModule(), "AugmentKernel").parameter_bytes,
            static_cast<int64_t>(sizeof(AugmentPlan)));
  for (const char* kernel : {"ChainKernel", "SequenceKernel"}) {
    EXPECT_EQ(FindKernel(AugmentModule(), kernel).parameter_bytes,
              static_cast<int64_t>(sizeof(ChainPlan)));
    EXPECT_EQ(FindKernel(AugmentModule(), kernel).max_threads,
              kMaxChainThreads);
  }
  EXPECT_EQ(FindKernel(AugmentModule(), "AugmentKernel").max_threads,
            kBlockThreads);
}

// Without what says for whom the PTX is, source lines and hints.
std::string Instructions(absl::string_view ptx) {
  std::string instructions;
  bool is_section = false;
  for (absl::string_view line : absl::StrSplit(ptx, '\n')) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
    bool is_left_out = text.empty();
    for (const char* word :
         {".version ", ".target ", ".loc\t", ".file\t",
          ".pragma \"used_bytes_mask ", "$used_bytes_mask_"}) {
      is_left_out |= absl::StartsWith(text, word);
    }
    if (absl::StartsWith(text, ".section\t.debug")) is_section = true;
    if (!is_left_out && !is_section) {
      absl::StrAppend(&instructions, line, "\n");
    }
    if (text == "}") is_section = false;
  }
  return instructions;
}

// What the executor runs and what is shipped are the same kernels.
TEST(PtxGrepTest, MachineCodeIsMadeOfTheseInstructions) {
  const std::string expected = Instructions(ReadAugmentPtx());
  EXPECT_GT(expected.size(), 500'000);
  for (const char* name : {"ptxas", "packed"}) {
    std::ifstream file(
        absl::StrCat("cuda/kernels/augment_fatbin_packed.", name, ".ptx"));
    const std::string ptx{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(ptx, HasSubstr("\n.version ")) << name;
    // Not EXPECT_EQ, which would print both.
    EXPECT_TRUE(Instructions(ptx) == expected) << name;
  }
}

}  // namespace
}  // namespace datasetd::emulated_gpu
