#include "server/readers/archives/tf_example.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;
using Bytes = absl::Span<const uint8_t>;
using Kind = TfExample::Feature::Kind;

constexpr uint32_t Tag(int field, WireFormatLite::WireType type) {
  return static_cast<uint32_t>(field) << 3 | static_cast<uint32_t>(type);
}
constexpr uint32_t Message(int field) {
  return Tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// Calls visit(tag, content) for each field of a message that has a length, and
// visit_number(tag, value) for each number. False if the message is damaged, or
// what is called returns false.
template <typename Visit, typename VisitNumber>
bool ForEachField(Bytes message, Visit visit, VisitNumber visit_number) {
  CodedInputStream in(message.data(), static_cast<int>(message.size()));
  while (const uint32_t tag = in.ReadTag()) {
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        uint32_t size = 0;
        if (!in.ReadVarint32(&size)) return false;
        const auto begin = static_cast<size_t>(in.CurrentPosition());
        if (size > message.size() - begin || !in.Skip(static_cast<int>(size)) ||
            !visit(tag, message.subspan(begin, size))) {
          return false;
        }
        break;
      }
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value = 0;
        if (!in.ReadVarint64(&value) || !visit_number(tag, value)) return false;
        break;
      }
      case WireFormatLite::WIRETYPE_FIXED32: {
        uint32_t value = 0;
        if (!in.ReadLittleEndian32(&value) || !visit_number(tag, value)) {
          return false;
        }
        break;
      }
      default:
        if (!WireFormatLite::SkipField(&in, tag)) return false;
    }
  }
  return in.ConsumedEntireMessage();
}

template <typename Visit>
bool ForEachField(Bytes message, Visit visit) {
  return ForEachField(message, visit, [](uint32_t, uint64_t) { return true; });
}

// Calls add(data, number of floats) for those that lie together.
template <typename Add>
bool ForEachFloats(Bytes list, Add add) {
  return ForEachField(
      list,
      [&](uint32_t tag, Bytes packed) {
        if (tag != Message(1)) return true;
        if (packed.size() % sizeof(float) != 0) return false;
        add(packed.data(), packed.size() / sizeof(float));
        return true;
      },
      [&](uint32_t tag, uint64_t bits) {
        if (tag == Tag(1, WireFormatLite::WIRETYPE_FIXED32)) {
          const auto value = static_cast<uint32_t>(bits);
          add(reinterpret_cast<const uint8_t*>(&value), size_t{1});
        }
        return true;
      });
}

template <typename Add>
bool ForEachInt64(Bytes list, Add add) {
  return ForEachField(
      list,
      [&](uint32_t tag, Bytes packed) {
        if (tag != Message(1)) return true;
        CodedInputStream in(packed.data(), static_cast<int>(packed.size()));
        while (in.CurrentPosition() < static_cast<int>(packed.size())) {
          uint64_t value = 0;
          if (!in.ReadVarint64(&value)) return false;
          add(value);
        }
        return true;
      },
      [&](uint32_t tag, uint64_t value) {
        if (tag == Tag(1, WireFormatLite::WIRETYPE_VARINT)) add(value);
        return true;
      });
}

}  // namespace

int64_t TfExample::Feature::number_bytes() const {
  const size_t size = kind_ == Kind::kFloats ? sizeof(float) : sizeof(int64_t);
  return count_ * static_cast<int64_t>(size);
}

void TfExample::Feature::CopyNumbers(absl::Span<uint8_t> result) const {
  uint8_t* to = result.data();
  if (kind_ == Kind::kFloats) {
    ForEachFloats(list_, [&](const uint8_t* data, size_t count) {
      std::memcpy(to, data, count * sizeof(float));
      to += count * sizeof(float);
    });
    return;
  }
  ForEachInt64(list_, [&](uint64_t value) {
    std::memcpy(to, &value, sizeof(value));
    to += sizeof(value);
  });
}

bool TfExample::ParseFeature(Bytes message, Feature* feature) {
  const bool is_feature = ForEachField(message, [&](uint32_t tag, Bytes list) {
    Kind kind = Kind::kNothing;
    if (tag == Message(1)) kind = Kind::kBytes;
    if (tag == Message(2)) kind = Kind::kFloats;
    if (tag == Message(3)) kind = Kind::kInt64s;
    if (kind == Kind::kNothing) return true;
    // Lists of one kind would have to be joined; nothing writes them.
    if (kind == feature->kind_) return false;
    feature->kind_ = kind;
    feature->list_ = list;
    return true;
  });
  if (!is_feature) return false;
  switch (feature->kind_) {
    case Kind::kNothing:
      return true;
    case Kind::kBytes:
      return ForEachField(feature->list_, [&](uint32_t tag, Bytes value) {
        if (tag != Message(1)) return true;
        feature->bytes_ = value;
        ++feature->count_;
        return true;
      });
    case Kind::kFloats:
      return ForEachFloats(feature->list_, [&](const uint8_t*, size_t count) {
        feature->count_ += static_cast<int64_t>(count);
      });
    case Kind::kInt64s:
      return ForEachInt64(feature->list_, [&](uint64_t) { ++feature->count_; });
  }
  return false;
}

bool TfExample::ParseEntry(Bytes message) {
  Bytes name;
  Feature feature;
  const bool is_entry = ForEachField(message, [&](uint32_t tag, Bytes content) {
    if (tag == Message(1)) name = content;
    if (tag != Message(2)) return true;
    feature = Feature();
    return ParseFeature(content, &feature);
  });
  features_[absl::string_view(reinterpret_cast<const char*>(name.data()),
                              name.size())] = feature;
  return is_entry;
}

absl::StatusOr<TfExample> TfExample::Parse(Bytes record) {
  TfExample example;
  bool has_too_many = false;
  const auto add = [&](uint32_t tag, Bytes entry) {
    if (tag != Message(1)) return true;
    if (!example.ParseEntry(entry)) return false;
    has_too_many = example.features_.size() > kMaxFeatures;
    return !has_too_many;
  };
  const bool is_example =
      ForEachField(record, [&](uint32_t tag, Bytes features) {
        return tag != Message(1) || ForEachField(features, add);
      });
  if (has_too_many) {
    return absl::InvalidArgumentError(
        absl::StrCat("the record has more than ", kMaxFeatures, " features"));
  }
  if (is_example) return example;
  return absl::DataLossError("the record is no tf.train.Example");
}

}  // namespace datasetd
