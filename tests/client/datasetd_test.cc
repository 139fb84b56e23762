// The C API, but for what only the shared library can get wrong: see
// exports_test and the tests in Python.

#include "client/c_api/datasetd.h"

#include <dlpack/dlpack.h>

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FakeDaemon;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class DatasetdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    error_.struct_size = sizeof(error_);
    const std::string address = daemon_.address();
    datasetd_client_options options = {};
    options.struct_size = sizeof(options);
    options.address = address.c_str();
    ASSERT_EQ(datasetd_client_connect(&options, &client_, &error_), DATASETD_OK)
        << error_.message;
  }
  void TearDown() override { datasetd_client_close(client_); }

  FakeDaemon daemon_;
  datasetd_client* client_ = nullptr;
  datasetd_error error_ = {};
};

constexpr char kFeedOptions[] = R"({"dataset": "fake", "batch_size": 4})";

TEST_F(DatasetdTest, RequestsAndDescriptionsAreJson) {
  EXPECT_EQ(datasetd_abi_version(),
            static_cast<uint32_t>(DATASETD_ABI_VERSION));
  EXPECT_EQ(datasetd_client_address(client_), daemon_.address());
  char* text = nullptr;
  ASSERT_EQ(datasetd_load_dataset(
                client_,
                R"({"name": "fake", "pretransforms": {"image": {"transforms":
                    [{"center_crop": {"height": 8, "width": 9}}]}}})",
                nullptr, nullptr, &text, &error_),
            DATASETD_OK)
      << error_.message;
  EXPECT_THAT(text, HasSubstr(R"("num_samples":"4000")"));
  datasetd_free(text);
  EXPECT_EQ(daemon_.load_requests()[0]
                .spec()
                .pretransforms()
                .at("image")
                .transforms(0)
                .center_crop()
                .width(),
            9u);
  ASSERT_EQ(datasetd_call(client_, "GetStatus", "{}", &text, nullptr),
            DATASETD_OK);
  EXPECT_THAT(text, HasSubstr(R"("protocol_version":3)"));
  datasetd_free(text);
}

TEST_F(DatasetdTest, ErrorsHaveCodeDetailAndMessage) {
  char* text = nullptr;
  daemon_.SetLoadStatus({grpc::StatusCode::NOT_FOUND, "no such path"});
  EXPECT_EQ(
      datasetd_load_dataset(client_, "{}", nullptr, nullptr, &text, &error_),
      DATASETD_NOT_FOUND);
  EXPECT_EQ(error_.code, DATASETD_NOT_FOUND);
  EXPECT_STREQ(error_.message, "no such path");
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(datasetd_load_dataset(client_, R"({"nmae": "x"})", nullptr, nullptr,
                                  &text, &error_),
            DATASETD_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("nmae"));
  EXPECT_EQ(
      datasetd_load_dataset(client_, "{", nullptr, nullptr, &text, nullptr),
      DATASETD_INVALID_ARGUMENT);
  daemon_.Die();
  EXPECT_EQ(
      datasetd_load_dataset(client_, "{}", nullptr, nullptr, &text, &error_),
      DATASETD_UNAVAILABLE);
  EXPECT_EQ(error_.detail, DATASETD_DETAIL_DAEMON_GONE);
}

TEST_F(DatasetdTest, LongMessagesAreCut) {
  char* text = nullptr;
  EXPECT_EQ(datasetd_call(client_, std::string(6000, 'n').c_str(), "{}", &text,
                          &error_),
            DATASETD_INVALID_ARGUMENT);
  EXPECT_EQ(strlen(error_.message), sizeof(error_.message) - 1);
}

TEST_F(DatasetdTest, LongMessagesAreCutBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 3000; ++i) name += "\u00e9";
  // Characters of two bytes: one of these would be cut in half.
  for (const std::string prefix : {"", "n"}) {
    EXPECT_EQ(
        datasetd_call(client_, (prefix + name).c_str(), "{}", nullptr, &error_),
        DATASETD_INVALID_ARGUMENT);
    EXPECT_THAT(error_.message, EndsWith("\u00e9"));
    EXPECT_GE(strlen(error_.message), sizeof(error_.message) - 2);
  }
}

TEST_F(DatasetdTest, ProgressIsCalledAndCancels) {
  char* text = nullptr;
  int num_calls = 0;
  const datasetd_progress_function cancel = [](const char* json,
                                               void* argument) {
    EXPECT_THAT(json, HasSubstr("\"state\""));
    ++*static_cast<int*>(argument);
    return int32_t{1};
  };
  daemon_.SetHangs(true);
  EXPECT_EQ(
      datasetd_load_dataset(client_, "{}", cancel, &num_calls, &text, &error_),
      DATASETD_CANCELLED);
  EXPECT_EQ(num_calls, 1);
}

TEST_F(DatasetdTest, BatchesAndTensors) {
  datasetd_feed* feed = nullptr;
  char* info = nullptr;
  ASSERT_EQ(
      datasetd_feed_open(client_, kFeedOptions, nullptr, &feed, &info, &error_),
      DATASETD_OK)
      << error_.message;
  EXPECT_THAT(info, HasSubstr(R"("batches_per_epoch":"1000")"));
  datasetd_free(info);
  int32_t device_type = 0;
  int32_t device_id = -1;
  datasetd_feed_device(feed, &device_type, &device_id);
  EXPECT_EQ(device_type, kDLCPU);

  datasetd_batch batch = {};
  EXPECT_EQ(datasetd_feed_next(feed, 0, 0, &batch, nullptr, 0, 0, &error_),
            DATASETD_INVALID_ARGUMENT);
  batch.struct_size = sizeof(batch);
  EXPECT_EQ(datasetd_feed_next(feed, 0, 1000, &batch, nullptr, 0, 0, &error_),
            DATASETD_DEADLINE_EXCEEDED);
  EXPECT_GT(datasetd_feed_waited_ns(feed), 0);
  EXPECT_EQ(datasetd_feed_num_held(feed), 0u);

  ASSERT_TRUE(daemon_.feed().PublishRows(3, 1));
  DLManagedTensor* tensors[2] = {};
  ASSERT_EQ(datasetd_feed_next(feed, 0, -1, &batch, tensors, 2, 0, &error_),
            DATASETD_OK)
      << error_.message;
  EXPECT_EQ(datasetd_feed_num_held(feed), 1u);
  EXPECT_EQ(batch.num_held, 1u);
  EXPECT_EQ(batch.num_samples, 3u);
  EXPECT_EQ(batch.num_padding, 1u);
  EXPECT_EQ(tensors[0]->dl_tensor.shape[0], 3);
  EXPECT_EQ(static_cast<int64_t*>(tensors[1]->dl_tensor.data)[2], 2);
  DLManagedTensor* indices = nullptr;
  ASSERT_EQ(datasetd_batch_dlpack(&batch, DATASETD_INDICES, &indices, &error_),
            DATASETD_OK);
  EXPECT_EQ(static_cast<int64_t*>(indices->dl_tensor.data)[1], 1);
  EXPECT_EQ(datasetd_batch_dlpack(&batch, 3, &indices, &error_),
            DATASETD_INVALID_ARGUMENT);
  EXPECT_EQ(datasetd_batch_record_stream(&batch, 1, &error_), DATASETD_OK);

  datasetd_batch_release(&batch);
  datasetd_batch_release(&batch);
  EXPECT_EQ(datasetd_batch_dlpack(&batch, 0, &indices, &error_),
            DATASETD_FAILED_PRECONDITION);
  EXPECT_EQ(datasetd_feed_seek(feed, 0, 1000, &error_),
            DATASETD_INVALID_ARGUMENT);
  datasetd_feed_close(feed);
  EXPECT_EQ(daemon_.feed().num_held(), 1u);
  for (DLManagedTensor* tensor : {tensors[0], tensors[1], indices}) {
    datasetd_tensor_delete(tensor);
  }
  EXPECT_EQ(daemon_.feed().num_held(), 0u);
  EXPECT_TRUE(daemon_.attach().AwaitDetached(1));
}

TEST_F(DatasetdTest, CopiesFieldsThatHoldNothing) {
  datasetd_feed* feed = nullptr;
  ASSERT_EQ(
      datasetd_feed_open(client_, R"({"dataset": "fake", "batch_size": 4})",
                         nullptr, &feed, nullptr, &error_),
      DATASETD_OK);
  ASSERT_TRUE(daemon_.feed().PublishRows(3, 1));
  datasetd_batch batch = {};
  batch.struct_size = sizeof(batch);
  DLManagedTensor* tensors[2] = {};
  ASSERT_EQ(datasetd_feed_next(feed, 0, -1, &batch, tensors, 2, 3, &error_),
            DATASETD_OK)
      << error_.message;
  DLManagedTensor* shared[2] = {};
  std::string contents[2];
  for (uint32_t field = 0; field < 2; ++field) {
    ASSERT_EQ(datasetd_batch_dlpack(&batch, field, &shared[field], &error_),
              DATASETD_OK);
    const DLTensor& copy = tensors[field]->dl_tensor;
    const DLTensor& original = shared[field]->dl_tensor;
    EXPECT_NE(copy.data, original.data);
    ASSERT_EQ(copy.ndim, original.ndim);
    size_t size_bytes = original.dtype.bits / 8;
    for (int i = 0; i < copy.ndim; ++i) {
      EXPECT_EQ(copy.shape[i], original.shape[i]);
      EXPECT_EQ(copy.strides[i], original.strides[i]);
      size_bytes *= original.shape[i];
    }
    EXPECT_EQ(copy.dtype.code, original.dtype.code);
    contents[field].assign(static_cast<char*>(original.data), size_bytes);
    datasetd_tensor_delete(shared[field]);
  }
  datasetd_batch_release(&batch);
  EXPECT_EQ(datasetd_feed_num_held(feed), 0u);
  datasetd_feed_close(feed);
  EXPECT_TRUE(daemon_.attach().AwaitDetached(1));
  for (int field = 0; field < 2; ++field) {
    EXPECT_EQ(memcmp(tensors[field]->dl_tensor.data, contents[field].data(),
                     contents[field].size()),
              0);
    datasetd_tensor_delete(tensors[field]);
  }
}

TEST_F(DatasetdTest, AnArrayAndItsSizeBelongTogether) {
  datasetd_feed* feed = nullptr;
  const char* const options = R"({"dataset": "fake", "batch_size": 4})";
  const double weight = 1;
  const int64_t sample = 1;
  datasetd_feed_arrays arrays = {};
  EXPECT_EQ(
      datasetd_feed_open(client_, options, &arrays, &feed, nullptr, &error_),
      DATASETD_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("struct_size is not set"));
  arrays.struct_size = sizeof(arrays);
  for (const bool is_weighted : {true, false}) {
    arrays.weights = is_weighted ? &weight : nullptr;
    arrays.subset = is_weighted ? nullptr : &sample;
    EXPECT_EQ(
        datasetd_feed_open(client_, options, &arrays, &feed, nullptr, &error_),
        DATASETD_INVALID_ARGUMENT);
    EXPECT_THAT(error_.message, HasSubstr("an array is empty"));
  }
  arrays.subset = nullptr;
  arrays.subset_size = arrays.num_weights = 5;
  ASSERT_EQ(
      datasetd_feed_open(client_, options, &arrays, &feed, nullptr, &error_),
      DATASETD_OK)
      << error_.message;
  EXPECT_FALSE(daemon_.open_requests()[0].options().has_weighted_order());
  EXPECT_EQ(daemon_.open_requests()[0].options().subset_size(), 0u);
  datasetd_feed_close(feed);
}

TEST_F(DatasetdTest, SendsIndices) {
  datasetd_feed* feed = nullptr;
  ASSERT_EQ(datasetd_feed_open(
                client_,
                R"({"dataset": "fake", "batch_size": 4, "client_order": {}})",
                nullptr, &feed, nullptr, &error_),
            DATASETD_OK)
      << error_.message;
  EXPECT_TRUE(daemon_.open_requests()[0].options().has_client_order());
  const int64_t indices[] = {4, 3, 3};
  const uint32_t sizes[] = {1, 2};
  EXPECT_EQ(datasetd_feed_send_indices(feed, indices, 3, sizes, 2, -1, 1, -1,
                                       nullptr, nullptr, &error_),
            DATASETD_OK)
      << error_.message;
  EXPECT_EQ(datasetd_feed_send_indices(feed, indices, 1, sizes, 1, 9, 0, -1,
                                       nullptr, nullptr, &error_),
            DATASETD_OK);
  EXPECT_EQ(datasetd_feed_send_indices(feed, indices, 2, sizes, 1, -1, 0, -1,
                                       nullptr, nullptr, &error_),
            DATASETD_INVALID_ARGUMENT);
  const auto requests = daemon_.index_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].first_row(), 0u);
  EXPECT_EQ(requests[1].start().epoch(), 1u);
  EXPECT_EQ(requests[1].first_row(), 9u);
  datasetd_feed_close(feed);
}

TEST_F(DatasetdTest, SendsWeightsAndASubset) {
  const double weights[] = {0.5, 2};
  const int64_t samples[] = {4, 3};
  datasetd_feed_arrays arrays = {};
  arrays.struct_size = sizeof(arrays);
  arrays.weights = weights;
  arrays.num_weights = 2;
  for (const int64_t* const listed : {samples, (const int64_t*)nullptr}) {
    arrays.weighted_samples = listed;
    datasetd_feed* feed = nullptr;
    ASSERT_EQ(datasetd_feed_open(client_,
                                 R"({"dataset": "fake", "batch_size": 4,
                                        "weighted_order": {"num_draws": 9}})",
                                 &arrays, &feed, nullptr, &error_),
              DATASETD_OK)
        << error_.message;
    const v1::WeightedOrder order =
        daemon_.open_requests().back().options().weighted_order();
    EXPECT_EQ(order.num_samples(), 2u);
    EXPECT_EQ(order.num_draws(), 9u);
    EXPECT_EQ(order.lists_samples(), listed != nullptr);
    EXPECT_EQ(daemon_.attach().attach_arrays().size(),
              listed != nullptr ? 2u : 1u);
    EXPECT_EQ(datasetd_feed_set_weights(feed, weights, 2, -1, nullptr, nullptr,
                                        &error_),
              DATASETD_OK)
        << error_.message;
    EXPECT_EQ(daemon_.attach().attach_arrays(),
              std::vector<std::string>{std::string(
                  reinterpret_cast<const char*>(weights), sizeof(weights))});
    EXPECT_EQ(datasetd_feed_set_weights(feed, nullptr, 2, -1, nullptr, nullptr,
                                        &error_),
              DATASETD_INVALID_ARGUMENT);
    daemon_.attach().SetWeightsAnswer(std::nullopt);
    EXPECT_EQ(
        datasetd_feed_set_weights(
            feed, weights, 2, -1, [](void*) { return 1; }, nullptr, &error_),
        DATASETD_CANCELLED);
    EXPECT_EQ(datasetd_feed_set_weights(feed, weights, 2, 1'000'000, nullptr,
                                        nullptr, &error_),
              DATASETD_DEADLINE_EXCEEDED);
    daemon_.attach().SetWeightsAnswer(0);
    datasetd_feed_close(feed);
  }
  datasetd_feed_arrays subset = {};
  subset.struct_size = sizeof(subset);
  subset.subset = samples;
  subset.subset_size = 2;
  datasetd_feed* feed = nullptr;
  ASSERT_EQ(
      datasetd_feed_open(client_, R"({"dataset": "fake", "batch_size": 4})",
                         &subset, &feed, nullptr, &error_),
      DATASETD_OK)
      << error_.message;
  EXPECT_EQ(daemon_.open_requests().back().options().subset_size(), 2u);
  EXPECT_EQ(daemon_.attach().attach_arrays(),
            std::vector<std::string>{std::string(
                reinterpret_cast<const char*>(samples), sizeof(samples))});
  datasetd_feed_close(feed);
}

}  // namespace
}  // namespace datasetd::client
