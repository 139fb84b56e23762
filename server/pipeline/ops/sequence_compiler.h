// Compiles the ops of one field of numbers: waveforms, spectrograms and others.
//
// Not thread-safe; lives on the stack of CompileField
// (server/pipeline/pipeline.h).

#ifndef DATASETD_SERVER_PIPELINE_OPS_SEQUENCE_COMPILER_H_
#define DATASETD_SERVER_PIPELINE_OPS_SEQUENCE_COMPILER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/image_compiler.h"
#include "server/pipeline/ops/noise_field.h"
#include "server/pipeline/ops/transform.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Returns the largest value of an integer type, which ToDtype scales by.
float LargestInteger(Dtype dtype);

class SequenceCompiler {
 public:
  // `program` is the field's program without ops; it must outlive this object,
  // as must `noise`.
  SequenceCompiler(const FieldSpec& field, const TransformLimits& limits,
                   const NoiseFinder& noise, FieldProgram* program);
  SequenceCompiler(const SequenceCompiler&) = delete;
  SequenceCompiler& operator=(const SequenceCompiler&) = delete;

  // Adds an op, which is not a RandomApply. `position` and `op_index` are as in
  // Step. Errors are INVALID_ARGUMENT without the position. REQUIRES:
  // CheckTransform is OK.
  absl::Status Add(const v1::Transform& op, uint16_t position,
                   uint32_t op_index);

  // The ops between are a RandomApply's.
  absl::Status BeginGroup(double p, uint32_t op_index);
  absl::Status EndGroup();

  // Completes the program.
  absl::Status Finish();

 private:
  // What is known of a field from its shape and its ops so far.
  enum class Form : uint8_t { kAny, kWaveform, kSpectrogram };

  struct Group {
    uint32_t op_index;
    double p;
    size_t first_step;
    Form form;
    int64_t elements;
    Dtype dtype;
  };

  absl::Status AddSequenceOp(const v1::Transform& op);
  absl::Status AddToDtype(const v1::ToDtype& op);
  absl::Status AddNormalize(const v1::Normalize& op);
  absl::Status AddVol(const v1::Vol& op);
  absl::Status AddGain(const v1::Gain& op);
  absl::Status AddShift(const v1::Shift& op);
  absl::Status AddAddNoise(const v1::AddNoise& op);
  absl::Status AddMel(const v1::MelSpectrogram& op);
  template <typename Params>
  absl::Status AddMask(StepKind kind, int64_t param, double p, bool is_iid,
                       double value);

  absl::Status NeedFloat() const;
  // Takes the field for a waveform, or a spectrogram; an error if it is not.
  absl::Status NeedWaveform();
  absl::Status NeedSpectrogram();
  int64_t elements() const { return channels_ * height_ * width_; }
  std::string ShapeText() const;

  // Appends a step. Sizes after it are those of this object.
  template <typename Params>
  absl::Status Append(StepKind kind, const Params& params, double p,
                      int64_t operations);
  absl::Status CheckLimits() const;

  const FieldSpec& field_;
  const TransformLimits limits_;
  const NoiseFinder& find_noise_;
  FieldProgram& program_;
  Form form_ = Form::kAny;
  int64_t channels_ = 1;
  int64_t height_ = 1;
  int64_t width_;
  Dtype dtype_;
  uint16_t position_ = 0;
  uint32_t op_index_ = 0;
  int64_t operations_;
  ChainScratch scratch_ = {};
  std::vector<Step> steps_;
  std::optional<Group> group_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_SEQUENCE_COMPILER_H_
