// Instructions, each by what its section of the PTX ISA says.

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/ptx/ptx_harness.h"

namespace datasetd::emulated_gpu {
namespace {

uint64_t F(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t D(double value) { return std::bit_cast<uint64_t>(value); }
uint64_t S(int64_t value) { return static_cast<uint64_t>(value); }
uint64_t S32(int32_t value) { return static_cast<uint32_t>(value); }
uint64_t S16(int16_t value) { return static_cast<uint16_t>(value); }

constexpr uint64_t kNan = 0x7FFFFFFF;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kDoubleNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
  const char* instruction;
  const char* result;
  std::array<uint64_t, 3> operands;
  uint64_t expected;
};

void Check(const std::vector<Row>& rows, const ParseOptions& options = {}) {
  for (const Row& row : rows) {
    EXPECT_EQ(Evaluate(row.instruction, row.result, row.operands, options),
              row.expected)
        << row.instruction << " of 0x" << std::hex << row.operands[0] << ", 0x"
        << row.operands[1] << ", 0x" << row.operands[2];
  }
}

// The words that "k" of `ptx`, on blocks of `num_threads`, left in `out`.
std::vector<uint32_t> RunThreads(const std::string& ptx, uint32_t num_threads,
                                 size_t num_out, std::vector<uint32_t> in = {0},
                                 uint32_t num_blocks = 1) {
  LaunchConfig config;
  config.block.x = num_threads;
  config.grid.x = num_blocks;
  const KernelRun run = RunKernel(ptx, config, std::move(in), num_out);
  EXPECT_FALSE(run.result.fault.has_value()) << run.result.fault->ToString();
  return run.out;
}

// The index of the thread in %r1, the address of its word of `out` in %d4.
constexpr char kOwnWord[] = R"(
ld.param.u64 %d2, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 4;
add.u64 %d4, %d2, %d3;
)";

// "Integer Arithmetic Instructions": add, sub, mul, mad, div, rem, abs, neg,
// min, max; all modulo 2^n.
TEST(InstructionTest, IntegerArithmetic) {
  Check({
      {"add.s32 %r9, %r1, %r2;", "%r9", {0xFFFFFFFF, 2}, 1},
      {"add.s16 %h9, %h1, %h2;", "%h9", {0xFFFF, 2}, 1},
      {"add.u64 %d9, %d1, %d2;", "%d9", {~uint64_t{0}, 2}, 1},
      {"sub.s32 %r9, %r1, %r2;", "%r9", {1, 2}, S32(-1)},
      {"mul.lo.s32 %r9, %r1, %r2;", "%r9", {0x10001, 0x10001}, 0x20001},
      {"mul.hi.u32 %r9, %r1, %r2;",
       "%r9",
       {0xFFFFFFFF, 0xFFFFFFFF},
       0xFFFFFFFE},
      {"mul.hi.s32 %r9, %r1, %r2;", "%r9", {S32(-1), 5}, S32(-1)},
      {"mul.hi.u64 %d9, %d1, %d2;",
       "%d9",
       {~uint64_t{0}, ~uint64_t{0}},
       ~uint64_t{1}},
      {"mul.wide.u16 %r9, %h1, %h2;", "%r9", {0xFFFF, 0xFFFF}, 0xFFFE0001},
      {"mul.wide.s32 %d9, %r1, %r2;", "%d9", {S32(-2), 3}, S(-6)},
      {"mul.wide.u32 %d9, %r1, %r2;", "%d9", {0xFFFFFFFF, 2}, 0x1FFFFFFFE},
      {"mad.lo.s32 %r9, %r1, %r2, %r3;", "%r9", {3, 4, 5}, 17},
      {"mad.wide.s32 %d9, %r1, %r2, %d3;", "%d9", {S32(-3), 4, 5}, S(-7)},
      {"mad.hi.u32 %r9, %r1, %r2, %r3;", "%r9", {0x80000000, 4, 5}, 7},
      {"div.s32 %r9, %r1, %r2;", "%r9", {S32(-7), 2}, S32(-3)},
      {"div.u32 %r9, %r1, %r2;", "%r9", {S32(-7), 2}, 0x7FFFFFFC},
      {"div.s64 %d9, %d1, %d2;", "%d9", {S(-7), 2}, S(-3)},
      {"div.s32 %r9, %r1, %r2;", "%r9", {0x80000000, S32(-1)}, 0x80000000},
      {"rem.s32 %r9, %r1, %r2;", "%r9", {S32(-7), 2}, S32(-1)},
      {"rem.s32 %r9, %r1, %r2;", "%r9", {0x80000000, S32(-1)}, 0},
      {"rem.u64 %d9, %d1, %d2;", "%d9", {17, 5}, 2},
      {"abs.s32 %r9, %r1;", "%r9", {S32(-5)}, 5},
      {"abs.s64 %d9, %d1;", "%d9", {S(-5)}, 5},
      {"neg.s32 %r9, %r1;", "%r9", {5}, S32(-5)},
      {"min.s32 %r9, %r1, %r2;", "%r9", {S32(-5), 3}, S32(-5)},
      {"min.u32 %r9, %r1, %r2;", "%r9", {S32(-5), 3}, 3},
      {"max.s64 %d9, %d1, %d2;", "%d9", {S(-5), 3}, 3},
      {"max.u64 %d9, %d1, %d2;", "%d9", {S(-5), 3}, S(-5)},
      {"max.s16 %h9, %h1, %h2;", "%h9", {S16(-5), 3}, 3},
  });
}

// "Extended-Precision Integer Arithmetic Instructions": .cc sets the carry, c
// takes it.
TEST(InstructionTest, Carries) {
  const uint64_t all = ~uint64_t{0};
  Check({
      {"add.cc.u64 %d8, %d1, %d2; addc.u64 %d9, %d3, 0;",
       "%d9",
       {all, 1, 5},
       6},
      {"add.cc.s64 %d8, %d1, %d2; addc.s64 %d9, %d3, 0;",
       "%d9",
       {all, 0, 5},
       5},
      {"add.cc.u32 %r8, %r1, %r2; addc.u32 %r9, %r3, 0;",
       "%r9",
       {0xFFFFFFFF, 1, 5},
       6},
      // A carry that the carry itself makes.
      {"add.cc.u32 %r8, %r1, %r2; addc.cc.u32 %r8, %r3, 0; addc.u32 %r9, 0, 0;",
       "%r9",
       {0xFFFFFFFF, 1, 0xFFFFFFFF},
       1},
      {"sub.cc.u32 %r8, %r1, %r2; subc.u32 %r9, %r3, 0;", "%r9", {0, 1, 5}, 4},
      {"sub.cc.s32 %r8, %r1, %r2; subc.s32 %r9, %r3, 0;", "%r9", {1, 1, 5}, 5},
      {"add.cc.u32 %r8, %r1, %r2; add.u32 %r9, %r3, 0;",
       "%r9",
       {0xFFFFFFFF, 1, 5},
       5},
  });
}

// "Logic and Shift Instructions": amounts beyond the width are clamped.
TEST(InstructionTest, LogicAndShifts) {
  Check({
      {"and.b32 %r9, %r1, %r2;", "%r9", {12, 10}, 8},
      {"or.b16 %h9, %h1, %h2;", "%h9", {12, 10}, 14},
      {"xor.b64 %d9, %d1, %d2;", "%d9", {12, 10}, 6},
      {"not.b32 %r9, %r1;", "%r9", {0}, 0xFFFFFFFF},
      {"cnot.b32 %r9, %r1;", "%r9", {7}, 0},
      {"shl.b32 %r9, %r1, %r2;", "%r9", {3, 31}, 0x80000000},
      {"shl.b32 %r9, %r1, %r2;", "%r9", {3, 32}, 0},
      {"shl.b64 %d9, %d1, %r2;", "%d9", {3, 64}, 0},
      {"shl.b16 %h9, %h1, %r2;", "%h9", {3, 15}, 0x8000},
      {"shr.u32 %r9, %r1, %r2;", "%r9", {0x80000000, 33}, 0},
      {"shr.s32 %r9, %r1, %r2;", "%r9", {0x80000000, 33}, 0xFFFFFFFF},
      {"shr.s64 %d9, %d1, %r2;", "%d9", {S(-16), 2}, S(-4)},
      {"shr.u16 %h9, %h1, %r2;", "%h9", {0x8000, 15}, 1},
      {"shf.l.wrap.b32 %r9, %r1, %r2, %r3;", "%r9", {0x80000000, 1, 33}, 3},
      {"shf.r.clamp.b32 %r9, %r1, %r2, %r3;", "%r9", {5, 7, 40}, 7},
      {"lop3.b32 %r9, %r1, %r2, %r3, 0xE8;", "%r9", {12, 10, 6}, 14},
      {"prmt.b32 %r9, %r1, %r2, %r3;",
       "%r9",
       {0x33221100, 0x77665544, 0x7604},
       0x77660044},
      {"prmt.b32 %r9, %r1, %r2, 0x9999;", "%r9", {0x8000, 0}, 0xFFFFFFFF},
      {"bfe.u32 %r9, %r1, 4, 8;", "%r9", {0xABCD}, 0xBC},
      {"bfe.s32 %r9, %r1, 4, 8;", "%r9", {0xABCD}, 0xFFFFFFBC},
      {"bfi.b32 %r9, %r1, %r2, 8, 4;", "%r9", {0xF, 0}, 0xF00},
      {"popc.b32 %r9, %r1;", "%r9", {0xF0F}, 8},
      {"popc.b64 %r9, %d1;", "%r9", {~uint64_t{0}}, 64},
      {"clz.b32 %r9, %r1;", "%r9", {1}, 31},
      {"brev.b32 %r9, %r1;", "%r9", {1}, 0x80000000},
  });
}

// "Floating-Point Instructions": IEEE 754 with round to nearest even, and
// subnormals; single precision has one NaN, double precision keeps payloads.
TEST(InstructionTest, FloatArithmetic) {
  const uint64_t subnormal = 1;
  Check({
      {"add.f32 %f9, %f1, %f2;", "%f9", {F(1.0f), F(0x1p-24f)}, F(1.0f)},
      {"add.rn.f32 %f9, %f1, %f2;", "%f9", {F(1.5f), F(2.5f)}, F(4.0f)},
      {"add.rz.f32 %f9, %f1, %f2;",
       "%f9",
       {F(1.0f), F(-0x1p-25f)},
       F(1.0f - 0x1p-24f)},
      {"add.rp.f32 %f9, %f1, %f2;",
       "%f9",
       {F(1.0f), F(0x1p-30f)},
       F(1.0f + 0x1p-23f)},
      {"add.rm.f32 %f9, %f1, %f2;", "%f9", {F(1.0f), F(0x1p-30f)}, F(1.0f)},
      {"add.f32 %f9, %f1, %f2;", "%f9", {subnormal, subnormal}, 2},
      {"add.f32 %f9, %f1, %f2;", "%f9", {F(kInfinity), F(-kInfinity)}, kNan},
      {"add.f32 %f9, %f1, %f2;", "%f9", {0x7FC12345, F(1.0f)}, kNan},
      {"add.f64 %g9, %g1, %g2;",
       "%g9",
       {0x7FF8000000001234, D(1.0)},
       0x7FF8000000001234},
      {"sub.f32 %f9, %f1, %f2;", "%f9", {F(0.0f), F(0.0f)}, F(0.0f)},
      {"mul.f32 %f9, %f1, %f2;", "%f9", {F(-0.0f), F(3.0f)}, F(-0.0f)},
      {"mul.rn.f64 %g9, %g1, %g2;", "%g9", {D(0.1), D(3.0)}, D(0.1 * 3.0)},
      {"div.rn.f32 %f9, %f1, %f2;", "%f9", {F(1.0f), F(3.0f)}, F(1.0f / 3.0f)},
      {"div.rz.f32 %f9, %f1, %f2;", "%f9", {F(2.0f), F(3.0f)}, 0x3F2AAAAA},
      {"div.rn.f64 %g9, %g1, %g2;",
       "%g9",
       {D(1.0), D(0.0)},
       D(std::numeric_limits<double>::infinity())},
      {"sqrt.rn.f32 %f9, %f1;", "%f9", {F(2.0f)}, 0x3FB504F3},
      {"sqrt.rn.f32 %f9, %f1;", "%f9", {F(-1.0f)}, kNan},
      {"rcp.rn.f32 %f9, %f1;", "%f9", {F(3.0f)}, F(1.0f / 3.0f)},
      {"rcp.rn.f64 %g9, %g1;", "%g9", {D(3.0)}, D(1.0 / 3.0)},
      {"neg.f32 %f9, %f1;", "%f9", {F(0.0f)}, F(-0.0f)},
      {"abs.f64 %g9, %g1;", "%g9", {D(-2.0)}, D(2.0)},
  });
}

// "min", "max": a NaN operand gives the other, two the canonical NaN; +0.0 is
// greater than -0.0; .NaN passes NaN on.
TEST(InstructionTest, FloatMinMax) {
  Check({
      {"min.f32 %f9, %f1, %f2;", "%f9", {0x7FC00001, F(2.0f)}, F(2.0f)},
      {"min.f32 %f9, %f1, %f2;", "%f9", {F(2.0f), 0xFFC00001}, F(2.0f)},
      {"max.f32 %f9, %f1, %f2;", "%f9", {0x7FC00001, 0xFFC00001}, kNan},
      {"max.f32 %f9, %f1, %f2;", "%f9", {F(-0.0f), F(0.0f)}, F(0.0f)},
      {"max.f32 %f9, %f1, %f2;", "%f9", {F(0.0f), F(-0.0f)}, F(0.0f)},
      {"min.f32 %f9, %f1, %f2;", "%f9", {F(0.0f), F(-0.0f)}, F(-0.0f)},
      {"min.f32 %f9, %f1, %f2;", "%f9", {F(-0.0f), F(0.0f)}, F(-0.0f)},
      {"min.NaN.f32 %f9, %f1, %f2;", "%f9", {0x7FC00001, F(2.0f)}, kNan},
      {"max.f64 %g9, %g1, %g2;", "%g9", {D(kDoubleNan), D(2.0)}, D(2.0)},
  });
}

// "fma" rounds once; "mad" of floats is fma. Both only where allowed.
TEST(InstructionTest, FusedMultiplyAdd) {
  ParseOptions options;
  options.allow_fma = true;
  const float a = 1.0f + 0x1p-12f;
  Check({{"fma.rn.f32 %f9, %f1, %f2, %f3;",
          "%f9",
          {F(a), F(a), F(-(1.0f + 0x1p-11f))},
          F(0x1p-24f)},
         {"mad.rn.f64 %g9, %g1, %g2, %g3;",
          "%g9",
          {D(2.0), D(3.0), D(4.0)},
          D(10.0)}},
        options);
}

// ".ftz": subnormal operands and results are zeros of their sign.
TEST(InstructionTest, FlushToZero) {
  ParseOptions options;
  options.allow_ftz = true;
  Check({{"add.ftz.f32 %f9, %f1, %f2;", "%f9", {1, F(1.0f)}, F(1.0f)},
         {"mul.ftz.f32 %f9, %f1, %f2;",
          "%f9",
          {F(0x1p-100f), F(-0x1p-40f)},
          F(-0.0f)},
         {"setp.eq.ftz.f32 %p9, %f1, %f2;", "%p9", {1, 0}, 1}},
        options);
}

// "setp": ordered comparisons are false with a NaN, unordered ones true; the
// second predicate is the opposite; .and and the like combine with a third.
TEST(InstructionTest, Comparisons) {
  const uint64_t nan = 0x7FC00000;
  Check({
      {"setp.eq.f32 %p9, %f1, %f2;", "%p9", {nan, nan}, 0},
      {"setp.ne.f32 %p9, %f1, %f2;", "%p9", {nan, F(1.0f)}, 0},
      {"setp.neu.f32 %p9, %f1, %f2;", "%p9", {nan, F(1.0f)}, 1},
      {"setp.equ.f32 %p9, %f1, %f2;", "%p9", {nan, F(1.0f)}, 1},
      {"setp.lt.f32 %p9, %f1, %f2;", "%p9", {nan, F(1.0f)}, 0},
      {"setp.ltu.f32 %p9, %f1, %f2;", "%p9", {nan, F(1.0f)}, 1},
      {"setp.leu.f64 %p9, %g1, %g2;", "%p9", {D(kDoubleNan), D(1.0)}, 1},
      {"setp.gtu.f32 %p9, %f1, %f2;", "%p9", {F(1.0f), F(1.0f)}, 0},
      {"setp.geu.f32 %p9, %f1, %f2;", "%p9", {F(1.0f), F(1.0f)}, 1},
      {"setp.num.f32 %p9, %f1, %f2;", "%p9", {F(1.0f), nan}, 0},
      {"setp.nan.f32 %p9, %f1, %f2;", "%p9", {F(1.0f), nan}, 1},
      {"setp.eq.f32 %p9, %f1, %f2;", "%p9", {F(-0.0f), F(0.0f)}, 1},
      {"setp.lt.s32 %p9, %r1, %r2;", "%p9", {S32(-1), 1}, 1},
      {"setp.lt.u32 %p9, %r1, %r2;", "%p9", {S32(-1), 1}, 0},
      {"setp.lo.u32 %p9, %r1, %r2;", "%p9", {1, 2}, 1},
      {"setp.hs.u64 %p9, %d1, %d2;", "%p9", {2, 2}, 1},
      {"setp.ge.s16 %p9, %h1, %h2;", "%p9", {S16(-1), 0}, 0},
      {"setp.ne.b64 %p9, %d1, %d2;", "%p9", {1, 2}, 1},
      {"setp.lt.s32 %p8|%p9, %r1, %r2;", "%p9", {1, 2}, 0},
      {"setp.eq.s32 %p1, %r1, %r1;\nsetp.lt.and.s32 %p9, %r1, %r2, !%p1;",
       "%p9",
       {1, 2},
       0},
      {"setp.eq.s32 %p1, %r1, %r1;\nsetp.gt.or.s32 %p9, %r1, %r2, %p1;",
       "%p9",
       {1, 2},
       1},
      {"setp.eq.s32 %p1, %r1, %r2;\nselp.b32 %r9, %r1, %r2, %p1;",
       "%r9",
       {3, 4},
       4},
      {"mov.pred %p1, 1;\nxor.pred %p2, %p1, %p1;\nnot.pred %p9, %p2;",
       "%p9",
       {},
       1},
  });
}

// "cvt" between integers: extended by the source's sign, cut, clamped by .sat;
// registers wider than the type.
TEST(InstructionTest, ConvertsIntegers) {
  Check({
      {"cvt.s64.s32 %d9, %r1;", "%d9", {S32(-3)}, S(-3)},
      {"cvt.u64.u32 %d9, %r1;", "%d9", {S32(-3)}, 0xFFFFFFFD},
      {"cvt.u16.u32 %h9, %r1;", "%h9", {0x12345}, 0x2345},
      {"cvt.s32.s8 %r9, %r1;", "%r9", {0x1280}, S32(-128)},
      {"cvt.u32.u8 %r9, %h1;", "%r9", {0x1280}, 0x80},
      {"cvt.s32.s16 %r9, %h1;", "%r9", {0xFFFE}, S32(-2)},
      {"cvt.s16.s8 %h9, %h1;", "%h9", {0x00FE}, 0xFFFE},
      {"cvt.sat.u8.s32 %h9, %r1;", "%h9", {S32(-3)}, 0},
      {"cvt.sat.u8.s32 %h9, %r1;", "%h9", {300}, 255},
      {"cvt.sat.s8.s32 %h9, %r1;", "%h9", {S32(-300)}, 0xFF80},
  });
}

// "cvt" of floats to integers: the rounding of the modifier, clamped to the
// range; NaN is zero, and of .f64 or to 64 bits the top bit.
TEST(InstructionTest, ConvertsFloatsToIntegers) {
  Check({
      {"cvt.rni.s32.f32 %r9, %f1;", "%r9", {F(2.5f)}, 2},
      {"cvt.rni.s32.f32 %r9, %f1;", "%r9", {F(3.5f)}, 4},
      {"cvt.rzi.s32.f32 %r9, %f1;", "%r9", {F(-2.9f)}, S32(-2)},
      {"cvt.rmi.s32.f32 %r9, %f1;", "%r9", {F(-2.1f)}, S32(-3)},
      {"cvt.rpi.s32.f32 %r9, %f1;", "%r9", {F(2.1f)}, 3},
      {"cvt.rzi.s32.f32 %r9, %f1;", "%r9", {F(3e9f)}, 0x7FFFFFFF},
      {"cvt.rzi.u32.f32 %r9, %f1;", "%r9", {F(-1.0f)}, 0},
      {"cvt.rzi.u32.f32 %r9, %f1;", "%r9", {F(3e9f)}, 3000000000u},
      {"cvt.rzi.u8.f32 %r9, %f1;", "%r9", {F(300.0f)}, 255},
      {"cvt.rzi.s32.f32 %r9, %f1;", "%r9", {0x7FC00000}, 0},
      {"cvt.rzi.s64.f32 %d9, %f1;", "%d9", {0x7FC00000}, 0x8000000000000000},
      {"cvt.rzi.s32.f64 %r9, %g1;", "%r9", {D(kDoubleNan)}, 0x80000000},
      {"cvt.rzi.s64.f64 %d9, %g1;", "%d9", {D(-1e300)}, 0x8000000000000000},
      {"cvt.rzi.u64.f64 %d9, %g1;", "%d9", {D(1.8e19)}, 18000000000000000000u},
  });
}

// "cvt" to floats, with the rounding of the modifier.
TEST(InstructionTest, ConvertsToFloats) {
  Check({
      {"cvt.rn.f32.s32 %f9, %r1;", "%f9", {S32(-16777217)}, F(-16777216.0f)},
      {"cvt.rn.f32.u32 %f9, %r1;", "%f9", {0xFFFFFFFF}, F(4294967296.0f)},
      {"cvt.rz.f32.u32 %f9, %r1;", "%f9", {0xFFFFFFFF}, 0x4F7FFFFF},
      {"cvt.rn.f32.u16 %f9, %h1;", "%f9", {0xFFFF}, F(65535.0f)},
      {"cvt.rn.f64.u64 %g9, %d1;", "%g9", {~uint64_t{0}}, D(0x1p64)},
      {"cvt.rn.f64.s64 %g9, %d1;", "%g9", {S(-5)}, D(-5.0)},
      {"cvt.rn.f32.s64 %f9, %d1;", "%f9", {0x1000001000001}, F(0x1.000002p48f)},
      {"cvt.rn.f32.f64 %f9, %g1;", "%f9", {D(0.1)}, F(0.1f)},
      {"cvt.rp.f32.f64 %f9, %g1;",
       "%f9",
       {D(1.0 + 0x1p-40)},
       F(1.0f + 0x1p-23f)},
      {"cvt.f64.f32 %g9, %f1;", "%g9", {F(0.1f)}, D(0.1f)},
      {"cvt.rni.f32.f32 %f9, %f1;", "%f9", {F(2.5f)}, F(2.0f)},
      {"cvt.sat.f32.f32 %f9, %f1;", "%f9", {F(1.5f)}, F(1.0f)},
      {"cvt.sat.f32.f32 %f9, %f1;", "%f9", {0x7FC00000}, F(0.0f)},
  });
}

// "cvt" from and to .f16 and .bf16: rounded once, subnormals kept.
TEST(InstructionTest, ConvertsHalves) {
  Check({
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(1.0f)}, 0x3C00},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(65520.0f)}, 0x7C00},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(65519.0f)}, 0x7BFF},
      {"cvt.rz.f16.f32 %h9, %f1;", "%h9", {F(1e9f)}, 0x7BFF},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(0x1p-24f)}, 0x0001},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(0x1p-25f)}, 0x0000},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(0x1.004p0f)}, 0x3C01},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(0x1.002p0f)}, 0x3C00},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {F(-0.0f)}, 0x8000},
      {"cvt.rn.f16.f32 %h9, %f1;", "%h9", {0xFFC00000}, 0x7FFF},
      {"cvt.rn.bf16.f32 %h9, %f1;", "%h9", {0x3F808000}, 0x3F80},
      {"cvt.rn.bf16.f32 %h9, %f1;", "%h9", {0x3F818000}, 0x3F82},
      {"cvt.rn.bf16.f32 %h9, %f1;", "%h9", {0x7F7FFFFF}, 0x7F80},
      {"cvt.f32.f16 %f9, %h1;", "%f9", {0x0001}, F(0x1p-24f)},
      {"cvt.f32.f16 %f9, %h1;", "%f9", {0xFBFF}, F(-65504.0f)},
      {"cvt.f32.bf16 %f9, %h1;", "%f9", {0xC049}, 0xC0490000},
      {"cvt.rn.f16x2.f32 %r9, %f1, %f2;",
       "%r9",
       {F(1.0f), F(-2.0f)},
       0x3C00C000},
  });
}

// "mov": bits, packed and unpacked registers, the low one first.
TEST(InstructionTest, Moves) {
  Check({
      {"mov.b64 %d9, {%r1, %r2};", "%d9", {1, 2}, 0x200000001},
      {"mov.b64 {%r8, %r9}, %d1;", "%r9", {0x700000005}, 7},
      {"mov.b32 {%h8, %h9}, %r1;", "%h9", {0x12345678}, 0x1234},
      {"mov.b32 %r9, %f1;", "%r9", {F(1.0f)}, F(1.0f)},
      {"mov.f32 %f9, 0f3F800000;", "%f9", {}, F(1.0f)},
      {"mov.f64 %g9, 0d3FF0000000000000;", "%g9", {}, D(1.0)},
      {"mov.u32 %r9, -1;", "%r9", {}, 0xFFFFFFFF},
      {"mov.u16 %h9, 0xFFFF;", "%h9", {}, 0xFFFF},
      {"mov.u32 %r9, %ntid.x;", "%r9", {}, 1},
      {"mov.u32 %r9, %lanemask_ge;", "%r9", {}, 0xFFFFFFFF},
  });
}

// "ld", "st": vectors, extension to wider registers, 32-bit shared addresses
// with negative offsets, generic addresses of shared and local memory.
TEST(InstructionTest, LoadsAndStores) {
  const std::string variables =
      ".shared .align 8 .b8 s[64];\n.local .align 16 .b8 l[32];\n";
  const std::string body = R"(
ld.param.u64 %d1, [in];
ld.param.u64 %d2, [out];
ld.global.v2.u32 {%r1, %r2}, [%d1];
mov.u32 %r3, s;
add.u32 %r3, %r3, 16;
st.shared.v2.u16 [%r3+-8], {%h1, %h2};
mov.u64 %d3, s;
cvta.shared.u64 %d4, %d3;
st.u32 [%d4+32], %r1;
ld.shared.u32 %r4, [s+32];
mov.u64 %d5, l;
cvta.local.u64 %d6, %d5;
st.local.v4.u32 [l+16], {%r1, %r2, %r1, %r2};
ld.u32 %r5, [%d6+20];
cvta.to.local.u64 %d7, %d6;
ld.local.s8 %r6, [%d7+28];
ld.global.nc.u8 %r7, [%d1+7];
ld.global.s16 %d8, [%d1+6];
st.global.u32 [%d2], %r4;
st.global.u32 [%d2+4], %r5;
st.global.u32 [%d2+8], %r6;
st.global.u32 [%d2+12], %r7;
st.global.u64 [%d2+16], %d8;
)";
  EXPECT_EQ(
      RunThreads(Kernel("mov.u16 %h1, 1;\nmov.u16 %h2, 2;\n" + body, variables),
                 1, 6, {0x11223344, 0x99AABB80}),
      (std::vector<uint32_t>{0x11223344, 0x99AABB80, 0xFFFFFF80, 0x99,
                             0xFFFF99AA, 0xFFFFFFFF}));
}

// "Generic Addressing": the lanes of one load in shared and in device memory.
TEST(InstructionTest, LanesInSeveralSpaces) {
  const std::string body = std::string(kOwnWord) + R"(
ld.param.u64 %d1, [in];
add.u64 %d5, %d1, %d3;
mov.u64 %d6, s;
cvta.shared.u64 %d6, %d6;
add.u64 %d6, %d6, %d3;
add.u32 %r2, %r1, 70;
st.u32 [%d6], %r2;
and.b32 %r3, %r1, 1;
setp.eq.u32 %p1, %r3, 0;
selp.b64 %d7, %d6, %d5, %p1;
ld.u32 %r4, [%d7];
st.u32 [%d4], %r4;
)";
  EXPECT_EQ(RunThreads(Kernel(body, ".shared .align 8 .b8 s[64];\n"), 4, 4,
                       {1, 2, 3, 4}),
            (std::vector<uint32_t>{70, 2, 72, 4}));
}

// "atom": returns the old value; the operations of lanes are not mixed.
TEST(InstructionTest, Atomics) {
  const std::string body = std::string(kOwnWord) + R"(
atom.global.add.u32 %r2, [%d2], 1;
atom.max.u32 %r3, [%d2+4], %r1;
red.global.add.u64 [%d2+8], 0x100000000;
atom.global.cas.b32 %r4, [%d2+16], 0, 7;
atom.global.inc.u32 %r5, [%d2+20], 9;
atom.global.exch.b32 %r6, [%d2+24], 5;
)";
  EXPECT_EQ(RunThreads(Kernel(body), 100, 7),
            (std::vector<uint32_t>{100, 99, 0, 100, 7, 0, 5}));
}

// "Control Flow Instructions": lanes go apart and meet again; loops of other
// lengths for each lane; guards.
TEST(InstructionTest, Divergence) {
  const std::string body = std::string(kOwnWord) + R"(
mov.u32 %r2, 0;
mov.u32 %r3, 0;
and.b32 %r5, %r1, 1;
setp.eq.u32 %p2, %r5, 1;
LOOP:
setp.ge.u32 %p1, %r2, %r1;
@%p1 bra DONE;
add.u32 %r2, %r2, 1;
@%p2 bra ODD;
add.u32 %r3, %r3, 10;
bra.uni NEXT;
ODD:
add.u32 %r3, %r3, 1;
NEXT:
bra.uni LOOP;
DONE:
@!%p2 add.u32 %r3, %r3, 1000;
st.global.u32 [%d4], %r3;
)";
  const std::vector<uint32_t> out = RunThreads(Kernel(body), 70, 70);
  for (uint32_t i = 0; i < 70; ++i) {
    EXPECT_EQ(out[i], i % 2 == 1 ? i : 10 * i + 1000) << i;
  }
}

// "call": parameters and results in .param space, recursion, a frame of local
// memory for each call, in some lanes only.
TEST(InstructionTest, Calls) {
  const std::string functions = R"(
.func (.param .b32 result) sum(.param .b32 n, .param .align 8 .b8 pair[8])
{
.local .align 4 .b8 mine[4];
.reg .pred %p<2>;
.reg .b32 %r<9>;
ld.param.u32 %r1, [n];
ld.param.u32 %r2, [pair+4];
st.local.u32 [mine], %r1;
mov.u32 %r3, %r2;
setp.eq.u32 %p1, %r1, 0;
@%p1 bra END;
sub.u32 %r4, %r1, 1;
{
.param .b32 a0;
.param .align 8 .b8 a1[8];
.param .b32 got;
st.param.b32 [a0], %r4;
st.param.b32 [a1], %r4;
st.param.b32 [a1+4], %r2;
call.uni (got), sum, (a0, a1);
ld.param.b32 %r5, [got];
}
ld.local.u32 %r6, [mine];
add.u32 %r3, %r5, %r6;
END:
st.param.b32 [result], %r3;
ret;
}
)";
  const std::string body = std::string(kOwnWord) + R"(
setp.lt.u32 %p1, %r1, 10;
mov.u32 %r2, 7;
@%p1 bra END;
{
.param .b32 x0;
.param .align 8 .b8 x1[8];
.param .b32 y;
st.param.b32 [x0], %r1;
st.param.v2.b32 [x1], {%r2, %r2};
call (y), sum, (x0, x1);
ld.param.b32 %r2, [y];
}
END:
st.global.u32 [%d4], %r2;
)";
  const std::vector<uint32_t> out =
      RunThreads(Kernel(body, "", functions), 40, 40);
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(out[i], i < 10 ? 7 : 7 + i * (i + 1) / 2) << i;
  }
}

// "brx.idx" with ".branchtargets".
TEST(InstructionTest, BranchTables) {
  const std::string body = std::string(kOwnWord) + R"(
rem.u32 %r2, %r1, 3;
TABLE: .branchtargets A, B, C;
brx.idx %r2, TABLE;
A: mov.u32 %r3, 100;
bra.uni END;
B: mov.u32 %r3, 200;
bra.uni END;
C: mov.u32 %r3, 300;
END:
st.global.u32 [%d4], %r3;
)";
  const std::vector<uint32_t> out = RunThreads(Kernel(body), 32, 32);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 100 * (i % 3 + 1)) << i;
  }
}

// "bar.sync": shared memory written before it is read after it. "shfl.sync",
// "vote.sync", "redux.sync" among the lanes of a warp.
TEST(InstructionTest, BlocksAndWarpsTogether) {
  const std::string body = R"(
ld.param.u64 %d2, [out];
mov.u32 %r1, %tid.x;
mov.u32 %r20, %ctaid.x;
mad.lo.u32 %r21, %r20, 64, %r1;
mul.wide.u32 %d3, %r21, 4;
add.u64 %d4, %d2, %d3;
shl.b32 %r2, %r1, 2;
mov.u32 %r3, s;
add.u32 %r4, %r3, %r2;
st.shared.u32 [%r4], %r1;
bar.sync 0;
sub.u32 %r5, 63, %r1;
shl.b32 %r5, %r5, 2;
add.u32 %r5, %r3, %r5;
ld.shared.u32 %r6, [%r5];
shfl.sync.bfly.b32 %r7, %r6, 1, 0x1F, 0xFFFFFFFF;
redux.sync.max.s32 %r8, %r7, 0xFFFFFFFF;
setp.eq.u32 %p1, %r7, 5;
vote.sync.ballot.b32 %r9, %p1, 0xFFFFFFFF;
shl.b32 %r8, %r8, 8;
add.u32 %r7, %r7, %r8;
setp.ne.u32 %p2, %r9, 0;
@%p2 add.u32 %r7, %r7, 0x10000;
st.global.u32 [%d4], %r7;
)";
  const std::vector<uint32_t> out = RunThreads(
      Kernel(body, ".shared .align 4 .b8 s[256];\n"), 64, 192, {0}, 3);
  for (uint32_t i = 0; i < 192; ++i) {
    const uint32_t t = i % 64;
    const uint32_t most = t < 32 ? 63 : 31;
    EXPECT_EQ(out[i], (63 - (t ^ 1)) + (most << 8) + (t < 32 ? 0 : 0x10000))
        << i;
  }
}

// ".global" and ".const" with initialisers.
TEST(InstructionTest, ModuleVariables) {
  const std::string variables = R"(
.global .align 4 .u32 counter = 5;
.const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.global .f32 values[2] = {0f3F800000, 2.0};
)";
  const std::string ptx = Kernel(R"(
ld.param.u64 %d2, [out];
atom.global.add.u32 %r1, [counter], 1;
ld.const.u32 %r2, [table+4];
mov.u64 %d3, values;
ld.global.f32 %f1, [%d3+4];
st.global.u32 [%d2], %r1;
st.global.u32 [%d2+4], %r2;
st.global.f32 [%d2+8], %f1;
)",
                                 "", variables);
  const auto module = Module::Parse(ptx);
  ASSERT_TRUE(module.ok()) << module.status().message();
  std::vector<uint8_t> kept = ModuleVariables(*module);
  LaunchConfig config;
  config.module_variables = absl::MakeSpan(kept);
  for (const uint32_t before : {5, 6}) {
    const KernelRun run = RunKernel(ptx, config, {0}, 3);
    EXPECT_EQ(run.out, (std::vector<uint32_t>{before, 0x08070605, 0x40000000}));
  }
}

}  // namespace
}  // namespace datasetd::emulated_gpu
