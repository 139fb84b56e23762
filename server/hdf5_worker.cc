// datasetd-hdf5: runs the HDF5 library on one file for the daemon. See
// server/readers/hdf5/hdf5_wire.h. Standard input is the socket.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/hdf5/hdf5_file.h"
#include "server/readers/hdf5/hdf5_wire.h"
#include "server/readers/hdf5/worker_sandbox.h"

namespace datasetd {
namespace {

using hdf5::Kind;

#ifdef DATASETD_SANITIZED  // shadow memory takes terabytes of addresses
constexpr rlim_t kMaxMemoryBytes = RLIM_INFINITY;
#else
constexpr rlim_t kMaxMemoryBytes = rlim_t{2} << 30;
#endif
constexpr rlim_t kMaxCpuSeconds = 24 * 3600;
constexpr int kForEver = -1;

// A hostile file may take over the library, so limit what the process can do.
void LimitThisProcess() {
  const rlimit memory = {kMaxMemoryBytes, kMaxMemoryBytes};
  const rlimit cpu = {kMaxCpuSeconds, kMaxCpuSeconds};
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CPU, &cpu);
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_FSIZE, &none);
}

// A vulnerability of the library must not affect the daemon.
absl::Status Confine() {
  Hdf5File::InitLibrary();
#ifdef DATASETD_SANITIZED  // the filter does not allow the sanitizer's calls
  return absl::OkStatus();
#else
  return EnterSandbox();
#endif
}

// Requests bytes from the daemon.
bool NeedBytes(uint64_t offset, uint64_t size, void* buffer) {
  auto* to = static_cast<uint8_t*>(buffer);
  while (size > 0) {
    const uint64_t part = std::min(size, hdf5::kMaxNeedBytes);
    const uint64_t need[] = {offset, part};
    if (!hdf5::Send(STDIN_FILENO, Kind::kNeed, hdf5::BytesOf(need)).ok()) {
      _exit(0);
    }
    const auto frame = hdf5::ReceiveFrame(STDIN_FILENO, kForEver);
    if (!frame.ok()) _exit(0);  // the daemon is gone
    if (frame->kind != Kind::kBytes || frame->size_bytes != part) return false;
    if (!hdf5::Receive(STDIN_FILENO, kForEver, absl::MakeSpan(to, part)).ok()) {
      _exit(0);
    }
    to += part;
    offset += part;
    size -= part;
  }
  return true;
}

absl::Status SendText(Kind kind, const std::string& text) {
  return hdf5::Send(
      STDIN_FILENO, kind,
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                          text.size()));
}

absl::Status SendError(const absl::Status& status) {
  const uint64_t code = static_cast<uint64_t>(status.code());
  std::string text(reinterpret_cast<const char*>(&code), sizeof(code));
  text.append(status.message().data(),
              std::min<size_t>(status.message().size(), 8192));
  return SendText(Kind::kError, text);
}

absl::StatusOr<Hdf5File> AwaitOpen() {
  DATASETD_ASSIGN_OR_RETURN(const hdf5::Frame frame,
                            hdf5::ReceiveFrame(STDIN_FILENO, kForEver));
  uint64_t size = 0;
  if (frame.kind != Kind::kOpen || frame.size_bytes < sizeof(size) ||
      frame.size_bytes > hdf5::kMaxTextBytes) {
    return absl::UnavailableError("not asked to open a file");
  }
  DATASETD_ASSIGN_OR_RETURN(
      const std::string text,
      hdf5::ReceiveText(STDIN_FILENO, kForEver, frame.size_bytes));
  memcpy(&size, text.data(), sizeof(size));
  return Hdf5File::Open(size, NeedBytes, text.substr(sizeof(size)));
}

// Serves requests until the daemon is gone.
absl::Status Serve() {
  if (const absl::Status confined = Confine(); !confined.ok()) {
    return SendError(
        absl::Status(confined.code(),
                     absl::StrCat("the program that reads HDF5 files cannot "
                                  "be confined, and reads none: ",
                                  confined.message())));
  }
  const auto file = AwaitOpen();
  if (!file.ok()) return SendError(file.status());
  DATASETD_RETURN_IF_ERROR(SendText(Kind::kInfo, file->Describe()));
  std::vector<uint8_t> rows;
  while (true) {
    DATASETD_ASSIGN_OR_RETURN(const hdf5::Frame frame,
                              hdf5::ReceiveFrame(STDIN_FILENO, kForEver));
    uint64_t request[3] = {};  // field, first, count
    if (frame.kind != Kind::kRows || frame.size_bytes != sizeof(request)) {
      return absl::UnavailableError("not asked for rows");
    }
    DATASETD_RETURN_IF_ERROR(hdf5::Receive(
        STDIN_FILENO, kForEver,
        absl::MakeSpan(reinterpret_cast<uint8_t*>(request), sizeof(request))));
    const absl::Status read =
        file->ReadRows(request[0], request[1], request[2], rows);
    DATASETD_RETURN_IF_ERROR(read.ok()
                                 ? hdf5::Send(STDIN_FILENO, Kind::kData, rows)
                                 : SendError(read));
  }
}

}  // namespace
}  // namespace datasetd

int main() {
  datasetd::LimitThisProcess();
  const absl::Status status = datasetd::Serve();
  // Skips the library's exit handlers, which a damaged file may have corrupted.
  _exit(status.ok() || absl::IsUnavailable(status) ? 0 : 1);
}
