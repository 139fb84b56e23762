#include "server/readers/arrays/tokens_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/files/reopened_file.h"
#include "server/readers/brace_pattern.h"
#include "server/readers/list_memory.h"
#include "server/readers/npy_header.h"
#include "server/readers/option_values.h"
#include "server/readers/read_buffers.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxOpenShards = 64;  // of a source; others for each read
constexpr absl::string_view kSteps =
    "a file of tokens, or a pattern of them as DIR/train_{000..102}.bin";

struct TokensShard {
  int64_t first_step = 0;
  int64_t data_offset = 0;
};

class TokensReader : public Reader {
 public:
  TokensReader(const FileSystem& files, std::unique_ptr<ListMemory> memory,
               SourceInfo info, std::vector<TokensShard> shards)
      : files_(files),
        memory_(std::move(memory)),
        info_(std::move(info)),
        shards_(std::move(shards)) {
    open_.resize(std::min(shards_.size(), kMaxOpenShards));
    for (size_t s = 0; s < open_.size(); ++s) {
      open_[s] = OpenWhenRead(files_, info_.files[s]);
    }
  }

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, first, count, fields));
    const int64_t step_bytes = info_.fields[0].sample_bytes();
    for (int64_t done = 0; done < count;) {
      const size_t s = ShardOf(first + done);
      const int64_t end = s + 1 < shards_.size() ? shards_[s + 1].first_step
                                                 : info_.num_samples;
      const int64_t steps = std::min(count - done, end - (first + done));
      const absl::Span<uint8_t> to =
          fields[0].subspan(static_cast<size_t>(done * step_bytes),
                            static_cast<size_t>(steps * step_bytes));
      if (s < open_.size()) {
        DATASETD_RETURN_IF_ERROR(
            ReadExactly(*open_[s], OffsetOf(s, first + done), to));
      } else {
        DATASETD_ASSIGN_OR_RETURN(const auto file,
                                  OpenUnchanged(files_, info_.files[s]));
        DATASETD_RETURN_IF_ERROR(
            ReadExactly(*file, OffsetOf(s, first + done), to));
      }
      done += steps;
    }
    return absl::OkStatus();
  }

  SampleLocation Locate(int64_t index) const override {
    const size_t s = ShardOf(index);
    return {.path = info_.files[s].path,
            .offset = OffsetOf(s, index),
            .size_bytes = info_.fields[0].sample_bytes()};
  }

 private:
  size_t ShardOf(int64_t step) const {
    const auto next = std::upper_bound(shards_.begin(), shards_.end(), step,
                                       [](int64_t value, const TokensShard& s) {
                                         return value < s.first_step;
                                       });
    return static_cast<size_t>(next - shards_.begin()) - 1;
  }
  int64_t OffsetOf(size_t shard, int64_t step) const {
    return shards_[shard].data_offset +
           (step - shards_[shard].first_step) * info_.fields[0].sample_bytes();
  }

  const FileSystem& files_;
  const std::unique_ptr<ListMemory> memory_;  // of the lists below
  const SourceInfo info_;
  const std::vector<TokensShard> shards_;
  std::vector<std::unique_ptr<RandomAccessFile>> open_;  // the first ones
};

absl::StatusOr<FieldSpec> MakeTokensField(const v1::DatasetSpec& spec) {
  FieldSpec field;
  DATASETD_ASSIGN_OR_RETURN(
      field.dtype,
      ParseDtype(OptionOr(spec, "dtype", "uint16"), "option dtype"));
  DATASETD_ASSIGN_OR_RETURN(
      field.shape, ParseShape(OptionOr(spec, "shape", ""), "option shape"));
  field.name = OptionOr(spec, "name", "tokens");
  if (IsFieldName(field.name)) return field;
  return WrongOption("name", field.name,
                     "a letter or _, then letters, digits or _");
}

std::string Text(const FieldSpec& field) {
  return absl::StrCat(DtypeName(field.dtype), " ", ShapeText(field.shape));
}

// Returns the number of steps of a file, and sets where they begin. The first
// .npy file also sets dtype and shape of a step.
absl::StatusOr<int64_t> CountSteps(const RandomAccessFile& file, bool is_first,
                                   int64_t header_bytes, FieldSpec& field,
                                   int64_t& data_offset) {
  const FileInfo& info = file.info();
  if (absl::EndsWith(info.path, ".npy")) {
    DATASETD_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file));
    FieldSpec found = field;
    found.dtype = header.dtype;
    found.shape.assign(header.shape.begin() + 1, header.shape.end());
    if (is_first) field = found;
    if (found != field) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.path, ": a step is ", Text(found),
                       ", and those of the first file are ", Text(field)));
    }
    data_offset = header.data_offset;
    return header.shape[0];
  }
  const int64_t step_bytes = field.sample_bytes();
  data_offset = header_bytes;
  const int64_t data_bytes = info.size_bytes - header_bytes;
  if (data_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        info.path, ": ", info.size_bytes, " bytes: no tokens after the ",
        header_bytes, " of option header_bytes"));
  }
  if (data_bytes % step_bytes == 0) return data_bytes / step_bytes;
  return absl::DataLossError(absl::StrCat(
      info.path, ": ", data_bytes, " bytes of tokens, expected a multiple of ",
      step_bytes, ", the size of a token (", Text(field),
      "): the file is cut off, or the options dtype, shape and header_bytes "
      "are not those of this file"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenTokensReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_RETURN_IF_ERROR(
      CheckOptions(spec, {"dtype", "header_bytes", "name", "shape"}));
  DATASETD_ASSIGN_OR_RETURN(FieldSpec field, MakeTokensField(spec));
  DATASETD_ASSIGN_OR_RETURN(const int64_t header_bytes,
                            IntOption(spec, "header_bytes", 0, 0, 1 << 30));
  auto memory = std::make_unique<ListMemory>(context.account);
  ListMemory path_memory(context.account);
  DATASETD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            ExpandBraces(spec.path(), path_memory));
  const bool is_npy = absl::EndsWith(paths.front(), ".npy");
  if (is_npy && (FindOption(spec, "dtype") || FindOption(spec, "shape") ||
                 FindOption(spec, "header_bytes"))) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths.front(),
                     ": the header of a .npy file has dtype and shape: leave "
                     "the options dtype, shape and header_bytes out"));
  }
  SourceInfo info;
  std::vector<TokensShard> shards;
  for (const std::string& path : paths) {
    if (absl::EndsWith(path, ".npy") != is_npy) {
      return absl::InvalidArgumentError(
          absl::StrCat(path,
                       ": a pattern is of .npy files, or of others, and "
                       "the first file is ",
                       paths.front()));
    }
    DATASETD_ASSIGN_OR_RETURN(const auto file,
                              OpenSourceFile(context.files, path, kSteps));
    // Twice, for who copies SourceInfo::files.
    DATASETD_RETURN_IF_ERROR(memory->Add(2 * ListedBytes(file->info())));
    TokensShard shard = {.first_step = info.num_samples};
    DATASETD_ASSIGN_OR_RETURN(const int64_t num_steps,
                              CountSteps(*file, shards.empty(), header_bytes,
                                         field, shard.data_offset));
    info.num_samples = SaturatingAdd(info.num_samples, num_steps);
    info.files.push_back(file->info());
    shards.push_back(shard);
  }
  info.fields.push_back(std::move(field));
  return std::make_unique<TokensReader>(context.files, std::move(memory),
                                        std::move(info), std::move(shards));
}

}  // namespace datasetd
