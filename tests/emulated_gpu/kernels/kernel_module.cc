#include "tests/emulated_gpu/kernels/kernel_module.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace datasetd::emulated_gpu {
namespace {

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

}  // namespace

std::string ReadAugmentPtx() {
  const char* path = "cuda/kernels/augment_ptx.ptx";
  std::ifstream file(path, std::ios::binary);
  if (!file) Die(absl::StrCat("cannot read ", path));
  std::ostringstream ptx;
  ptx << file.rdbuf();
  return std::move(ptx).str();
}

const Module& AugmentModule() {
  static const Module* const module = [] {
    absl::StatusOr<Module> parsed = Module::Parse(ReadAugmentPtx());
    if (!parsed.ok()) Die(std::string(parsed.status().message()));
    return new Module(*parsed);
  }();
  return *module;
}

const FunctionInfo& FindKernel(const Module& module, absl::string_view name) {
  const FunctionInfo* found = nullptr;
  for (const FunctionInfo& function : module.functions()) {
    if (!function.is_entry || !absl::StrContains(function.name, name)) continue;
    if (found != nullptr) Die(absl::StrCat("two kernels hold ", name));
    found = &function;
  }
  if (found == nullptr) Die(absl::StrCat("no kernel holds ", name));
  return *found;
}

}  // namespace datasetd::emulated_gpu
