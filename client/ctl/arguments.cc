#include "client/ctl/arguments.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace datasetd::ctl {
namespace {

// CLI11 alone reads integers as strtoull does: -1 wraps, and 010 is octal.
template <typename T>
std::string MakeDecimal(std::string& text) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || last != end) {
    return absl::StrCat("'", text, "': expected a whole number from ",
                        std::numeric_limits<T>::min(), " to ",
                        std::numeric_limits<T>::max());
  }
  text = absl::StrCat(number);
  return "";
}

}  // namespace

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
  CLI::Option* const option = command_->add_option(names, *to, help);
  if constexpr (std::is_integral_v<T>) {
    option->transform(CLI::Validator(MakeDecimal<T>, /*validator_desc=*/""));
  }
  return Argument(option);
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
