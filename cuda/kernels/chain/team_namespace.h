// Namespace of the templates over a team (chain_executor.h).
//
// A source that defines HWY_TARGET_INCLUDE compiles them once for each target
// of Highway (hwy/foreach_target.h): the headers are included again for each,
// with that target's instructions and in a namespace of its own, so that the
// linker cannot merge functions of different targets. All other sources, and
// nvcc, include them once, in namespace datasetd. Such a header reads
//
//   #if defined(GUARD_H_) == defined(HWY_TARGET_TOGGLE)
//   #ifdef GUARD_H_
//   #undef GUARD_H_
//   #else
//   #define GUARD_H_
//   #endif
//   #include ...
//   DATASETD_BEFORE_NAMESPACE();
//   namespace DATASETD_TEAM_NAMESPACE {
//   ...
//   }  // namespace DATASETD_TEAM_NAMESPACE
//   DATASETD_AFTER_NAMESPACE();
//   #endif
//
// DATASETD_TEAM_ATTR follows the parameters of a lambda that uses vectors.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_TEAM_NAMESPACE_H_
#define DATASETD_CUDA_KERNELS_CHAIN_TEAM_NAMESPACE_H_

#if defined(HWY_TARGET_INCLUDE)
#define DATASETD_BEFORE_NAMESPACE() HWY_BEFORE_NAMESPACE()
#define DATASETD_AFTER_NAMESPACE() HWY_AFTER_NAMESPACE()
#define DATASETD_TEAM_NAMESPACE datasetd::HWY_NAMESPACE
#define DATASETD_TEAM_ATTR HWY_ATTR
#else
#define DATASETD_BEFORE_NAMESPACE() static_assert(true, "")
#define DATASETD_AFTER_NAMESPACE() static_assert(true, "")
#define DATASETD_TEAM_NAMESPACE datasetd
#define DATASETD_TEAM_ATTR
#endif

#endif  // DATASETD_CUDA_KERNELS_CHAIN_TEAM_NAMESPACE_H_
