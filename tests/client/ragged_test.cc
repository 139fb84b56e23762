// Images of several sizes, as the C++ and the C client report them, with a
// daemon of the test's own.

#include <dlpack/dlpack.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c_api/datasetd.h"
#include "client/client.h"
#include "client/ctl/private_daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Height and width.
constexpr int32_t kSizes[][2] = {{4, 5}, {7, 2}, {3, 9}};
constexpr int64_t kNumPixels = 20 + 14 + 27;

uint8_t Pixel(int sample, int y, int x, int c) {
  return static_cast<uint8_t>(100 * sample + 10 * y + 3 * x + c);
}

// PushDatasetRequest.block: sizes, then images and labels.
std::vector<uint8_t> Block() {
  std::vector<uint8_t> block(sizeof(kSizes));
  std::memcpy(block.data(), kSizes, sizeof(kSizes));
  for (int i = 0; i < 3; ++i) {
    for (int y = 0; y < kSizes[i][0]; ++y) {
      for (int x = 0; x < kSizes[i][1]; ++x) {
        for (int c = 0; c < 3; ++c) block.push_back(Pixel(i, y, x, c));
      }
    }
    for (int byte = 0; byte < 8; ++byte) {
      block.push_back(byte == 0 ? static_cast<uint8_t>(50 + i) : 0);
    }
  }
  return block;
}

// 24 bits, from the bottom up; rows are filled up to 4 bytes.
void WriteBmp(const std::string& path, int height, int width) {
  const int row_bytes = (3 * width + 3) / 4 * 4;
  std::string file(54 + static_cast<size_t>(row_bytes * height), '\x20');
  std::fill(file.begin(), file.begin() + 54, '\0');
  file[0] = 'B';
  file[1] = 'M';
  file[2] = static_cast<char>(file.size());
  file[10] = 54;
  file[14] = 40;
  file[18] = static_cast<char>(width);
  file[22] = static_cast<char>(height);
  file[26] = 1;
  file[28] = 24;
  std::ofstream(path, std::ios::binary) << file;
}

void ExpectSizes(const v1::Field& field, int64_t height, int64_t width,
                 int64_t max_height, int64_t max_width) {
  EXPECT_THAT(field.shape(), ElementsAre(-1, -1, 3));
  EXPECT_TRUE(field.is_image());
  EXPECT_EQ(field.smallest().height(), height);
  EXPECT_EQ(field.smallest().width(), width);
  EXPECT_EQ(field.largest().height(), max_height);
  EXPECT_EQ(field.largest().width(), max_width);
}

class RaggedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto program = ctl::FindDaemon("");
    ASSERT_THAT(program, IsOk());
    auto daemon = ctl::PrivateDaemon::Start(
        {.program = *program,
         .directory = folder_.File("daemon"),
         .arguments = {"--device=cpu", "--data_root=/",
                       absl::StrCat("--exit_with_parent=", getpid())}});
    ASSERT_THAT(daemon, IsOk());
    daemon_ = *std::move(daemon);
    address_ = daemon_->address();
    for (int i = 0; i < 2; ++i) {
      std::filesystem::create_directory(folder_.path() / "a");
      WriteBmp(folder_.File(absl::StrCat("a/", i, ".bmp")), kSizes[i][0],
               kSizes[i][1]);
    }
  }

  void TearDown() override {
    if (daemon_.has_value()) daemon_->Stop();
  }

  TempDir folder_{TempDir::Place::kShortPath};
  std::optional<ctl::PrivateDaemon> daemon_;
  std::string address_;
};

TEST_F(RaggedTest, CppTellsTheSizesAndServesTheField) {
  auto client = Client::Connect({.address = address_});
  ASSERT_THAT(client, IsOk());
  v1::PushHeader header;
  header.set_name("r");
  header.set_num_samples(3);
  v1::Field* image = header.add_fields();
  image->set_name("image");
  image->set_dtype(v1::DTYPE_UINT8);
  for (const int64_t extent : {-1, -1, 3}) image->add_shape(extent);
  image->set_is_image(true);
  image->mutable_largest()->set_height(7);
  image->mutable_largest()->set_width(9);
  image->set_num_pixels(kNumPixels);
  v1::Field* label = header.add_fields();
  label->set_name("label");
  label->set_dtype(v1::DTYPE_INT64);
  auto push = client->PushDataset(header);
  ASSERT_THAT(push, IsOk());
  ASSERT_THAT(push->Write(Block()), IsOk());
  const auto pushed = push->Finish();
  ASSERT_THAT(pushed, IsOk());
  const auto got = client->GetDataset("r");
  ASSERT_THAT(got, IsOk());
  const auto all = client->ListDatasets();
  ASSERT_THAT(all, IsOk());
  ASSERT_EQ(all->size(), 1u);
  for (const v1::Dataset& dataset : {*pushed, *got, (*all)[0]}) {
    ASSERT_EQ(dataset.fields_size(), 2);
    ExpectSizes(dataset.fields(0), 3, 2, 7, 9);
    EXPECT_EQ(dataset.fields(0).num_pixels(), kNumPixels);
    EXPECT_EQ(dataset.fields(1).shape_size(), 0);
    EXPECT_FALSE(dataset.fields(1).has_smallest());
    EXPECT_FALSE(dataset.fields(1).has_largest());
    // At most: the pixels, each sample filled up to a multiple of 16 bytes; for
    // each sample, 16 bytes of index and a label of 8.
    EXPECT_EQ(dataset.resident_bytes(),
              (kNumPixels * 3 + 3 * 15 + 15) / 16 * 16 + 3 * (16 + 8));
  }

  v1::FeedOptions options;
  options.set_dataset("r");
  options.set_batch_size(3);
  EXPECT_THAT(client->OpenFeed(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("its samples have sizes from 3x2 to 7x9")));
  auto* const crop =
      (*options.mutable_fields())["image"].add_transforms()->mutable_crop();
  crop->set_top(1);
  crop->set_height(2);
  crop->set_width(2);
  auto feed = client->OpenFeed(options);
  ASSERT_THAT(feed, IsOk());
  const auto batch = feed->Next();
  ASSERT_THAT(batch, IsOk());
  const FieldView view = batch->field(0);
  ASSERT_EQ(view.num_dimensions, 4);
  EXPECT_EQ(view.shape[2], 2);
  const auto* pixel = static_cast<const uint8_t*>(view.data);
  for (int i = 0; i < 3; ++i) {
    for (int c = 0; c < 3; ++c) {
      for (int y = 1; y < 3; ++y) {
        for (int x = 0; x < 2; ++x) EXPECT_EQ(*pixel++, Pixel(i, y, x, c));
      }
    }
  }

  options.mutable_fields()->clear();
  options.add_field_names("label");
  auto labels = client->OpenFeed(options);
  ASSERT_THAT(labels, IsOk());
  const auto alone = labels->Next();
  ASSERT_THAT(alone, IsOk());
  ASSERT_EQ(alone->num_fields(), 1);
  EXPECT_STREQ(alone->field(0).name, "label");
  EXPECT_EQ(static_cast<const int64_t*>(alone->field(0).data)[2], 52);
  options.add_field_names("label");
  EXPECT_THAT(client->OpenFeed(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field_names: 'label' is named twice")));
}

TEST_F(RaggedTest, CppTellsTheSizesOfADryRunAndALoad) {
  auto client = Client::Connect({.address = address_});
  ASSERT_THAT(client, IsOk());
  v1::DatasetSpec spec;
  spec.set_name("b");
  spec.set_format("image_folder");
  spec.set_path(folder_.path().string());
  const auto estimate = client->EstimateLoad(spec);
  ASSERT_THAT(estimate, IsOk());
  EXPECT_EQ(estimate->problem(), "");
  ExpectSizes(estimate->fields(0), 4, 2, 7, 5);
  EXPECT_EQ(estimate->smallest().width(), 2);
  EXPECT_EQ(estimate->largest().height(), 7);
  const auto dataset = client->LoadDataset(spec);
  ASSERT_THAT(dataset, IsOk());
  ExpectSizes(dataset->fields(0), 4, 2, 7, 5);
  EXPECT_EQ(dataset->resident_bytes(), estimate->resident_bytes());
}

// Owns what the C API allocated.
class Text {
 public:
  ~Text() { datasetd_free(text_); }
  char** receive() { return &text_; }
  std::string get() const { return text_ == nullptr ? "" : text_; }

 private:
  char* text_ = nullptr;
};

constexpr char kSizesJson[] =
    R"("shape":["-1","-1","3"],"is_image":true,"is_mask":false,)"
    R"("smallest":{"height":"3","width":"2"},)"
    R"("largest":{"height":"7","width":"9"},"num_pixels":"61")";

TEST_F(RaggedTest, RefusesAPushBeforeItsFirstSample) {
  auto client = Client::Connect({.address = address_});
  ASSERT_THAT(client, IsOk());
  v1::PushHeader header;
  header.set_name("p");
  header.set_num_samples(1);
  v1::Field* field = header.add_fields();
  field->set_name("x");
  field->set_dtype(v1::DTYPE_UINT8);
  {
    auto push = client->PushDataset(header);
    ASSERT_THAT(push, IsOk());
    const uint8_t byte = 7;
    ASSERT_THAT(push->Write(absl::MakeConstSpan(&byte, 1)), IsOk());
    ASSERT_THAT(push->Finish(), IsOk());
  }
  EXPECT_THAT(client->PushDataset(header),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'p'")));
  header.set_name("q");
  header.set_num_samples(int64_t{1} << 40);
  EXPECT_EQ(client->PushDataset(header).status().code(),
            absl::StatusCode::kResourceExhausted);
  header.set_num_samples(0);
  EXPECT_EQ(client->PushDataset(header).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RaggedTest, CTellsTheSizesAndServesTheField) {
  datasetd_error error = {};
  error.struct_size = sizeof(error);
  datasetd_client_options options = {};
  options.struct_size = sizeof(options);
  options.address = address_.c_str();
  datasetd_client* client = nullptr;
  ASSERT_EQ(datasetd_client_connect(&options, &client, &error), DATASETD_OK)
      << error.message;
  datasetd_push* push = nullptr;
  ASSERT_EQ(datasetd_push_begin(client,
                                R"({"name": "r", "num_samples": 3, "fields": [
                    {"name": "image", "dtype": "DTYPE_UINT8",
                     "shape": [-1, -1, 3], "is_image": true,
                     "largest": {"height": 7, "width": 9}, "num_pixels": 61},
                    {"name": "label", "dtype": "DTYPE_INT64"}]})",
                                nullptr, nullptr, &push, &error),
            DATASETD_OK)
      << error.message;
  const std::vector<uint8_t> block = Block();
  ASSERT_EQ(datasetd_push_write(push, block.data(), block.size(), &error),
            DATASETD_OK)
      << error.message;
  Text pushed, got, all, estimate, info;
  ASSERT_EQ(datasetd_push_finish(push, pushed.receive(), &error), DATASETD_OK)
      << error.message;
  datasetd_push_close(push);
  EXPECT_THAT(pushed.get(), HasSubstr(kSizesJson));
  ASSERT_EQ(datasetd_call(client, "GetDataset", R"({"name": "r"})",
                          got.receive(), &error),
            DATASETD_OK);
  EXPECT_THAT(got.get(), HasSubstr(kSizesJson));
  ASSERT_EQ(datasetd_call(client, "ListDatasets", "{}", all.receive(), &error),
            DATASETD_OK);
  EXPECT_THAT(all.get(), HasSubstr(kSizesJson));
  const std::string spec =
      absl::StrCat(R"({"name": "b", "format": "image_folder", "path": ")",
                   folder_.path().string(), R"("})");
  ASSERT_EQ(datasetd_estimate_load(client, spec.c_str(), nullptr, nullptr,
                                   estimate.receive(), &error),
            DATASETD_OK)
      << error.message;
  EXPECT_THAT(estimate.get(),
              HasSubstr(R"("smallest":{"height":"4","width":"2"},)"
                        R"("largest":{"height":"7","width":"5"})"));

  datasetd_feed* feed = nullptr;
  EXPECT_EQ(datasetd_feed_open(client, R"({"dataset": "r", "batch_size": 3})",
                               nullptr, &feed, nullptr, &error),
            DATASETD_INVALID_ARGUMENT);
  EXPECT_THAT(error.message,
              HasSubstr("its samples have sizes from 3x2 to 7x9"));
  ASSERT_EQ(datasetd_feed_open(client,
                               R"({"dataset": "r", "batch_size": 3,
                    "field_names": ["label", "image"], "fields": {"image":
                      {"transforms": [{"center_crop":
                                       {"height": 2, "width": 2}}]}}})",
                               nullptr, &feed, info.receive(), &error),
            DATASETD_OK)
      << error.message;
  EXPECT_THAT(info.get(), AllOf(HasSubstr(R"("shape":["3"])"),
                                HasSubstr(R"("shape":["3","3","2","2"])"),
                                Not(HasSubstr("-1"))));
  datasetd_batch batch = {};
  batch.struct_size = sizeof(batch);
  DLManagedTensor* tensors[2] = {};
  ASSERT_EQ(datasetd_feed_next(feed, 0, -1, &batch, tensors, 2, 0, &error),
            DATASETD_OK)
      << error.message;
  EXPECT_EQ(static_cast<int64_t*>(tensors[0]->dl_tensor.data)[1], 51);
  // The middle of 4x5: (5 - 2) / 2 is rounded as torchvision does, to 2.
  EXPECT_EQ(tensors[1]->dl_tensor.ndim, 4);
  EXPECT_EQ(static_cast<uint8_t*>(tensors[1]->dl_tensor.data)[0],
            Pixel(0, 1, 2, 0));
  for (DLManagedTensor* tensor : tensors) datasetd_tensor_delete(tensor);
  datasetd_batch_release(&batch);
  datasetd_feed_close(feed);
  datasetd_client_close(client);
}

}  // namespace
}  // namespace datasetd::client
