#include "client/ctl/arguments.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

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

template <typename T>
Argument Checked(CLI::Option* option) {
  if constexpr (std::is_integral_v<T>) {
    option->transform(CLI::Validator(MakeDecimal<T>, /*validator_desc=*/""));
  }
  return Argument(option);
}

// CLI11's own checks let NaN pass, and say the range of a double in 300 digits.
template <typename IsValid>
CLI::Validator CheckNumber(const std::string& expected,
                           const std::string& in_help, IsValid is_valid) {
  return CLI::Validator(
      [expected, is_valid](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
            is_valid(value)) {
          return "";
        }
        return absl::StrCat("'", text, "': expected ", expected);
      },
      in_help);
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
  option_->check(
      CheckNumber(absl::StrCat("a number from ", low, " to ", high),
                  absl::StrCat("FLOAT in [", low, " - ", high, "]"),
                  [=](double value) { return low <= value && value <= high; }));
  return *this;
}

Argument& Argument::Positive() {
  option_->check(CheckNumber("a number above 0", "POSITIVE",
                             [](double value) { return value > 0; }));
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
  return Checked<T>(command_->add_option(names, *to, help));
}

template <typename T>
Argument Arguments::Declare(const std::string& names, const std::string& help,
                            const std::string& default_value) {
  return Checked<T>(command_
                        ->add_option_function<T>(
                            names, [](const T&) {}, help)
                        ->default_str(default_value));
}

using Text = const std::string&;
template Argument Arguments::Add(Text, std::string*, Text);
template Argument Arguments::Add(Text, std::vector<std::string>*, Text);
template Argument Arguments::Add(Text, double*, Text);
template Argument Arguments::Add(Text, uint32_t*, Text);
template Argument Arguments::Add(Text, uint64_t*, Text);
template Argument Arguments::Declare<std::string>(Text, Text, Text);
template Argument Arguments::Declare<int>(Text, Text, Text);
template Argument Arguments::Declare<uint16_t>(Text, Text, Text);
template Argument Arguments::Declare<uint32_t>(Text, Text, Text);
template Argument Arguments::Declare<uint64_t>(Text, Text, Text);

Argument Arguments::AddFlag(const std::string& name, bool* to,
                            const std::string& help) {
  return Argument(command_->add_flag(name, *to, help));
}

std::vector<std::string> Arguments::Given() const {
  std::vector<std::string> words;
  std::vector<std::string> behind;
  for (const CLI::Option* const option :
       std::as_const(*command_).get_options()) {
    for (const std::string& value : option->results()) {
      if (option->get_positional()) {
        behind.push_back(value);
      } else {
        words.push_back(
            absl::StrCat("--", option->get_lnames()[0], "=", value));
      }
    }
  }
  if (command_line_ != nullptr) behind = *command_line_;
  if (!behind.empty()) words.push_back("--");
  words.insert(words.end(), behind.begin(), behind.end());
  return words;
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
