// Counts of programs small enough to count by hand.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/ptx/ptx_harness.h"

namespace datasetd::emulated_gpu {
namespace {

Counters Count(const std::string& body, uint32_t threads = 32,
               uint32_t blocks = 1, int num_host_threads = 1) {
  LaunchConfig config;
  config.block.x = threads;
  config.grid.x = blocks;
  config.num_host_threads = num_host_threads;
  config.count_accesses = true;
  config.count_lines = true;
  const KernelRun run = RunKernel(
      Kernel("ld.param.u64 %d1, [in];\nld.param.u64 %d2, [out];\n"
             "mov.u32 %r1, %tid.x;\nshl.b32 %r2, %r1, 2;\n" +
                 body,
             ".shared .align 16 .b8 s[4096];\n.local .align 16 .b8 l[32];\n") +
          ".file 1 \"kernel.cu\"\n",
      config, std::vector<uint32_t>(1024), 1024);
  EXPECT_FALSE(run.result.fault.has_value()) << run.result.fault->ToString();
  return run.result.counters;
}

// The address of word %r9 of `in` in %d9.
constexpr char kInWord[] =
    "mul.wide.u32 %d8, %r9, 4;\nadd.u64 %d9, %d1, %d8;\n";

TEST(CountersTest, Instructions) {
  const Counters counters = Count("bar.sync 0;", 40, 3);
  // Two warps of six instructions, the first full, the second of eight lanes.
  EXPECT_EQ(counters.blocks, 3u);
  EXPECT_EQ(counters.warps, 6u);
  EXPECT_EQ(counters.warp_instructions, 6u * 6);
  EXPECT_EQ(counters.thread_instructions, 3u * 6 * 40);
  EXPECT_EQ(counters.barriers, 3u);
  EXPECT_DOUBLE_EQ(counters.MeanActiveLanes(), 20.0);
  EXPECT_EQ(counters.by_class[static_cast<int>(OpClass::kBarrier)], 6u);
  EXPECT_EQ(counters.by_class[static_cast<int>(OpClass::kParamAccess)], 12u);
}

TEST(CountersTest, Divergence) {
  const Counters counters = Count(
      "setp.lt.u32 %p1, %r1, 8;\n@%p1 bra A;\nadd.u32 %r3, %r1, 1;\n"
      "bra.uni B;\nA: add.u32 %r3, %r1, 2;\nB: add.u32 %r3, %r3, 1;");
  EXPECT_EQ(counters.divergent_branches, 1u);
  EXPECT_EQ(counters.warp_instructions, 4u + 2 + 2 + 1 + 1 + 1);
  // A guard counts the lanes that it lets through.
  EXPECT_EQ(counters.thread_instructions, 32u * 7 + 8 + 8 + 24 + 24);
}

TEST(CountersTest, LongestBlock) {
  // Block 1 of three has two warps of two instructions more.
  const Counters counters = Count(
      "mov.u32 %r3, %ctaid.x;\nsetp.ne.u32 %p1, %r3, 1;\n@%p1 bra A;\n"
      "add.u32 %r3, %r1, 1;\nadd.u32 %r3, %r1, 2;\nA: add.u32 %r3, %r1, 3;",
      64, 3);
  EXPECT_EQ(counters.longest_block * 3, counters.warp_instructions + 2 * 2 * 2);
}

TEST(CountersTest, LinesAndSectors) {
  // Consecutive words: all that is touched is needed.
  Counters counters = Count(std::string("mov.u32 %r9, %r1;\n") + kInWord +
                            "ld.global.u32 %r10, [%d9];");
  EXPECT_EQ(counters.global_loads.requests, 1u);
  EXPECT_EQ(counters.global_loads.sectors_needed, 4u);
  EXPECT_EQ(counters.global_loads.lines_needed, 1u);
  EXPECT_LE(counters.global_loads.sectors, 5u);
  // A word in each line.
  counters = Count(std::string("mul.lo.u32 %r9, %r1, 32;\n") + kInWord +
                   "ld.global.u32 %r10, [%d9];");
  EXPECT_EQ(counters.global_loads.lines, 32u);
  EXPECT_EQ(counters.global_loads.sectors, 32u);
  EXPECT_EQ(counters.global_loads.sectors_needed, 4u);
  // One word for all.
  counters = Count("ld.global.u32 %r10, [%d1];");
  EXPECT_EQ(counters.global_loads.sectors, 1u);
  EXPECT_EQ(counters.global_loads.sectors_needed, 1u);
}

TEST(CountersTest, SharedWavefronts) {
  const auto wavefronts = [](int stride_words) {
    return Count("mov.u32 %r3, s;\nmul.lo.u32 %r4, %r1, " +
                 std::to_string(4 * stride_words) +
                 ";\nadd.u32 %r5, %r3, %r4;\nst.shared.u32 [%r5], %r1;")
        .shared_stores.wavefronts;
  };
  EXPECT_EQ(wavefronts(1), 1u);
  EXPECT_EQ(wavefronts(2), 2u);
  EXPECT_EQ(wavefronts(3), 1u);
  EXPECT_EQ(wavefronts(32), 32u);
  // Four words a lane go by quarters of a warp.
  EXPECT_EQ(Count("mov.u32 %r3, s;\nmul.lo.u32 %r4, %r1, 16;\n"
                  "add.u32 %r5, %r3, %r4;\n"
                  "st.shared.v4.u32 [%r5], {%r1, %r1, %r1, %r1};")
                .shared_stores.wavefronts,
            4u);
}

TEST(CountersTest, LocalWordsAndAtomics) {
  const Counters counters = Count(
      "st.local.v2.u32 [l], {%r1, %r2};\nld.local.u8 %r9, [l];\n"
      "red.global.add.u32 [%d2], 1;");
  EXPECT_EQ(counters.local_stores.words, 2u);
  EXPECT_EQ(counters.local_loads.words, 1u);
  EXPECT_EQ(counters.atomics.requests, 1u);
}

TEST(CountersTest, ByLine) {
  const Counters counters = Count(
      ".loc 1 7 0\nadd.u32 %r3, %r1, 1;\nadd.u32 %r3, %r3, 1;\n"
      ".loc 1 9 0\nld.global.u32 %r10, [%d1];",
      64);
  EXPECT_EQ(counters.by_line.at({"kernel.cu", 7}).warp_instructions, 4u);
  EXPECT_EQ(counters.by_line.at({"kernel.cu", 7}).thread_instructions, 128u);
  EXPECT_EQ(counters.by_line.at({"kernel.cu", 9}).sectors, 2u);
}

TEST(CountersTest, SameOnSeveralHostThreads) {
  const std::string body =
      "setp.lt.u32 %p1, %r1, 8;\n@%p1 bra A;\n"
      "ld.global.u32 %r10, [%d1];\nA: bar.sync 0;";
  const Counters one = Count(body, 64, 40);
  const Counters four = Count(body, 64, 40, 4);
  EXPECT_EQ(one.warp_instructions, four.warp_instructions);
  EXPECT_EQ(one.thread_instructions, four.thread_instructions);
  EXPECT_EQ(one.global_loads.sectors, four.global_loads.sectors);
  EXPECT_EQ(one.by_class, four.by_class);
}

}  // namespace
}  // namespace datasetd::emulated_gpu
