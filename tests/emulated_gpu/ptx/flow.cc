#include "tests/emulated_gpu/ptx/flow.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/syntax.h"

namespace datasetd::emulated_gpu {
namespace {

void AddRegisters(const Operand& operand, std::vector<int>* to) {
  if (operand.kind == Operand::Kind::kRegister) to->push_back(operand.index);
  for (const Operand& part : operand.parts) AddRegisters(part, to);
}

bool HasNoDestination(absl::string_view opcode) {
  constexpr absl::string_view kOpcodes[] = {
      "st",   "red",  "bra",    "brx",   "bar",      "barrier",   "ret",
      "exit", "trap", "membar", "fence", "prefetch", "prefetchu", "call"};
  return std::find(std::begin(kOpcodes), std::end(kOpcodes), opcode) !=
         std::end(kOpcodes);
}

bool EndsBlock(const Statement& statement) {
  return statement.opcode == "bra" || statement.opcode == "brx" ||
         statement.opcode == "ret" || statement.opcode == "exit" ||
         statement.opcode == "trap";
}

// The statements that may come after `index`; the number of statements is the
// end.
absl::StatusOr<std::vector<int>> Targets(const FunctionSyntax& function,
                                         int index) {
  const Statement& statement = function.statements[index];
  std::vector<int> targets;
  if (statement.opcode == "bra") {
    if (statement.operands.size() != 1 ||
        statement.operands[0].kind != Operand::Kind::kLabel) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", statement.line, ": bra to what is no label"));
    }
    targets.push_back(statement.operands[0].index);
  } else if (statement.opcode == "brx") {
    const absl::string_view label =
        statement.operands.size() == 2 ? statement.operands[1].name : "";
    for (const BranchTable& table : function.tables) {
      if (table.label == label) targets = table.targets;
    }
    if (targets.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", statement.line, ": brx.idx without its .branchtargets"));
    }
  } else if (EndsBlock(statement)) {
    targets.push_back(static_cast<int>(function.statements.size()));
  }
  if (targets.empty() || statement.predicate >= 0) targets.push_back(index + 1);
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

// Immediate post-dominators, with the end as the last block: the algorithm of
// Cooper, Harvey and Kennedy on the reversed graph.
std::vector<int> PostDominators(const std::vector<BasicBlock>& blocks) {
  const int end = static_cast<int>(blocks.size()) - 1;
  std::vector<int> order;  // blocks in postorder of the reversed graph
  std::vector<int> number(blocks.size(), -1);
  std::vector<std::pair<int, size_t>> stack = {{end, 0}};
  std::vector<bool> is_seen(blocks.size());
  is_seen[end] = true;
  while (!stack.empty()) {
    auto& [block, next] = stack.back();
    if (next < blocks[block].predecessors.size()) {
      const int other = blocks[block].predecessors[next++];
      if (!is_seen[other]) {
        is_seen[other] = true;
        stack.push_back({other, 0});
      }
    } else {
      number[block] = static_cast<int>(order.size());
      order.push_back(block);
      stack.pop_back();
    }
  }
  std::vector<int> dominator(blocks.size(), -1);
  dominator[end] = end;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t i = order.size(); i-- > 0;) {
      const int block = order[i];
      if (block == end) continue;
      int meet = -1;
      for (int other : blocks[block].successors) {
        if (dominator[other] < 0) continue;
        if (meet < 0) {
          meet = other;
          continue;
        }
        while (meet != other) {
          while (number[meet] < number[other]) meet = dominator[meet];
          while (number[other] < number[meet]) other = dominator[other];
        }
      }
      if (dominator[block] != meet) {
        dominator[block] = meet;
        has_changed = true;
      }
    }
  }
  return dominator;
}

class Analysis {
 public:
  explicit Analysis(const FunctionSyntax& function)
      : function_(function),
        num_statements_(static_cast<int>(function.statements.size())) {
    for (const Statement& statement : function.statements) {
      accesses_.push_back(FindAccesses(statement));
    }
  }

  absl::StatusOr<Flow> Run() {
    if (absl::Status status = FindBlocks(); !status.ok()) return status;
    FindReconvergence();
    FindLiveness();
    FindUnwritten();
    return std::move(flow_);
  }

 private:
  absl::Status FindBlocks() {
    std::vector<bool> is_first(num_statements_ + 1);
    is_first[0] = is_first[num_statements_] = true;
    std::vector<std::vector<int>> targets(num_statements_);
    for (int i = 0; i < num_statements_; ++i) {
      if (!EndsBlock(function_.statements[i])) continue;
      absl::StatusOr<std::vector<int>> found = Targets(function_, i);
      if (!found.ok()) return found.status();
      targets[i] = *std::move(found);
      for (const int target : targets[i]) is_first[target] = true;
      is_first[i + 1] = true;
    }
    flow_.block_of.resize(num_statements_ + 1);
    for (int i = 0; i <= num_statements_; ++i) {
      if (is_first[i]) flow_.blocks.push_back({i, i, {}, {}, -1});
      flow_.block_of[i] = static_cast<int>(flow_.blocks.size()) - 1;
      flow_.blocks.back().last = std::min(i + 1, num_statements_);
    }
    for (size_t b = 0; b + 1 < flow_.blocks.size(); ++b) {
      const int last = flow_.blocks[b].last - 1;
      if (targets[last].empty()) targets[last].push_back(last + 1);
      for (const int target : targets[last]) {
        flow_.blocks[b].successors.push_back(flow_.block_of[target]);
        flow_.blocks[flow_.block_of[target]].predecessors.push_back(
            static_cast<int>(b));
      }
    }
    return absl::OkStatus();
  }

  void FindReconvergence() {
    const std::vector<int> dominators = PostDominators(flow_.blocks);
    const int end = static_cast<int>(flow_.blocks.size()) - 1;
    for (size_t b = 0; b < flow_.blocks.size(); ++b) {
      const int dominator = dominators[b];
      flow_.blocks[b].reconverge = dominator < 0 || dominator == end
                                       ? -1
                                       : flow_.blocks[dominator].first;
    }
  }

  void Extend(int reg, int statement) {
    flow_.live_first[reg] = std::min(flow_.live_first[reg], statement);
    flow_.live_last[reg] = std::max(flow_.live_last[reg], statement);
  }

  template <typename F>
  void ForEach(const BitSet& set, const F& f) {
    for (size_t w = 0; w < set.num_words(); ++w) {
      for (uint64_t bits = set.word(w); bits != 0; bits &= bits - 1) {
        f(static_cast<int>(w * 64 + __builtin_ctzll(bits)));
      }
    }
  }

  void FindLiveness() {
    const size_t num_registers = function_.registers.size();
    const size_t num_blocks = flow_.blocks.size();
    flow_.live_first.assign(num_registers, num_statements_);
    flow_.live_last.assign(num_registers, -1);
    std::vector<BitSet> live_in(num_blocks, BitSet(num_registers));
    std::vector<BitSet> live_out(num_blocks, BitSet(num_registers));
    // Blocks of which a successor has changed.
    std::vector<bool> is_open(num_blocks, true);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t b = num_blocks; b-- > 0;) {
        if (!is_open[b]) continue;
        is_open[b] = false;
        const BasicBlock& block = flow_.blocks[b];
        for (const int s : block.successors) live_out[b].Unite(live_in[s]);
        BitSet live = live_out[b];
        for (int i = block.last; i-- > block.first;) {
          if (function_.statements[i].predicate < 0) {
            for (const int reg : accesses_[i].writes) live.Remove(reg);
          }
          for (const int reg : accesses_[i].reads) live.Add(reg);
        }
        if (!live_in[b].Unite(live)) continue;
        has_changed = true;
        for (const int p : block.predecessors) is_open[p] = true;
      }
    }
    for (size_t b = 0; b < num_blocks; ++b) {
      const BasicBlock& block = flow_.blocks[b];
      ForEach(live_in[b], [&](int reg) { Extend(reg, block.first); });
      ForEach(live_out[b], [&](int reg) {
        Extend(reg, std::max(block.first, block.last - 1));
      });
      for (int i = block.first; i < block.last; ++i) {
        for (const int reg : accesses_[i].writes) Extend(reg, i);
        for (const int reg : accesses_[i].reads) Extend(reg, i);
      }
    }
  }

  // Forward: registers written on every way. A copy of what may be unwritten
  // counts as unwritten: compilers copy undefined values.
  void FindUnwritten() {
    const size_t num_registers = function_.registers.size();
    flow_.maybe_unwritten = BitSet(num_registers);
    BitSet all(num_registers);
    all.Fill();
    std::vector<BitSet> written_in(flow_.blocks.size(), all);
    written_in[0] = BitSet(num_registers);
    // Blocks at the begin of which less is written than was known.
    std::vector<bool> is_open(flow_.blocks.size(), true);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t b = 0; b < flow_.blocks.size(); ++b) {
        if (!is_open[b]) continue;
        is_open[b] = false;
        const BasicBlock& block = flow_.blocks[b];
        BitSet written = written_in[b];
        for (int i = block.first; i < block.last; ++i) Apply(i, &written);
        for (const int s : block.successors) {
          if (!written_in[s].Intersect(written)) continue;
          has_changed = true;
          is_open[s] = true;
        }
      }
    }
    for (size_t b = 0; b < flow_.blocks.size(); ++b) {
      const BasicBlock& block = flow_.blocks[b];
      if (b > 0 && block.predecessors.empty()) continue;
      BitSet written = written_in[b];
      for (int i = block.first; i < block.last; ++i) {
        for (const int reg : accesses_[i].reads) {
          if (!written.Has(reg)) flow_.maybe_unwritten.Add(reg);
        }
        Apply(i, &written);
      }
    }
  }

  void Apply(int i, BitSet* written) {
    const Statement& statement = function_.statements[i];
    if (statement.predicate >= 0) return;
    bool is_written = true;
    if (statement.opcode == "mov" || statement.opcode == "selp") {
      for (const int reg : accesses_[i].reads) {
        is_written = is_written && written->Has(reg);
      }
    }
    for (const int reg : accesses_[i].writes) {
      if (is_written) {
        written->Add(reg);
      } else {
        written->Remove(reg);
      }
    }
  }

  const FunctionSyntax& function_;
  const int num_statements_;
  std::vector<Accesses> accesses_;
  Flow flow_;
};

}  // namespace

bool BitSet::Intersect(const BitSet& other) {
  bool has_changed = false;
  for (size_t i = 0; i < words_.size(); ++i) {
    const uint64_t word = words_[i] & other.words_[i];
    has_changed = has_changed || word != words_[i];
    words_[i] = word;
  }
  return has_changed;
}

bool BitSet::Unite(const BitSet& other) {
  bool has_changed = false;
  for (size_t i = 0; i < words_.size(); ++i) {
    const uint64_t word = words_[i] | other.words_[i];
    has_changed = has_changed || word != words_[i];
    words_[i] = word;
  }
  return has_changed;
}

Accesses FindAccesses(const Statement& statement) {
  Accesses accesses;
  if (statement.predicate >= 0) accesses.reads.push_back(statement.predicate);
  size_t first_read = 0;
  if (!HasNoDestination(statement.opcode) && !statement.operands.empty()) {
    AddRegisters(statement.operands[0], &accesses.writes);
    first_read = 1;
  }
  for (size_t i = first_read; i < statement.operands.size(); ++i) {
    AddRegisters(statement.operands[i], &accesses.reads);
  }
  return accesses;
}

absl::StatusOr<Flow> AnalyseFlow(const FunctionSyntax& function) {
  return Analysis(function).Run();
}

}  // namespace datasetd::emulated_gpu
