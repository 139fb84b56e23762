// Planted faults: each is found, with its kind and its place.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/ptx/ptx_harness.h"

namespace datasetd::emulated_gpu {
namespace {

using ::testing::HasSubstr;

// The thread's index in %r1, its word of `out` at %d4.
constexpr char kPrologue[] = R"(
ld.param.u64 %d1, [in];
ld.param.u64 %d2, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 4;
add.u64 %d4, %d2, %d3;
shl.b32 %r2, %r1, 2;
)";

LaunchConfig Threads(uint32_t threads, uint32_t blocks = 1) {
  LaunchConfig config;
  config.block.x = threads;
  config.grid.x = blocks;
  config.check_local = true;
  return config;
}

void ExpectFault(const std::string& body, FaultKind kind,
                 const std::string& message, const LaunchConfig& config,
                 const std::string& variables = "", size_t num_out = 1024) {
  SCOPED_TRACE(body);
  const KernelRun run = RunKernel(Kernel(kPrologue + body, variables), config,
                                  std::vector<uint32_t>(16, 1), num_out);
  ASSERT_TRUE(run.result.fault.has_value());
  EXPECT_EQ(FaultKindName(run.result.fault->kind), FaultKindName(kind));
  EXPECT_THAT(run.result.fault->message, HasSubstr(message));
}

void ExpectNoFault(const std::string& body, const LaunchConfig& config,
                   const std::string& variables = "", size_t num_out = 1024) {
  SCOPED_TRACE(body);
  const KernelRun run = RunKernel(Kernel(kPrologue + body, variables), config,
                                  std::vector<uint32_t>(16, 1), num_out);
  EXPECT_FALSE(run.result.fault.has_value()) << run.result.fault->ToString();
}

constexpr char kShared[] = ".shared .align 16 .b8 s[4096];\n";
constexpr char kLocal[] = ".local .align 16 .b8 l[32];\n";

TEST(ChecksTest, OutOfBoundsByOneElement) {
  ExpectFault("st.global.u32 [%d4], %r1;", FaultKind::kInvalidAddress,
              "write of 4 bytes in global memory: 4 bytes beyond the end",
              Threads(33), "", 32);
  ExpectNoFault("st.global.u32 [%d4], %r1;", Threads(32), "", 32);
  ExpectFault("ld.global.u8 %h1, [%d1+64];", FaultKind::kInvalidAddress,
              "1 bytes beyond the end of the allocation of 64 bytes",
              Threads(1));
  ExpectFault("st.global.u32 [%d1], %r1;", FaultKind::kInvalidAddress,
              "the allocation is read-only", Threads(1));
  ExpectFault("mov.u64 %d9, 16;\nld.u32 %r9, [%d9];",
              FaultKind::kInvalidAddress, "no allocation", Threads(1));
}

TEST(ChecksTest, SharedLocalAndParameterBounds) {
  ExpectFault("st.shared.u32 [s+4096], %r1;", FaultKind::kInvalidAddress,
              "beyond the 4096 bytes", Threads(1), kShared);
  ExpectFault("ld.shared.u32 %r9, [s+-4];", FaultKind::kInvalidAddress,
              "shared memory", Threads(1), kShared);
  ExpectFault("st.local.u32 [l+32], %r1;", FaultKind::kInvalidAddress,
              "beyond the 32 bytes", Threads(1), kLocal);
  ExpectFault("mov.u64 %d9, 16;\nld.param.u32 %r9, [%d9];",
              FaultKind::kInvalidAddress, "beyond the 16 bytes", Threads(1));
}

TEST(ChecksTest, Misaligned) {
  ExpectFault("ld.global.u32 %r9, [%d1+2];", FaultKind::kMisalignedAddress,
              "read of 4 bytes", Threads(1));
  // A vector needs the alignment of the whole.
  ExpectFault("ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [%d1+8];",
              FaultKind::kMisalignedAddress, "read of 16 bytes", Threads(1));
  ExpectFault("mov.u16 %h1, 1;\nst.shared.v2.u16 [s+2], {%h1, %h1};",
              FaultKind::kMisalignedAddress, "write of 4 bytes in shared",
              Threads(1), kShared);
  ExpectFault("atom.global.add.u64 %d9, [%d2+4], 1;",
              FaultKind::kMisalignedAddress, "atomic access of 8 bytes",
              Threads(1));
}

TEST(ChecksTest, UninitialisedRegister) {
  ExpectFault("add.u32 %r9, %r8, 1;", FaultKind::kUninitialised,
              "register %r8 is read before it is written", Threads(1));
  // Written by some lanes only.
  ExpectFault(
      "setp.lt.u32 %p1, %r1, 5;\n@%p1 mov.u32 %r8, 1;\n"
      "st.global.u32 [%d4], %r8;",
      FaultKind::kUninitialised, "%r8", Threads(6));
  ExpectNoFault(
      "setp.lt.u32 %p1, %r1, 5;\n@%p1 mov.u32 %r8, 1;\n"
      "@%p1 st.global.u32 [%d4], %r8;",
      Threads(6));
  // Compilers copy what is undefined; only its use counts.
  ExpectNoFault("mov.u32 %r9, %r8;", Threads(1));
  ExpectFault("mov.u32 %r9, %r8;\nst.global.u32 [%d4], %r9;",
              FaultKind::kUninitialised, "%r9", Threads(1));
}

TEST(ChecksTest, UninitialisedMemory) {
  ExpectFault("ld.shared.u32 %r9, [s+4];", FaultKind::kUninitialised,
              "nobody has written it", Threads(1), kShared);
  ExpectFault("st.shared.u16 [s+4], 1;\nld.shared.u32 %r9, [s+4];",
              FaultKind::kUninitialised, "shared", Threads(1), kShared);
  ExpectFault("ld.local.u32 %r9, [l];", FaultKind::kUninitialised,
              "the thread has not written it", Threads(1), kLocal);
  // Only the other lane has written.
  ExpectFault(
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.local.u32 [l], %r1;\n"
      "ld.local.u32 %r9, [l];",
      FaultKind::kUninitialised, "local", Threads(2), kLocal);
  // ".pragma": bytes that are not used.
  ExpectNoFault(
      "st.local.u16 [l], 1;\n.pragma \"used_bytes_mask 3\";\n"
      "ld.local.u32 %r9, [l];",
      Threads(1), kLocal);
  ExpectFault(
      "st.local.u16 [l], 1;\n.pragma \"used_bytes_mask 7\";\n"
      "ld.local.u32 %r9, [l];",
      FaultKind::kUninitialised, "local", Threads(1), kLocal);
  // In PTX for drivers that do not know it: third_party/cuda/cuda.bzl.
  ExpectNoFault(
      "st.local.u16 [l], 1;\n$used_bytes_mask_3_9:\n"
      "ld.local.u32 %r9, [l];",
      Threads(1), kLocal);
}

TEST(ChecksTest, MissingBarrier) {
  const std::string write =
      "mov.u32 %r3, s;\nadd.u32 %r4, %r3, %r2;\n"
      "st.shared.u32 [%r4], %r1;\n";
  const std::string read =
      "xor.b32 %r5, %r1, 33;\nshl.b32 %r5, %r5, 2;\n"
      "add.u32 %r5, %r3, %r5;\n"
      "ld.shared.u32 %r6, [%r5];\n";
  ExpectNoFault(write + "bar.sync 0;\n" + read, Threads(64), kShared);
  // Thread 0 reads what thread 33 has not written yet, or writes unordered.
  ExpectFault(write + read, FaultKind::kUninitialised, "shared", Threads(64),
              kShared);
  ExpectFault("mov.u32 %r3, s;\nst.shared.u32 [s], %r1;", FaultKind::kRace,
              "written by thread 0 of the block, with no barrier between",
              Threads(64), kShared);
  // Lanes of one warp are not ordered either.
  ExpectFault(
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], 1;\n"
      "ld.shared.u32 %r9, [s];",
      FaultKind::kRace, "read of 4 bytes in shared memory: written by",
      Threads(2), kShared);
  ExpectNoFault(
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], 1;\n"
      "bar.warp.sync 0xFFFFFFFF;\nld.shared.u32 %r9, [s];",
      Threads(32), kShared);
  // Thread 0 sets a counter, and no barrier keeps the others from it.
  const std::string set_and_count =
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], 0;\nBARRIER"
      "atom.shared.add.u32 %r9, [s], 1;";
  ExpectFault(absl::StrReplaceAll(set_and_count, {{"BARRIER", ""}}),
              FaultKind::kRace, "written by thread 0 of the block", Threads(2),
              kShared);
  ExpectNoFault(
      absl::StrReplaceAll(set_and_count, {{"BARRIER", "bar.sync 0;\n"}}),
      Threads(64), kShared);
  // Written after it was read.
  ExpectFault(
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], 1;\n"
      "bar.sync 0;\nld.shared.u32 %r9, [s];\n"
      "@%p1 st.shared.u32 [s], 2;",
      FaultKind::kRace, "read by several threads", Threads(2), kShared);
  ExpectNoFault(
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], 1;\n"
      "bar.sync 0;\nld.shared.u32 %r9, [s];\nbar.sync 0;\n"
      "@%p1 st.shared.u32 [s], 2;",
      Threads(64), kShared);
}

TEST(ChecksTest, GlobalRaces) {
  // Threads of one block; of two blocks, writing both, or reading and writing.
  ExpectFault("st.global.u32 [%d2], %r1;", FaultKind::kRace, "global memory",
              Threads(2));
  ExpectFault("st.global.u32 [%d2], %r1;", FaultKind::kRace,
              "written by thread 0 of block 0", Threads(1, 2));
  ExpectFault(
      "mov.u32 %r5, %ctaid.x;\nsetp.eq.u32 %p1, %r5, 0;\n"
      "@%p1 ld.global.u32 %r6, [%d2];\n@!%p1 st.global.u32 [%d2], 1;",
      FaultKind::kRace, "read by thread 0 of block 0", Threads(1, 2));
  // Accesses to different bytes of one word are no race.
  ExpectNoFault(
      "cvt.u64.u32 %d5, %r1;\nadd.u64 %d6, %d2, %d5;\n"
      "st.global.u8 [%d6], %r1;",
      Threads(64));
  // Atomics are ordered among themselves, and with nothing else.
  ExpectNoFault("red.global.add.u32 [%d2], 1;", Threads(64, 2));
  ExpectFault("red.global.add.u32 [%d2], 1;\nld.global.u32 %r9, [%d2];",
              FaultKind::kRace, "global memory", Threads(64));
  ExpectNoFault(
      "red.global.add.u32 [%d2], 1;\nbar.sync 0;\n"
      "ld.global.u32 %r9, [%d2];",
      Threads(64));
}

// "ld.global.nc": for memory that the kernel does not write.
TEST(ChecksTest, ReadOnlyLoadsOfWrittenMemory) {
  ExpectFault("st.global.u32 [%d4], %r1;\nld.global.nc.u32 %r9, [%d4];",
              FaultKind::kReadOnlyWritten, "ld.global.nc of what", Threads(1));
  ExpectFault("ld.global.nc.u32 %r9, [%d4];\nst.global.u32 [%d4], %r1;",
              FaultKind::kReadOnlyWritten, "read it by ld.global.nc",
              Threads(1));
}

TEST(ChecksTest, DivergentBarriers) {
  ExpectFault("setp.lt.u32 %p1, %r1, 5;\n@%p1 bra SKIP;\nbar.sync 0;\nSKIP:",
              FaultKind::kDivergentBarrier,
              "5 of 32 threads of the warp are elsewhere", Threads(32));
  ExpectFault("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra SKIP;\nbar.sync 0;\nSKIP:",
              FaultKind::kDivergentBarrier,
              "32 of 64 threads of the block have exited", Threads(64));
  ExpectFault("setp.lt.u32 %p1, %r1, 5;\n@%p1 exit;\nbar.sync 0;",
              FaultKind::kDivergentBarrier, "5 of 32 threads of the block",
              Threads(32));
  ExpectFault(
      "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra OTHER;\nbar.sync 0;\n"
      "bra.uni END;\nOTHER: bar.sync 0;\nEND:",
      FaultKind::kDivergentBarrier, "are at the one of PTX line", Threads(64));
  ExpectFault(
      "setp.lt.u32 %p1, %r1, 5;\n"
      "@%p1 shfl.sync.idx.b32 %r9, %r1, 0, 31, 0xFFFFFFFF;",
      FaultKind::kDivergentBarrier, "the member mask is", Threads(32));
  ExpectNoFault(
      "setp.lt.u32 %p1, %r1, 32;\nbar.sync 0;\n"
      "@%p1 st.global.u32 [%d4], %r1;\nbar.sync 1;",
      Threads(64));
}

TEST(ChecksTest, EndlessLoop) {
  LaunchConfig config = Threads(32);
  config.max_warp_instructions = 100'000;
  ExpectFault("AGAIN: bra.uni AGAIN;", FaultKind::kInstructionBudget,
              "more than 100000 warp instructions", config);
}

TEST(ChecksTest, DivisionByZeroAndTrap) {
  ExpectFault("rem.u32 %r9, 5, %r1;", FaultKind::kDivisionByZero,
              "divided by zero", Threads(2));
  ExpectFault("setp.eq.u32 %p1, %r1, 3;\n@%p1 trap;", FaultKind::kTrap, "trap",
              Threads(4));
  ExpectNoFault("setp.eq.u32 %p1, %r1, 3;\n@%p1 trap;", Threads(3));
}

TEST(ChecksTest, EndlessRecursion) {
  const std::string ptx = Kernel("call.uni f;", "", R"(
.func f()
{
call.uni f;
ret;
}
)");
  const KernelRun run = RunKernel(ptx, Threads(1), {0}, 1);
  ASSERT_TRUE(run.result.fault.has_value());
  EXPECT_EQ(run.result.fault->kind, FaultKind::kStackOverflow);
}

// The place: kernel, function, block, thread, lines, and what was inlined.
TEST(ChecksTest, SaysWhere) {
  const std::string ptx = Kernel(std::string(R"(
.loc 1 10 3
.loc 2 20 5, function_name $L__info_string0, inlined_at 1 10 3
)") + kPrologue + R"(
setp.eq.u32 %p1, %r1, 35;
mov.u32 %r5, %ctaid.x;
setp.eq.and.u32 %p2, %r5, 2, %p1;
@%p2 st.global.u32 [%d2+2], %r1;
)") + R"(
.file 1 "kernel.cu"
.file 2 "inner.h"
.section .debug_str
{
$L__info_string0:
.b8 95,90,78,49,49,95,73,78
.b8 84,69,82,78,65,76,95,120
.b8 49,97,49,98,69,105,0
}
)";
  const KernelRun run = RunKernel(ptx, Threads(64, 4), {0}, 1024);
  ASSERT_TRUE(run.result.fault.has_value());
  const std::string text = run.result.fault->ToString();
  EXPECT_THAT(text, HasSubstr("misaligned address: write of 4 bytes"));
  EXPECT_THAT(text, HasSubstr("at inner.h:20 in a::b(int)"));
  EXPECT_THAT(text, HasSubstr("at kernel.cu:10"));
  EXPECT_THAT(text, HasSubstr("thread (35,0,0) in block (2,0,0) of k"));
  EXPECT_THAT(text, HasSubstr("address 0x"));
  EXPECT_EQ(run.result.fault->ptx_line, 28);
}

TEST(ChecksTest, SeveralHostThreadsFindTheSame) {
  LaunchConfig config = Threads(64, 64);
  config.num_host_threads = 4;
  ExpectNoFault(
      "mov.u32 %r5, %ctaid.x;\nmad.lo.u32 %r6, %r5, 64, %r1;\n"
      "cvt.u64.u32 %d5, %r6;\nadd.u64 %d6, %d2, %d5;\n"
      "st.global.u8 [%d6], %r1;\nbar.sync 0;\n"
      "ld.global.u8 %r7, [%d6];",
      config, "", 1024);
  ExpectFault("st.global.u32 [%d4], %r1;", FaultKind::kRace, "of block",
              config);
}

}  // namespace
}  // namespace datasetd::emulated_gpu
