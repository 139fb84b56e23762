#include "client/c_api/datasetd.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "client/c_api/methods.h"
#include "client/client.h"
#include "client/connection/error_detail.h"
#include "client/feed/batch.h"
#include "client/feed/feed.h"
#include "client/feed/feed_arrays.h"
#include "client/path_advice.h"
#include "client/push.h"

using datasetd::client::Batch;
using datasetd::client::BatchInfo;
using datasetd::client::Client;
using datasetd::client::ClientOptions;
using datasetd::client::DetailOf;
using datasetd::client::ErrorDetail;
using datasetd::client::Feed;
using datasetd::client::FeedArrays;
using datasetd::client::FeedCore;
using datasetd::client::IndexBlock;
using datasetd::client::Push;
using datasetd::client::SendLimits;
using google::protobuf::Descriptor;
using google::protobuf::Message;
namespace v1 = datasetd::v1;

struct datasetd_client {
  Client client;
};

struct datasetd_feed {
  Feed feed;
};

struct datasetd_push {
  Push push;
};

struct datasetd_samples {
  datasetd::client::Samples samples;
};

namespace {

// Set by datasetd_set_capsule_functions.
int (*is_valid_capsule)(void* capsule, const char* name) = nullptr;
void* (*capsule_pointer)(void* capsule, const char* name) = nullptr;

static_assert(sizeof(datasetd_error) == 4096);
static_assert(sizeof(datasetd_batch) == 56);
static_assert(DATASETD_UNAUTHENTICATED ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));
static_assert(DATASETD_DETAIL_CONTEXT_FAILED ==
              static_cast<int>(ErrorDetail::kContextFailed));

absl::StatusOr<FeedArrays> GivenArrays(const datasetd_feed_arrays* arrays) {
  if (arrays == nullptr) return FeedArrays();
  if (arrays->struct_size < sizeof(datasetd_feed_arrays)) {
    return absl::InvalidArgumentError(
        "datasetd_feed_arrays: struct_size is not set");
  }
  if ((arrays->subset != nullptr && arrays->subset_size == 0) ||
      (arrays->weights != nullptr && arrays->num_weights == 0) ||
      (arrays->classes != nullptr && arrays->num_classes == 0)) {
    return absl::InvalidArgumentError(
        "datasetd_feed_arrays: an array is empty; pass NULL for none");
  }
  FeedArrays given;
  if (arrays->subset != nullptr) {
    given.subset = {arrays->subset, arrays->subset_size};
  }
  if (arrays->weights != nullptr) {
    given.weights = {arrays->weights, arrays->num_weights};
    if (arrays->weighted_samples != nullptr) {
      given.weighted_samples = {arrays->weighted_samples, arrays->num_weights};
    }
  }
  if (arrays->classes != nullptr) {
    given.classes = {arrays->classes, arrays->num_classes};
  }
  return given;
}

int32_t Return(const absl::Status& status, datasetd_error* error) {
  if (status.ok()) return DATASETD_OK;
  if (error != nullptr && error->struct_size >= sizeof(datasetd_error)) {
    error->code = static_cast<int32_t>(status.code());
    error->detail = static_cast<int32_t>(DetailOf(status));
    // It may have texts of the daemon's, and the caller prints it.
    const std::string message = datasetd::PrintableUtf8(status.message());
    size_t size = std::min(message.size(), sizeof(error->message) - 1);
    // Do not cut a character in half.
    while (size > 0 && size < message.size() &&
           (message[size] & 0xC0) == 0x80) {
      --size;
    }
    // Not memcpy: an empty message has no data.
    message.copy(error->message, size);
    error->message[size] = '\0';
  }
  return static_cast<int32_t>(status.code());
}

char* CopyText(const std::string& text) {
  char* const copy = new char[text.size() + 1];
  memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

std::string ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for unknown Any types, which these messages do not contain.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

// Checks the process first: in a child of fork() the lock of protobuf's
// descriptors may be held forever.
absl::Status FromJson(const datasetd_client& client, const char* json,
                      Message* message) {
  DATASETD_RETURN_IF_ERROR(client.client.CheckProcess());
  const auto status = google::protobuf::util::JsonStringToMessage(
      json == nullptr ? "" : json, message);
  if (status.ok()) return absl::OkStatus();
  const Descriptor* const type = message->GetDescriptor();
  return absl::InvalidArgumentError(
      absl::StrCat(type->name(), " as JSON: ", std::string(status.message()),
                   "; its fields are those in proto/", type->file()->name()));
}

template <typename T>
int32_t ReturnJson(const absl::StatusOr<T>& message, char** json,
                   datasetd_error* error) {
  if (message.ok() && json != nullptr) *json = CopyText(ToJson(*message));
  return Return(message.status(), error);
}

// Calls `progress`, if there is one, with a message as JSON.
auto Reporting(datasetd_progress_function progress, void* argument) {
  return [progress, argument](const Message& now) {
    return progress == nullptr || progress(ToJson(now).c_str(), argument) == 0;
  };
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

std::unique_ptr<Message> NewMessage(const Descriptor* type) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(type)
          ->New());
}

absl::StatusOr<std::string> CallWithJson(datasetd_client* client,
                                         const std::string& method_name,
                                         const char* request_json) {
  DATASETD_RETURN_IF_ERROR(client->client.CheckProcess());
  DATASETD_ASSIGN_OR_RETURN(
      const google::protobuf::MethodDescriptor* const method,
      datasetd::client::FindMethod(method_name));
  const auto request = NewMessage(method->input_type());
  DATASETD_RETURN_IF_ERROR(FromJson(*client, request_json, request.get()));
  const auto response = NewMessage(method->output_type());
  DATASETD_RETURN_IF_ERROR(client->client.Call(*request, response.get()));
  return ToJson(*response);
}

absl::Duration Timeout(int64_t nanoseconds) {
  return nanoseconds < 0 ? absl::InfiniteDuration()
                         : absl::Nanoseconds(nanoseconds);
}

datasetd::client::WaitFunction OnWait(datasetd_wait_function wait,
                                      void* argument) {
  if (wait == nullptr) return nullptr;
  return [wait, argument] { return wait(argument) == 0; };
}

IndexBlock MakeBlock(const int64_t* indices, uint64_t num_indices,
                     const uint32_t* batch_sizes, uint64_t num_batches,
                     int64_t first_row, int32_t ends_epoch) {
  IndexBlock block;
  block.indices = absl::MakeConstSpan(indices, num_indices);
  block.batch_sizes = absl::MakeConstSpan(batch_sizes, num_batches);
  block.ends_epoch = ends_epoch != 0;
  if (first_row >= 0) block.first_row = static_cast<uint64_t>(first_row);
  return block;
}

FeedCore* CoreOf(const datasetd_batch* batch) {
  return static_cast<FeedCore*>(batch->core);
}

BatchInfo InfoOf(const datasetd_batch* batch) {
  return BatchInfo{.sequence = batch->sequence,
                   .epoch = batch->epoch,
                   .batch = batch->index,
                   .slot = batch->slot,
                   .num_samples = batch->num_samples,
                   .num_padding = batch->num_padding};
}

// Wait function of the calling thread.
struct ThreadWait {
  datasetd_wait_function wait = nullptr;
  void* argument = nullptr;
};
thread_local ThreadWait thread_wait;

int32_t Released(datasetd_error* error) {
  return Return(absl::FailedPreconditionError("the batch was released before"),
                error);
}

int32_t Forked(datasetd_error* error) {
  return Return(datasetd::client::ForkedError("this batch"), error);
}

}  // namespace

uint32_t datasetd_abi_version(void) { return DATASETD_ABI_VERSION; }

void datasetd_free(char* text) { delete[] text; }

void datasetd_set_thread_wait(datasetd_wait_function wait, void* argument) {
  thread_wait = {.wait = wait, .argument = argument};
}

int32_t datasetd_client_connect(const datasetd_client_options* options,
                                datasetd_client** client,
                                datasetd_error* error) {
  ClientOptions parsed;
  if (options != nullptr) {
    if (options->struct_size < sizeof(datasetd_client_options)) {
      return Return(absl::InvalidArgumentError(
                        "datasetd_client_options: struct_size is not set"),
                    error);
    }
    parsed.address = Text(options->address);
    if (options->connect_timeout_ns != 0) {
      parsed.connect_timeout = Timeout(options->connect_timeout_ns);
    }
    if (options->call_timeout_ns != 0) {
      parsed.call_timeout = Timeout(options->call_timeout_ns);
    }
  }
  parsed.on_wait = [] {
    return thread_wait.wait == nullptr ||
           thread_wait.wait(thread_wait.argument) == 0;
  };
  absl::StatusOr<Client> connected = Client::Connect(parsed);
  if (connected.ok()) *client = new datasetd_client{*std::move(connected)};
  return Return(connected.status(), error);
}

char* datasetd_path_advice(const char* path) {
  return CopyText(datasetd::client::PathAdvice(Text(path)));
}

void datasetd_client_close(datasetd_client* client) { delete client; }

const char* datasetd_client_address(const datasetd_client* client) {
  return client->client.address().socket_path.c_str();
}

int32_t datasetd_load_dataset(datasetd_client* client, const char* spec_json,
                              datasetd_progress_function progress,
                              void* argument, char** dataset_json,
                              datasetd_error* error) {
  v1::DatasetSpec spec;
  if (absl::Status status = FromJson(*client, spec_json, &spec); !status.ok()) {
    return Return(status, error);
  }
  return ReturnJson(client->client.LoadDataset(std::move(spec),
                                               Reporting(progress, argument)),
                    dataset_json, error);
}

int32_t datasetd_push_begin(datasetd_client* client, const char* header_json,
                            datasetd_wait_function wait, void* argument,
                            datasetd_push** push, datasetd_error* error) {
  v1::PushHeader header;
  if (absl::Status status = FromJson(*client, header_json, &header);
      !status.ok()) {
    return Return(status, error);
  }
  absl::StatusOr<Push> begun =
      client->client.PushDataset(header, OnWait(wait, argument));
  if (begun.ok()) *push = new datasetd_push{*std::move(begun)};
  return Return(begun.status(), error);
}

int32_t datasetd_push_write(datasetd_push* push, const void* data,
                            uint64_t size_bytes, datasetd_error* error) {
  return Return(push->push.Write(absl::MakeConstSpan(
                    static_cast<const uint8_t*>(data), size_bytes)),
                error);
}

int32_t datasetd_push_write_samples(datasetd_push* push,
                                    const void* const* fields,
                                    uint64_t num_fields, uint64_t num_samples,
                                    datasetd_error* error) {
  std::vector<const uint8_t*> pointers;
  for (uint64_t f = 0; f < num_fields; ++f) {
    pointers.push_back(static_cast<const uint8_t*>(fields[f]));
  }
  return Return(
      push->push.WriteSamples(pointers, static_cast<int64_t>(num_samples)),
      error);
}

int32_t datasetd_push_finish(datasetd_push* push, char** dataset_json,
                             datasetd_error* error) {
  return ReturnJson(push->push.Finish(), dataset_json, error);
}

void datasetd_push_close(datasetd_push* push) { delete push; }

int32_t datasetd_estimate_load(datasetd_client* client, const char* spec_json,
                               datasetd_progress_function progress,
                               void* argument, char** estimate_json,
                               datasetd_error* error) {
  v1::DatasetSpec spec;
  if (absl::Status status = FromJson(*client, spec_json, &spec); !status.ok()) {
    return Return(status, error);
  }
  return ReturnJson(client->client.EstimateLoad(std::move(spec),
                                                Reporting(progress, argument)),
                    estimate_json, error);
}

int32_t datasetd_read_samples(datasetd_client* client, const char* request_json,
                              const int64_t* indices, uint64_t num_indices,
                              int64_t timeout_ns, datasetd_samples** samples,
                              char** info_json, datasetd_error* error) {
  v1::ReadSamplesRequest request;
  if (absl::Status status = FromJson(*client, request_json, &request);
      !status.ok()) {
    return Return(status, error);
  }
  request.mutable_indices()->Add(indices, indices + num_indices);
  std::optional<absl::Duration> timeout;
  if (timeout_ns != 0) {
    timeout = timeout_ns < 0 ? absl::InfiniteDuration()
                             : absl::Nanoseconds(timeout_ns);
  }
  absl::StatusOr<datasetd::client::Samples> read =
      client->client.ReadSamples(request, timeout);
  if (!read.ok()) return Return(read.status(), error);
  if (info_json != nullptr) *info_json = CopyText(ToJson(read->info));
  *samples = new datasetd_samples{*std::move(read)};
  return DATASETD_OK;
}

const void* datasetd_samples_data(const datasetd_samples* samples) {
  return samples->samples.data.data();
}

void datasetd_samples_close(datasetd_samples* samples) { delete samples; }

int32_t datasetd_call(datasetd_client* client, const char* method,
                      const char* request_json, char** response_json,
                      datasetd_error* error) {
  const absl::StatusOr<std::string> response =
      CallWithJson(client, Text(method), request_json);
  if (response.ok() && response_json != nullptr) {
    *response_json = CopyText(*response);
  }
  return Return(response.status(), error);
}

int32_t datasetd_feed_open(datasetd_client* client, const char* options_json,
                           const datasetd_feed_arrays* arrays,
                           datasetd_feed** feed, char** info_json,
                           datasetd_error* error) {
  v1::FeedOptions options;
  if (absl::Status status = FromJson(*client, options_json, &options);
      !status.ok()) {
    return Return(status, error);
  }
  const absl::StatusOr<FeedArrays> given = GivenArrays(arrays);
  if (!given.ok()) return Return(given.status(), error);
  absl::StatusOr<Feed> opened = client->client.OpenFeed(options, *given);
  if (!opened.ok()) return Return(opened.status(), error);
  if (info_json != nullptr) *info_json = CopyText(ToJson(opened->info()));
  *feed = new datasetd_feed{*std::move(opened)};
  return DATASETD_OK;
}

void datasetd_feed_close(datasetd_feed* feed) { delete feed; }

void datasetd_feed_device(const datasetd_feed* feed, int32_t* device_type,
                          int32_t* device_id) {
  const DLDevice device = feed->feed.device();
  *device_type = device.device_type;
  *device_id = device.device_id;
}

int64_t datasetd_feed_waited_ns(const datasetd_feed* feed) {
  return absl::ToInt64Nanoseconds(feed->feed.waited());
}

uint32_t datasetd_feed_num_held(const datasetd_feed* feed) {
  return feed->feed.num_held();
}

int32_t datasetd_feed_next(datasetd_feed* feed, uint64_t stream,
                           int64_t timeout_ns, datasetd_batch* batch,
                           DLManagedTensor** tensors, uint32_t num_tensors,
                           uint64_t copied_fields, datasetd_error* error) {
  FeedCore* const core = feed->feed.core();
  if (batch->struct_size < sizeof(datasetd_batch) ||
      num_tensors > static_cast<uint32_t>(core->layout().num_fields())) {
    return Return(absl::InvalidArgumentError(
                      "datasetd_feed_next: struct_size is not set, or more "
                      "tensors than fields"),
                  error);
  }
  batch->core = nullptr;
  if (num_tensors > 0 && tensors == nullptr) {
    return Return(absl::InvalidArgumentError(
                      "datasetd_feed_next: tensors is NULL, and num_tensors is "
                      "not 0"),
                  error);
  }
  if (copied_fields != 0 && core->device().device_type != kDLCPU) {
    return Return(absl::InvalidArgumentError(
                      "datasetd_feed_next: copied_fields is not 0, and "
                      "the batches are on a GPU"),
                  error);
  }
  const absl::StatusOr<BatchInfo> info =
      core->Next(stream, Timeout(timeout_ns));
  if (!info.ok()) return Return(info.status(), error);
  batch->num_samples = info->num_samples;
  batch->num_padding = info->num_padding;
  batch->slot = info->slot;
  batch->epoch = info->epoch;
  batch->index = info->batch;
  batch->sequence = info->sequence;
  batch->core = core;
  batch->num_held = core->num_held();
  for (uint32_t field = 0; field < num_tensors; ++field) {
    const bool is_copied = field < 64 && (copied_fields >> field & 1) != 0;
    tensors[field] = is_copied ? core->CopyTensor(*info, field)
                               : core->MakeTensor(*info, field);
  }
  return DATASETD_OK;
}

int32_t datasetd_feed_seek(datasetd_feed* feed, uint64_t epoch, uint64_t index,
                           datasetd_error* error) {
  return Return(feed->feed.Seek(epoch, index), error);
}

int32_t datasetd_feed_set_weights(datasetd_feed* feed, const double* weights,
                                  uint64_t num_weights, int64_t timeout_ns,
                                  datasetd_wait_function wait, void* argument,
                                  datasetd_error* error) {
  if (weights == nullptr && num_weights > 0) {
    return Return(
        absl::InvalidArgumentError("datasetd_feed_set_weights: weights is "
                                   "NULL, and num_weights is not 0"),
        error);
  }
  return Return(feed->feed.SetWeights(absl::MakeConstSpan(weights, num_weights),
                                      {.timeout = Timeout(timeout_ns),
                                       .on_wait = OnWait(wait, argument)}),
                error);
}

int32_t datasetd_feed_send_indices(datasetd_feed* feed, const int64_t* indices,
                                   uint64_t num_indices,
                                   const uint32_t* batch_sizes,
                                   uint64_t num_batches, int64_t first_row,
                                   int32_t ends_epoch, int64_t timeout_ns,
                                   datasetd_wait_function wait, void* argument,
                                   datasetd_error* error) {
  if ((indices == nullptr && num_indices > 0) ||
      (batch_sizes == nullptr && num_batches > 0)) {
    return Return(absl::InvalidArgumentError(
                      "datasetd_feed_send_indices: indices or batch_sizes is "
                      "NULL, and its number is not 0"),
                  error);
  }
  SendLimits limits;
  limits.timeout = Timeout(timeout_ns);
  limits.on_wait = OnWait(wait, argument);
  return Return(
      feed->feed.SendIndices(MakeBlock(indices, num_indices, batch_sizes,
                                       num_batches, first_row, ends_epoch),
                             limits),
      error);
}

int32_t datasetd_batch_dlpack(const datasetd_batch* batch, uint32_t field,
                              DLManagedTensor** tensor, datasetd_error* error) {
  FeedCore* const core = CoreOf(batch);
  if (core == nullptr) return Released(error);
  if (!core->is_this_process()) return Forked(error);
  const auto num_fields = static_cast<uint32_t>(core->layout().num_fields());
  if (field == DATASETD_INDICES) field = num_fields;
  if (field > num_fields) {
    return Return(absl::InvalidArgumentError(absl::StrCat(
                      "field ", field, ": the batch has ", num_fields)),
                  error);
  }
  *tensor = core->MakeTensor(InfoOf(batch), field);
  return DATASETD_OK;
}

int32_t datasetd_batch_record_stream(const datasetd_batch* batch,
                                     uint64_t stream, datasetd_error* error) {
  FeedCore* const core = CoreOf(batch);
  if (core == nullptr) return Released(error);
  return Return(core->RecordStream(batch->slot, stream), error);
}

void datasetd_batch_release(datasetd_batch* batch) {
  FeedCore* const core = CoreOf(batch);
  batch->core = nullptr;
  if (core != nullptr) core->Drop(batch->slot, core->batch_holder());
}

void datasetd_tensor_delete(DLManagedTensor* tensor) {
  tensor->deleter(tensor);
}

void datasetd_set_capsule_functions(int (*is_valid)(void* capsule,
                                                    const char* name),
                                    void* (*get_pointer)(void* capsule,
                                                         const char* name)) {
  is_valid_capsule = is_valid;
  capsule_pointer = get_pointer;
}

void datasetd_capsule_delete(void* capsule) {
  constexpr char kName[] = "dltensor";
  if (is_valid_capsule(capsule, kName) == 0) return;
  datasetd_tensor_delete(
      static_cast<DLManagedTensor*>(capsule_pointer(capsule, kName)));
}
