// Finds the PTX in what cuModuleLoadData takes: PTX text, or the container that
// `nvcc -fatbin` writes. The container's layout is not documented; what is used
// of it was seen in the files that the toolkit writes.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_FATBIN_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_FATBIN_H_

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace datasetd::emulated_driver {

struct FatbinEntry {
  bool is_ptx = false;
  // 90 for sm_90 and compute_90.
  int architecture = 0;
  // Compressed with zstd, which needs a driver of CUDA 12.4.
  bool is_zstd = false;
  // Machine code: the version of its ABI, 7 of CUDA 11 and 12, 8 of 13 and, for
  // 10.0 and 12.0, of 12.8 and 12.9.
  int abi = 0;
  // PTX: its text. Machine code is not kept.
  std::string text;
};

// Reads the container at `image`, whose header says how long it is. False if it
// cannot be read; `why` says what is there.
bool ReadFatbin(const void* image, std::vector<FatbinEntry>* entries,
                std::string* why);

struct Selection {
  // The image that a GPU would run: "sm_80", or "compute_80" for PTX.
  std::string image;
  // That PTX, or the one beside the machine code.
  std::string ptx;
  // Of the PTX's .version directive, 83 for 8.3.
  int version = 0;
};

// Finds what a GPU of this compute capability (90 for 9.0) would run of the
// image.
//   CUDA_ERROR_NO_BINARY_FOR_GPU        neither machine code nor PTX for it; or
//                                       machine code, and no PTX at all
//   CUDA_ERROR_UNSUPPORTED_PTX_VERSION  newer than the driver
//   CUDA_ERROR_INVALID_IMAGE            neither PTX nor a container; machine
//                                       code or a compression that the driver
//                                       is too old for
CUresult SelectPtx(const void* image, int capability, int driver_version,
                   Selection* selection, std::string* why);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_FATBIN_H_
