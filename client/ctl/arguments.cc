#include "client/ctl/arguments.h"

#include <CLI/CLI.hpp>
#include <cstdint>

namespace datasetd::ctl {

Argument& Argument::Required() {
  option_->required();
  return *this;
}

Argument& Argument::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Argument& Argument::OneOf(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Argument& Argument::Between(int low, int high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Argument& Argument::Between(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Argument& Argument::Positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Argument& Argument::Needs(const Argument& other) {
  option_->needs(other.option_);
  return *this;
}

Argument& Argument::OneValueEach() {
  option_->allow_extra_args(false);
  return *this;
}

template <typename T>
Argument Arguments::Add(const std::string& names, T* to,
                        const std::string& help) {
  return Argument(command_->add_option(names, *to, help));
}

template Argument Arguments::Add(const std::string&, std::string*,
                                 const std::string&);
template Argument Arguments::Add(const std::string&, std::vector<std::string>*,
                                 const std::string&);
template Argument Arguments::Add(const std::string&, double*,
                                 const std::string&);
template Argument Arguments::Add(const std::string&, int*, const std::string&);
template Argument Arguments::Add(const std::string&, uint16_t*,
                                 const std::string&);
template Argument Arguments::Add(const std::string&, uint32_t*,
                                 const std::string&);
template Argument Arguments::Add(const std::string&, uint64_t*,
                                 const std::string&);

Argument Arguments::AddFlag(const std::string& name, bool* to,
                            const std::string& help) {
  return Argument(command_->add_flag(name, *to, help));
}

void Arguments::AddCommandLine(std::vector<std::string>* to) {
  command_line_ = to;
  // For the help, and to refuse words that do not follow `--`.
  command_
      ->add_option_function<std::vector<std::string>>(
          "command", [](const std::vector<std::string>&) {},
          "Behind --, with its arguments")
      ->check([](const std::string&) { return std::string(kNoCommandLine); });
}

}  // namespace datasetd::ctl
