// Computes a MelSpectrogram: windowed frames, their real Fourier transforms,
// powers, and weighted sums of powers. Groups of kFrameLanes frames go through
// each stage side by side. A value is computed from one frame, in an order that
// follows from the op's parameters, so that all teams produce the same bits.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_MEL_SPECTROGRAM_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_MEL_SPECTROGRAM_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_MEL_SPECTROGRAM_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_MEL_SPECTROGRAM_H_
#endif

#include <cstdint>

#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/mel_tables.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/sequence.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// One frame, for teams without vectors.
struct OneFrame {
  using Floats = float;
  static constexpr int kFloats = 1;

  static DATASETD_HOST_DEVICE float Load(const float* from) { return *from; }
  static DATASETD_HOST_DEVICE void Store(float x, float* to) { *to = x; }
  static DATASETD_HOST_DEVICE void StoreSome(float x, int32_t count,
                                             float* to) {
    if (count > 0) *to = x;
  }
  static DATASETD_HOST_DEVICE float Add(float x, float y) { return x + y; }
  static DATASETD_HOST_DEVICE float Subtract(float x, float y) { return x - y; }
  static DATASETD_HOST_DEVICE float Multiply(float x, float y) { return x * y; }
  static DATASETD_HOST_DEVICE float All(float x) { return x; }
};

template <typename Team, bool kHasVectors = Team::kHasVectors>
struct FrameVectorOf {
  using Type = OneFrame;
};
template <typename Team>
struct FrameVectorOf<Team, true> {
  using Type = typename Team::Vector;
};

template <typename Team>
class MelSpectrogramMaker {
 public:
  // A waveform [length, num_channels].
  struct Waveform {
    const float* data;
    int32_t length;
    int32_t num_channels;
  };

  // `memory` has the parts that mel_tables.h names. All ranks call it.
  DATASETD_HOST_DEVICE MelSpectrogramMaker(const Team& team,
                                           const MelSpectrogramParams& mel,
                                           const ChainMemory& memory)
      : team_(team),
        mel_(mel),
        tables_(mel, memory),
        length_(FourierLength(mel)),
        rows_(memory.rows),
        powers_(memory.rows + Buffer(4)) {}

  // Before the first Run.
  DATASETD_HOST_DEVICE void MakeTables() const {
    MakeMelTables(team_, mel_, tables_);
  }

  // Writes [num_channels, n_mels, num_frames]. All ranks call it. Returns false
  // if the work was stopped.
  DATASETD_HOST_DEVICE bool Run(const Waveform& wave, int32_t num_frames,
                                float* to) const {
    DATASETD_NO_UNROLL
    for (int32_t c = 0; c < wave.num_channels; ++c) {
      float* const plane = to + int64_t{c} * mel_.n_mels * num_frames;
      DATASETD_NO_UNROLL
      for (int32_t first = 0; first < num_frames; first += kFrameLanes) {
        LoadFrames(wave, c, first, num_frames - 1);
        team_.Sync();
        bool is_second = false;
        if (!Transform(&is_second)) return false;
        StorePowers(rows_ + (is_second ? Buffer(2) : 0));
        team_.Sync();
        StoreSums(num_frames - first, num_frames, plane + first);
        team_.Sync();
      }
    }
    return true;
  }

 private:
  using Vector = typename FrameVectorOf<Team>::Type;
  using Floats = typename Vector::Floats;
  static constexpr int kVectors = kFrameLanes / Vector::kFloats;
  static_assert(kFrameLanes % Vector::kFloats == 0);

  // Elements of `count` real buffers of a group of frames.
  DATASETD_HOST_DEVICE int64_t Buffer(int count) const {
    return int64_t{count} * length_ * kFrameLanes;
  }

  struct Complex {
    Floats re, im;
  };

  // Element `i` of a buffer, of the frames of `lane` and following ones.
  DATASETD_HOST_DEVICE Complex Load(const float* buffer, int32_t i,
                                    int lane) const {
    const float* const at = buffer + int64_t{i} * kFrameLanes + lane;
    return {Vector::Load(at), Vector::Load(at + Buffer(1))};
  }
  DATASETD_HOST_DEVICE void Store(Complex x, int32_t i, int lane,
                                  float* buffer) const {
    float* const at = buffer + int64_t{i} * kFrameLanes + lane;
    Vector::Store(x.re, at);
    Vector::Store(x.im, at + Buffer(1));
  }

  static DATASETD_HOST_DEVICE Complex Add(Complex x, Complex y) {
    return {Vector::Add(x.re, y.re), Vector::Add(x.im, y.im)};
  }
  static DATASETD_HOST_DEVICE Complex Subtract(Complex x, Complex y) {
    return {Vector::Subtract(x.re, y.re), Vector::Subtract(x.im, y.im)};
  }
  // x * -i
  static DATASETD_HOST_DEVICE Complex Turn(Complex x) {
    return {x.im, Vector::Subtract(Vector::All(0.0f), x.re)};
  }
  // x * e^(-2 pi i step / n_fft)
  DATASETD_HOST_DEVICE Complex Rotate(Complex x, int32_t step) const {
    const Floats cos = Vector::All(tables_.cos[step]);
    const Floats sin = Vector::All(tables_.sin[step]);
    return {
        Vector::Add(Vector::Multiply(x.re, cos), Vector::Multiply(x.im, sin)),
        Vector::Subtract(Vector::Multiply(x.im, cos),
                         Vector::Multiply(x.re, sin))};
  }

  // The element of the waveform at a place of the padded one.
  DATASETD_HOST_DEVICE int32_t PlaceOf(int32_t length, int64_t at) const {
    const int64_t padded = int64_t{length} + 2 * int64_t{mel_.pad};
    if (at < 0 || at >= padded) {
      switch (mel_.pad_mode) {
        case FramePadMode::kConstant:
          return -1;
        case FramePadMode::kReplicate:
          at = at < 0 ? 0 : padded - 1;
          break;
        case FramePadMode::kReflect:
          at = at < 0 ? -at : 2 * (padded - 1) - at;
          break;
        case FramePadMode::kCircular:
          at = at < 0 ? at + padded : at - padded;
          break;
      }
    }
    at -= mel_.pad;
    return at < 0 || at >= length ? -1 : static_cast<int32_t>(at);
  }

  // Loads the frames from `first` on, windowed; `last` again behind it.
  DATASETD_HOST_DEVICE void LoadFrames(const Waveform& wave, int32_t channel,
                                       int32_t first, int32_t last) const {
    const bool has_pairs = mel_.n_fft % 2 == 0;
    const float* const data = wave.data + channel;
    const int32_t stride = wave.num_channels;
    DATASETD_NO_UNROLL
    for (int lane = 0; lane < kFrameLanes; ++lane) {
      const int32_t frame = first + lane < last ? first + lane : last;
      // In the waveform, whatever is padded.
      const int64_t begin =
          int64_t{frame} * mel_.hop_length - mel_.center - mel_.pad;
      const bool is_inside = begin >= 0 && begin + mel_.n_fft <= wave.length;
      float* const re = rows_ + lane;
      float* const im = re + Buffer(1);
      DATASETD_NO_UNROLL
      for (int32_t i = team_.rank(); i < length_; i += team_.size()) {
        const int32_t t = has_pairs ? 2 * i : i;
        float even;
        float odd = 0.0f;
        if (is_inside) {
          const float* const from = data + (begin + t) * stride;
          even = from[0];
          if (has_pairs) odd = from[stride];
        } else {
          const auto load = [&](int64_t place) DATASETD_TEAM_ATTR {
            const int32_t at = PlaceOf(wave.length, place + mel_.pad);
            return at < 0 ? 0.0f : data[int64_t{at} * stride];
          };
          even = load(begin + t);
          if (has_pairs) odd = load(begin + t + 1);
        }
        re[int64_t{i} * kFrameLanes] = even * tables_.window[t];
        im[int64_t{i} * kFrameLanes] =
            has_pairs ? odd * tables_.window[t + 1] : 0.0f;
      }
    }
  }

  // Transforms the frames, by Stockham's algorithm: after each stage `done` is
  // the length of the transforms so far, and value k of the transform of every
  // (length / done)th element from j on is at k * (length / done) + j. Sets
  // whether the result is in the second buffer.
  DATASETD_HOST_DEVICE bool Transform(bool* is_second) const {
    int32_t done = 1;
    DATASETD_NO_UNROLL
    while (done < length_) {
      if (!team_.GoesOn()) return false;
      const float* const from = rows_ + (*is_second ? Buffer(2) : 0);
      float* const to = rows_ + (*is_second ? 0 : Buffer(2));
      const int32_t radix = NextRadix(length_ / done);
      const int32_t rest = length_ / done / radix;
      if (radix == 4) {
        Stage4(from, done, rest, to);
      } else if (radix == 2) {
        Stage2(from, done, rest, to);
      } else {
        StageOf(radix, from, done, rest, to);
      }
      done *= radix;
      *is_second = !*is_second;
      team_.Sync();
    }
    return true;
  }

  // Calls visit(k, j, lane) for the butterflies of this rank.
  template <typename Visit>
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void VisitButterflies(
      int32_t done, int32_t rest, const Visit& visit) const {
    if constexpr (Team::kHasVectors) {
      for (int32_t k = 0; k < done; ++k) {
        for (int32_t j = 0; j < rest; ++j) {
          for (int lane = 0; lane < kFrameLanes; lane += Vector::kFloats) {
            visit(k, j, lane);
          }
        }
      }
    } else {
      const int32_t count = done * rest * kFrameLanes;
      DATASETD_NO_UNROLL
      for (int32_t i = team_.rank(); i < count; i += team_.size()) {
        const int32_t at = i / kFrameLanes;
        visit(at / rest, at % rest, i % kFrameLanes);
      }
    }
  }

  // Roots of the transform per root of a stage of `rest`.
  DATASETD_HOST_DEVICE int32_t RootStep(int32_t rest) const {
    return mel_.n_fft / length_ * rest;
  }

  DATASETD_HOST_DEVICE void Stage4(const float* from, int32_t done,
                                   int32_t rest, float* to) const {
    const int32_t step = RootStep(rest);
    VisitButterflies(
        done, rest, [&](int32_t k, int32_t j, int lane) DATASETD_TEAM_ATTR {
          const int32_t in = 4 * k * rest + j;
          const Complex a = Load(from, in, lane);
          const Complex b = Rotate(Load(from, in + rest, lane), step * k);
          const Complex c =
              Rotate(Load(from, in + 2 * rest, lane), 2 * step * k);
          const Complex d =
              Rotate(Load(from, in + 3 * rest, lane), 3 * step * k);
          const Complex even = Add(a, c);
          const Complex odd = Add(b, d);
          const Complex difference = Subtract(a, c);
          const Complex turned = Turn(Subtract(b, d));
          const int32_t out = k * rest + j;
          const int32_t next = done * rest;
          Store(Add(even, odd), out, lane, to);
          Store(Add(difference, turned), out + next, lane, to);
          Store(Subtract(even, odd), out + 2 * next, lane, to);
          Store(Subtract(difference, turned), out + 3 * next, lane, to);
        });
  }

  DATASETD_HOST_DEVICE void Stage2(const float* from, int32_t done,
                                   int32_t rest, float* to) const {
    const int32_t step = RootStep(rest);
    VisitButterflies(
        done, rest, [&](int32_t k, int32_t j, int lane) DATASETD_TEAM_ATTR {
          const int32_t in = 2 * k * rest + j;
          const Complex a = Load(from, in, lane);
          const Complex b = Rotate(Load(from, in + rest, lane), step * k);
          const int32_t out = k * rest + j;
          Store(Add(a, b), out, lane, to);
          Store(Subtract(a, b), out + done * rest, lane, to);
        });
  }

  // A stage of any radix: each value is a sum of `radix` products.
  DATASETD_HOST_DEVICE void StageOf(int32_t radix, const float* from,
                                    int32_t done, int32_t rest,
                                    float* to) const {
    const int32_t step = RootStep(rest);
    const int32_t turns = done * radix;
    VisitButterflies(
        turns, rest, [&](int32_t k, int32_t j, int lane) DATASETD_TEAM_ATTR {
          const int32_t in = radix * (k % done) * rest + j;
          Complex sum = Load(from, in, lane);
          int32_t turn = 0;
          DATASETD_NO_UNROLL
          for (int32_t s = 1; s < radix; ++s) {
            turn += k;
            if (turn >= turns) turn -= turns;
            sum =
                Add(sum, Rotate(Load(from, in + s * rest, lane), turn * step));
          }
          Store(sum, k * rest + j, lane, to);
        });
  }

  // Stores the powers of the bins of transformed frames.
  DATASETD_HOST_DEVICE void StorePowers(const float* from) const {
    const bool has_pairs = mel_.n_fft % 2 == 0;
    const int32_t num_bins = NumBins(mel_);
    const Floats half = Vector::All(0.5f);
    const Floats scale = Vector::All(*tables_.scale);
    VisitButterflies(
        num_bins, 1, [&](int32_t k, int32_t, int lane) DATASETD_TEAM_ATTR {
          Complex x = Load(from, has_pairs && k == length_ ? 0 : k, lane);
          if (has_pairs) {
            const Complex b = Load(from, k == 0 ? 0 : length_ - k, lane);
            // The transforms of the even and of the odd elements.
            const Complex even = {
                Vector::Multiply(half, Vector::Add(x.re, b.re)),
                Vector::Multiply(half, Vector::Subtract(x.im, b.im))};
            const Complex odd = {
                Vector::Multiply(half, Vector::Add(x.im, b.im)),
                Vector::Multiply(half, Vector::Subtract(b.re, x.re))};
            x = Add(even, Rotate(odd, k));
          }
          const Floats power = Vector::Multiply(
              scale, Vector::Add(Vector::Multiply(x.re, x.re),
                                 Vector::Multiply(x.im, x.im)));
          Vector::Store(power, powers_ + int64_t{k} * kFrameLanes + lane);
        });
    if (mel_.power == 2.0) return;
    team_.Sync();
    const int32_t count = num_bins * kFrameLanes;
    DATASETD_NO_UNROLL
    for (int32_t i = team_.rank(); i < count; i += team_.size()) {
      powers_[i] = PowerOf(powers_[i]);
    }
  }

  // The magnitude to the op's power.
  DATASETD_HOST_DEVICE float PowerOf(float square) const {
    const auto x = static_cast<double>(square);
    if (mel_.power == 1.0) return static_cast<float>(Sqrt(x));
    const bool is_regular = square > 0.0f && x <= 3.5e38;
    return is_regular ? static_cast<float>(Exp(0.5 * mel_.power * Log(x)))
                      : square;
  }

  // Writes the sums of `count` frames, or of the group if it has fewer.
  DATASETD_HOST_DEVICE void StoreSums(int32_t count, int32_t num_frames,
                                      float* to) const {
    VisitButterflies(
        mel_.n_mels, 1, [&](int32_t m, int32_t, int lane) DATASETD_TEAM_ATTR {
          if (lane >= count) return;
          const int32_t end = tables_.first_weight[m + 1];
          const float* from =
              powers_ + int64_t{tables_.first_bin[m]} * kFrameLanes + lane;
          Floats sum = Vector::All(0.0f);
          DATASETD_NO_UNROLL
          for (int32_t i = tables_.first_weight[m]; i < end; ++i) {
            sum = Vector::Add(sum,
                              Vector::Multiply(Vector::All(tables_.weights[i]),
                                               Vector::Load(from)));
            from += kFrameLanes;
          }
          float* const at = to + int64_t{m} * num_frames + lane;
          if (count - lane >= Vector::kFloats) {
            Vector::Store(sum, at);
          } else {
            Vector::StoreSome(sum, count - lane, at);
          }
        });
  }

  const Team& team_;
  const MelSpectrogramParams& mel_;
  const MelTables tables_;
  const int32_t length_;
  float* const rows_;    // two buffers, each real and imaginary
  float* const powers_;  // [bins, kFrameLanes]
};

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_MEL_SPECTROGRAM_H_
