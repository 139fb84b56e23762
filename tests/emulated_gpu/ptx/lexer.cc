#include "tests/emulated_gpu/ptx/lexer.h"

#include <bit>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace datasetd::emulated_gpu {
namespace {

bool IsWordStart(char c) {
  return absl::ascii_isalpha(c) || c == '_' || c == '$' || c == '%' || c == '.';
}

bool IsWordPart(char c) { return IsWordStart(c) || absl::ascii_isdigit(c); }

}  // namespace

void Lexer::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (absl::ascii_isspace(c)) {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (text_.substr(at_, 2) == "/*") {
      const size_t end = text_.find("*/", at_ + 2);
      const size_t stop = end == text_.npos ? text_.size() : end + 2;
      for (; at_ < stop; ++at_) line_ += text_[at_] == '\n';
    } else {
      return;
    }
  }
}

Token Lexer::Word() {
  const size_t start = at_;
  while (at_ < text_.size()) {
    if (IsWordPart(text_[at_])) {
      ++at_;
    } else if (text_.substr(at_, 2) == "::") {
      at_ += 2;  // .L2::128B
    } else {
      break;
    }
  }
  return {Token::Kind::kWord, text_.substr(start, at_ - start), line_};
}

Token Lexer::Number() {
  const size_t start = at_;
  while (at_ < text_.size() &&
         (absl::ascii_isalnum(text_[at_]) || text_[at_] == '.' ||
          ((text_[at_] == '-' || text_[at_] == '+') &&
           absl::ascii_tolower(text_[at_ - 1]) == 'e' &&
           text_.substr(start, 2) != "0x" && text_.substr(start, 2) != "0f" &&
           text_.substr(start, 2) != "0d"))) {
    ++at_;
  }
  Token token = {Token::Kind::kInteger, text_.substr(start, at_ - start),
                 line_};
  std::string text(token.text);
  const std::string head = absl::AsciiStrToLower(text.substr(0, 2));
  char* end = nullptr;
  if (head == "0f" || head == "0d") {
    token.kind = Token::Kind::kFloat;
    token.is_single = head == "0f";
    token.bits = std::strtoull(text.c_str() + 2, &end, 16);
    const size_t digits = token.is_single ? 8 : 16;
    if (*end != '\0' || text.size() != 2 + digits) end = nullptr;
  } else if (text.find('.') != text.npos) {
    token.kind = Token::Kind::kFloat;
    token.bits = std::bit_cast<uint64_t>(std::strtod(text.c_str(), &end));
  } else {
    if (text.back() == 'U' || text.back() == 'u') text.pop_back();
    const bool is_binary = head == "0b";
    token.bits = std::strtoull(text.c_str() + (is_binary ? 2 : 0), &end,
                               is_binary ? 2 : 0);
  }
  if (end == nullptr || *end != '\0') {
    error_ = absl::StrCat("line ", line_, ": ", token.text, " is no number");
    return {Token::Kind::kEnd, {}, line_};
  }
  return token;
}

Token Lexer::Next() {
  SkipSpace();
  if (at_ >= text_.size()) return {Token::Kind::kEnd, {}, line_};
  const char c = text_[at_];
  if (IsWordStart(c)) return Word();
  if (absl::ascii_isdigit(c)) return Number();
  if (c == '"') {
    const size_t end = text_.find('"', at_ + 1);
    if (end == text_.npos) {
      error_ = absl::StrCat("line ", line_, ": a string without its end");
      return {Token::Kind::kEnd, {}, line_};
    }
    Token token = {Token::Kind::kString, text_.substr(at_ + 1, end - at_ - 1),
                   line_};
    at_ = end + 1;
    return token;
  }
  if (absl::string_view("{}()[]<>,;:+-*/!@|=&^~").find(c) ==
      absl::string_view::npos) {
    error_ = absl::StrCat("line ", line_, ": character ",
                          static_cast<int>(static_cast<unsigned char>(c)),
                          " is not PTX");
    return {Token::Kind::kEnd, {}, line_};
  }
  Token token = {Token::Kind::kPunctuation, text_.substr(at_, 1), line_};
  ++at_;
  return token;
}

}  // namespace datasetd::emulated_gpu
