#include "tests/emulated_gpu/ptx/parser.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/lexer.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {
namespace {

constexpr int64_t kMaxVariableBytes = int64_t{1} << 31;
constexpr int kMaxRegisters = 1 << 24;

struct Name {
  bool is_variable = false;
  int index = 0;
};

struct Range {
  int first = 0;
  int count = 0;
};

// The names of one pair of braces.
struct Scope {
  absl::flat_hash_map<absl::string_view, Name> names;
  absl::flat_hash_map<absl::string_view, Range> ranges;
};

// Stops at the first error; what it returns after that has no meaning.
class Parser {
 public:
  explicit Parser(absl::string_view source) : lexer_(source) { Advance(); }

  absl::StatusOr<ModuleSyntax> Run() {
    while (error_.ok() && token_.kind != Token::Kind::kEnd) ParseTopLevel();
    if (error_.ok() && !lexer_.error().empty()) {
      error_ = absl::InvalidArgumentError(lexer_.error());
    }
    if (!error_.ok()) return error_;
    return std::move(module_);
  }

 private:
  bool Fail(absl::string_view message) {
    if (error_.ok()) {
      error_ = absl::InvalidArgumentError(
          absl::StrCat("line ", token_.line, ": ", message));
    }
    token_ = Token();
    return false;
  }

  void Refuse(absl::string_view what) {
    if (error_.ok()) {
      error_ = absl::UnimplementedError(
          absl::StrCat("line ", token_.line, ": ", what));
    }
    token_ = Token();
  }

  void Advance() {
    token_ = lexer_.Next();
    if (token_.kind == Token::Kind::kEnd && !lexer_.error().empty()) {
      error_ = absl::InvalidArgumentError(lexer_.error());
    }
  }

  bool Accept(absl::string_view text) {
    if (!token_.Is(text)) return false;
    Advance();
    return true;
  }

  bool Expect(absl::string_view text) {
    if (Accept(text)) return true;
    return Fail(absl::StrCat("expected ", text, ", found ", token_.text));
  }

  absl::string_view ExpectWord() {
    if (token_.kind != Token::Kind::kWord) {
      Fail(absl::StrCat("expected a name, found ", token_.text));
      return {};
    }
    const absl::string_view text = token_.text;
    Advance();
    return text;
  }

  int64_t ExpectInteger() {
    const bool is_negative = Accept("-");
    if (token_.kind != Token::Kind::kInteger) {
      Fail(absl::StrCat("expected an integer, found ", token_.text));
      return 0;
    }
    const uint64_t value = token_.bits;
    Advance();
    return static_cast<int64_t>(is_negative ? 0 - value : value);
  }

  void SkipStatement() {
    while (error_.ok() && token_.kind != Token::Kind::kEnd && !Accept(";")) {
      Advance();
    }
  }

  void ParseTopLevel() {
    const absl::string_view word = ExpectWord();
    if (word == ".version") {
      Advance();
    } else if (word == ".target") {
      do {
        ExpectWord();
      } while (Accept(","));
    } else if (word == ".address_size") {
      if (ExpectInteger() != 64) Refuse(".address_size other than 64");
    } else if (word == ".file") {
      ParseFile();
    } else if (word == ".section") {
      ParseSection();
    } else if (word == ".pragma") {
      SkipStatement();
    } else if (word == ".visible" || word == ".weak" || word == ".extern" ||
               word == ".common") {
      // Linking. An .extern has no body, and is refused where it is used.
    } else if (word == ".entry" || word == ".func") {
      ParseFunction(word == ".entry");
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      scopes_.resize(1);
      ParseVariables(word, &module_.variables, true);
    } else if (error_.ok()) {
      Refuse(absl::StrCat("directive ", word, " is not known"));
    }
  }

  void ParseFile() {
    const int64_t number = ExpectInteger();
    if (token_.kind != Token::Kind::kString || number < 0 || number > 100000) {
      Fail(".file without a number and a name");
      return;
    }
    if (module_.files.size() <= static_cast<size_t>(number)) {
      module_.files.resize(number + 1);
    }
    module_.files[number] = std::string(token_.text);
    Advance();
    while (Accept(",")) ExpectInteger();
  }

  // Only the strings of .debug_str are kept: names of inlined functions.
  void ParseSection() {
    const absl::string_view name = ExpectWord();
    if (!Expect("{")) return;
    absl::string_view label;
    std::string text;
    while (error_.ok() && !token_.Is("}") && token_.kind != Token::Kind::kEnd) {
      if (name == ".debug_str" && token_.kind == Token::Kind::kWord &&
          token_.text[0] != '.') {
        label = token_.text;
        text.clear();
      } else if (token_.kind == Token::Kind::kInteger) {
        if (token_.bits != 0) {
          text.push_back(static_cast<char>(token_.bits));
        } else if (!label.empty()) {
          module_.strings[label] = std::exchange(text, {});
        }
      }
      Advance();
    }
    Expect("}");
  }

  // PTX ISA, ".entry", ".func".
  void ParseFunction(bool is_entry) {
    FunctionSyntax function;
    function.is_entry = is_entry;
    function.line = token_.line;
    function_ = &function;
    scopes_.assign(1, Scope());
    labels_.clear();
    location_ = -1;
    if (Accept("(")) function.num_returns = ParseParameters();
    function.name = ExpectWord();
    if (Accept("(")) function.num_parameters = ParseParameters();
    while (error_.ok() && token_.kind == Token::Kind::kWord) {
      const absl::string_view word = ExpectWord();
      if (word == ".maxntid" || word == ".reqntid") {
        int64_t threads = ExpectInteger();
        while (Accept(",")) threads *= ExpectInteger();
        function.max_threads = static_cast<int>(threads);
      } else if (word == ".minnctapersm" || word == ".maxnctapersm" ||
                 word == ".maxnreg") {
        ExpectInteger();
      } else if (word == ".pragma") {
        SkipStatement();
      } else if (word != ".noreturn") {
        Refuse(absl::StrCat("directive ", word, " is not known"));
      }
    }
    if (Accept(";")) return;  // a declaration
    if (!Expect("{")) return;
    ParseBody();
    if (!error_.ok()) return;
    ResolveLabels();
    module_.functions.push_back(std::move(function));
  }

  // After the "(". Returns how many.
  int ParseParameters() {
    int count = 0;
    int64_t offset = 0;
    while (error_.ok() && !Accept(")")) {
      const absl::string_view space = ExpectWord();
      if (space != ".param") {
        Refuse(absl::StrCat("parameter in ", space));
        return 0;
      }
      Variable variable;
      variable.space = Space::kParam;
      if (!ParseDeclaration(&variable)) return 0;
      variable.offset_bytes = AlignUp(offset, variable.alignment);
      offset = variable.offset_bytes + variable.size_bytes;
      scopes_.back().names[variable.name] = {
          true, static_cast<int>(function_->variables.size())};
      function_->variables.push_back(std::move(variable));
      ++count;
      Accept(",");
    }
    return count;
  }

  // Modifiers, type, name and dimensions of one variable.
  bool ParseDeclaration(Variable* variable) {
    int64_t alignment = 0;
    int vector = 1;
    std::optional<Type> type;
    while (error_.ok() && token_.kind == Token::Kind::kWord &&
           token_.text[0] == '.') {
      const absl::string_view word = ExpectWord();
      if (word == ".align") {
        alignment = ExpectInteger();
        if (alignment <= 0 || alignment > 1024 ||
            !std::has_single_bit(static_cast<uint64_t>(alignment))) {
          return Fail(".align that is no power of two up to 1024");
        }
      } else if (word == ".v2" || word == ".v4") {
        vector = word == ".v2" ? 2 : 4;
      } else if (word == ".ptr" || word == ".global" || word == ".const" ||
                 word == ".shared" || word == ".local") {
        // Tells where a pointer parameter points: a promise to the optimiser.
      } else if (const auto parsed = ParseType(word.substr(1));
                 parsed.has_value()) {
        type = parsed;
      } else {
        return Fail(absl::StrCat(word, " in a declaration"));
      }
    }
    if (!type.has_value()) return Fail("a declaration without a type");
    variable->type = *type;
    variable->name = ExpectWord();
    int64_t elements = vector;
    while (Accept("[")) {
      // [] of dynamic shared memory.
      const int64_t count = token_.Is("]") ? 0 : ExpectInteger();
      if (count < 0 || count > kMaxVariableBytes) return Fail("array size");
      elements *= count;
      if (elements > kMaxVariableBytes) return Fail("array size");
      if (!Expect("]")) return false;
    }
    variable->size_bytes = elements * SizeBytes(*type);
    variable->alignment = std::max<int64_t>(
        alignment != 0 ? alignment : vector * SizeBytes(*type), 1);
    return error_.ok();
  }

  // PTX ISA, "Initializers". After the "=".
  void ParseInitial(Variable* variable) {
    variable->initial.assign(variable->size_bytes, 0);
    const int element_bytes = SizeBytes(variable->type);
    size_t at = 0;
    int depth = 0;
    do {
      if (Accept("{")) {
        ++depth;
      } else if (Accept("}")) {
        --depth;
      } else if (Accept(",")) {
      } else {
        uint64_t bits = token_.bits;
        if (token_.kind == Token::Kind::kFloat) {
          if (variable->type == Type::kF32 && !token_.is_single) {
            bits = std::bit_cast<uint32_t>(
                static_cast<float>(std::bit_cast<double>(bits)));
          }
          Advance();
        } else if (token_.kind == Token::Kind::kInteger || token_.Is("-")) {
          bits = static_cast<uint64_t>(ExpectInteger());
        } else {
          Refuse(absl::StrCat("initialiser ", token_.text,
                              ": only numbers are known"));
          return;
        }
        if (at + element_bytes > variable->initial.size()) {
          Fail("more initialisers than elements");
          return;
        }
        std::memcpy(variable->initial.data() + at, &bits, element_bytes);
        at += element_bytes;
      }
    } while (error_.ok() && (depth > 0 || token_.Is(",")) && !token_.Is(";"));
  }

  // Parses what follows the space, in the module or in a function.
  void ParseVariables(absl::string_view space_name,
                      std::vector<Variable>* variables, bool is_of_module) {
    Variable first;
    first.space = space_name == ".global"   ? Space::kGlobal
                  : space_name == ".const"  ? Space::kConst
                  : space_name == ".shared" ? Space::kShared
                  : space_name == ".local"  ? Space::kLocal
                                            : Space::kParam;
    if (!ParseDeclaration(&first)) return;
    if (Accept("=")) ParseInitial(&first);
    if (!Expect(";")) return;
    if (is_of_module) {
      globals_[first.name] = static_cast<int>(variables->size());
    } else {
      scopes_.back().names[first.name] = {true,
                                          static_cast<int>(variables->size())};
    }
    variables->push_back(std::move(first));
  }

  // PTX ISA, "Variables": .reg, with parameterised names.
  void ParseRegisters() {
    const absl::string_view type_name = ExpectWord();
    const auto type =
        type_name.empty() ? std::nullopt : ParseType(type_name.substr(1));
    if (!type.has_value()) {
      Fail(absl::StrCat(type_name, " is no type of a register"));
      return;
    }
    do {
      const absl::string_view name = ExpectWord();
      const int first = static_cast<int>(function_->registers.size());
      if (Accept("<")) {
        const int64_t count = ExpectInteger();
        if (count < 0 || first + count > kMaxRegisters) {
          Fail("more registers than a kernel has");
          return;
        }
        scopes_.back().ranges[name] = {first, static_cast<int>(count)};
        for (int i = 0; i < count; ++i) {
          function_->registers.push_back({name, i, *type});
        }
        Expect(">");
      } else {
        scopes_.back().names[name] = {false, first};
        function_->registers.push_back({name, -1, *type});
      }
    } while (Accept(","));
    Expect(";");
  }

  void ParseBody() {
    uint64_t used_bytes_mask = ~uint64_t{0};
    size_t depth = 1;
    while (error_.ok() && depth > 0) {
      if (token_.kind == Token::Kind::kEnd) {
        Fail("a function without its end");
      } else if (Accept("{")) {
        ++depth;
        scopes_.emplace_back();
      } else if (Accept("}")) {
        --depth;
        if (depth > 0) scopes_.pop_back();
      } else if (Accept(".reg")) {
        ParseRegisters();
      } else if (token_.Is(".local") || token_.Is(".shared") ||
                 token_.Is(".param") || token_.Is(".global") ||
                 token_.Is(".const")) {
        const absl::string_view space = ExpectWord();
        const bool is_of_module = space == ".global" || space == ".const";
        ParseVariables(
            space, is_of_module ? &module_.variables : &function_->variables,
            is_of_module);
      } else if (Accept(".loc")) {
        ParseLocation();
      } else if (Accept(".file")) {
        ParseFile();
      } else if (Accept(".pragma")) {
        const std::string text(token_.text);
        SkipStatement();
        ReadUsedBytesMask(text, &used_bytes_mask);
      } else {
        ParseStatement(&used_bytes_mask);
      }
    }
  }

  // PTX ISA, ".pragma": "used_bytes_mask" holds for the next load.
  void ReadUsedBytesMask(const std::string& text, uint64_t* mask) {
    constexpr absl::string_view kName = "used_bytes_mask";
    if (!absl::StartsWith(text, kName)) return;
    const std::string number = text.substr(kName.size());
    char* end = nullptr;
    *mask = std::strtoull(number.c_str(), &end, 0);
    if (end == number.c_str()) Fail("used_bytes_mask without its mask");
  }

  // PTX ISA, ".loc".
  void ParseLocation() {
    Location location;
    location.file = static_cast<int>(ExpectInteger());
    location.line = static_cast<int>(ExpectInteger());
    ExpectInteger();
    while (Accept(",")) {
      const absl::string_view word = ExpectWord();
      if (word == "function_name") {
        location.function_label = ExpectWord();
        if (Accept("+")) ExpectInteger();
      } else if (word == "inlined_at") {
        const int file = static_cast<int>(ExpectInteger());
        const int line = static_cast<int>(ExpectInteger());
        ExpectInteger();  // the column
        location.inlined_at = FindLocation(file, line);
      } else {
        Fail(absl::StrCat(word, " in .loc"));
      }
    }
    location_ = static_cast<int>(module_.locations.size());
    module_.locations.push_back(location);
    const uint64_t key = static_cast<uint64_t>(location.file) << 32 |
                         static_cast<uint32_t>(location.line);
    last_location_[key] = location_;
  }

  // The latest location of the place that called.
  int FindLocation(int file, int line) const {
    const uint64_t key =
        static_cast<uint64_t>(file) << 32 | static_cast<uint32_t>(line);
    const auto found = last_location_.find(key);
    return found == last_location_.end() ? -1 : found->second;
  }

  void ParseStatement(uint64_t* used_bytes_mask) {
    Statement statement;
    if (Accept("@")) {
      statement.is_predicate_negated = Accept("!");
      const Operand predicate = ParseOperand();
      if (predicate.kind != Operand::Kind::kRegister) {
        Fail("a guard that is no register");
        return;
      }
      statement.predicate = predicate.index;
    }
    statement.line = token_.line;
    statement.location = location_;
    const absl::string_view word = ExpectWord();
    if (!error_.ok()) return;
    if (Accept(":")) {
      if (token_.Is(".branchtargets")) {
        Advance();
        ParseBranchTargets(word);
        return;
      }
      // What third_party/cuda/cuda.bzl makes of the hint for older drivers.
      constexpr absl::string_view kHint = "$used_bytes_mask_";
      if (absl::StartsWith(word, kHint)) {
        *used_bytes_mask = std::strtoull(
            std::string(word.substr(kHint.size())).c_str(), nullptr, 10);
      } else {
        labels_[word] = static_cast<int>(function_->statements.size());
      }
      return;
    }
    if (word[0] == '.') {
      Refuse(absl::StrCat("directive ", word, " is not known"));
      return;
    }
    std::vector<absl::string_view> parts = absl::StrSplit(word, '.');
    statement.opcode = parts[0];
    statement.modifiers.assign(parts.begin() + 1, parts.end());
    if (!token_.Is(";")) {
      do {
        statement.operands.push_back(ParseOperand());
      } while (error_.ok() && Accept(","));
    }
    Expect(";");
    if (statement.opcode == "ld") {
      statement.used_bytes_mask = std::exchange(*used_bytes_mask, ~uint64_t{0});
    }
    function_->statements.push_back(std::move(statement));
  }

  // PTX ISA, ".branchtargets".
  void ParseBranchTargets(absl::string_view label) {
    table_labels_.emplace_back();
    function_->tables.push_back({label, {}});
    do {
      table_labels_.back().push_back(ExpectWord());
    } while (Accept(","));
    Expect(";");
  }

  Operand ParseList(absl::string_view end) {
    Operand operand;
    operand.kind = Operand::Kind::kVector;
    while (error_.ok() && !Accept(end)) {
      operand.parts.push_back(ParseOperand());
      if (!Accept(",") && !token_.Is(end)) Fail("a list without its end");
    }
    return operand;
  }

  // PTX ISA, "Addresses as Operands".
  Operand ParseAddress() {
    Operand operand;
    operand.kind = Operand::Kind::kAddress;
    Operand base = ParseOperand();
    operand.value = base.kind == Operand::Kind::kVariable
                        ? std::exchange(base.value, 0)
                        : 0;
    if (Accept("+")) {
      operand.value += ExpectInteger();
    } else if (token_.Is("-")) {
      operand.value += ExpectInteger();
    }
    operand.parts.push_back(std::move(base));
    Expect("]");
    return operand;
  }

  Operand ParseOperand() {
    if (Accept("{")) return ParseList("}");
    if (Accept("(")) return ParseList(")");
    if (Accept("[")) return ParseAddress();
    Operand operand;
    if (Accept("!")) {
      operand = ParseOperand();
      operand.is_negated = !operand.is_negated;
      return operand;
    }
    if (token_.kind == Token::Kind::kInteger || token_.Is("-")) {
      operand.kind = Operand::Kind::kInteger;
      operand.value = ExpectInteger();
      return operand;
    }
    if (token_.kind == Token::Kind::kFloat) {
      operand.kind = Operand::Kind::kFloat;
      operand.value = static_cast<int64_t>(token_.bits);
      operand.is_single = token_.is_single;
      Advance();
      return operand;
    }
    operand = ResolveName(ExpectWord());
    if (operand.kind == Operand::Kind::kVariable && token_.Is("+")) {
      Advance();
      operand.value = ExpectInteger();
    }
    if (Accept("|")) {
      Operand pair;
      pair.kind = Operand::Kind::kPair;
      pair.parts.push_back(std::move(operand));
      pair.parts.push_back(ParseOperand());
      return pair;
    }
    return operand;
  }

  Operand ResolveName(absl::string_view name) const {
    Operand operand;
    operand.name = name;
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') {
      --digits;
    }
    for (size_t i = scopes_.size(); i-- > 0;) {
      const Scope& scope = scopes_[i];
      if (const auto found = scope.names.find(name);
          found != scope.names.end()) {
        operand.kind = found->second.is_variable ? Operand::Kind::kVariable
                                                 : Operand::Kind::kRegister;
        operand.index = found->second.index;
        return operand;
      }
      if (digits == name.size()) continue;
      const auto range = scope.ranges.find(name.substr(0, digits));
      int number = 0;
      if (range != scope.ranges.end() &&
          absl::SimpleAtoi(name.substr(digits), &number) &&
          number < range->second.count) {
        operand.kind = Operand::Kind::kRegister;
        operand.index = range->second.first + number;
        return operand;
      }
    }
    if (const auto found = globals_.find(name); found != globals_.end()) {
      operand.kind = Operand::Kind::kVariable;
      operand.index = found->second;
      operand.is_of_module = true;
    }
    return operand;
  }

  void ResolveLabel(Operand* operand) const {
    if (operand->kind != Operand::Kind::kName) return;
    const auto found = labels_.find(operand->name);
    if (found == labels_.end()) return;
    operand->kind = Operand::Kind::kLabel;
    operand->index = found->second;
  }

  void ResolveLabels() {
    for (Statement& statement : function_->statements) {
      for (Operand& operand : statement.operands) ResolveLabel(&operand);
    }
    for (size_t i = 0; i < table_labels_.size(); ++i) {
      for (const absl::string_view label : table_labels_[i]) {
        const auto found = labels_.find(label);
        if (found == labels_.end()) {
          Fail(absl::StrCat("no label ", label));
          return;
        }
        function_->tables[i].targets.push_back(found->second);
      }
    }
    table_labels_.clear();
  }

  Lexer lexer_;
  Token token_;
  absl::Status error_;
  ModuleSyntax module_;
  absl::flat_hash_map<absl::string_view, int> globals_;
  std::unordered_map<uint64_t, int> last_location_;  // by file and line

  // The state of the function that is being parsed.
  FunctionSyntax* function_ = nullptr;
  std::vector<Scope> scopes_;
  absl::flat_hash_map<absl::string_view, int> labels_;
  std::vector<std::vector<absl::string_view>> table_labels_;
  int location_ = -1;
};

}  // namespace

absl::StatusOr<ModuleSyntax> ParsePtx(absl::string_view source) {
  return Parser(source).Run();
}

}  // namespace datasetd::emulated_gpu
