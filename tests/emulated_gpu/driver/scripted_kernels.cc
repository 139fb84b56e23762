#include "tests/emulated_gpu/driver/scripted_kernels.h"

#include <utility>
#include <vector>

namespace datasetd::emulated_driver {
namespace {

struct Script {
  std::vector<KernelInfo> infos;
  std::vector<ScriptedKernel> kernels;
};

Script& GetScript() {
  static auto* const script = new Script();
  return *script;
}

class ScriptedModule final : public KernelModule {
 public:
  explicit ScriptedModule(Script script) : script_(std::move(script)) {}

  const std::vector<KernelInfo>& kernels() const override {
    return script_.infos;
  }

  KernelOutcome Launch(const std::string& kernel, const KernelLaunch& launch,
                       emulated_gpu::AddressSpace& memory) const override {
    for (size_t i = 0; i < script_.infos.size(); ++i) {
      if (script_.infos[i].name == kernel) {
        return script_.kernels[i](launch, memory);
      }
    }
    return {CUDA_ERROR_INVALID_PC, "no kernel " + kernel};
  }

 private:
  const Script script_;
};

}  // namespace

void AddScriptedKernel(const KernelInfo& info, ScriptedKernel kernel) {
  GetScript().infos.push_back(info);
  GetScript().kernels.push_back(std::move(kernel));
}

std::string ScriptedPtx(const std::string& version, const std::string& target) {
  return ".version " + version + "\n.target " + target + "\n";
}

std::shared_ptr<const KernelModule> LoadKernels(const std::string& ptx,
                                                std::string* why) {
  if (ptx.find("unknown.opcode") != std::string::npos) {
    *why = "line 3: unknown.opcode";
    return nullptr;
  }
  return std::make_shared<ScriptedModule>(GetScript());
}

}  // namespace datasetd::emulated_driver
