// Splits PTX source into tokens (PTX ISA, "Syntax": source format, comments,
// identifiers, constants).

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_LEXER_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_LEXER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace datasetd::emulated_gpu {

struct Token {
  enum class Kind {
    kWord,     // identifiers, directives and opcodes with all their modifiers
    kInteger,  // 12, 0x1F, 017, 0b11, with or without U
    kFloat,    // 0f3F800000, 0d3FF0000000000000, 1.5
    kString,   // without the quotes
    kPunctuation,  // one character
    kEnd,
  };
  Kind kind = Kind::kEnd;
  absl::string_view text;
  int line = 0;
  // kInteger: the value. kFloat: the bits, of a float for 0f and of a double
  // else.
  uint64_t bits = 0;
  bool is_single = false;

  bool Is(absl::string_view what) const {
    return (kind == Kind::kWord || kind == Kind::kPunctuation) && text == what;
  }
};

class Lexer {
 public:
  // `text` must outlive the tokens.
  explicit Lexer(absl::string_view text) : text_(text) {}

  // kEnd at the end, and at what is no token: then error() says what.
  Token Next();
  const std::string& error() const { return error_; }

 private:
  void SkipSpace();
  Token Word();
  Token Number();

  absl::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::string error_;
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_LEXER_H_
