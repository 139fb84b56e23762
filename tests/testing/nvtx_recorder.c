// An NVTX tool of the tests' own: counts the ranges of the domain "datasetd" by
// name and writes "NAME COUNT" lines to $NVTX_RECORDER_DIRECTORY/PID when the
// process ends. Loaded by $NVTX_INJECTION64_PATH.

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NAMES 16

static struct {
  const char* name;
  int count;
} names[MAX_NAMES];
static int domain;
static int depth_errors;
static __thread int depth;
static int lock;

static nvtxDomainHandle_t CreateDomain(const char* name) {
  return (nvtxDomainHandle_t)(strcmp(name, "datasetd") == 0
                                  ? (void*)&domain
                                  : (void*)&depth_errors);
}

static int Push(nvtxDomainHandle_t which,
                const nvtxEventAttributes_t* attributes) {
  if (which != (nvtxDomainHandle_t)&domain) return -1;
  while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {
  }
  for (int i = 0; i < MAX_NAMES; ++i) {
    if (names[i].name == NULL) names[i].name = attributes->message.ascii;
    if (strcmp(names[i].name, attributes->message.ascii) == 0) {
      ++names[i].count;
      break;
    }
  }
  __atomic_clear(&lock, __ATOMIC_RELEASE);
  return depth++;
}

static int Pop(nvtxDomainHandle_t which) {
  if (which == (nvtxDomainHandle_t)&domain && --depth < 0) ++depth_errors;
  return depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const NvtxExportTableCallbacks* callbacks =
      (const NvtxExportTableCallbacks*)get_export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (callbacks == NULL ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)CreateDomain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)Push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)Pop;
  return 1;
}

__attribute__((destructor)) static void Write(void) {
  const char* directory = getenv("NVTX_RECORDER_DIRECTORY");
  if (directory == NULL) return;
  char path[4096];
  snprintf(path, sizeof(path), "%s/%d", directory, (int)getpid());
  FILE* file = fopen(path, "w");
  if (file == NULL) return;
  for (int i = 0; i < MAX_NAMES && names[i].name != NULL; ++i) {
    fprintf(file, "%s %d\n", names[i].name, names[i].count);
  }
  if (depth_errors != 0) fprintf(file, "unbalanced %d\n", depth_errors);
  fclose(file);
}
