// Adds arguments to commands, so that they need not include CLI11, whose header
// takes seconds to compile.

#ifndef DATASETD_CLIENT_CTL_ARGUMENTS_H_
#define DATASETD_CLIENT_CTL_ARGUMENTS_H_

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace datasetd::ctl {

// The error of a command line without a COMMAND.
inline constexpr char kNoCommandLine[] =
    "expected -- COMMAND, with its arguments, behind the options";

// An argument that was added. Valid as long as the command.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& Required();
  // The help names the variable's present value as the default.
  Argument& ShowDefault();
  Argument& OneOf(const std::vector<std::string>& words);
  Argument& Between(int low, int high);
  Argument& Between(double low, double high);
  Argument& Positive();
  // May not be given without `other`.
  Argument& Needs(const Argument& other);
  // The option takes one value, and may be repeated. For lists.
  Argument& OneValueEach();

 private:
  CLI::Option* option_;
};

// The arguments of one command. Variables must outlive the command.
class Arguments {
 public:
  explicit Arguments(CLI::App* command) : command_(command) {}

  // `names`: "name" for a positional argument, "--name" or "--name,--other"
  // for an option. T: std::string, a vector of them, double, uint32_t or
  // uint64_t. Integers are decimal and in T's range.
  template <typename T>
  Argument Add(const std::string& names, T* to, const std::string& help);
  // As above, for a value that Given() alone returns. T: std::string, int,
  // uint16_t, uint32_t or uint64_t. The help names the default unless it is
  // empty.
  template <typename T>
  Argument Declare(const std::string& names, const std::string& help,
                   const std::string& default_value = "");
  Argument AddFlag(const std::string& name, bool* to, const std::string& help);

  // Returns, after the parse, what was given: each option as --name=value, then
  // `--` and the positional arguments or the COMMAND, if there are any.
  std::vector<std::string> Given() const;

  // The command takes a COMMAND, whose words follow `--`. They are not parsed:
  // main() assigns them to *to.
  void AddCommandLine(std::vector<std::string>* to);
  // Returns what AddCommandLine was given, else nullptr.
  std::vector<std::string>* command_line() const { return command_line_; }

 private:
  CLI::App* const command_;
  std::vector<std::string>* command_line_ = nullptr;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_ARGUMENTS_H_
