#include "server/dataset/field_message.h"

#include "base/utf8.h"

namespace datasetd {
namespace {

ImageSize SizeOf(const v1::ImageExtent& extent) {
  return {extent.height(), extent.width()};
}

}  // namespace

void SetExtent(ImageSize size, v1::ImageExtent* extent) {
  extent->set_height(size.height);
  extent->set_width(size.width);
}

void BadSamplesToMessage(
    const BadSampleReport& report,
    google::protobuf::RepeatedPtrField<v1::BadSample>* samples) {
  for (const BadSample& sample : report.listed) {
    v1::BadSample* const to = samples->Add();
    to->set_index(sample.index);
    to->set_path(PrintableUtf8(sample.path));
    to->set_offset(sample.offset);
    to->set_reason(PrintableUtf8(sample.reason));
  }
}

void FieldToMessage(const FieldSpec& spec, v1::Field* field) {
  field->set_name(spec.name);
  field->set_dtype(static_cast<v1::Dtype>(spec.dtype));
  field->mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
  field->set_is_image(spec.is_image);
  field->set_is_mask(spec.is_mask);
  if (spec.num_pixels == 0) return;
  SetExtent(spec.smallest, field->mutable_smallest());
  SetExtent(spec.largest, field->mutable_largest());
  field->set_num_pixels(spec.num_pixels);
}

void NotesToMessage(absl::Span<const LoadNote> notes,
                    google::protobuf::RepeatedPtrField<v1::LoadNote>* to) {
  for (const LoadNote& note : notes) {
    v1::LoadNote* const message = to->Add();
    message->set_text(note.text);
    message->set_is_warning(note.is_warning);
  }
}

std::vector<LoadNote> NotesFromMessage(
    const google::protobuf::RepeatedPtrField<v1::LoadNote>& notes) {
  std::vector<LoadNote> to;
  for (const v1::LoadNote& note : notes) {
    to.push_back({.text = note.text(), .is_warning = note.is_warning()});
  }
  return to;
}

FieldSpec FieldFromMessage(const v1::Field& field) {
  return {.name = field.name(),
          .dtype = static_cast<Dtype>(field.dtype()),
          .shape = {field.shape().begin(), field.shape().end()},
          .is_image = field.is_image(),
          .is_mask = field.is_mask(),
          .smallest = SizeOf(field.smallest()),
          .largest = SizeOf(field.largest()),
          .num_pixels = field.num_pixels()};
}

}  // namespace datasetd
