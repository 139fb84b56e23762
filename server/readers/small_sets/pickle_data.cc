#include "server/readers/small_sets/pickle_data.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kReadBytes = 64 << 10;
constexpr int64_t kMaxTextBytes = 4096;

// Interprets the opcodes with a stack of values, marks on the stack, and a
// memo.
class Machine {
 public:
  explicit Machine(const RandomAccessFile* file) : file_(file) {}

  absl::StatusOr<PickleData> Run() {
    DATASETD_ASSIGN_OR_RETURN(const uint64_t first, Number(1));
    if (first != 0x80) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_->info().path,
                       ": offset 0: expected a pickle of protocol 2 to 4"));
    }
    offset_ = 0;
    while (!is_stopped_) {
      opcode_offset_ = offset_;
      DATASETD_ASSIGN_OR_RETURN(const uint64_t opcode, Number(1));
      DATASETD_RETURN_IF_ERROR(Step(static_cast<uint8_t>(opcode)));
    }
    if (offset_ != file_->info().size_bytes) {
      return absl::DataLossError(absl::StrCat(file_->info().path,
                                              ": goes on at offset ", offset_,
                                              ", where its pickle ends"));
    }
    return std::move(data_);
  }

 private:
  absl::Status Step(uint8_t opcode);
  absl::Status Build();
  absl::Status Append(bool is_dict, size_t begin);

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(
        file_->info().path, ": offset ", opcode_offset_, ": ", parts...));
  }

  // Reads a little-endian number of `size` bytes.
  absl::StatusOr<uint64_t> Number(int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) {
      if (offset_ < buffer_offset_ ||
          offset_ >= buffer_offset_ + static_cast<int64_t>(buffer_.size())) {
        DATASETD_RETURN_IF_ERROR(Fill());
      }
      value |= uint64_t{buffer_[static_cast<size_t>(offset_ - buffer_offset_)]}
               << (8 * i);
      ++offset_;
    }
    return value;
  }

  absl::Status Fill() {
    const int64_t left = file_->info().size_bytes - offset_;
    if (left <= 0) {
      return absl::DataLossError(absl::StrCat(
          file_->info().path, ": ends early, at offset ", offset_));
    }
    buffer_.resize(std::min<size_t>(kReadBytes, static_cast<size_t>(left)));
    buffer_offset_ = offset_;
    return ReadExactly(*file_, offset_, absl::MakeSpan(buffer_));
  }

  absl::Status Push(PickleValue value) {
    if (data_.values.size() == PickleData::kMaxValues) {
      return Error("more than ", PickleData::kMaxValues, " values");
    }
    stack_.push_back(static_cast<int32_t>(data_.values.size()));
    data_.values.push_back(std::move(value));
    return absl::OkStatus();
  }

  absl::Status PushText(int length_bytes) {
    DATASETD_ASSIGN_OR_RETURN(const uint64_t length, Number(length_bytes));
    return PushTextAt(static_cast<int64_t>(length));
  }
  absl::Status PushTextAt(int64_t length) {
    if (length < 0 || length > file_->info().size_bytes - offset_) {
      return absl::DataLossError(absl::StrCat(
          file_->info().path, ": offset ", opcode_offset_, ": ", length,
          " bytes, found ", file_->info().size_bytes - offset_));
    }
    PickleValue text = {
        .kind = Kind::kText, .number = offset_, .size_bytes = length};
    offset_ += length;
    return Push(std::move(text));
  }
  // Pushes a text that ends with a line break.
  absl::Status PushLine() {
    const int64_t begin = offset_;
    while (true) {
      DATASETD_ASSIGN_OR_RETURN(const uint64_t byte, Number(1));
      if (byte == '\n') break;
      if (offset_ - begin > kMaxTextBytes) return Error("a name does not end");
    }
    return Push({.kind = Kind::kText,
                 .number = begin,
                 .size_bytes = offset_ - begin - 1});
  }

  // Combines the last `count` values into one.
  absl::Status Collect(Kind kind, size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < floor + count) return Error("the stack is empty");
    PickleValue value = {.kind = kind};
    value.items.assign(stack_.end() - static_cast<ptrdiff_t>(count),
                       stack_.end());
    stack_.resize(stack_.size() - count);
    return Push(std::move(value));
  }

  absl::StatusOr<size_t> PopMark() {
    if (marks_.empty()) return Error("no mark");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  absl::Status Memoize(uint64_t key) {
    if (stack_.empty() || memo_.size() > PickleData::kMaxValues) {
      return Error("nothing to remember");
    }
    memo_[key] = stack_.back();
    return absl::OkStatus();
  }
  absl::Status Recall(uint64_t key) {
    const auto found = memo_.find(key);
    // Each use is a reference; references count towards the limit like values.
    if (found == memo_.end() || stack_.size() >= PickleData::kMaxValues) {
      return Error("memo ", key, " is not there");
    }
    stack_.push_back(found->second);
    return absl::OkStatus();
  }

  const RandomAccessFile* const file_;
  std::vector<uint8_t> buffer_;
  int64_t buffer_offset_ = 0;
  int64_t offset_ = 0;
  int64_t opcode_offset_ = 0;
  std::vector<int32_t> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, int32_t> memo_;
  size_t num_items_ = 0;  // total over lists and dicts
  PickleData data_;
  bool is_stopped_ = false;
};

// Appends the values above `begin` to the list or dict below them.
absl::Status Machine::Append(bool is_dict, size_t begin) {
  if (begin < 1 || begin > stack_.size()) return Error("the stack is empty");
  const int32_t target = stack_[begin - 1];
  PickleValue& value = data_.values[static_cast<size_t>(target)];
  const size_t count = stack_.size() - begin;
  num_items_ += count;
  if (value.kind != (is_dict ? Kind::kDict : Kind::kList) ||
      (is_dict && count % 2 != 0) || num_items_ > 2 * PickleData::kMaxValues) {
    return Error("items for something that takes none, or too many");
  }
  value.items.insert(value.items.end(),
                     stack_.begin() + static_cast<ptrdiff_t>(begin),
                     stack_.end());
  stack_.resize(begin);
  return absl::OkStatus();
}

absl::Status Machine::Build() {
  if (stack_.size() < 2) return Error("the stack is empty");
  const int32_t state = stack_.back();
  stack_.pop_back();
  PickleValue& object = data_.values[static_cast<size_t>(stack_.back())];
  if (object.kind != Kind::kObject || object.items.size() != 2) {
    return Error("state for something that takes none");
  }
  object.items.push_back(state);
  return absl::OkStatus();
}

absl::Status Machine::Step(uint8_t opcode) {
  uint64_t number = 0;
  const auto read = [&](int size) -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(number, Number(size));
    return absl::OkStatus();
  };
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  switch (opcode) {
    case 0x80:  // PROTO
      DATASETD_RETURN_IF_ERROR(read(1));
      if (number >= 2 && number <= 4) return absl::OkStatus();
      return Error("protocol ", number, ", expected 2 to 4");
    case 0x95:  // FRAME: the size is ignored
      return read(8);
    case '.':  // STOP
      if (stack_.size() != 1) return Error("the end, with values left");
      data_.root = stack_.back();
      is_stopped_ = true;
      return absl::OkStatus();
    case '(':  // MARK
      if (marks_.size() > PickleData::kMaxValues) return Error("all marks");
      marks_.push_back(stack_.size());
      return absl::OkStatus();
    case 'N':
      return Push({});
    case 0x88:  // NEWTRUE
    case 0x89:
      return Push({.kind = Kind::kBool, .number = opcode == 0x88});
    case 'K':  // BININT1
      DATASETD_RETURN_IF_ERROR(read(1));
      return Push({.kind = Kind::kInt, .number = static_cast<int64_t>(number)});
    case 'M':  // BININT2
      DATASETD_RETURN_IF_ERROR(read(2));
      return Push({.kind = Kind::kInt, .number = static_cast<int64_t>(number)});
    case 'J':  // BININT
      DATASETD_RETURN_IF_ERROR(read(4));
      return Push({.kind = Kind::kInt, .number = static_cast<int32_t>(number)});
    case 'U':   // SHORT_BINSTRING
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      return PushText(1);
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      return PushText(4);
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
      return PushText(8);
    case ']':  // EMPTY_LIST
    case ')':  // EMPTY_TUPLE
      return Push({.kind = Kind::kList});
    case '}':  // EMPTY_DICT
      return Push({.kind = Kind::kDict});
    case 0x85:  // TUPLE1, 2, 3
    case 0x86:
    case 0x87:
      return Collect(Kind::kList, opcode - 0x84u);
    case 't': {  // TUPLE
      DATASETD_ASSIGN_OR_RETURN(const size_t mark, PopMark());
      num_items_ += stack_.size() - mark;
      if (num_items_ > 2 * PickleData::kMaxValues) return Error("too many");
      return Collect(Kind::kList, stack_.size() - mark);
    }
    case 'a':  // APPEND
    case 's':  // SETITEM
      if (stack_.size() < floor + (opcode == 'a' ? 2u : 3u)) {
        return Error("the stack is empty");
      }
      return Append(opcode == 's', stack_.size() - (opcode == 'a' ? 1 : 2));
    case 'e':    // APPENDS
    case 'u': {  // SETITEMS
      DATASETD_ASSIGN_OR_RETURN(const size_t mark, PopMark());
      return Append(opcode == 'u', mark);
    }
    case 'c':  // GLOBAL
      DATASETD_RETURN_IF_ERROR(PushLine());
      DATASETD_RETURN_IF_ERROR(PushLine());
      return Collect(Kind::kGlobal, 2);
    case 0x93:  // STACK_GLOBAL
      return Collect(Kind::kGlobal, 2);
    case 'R':  // REDUCE
      return Collect(Kind::kObject, 2);
    case 'b':  // BUILD
      return Build();
    case 'q':  // BINPUT
    case 'r':  // LONG_BINPUT
      DATASETD_RETURN_IF_ERROR(read(opcode == 'q' ? 1 : 4));
      return Memoize(number);
    case 0x94:  // MEMOIZE
      return Memoize(memo_.size());
    case 'h':  // BINGET
    case 'j':  // LONG_BINGET
      DATASETD_RETURN_IF_ERROR(read(opcode == 'h' ? 1 : 4));
      return Recall(number);
    default:
      break;
  }
  return Error("opcode 0x", absl::Hex(opcode, absl::kZeroPad2),
               ", which plain data does not need");
}

}  // namespace

absl::StatusOr<PickleData> ReadPickle(const RandomAccessFile& file) {
  return Machine(&file).Run();
}

absl::StatusOr<std::string> PickleText(const RandomAccessFile& file,
                                       const PickleValue& value) {
  std::string text;
  if (value.kind != Kind::kText || value.size_bytes > kMaxTextBytes) {
    return text;
  }
  text.resize(static_cast<size_t>(value.size_bytes));
  DATASETD_RETURN_IF_ERROR(ReadExactly(
      file, value.number,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size())));
  return text;
}

}  // namespace datasetd
