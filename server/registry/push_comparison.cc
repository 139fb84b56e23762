#include "server/registry/push_comparison.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_entry.h"

namespace datasetd {
namespace {

absl::Status Differs(const std::string& name, const std::string& difference) {
  return absl::AlreadyExistsError(absl::StrCat(
      "dataset '", name, "' ", difference,
      ": choose another name, or unload it first; in Python if_exists='keep' "
      "takes what is there, 'replace' pushes these samples in its place, and "
      "name=None makes a name of the content"));
}

std::string Names(const std::vector<FieldSpec>& fields) {
  return absl::StrJoin(fields, ", ", [](std::string* out, const auto& field) {
    absl::StrAppend(out, field.name);
  });
}

std::string Text(const FieldSpec& field) {
  const char* const kind = field.is_mask    ? "mask"
                           : field.is_image ? "image"
                                            : "array";
  return absl::StrCat(kind, " of ", DtypeName(field.dtype), " (",
                      absl::StrJoin(field.shape, ", "), ")");
}

absl::Status FieldDiffers(const std::string& name, const FieldSpec& present,
                          const FieldSpec& pushed) {
  return Differs(
      name, absl::StrCat("has field '", present.name, "' as ", Text(present),
                         ", and these samples as ", Text(pushed)));
}

absl::Status CountDiffers(const std::string& name, int64_t present,
                          int64_t pushed) {
  return Differs(
      name, absl::StrCat("has ", present, " samples, and these are ", pushed));
}

bool AreAlike(const FieldSpec& a, const FieldSpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.is_image == b.is_image &&
         a.is_mask == b.is_mask;
}

// Fields without ops are left out.
std::string HashOf(Pretransforms pretransforms) {
  std::erase_if(pretransforms,
                [](const auto& field) { return field.second.empty(); });
  return PretransformsHash(pretransforms);
}

}  // namespace

PushComparison::PushComparison(const DatasetEntry& present, uint64_t session_id,
                               std::function<void()> cancel)
    : entry_id_(present.id),
      session_id_(session_id),
      name_(present.spec->name()),
      num_samples_(present.content.replicas.front()->num_samples()),
      fields_(present.content.replicas.front()->fields()),
      content_hash_(present.content.replicas.front()->content_hash()),
      cancel_(std::move(cancel)) {}

absl::Status PushComparison::CheckRequest(const DatasetEntry& present,
                                          const OpenedSource& push) {
  const v1::DatasetSpec& spec = *present.spec;
  const std::string& name = spec.name();
  if (spec.format() != kPushedFormat) {
    return Differs(name, absl::StrCat("was loaded from '", spec.path(), "' (",
                                      spec.format(), "), not pushed"));
  }
  const std::string device = push.placement.devices.Text();
  if (!push.request.spec->device().empty() &&
      device != present.dataset.device()) {
    return Differs(name, absl::StrCat("is on ", present.dataset.device(),
                                      ", and the push names ", device));
  }
  DATASETD_RETURN_IF_ERROR(CheckAccess(present, *push.request.spec));
  DATASETD_ASSIGN_OR_RETURN(const LoadRequest before,
                            datasetd::CheckRequest(spec));
  if (HashOf(before.pretransforms) != HashOf(push.request.pretransforms)) {
    return Differs(name, "was pushed with other pretransforms");
  }
  if (*present.content.classes != push.reader->info().class_names) {
    return Differs(name, "was pushed with other class names");
  }
  return absl::OkStatus();
}

absl::Status PushComparison::CheckPlan(const LoadPlan& plan) const {
  // Bad samples that are skipped are not known before the others are decoded.
  const bool may_be_fewer =
      plan.is_encoded && plan.bad_samples == v1::BAD_SAMPLE_POLICY_SKIP;
  if (plan.num_samples < num_samples_ ||
      (plan.num_samples > num_samples_ && !may_be_fewer)) {
    return CountDiffers(name_, num_samples_, plan.num_samples);
  }
  std::vector<FieldSpec> fields;
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    fields.push_back(field.resident);
  }
  if (Names(fields) != Names(fields_)) {
    return Differs(name_, absl::StrCat("has the fields ", Names(fields_),
                                       ", and these samples ", Names(fields)));
  }
  for (size_t f = 0; f < fields.size(); ++f) {
    if (plan.fields[f].needs_sizes || AreAlike(fields_[f], fields[f])) continue;
    return FieldDiffers(name_, fields_[f], fields[f]);
  }
  return absl::OkStatus();
}

absl::Status PushComparison::CheckSamples(
    const Dataset::Contents& hashed) const {
  if (hashed.num_samples != num_samples_) {
    return CountDiffers(name_, num_samples_, hashed.num_samples);
  }
  if (hashed.content_hash == content_hash_) return absl::OkStatus();
  return Differs(name_,
                 "has other samples than these, which are drawn anew in each "
                 "run or were changed since");
}

absl::Status CheckAccess(const DatasetEntry& present,
                         const v1::DatasetSpec& wanted) {
  if (wanted.pin() && !present.spec->pin()) {
    return absl::FailedPreconditionError(
        absl::StrCat("pin: dataset '", wanted.name(),
                     "' is loaded, and not pinned; unload it first"));
  }
  if (wanted.private_() && !present.spec->private_()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "private: dataset '", wanted.name(),
        "' is loaded, and every user sees it; unload it first, or choose "
        "another name"));
  }
  return absl::OkStatus();
}

}  // namespace datasetd
