// PTX that is read, and PTX that is refused, by name and line.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/host_ranges.h"
#include "tests/emulated_gpu/ptx/ptx_harness.h"

namespace datasetd::emulated_gpu {
namespace {

using ::testing::HasSubstr;

// The body's first line is line 14 of the module.
absl::Status ParseBody(const std::string& body,
                       const std::string& variables = "",
                       const std::string& functions = "") {
  return Module::Parse(Kernel(body, variables, functions)).status();
}

void ExpectRefused(const std::string& body, absl::StatusCode code,
                   const std::string& message) {
  const absl::Status status = ParseBody(body);
  EXPECT_EQ(status.code(), code) << body << ": " << status.message();
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(ModuleTest, RefusesOpcodesAndModifiersByName) {
  using absl::StatusCode::kUnimplemented;
  ExpectRefused("tex.2d.v4.f32.f32 {%f1,%f1,%f1,%f1}, [%d1, {%f1,%f2}];",
                absl::StatusCode::kInvalidArgument, "");
  ExpectRefused("dp4a.u32.u32 %r1, %r2, %r3, %r4;", kUnimplemented,
                "line 14: dp4a.u32.u32: the opcode is not known");
  ExpectRefused("add.sat.s32 %r1, %r2, %r3;", kUnimplemented,
                "add.sat.s32: modifier .sat is not known");
  ExpectRefused("ld.acquire.gpu.global.u32 %r1, [%d1];", kUnimplemented,
                "modifier .acquire is not known");
  ExpectRefused("mov.u32 %r1, %clock;", kUnimplemented, "%clock is not known");
  ExpectRefused("add.f16 %h1, %h2, %h3;", kUnimplemented,
                "there is no such instruction for this type");
  ExpectRefused("bar.sync 0, 64;", absl::StatusCode::kInvalidArgument,
                "has 2 operands, not 1");
  ExpectRefused(".unknown 5;", kUnimplemented,
                "directive .unknown is not known");
}

TEST(ModuleTest, RefusesWhatGivesOtherBitsThanTheHost) {
  using absl::StatusCode::kUnimplemented;
  ExpectRefused("fma.rn.f32 %f1, %f2, %f3, %f4;", kUnimplemented,
                "fma is not allowed");
  ExpectRefused("mad.rn.f64 %g1, %g2, %g3, %g4;", kUnimplemented,
                "fma is not allowed");
  ExpectRefused("add.ftz.f32 %f1, %f2, %f3;", kUnimplemented,
                ".ftz is not allowed");
  ExpectRefused("setp.lt.ftz.f32 %p1, %f2, %f3;", kUnimplemented,
                ".ftz is not allowed");
  ExpectRefused("sqrt.approx.f32 %f1, %f2;", kUnimplemented,
                ".approx is not allowed");
  ExpectRefused("div.full.f32 %f1, %f2, %f3;", kUnimplemented,
                ".approx is not allowed");
}

TEST(ModuleTest, RefusesMistakes) {
  using absl::StatusCode::kInvalidArgument;
  ExpectRefused("add.s32 %r1, %r2;", kInvalidArgument, "has 2 operands, not 3");
  ExpectRefused("add.s32 %r1, %d2, %r3;", kInvalidArgument,
                "register %d2 has 64 bits, the instruction 32");
  ExpectRefused("bra NOWHERE;", kInvalidArgument, "bra to what is no label");
  ExpectRefused("cvt.s32.f32 %r1, %f1;", kInvalidArgument,
                "needs .rni, .rzi, .rmi or .rpi");
  ExpectRefused("call nothing;", kInvalidArgument,
                "there is no function nothing");
  ExpectRefused("mov.u32 %r1, 0x1G;", kInvalidArgument, "is no number");
  ExpectRefused("mov.u32 %r1, \x01;", kInvalidArgument, "is not PTX");
  ExpectRefused("@%r1 bra END;\nEND:", kInvalidArgument,
                "the guard is no predicate");
  EXPECT_EQ(
      Module::Parse(".version 8.0\n.visible .entry k() {").status().code(),
      kInvalidArgument);
  EXPECT_EQ(ParseBody("", ".shared .align 3 .b8 s[4];").code(),
            kInvalidArgument);
  EXPECT_EQ(
      ParseBody("{ .param .b32 p; call (p), f; }", "", ".func f() { ret; }")
          .code(),
      kInvalidArgument);
}

// A module that is cut anywhere crashes nothing, and has no complete kernel.
TEST(ModuleTest, RefusesEveryPrefix) {
  const std::string ptx = Kernel(
      "ld.global.v2.u32 {%r1, %r2}, [%d1+8];\n.pragma \"used_bytes_mask 3\";\n"
      "@!%p1 bra END;\n.loc 1 2 3, function_name $L, inlined_at 1 2 3\n"
      "mov.f32 %f1, 0f3F800000;\nEND: bar.sync 0;",
      ".shared .align 4 .b8 s[8];", ".const .u32 x[2] = {1, -2};");
  ASSERT_TRUE(Module::Parse(ptx).ok()) << Module::Parse(ptx).status().message();
  for (size_t size = 0; size + 3 < ptx.size(); ++size) {
    const auto module = Module::Parse(ptx.substr(0, size));
    if (module.ok()) {
      EXPECT_EQ(module->FindFunction("k"), nullptr) << size;
    }
  }
}

TEST(ModuleTest, DescribesFunctions) {
  const auto module = Module::Parse(R"(
.version 9.0
.target sm_90, debug
.address_size 64
.shared .align 8 .b8 common[24];
.func helper(.param .b64 p) { .local .align 8 .b8 x[20]; ret; }
.visible .entry big(.param .align 8 .b8 plan[36], .param .u8 a, .param .u64 b)
.maxntid 256, 1, 1
.minnctapersm 4
{ .shared .align 16 .b8 s[100]; ret; }
)");
  ASSERT_TRUE(module.ok()) << module.status().message();
  const FunctionInfo* big = module->FindFunction("big");
  ASSERT_NE(big, nullptr);
  EXPECT_TRUE(big->is_entry);
  EXPECT_EQ(big->max_threads, 256);
  EXPECT_EQ(big->parameter_bytes, 48);
  ASSERT_EQ(big->parameters.size(), 3u);
  EXPECT_EQ(big->parameters[1].offset_bytes, 36);
  EXPECT_EQ(big->parameters[2].offset_bytes, 40);
  EXPECT_EQ(big->parameters[2].name, "b");
  EXPECT_EQ(big->static_shared_bytes, 32 + 100);
  EXPECT_EQ(module->FindFunction("helper")->local_bytes, 32);
  EXPECT_FALSE(module->FindFunction("helper")->is_entry);
  EXPECT_EQ(module->FindFunction("other"), nullptr);
}

TEST(ModuleTest, RefusesLaunchesThatCannotBe) {
  const auto module = Module::Parse(
      ".version 9.0\n.target sm_90\n.address_size 64\n"
      ".func f() { ret; }\n"
      ".entry k(.param .u64 a) .maxntid 64, 1, 1 { ret; }");
  ASSERT_TRUE(module.ok()) << module.status().message();
  HostRanges memory;
  const std::vector<uint8_t> parameters(8);
  const auto code = [&](const char* kernel, LaunchConfig config, int bytes) {
    return Execute(*module, kernel, config,
                   absl::MakeConstSpan(parameters.data(), bytes), memory)
        .status()
        .code();
  };
  LaunchConfig config;
  EXPECT_EQ(code("k", config, 8), absl::StatusCode::kOk);
  EXPECT_EQ(code("none", config, 8), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("f", config, 0), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("k", config, 4), absl::StatusCode::kInvalidArgument);
  config.block.x = 65;
  EXPECT_EQ(code("k", config, 8), absl::StatusCode::kInvalidArgument);
  config.block.x = 0;
  EXPECT_EQ(code("k", config, 8), absl::StatusCode::kInvalidArgument);
  config.block.x = 1;
  config.grid.y = 0;
  EXPECT_EQ(code("k", config, 8), absl::StatusCode::kInvalidArgument);
  config.grid.y = 1;
  config.dynamic_shared_bytes = 228 * 1024;
  EXPECT_EQ(code("k", config, 8), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace datasetd::emulated_gpu
