#include "tests/fuzz/pipelines/pipeline_reader.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "base/dtype.h"
#include "base/require.h"
#include "datasetd/v1/transform.pb.h"

namespace datasetd {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMaxOps = 16;
constexpr int64_t kMaxHugeElements = int64_t{1} << 31;

constexpr int64_t kExtremes[] = {
    0,
    1,
    -1,
    255,
    4096,
    65536,
    (1 << 24) - 1,
    1 << 24,
    (1 << 24) + 1,
    1 << 28,
    (1 << 29) - 1,
    1 << 29,
    (1 << 29) + 1,
    (1 << 30) - 1,
    1 << 30,
    (1 << 30) + 1,
    std::numeric_limits<int32_t>::max(),
    int64_t{1} << 31,
    int64_t{1} << 32,
    int64_t{1} << 40,
    int64_t{1} << 62,
    std::numeric_limits<int64_t>::max(),
    std::numeric_limits<int64_t>::min(),
    std::numeric_limits<int32_t>::min(),
};

// Long sides of huge images; the other side is short.
constexpr int64_t kHugeSides[] = {
    4096,
    1 << 20,
    (1 << 24) - 1,
    1 << 24,
    (1 << 24) + 1,
    1 << 28,
    (1 << 29) - 1,
    1 << 29,
    (1 << 29) + 1,
    (1 << 30) - 1,
    1 << 30,
    (1 << 30) + 1,
    std::numeric_limits<int32_t>::max(),
};

constexpr double kExtremeReals[] = {
    0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-7,
    1e-6,
    1e6,
    1e9,
    -1e9,
    90.0,
    180.0,
    45.0,
    -360.0,
    1e-38,
    1e38,
    1e39,
    -1e39,
    1e300,
    std::numeric_limits<double>::infinity(),
    -std::numeric_limits<double>::infinity(),
    std::numeric_limits<double>::quiet_NaN(),
};

class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }

  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_[0];
    bytes_.remove_prefix(1);
    return byte;
  }
  bool Bit() { return (Byte() & 1) != 0; }

  int64_t Number() {
    const uint8_t byte = Byte();
    if (byte < 80) return byte % 8;
    if (byte < 160) return byte - 80;
    if (byte < 240) {
      const auto change = static_cast<int8_t>(Byte());
      const int64_t extreme = kExtremes[(byte - 160) % std::size(kExtremes)];
      int64_t changed = 0;
      return __builtin_add_overflow(extreme, int64_t{change}, &changed)
                 ? extreme
                 : changed;
    }
    int32_t number = 0;
    for (int i = 0; i < 4; ++i) {
      number =
          static_cast<int32_t>(static_cast<uint32_t>(number) << 8 | Byte());
    }
    return number;
  }

  // Sets `noise`.
  void ReadNoise() {
    noise = {};
    noise.spec.name = "noise";
    noise.spec.dtype =
        static_cast<Dtype>(1 + Byte() % static_cast<uint8_t>(kLastDtype));
    const uint8_t bits = Byte();
    const bool is_packed = (bits & 1) != 0;
    noise.spec.is_image = !is_packed && (bits & 2) != 0;
    const int64_t channels = 1 + (bits >> 2 & 3);
    const int count = 1 + Byte() % 4;
    for (int i = 0; i < count; ++i) {
      // Those that are not packed are as long as the first one.
      const int64_t steps = is_packed ? Byte()
                            : i == 0  ? 1 + Byte()
                                      : noise.sizes[0].height;
      noise.sizes.push_back({steps, 1});
    }
    noise.spec.shape = {is_packed ? kAnyExtent : noise.sizes[0].height,
                        channels, 1};
    // Of packed fields 1 or 2.
    const int dimensions = bits >> 4 & 3;
    noise.spec.shape.resize(
        static_cast<size_t>(is_packed ? 1 + dimensions % 2 : dimensions));
  }

  double Real() {
    const uint8_t byte = Byte();
    if (byte < 128) return byte / 64.0;
    if (byte < 224) return kExtremeReals[byte % std::size(kExtremeReals)];
    return static_cast<double>(Number()) / (1 + Byte());
  }

  Noise noise;

 private:
  absl::Span<const uint8_t> bytes_;
};

v1::Transform ReadOp(Reader& in, int depth);

float Float(Reader& in) {
  const double real = in.Real();
  // A finite value that float cannot hold is sent as 1.
  const bool fits = std::abs(real) <= std::numeric_limits<float>::max();
  return fits || !std::isfinite(real) ? static_cast<float>(real) : 1.0F;
}

void ReadRange(Reader& in, v1::Range& range) {
  range.set_min(in.Real());
  range.set_max((in.Byte() & 3) == 0 ? in.Real()
                                     : range.min() + in.Byte() / 64.0);
}

// Also a number beyond the last value.
int ReadEnum(Reader& in, const EnumDescriptor& type) {
  const int place = in.Byte() % (type.value_count() + 1);
  return place < type.value_count() ? type.value(place)->number()
                                    : type.value(place - 1)->number() + 1;
}

void ReadRepeated(Reader& in, int depth, const FieldDescriptor& field,
                  Message& to) {
  const Reflection& reflection = *to.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const int most = in.Byte() % 4;
    if (depth >= 2) return;
    for (int i = 0; i < most && !in.is_empty(); ++i) {
      reflection.AddMessage(&to, &field)->CopyFrom(ReadOp(in, depth + 1));
    }
    return;
  }
  const int count = in.Byte() % 6;
  for (int i = 0; i < count; ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      reflection.AddFloat(&to, &field, Float(in));
    } else {
      reflection.AddDouble(&to, &field, in.Real());
    }
  }
}

// Reads the fields of a message in the order of its declaration.
void ReadFields(Reader& in, int depth, Message& to) {
  const Reflection& reflection = *to.GetReflection();
  for (int i = 0; i < to.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *to.GetDescriptor()->field(i);
    if (field.is_repeated()) {
      ReadRepeated(in, depth, field, to);
      continue;
    }
    if (field.has_presence() && !in.Bit()) continue;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&to, &field, static_cast<int32_t>(in.Number()));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection.SetUInt32(&to, &field, static_cast<uint32_t>(in.Number()));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.SetDouble(&to, &field, in.Real());
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(&to, &field, in.Bit());
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection.SetEnumValue(&to, &field, ReadEnum(in, *field.enum_type()));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        break;  // names of datasets and their fields
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (field.message_type() == v1::Range::descriptor()) {
          ReadRange(in, static_cast<v1::Range&>(
                            *reflection.MutableMessage(&to, &field)));
        } else {
          ReadFields(in, depth, *reflection.MutableMessage(&to, &field));
        }
        break;
      default:
        Require(false, "every type of an op's parameters is read");
    }
  }
}

v1::Transform ReadOp(Reader& in, int depth) {
  v1::Transform transform;
  const google::protobuf::OneofDescriptor& ops =
      *v1::Transform::descriptor()->FindOneofByName("op");
  ReadFields(in, depth,
             *transform.GetReflection()->MutableMessage(
                 &transform, ops.field(in.Byte() % ops.field_count())));
  if (transform.has_add_noise()) in.ReadNoise();
  FillDefaults(&transform);
  return transform;
}

}  // namespace

Pipeline ReadPipeline(absl::Span<const uint8_t> bytes) {
  Reader in(bytes);
  Pipeline pipeline;
  const uint8_t bits = in.Byte();
  pipeline.is_load = (bits & 1) != 0;
  pipeline.layout = (bits & 4) != 0 ? Layout::kNhwc : Layout::kNchw;
  constexpr Dtype kDtypes[] = {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16,
                               Dtype::kFloat32};
  FieldSpec& field = pipeline.field;
  field.name = "image";
  field.dtype = kDtypes[bits >> 3 & 3];
  field.is_image = true;
  field.is_mask = (bits & 2) != 0;
  const int64_t channels = 1 + in.Byte() % kMaxChannels;
  pipeline.batch_size = in.Number();
  const int kind = bits >> 5 & 3;
  if (kind == 3 && !pipeline.is_load) {
    field.name = "sequence";
    field.is_image = field.is_mask = false;
    field.dtype =
        static_cast<Dtype>(1 + in.Byte() % static_cast<uint8_t>(kLastDtype));
    const int num_dimensions = in.Byte() % 5;
    for (int i = 0; i < num_dimensions; ++i) {
      field.shape.push_back(1 + in.Byte() % (i == 0 ? 256 : 8));
    }
  } else if (kind == 1 && !pipeline.is_load) {
    field.shape = {kAnyExtent, kAnyExtent, channels};
    const int count = 1 + in.Byte() % 4;
    for (int i = 0; i < count; ++i) {
      const int64_t height = 1 + in.Byte() % 40;
      const ImageSize size = {height, 1 + in.Byte() % 40};
      if (std::find(pipeline.sizes.begin(), pipeline.sizes.end(), size) ==
          pipeline.sizes.end()) {
        pipeline.sizes.push_back(size);
      }
    }
  } else if (kind == 2) {
    pipeline.is_huge = true;
    const int64_t side = kHugeSides[in.Byte() % std::size(kHugeSides)];
    const uint8_t other = in.Byte();
    const int64_t short_side =
        std::clamp<int64_t>(kMaxHugeElements / side, 1, 1 + other % 5);
    field.shape = {
        side, short_side,
        std::clamp<int64_t>(kMaxHugeElements / side / short_side, 1, channels)};
    if (other >= 128) std::swap(field.shape[0], field.shape[1]);
  } else {
    const int64_t height = 1 + in.Byte() % 48;
    field.shape = {height, 1 + in.Byte() % 48, channels};
  }
  while (!in.is_empty() && pipeline.ops.size() < kMaxOps) {
    pipeline.ops.push_back(ReadOp(in, 0));
  }
  pipeline.noise = in.noise;
  if ((bits & 0x80) != 0) {
    // As when fields share what the ops draw.
    for (v1::Transform& op : pipeline.ops) op.set_draw_id(1);
  }
  return pipeline;
}

}  // namespace datasetd
