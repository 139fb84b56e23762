// Counts the labels of one epoch and computes the mean of its pixels with the C
// API. A program outside of datasetd's source tree that only needs its package
// and DLPack's header (Debian's libdlpack-dev).
//
//   count_labels DIR [train|test]
//
// DIR is the directory of the binary version of CIFAR-10 in the daemon's file
// system. The daemon is at $DATASETD_ADDRESS, else the system's. Pixels on a
// GPU are not read.

#include <datasetd.h>
#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

constexpr uint32_t kImage = 0;  // fields of CIFAR-10, in their order
constexpr uint32_t kLabel = 1;
constexpr int64_t kTimeoutNanoseconds = 60'000'000'000;

// Ends the program if a call failed.
void Check(int32_t code, const datasetd_error& error) {
  if (code == DATASETD_OK) return;
  std::fprintf(stderr, "count_labels: %s\n", error.message);
  std::exit(1);
}

struct Deleter {
  void operator()(datasetd_client* client) { datasetd_client_close(client); }
  void operator()(datasetd_feed* feed) { datasetd_feed_close(feed); }
  void operator()(DLManagedTensor* tensor) { datasetd_tensor_delete(tensor); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

// Returns `text` as a JSON string.
std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// A field of a batch; it shares the daemon's memory.
Owned<DLManagedTensor> TensorOf(const datasetd_batch& batch, uint32_t field) {
  datasetd_error error = {};
  error.struct_size = sizeof(error);
  DLManagedTensor* tensor = nullptr;
  Check(datasetd_batch_dlpack(&batch, field, &tensor, &error), error);
  return Owned<DLManagedTensor>(tensor);
}

template <typename T>
const T* DataOf(const DLTensor& tensor) {
  return reinterpret_cast<const T*>(static_cast<const char*>(tensor.data) +
                                    tensor.byte_offset);
}

int64_t SizeOf(const DLTensor& tensor) {
  int64_t size = 1;
  for (int i = 0; i < tensor.ndim; ++i) size *= tensor.shape[i];
  return size;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: count_labels DIR [train|test]\n");
    return 2;
  }
  const std::string split = argc == 3 ? argv[2] : "train";
  datasetd_error error = {};
  error.struct_size = sizeof(error);

  datasetd_client* raw_client = nullptr;
  Check(datasetd_client_connect(nullptr, &raw_client, &error), error);
  const Owned<datasetd_client> client(raw_client);

  const std::string name = "count-labels-" + split;
  const std::string spec =
      "{\"name\": " + Quote(name) +
      ", \"format\": \"cifar10\", \"split\": " + Quote(split) +
      ", \"path\": " + Quote(argv[1]) + "}";
  char* dataset_json = nullptr;
  Check(datasetd_load_dataset(client.get(), spec.c_str(), nullptr, nullptr,
                              &dataset_json, &error),
        error);
  datasetd_free(dataset_json);

  const std::string options = "{\"dataset\": " + Quote(name) +
                              ", \"batch_size\": 100, \"shuffle\": true, "
                              "\"seed\": \"1\", \"name\": \"count_labels\"}";
  datasetd_feed* raw_feed = nullptr;
  Check(datasetd_feed_open(client.get(), options.c_str(), nullptr, &raw_feed,
                           nullptr, &error),
        error);
  const Owned<datasetd_feed> feed(raw_feed);

  std::array<uint64_t, 10> counts = {};
  uint64_t num_samples = 0;
  double sum = 0;
  uint64_t num_pixels = 0;
  while (true) {
    datasetd_batch batch = {};
    batch.struct_size = sizeof(batch);
    Check(datasetd_feed_next(feed.get(), 0, kTimeoutNanoseconds, &batch,
                             nullptr, 0, 0, &error),
          error);
    const bool is_over = batch.epoch > 0;
    if (!is_over) {
      num_samples += batch.num_samples;
      const auto labels = TensorOf(batch, kLabel);
      const auto images = TensorOf(batch, kImage);
      if (labels->dl_tensor.device.device_type == kDLCPU) {
        const auto* const label = DataOf<int64_t>(labels->dl_tensor);
        for (uint32_t i = 0; i < batch.num_samples; ++i) ++counts[label[i]];
        const auto* const pixel = DataOf<uint8_t>(images->dl_tensor);
        const int64_t size = SizeOf(images->dl_tensor);
        for (int64_t i = 0; i < size; ++i) sum += pixel[i];
        num_pixels += static_cast<uint64_t>(size);
      }
    }
    datasetd_batch_release(&batch);
    if (is_over) break;
  }
  std::printf("%llu samples\n", static_cast<unsigned long long>(num_samples));
  if (num_pixels > 0) {
    std::printf("labels");
    for (const uint64_t count : counts) {
      std::printf(" %llu", static_cast<unsigned long long>(count));
    }
    std::printf("\nmean %.4f\n", sum / static_cast<double>(num_pixels));
  }
  return 0;
}
