#include "tests/conformance/backend_conformance.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "tests/conformance/export_peer.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMoreThanThereIs = size_t{1} << 50;

// Deterministic and without a short period.
std::vector<uint8_t> Pattern(size_t size_bytes, uint32_t seed) {
  std::vector<uint8_t> bytes(size_bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

// A batch of int32: row i of the slot is row indices[i] of the source, and then
// the indices.
constexpr int kRowElements = 37;
constexpr int kNumSamples = 64;
constexpr int kBatchSize = 16;
constexpr size_t kRowBytes = kRowElements * sizeof(int32_t);
constexpr size_t kSourceBytes = kNumSamples * kRowBytes;
constexpr size_t kIndicesOffsetBytes =
    (kBatchSize * kRowBytes + 255) / 256 * 256;
constexpr size_t kSlotBytes =
    (kIndicesOffsetBytes + kBatchSize * sizeof(int64_t) + 255) / 256 * 256;

AugmentProgram GatherProgram(const uint8_t* source) {
  AugmentProgram program = {};
  program.seed = 1;
  program.indices_offset_bytes = kIndicesOffsetBytes;
  program.num_fields = 1;
  FieldProgram& field = program.fields[0];
  field.source = source;
  field.sample_stride_bytes = kRowBytes;
  field.in_dtype = Dtype::kInt32;
  field.out_dtype = Dtype::kInt32;
  field.layout = Layout::kNhwc;
  field.is_image = false;
  field.in_height = 1;
  field.in_width = kRowElements;
  field.out_height = 1;
  field.out_width = kRowElements;
  field.channels = 1;
  field.offset_bytes = 0;
  return program;
}

// The source's element e of sample s, in version v of the source.
int32_t SourceValue(int version, int64_t sample, int element) {
  return static_cast<int32_t>(version * 1000003 + sample * 1009 + element);
}

std::vector<int32_t> SourceOf(int version) {
  std::vector<int32_t> values;
  values.reserve(kNumSamples * kRowElements);
  for (int sample = 0; sample < kNumSamples; ++sample) {
    for (int element = 0; element < kRowElements; ++element) {
      values.push_back(SourceValue(version, sample, element));
    }
  }
  return values;
}

// The first slot byte that is wrong, or "" if none is.
std::string CheckSlot(const uint8_t* slot, const int64_t* indices,
                      int version) {
  for (int row = 0; row < kBatchSize; ++row) {
    for (int element = 0; element < kRowElements; ++element) {
      int32_t value;
      std::memcpy(&value, slot + row * kRowBytes + element * sizeof(int32_t),
                  sizeof(value));
      const int32_t expected = SourceValue(version, indices[row], element);
      if (value != expected) {
        return absl::StrCat("row ", row, " element ", element, " is ", value,
                            ", expected ", expected);
      }
    }
    int64_t index;
    std::memcpy(&index, slot + kIndicesOffsetBytes + row * sizeof(int64_t),
                sizeof(index));
    if (index != indices[row]) {
      return absl::StrCat("index ", row, " is ", index, ", expected ",
                          indices[row]);
    }
  }
  return "";
}

// A source, a program on it, and slots with indices of their own.
class Gather {
 public:
  static absl::StatusOr<std::unique_ptr<Gather>> Create(Backend& backend,
                                                        int num_slots) {
    auto gather = std::make_unique<Gather>();
    gather->num_slots_ = num_slots;
    auto source = backend.Allocate(kSourceBytes);
    if (!source.ok()) return source.status();
    gather->source_ = *std::move(source);
    auto slots = backend.Allocate(num_slots * kSlotBytes);
    if (!slots.ok()) return slots.status();
    gather->slots_ = *std::move(slots);
    for (int slot = 0; slot < num_slots; ++slot) {
      for (int row = 0; row < kBatchSize; ++row) {
        gather->indices_.push_back((slot * 31 + row * 7) % kNumSamples);
      }
    }
    const size_t index_bytes = gather->indices_.size() * sizeof(int64_t);
    auto device_indices = backend.Allocate(index_bytes);
    if (!device_indices.ok()) return device_indices.status();
    gather->device_indices_ = *std::move(device_indices);
    auto stream = backend.CreateStream(nullptr);
    if (!stream.ok()) return stream.status();
    absl::Status status = (*stream)->CopyToDevice(
        gather->device_indices_->data(),
        reinterpret_cast<const uint8_t*>(gather->indices_.data()), index_bytes);
    if (status.ok()) status = (*stream)->Synchronize();
    if (!status.ok()) return status;
    auto program = backend.Load(GatherProgram(gather->source_->data()));
    if (!program.ok()) return program.status();
    gather->program_ = *std::move(program);
    return gather;
  }

  int num_slots() const { return num_slots_; }
  uint8_t* source() const { return source_->data(); }
  uint8_t* SlotAt(int slot) const { return slots_->data() + slot * kSlotBytes; }
  const int64_t* IndicesOf(int slot) const {
    return indices_.data() + slot * kBatchSize;
  }
  const LoadedProgram& program() const { return *program_; }
  BatchTask TaskFor(int slot) const {
    return {
        .slot = SlotAt(slot),
        .indices = reinterpret_cast<const int64_t*>(device_indices_->data()) +
                   slot * kBatchSize,
        .num_samples = kBatchSize,
        .epoch = 0};
  }

 private:
  int num_slots_ = 0;
  std::unique_ptr<DeviceMemory> source_;
  std::unique_ptr<DeviceMemory> slots_;
  std::vector<int64_t> indices_;
  std::unique_ptr<DeviceMemory> device_indices_;
  std::unique_ptr<LoadedProgram> program_;
};

const uint8_t* Bytes(const std::vector<int32_t>& values) {
  return reinterpret_cast<const uint8_t*>(values.data());
}

}  // namespace

void BackendConformanceTest::SetUp() {
  absl::StatusOr<std::unique_ptr<Backend>> backend = GetParam().create();
  if (absl::IsUnavailable(backend.status())) {
    const char* require = std::getenv("DATASETD_REQUIRE_GPU");
    if (require != nullptr && std::strcmp(require, "1") == 0) {
      FAIL() << "DATASETD_REQUIRE_GPU is 1, but: " << backend.status();
    }
    GTEST_SKIP() << backend.status();
  }
  ASSERT_THAT(backend, IsOk());
  backend_ = *std::move(backend);
}

void BackendConformanceTest::WaitFor(const std::function<bool()>& condition) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waited too long";
    if (GetParam().advance) GetParam().advance(*backend_);
    std::this_thread::yield();
  }
}

void BackendConformanceTest::WaitUntilDone(Event& event) {
  WaitFor([&] {
    const absl::StatusOr<bool> is_done = event.IsDone();
    EXPECT_THAT(is_done, IsOk());
    return is_done.value_or(true);
  });
}

TEST_P(BackendConformanceTest, InfoDescribesTheDevice) {
  const DeviceInfo& info = backend_->info();
  EXPECT_THAT(info.name, Not(IsEmpty()));
  EXPECT_THAT(info.description, Not(IsEmpty()));
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_GE(info.total_bytes, info.free_bytes);
  const std::array<uint8_t, 16> no_uuid = {};
  EXPECT_EQ(info.is_host, info.uuid == no_uuid);
  EXPECT_THAT(backend_->max_batches_per_launch(kSlotBytes),
              AllOf(Ge(1), Le(kMaxBatchesPerLaunch)));
  EXPECT_GE(backend_->max_launches_in_flight(), 1);
  EXPECT_THAT(backend_->export_kinds(), Not(IsEmpty()));
}

TEST_P(BackendConformanceTest, AllocationsAreAlignedAndDisjoint) {
  std::vector<std::unique_ptr<DeviceMemory>> memories;
  for (const size_t size_bytes : {size_t{1}, size_t{255}, size_t{4097}, kMiB}) {
    auto memory = backend_->Allocate(size_bytes);
    ASSERT_THAT(memory, IsOk());
    EXPECT_GE((*memory)->size_bytes(), size_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->data()) % 256, 0u);
    for (const auto& other : memories) {
      EXPECT_TRUE((*memory)->data() + (*memory)->size_bytes() <=
                      other->data() ||
                  other->data() + other->size_bytes() <= (*memory)->data());
    }
    memories.push_back(*std::move(memory));
  }
}

TEST_P(BackendConformanceTest, HostMemoryIsWritableHere) {
  auto memory = backend_->AllocateHost(12345);
  ASSERT_THAT(memory, IsOk());
  ASSERT_GE((*memory)->size_bytes(), 12345u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->data()) % 256, 0u);
  const std::vector<uint8_t> bytes = Pattern(12345, 1);
  std::memcpy((*memory)->data(), bytes.data(), bytes.size());
  EXPECT_EQ(std::memcmp((*memory)->data(), bytes.data(), bytes.size()), 0);
}

TEST_P(BackendConformanceTest, EmptyAllocationIsAnError) {
  const auto is_invalid =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 bytes"));
  EXPECT_THAT(backend_->Allocate(0), is_invalid);
  EXPECT_THAT(backend_->AllocateHost(0), is_invalid);
  for (const ExportKind kind : backend_->export_kinds()) {
    EXPECT_THAT(backend_->AllocateExported(0, kind), is_invalid);
  }
}

TEST_P(BackendConformanceTest, TooLargeAllocationNamesTheBytesAndHarmsNothing) {
  const auto is_exhausted = StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr(absl::StrCat(kMoreThanThereIs)));
  EXPECT_THAT(backend_->Allocate(kMoreThanThereIs), is_exhausted);
  EXPECT_THAT(backend_->AllocateHost(kMoreThanThereIs), is_exhausted);
  for (const ExportKind kind : backend_->export_kinds()) {
    EXPECT_THAT(backend_->AllocateExported(kMoreThanThereIs, kind),
                is_exhausted);
    // Rounding up must not wrap.
    EXPECT_THAT(backend_->AllocateExported(~size_t{0}, kind),
                StatusIs(absl::StatusCode::kResourceExhausted));
  }
  auto memory = backend_->Allocate(4096);
  ASSERT_THAT(memory, IsOk());
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  const std::vector<uint8_t> in = Pattern(4096, 2);
  std::vector<uint8_t> out(4096);
  EXPECT_THAT((*stream)->CopyToDevice((*memory)->data(), in.data(), 4096),
              IsOk());
  EXPECT_THAT((*stream)->CopyToHost(out.data(), (*memory)->data(), 4096),
              IsOk());
  EXPECT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(in, out);
}

TEST_P(BackendConformanceTest, FreedMemoryComesBack) {
  // Together far more than there is.
  const size_t size_bytes = backend_->info().free_bytes / 4;
  for (int i = 0; i < 16; ++i) {
    ASSERT_THAT(backend_->Allocate(size_bytes), IsOk()) << i;
  }
  const ExportKind kind = backend_->export_kinds().front();
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(backend_->AllocateExported(8 * kMiB, kind), IsOk()) << i;
  }
}

TEST_P(BackendConformanceTest, CopiesOfAnySizeAndAlignmentRoundTrip) {
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  for (const size_t size_bytes : {size_t{1}, size_t{2}, size_t{3}, size_t{255},
                                  size_t{256}, size_t{4097}, kMiB + 13}) {
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{64}}) {
      SCOPED_TRACE(absl::StrCat(size_bytes, " bytes at ", offset));
      constexpr size_t kGuard = 128;
      auto memory = backend_->Allocate(offset + size_bytes + kGuard);
      ASSERT_THAT(memory, IsOk());
      const std::vector<uint8_t> background =
          Pattern(offset + size_bytes + kGuard, 3);
      const std::vector<uint8_t> in = Pattern(size_bytes, 4);
      std::vector<uint8_t> out(background.size());
      Stream& s = **stream;
      ASSERT_THAT(s.CopyToDevice((*memory)->data(), background.data(),
                                 background.size()),
                  IsOk());
      ASSERT_THAT(
          s.CopyToDevice((*memory)->data() + offset, in.data(), in.size()),
          IsOk());
      ASSERT_THAT(s.CopyToHost(out.data(), (*memory)->data(), out.size()),
                  IsOk());
      ASSERT_THAT(s.Synchronize(), IsOk());
      std::vector<uint8_t> expected = background;
      std::copy(in.begin(), in.end(), expected.begin() + offset);
      EXPECT_EQ(out, expected);
    }
  }
}

TEST_P(BackendConformanceTest, EmptyCopyDoesNothing) {
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  auto memory = backend_->Allocate(1);
  ASSERT_THAT(memory, IsOk());
  uint8_t byte = 7;
  EXPECT_THAT((*stream)->CopyToDevice((*memory)->data(), &byte, 0), IsOk());
  EXPECT_THAT((*stream)->CopyToHost(&byte, (*memory)->data(), 0), IsOk());
  EXPECT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(byte, 7);
}

TEST_P(BackendConformanceTest, EventIsDoneBeforeItIsRecorded) {
  auto event = backend_->CreateEvent();
  ASSERT_THAT(event, IsOk());
  EXPECT_THAT((*event)->IsDone(), IsOkAndHolds(true));
}

TEST_P(BackendConformanceTest, EventOnAnIdleStreamBecomesDone) {
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  auto event = backend_->CreateEvent();
  ASSERT_THAT(event, IsOk());
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT((*stream)->Record(**event), IsOk());
    WaitUntilDone(**event);
  }
}

TEST_P(BackendConformanceTest, EventOutlivesItsStream) {
  auto event = backend_->CreateEvent();
  ASSERT_THAT(event, IsOk());
  {
    auto stream = backend_->CreateStream(nullptr);
    ASSERT_THAT(stream, IsOk());
    ASSERT_THAT((*stream)->Record(**event), IsOk());
  }
  EXPECT_THAT((*event)->IsDone(), IsOkAndHolds(true));
}

TEST_P(BackendConformanceTest, AugmentRunsBetweenTheCopiesAroundIt) {
  constexpr int kRounds = 20;
  auto gather = Gather::Create(*backend_, 1);
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  std::vector<std::vector<int32_t>> sources;
  for (int round = 0; round < kRounds; ++round) {
    sources.push_back(SourceOf(round));
  }
  auto results = backend_->AllocateHost(kRounds * kSlotBytes);
  ASSERT_THAT(results, IsOk());
  const BatchTask task = g.TaskFor(0);
  for (int round = 0; round < kRounds; ++round) {
    Stream& s = **stream;
    ASSERT_THAT(s.CopyToDevice(g.source(), Bytes(sources[round]), kSourceBytes),
                IsOk());
    ASSERT_THAT(s.Augment(g.program(), {&task, 1}), IsOk());
    ASSERT_THAT(s.CopyToHost((*results)->data() + round * kSlotBytes,
                             g.SlotAt(0), kSlotBytes),
                IsOk());
    if (round % 3 == 2) {
      ASSERT_THAT(s.Synchronize(), IsOk());
    }
  }
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_EQ(CheckSlot((*results)->data() + round * kSlotBytes, g.IndicesOf(0),
                        round),
              "")
        << "round " << round;
  }
}

TEST_P(BackendConformanceTest, DoneEventMeansAllWorkBeforeItIsVisible) {
  auto gather = Gather::Create(*backend_, backend_->max_launches_in_flight());
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  const std::vector<int32_t> source = SourceOf(5);
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  auto event = backend_->CreateEvent();
  ASSERT_THAT(event, IsOk());
  auto results = backend_->AllocateHost(g.num_slots() * kSlotBytes);
  ASSERT_THAT(results, IsOk());
  ASSERT_THAT((*stream)->CopyToDevice(g.source(), Bytes(source), kSourceBytes),
              IsOk());
  for (int slot = 0; slot < g.num_slots(); ++slot) {
    const BatchTask task = g.TaskFor(slot);
    ASSERT_THAT((*stream)->Augment(g.program(), {&task, 1}), IsOk());
  }
  ASSERT_THAT((*stream)->CopyToHost((*results)->data(), g.SlotAt(0),
                                    g.num_slots() * kSlotBytes),
              IsOk());
  ASSERT_THAT((*stream)->Record(**event), IsOk());
  WaitUntilDone(**event);
  // Nothing was synchronised.
  for (int slot = 0; slot < g.num_slots(); ++slot) {
    EXPECT_EQ(
        CheckSlot((*results)->data() + slot * kSlotBytes, g.IndicesOf(slot), 5),
        "")
        << "slot " << slot;
  }
}

TEST_P(BackendConformanceTest, TaskSpanIsCopied) {
  auto gather = Gather::Create(*backend_, 1);
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  const std::vector<int32_t> source = SourceOf(6);
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  std::vector<uint8_t> result(kSlotBytes);
  ASSERT_THAT((*stream)->CopyToDevice(g.source(), Bytes(source), kSourceBytes),
              IsOk());
  {
    BatchTask task = g.TaskFor(0);
    ASSERT_THAT((*stream)->Augment(g.program(), {&task, 1}), IsOk());
    task = {};
  }
  ASSERT_THAT((*stream)->CopyToHost(result.data(), g.SlotAt(0), kSlotBytes),
              IsOk());
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(CheckSlot(result.data(), g.IndicesOf(0), 6), "");
}

TEST_P(BackendConformanceTest, OneLaunchFillsTheBatchesItMay) {
  const int num_batches = backend_->max_batches_per_launch(kSlotBytes);
  auto gather = Gather::Create(*backend_, num_batches + 1);
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  const std::vector<int32_t> source = SourceOf(7);
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  std::vector<BatchTask> tasks;
  for (int slot = 0; slot <= num_batches; ++slot) {
    tasks.push_back(g.TaskFor(slot));
  }
  EXPECT_THAT((*stream)->Augment(g.program(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0")));
  EXPECT_THAT((*stream)->Augment(g.program(), tasks),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat(num_batches + 1))));
  tasks.pop_back();

  // The batch that no launch fills must stay as it is.
  const std::vector<uint8_t> background = Pattern(kSlotBytes, 8);
  std::vector<uint8_t> results((num_batches + 1) * kSlotBytes);
  Stream& s = **stream;
  ASSERT_THAT(s.CopyToDevice(g.source(), Bytes(source), kSourceBytes), IsOk());
  ASSERT_THAT(
      s.CopyToDevice(g.SlotAt(num_batches), background.data(), kSlotBytes),
      IsOk());
  ASSERT_THAT(s.Augment(g.program(), tasks), IsOk());
  ASSERT_THAT(s.CopyToHost(results.data(), g.SlotAt(0), results.size()),
              IsOk());
  ASSERT_THAT(s.Synchronize(), IsOk());
  for (int slot = 0; slot < num_batches; ++slot) {
    EXPECT_EQ(
        CheckSlot(results.data() + slot * kSlotBytes, g.IndicesOf(slot), 7), "")
        << "slot " << slot;
  }
  EXPECT_EQ(std::memcmp(results.data() + num_batches * kSlotBytes,
                        background.data(), kSlotBytes),
            0);
}

TEST_P(BackendConformanceTest, EventsOfAStreamBecomeDoneInOrder) {
  constexpr int kRounds = 30;
  const int in_flight = backend_->max_launches_in_flight();
  auto gather = Gather::Create(*backend_, in_flight);
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  const std::vector<int32_t> source = SourceOf(9);
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  ASSERT_THAT((*stream)->CopyToDevice(g.source(), Bytes(source), kSourceBytes),
              IsOk());
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < in_flight; ++i) {
    auto event = backend_->CreateEvent();
    ASSERT_THAT(event, IsOk());
    events.push_back(*std::move(event));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int slot = 0; slot < in_flight; ++slot) {
      const BatchTask task = g.TaskFor(slot);
      ASSERT_THAT((*stream)->Augment(g.program(), {&task, 1}), IsOk());
      ASSERT_THAT((*stream)->Record(*events[slot]), IsOk());
    }
    WaitFor([&] {
      // From the last to the first: once one is done, all before it are.
      bool later_is_done = false;
      int num_done = 0;
      for (int slot = in_flight - 1; slot >= 0; --slot) {
        const bool is_done = events[slot]->IsDone().value();
        EXPECT_FALSE(later_is_done && !is_done) << "event " << slot;
        later_is_done = is_done;
        num_done += is_done ? 1 : 0;
      }
      return num_done == in_flight;
    });
  }
}

TEST_P(BackendConformanceTest, StreamsAndThreadsDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 25;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &error = errors[t]] {
      auto gather = Gather::Create(*backend_, 2);
      auto stream = backend_->CreateStream(nullptr);
      if (!gather.ok() || !stream.ok()) {
        error = "allocation failed";
        return;
      }
      const Gather& g = **gather;
      Stream& s = **stream;
      std::vector<uint8_t> results(2 * kSlotBytes);
      for (int round = 0; round < kRounds && error.empty(); ++round) {
        const int version = t * kRounds + round;
        const std::vector<int32_t> source = SourceOf(version);
        absl::Status status =
            s.CopyToDevice(g.source(), Bytes(source), kSourceBytes);
        for (int slot = 0; slot < 2; ++slot) {
          const BatchTask task = g.TaskFor(slot);
          status.Update(s.Augment(g.program(), {&task, 1}));
        }
        status.Update(
            s.CopyToHost(results.data(), g.SlotAt(0), results.size()));
        status.Update(s.Synchronize());
        if (!status.ok()) error = status.ToString();
        for (int slot = 0; slot < 2; ++slot) {
          absl::StrAppend(&error, CheckSlot(results.data() + slot * kSlotBytes,
                                            g.IndicesOf(slot), version));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, Each(""));
}

TEST_P(BackendConformanceTest, StreamFinishesItsWorkWhenDestroyed) {
  auto gather = Gather::Create(*backend_, 2);
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  const std::vector<int32_t> source = SourceOf(11);
  std::vector<uint8_t> results(2 * kSlotBytes);
  {
    auto stream = backend_->CreateStream(nullptr);
    ASSERT_THAT(stream, IsOk());
    Stream& s = **stream;
    ASSERT_THAT(s.CopyToDevice(g.source(), Bytes(source), kSourceBytes),
                IsOk());
    for (int slot = 0; slot < 2; ++slot) {
      const BatchTask task = g.TaskFor(slot);
      ASSERT_THAT(s.Augment(g.program(), {&task, 1}), IsOk());
    }
    ASSERT_THAT(s.CopyToHost(results.data(), g.SlotAt(0), results.size()),
                IsOk());
  }
  for (int slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(
        CheckSlot(results.data() + slot * kSlotBytes, g.IndicesOf(slot), 11),
        "");
  }
}

TEST_P(BackendConformanceTest, OnDoneIsCalledUnlessPollingIsNeeded) {
  constexpr int kRounds = 20;
  std::atomic<int> num_calls = 0;
  std::atomic<int> num_calls_here = 0;
  const std::thread::id here = std::this_thread::get_id();
  {
    auto gather = Gather::Create(*backend_, 1);
    ASSERT_THAT(gather, IsOk());
    const Gather& g = **gather;
    const std::vector<int32_t> source = SourceOf(12);
    auto event = backend_->CreateEvent();
    ASSERT_THAT(event, IsOk());
    auto stream = backend_->CreateStream([&] {
      if (std::this_thread::get_id() == here) ++num_calls_here;
      ++num_calls;
    });
    ASSERT_THAT(stream, IsOk());
    ASSERT_THAT(
        (*stream)->CopyToDevice(g.source(), Bytes(source), kSourceBytes),
        IsOk());
    for (int round = 0; round < kRounds; ++round) {
      // Every other round without work before the event.
      if (round % 2 == 0) {
        const BatchTask task = g.TaskFor(0);
        ASSERT_THAT((*stream)->Augment(g.program(), {&task, 1}), IsOk());
      }
      ASSERT_THAT((*stream)->Record(**event), IsOk());
      WaitUntilDone(**event);
      if (!backend_->needs_polling()) {
        WaitFor([&] { return num_calls == round + 1; });
      }
    }
  }
  EXPECT_EQ(num_calls, backend_->needs_polling() ? 0 : kRounds);
  EXPECT_EQ(num_calls_here, 0);
}

TEST_P(BackendConformanceTest, OnDoneIsNotCalledAfterTheStream) {
  for (int round = 0; round < 50; ++round) {
    auto num_calls = std::make_unique<std::atomic<int>>(0);
    auto event = backend_->CreateEvent();
    ASSERT_THAT(event, IsOk());
    {
      auto stream = backend_->CreateStream([&] { ++*num_calls; });
      ASSERT_THAT(stream, IsOk());
      ASSERT_THAT((*stream)->Record(**event), IsOk());
    }
    // All calls have been made; a later one would use freed memory.
    EXPECT_EQ(*num_calls, backend_->needs_polling() ? 0 : 1);
  }
}

TEST_P(BackendConformanceTest, ExportIsRoundedZeroedAndClosedOnExec) {
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  for (const ExportKind kind : backend_->export_kinds()) {
    SCOPED_TRACE(ExportKindName(kind));
    for (const size_t size_bytes : {size_t{1}, 2 * kMiB, 2 * kMiB + 1}) {
      auto memory = backend_->AllocateExported(size_bytes, kind);
      ASSERT_THAT(memory, IsOk());
      EXPECT_EQ((*memory)->export_kind(), kind);
      EXPECT_GE((*memory)->size_bytes(), size_bytes);
      EXPECT_EQ((*memory)->size_bytes() % (2 * kMiB), 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->data()) % 256, 0u);
      std::vector<uint8_t> bytes((*memory)->size_bytes(), 0xFF);
      ASSERT_THAT(
          (*stream)->CopyToHost(bytes.data(), (*memory)->data(), bytes.size()),
          IsOk());
      ASSERT_THAT((*stream)->Synchronize(), IsOk());
      EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}), 0u);
      if (kind == ExportKind::kCudaIpcHandle) {
        EXPECT_EQ((*memory)->ipc_handle().size(), 64u);
        EXPECT_EQ((*memory)->file_descriptor(), -1);
      } else {
        EXPECT_EQ((*memory)->ipc_handle().size(), 0u);
        const int flags = fcntl((*memory)->file_descriptor(), F_GETFD);
        ASSERT_NE(flags, -1);
        EXPECT_TRUE(flags & FD_CLOEXEC);
      }
    }
  }
}

TEST_P(BackendConformanceTest, UnknownExportIsUnimplemented) {
  const std::vector<ExportKind> kinds = backend_->export_kinds();
  for (const ExportKind kind : {ExportKind::kMemfd, ExportKind::kCudaIpcHandle,
                                ExportKind::kCudaVmmFd}) {
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    EXPECT_THAT(backend_->AllocateExported(1, kind),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr(ExportKindName(kind))));
  }
}

TEST_P(BackendConformanceTest, AnotherProcessSharesExportedMemory) {
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  for (const ExportKind kind : backend_->export_kinds()) {
    SCOPED_TRACE(ExportKindName(kind));
    auto memory = backend_->AllocateExported(3 * kMiB, kind);
    ASSERT_THAT(memory, IsOk());
    const size_t end = (*memory)->size_bytes();
    auto peer = ExportPeer::Start();
    ASSERT_THAT(peer, IsOk());
    ASSERT_THAT((*peer)->Import(**memory), IsOk());

    // Written here after the import, read there, at both ends.
    for (const size_t offset : {size_t{0}, size_t{12345}, end - 1000}) {
      const std::vector<uint8_t> ours = Pattern(1000, offset);
      ASSERT_THAT((*stream)->CopyToDevice((*memory)->data() + offset,
                                          ours.data(), ours.size()),
                  IsOk());
      ASSERT_THAT((*stream)->Synchronize(), IsOk());
      EXPECT_THAT((*peer)->Read(offset, ours.size()),
                  IsOkAndHolds(ElementsAreArray(ours)));
    }
    // Written there, read here.
    const std::vector<uint8_t> theirs = Pattern(999, 77);
    ASSERT_THAT((*peer)->Write(2 * kMiB + 1, theirs), IsOk());
    std::vector<uint8_t> seen(theirs.size());
    ASSERT_THAT((*stream)->CopyToHost(
                    seen.data(), (*memory)->data() + 2 * kMiB + 1, seen.size()),
                IsOk());
    ASSERT_THAT((*stream)->Synchronize(), IsOk());
    EXPECT_EQ(seen, theirs);
  }
}

TEST_P(BackendConformanceTest, ImporterSeesLaunchesIntoExportedMemory) {
  auto gather = Gather::Create(*backend_, 1);
  ASSERT_THAT(gather, IsOk());
  const Gather& g = **gather;
  const std::vector<int32_t> source = SourceOf(13);
  for (const ExportKind kind : backend_->export_kinds()) {
    SCOPED_TRACE(ExportKindName(kind));
    auto slab = backend_->AllocateExported(kSlotBytes, kind);
    ASSERT_THAT(slab, IsOk());
    auto stream = backend_->CreateStream(nullptr);
    ASSERT_THAT(stream, IsOk());
    auto peer = ExportPeer::Start();
    ASSERT_THAT(peer, IsOk());
    ASSERT_THAT((*peer)->Import(**slab), IsOk());
    BatchTask task = g.TaskFor(0);
    task.slot = (*slab)->data();
    ASSERT_THAT(
        (*stream)->CopyToDevice(g.source(), Bytes(source), kSourceBytes),
        IsOk());
    ASSERT_THAT((*stream)->Augment(g.program(), {&task, 1}), IsOk());
    ASSERT_THAT((*stream)->Synchronize(), IsOk());
    static_assert(kSlotBytes <= ExportPeer::kMaxBytes);
    const auto slot = (*peer)->Read(0, kSlotBytes);
    ASSERT_THAT(slot, IsOk());
    EXPECT_EQ(CheckSlot(slot->data(), g.IndicesOf(0), 13), "");
  }
}

TEST_P(BackendConformanceTest, ImporterCannotChangeTheSize) {
  for (const ExportKind kind : backend_->export_kinds()) {
    if (kind != ExportKind::kMemfd) continue;
    auto memory = backend_->AllocateExported(4 * kMiB, kind);
    ASSERT_THAT(memory, IsOk());
    auto peer = ExportPeer::Start();
    ASSERT_THAT(peer, IsOk());
    ASSERT_THAT((*peer)->Import(**memory), IsOk());
    EXPECT_THAT((*peer)->Truncate(0), IsOkAndHolds(EPERM));
    EXPECT_THAT((*peer)->Truncate(2 * kMiB), IsOkAndHolds(EPERM));
    EXPECT_THAT((*peer)->Truncate(8 * kMiB), IsOkAndHolds(EPERM));
    EXPECT_THAT((*peer)->Extend(8 * kMiB), IsOkAndHolds(EPERM));
    // A SIGBUS if it could.
    (*memory)->data()[(*memory)->size_bytes() - 1] = 1;
    EXPECT_THAT((*peer)->Read((*memory)->size_bytes() - 1, 1),
                IsOkAndHolds(ElementsAreArray({1})));
  }
}

TEST_P(BackendConformanceTest, MemoryStaysWhenTheImporterDies) {
  auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  for (const ExportKind kind : backend_->export_kinds()) {
    SCOPED_TRACE(ExportKindName(kind));
    auto memory = backend_->AllocateExported(1, kind);
    ASSERT_THAT(memory, IsOk());
    const std::vector<uint8_t> theirs = Pattern(64, 99);
    {
      auto peer = ExportPeer::Start();
      ASSERT_THAT(peer, IsOk());
      ASSERT_THAT((*peer)->Import(**memory), IsOk());
      ASSERT_THAT((*peer)->Write(0, theirs), IsOk());
    }
    std::vector<uint8_t> seen(theirs.size());
    ASSERT_THAT(
        (*stream)->CopyToHost(seen.data(), (*memory)->data(), seen.size()),
        IsOk());
    ASSERT_THAT((*stream)->Synchronize(), IsOk());
    EXPECT_EQ(seen, theirs);
  }
}

int ConformanceMain(int argc, char** argv, const Importer& importer) {
  if (const std::optional<int> exit_status =
          RunExportPeerIfAsked(argc, argv, importer);
      exit_status.has_value()) {
    return *exit_status;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace datasetd::testing
