// The controls of the fake CUDA driver, found by dlsym.

#ifndef DATASETD_TESTS_CLIENT_FAKE_CUDA_H_
#define DATASETD_TESTS_CLIENT_FAKE_CUDA_H_

#include <cstdint>

struct FakeCudaCounts {
  int num_mappings;
  int num_registered;
  int num_events;
  // Contexts that were made current and not restored.
  int num_contexts;
  // Calls that a GPU would have suffered from: without a context, into a
  // capture, or memory unmapped under work.
  int num_violations;
};

extern "C" {
// Runs what the stream was given, as far as its waits allow.
void fake_cuda_run(uint64_t stream);
// Work of the caller's; adds 1 to `done` when it runs.
void fake_cuda_give_work(uint64_t stream, int* done);
void fake_cuda_set_capturing(uint64_t stream, int is_capturing);
// Whether streams can write values.
void fake_cuda_set_write_value(int has_write_value);
FakeCudaCounts fake_cuda_counts();
}

#endif  // DATASETD_TESTS_CLIENT_FAKE_CUDA_H_
