#include "server/feed/noise_datasets.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace datasetd {
namespace {

using Ops = google::protobuf::RepeatedPtrField<v1::Transform>;

void AddNames(const Ops& ops, std::vector<std::string>& names) {
  for (const v1::Transform& op : ops) {
    AddNames(op.random_apply().transforms(), names);
    if (!op.has_add_noise()) continue;
    const std::string& name = op.add_noise().noise();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
}

bool IsWaveform(const FieldSpec& field) {
  return !field.is_image &&
         (field.shape.size() == 1 || field.shape.size() == 2);
}

// Returns the number of the field.
absl::StatusOr<size_t> ChooseField(const Dataset& dataset,
                                   const v1::AddNoise& op,
                                   const std::string& waveform) {
  const std::vector<FieldSpec>& fields = dataset.fields();
  const std::string& wanted = op.field().empty() ? waveform : op.field();
  std::vector<size_t> waveforms;
  std::vector<std::string> names;
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].name == wanted) return f;
    if (IsWaveform(fields[f])) waveforms.push_back(f);
    names.push_back(fields[f].name);
  }
  if (op.field().empty() && waveforms.size() == 1) return waveforms.front();
  return absl::InvalidArgumentError(absl::StrCat(
      "the noise '", op.noise(), "' has ",
      op.field().empty()
          ? absl::StrCat(waveforms.size(), " fields of recordings, and none '",
                         waveform, "'")
          : absl::StrCat("no field '", op.field(), "'"),
      ": set field to one of ", absl::StrJoin(names, ", ")));
}

}  // namespace

void AddNoiseNames(
    const google::protobuf::Map<std::string, v1::FieldOptions>& fields,
    std::vector<std::string>& names) {
  // The message's map has no order.
  std::map<std::string, const v1::FieldOptions*> ordered;
  for (const auto& [name, options] : fields) ordered[name] = &options;
  for (const auto& [name, options] : ordered) {
    AddNames(options->transforms(), names);
  }
}

NoiseFinder NoiseDatasets::FinderOn(const Backend* backend) const {
  return [this, backend](const v1::AddNoise& op, const std::string& field) {
    return Find(op, field, backend);
  };
}

absl::StatusOr<NoiseField> NoiseDatasets::Find(const v1::AddNoise& op,
                                               const std::string& waveform,
                                               const Backend* backend) const {
  const auto found = std::find_if(
      datasets_.begin(), datasets_.end(),
      [&](const Named& named) { return named.name == op.noise(); });
  if (found == datasets_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no dataset of noise '", op.noise(), "' here"));
  }
  const Dataset& dataset = *found->dataset;
  absl::StatusOr<size_t> field = ChooseField(dataset, op, waveform);
  if (!field.ok()) return field.status();
  NoiseField noise;
  noise.spec = dataset.fields()[*field];
  noise.num_samples = dataset.num_samples();
  if (backend == nullptr) {
    const RaggedIndex* const index = dataset.field_index(*field);
    if (index != nullptr) noise.ragged = index->samples().data();
    return noise;
  }
  if (dataset.has_mapped_files() || !dataset.IsFieldWholeOn(*field, *backend)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "field '", noise.spec.name, "' of the noise '", op.noise(),
        "' is not whole in the memory of ", backend->info().name,
        ", which the feed runs on: load it there with the residency device"));
  }
  noise.source = dataset.field_data(*field);
  noise.ragged = dataset.field_index_data(*field);
  return noise;
}

void NoiseDatasets::Describe(v1::OpenFeedResponse* response) const {
  for (const Named& named : datasets_) {
    v1::NoiseDataset* const noise = response->add_noise();
    noise->set_dataset(named.name);
    noise->set_content_hash(named.dataset->content_hash());
  }
}

}  // namespace datasetd
