// What the doctor asks of libcuda.so.1 and libnvidia-ml.so.1, of a machine as
// the environment describes it: FAKE_GPUS devices, FAKE_COMPUTE_MODE of each,
// FAKE_MIG of the last, FAKE_INIT what initialising returns.

#include <stdio.h>
#include <stdlib.h>

static int Number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text == NULL ? otherwise : atoi(text);
}

int cuInit(unsigned flags) { return Number("FAKE_INIT", 0); }

int cuDriverGetVersion(int* version) {
  *version = 12080;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = Number("FAKE_GPUS", 1);
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, size, "Fake %d", device);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  // CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
  if (attribute != 20) return 1;
  *value = Number("FAKE_COMPUTE_MODE", 0);
  return 0;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
  return 0;
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
