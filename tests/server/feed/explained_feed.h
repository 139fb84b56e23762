// Feeds of one field as explain tells of them, for tests of what they
// draw: 5,000 samples, 100,000 in the long form, with fixed seeds.

#ifndef DATASETD_TESTS_SERVER_FEED_EXPLAINED_FEED_H_
#define DATASETD_TESTS_SERVER_FEED_EXPLAINED_FEED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/long_form.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {

inline const int64_t kNumSamples = testing::IsFull() ? 100000 : 5000;
// So large that rounding to pixels does not show.
inline constexpr int64_t kSide = 10000;
// Recordings for AddNoise, of which kSide steps may begin at kSide places.
inline constexpr int64_t kNumNoises = 40;

// A feed of one image; of a float32 [height, width] if the first op is for
// sequences.
class ExplainedFeed {
 public:
  ExplainedFeed(int64_t height, int64_t width, Transforms ops)
      : program_(std::make_unique<AugmentProgram>()) {
    FieldSpec field = {.name = "image",
                       .dtype = Dtype::kUint8,
                       .shape = {height, width, 3},
                       .is_image = true};
    if (OptionsOf(ops.front()).family() == v1::OP_FAMILY_SEQUENCE) {
      field = {.name = "sequence",
               .dtype = Dtype::kFloat32,
               .shape = {height, width}};
    }
    // Nothing of it runs.
    constexpr TransformLimits kLimits = {.max_scratch_bytes = INT64_MAX,
                                         .max_operations = INT64_MAX};
    auto compiled =
        CompileField(field, 0, ops, Layout::kNchw, {}, kLimits, 0,
                     [](const v1::AddNoise&, const std::string&) {
                       return NoiseField{.spec = {.name = "noise",
                                                  .dtype = Dtype::kFloat32,
                                                  .shape = {2 * kSide - 1}},
                                         .num_samples = kNumNoises};
                     });
    EXPECT_THAT(compiled.status(), testing::IsOk());
    program_->seed = 20;
    program_->num_fields = 1;
    if (compiled.ok()) program_->fields[0] = *compiled;
  }

  const AugmentProgram& program() const { return *program_; }

  std::vector<OpDraw> At(uint64_t epoch, int64_t sample) const {
    auto draws = ExplainSample(*program_, epoch, sample);
    EXPECT_THAT(draws.status(), testing::IsOk());
    return draws.ok() ? *std::move(draws) : std::vector<OpDraw>{};
  }

  // Number 0 of `parameters` of each op, by its position: for each sample.
  std::vector<std::vector<double>> CollectAll(
      const std::vector<std::string>& parameters) const {
    std::vector<std::vector<double>> values(parameters.size());
    for (int64_t i = 0; i < kNumSamples; ++i) {
      for (const OpDraw& draw : At(/*epoch=*/1, i)) {
        for (const auto& [name, numbers] : draw.parameters) {
          if (name != parameters[draw.position]) continue;
          values[draw.position].push_back(numbers[0]);
        }
      }
    }
    for (size_t op = 0; op < values.size(); ++op) {
      EXPECT_EQ(values[op].size(), kNumSamples) << parameters[op];
    }
    return values;
  }

  // Number `index` of `parameter` of the op at `position`, for each sample.
  std::vector<double> Collect(int position, const std::string& parameter,
                              int index = 0, uint64_t epoch = 1) const {
    std::vector<double> values;
    for (const std::vector<OpDraw>& draws : Epoch(epoch)) {
      for (const OpDraw& draw : draws) {
        if (draw.position != position) continue;
        for (const auto& [name, numbers] : draw.parameters) {
          if (name == parameter) values.push_back(numbers[index]);
        }
      }
    }
    EXPECT_EQ(values.size(), kNumSamples) << parameter;
    return values;
  }

  // Whether an op is applied, for each sample, by the op's position.
  std::map<int, std::vector<bool>> Applied(uint64_t epoch = 1) const {
    std::map<int, std::vector<bool>> applied;
    for (int64_t i = 0; i < kNumSamples; ++i) {
      for (const OpDraw& draw : At(epoch, i)) {
        applied[draw.position].push_back(draw.is_applied);
      }
    }
    for (const auto& [position, samples] : applied) {
      EXPECT_EQ(samples.size(), kNumSamples) << position;
    }
    return applied;
  }

 private:
  // The draws of each sample, made once.
  const std::vector<std::vector<OpDraw>>& Epoch(uint64_t epoch) const {
    std::vector<std::vector<OpDraw>>& draws = epochs_[epoch];
    while (std::ssize(draws) < kNumSamples) {
      draws.push_back(At(epoch, std::ssize(draws)));
    }
    return draws;
  }

  std::unique_ptr<AugmentProgram> program_;
  mutable std::map<uint64_t, std::vector<std::vector<OpDraw>>> epochs_;
};

// The ops that are applied with probability p and draw nothing else.
inline std::map<std::string, v1::Transform> Gates(double p) {
  std::map<std::string, v1::Transform> gates;
  for (const v1::Transform& op : Transforms{
           testing::Op("random_horizontal_flip { p: $0 }", p),
           testing::Op("random_vertical_flip { p: $0 }", p),
           testing::Op("random_grayscale { p: $0 }", p),
           testing::Op("random_invert { p: $0 }", p),
           testing::Op("random_posterize { bits: 3 p: $0 }", p),
           testing::Op("random_solarize { threshold: 9 p: $0 }", p),
           testing::Op("random_adjust_sharpness { sharpness_factor: 2 p: $0 }",
                       p),
           testing::Op("random_autocontrast { p: $0 }", p),
           testing::Op("random_equalize { p: $0 }", p)}) {
    gates.emplace(TransformName(op), op);
  }
  return gates;
}

// The distance of a count from n * p, in standard deviations.
inline double BinomialZ(int64_t count, double n, double p) {
  return (static_cast<double>(count) - n * p) / std::sqrt(n * p * (1 - p));
}

inline double AppliedZ(const std::vector<bool>& applied, double p) {
  return BinomialZ(std::count(applied.begin(), applied.end(), true),
                   static_cast<double>(applied.size()), p);
}

// BinomialZ of the number of samples to which both are applied.
inline double BothZ(const std::vector<bool>& a, const std::vector<bool>& b,
                    double p) {
  int64_t both = 0;
  for (size_t i = 0; i < a.size(); ++i) both += a[i] && b[i];
  return BinomialZ(both, static_cast<double>(a.size()), p * p);
}

// A side of which all magnitudes are below 500.
inline constexpr int64_t kPolicySide = 331;

// Returns the first draw of a policy as a number: one for each op and sign, 0
// for no op, plus a thousandth of the magnitude. REQUIRES: the image's sides
// are kPolicySide.
inline double PolicyNumber(const std::vector<OpDraw>& draws) {
  if (draws.empty() || !draws.front().is_applied) return 0;
  const OpDraw& draw = draws.front();
  const auto& parameters = draw.parameters;
  const auto value = [&](size_t i, size_t k = 0) {
    return parameters[i].second[k];
  };
  const auto signed_number = [](int number, double magnitude) {
    return (magnitude < 0 ? -1 : 1) * (number + std::abs(magnitude) / 1000);
  };
  if (draw.name == "Affine") {
    // Parameters are angle, translate, scale, shear.
    if (value(0) != 0) return signed_number(1, value(0));
    for (int axis = 0; axis < 2; ++axis) {
      if (value(1, axis) != 0) return signed_number(2 + axis, value(1, axis));
      if (value(3, axis) != 0) return signed_number(4 + axis, value(3, axis));
    }
    return 6;
  }
  const std::map<std::string, int> factors = {{"AdjustBrightness", 7},
                                              {"AdjustSaturation", 8},
                                              {"AdjustContrast", 9},
                                              {"AdjustSharpness", 10}};
  if (factors.contains(draw.name)) {
    return signed_number(factors.at(draw.name), value(0) - 1);
  }
  const std::map<std::string, int> others = {{"Posterize", 11},
                                             {"Solarize", 12},
                                             {"Autocontrast", 13},
                                             {"Equalize", 14},
                                             {"Invert", 15}};
  EXPECT_TRUE(others.contains(draw.name)) << draw.name;
  return others.at(draw.name) + (parameters.empty() ? 0 : value(0) / 1000);
}

// The names of all ops that draw.
inline std::vector<std::string> RandomOps() {
  std::vector<std::string> names;
  const auto& ops = *v1::Transform::descriptor()->FindOneofByName("op");
  for (int i = 0; i < ops.field_count(); ++i) {
    const auto& op = *ops.field(i)->message_type();
    if (op.options().GetExtension(v1::op).is_random()) {
      names.push_back(op.name());
    }
  }
  return names;
}

}  // namespace datasetd

#endif  // DATASETD_TESTS_SERVER_FEED_EXPLAINED_FEED_H_
