// What an importer of device memory can do to it, and what outlives its owner:
// one JSON object on stdout. Two sides that trust each other need no answer; it
// decides whether feeds may run in the trainer's process.
//
// The owner and each importer are processes of their own, so that a fault ends
// one importer alone. This one, between them, has no context.
//
//   vmm_probe [--short]            all questions; with little to read by
//   kernels vmm_probe owner SOCKET SIZE [FILE]
//       owns memory, filled with a pattern or with the file's bytes, and sends
//       its descriptor; then answers each byte that it reads there with the
//       first bytes of the memory, until the end of the file
//
// Exit code 0 if there is a GPU, else 1.

#include <cuda.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"
#include "cuda/device/augment_kernels.h"
#include "cuda/device/cuda_context.h"
#include "cuda/device/cuda_exported_memory.h"
#include "cuda/device/cuda_memory.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"
#include "cuda/kernels/program/stage_copy.h"

namespace datasetd::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kOwnedBytes = 256 * kMiB;
constexpr size_t kLargeBytes = size_t{16} << 30;
constexpr size_t kToldBytes = 16;
constexpr unsigned char kPattern = 0x5A;
constexpr unsigned char kChange = 0xA5;
constexpr int kImportedFd = 9;
constexpr int64_t kReadMiB = 64;  // to see how fast it is read
constexpr int kCopies = 20;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

std::string Text(const absl::Status& status) {
  return status.ok() ? "OK" : std::string(status.message());
}

std::string Hex(const uint8_t* bytes) {
  std::string text;
  for (size_t i = 0; i < kToldBytes; ++i) {
    absl::StrAppend(&text, absl::Hex(bytes[i], absl::kZeroPad2));
  }
  return text;
}

std::string HexOf(unsigned char byte) {
  const std::vector<uint8_t> bytes(kToldBytes, byte);
  return Hex(bytes.data());
}

// --- Owner ---------------------------------------------------------------

absl::Status SendDescriptor(int socket, int fd) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(socket, &message, 0) == 1
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno, "sendmsg");
}

absl::StatusOr<FileDescriptor> ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, 0) != 1) {
    return absl::UnavailableError("the owner ended");
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return absl::UnavailableError("the owner sent no descriptor");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return FileDescriptor(fd);
}

absl::Status RunOwner(int socket, size_t size_bytes, const char* path) {
  DATASETD_ASSIGN_OR_RETURN(const auto context, CudaContext::Retain(0));
  const DriverApi& api = context->api();
  DATASETD_ASSIGN_OR_RETURN(const auto memory,
                            CudaVmmMemory::Create(*context, size_bytes));
  const auto address = reinterpret_cast<CUdeviceptr>(memory->data());
  if (path == nullptr) {
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuMemsetD8Async(address, kPattern, size_bytes, nullptr));
  } else {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes(size_bytes);
    if (!file.read(bytes.data(), static_cast<std::streamsize>(size_bytes))) {
      return absl::NotFoundError(absl::StrCat(path, " is shorter"));
    }
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuMemcpyHtoD(address, bytes.data(), size_bytes));
  }
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuCtxSynchronize());
  DATASETD_RETURN_IF_ERROR(SendDescriptor(socket, memory->file_descriptor()));
  char byte;
  while (read(socket, &byte, 1) == 1) {
    uint8_t told[kToldBytes];
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuMemcpyDtoH(told, address, sizeof(told)));
    if (write(socket, told, sizeof(told)) != sizeof(told)) break;
  }
  return absl::OkStatus();
}

// --- Importers -----------------------------------------------------------

// A mapping of the descriptor that the parent left; the exit unmaps.
class View {
 public:
  View(const CudaContext& context, size_t size_bytes)
      : context_(context), size_bytes_(size_bytes) {}

  absl::Status Map(CUmemAccess_flags access) {
    const DriverApi& api = context_.api();
    DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemImportFromShareableHandle(
        &allocation_,
        reinterpret_cast<void*>(static_cast<uintptr_t>(kImportedFd)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuMemAddressReserve(&address_, size_bytes_, 0, 0, 0));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuMemMap(address_, size_bytes_, 0, allocation_, 0));
    return SetAccess(access);
  }
  absl::Status SetAccess(CUmemAccess_flags flags) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = context_.device();
    access.flags = flags;
    DATASETD_CUDA_RETURN_IF_ERROR(
        context_.api().cuMemSetAccess(address_, size_bytes_, &access, 1));
    return absl::OkStatus();
  }
  absl::Status Memset(unsigned char byte) {
    DATASETD_CUDA_RETURN_IF_ERROR(
        context_.api().cuMemsetD8Async(address_, byte, kToldBytes, nullptr));
    return Synchronize();
  }
  absl::Status CopyTo() {
    const std::vector<uint8_t> bytes(kToldBytes, kChange);
    DATASETD_CUDA_RETURN_IF_ERROR(
        context_.api().cuMemcpyHtoD(address_, bytes.data(), bytes.size()));
    return Synchronize();
  }
  absl::StatusOr<std::string> Read() {
    uint8_t told[kToldBytes];
    DATASETD_CUDA_RETURN_IF_ERROR(
        context_.api().cuMemcpyDtoH(told, address_, sizeof(told)));
    return Hex(told);
  }
  absl::Status Synchronize() {
    DATASETD_CUDA_RETURN_IF_ERROR(context_.api().cuCtxSynchronize());
    return absl::OkStatus();
  }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(address_); }

 private:
  const CudaContext& context_;
  const size_t size_bytes_;
  CUmemGenericAllocationHandle allocation_ = 0;
  CUdeviceptr address_ = 0;
};

// Runs StageKernel on copies that lie in device memory.
absl::Status Stage(const CudaContext& context, const AugmentKernels& kernels,
                   const std::vector<StageCopy>& copies, int num_launches) {
  DATASETD_ASSIGN_OR_RETURN(
      const CudaMalloc list,
      MallocOnDevice(context, copies.size() * sizeof(StageCopy)));
  DATASETD_CUDA_RETURN_IF_ERROR(context.api().cuMemcpyHtoD(
      reinterpret_cast<CUdeviceptr>(list.get()), copies.data(),
      copies.size() * sizeof(StageCopy)));
  for (int i = 0; i < num_launches; ++i) {
    DATASETD_RETURN_IF_ERROR(
        kernels.Stage(reinterpret_cast<const StageCopy*>(list.get()),
                      static_cast<int64_t>(copies.size()), nullptr));
  }
  DATASETD_CUDA_RETURN_IF_ERROR(context.api().cuCtxSynchronize());
  return absl::OkStatus();
}

absl::Status StoreByKernel(const CudaContext& context, const View& view) {
  DATASETD_ASSIGN_OR_RETURN(const auto kernels, AugmentKernels::Load(context));
  DATASETD_ASSIGN_OR_RETURN(const CudaMalloc from,
                            MallocOnDevice(context, kMiB));
  DATASETD_RETURN_IF_ERROR(ZeroOnDevice(context, from.get(), kMiB));
  return Stage(context, *kernels,
               {{.from = from.get(), .to = view.data(), .size_bytes = 4096}},
               1);
}

// Microseconds in which a kernel reads `num_bytes` of the mapping.
absl::StatusOr<double> ReadMicroseconds(const CudaContext& context,
                                        const View& view, int64_t num_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const auto kernels, AugmentKernels::Load(context));
  DATASETD_ASSIGN_OR_RETURN(const CudaMalloc to,
                            MallocOnDevice(context, num_bytes));
  std::vector<StageCopy> copies;
  for (int64_t at = 0; at < num_bytes; at += kStagePieceBytes) {
    copies.push_back({.from = view.data() + at,
                      .to = to.get() + at,
                      .size_bytes = kStagePieceBytes});
  }
  const bool is_short = num_bytes < kReadMiB * static_cast<int64_t>(kMiB);
  const int num_launches = is_short ? 1 : kCopies;
  if (!is_short) DATASETD_RETURN_IF_ERROR(Stage(context, *kernels, copies, 3));
  const auto start = Clock::now();
  DATASETD_RETURN_IF_ERROR(Stage(context, *kernels, copies, num_launches));
  return MicrosecondsSince(start) / num_launches;
}

// Without a context, until one is asked to read.
absl::StatusOr<json> CreateWithoutContext() {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuInit(0));
  CUdevice device = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuDeviceGet(&device, 0));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle allocation = 0;
  json result;
  const absl::Status made =
      CudaStatus(api->cuMemCreate(&allocation, kOwnedBytes, &properties, 0),
                 "cuMemCreate");
  result["create"] = Text(made);
  if (!made.ok()) return result;
  int fd = -1;
  result["export"] = Text(CudaStatus(
      api->cuMemExportToShareableHandle(
          &fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  DATASETD_ASSIGN_OR_RETURN(auto context, CudaContext::Retain(0));
  size_t with_context = 0, total = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuMemGetInfo(&with_context, &total));
  CudaContext::Release(std::move(context));
  CUmemGenericAllocationHandle again = 0;
  result["import_after_the_contexts_end"] = Text(CudaStatus(
      api->cuMemImportFromShareableHandle(
          &again, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle"));
  result["free_bytes_with_a_context"] = with_context;
  return result;
}

absl::StatusOr<json> RunImporter(const std::string& what, size_t size_bytes,
                                 int64_t read_bytes) {
  if (what == "no_context") return CreateWithoutContext();
  DATASETD_ASSIGN_OR_RETURN(const auto context, CudaContext::Retain(0));
  if (what == "free") {
    size_t free_bytes = 0, total = 0;
    DATASETD_CUDA_RETURN_IF_ERROR(
        context->api().cuMemGetInfo(&free_bytes, &total));
    return json{{"free_bytes", free_bytes}};
  }
  View view(*context, size_bytes);
  const auto start = Clock::now();
  const absl::Status mapped =
      view.Map(what == "speed_writable" ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                        : CU_MEM_ACCESS_FLAGS_PROT_READ);
  json result = {{"map", Text(mapped)}, {"map_us", MicrosecondsSince(start)}};
  if (!mapped.ok()) return result;
  const auto read = [&](const char* name) {
    const absl::StatusOr<std::string> bytes = view.Read();
    result[name] = bytes.ok() ? *bytes : Text(bytes.status());
  };
  if (what == "copy") {
    result["write"] = Text(view.CopyTo());
  } else if (what == "memset") {
    result["write"] = Text(view.Memset(kChange));
  } else if (what == "store") {
    result["write"] = Text(StoreByKernel(*context, view));
  } else if (what == "upgrade") {
    result["set_access"] =
        Text(view.SetAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    result["write"] = Text(view.Memset(kChange));
  } else if (what == "twice") {
    View other(*context, size_bytes);
    result["map_writable"] =
        Text(other.Map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    result["write"] = Text(other.Memset(kPattern));
    read("read");
  } else if (what == "survive") {
    read("before");
    std::cout << "mapped" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    read("after");
  } else if (what == "speed_read_only" || what == "speed_writable") {
    DATASETD_ASSIGN_OR_RETURN(result["read_us"],
                              ReadMicroseconds(*context, view, read_bytes));
  } else {
    read("read");
  }
  return result;
}

// --- Between them --------------------------------------------------------

// A child of this program.
class Child {
 public:
  // The child has `fd` as `as_fd`, and pipes or nothing for input and output.
  static absl::StatusOr<std::unique_ptr<Child>> Start(
      std::vector<std::string> arguments, int fd, int as_fd) {
    int input[2], output[2];
    if (pipe(input) != 0 || pipe(output) != 0) {
      return absl::ErrnoToStatus(errno, "pipe");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    if (fd >= 0) posix_spawn_file_actions_adddup2(&actions, fd, as_fd);
    for (const int end : {input[0], input[1], output[0], output[1]}) {
      if (end != as_fd) posix_spawn_file_actions_addclose(&actions, end);
    }
    std::string program = "/proc/self/exe";
    std::vector<char*> words = {program.data()};
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_t pid = -1;
    const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr,
                                  words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    if (error != 0) {
      close(input[1]);
      close(output[0]);
      return absl::ErrnoToStatus(error, "posix_spawn");
    }
    return std::unique_ptr<Child>(new Child(pid, input[1], output[0]));
  }
  ~Child() {
    std::fclose(output_);
    Kill();
  }

  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string ReadLine() {
    char line[4096];
    std::string text =
        std::fgets(line, sizeof(line), output_) == nullptr ? "" : line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  void GoOn() { (void)!write(input_.get(), "\n", 1); }
  json Answer() {
    json answer = json::parse(ReadLine(), nullptr, /*allow_exceptions=*/false);
    return answer.is_object() ? answer
                              : json{{"not_measured", "the child ended"}};
  }

 private:
  Child(pid_t pid, int input, int output)
      : pid_(pid), input_(input), output_(fdopen(output, "r")) {}

  pid_t pid_;
  FileDescriptor input_;
  std::FILE* const output_;
};

class Owner {
 public:
  // `read_bytes`: as for ReadMicroseconds.
  static absl::StatusOr<std::unique_ptr<Owner>> Start(size_t size_bytes,
                                                      int64_t read_bytes) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return absl::ErrnoToStatus(errno, "socketpair");
    }
    auto owner = std::make_unique<Owner>();
    owner->socket_ = FileDescriptor(ends[0]);
    const FileDescriptor theirs(ends[1]);
    DATASETD_ASSIGN_OR_RETURN(owner->child_,
                              Child::Start({"owner", absl::StrCat(kImportedFd),
                                            absl::StrCat(size_bytes)},
                                           theirs.get(), kImportedFd));
    owner->size_bytes_ = size_bytes;
    owner->read_bytes_ = read_bytes;
    return owner;
  }

  absl::Status Receive() {
    DATASETD_ASSIGN_OR_RETURN(memory_, ReceiveDescriptor(socket_.get()));
    return absl::OkStatus();
  }
  // The first bytes of the memory as the owner sees them.
  std::string Read() {
    uint8_t told[kToldBytes];
    if (write(socket_.get(), "?", 1) != 1 ||
        read(socket_.get(), told, sizeof(told)) != sizeof(told)) {
      return "the owner ended";
    }
    return Hex(told);
  }
  void Kill() { child_->Kill(); }

  absl::StatusOr<std::unique_ptr<Child>> Import(const std::string& what) {
    return Child::Start(
        {"import", what, absl::StrCat(size_bytes_), absl::StrCat(read_bytes_)},
        memory_.get(), kImportedFd);
  }
  json Ask(const std::string& what) {
    const auto child = Import(what);
    return child.ok() ? (*child)->Answer()
                      : json{{"not_measured", Text(child.status())}};
  }

 private:
  std::unique_ptr<Child> child_;
  FileDescriptor socket_;
  FileDescriptor memory_;
  size_t size_bytes_ = 0;
  int64_t read_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<Owner>> StartOwner(size_t size_bytes,
                                                  int64_t read_bytes = 0) {
  DATASETD_ASSIGN_OR_RETURN(auto owner, Owner::Start(size_bytes, read_bytes));
  DATASETD_RETURN_IF_ERROR(owner->Receive());
  return owner;
}

absl::StatusOr<json> RunAll(bool is_short) {
  json result;
  DATASETD_ASSIGN_OR_RETURN(
      auto owner, StartOwner(kOwnedBytes, static_cast<int64_t>(kMiB) *
                                              (is_short ? 1 : kReadMiB)));
  result["pattern"] = HexOf(kPattern);
  result["change"] = HexOf(kChange);
  // What a mapping for reading forbids, each in a fresh process.
  for (const char* const what : {"copy", "memset", "store"}) {
    json& answer = result["read_only"][what] = owner->Ask(what);
    answer["owner_reads"] = owner->Read();
  }
  json& upgrade = result["upgrade"] = owner->Ask("upgrade");
  upgrade["owner_reads"] = owner->Read();
  json& twice = result["twice"] = owner->Ask("twice");
  twice["owner_reads"] = owner->Read();
  result["speed_read_only"] = owner->Ask("speed_read_only");
  result["speed_writable"] = owner->Ask("speed_writable");
  // What outlives the owner: with a mapping, and with the descriptor alone.
  const json free_before = owner->Ask("free");
  {
    DATASETD_ASSIGN_OR_RETURN(const auto child, owner->Import("survive"));
    const bool is_mapped = child->ReadLine() == "mapped";
    owner->Kill();
    child->GoOn();
    result["owner_killed"] =
        is_mapped ? child->Answer() : json{{"not_measured", "not mapped"}};
  }
  result["only_a_descriptor"] = owner->Ask("read");
  const json free_held = owner->Ask("free");
  owner.reset();
  DATASETD_ASSIGN_OR_RETURN(owner, StartOwner(2 * kMiB));
  result["free_bytes"] = {{"owned", free_before["free_bytes"]},
                          {"only_a_descriptor", free_held["free_bytes"]},
                          {"given_back", owner->Ask("free")["free_bytes"]}};
  result["no_context"] = owner->Ask("no_context");
  const json free_now = owner->Ask("free");
  owner.reset();
  size_t large = kLargeBytes;
  if (free_now.contains("free_bytes")) {
    large = std::min(large, free_now["free_bytes"].get<size_t>() / 2);
  }
  large -= large % (2 * kMiB);
  const auto large_owner = StartOwner(large);
  if (large_owner.ok()) {
    result["large"] = (*large_owner)->Ask("read");
    result["large"]["bytes"] = large;
  } else {
    result["large"] = {{"not_measured", Text(large_owner.status())}};
  }
  return result;
}

int Print(const absl::StatusOr<json>& answer) {
  const json result =
      answer.ok() ? *answer : json{{"not_measured", Text(answer.status())}};
  std::puts(result.dump().c_str());
  return answer.ok() ? 0 : 1;
}

int Main(const std::vector<std::string>& words) {
  if (words.size() >= 3 && words[0] == "owner") {
    const absl::Status status =
        RunOwner(std::atoi(words[1].c_str()),
                 static_cast<size_t>(std::atoll(words[2].c_str())),
                 words.size() > 3 ? words[3].c_str() : nullptr);
    if (!status.ok()) std::cerr << status << "\n";
    return status.ok() ? 0 : 1;
  }
  if (words.size() == 4 && words[0] == "import") {
    return Print(RunImporter(words[1],
                             static_cast<size_t>(std::atoll(words[2].c_str())),
                             std::atoll(words[3].c_str())));
  }
  // A child that ends early is answered, not an end of this one.
  std::signal(SIGPIPE, SIG_IGN);
  return Print(RunAll(!words.empty() && words[0] == "--short"));
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  return datasetd::testing::Main({argv + 1, argv + argc});
}
