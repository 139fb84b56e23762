// datasetctl: command line tool that inspects and controls a daemon.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_word.h"
#include "base/standard_streams.h"
#include "client/ctl/arguments.h"
#include "client/ctl/command.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/doctor/doctor_command.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/output.h"
#include "proto/version.h"

namespace datasetd::ctl {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 success; 1 the request was refused or "
    "failed; 2 invalid command line; 3 no daemon is running, "
    "or it ended.\n`run` returns the exit code of its "
    "COMMAND.";

struct Entry {
  CLI::App* subcommand;
  std::unique_ptr<Command> command;
  std::vector<std::string>* command_line;  // nullptr: it takes no COMMAND
};

// Returns the place of the command's name in argv, or argc.
int FindName(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    if (std::strcmp(argv[i], "--address") == 0) {
      ++i;  // and its value
    } else if (argv[i][0] != '-') {
      return i;
    }
  }
  return argc;
}

// Gives a COMMAND its words, which CLI11 would change: it splits [1,2]. Returns
// the number of the words before `--`, or argc if there is no COMMAND.
int CutCommandLine(const std::vector<Entry>& entries, int argc, char** argv) {
  const int name = FindName(argc, argv);
  for (const Entry& entry : entries) {
    if (name == argc || entry.command_line == nullptr ||
        entry.subcommand->get_name() != argv[name]) {
      continue;
    }
    for (int i = name + 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--") != 0) continue;
      entry.command_line->assign(argv + i + 1, argv + argc);
      return i;
    }
  }
  return argc;
}

// Searches for an option, which a failed parse may not have reached.
bool HasWord(int argc, char** argv, const char* word) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    if (std::strcmp(argv[i], word) == 0) return true;
  }
  return false;
}

// Returns an error of which CLI11 has no good message: an empty --address=, or
// an unknown command. Returns an empty text if there is none.
std::string ProblemOf(const CLI::App& app, int argc, char** argv) {
  // CLI11 takes the next word for the value.
  if (HasWord(argc, argv, "--address=")) {
    return "--address= has no value: expected the path of a daemon's socket";
  }
  std::vector<std::string> names;
  for (const CLI::App* const command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  const int i = FindName(argc, argv);
  if (i == argc) return "";
  const std::string word = argv[i];
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  const std::string nearest = NearestWord(word, names);
  return absl::StrCat(
      "there is no command '", word, "'",
      nearest.empty() ? "" : absl::StrCat(": did you mean '", nearest, "'?"),
      nearest.empty() ? ". There are " : " There are ",
      absl::StrJoin(names, ", "));
}

int Main(int argc, char** argv) {
  ReserveStandardStreams();
  // A parent may have ignored it; then no end of a child would be reported.
  signal(SIGCHLD, SIG_DFL);
  GlobalFlags flags;
  CLI::App app("Inspect and control a datasetd daemon.");
  app.name("datasetctl");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("datasetctl ") + kVersion);
  app.add_option("--address", flags.address,
                 "The daemon's socket; default: $DATASETD_ADDRESS, else the "
                 "system's daemon, /run/datasetd/datasetd.sock, else the one "
                 "that datasetd.load started for this user");
  app.add_flag("--json", flags.json, "Print results and errors as JSON");
  // Accept --address and --json after the command's name, too.
  app.fallthrough();
  app.require_subcommand(1);

  std::vector<Entry> entries;
  const auto add = [&](std::unique_ptr<Command> command) {
    CLI::App* const subcommand =
        app.add_subcommand(command->name(), command->help());
    Arguments arguments(subcommand);
    command->AddTo(&arguments);
    entries.push_back(
        {subcommand, std::move(command), arguments.command_line()});
  };
  add(MakeStatusCommand(&flags));
  add(MakeDatasetsCommand(&flags));
  add(MakeLoadCommand(&flags));
  add(MakeUnloadCommand(&flags));
  add(MakeFeedsCommand(&flags));
  add(MakeTopCommand(&flags));
  add(MakePreviewCommand(&flags));
  add(MakeBenchCommand(&flags));
  add(MakeExplainCommand(&flags));
  add(MakeDoctorCommand(&flags));
  add(MakeWebCommand(&flags));
  add(MakeRunCommand(&flags));

  // Returns the exit code.
  const auto fail = [&](const std::string& problem) {
    const std::string text =
        HasWord(argc, argv, "--json")
            ? ErrorToJson(absl::InvalidArgumentError(problem))
            : absl::StrCat("datasetctl: ", WithoutControls(problem), "\n");
    std::fputs(text.c_str(), stderr);
    return kExitUsage;
  };
  const std::string problem = ProblemOf(app, argc, argv);
  try {
    app.parse(CutCommandLine(entries, argc, argv), argv);
    if (!problem.empty()) return fail(problem);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      if (!problem.empty()) return fail(problem);
      if (HasWord(argc, argv, "--json")) return fail(error.what());
    }
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  for (const Entry& entry : entries) {
    if (!entry.subcommand->parsed()) continue;
    // Libraries may throw where no command expects it.
    try {
      return entry.command->Run();
    } catch (const std::exception& error) {
      return entry.command->Fail(absl::InternalError(error.what()));
    }
  }
  return kExitUsage;
}

}  // namespace
}  // namespace datasetd::ctl

int main(int argc, char** argv) { return datasetd::ctl::Main(argc, argv); }
