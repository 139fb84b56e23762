#include "client/ctl/preview/preview_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/preview/contact_sheet.h"
#include "client/ctl/preview/png_file.h"
#include "client/ctl/preview/sample_images.h"
#include "client/ctl/transforms_argument.h"

namespace datasetd::ctl {
namespace {

// Returns the field of that name, or the first image if the name is empty.
absl::StatusOr<v1::Field> FindImage(const v1::Dataset& dataset,
                                    const std::string& name) {
  std::vector<std::string> images;
  for (const v1::Field& field : dataset.fields()) {
    if (!field.is_image() || field.shape_size() != 3) continue;
    if (name.empty() || field.name() == name) return field;
    images.push_back(field.name());
  }
  return absl::NotFoundError(absl::StrCat(
      "dataset '", dataset.name(), "' has no image field",
      name.empty() ? "" : absl::StrCat(" '", name, "'"), "; its image fields: ",
      images.empty() ? "none" : absl::StrJoin(images, ", ")));
}

bool IsRagged(const v1::Field& field) {
  return field.shape_size() == 3 && field.shape(0) < 0;
}

class PreviewCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "preview"; }
  const char* help() const override {
    return "Write a PNG contact sheet with one row per sample: the "
           "original on the left, then one column per epoch, as a "
           "job with this seed receives it";
  }

  void AddTo(Arguments* arguments) override {
    arguments->Add("name", &range_.dataset, "Name of the dataset").Required();
    arguments->Add("--output", &output_, "Output file").ShowDefault();
    range_.num_samples = 8;
    range_.num_epochs = 8;
    arguments
        ->Add("--samples,--rows", &range_.num_samples,
              "Number of samples, one per row")
        .Between(1, 256)
        .ShowDefault();
    arguments
        ->Add("--epochs,--columns", &range_.num_epochs,
              "Number of epochs, one per column")
        .Between(1, 64)
        .ShowDefault();
    arguments->Add("--first", &range_.first_sample, "Index of the first sample")
        .ShowDefault();
    arguments->Add("--seed", &range_.seed, "Seed of the job").ShowDefault();
    arguments->Add("--epoch", &range_.first_epoch, "First epoch").ShowDefault();
    arguments->Add("--field", &range_.field,
                   "Image field; default: the first one");
    arguments
        ->Add("--zoom", &zoom_,
              "Magnification; 0: enlarge images to about 96 pixels")
        .Between(0, 64)
        .ShowDefault();
    arguments
        ->Add("--transforms", &transforms_,
              "none; or crop, flip, vflip, altflip, resizedcrop, rotate, "
              "jitter joined by '-'; or a JSON list of Transform "
              "messages; or @FILE that holds one")
        .ShowDefault();
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    const auto dataset = client->GetDataset(range_.dataset);
    if (!dataset.ok()) return Fail(dataset.status());
    const auto field = FindImage(*dataset, range_.field);
    if (!field.ok()) return Fail(field.status());
    range_.field = field->name();
    range_.dtype = field->dtype();

    const auto num_samples = static_cast<uint64_t>(dataset->num_samples());
    if (range_.first_sample >= num_samples) {
      return FailUsage(absl::StrCat("--first ", range_.first_sample,
                                    ": the dataset has ", num_samples,
                                    " samples, from 0"));
    }
    range_.num_samples = static_cast<uint32_t>(std::min<uint64_t>(
        range_.num_samples, num_samples - range_.first_sample));

    // Presets depend on the image's size.
    auto pipeline =
        IsRagged(*field)
            ? ParseTransforms(transforms_, field->smallest().height(),
                              field->smallest().width())
            : ParseTransforms(transforms_, field->shape(0), field->shape(1));
    if (!pipeline.ok()) {
      return FailUsage(std::string(pipeline.status().message()));
    }
    const std::vector<std::string> left_out = TakeNumberOps(&*pipeline);

    SampleRange once = range_;
    once.num_epochs = 1;
    auto originals = DrawSampleImages(&*client, once, v1::Pipeline());
    if (!originals.ok()) return Fail(originals.status());
    auto augmented = DrawSampleImages(&*client, range_, *pipeline);
    if (!augmented.ok()) return Fail(augmented.status());

    std::vector<ContactRow> rows(range_.num_samples);
    for (uint32_t i = 0; i < range_.num_samples; ++i) {
      rows[i].original = std::move((*originals)[0][i]);
      for (auto& epoch : *augmented) {
        rows[i].augmented.push_back(std::move(epoch[i]));
      }
    }
    const int zoom = zoom_ > 0 ? zoom_
                               : DefaultZoom(rows[0].original.height,
                                             rows[0].original.width);
    const absl::StatusOr<RgbImage> sheet = MakeContactSheet(rows, zoom);
    if (!sheet.ok()) return Fail(sheet.status());
    const absl::Status written = WritePng(*sheet, output_);
    if (!written.ok()) return Fail(written);

    if (flags().json) {
      const nlohmann::json result = {
          {"output", std::filesystem::absolute(output_).string()},
          {"width", sheet->width},
          {"height", sheet->height},
          {"num_samples", range_.num_samples},
          {"num_epochs", range_.num_epochs},
          {"left_out", left_out}};
      // A file's name need not be UTF-8.
      return Print(absl::StrCat(
          result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace),
          "\n"));
    }
    std::string text =
        absl::StrCat(output_, ": ", sheet->width, "x", sheet->height, ", ",
                     range_.num_samples, " samples, the original and ",
                     range_.num_epochs, " epochs each\n");
    if (!left_out.empty()) {
      absl::StrAppend(&text,
                      "left out, as they change numbers and no picture: ",
                      absl::StrJoin(left_out, ", "), "\n");
    }
    return Print(text);
  }

 private:
  SampleRange range_;
  std::string transforms_ = "crop-flip";
  std::string output_ = "preview.png";
  int zoom_ = 0;  // 0: about 96 pixels an image
};

}  // namespace

std::unique_ptr<Command> MakePreviewCommand(const GlobalFlags* flags) {
  return std::make_unique<PreviewCommand>(flags);
}

}  // namespace datasetd::ctl
