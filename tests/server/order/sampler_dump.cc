// Prints orders for sampler_order_test.py. Each line of standard input is
//   num_samples batch_size shuffle drop_last seed rank world_size epoch
// and is answered by 64-bit words: the number of batches, then for each batch
// its samples, its padding, and the indices.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "server/order/sampler.h"

namespace {

void Write(const int64_t* words, size_t count) {
  std::fwrite(words, sizeof(*words), count, stdout);
}

}  // namespace

int main() {
  datasetd::SamplerOptions options;
  uint64_t epoch = 0;
  while (std::cin >> options.num_samples >> options.batch_size >>
         options.shuffle >> options.drop_last >> options.seed >> options.rank >>
         options.world_size >> epoch) {
    auto sampler = datasetd::Sampler::Create(options);
    if (!sampler.ok()) {
      std::cerr << sampler.status() << "\n";
      return 1;
    }
    std::vector<int64_t> indices(options.batch_size);
    const int64_t num_batches = (*sampler)->batches_per_epoch();
    Write(&num_batches, 1);
    for (int64_t batch = 0; batch < num_batches; ++batch) {
      const auto shape =
          (*sampler)->Fill(epoch, batch, absl::MakeSpan(indices));
      const int64_t head[] = {shape.num_samples, shape.num_padding};
      Write(head, 2);
      Write(indices.data(), shape.num_samples);
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
