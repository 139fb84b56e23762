// Marks functions that both the host compiler and nvcc compile.

#ifndef DATASETD_CUDA_KERNELS_HOST_DEVICE_H_
#define DATASETD_CUDA_KERNELS_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define DATASETD_HOST_DEVICE __host__ __device__
#else
#define DATASETD_HOST_DEVICE
#endif

#endif  // DATASETD_CUDA_KERNELS_HOST_DEVICE_H_
