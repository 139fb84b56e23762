// The functions of libnvidia-ml.so.1 that the doctor calls, for a machine that
// the environment describes: FAKE_GPUS devices, FAKE_MIG of the last, FAKE_NVML
// what initialising returns.

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
