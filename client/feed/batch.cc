#include "client/feed/batch.h"

namespace datasetd::client {

FieldView Batch::field(int index) const {
  const FieldLayout& layout = core_->layout().fields()[index];
  FieldView view = {.name = layout.name.c_str(),
                    .dtype = layout.dtype,
                    .data = core_->FieldData(info_.slot, layout),
                    .num_dimensions = layout.num_dimensions,
                    .shape = layout.shape,
                    .strides = layout.strides};
  view.shape[0] = info_.num_samples / layout.group_size;
  return view;
}

}  // namespace datasetd::client
