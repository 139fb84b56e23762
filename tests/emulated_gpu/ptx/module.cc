#include "tests/emulated_gpu/ptx/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/decoder.h"
#include "tests/emulated_gpu/ptx/module_code.h"
#include "tests/emulated_gpu/ptx/parser.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {
namespace {

// Without the namespaces that nvcc makes up for what a file keeps to itself.
std::string Demangle(const std::string& name) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) return name;
  std::string text = demangled.get();
  for (;;) {
    const size_t start = text.find("_INTERNAL_");
    const size_t end = text.find("::", start);
    if (start == std::string::npos || end == std::string::npos) return text;
    text.erase(start, end + 2 - start);
  }
}

// Gives the module's variables their offsets; returns the bytes of .shared.
int64_t PlaceVariables(ModuleSyntax* syntax, std::vector<uint8_t>* initial) {
  int64_t shared = 0;
  int64_t global = 0;
  for (Variable& variable : syntax->variables) {
    int64_t& next = variable.space == Space::kShared ? shared : global;
    variable.offset_bytes = AlignUp(next, variable.alignment);
    next = variable.offset_bytes + variable.size_bytes;
  }
  initial->assign(global, 0);
  for (const Variable& variable : syntax->variables) {
    if (!variable.initial.empty() && variable.space != Space::kShared) {
      std::memcpy(initial->data() + variable.offset_bytes,
                  variable.initial.data(), variable.initial.size());
    }
  }
  return shared;
}

std::vector<CodeLocation> ResolveLocations(const ModuleSyntax& syntax) {
  absl::flat_hash_map<absl::string_view, std::string> names;
  std::vector<CodeLocation> locations;
  for (const Location& location : syntax.locations) {
    CodeLocation resolved;
    if (location.file >= 0 &&
        static_cast<size_t>(location.file) < syntax.files.size()) {
      resolved.file = syntax.files[location.file];
    }
    resolved.line = location.line;
    resolved.inlined_at = location.inlined_at;
    if (!location.function_label.empty()) {
      std::string& name = names[location.function_label];
      const auto found = syntax.strings.find(location.function_label);
      if (name.empty() && found != syntax.strings.end()) {
        name = Demangle(found->second);
      }
      resolved.function = name;
    }
    locations.push_back(std::move(resolved));
  }
  return locations;
}

FunctionInfo Describe(const FunctionCode& code) {
  FunctionInfo info;
  info.name = code.name;
  info.is_entry = code.is_entry;
  info.parameter_bytes = code.parameter_bytes;
  info.static_shared_bytes = code.static_shared_bytes;
  info.local_bytes = code.local_bytes;
  info.max_threads = code.max_threads;
  info.num_instructions = static_cast<int>(code.ops.size()) - 1;
  for (size_t i = 0; i < code.parameters.size(); ++i) {
    const Variable& parameter = code.parameters[i];
    info.parameters.push_back({code.name_storage[code.returns.size() + i],
                               parameter.offset_bytes, parameter.size_bytes,
                               parameter.alignment});
  }
  return info;
}

absl::Status CheckCalls(const ModuleCode& module) {
  for (const FunctionCode& code : module.functions) {
    for (size_t i = 0; i < code.ops.size(); ++i) {
      const MicroOp& op = code.ops[i];
      if (op.kind != OpKind::kCall) continue;
      const FunctionCode& callee = module.functions[op.target];
      const CallPlan& plan = code.calls[op.side];
      bool fits = !callee.is_entry &&
                  plan.arguments.size() == callee.parameters.size() &&
                  plan.results.size() == callee.returns.size();
      for (size_t k = 0; fits && k < plan.arguments.size(); ++k) {
        fits = code.areas[plan.arguments[k]].lane_stride_bytes ==
               callee.parameters[k].size_bytes;
      }
      for (size_t k = 0; fits && k < plan.results.size(); ++k) {
        fits = code.areas[plan.results[k]].lane_stride_bytes ==
               callee.returns[k].size_bytes;
      }
      if (!fits) {
        return absl::InvalidArgumentError(absl::StrCat(
            "line ", code.lines[i], ": the call does not fit ", callee.name));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Module> Module::Parse(absl::string_view ptx,
                                     const ParseOptions& options) {
  absl::StatusOr<ModuleSyntax> syntax = ParsePtx(ptx);
  if (!syntax.ok()) return syntax.status();
  auto code = std::make_shared<ModuleCode>();
  int64_t shared = PlaceVariables(&*syntax, &code->variables);
  absl::flat_hash_map<absl::string_view, int> functions;
  for (size_t i = 0; i < syntax->functions.size(); ++i) {
    functions[syntax->functions[i].name] = static_cast<int>(i);
  }
  // Shared variables of the module and of functions come first, those of each
  // kernel behind them.
  std::vector<FunctionCode> decoded(syntax->functions.size());
  for (const bool are_entries : {false, true}) {
    for (size_t i = 0; i < syntax->functions.size(); ++i) {
      if (syntax->functions[i].is_entry != are_entries) continue;
      absl::StatusOr<FunctionCode> function = DecodeFunction(
          syntax->functions[i], {*syntax, options, functions, shared});
      if (!function.ok()) return function.status();
      if (!are_entries) shared = function->static_shared_bytes;
      decoded[i] = *std::move(function);
    }
  }
  code->functions = std::move(decoded);
  code->locations = ResolveLocations(*syntax);
  if (absl::Status status = CheckCalls(*code); !status.ok()) return status;
  Module module;
  for (size_t i = 0; i < code->functions.size(); ++i) {
    code->by_name[code->functions[i].name] = static_cast<int>(i);
    module.functions_.push_back(Describe(code->functions[i]));
  }
  module.code_ = std::move(code);
  return module;
}

const FunctionInfo* Module::FindFunction(absl::string_view name) const {
  for (const FunctionInfo& function : functions_) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace datasetd::emulated_gpu
