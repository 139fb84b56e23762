// The commands that the Python package carries out. Their options are parsed
// and checked here, and Python is given those that the user gave.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/python_package.h"

namespace datasetd::ctl {
namespace {

struct About {
  const char* name;
  const char* help;
  const char* what;  // of ExecPythonPackage()
  bool needs_daemon;
  bool takes_command_line;
  void (*add_options)(Arguments* arguments);
};

class PythonCommand final : public Command {
 public:
  PythonCommand(const GlobalFlags* flags, const About& about)
      : Command(flags), about_(about) {}
  const char* name() const override { return about_.name; }
  const char* help() const override { return about_.help; }

  void AddTo(Arguments* arguments) override {
    about_.add_options(arguments);
    if (about_.takes_command_line) arguments->AddCommandLine(&command_line_);
    arguments_.emplace(*arguments);
  }

  // Returns only if it fails.
  int Run() override {
    if (about_.takes_command_line && command_line_.empty()) {
      return FailUsage(kNoCommandLine);
    }
    std::string address = flags().address;
    if (about_.needs_daemon) {
      // Here, so that all commands say the same of the daemon they find.
      const auto client = Connect();
      if (!client.ok()) return Fail(client.status());
      address = client->address().socket_path;
    }
    std::vector<std::string> words = {about_.name};
    if (!address.empty()) words.push_back(absl::StrCat("--address=", address));
    if (flags().json) words.push_back("--json");
    const std::vector<std::string> given = arguments_->Given();
    words.insert(words.end(), given.begin(), given.end());
    return Fail(ExecPythonPackage(about_.what, words));
  }

 private:
  const About about_;
  std::optional<Arguments> arguments_;
  std::vector<std::string> command_line_;
};

constexpr char kWindows[] =
    "windows= of the job's loader: a length, blocks(500, stride=250), "
    "random_windows(500) or crops(16000, random)";

void AddPreviewOptions(Arguments* to) {
  to->Declare<std::string>("name", "Name of the dataset").Required();
  to->Declare<std::string>("--output", "Output file", "preview.png");
  to->Declare<uint32_t>("--samples,--rows", "Number of samples, one per row",
                        "8")
      .Between(1, 256);
  to->Declare<uint32_t>("--epochs,--columns",
                        "Number of epochs, one per column", "8")
      .Between(1, 64);
  to->Declare<uint64_t>("--first", "Index of the first sample, or window", "0");
  to->Declare<uint64_t>("--seed", "Seed of the job", "0");
  to->Declare<uint64_t>("--epoch", "First epoch", "0");
  to->Declare<std::string>("--field",
                           "Image, sequence, or field of windows; default: the "
                           "first one");
  to->Declare<int>("--zoom",
                   "Magnification; 0: enlarge images to about 96 pixels", "0")
      .Between(0, 64);
  to->Declare<std::string>(
      "--transforms",
      "none; or crop, flip, vflip, altflip, resizedcrop, rotate, jitter "
      "joined by '-'; or a JSON list of Transform messages; or @FILE that "
      "holds one; default: crop-flip for images, else none");
  to->Declare<std::string>("--windows", kWindows);
}

void AddExplainOptions(Arguments* to) {
  to->Declare<std::string>("name", "Name of the dataset").Required();
  to->Declare<std::string>("--transforms",
                           "As in preview: presets, a JSON list of Transform "
                           "messages, or @FILE")
      .Required();
  to->Declare<std::string>("--field", "Field that the transforms apply to",
                           "image");
  to->Declare<uint64_t>("--seed", "Seed of the job", "0");
  to->Declare<uint64_t>("--epoch", "Epoch", "0");
  to->Declare<uint64_t>("--first", "Index of the first sample, or window", "0");
  to->Declare<uint32_t>("--samples", "Number of samples", "1").Between(1, 1000);
  to->Declare<std::string>("--windows", kWindows);
}

void AddBenchOptions(Arguments* to) {
  to->Declare<uint32_t>("--steps", "Steps per round", "50").Positive();
  to->Declare<uint32_t>("--rounds", "Rounds of each kind", "5").Positive();
}

void AddWebOptions(Arguments* to) {
  to->Declare<std::string>("--host",
                           "127.0.0.1 or ::1; from another machine use ssh -L "
                           "PORT:127.0.0.1:PORT",
                           "127.0.0.1")
      .OneOf({"127.0.0.1", "::1"});
  to->Declare<uint16_t>("--port", "TCP port; 0: any free port", "0");
  to->Declare<std::string>("--unix_socket",
                           "Listen on a Unix socket instead; ssh -L PORT:PATH "
                           "forwards it");
}

constexpr About kPreview = {
    .name = "preview",
    .help =
        "Write a PNG contact sheet with one row per sample: the "
        "original on the left, then one column per epoch, as a "
        "job with this seed receives it",
    .what = "makes the picture",
    .needs_daemon = true,
    .takes_command_line = false,
    .add_options = AddPreviewOptions,
};
constexpr About kExplain = {
    .name = "explain",
    .help = "Show the random parameters drawn for samples, op by op",
    .what = "explains transforms",
    .needs_daemon = true,
    .takes_command_line = false,
    .add_options = AddExplainOptions,
};
constexpr About kBench = {
    .name = "bench",
    .help =
        "Run COMMAND, a Python training program that uses "
        "datasetd.DataLoader, and report the share of a step "
        "that is spent on data. Rounds of steps on the loader's "
        "batches alternate with rounds on one constant batch. "
        "The program is ended after the measurement; discard "
        "what it trained",
    .what = "measures a step",
    .needs_daemon = false,
    .takes_command_line = true,
    .add_options = AddBenchOptions,
};
constexpr About kWeb = {
    .name = "web",
    .help =
        "Serve a web page with jobs, samples, memory and health, "
        "to this user only, until Ctrl-C. Runs `python3 -m "
        "datasetd web`",
    .what = "serves the page",
    .needs_daemon = false,  // the page waits for one
    .takes_command_line = false,
    .add_options = AddWebOptions,
};

}  // namespace

std::unique_ptr<Command> MakePreviewCommand(const GlobalFlags* flags) {
  return std::make_unique<PythonCommand>(flags, kPreview);
}

std::unique_ptr<Command> MakeExplainCommand(const GlobalFlags* flags) {
  return std::make_unique<PythonCommand>(flags, kExplain);
}

std::unique_ptr<Command> MakeBenchCommand(const GlobalFlags* flags) {
  return std::make_unique<PythonCommand>(flags, kBench);
}

std::unique_ptr<Command> MakeWebCommand(const GlobalFlags* flags) {
  return std::make_unique<PythonCommand>(flags, kWeb);
}

}  // namespace datasetd::ctl
