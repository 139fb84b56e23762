// For fatbin_test.

extern "C" __global__ void AddKernel(int* values, int count, int addend) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += addend;
}
