#include "cuda/kernels/ops/equalize.h"

#include <cmath>

#include "cuda/kernels/ops/atomics.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

const StatisticOp<EqualizeDraw, EqualizeStatistic, EqualizePartial> kOp = {
    InitEqualize, AccumulateEqualize<PlainAtomics>, MergeEqualize<PlainAtomics>,
    FinishEqualize, ApplyEqualize};

TEST(EqualizeTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {1.0f}) {
      const EqualizeDraw draw = {value * image.bound};
      EXPECT_LE(Difference(kOp.Run(image, draw, 1),
                           reference::Equalize(ToReference(image))),
                image.bound == 255.0f ? 0.0 : 1e-6)
          << image.name << ", " << value;
    }
  }
}

TEST(EqualizeTest, TheNumberOfRanksDoesNotShow) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {1.0f}) {
      const EqualizeDraw draw = {value * image.bound};
      const OpImage alone = kOp.Run(image, draw, 1);
      for (const int num_ranks : {2, 7, 64}) {
        EXPECT_EQ(kOp.Run(image, draw, num_ranks).values, alone.values)
            << image.name << ", " << value;
      }
    }
  }
}

TEST(EqualizeTest, AnyFloatHasABin) {
  for (const float bound : {1.0f, 255.0f}) {
    EqualizeStatistic statistic;
    InitEqualize(&statistic);
    EqualizePartial partial;
    for (const float x : {NAN, -INFINITY, -1.0f, INFINITY, 300.0f, 3e38f}) {
      AccumulateEqualize<PlainAtomics>({bound}, 1, &x, &partial, &statistic);
    }
    EXPECT_EQ(statistic.bins[0][0], 3u);
    EXPECT_EQ(statistic.bins[0][255], 3u);
  }
}

}  // namespace
}  // namespace datasetd
