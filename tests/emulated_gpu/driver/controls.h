// Controls of the emulated driver for tests, beside the functions of cuda.h:
// linked, or found in libcuda.so.1 by dlsym.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_CONTROLS_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_CONTROLS_H_

#include <cuda.h>

// Counts of this process.
struct DatasetdEmulatedGpuCounts {
  int num_contexts;
  int num_streams;
  int num_events;
  // By cuMemAlloc, cuMemCreate and imports.
  int num_allocations;
  // By cuMemMap and cuIpcOpenMemHandle.
  int num_mappings;
  // By cuMemHostAlloc and cuMemHostRegister.
  int num_pinned;
  int num_captures;
  // Contexts that this thread made current and did not restore.
  int num_current;
  // Times that memory was unmapped while a stream had work left.
  int num_unmapped_under_work;
  int num_findings;
};

extern "C" {

DatasetdEmulatedGpuCounts datasetd_emulated_gpu_counts(void);

// Holds a stream back: nothing of it starts until it is let go or advanced.
// Waiting for it meanwhile blocks. 0 is the current context's legacy stream.
// CUDA_ERROR_INVALID_HANDLE for a stream that there is not.
CUresult datasetd_emulated_gpu_hold(CUstream stream, int is_held);

// Likewise all streams that are created from now on.
void datasetd_emulated_gpu_hold_new(int is_held);

// Returns the newest stream that there is; null: there is none.
CUstream datasetd_emulated_gpu_newest_stream(void);

// Runs what a held stream has been given, and returns when that is done or
// waits for another stream; what is then left is held again.
CUresult datasetd_emulated_gpu_advance(CUstream stream);

// Replaces DATASETD_EMULATED_GPU_FAULTS; "" for none.
CUresult datasetd_emulated_gpu_set_faults(const char* faults);

// Sets an attribute of all devices, as DATASETD_EMULATED_GPU_ATTRIBUTES does.
void datasetd_emulated_gpu_set_attribute(CUdevice_attribute attribute,
                                         int value);

}  // extern "C"

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_CONTROLS_H_
