#include "tests/emulated_gpu/ptx/ptx_harness.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/host_ranges.h"

namespace datasetd::emulated_gpu {

std::string Kernel(absl::string_view body, absl::string_view variables,
                   absl::string_view functions) {
  return absl::StrCat(R"(.version 8.0
.target sm_90
.address_size 64
)",
                      functions, R"(
.visible .entry k(.param .u64 in, .param .u64 out)
{
)",
                      variables, R"(
.reg .pred %p<16>;
.reg .b16 %h<16>;
.reg .b32 %r<64>;
.reg .b64 %d<64>;
.reg .f32 %f<16>;
.reg .f64 %g<16>;
)",
                      body, "\nret;\n}\n");
}

KernelRun RunKernel(const std::string& ptx, const LaunchConfig& config,
                    std::vector<uint32_t> in, size_t num_out,
                    const ParseOptions& options) {
  KernelRun run;
  run.out.resize(num_out);
  const auto module = Module::Parse(ptx, options);
  if (!module.ok()) {
    ADD_FAILURE() << module.status().message() << "\n" << ptx;
    return run;
  }
  HostRanges memory;
  memory.AddReadable(in.data(), static_cast<int64_t>(4 * in.size()));
  memory.AddWritable(run.out.data(), static_cast<int64_t>(4 * num_out));
  const uint64_t pointers[2] = {reinterpret_cast<uint64_t>(in.data()),
                                reinterpret_cast<uint64_t>(run.out.data())};
  const auto result =
      Execute(*module, "k", config,
              absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(pointers),
                                  sizeof(pointers)),
              memory);
  if (!result.ok()) {
    ADD_FAILURE() << result.status().message();
    return run;
  }
  run.result = *result;
  return run;
}

uint64_t Evaluate(absl::string_view instructions, absl::string_view result,
                  std::array<uint64_t, 3> operands,
                  const ParseOptions& options) {
  std::string body = "ld.param.u64 %d40, [in];\nld.param.u64 %d41, [out];\n";
  for (int i = 1; i <= 3; ++i) {
    absl::StrAppend(&body, "ld.global.u64 %d", i, ", [%d40+", 8 * (i - 1),
                    "];\ncvt.u32.u64 %r", i, ", %d", i, ";\ncvt.u16.u64 %h", i,
                    ", %d", i, ";\nmov.b32 %f", i, ", %r", i, ";\nmov.b64 %g",
                    i, ", %d", i, ";\n");
  }
  absl::StrAppend(&body, instructions, "\n");
  switch (result[1]) {
    case 'p':
      absl::StrAppend(&body, "selp.u64 %d42, 1, 0, ", result, ";\n");
      break;
    case 'h':
      absl::StrAppend(&body, "cvt.u64.u16 %d42, ", result, ";\n");
      break;
    case 'r':
      absl::StrAppend(&body, "cvt.u64.u32 %d42, ", result, ";\n");
      break;
    case 'f':
      absl::StrAppend(&body, "mov.b32 %r42, ", result,
                      ";\ncvt.u64.u32 %d42, %r42;\n");
      break;
    default:
      absl::StrAppend(&body, "mov.b64 %d42, ", result, ";\n");
      break;
  }
  absl::StrAppend(&body, "st.global.u64 [%d41], %d42;");
  std::vector<uint32_t> in(6);
  std::memcpy(in.data(), operands.data(), 24);
  const KernelRun run = RunKernel(Kernel(body), LaunchConfig(), in, 2, options);
  if (run.result.fault.has_value()) {
    ADD_FAILURE() << instructions << ": " << run.result.fault->ToString();
  }
  uint64_t value = 0;
  std::memcpy(&value, run.out.data(), 8);
  return value;
}

}  // namespace datasetd::emulated_gpu
