#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/client.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/private_daemon.h"
#include "client/ctl/temporary_directory.h"
#include "client/feed/feed.h"

namespace datasetd::ctl {
namespace {

constexpr int kNumSamples = 64;
constexpr absl::Duration kTimeout = absl::Seconds(60);

uint8_t SampleValue(int index) { return static_cast<uint8_t>(255 - 3 * index); }

// Writes image.npy: uint8 [kNumSamples, 1, 1], images of one pixel.
absl::Status WriteSamples(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directory(directory, error);
  std::ofstream file(directory + "/image.npy", std::ios::binary);
  std::string header =
      absl::StrCat("{'descr': '|u1', 'fortran_order': False, 'shape': (",
                   kNumSamples, ", 1, 1), }");
  // Magic, version and size take ten bytes; the total is a multiple of 64.
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  file.write("\x93NUMPY\x01\x00", 8);
  file.put(static_cast<char>(header.size() & 0xff));
  file.put(static_cast<char>(header.size() >> 8));
  file << header;
  for (int i = 0; i < kNumSamples; ++i) {
    file.put(static_cast<char>(SampleValue(i)));
  }
  file.close();
  if (!file) {
    return absl::UnavailableError(absl::StrCat("cannot write to ", directory));
  }
  return absl::OkStatus();
}

absl::Status ReadSamples(const std::string& address, const std::string& data) {
  ClientOptions options;
  options.address = address;
  DATASETD_ASSIGN_OR_RETURN(Client client, Client::Connect(options));
  v1::DatasetSpec spec;
  spec.set_name("doctor");
  spec.set_format("npy");
  spec.set_path(data);
  DATASETD_RETURN_IF_ERROR(client.LoadDataset(spec).status());
  v1::FeedOptions feed_options;
  feed_options.set_dataset("doctor");
  feed_options.set_batch_size(kNumSamples);
  DATASETD_ASSIGN_OR_RETURN(client::Feed feed, client.OpenFeed(feed_options));
  DATASETD_ASSIGN_OR_RETURN(const client::Batch batch, feed.Next(0, kTimeout));
  std::vector<uint8_t> values(kNumSamples);
  DATASETD_RETURN_IF_ERROR(
      batch.CopyToHost(values.data(), batch.field(0).data, values.size()));
  for (int i = 0; i < kNumSamples; ++i) {
    if (values[static_cast<size_t>(i)] != SampleValue(i)) {
      return absl::DataLossError(absl::StrCat("sample ", i, " is ",
                                              values[static_cast<size_t>(i)],
                                              " instead of ", SampleValue(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status Share(const std::string& program, const std::string& device,
                   const std::string& way) {
  DATASETD_ASSIGN_OR_RETURN(const auto workspace, TemporaryDirectory::Create());
  const std::string data = workspace->path() + "/data";
  DATASETD_RETURN_IF_ERROR(WriteSamples(data));
  const std::string config = workspace->path() + "/datasetd.yaml";
  std::ofstream(config) << "devices: ['" << device << "']\n"
                        << "data_roots: ['" << data << "']\n"
                        << "memory_budget_mib: 64\n"
                        << "host_threads: 1\n"
                        << "log_level: warn\n"
                        << "slab_export: " << way << "\n";
  PrivateDaemon::Options options;
  options.program = program;
  options.directory = workspace->path() + "/daemon";
  options.arguments = {"--config=" + config,
                       absl::StrCat("--exit_with_parent=", getpid())};
  DATASETD_ASSIGN_OR_RETURN(PrivateDaemon daemon,
                            PrivateDaemon::Start(options));
  const absl::Status status = ReadSamples(daemon.address(), data);
  daemon.Stop();
  return status;
}

Finding CheckWay(const std::string& program, const std::string& device,
                 const std::string& way, bool is_only_way) {
  const std::string what =
      absl::StrCat(device, " by ", device == "cpu" ? "memfd" : way);
  const absl::Status status = Share(program, device, way);
  if (status.ok()) {
    return {Severity::kOk, "sharing",
            absl::StrCat(what, ": two processes read the same memory")};
  }
  return {is_only_way ? Severity::kFault : Severity::kWarning, "sharing",
          absl::StrCat(what, ": ", std::string(status.message())),
          device == "cpu"
              ? "see the message; memfd needs Linux 5.1 or later"
              : "set slab_export to the way that works; in a container see "
                "that daemon and job share PID and IPC namespaces and user"};
}

}  // namespace

void CheckSharing(int num_gpus, Findings* findings) {
  const absl::StatusOr<std::string> program = FindDaemon("");
  if (!program.ok()) {
    findings->push_back({Severity::kWarning, "sharing",
                         "not tried: there is no datasetd program here",
                         "install it, or name it in $DATASETD_DAEMON"});
    return;
  }
  findings->push_back(CheckWay(*program, "cpu", "auto", /*is_only_way=*/true));
  for (int i = 0; i < num_gpus; ++i) {
    const std::string device = absl::StrCat("cuda:", i);
    Finding legacy = CheckWay(*program, device, "cuda_ipc_handle", false);
    Finding vmm = CheckWay(*program, device, "cuda_vmm_fd", false);
    if (legacy.severity != Severity::kOk && vmm.severity != Severity::kOk) {
      legacy.severity = vmm.severity = Severity::kFault;
    }
    findings->push_back(std::move(legacy));
    findings->push_back(std::move(vmm));
  }
}

}  // namespace datasetd::ctl
