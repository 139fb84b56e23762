// Macros for code that both the host compiler and nvcc compile.
//
// DATASETD_HOST_DEVICE before a function; DATASETD_UNROLL before a loop of
// constant length whose arrays must stay in registers on the device;
// DATASETD_UNROLL_FEW before one of few turns whose vectors must stay in
// registers on the host; DATASETD_NO_UNROLL before one that nvcc would unroll
// for code alone;
// DATASETD_FLATTEN before a function whose calls the host compiler must inline,
// so that its loops become vectors; DATASETD_NOINLINE before one that it must
// not copy into each of its callers; DATASETD_CALLED_ON_DEVICE instead of
// inline before one that nvcc must not copy; DATASETD_FORCE_INLINE instead of
// inline before one that must not be called on the device, since its arguments
// would leave their registers; DATASETD_CHECK_BOUND(condition) ends the host's
// process unless it holds.

#ifndef DATASETD_CUDA_KERNELS_MATH_HOST_DEVICE_H_
#define DATASETD_CUDA_KERNELS_MATH_HOST_DEVICE_H_

#if !defined(__CUDA_ARCH__)
#include "base/require.h"
#endif

#if defined(__CUDACC__)
#define DATASETD_HOST_DEVICE __host__ __device__
#else
#define DATASETD_HOST_DEVICE
#endif

#if defined(__CUDA_ARCH__)
#define DATASETD_UNROLL _Pragma("unroll")
#define DATASETD_NO_UNROLL _Pragma("unroll 1")
#define DATASETD_CHECK_BOUND(condition) ((void)0)
#else
#define DATASETD_UNROLL
#define DATASETD_NO_UNROLL
#define DATASETD_CHECK_BOUND(condition) \
  ::datasetd::Require(condition, #condition)
#endif

#if defined(__CUDA_ARCH__) || defined(__clang__)
#define DATASETD_UNROLL_FEW _Pragma("unroll")
#else
#define DATASETD_UNROLL_FEW _Pragma("GCC unroll 8")
#endif

#if defined(__CUDACC__)
#define DATASETD_FLATTEN
#define DATASETD_NOINLINE __noinline__
#define DATASETD_FORCE_INLINE __forceinline__
#define DATASETD_CALLED_ON_DEVICE __noinline__
#else
#define DATASETD_FLATTEN __attribute__((flatten))
#define DATASETD_NOINLINE __attribute__((noinline))
#define DATASETD_FORCE_INLINE inline
#define DATASETD_CALLED_ON_DEVICE inline
#endif

#endif  // DATASETD_CUDA_KERNELS_MATH_HOST_DEVICE_H_
