// Macros for code that both the host compiler and nvcc compile.
//
// DATASETD_HOST_DEVICE before a function; DATASETD_UNROLL before a loop of
// constant length whose arrays must stay in registers on the device;
// DATASETD_FLATTEN before a function whose calls the host compiler must inline,
// so that its loops become vectors; DATASETD_NOINLINE before one that it must
// not copy into each of its callers; DATASETD_CHECK_BOUND(condition) for what
// debug builds of the host check.

#ifndef DATASETD_CUDA_KERNELS_MATH_HOST_DEVICE_H_
#define DATASETD_CUDA_KERNELS_MATH_HOST_DEVICE_H_

#if !defined(__CUDA_ARCH__)
#include <cassert>
#endif

#if defined(__CUDACC__)
#define DATASETD_HOST_DEVICE __host__ __device__
#else
#define DATASETD_HOST_DEVICE
#endif

#if defined(__CUDA_ARCH__)
#define DATASETD_UNROLL _Pragma("unroll")
#define DATASETD_CHECK_BOUND(condition) ((void)0)
#else
#define DATASETD_UNROLL
#define DATASETD_CHECK_BOUND(condition) assert(condition)
#endif

#if defined(__CUDACC__)
#define DATASETD_FLATTEN
#define DATASETD_NOINLINE __noinline__
#else
#define DATASETD_FLATTEN __attribute__((flatten))
#define DATASETD_NOINLINE __attribute__((noinline))
#endif

#endif  // DATASETD_CUDA_KERNELS_MATH_HOST_DEVICE_H_
