// Reads batches of CIFAR-10 from a datasetd daemon and sums the pixels.
//
//   read_batches DIR [--seed 1] [--batch_size 512] [--epochs 2]
//
// DIR is the directory of the binary version of CIFAR-10 in the daemon's file
// system. The daemon is at --address, else at $DATASETD_ADDRESS, else the
// system's. Pixels on a GPU are not summed.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/client.h"
#include "client/feed/feed.h"

namespace datasetd {
namespace {

struct Flags {
  std::string path;
  std::string address;
  std::string name = "cifar10-train";
  std::string device;
  std::string transforms = "crop_flip";
  uint64_t seed = 0;
  uint32_t batch_size = 512;
  uint64_t num_epochs = 1;
  uint64_t num_batches = 0;
};

void AddTransforms(const std::string& preset, v1::FieldOptions* image) {
  if (preset == "crop_flip") {
    v1::RandomCrop* const crop = image->add_transforms()->mutable_random_crop();
    crop->set_height(32);
    crop->set_width(32);
    crop->set_padding_mode(v1::PADDING_MODE_REFLECT);
    v1::Padding* const padding = crop->mutable_padding();
    padding->set_left(4);
    padding->set_top(4);
    padding->set_right(4);
    padding->set_bottom(4);
  }
  if (preset != "none") {
    image->add_transforms()->mutable_random_horizontal_flip();
  }
}

// Sums a uint8 image [N, C, H, W] stored as [N, H, W, C].
uint64_t SumOf(const client::FieldView& image) {
  int64_t num_bytes = 1;
  for (int i = 0; i < image.num_dimensions; ++i) num_bytes *= image.shape[i];
  const auto* const bytes = static_cast<const uint8_t*>(image.data);
  uint64_t sum = 0;
  for (int64_t i = 0; i < num_bytes; ++i) sum += bytes[i];
  return sum;
}

absl::Status Read(const Flags& flags) {
  ClientOptions client_options;
  client_options.address = flags.address;
  DATASETD_ASSIGN_OR_RETURN(Client client, Client::Connect(client_options));

  v1::DatasetSpec spec;
  spec.set_name(flags.name);
  spec.set_format("cifar10");
  spec.set_path(flags.path);
  spec.set_split("train");
  spec.set_device(flags.device);
  DATASETD_ASSIGN_OR_RETURN(const v1::Dataset dataset,
                            client.LoadDataset(spec));

  v1::FeedOptions options;
  options.set_dataset(dataset.name());
  options.set_batch_size(flags.batch_size);
  options.set_shuffle(true);
  options.set_seed(flags.seed);
  options.set_drop_last(true);
  options.set_name("read_batches");
  v1::FieldOptions& image = (*options.mutable_fields())["image"];
  image.set_layout(v1::LAYOUT_NHWC);
  AddTransforms(flags.transforms, &image);
  DATASETD_ASSIGN_OR_RETURN(client::Feed feed, client.OpenFeed(options));

  uint64_t num_batches = flags.num_epochs * feed.batches_per_epoch();
  if (flags.num_batches > 0 && flags.num_batches < num_batches) {
    num_batches = flags.num_batches;
  }
  uint64_t num_samples = 0;
  const bool is_host = dataset.device() == "cpu";
  uint64_t sum = 0;
  const absl::Time start = absl::Now();
  for (uint64_t i = 0; i < num_batches; ++i) {
    DATASETD_ASSIGN_OR_RETURN(const client::Batch batch, feed.Next());
    num_samples += batch.num_samples();
    if (is_host) sum += SumOf(batch.field(0));
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::printf(
      "read_batches seed=%llu: %.0f samples/s, %llu batches, waited %.3f s of "
      "%.3f s, %s\n",
      static_cast<unsigned long long>(flags.seed),
      static_cast<double>(num_samples) / seconds,
      static_cast<unsigned long long>(num_batches),
      absl::ToDoubleSeconds(feed.waited()), seconds,
      (is_host ? absl::StrCat("pixel sum ", sum)
               : absl::StrCat("pixels on ", dataset.device()))
          .c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Reads batches of CIFAR-10 from a datasetd daemon.");
  Flags flags;
  app.add_option("path", flags.path, "Directory of the binary CIFAR-10")
      ->required();
  app.add_option("--address", flags.address, "The daemon's socket");
  app.add_option("--name", flags.name, "Of the dataset");
  app.add_option("--device", flags.device, "Of the daemon");
  app.add_option("--seed", flags.seed, "Of order and augmentation");
  app.add_option("--batch_size", flags.batch_size, "Samples of a batch");
  app.add_option("--transforms", flags.transforms, "none, flip or crop_flip")
      ->check(CLI::IsMember({"none", "flip", "crop_flip"}));
  app.add_option("--epochs", flags.num_epochs, "How many");
  app.add_option("--batches", flags.num_batches, "Stop after; 0: all");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Read(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "read_batches: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) { return datasetd::Main(argc, argv); }
