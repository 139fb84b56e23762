// The functions of libnvidia-ml.so.1 that the doctor calls, for a machine that
// the environment describes: FAKE_GPUS devices, FAKE_MIG of the last, FAKE_NVML
// what initialising returns, FAKE_NVLINKS links of each.

#include <stdio.h>
#include <stdlib.h>

static int Number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text == NULL ? otherwise : atoi(text);
}

int nvmlInit_v2(void) { return Number("FAKE_NVML", 0); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = Number("FAKE_GPUS", 1);
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (void*)(size_t)index;
  return 0;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  const unsigned last = Number("FAKE_GPUS", 1) - 1;
  *current = *pending = (size_t)device == last ? Number("FAKE_MIG", 0) : 0;
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  // As the emulated GPUs have it: device 0 at bus 1.
  unsigned bus = 0;
  if (sscanf(address, "%*4x:%2x", &bus) != 1 || bus == 0) return 2;
  *device = (void*)(size_t)(bus - 1);
  return 0;
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  (void)device;
  *active = link < (unsigned)Number("FAKE_NVLINKS", 0);
  return 0;
}
