#include "server/feed/sample_read.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "server/dataset/field_memory.h"
#include "server/dataset/ragged_index.h"
#include "server/order/client_order.h"
#include "server/order/sampler.h"
#include "server/order/window_order.h"

namespace datasetd {
namespace {

constexpr int64_t kPageBytes = 1 << 20;
// Where fields begin in the data.
constexpr int64_t kAlignmentBytes = 8;
constexpr int64_t kSizeBytes = 2 * sizeof(uint32_t);
// Copies that may have begun: see FieldReader::Await.
constexpr int kMaxCopies = 500;
constexpr absl::Duration kCancelPeriod = absl::Milliseconds(100);

// Checks the numbers of rows.
absl::Status CheckRows(absl::Span<const int64_t> rows) {
  constexpr int64_t kMaxRow = 0xFFFFFFFF;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= 0 && rows[i] <= kMaxRow &&
        rows[i] - rows[0] == static_cast<int64_t>(i)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "indices[", i, "]: ", rows[i],
        "; of random windows these are consecutive numbers of rows, 0..",
        kMaxRow));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const v1::ReadSamplesRequest& request,
                          const Dataset& dataset) {
  if (!request.content_hash().empty() &&
      request.content_hash() != dataset.content_hash()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", request.dataset(),
        "' was replaced by other samples meanwhile: get it anew (in Python: "
        "call get_dataset('",
        request.dataset(), "'), and make subsets of it anew); content_hash is ",
        dataset.content_hash(), ", was ", request.content_hash()));
  }
  const int count = request.indices_size();
  if (count < 1 || count > ClientOrder::kMaxBatchSize) {
    return absl::InvalidArgumentError(absl::StrCat("indices: there are ", count,
                                                   "; expected 1 to ",
                                                   ClientOrder::kMaxBatchSize));
  }
  if (request.window_order().has_documents()) {
    return absl::InvalidArgumentError(
        "window_order: rows of documents are not read: use a feed, or read "
        "windows by their first steps");
  }
  if (request.epoch() > kMaxEpoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch: ", request.epoch(), "; at most ", kMaxEpoch));
  }
  if (request.window_order().has_random()) {
    return CheckRows(request.indices());
  }
  for (int i = 0; i < count; ++i) {
    const int64_t index = request.indices(i);
    if (index >= 0 && index < dataset.num_samples()) continue;
    return absl::OutOfRangeError(
        absl::StrCat("indices[", i, "]: ", index, " is out of range; dataset '",
                     dataset.name(), "' has ", dataset.num_samples(),
                     " samples, counted from 0"));
  }
  return absl::OkStatus();
}

int64_t SlotFieldBytes(const v1::SlotField& field) {
  int64_t bytes = DtypeSizeBytes(static_cast<Dtype>(field.dtype()));
  for (const int64_t extent : field.shape()) bytes *= extent;
  return bytes;
}

// Describes a packed field, images as [N, C, -1, -1], whose data begin at the
// sizes' offset.
v1::ReadField DescribePacked(const v1::ReadSamplesRequest& request,
                             const FieldSpec& field) {
  v1::ReadField described;
  v1::SlotField& array = *described.mutable_array();
  array.set_name(field.name);
  array.set_dtype(static_cast<v1::Dtype>(field.dtype));
  array.add_shape(request.indices_size());
  if (field.is_image) {
    for (const size_t axis : {2, 0, 1}) array.add_shape(field.shape[axis]);
  } else {
    for (const int64_t extent : field.shape) array.add_shape(extent);
  }
  return described;
}

int64_t PackedBytes(const v1::ReadSamplesRequest& request,
                    const RaggedIndex& index) {
  int64_t bytes = request.indices_size() * kSizeBytes;
  for (const int64_t sample : request.indices()) {
    bytes = SaturatingAdd(bytes, index.sample_bytes(sample));
  }
  return bytes;
}

// Collects the data in pages and sends each when it is full.
class PageSender {
 public:
  // `check` is called when the copies of a page have ended, before it is sent.
  PageSender(const ReadSink& sink, uid_t uid,
             absl::FunctionRef<absl::Status()> check)
      : sink_(sink), check_(check), reader_({.uid = uid}) {}

  absl::Status Allocate(Backend& backend, int64_t size_bytes) {
    capacity_ = std::min(kPageBytes, size_bytes);
    if (capacity_ == 0) return absl::OkStatus();
    const auto capacity = static_cast<size_t>(capacity_);
    if (!backend.info().is_host) {
      DATASETD_ASSIGN_OR_RETURN(buffer_, backend.AllocateHost(capacity));
      page_ = buffer_->data();
      return absl::OkStatus();
    }
    std::string& data = *message_.mutable_data();
    data.resize(capacity);
    page_ = reinterpret_cast<uint8_t*>(data.data());
    return absl::OkStatus();
  }

  // `backend` is that of the memory; null: the host's.
  absl::Status Add(Backend* backend, const uint8_t* from, int64_t size_bytes) {
    return Divide(size_bytes, [&](int64_t offset, int64_t size, uint8_t* to) {
      return reader_.Begin(backend, from + offset, size, to);
    });
  }
  absl::Status Add(const FieldMemory& memory, int64_t offset_bytes,
                   int64_t size_bytes) {
    return Divide(size_bytes, [&](int64_t offset, int64_t size, uint8_t* to) {
      return reader_.Begin(memory, offset_bytes + offset, size, to);
    });
  }
  absl::Status Pad(int64_t size_bytes) {
    return Divide(size_bytes, [&](int64_t, int64_t size, uint8_t* to) {
      std::memset(to, 0, static_cast<size_t>(size));
      return absl::OkStatus();
    });
  }
  // Ends the copies of the page.
  absl::Status Await() {
    num_copies_ = 0;
    return reader_.Await();
  }
  absl::Status Flush() {
    DATASETD_RETURN_IF_ERROR(Await());
    DATASETD_RETURN_IF_ERROR(check_());
    if (used_ == 0) return absl::OkStatus();
    std::string& data = *message_.mutable_data();
    if (buffer_ != nullptr) {
      data.assign(reinterpret_cast<const char*>(page_),
                  static_cast<size_t>(used_));
    } else {
      data.resize(static_cast<size_t>(used_));
    }
    used_ = 0;
    // A page that is not full is the last one.
    return sink_.send(message_);
  }

 private:
  template <typename Copy>
  absl::Status Divide(int64_t size_bytes, const Copy& copy) {
    for (int64_t offset = 0; offset < size_bytes;) {
      if (used_ == capacity_) DATASETD_RETURN_IF_ERROR(Flush());
      if (++num_copies_ > kMaxCopies) DATASETD_RETURN_IF_ERROR(Await());
      const int64_t part = std::min(size_bytes - offset, capacity_ - used_);
      DATASETD_RETURN_IF_ERROR(copy(offset, part, page_ + used_));
      used_ += part;
      offset += part;
    }
    return absl::OkStatus();
  }

  const ReadSink& sink_;
  const absl::FunctionRef<absl::Status()> check_;
  v1::ReadSamplesResponse message_;
  // Null on the host, where pages are collected in the message.
  std::unique_ptr<HostMemory> buffer_;
  uint8_t* page_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int num_copies_ = 0;
  FieldReader reader_;  // declared last: waits for its copies first
};

absl::Status AddPacked(const v1::ReadSamplesRequest& request,
                       const Dataset& dataset, size_t field,
                       PageSender& pages) {
  const RaggedIndex& index = *dataset.field_index(field);
  for (const int64_t sample : request.indices()) {
    const ImageSize size = index.size(sample);
    const uint32_t extents[] = {static_cast<uint32_t>(size.height),
                                static_cast<uint32_t>(size.width)};
    DATASETD_RETURN_IF_ERROR(pages.Add(
        nullptr, reinterpret_cast<const uint8_t*>(extents), kSizeBytes));
  }
  for (const int64_t sample : request.indices()) {
    DATASETD_RETURN_IF_ERROR(
        pages.Add(dataset.field_memory(field),
                  index.samples()[static_cast<size_t>(sample)].offset_bytes,
                  index.sample_bytes(sample)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReadPlan> PlanRead(const v1::ReadSamplesRequest& request,
                                  FieldOptionsMap fields,
                                  const FeedDatasets& datasets,
                                  const TransformLimits& limits) {
  const Dataset& dataset = *datasets.dataset();
  DATASETD_RETURN_IF_ERROR(CheckRequest(request, dataset));
  DATASETD_ASSIGN_OR_RETURN(
      const FeedFields chosen,
      ChooseFeedFields(
          dataset, {request.field_names().begin(), request.field_names().end()},
          fields));
  ReadPlan plan;
  for (const FieldSpec& spec : chosen.specs) {
    const auto given = fields.find(spec.name);
    const bool is_plain =
        given == fields.end() ||
        (given->second.transforms().empty() && given->second.shift() == 0 &&
         !given->second.has_crop() &&
         given->second.row_field() == v1::ROW_FIELD_UNSPECIFIED);
    if (!spec.is_packed() || !is_plain || request.has_window_order()) {
      plan.options.add_field_names(spec.name);
    } else if (given != fields.end()) {
      fields.erase(given);
    }
  }
  if (plan.options.field_names_size() > 0) {
    plan.options.set_dataset(request.dataset());
    plan.options.set_batch_size(static_cast<uint32_t>(request.indices_size()));
    plan.options.set_seed(request.seed());
    plan.options.mutable_client_order()->set_draws_by_sample(true);
    plan.options.mutable_start()->set_epoch(request.epoch());
    plan.options.set_keeps_datasets(request.keeps_datasets());
    const v1::WindowOrder& windows = request.window_order();
    if (request.has_window_order()) {
      plan.options.mutable_window_order()->set_length(windows.length());
    }
    if (windows.has_random()) {
      plan.options.mutable_client_order()->set_draws_by_sample(false);
    }
    DATASETD_ASSIGN_OR_RETURN(
        plan.feed,
        PlanFeed(plan.options, fields, datasets.dataset(), limits,
                 datasets.backend(), /*free_bytes=*/0,
                 /*num_slots=*/1, /*part_fields=*/{}, datasets.noise()));
    if (windows.has_random()) {
      plan.first_row = static_cast<uint64_t>(request.indices(0));
      plan.starts.resize(static_cast<size_t>(request.indices_size()));
      DrawStarts(*plan.feed->feed.sampler.windows, request.seed(),
                 request.epoch(), plan.first_row, /*step=*/1,
                 absl::MakeSpan(plan.starts));
    }
  } else if (!fields.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "transforms: field '", fields.begin()->first,
        "' is not among the fields that are read: choose it, too, or leave out "
        "its transforms"));
  }
  int64_t end_bytes = 0;
  int next_slot_field = 0;
  for (size_t f = 0; f < chosen.specs.size(); ++f) {
    const FieldSpec& spec = chosen.specs[f];
    v1::ReadField& field = *plan.info.add_fields();
    ReadPlan::Part& part = plan.parts.emplace_back();
    const auto begin_bytes = static_cast<uint64_t>(end_bytes);
    if (next_slot_field < plan.options.field_names_size() &&
        plan.options.field_names(next_slot_field) == spec.name) {
      *field.mutable_array() = plan.feed->layout.fields(next_slot_field++);
      part.slot_offset_bytes =
          static_cast<int64_t>(field.array().offset_bytes());
      part.size_bytes = SlotFieldBytes(field.array());
      field.mutable_array()->set_offset_bytes(begin_bytes);
    } else {
      part.packed = chosen.sources[f];
      part.size_bytes =
          PackedBytes(request, *dataset.field_index(*part.packed));
      field = DescribePacked(request, spec);
      field.set_sizes_offset_bytes(begin_bytes);
      field.mutable_array()->set_offset_bytes(
          begin_bytes +
          static_cast<uint64_t>(request.indices_size() * kSizeBytes));
    }
    end_bytes = SaturatingRoundUp(SaturatingAdd(end_bytes, part.size_bytes),
                                  kAlignmentBytes);
  }
  plan.info.set_size_bytes(static_cast<uint64_t>(end_bytes));
  return plan;
}

absl::StatusOr<std::unique_ptr<ReadChannel>> ReadChannel::Create() {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.has_value()) return absl::ErrnoToStatus(errno, "read: eventfd");
  return std::unique_ptr<ReadChannel>(new ReadChannel(std::move(wake)));
}

bool ReadChannel::Await(const std::function<bool()>& is_cancelled) {
  const auto has_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_published_ || is_closed_;
  };
  do {
    MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(Condition(&has_ended), kCancelPeriod)) {
      return is_published_;
    }
  } while (!is_cancelled());
  return false;
}

void ReadChannel::Publish(uint32_t, const ring::SlotDescriptor&) {
  MutexLock lock(&mutex_);
  is_published_ = true;
}

void ReadChannel::Close() {
  MutexLock lock(&mutex_);
  is_closed_ = true;
}

absl::Status SendSamples(const v1::ReadSamplesRequest& request,
                         const ReadPlan& plan, uid_t uid, const uint8_t* slot,
                         Backend& backend, const FeedDatasets& datasets,
                         const ReadSink& sink) {
  v1::ReadSamplesResponse first;
  *first.mutable_info() = plan.info;
  DATASETD_RETURN_IF_ERROR(sink.send(first));
  const auto check = [&]() -> absl::Status {
    if (datasets.dataset() == nullptr) return absl::OkStatus();
    if (!datasets.CheckReady().ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "dataset '", request.dataset(), "' was unloaded meanwhile"));
    }
    return datasets.dataset()->status();
  };
  PageSender pages(sink, uid, check);
  DATASETD_RETURN_IF_ERROR(
      pages.Allocate(backend, static_cast<int64_t>(plan.info.size_bytes())));
  for (const ReadPlan::Part& part : plan.parts) {
    DATASETD_RETURN_IF_ERROR(
        part.packed.has_value()
            ? AddPacked(request, *datasets.dataset(), *part.packed, pages)
            : pages.Add(backend.info().is_host ? nullptr : &backend,
                        slot + part.slot_offset_bytes, part.size_bytes));
    DATASETD_RETURN_IF_ERROR(pages.Pad(
        SaturatingRoundUp(part.size_bytes, kAlignmentBytes) - part.size_bytes));
  }
  return pages.Flush();
}

}  // namespace datasetd
