#include "base/nvtx_range.h"

#include <nvtx3/nvToolsExt.h>

namespace datasetd {
namespace {

// Null if no tool is attached. Never destroyed: tools read it until exit.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("datasetd");
  return domain;
}

}  // namespace

NvtxRange::NvtxRange(const char* name) {
  const nvtxDomainHandle_t domain = Domain();
  if (domain == nullptr) return;
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain, &attributes);
}

NvtxRange::~NvtxRange() {
  if (const nvtxDomainHandle_t domain = Domain(); domain != nullptr) {
    nvtxDomainRangePop(domain);
  }
}

}  // namespace datasetd
