#include "server/feed/feed_datasets.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "server/dataset/mixture.h"
#include "server/feed/feed_options.h"
#include "server/order/mixture_order.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNamedClasses = 4;
constexpr size_t kMaxNoiseDatasets = 64;

std::string Text(absl::Span<const std::string> names) {
  return absl::StrCat(
      names.size(), " classes, ",
      absl::StrJoin(names.first(std::min(names.size(), kMaxNamedClasses)),
                    ", "),
      names.size() > kMaxNamedClasses ? ", ..." : "");
}

// What tells an order from others, beside the parts.
std::string OrderText(const std::optional<MixtureOptions>& order) {
  if (!order.has_value()) return "mixture";
  return absl::StrCat("mixture ",
                      order->is_fixed_per_batch ? "fixed per batch " : "",
                      absl::StrJoin(order->num_rows, " "));
}

}  // namespace

FeedDatasets& FeedDatasets::operator=(FeedDatasets&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  uses_ = std::move(other.uses_);
  dataset_ = std::move(other.dataset_);
  noise_ = std::move(other.noise_);
  backend_ = other.backend_;
  visibility_ = other.visibility_;
  return *this;
}

absl::StatusOr<FeedDatasets> FeedDatasets::Use(const v1::FeedOptions& options,
                                               const Caller& caller,
                                               DatasetRegistry* registry) {
  FeedDatasets datasets;
  std::vector<std::string> noise;
  AddNoiseNames(options.fields(), noise);
  if (options.has_mixture()) {
    DATASETD_RETURN_IF_ERROR(datasets.Mix(options, caller, registry));
    for (const v1::MixturePart& part : options.mixture().parts()) {
      AddNoiseNames(part.fields(), noise);
    }
  } else {
    DATASETD_RETURN_IF_ERROR(
        datasets.UseOne(options.dataset(), options.device(), caller, registry));
  }
  DATASETD_RETURN_IF_ERROR(datasets.UseNoise(noise, caller, registry));
  return datasets;
}

absl::StatusOr<FeedDatasets> FeedDatasets::Use(const std::string& name,
                                               const FieldsMessage& fields,
                                               const Caller& caller,
                                               DatasetRegistry* registry) {
  FeedDatasets datasets;
  std::vector<std::string> noise;
  AddNoiseNames(fields, noise);
  DATASETD_RETURN_IF_ERROR(
      datasets.UseOne(name, /*device=*/"", caller, registry));
  DATASETD_RETURN_IF_ERROR(datasets.UseNoise(noise, caller, registry));
  return datasets;
}

absl::Status FeedDatasets::UseOne(const std::string& name,
                                  const std::string& device,
                                  const Caller& caller,
                                  DatasetRegistry* registry) {
  DATASETD_ASSIGN_OR_RETURN(DatasetUse use,
                            registry->Use(name, caller, device));
  dataset_ = use.dataset();
  backend_ = use.backend();
  Add(std::move(use), caller);
  return absl::OkStatus();
}

void FeedDatasets::Add(DatasetUse use, const Caller& caller) {
  if (use.visibility().is_private || uses_.empty()) {
    // Of several owners, which only root may use, the feed is nobody's else.
    const bool is_other = visibility_.is_private &&
                          visibility_.owner_uid != use.visibility().owner_uid;
    visibility_ = is_other ? Visibility{true, caller.uid} : use.visibility();
  }
  uses_.push_back(std::move(use));
}

absl::Status FeedDatasets::UseNoise(const std::vector<std::string>& names,
                                    const Caller& caller,
                                    DatasetRegistry* registry) {
  if (names.size() > kMaxNoiseDatasets) {
    return absl::InvalidArgumentError(
        absl::StrCat("AddNoise: there are ", names.size(),
                     " datasets of noise; a feed can have ", kMaxNoiseDatasets,
                     ": push some of them as one, with datasetd.concat"));
  }
  const std::string device = backend_->info().name;
  for (const std::string& name : names) {
    const auto own = std::find_if(
        uses_.begin(), uses_.end(),
        [&](const DatasetUse& use) { return use.dataset()->name() == name; });
    if (own != uses_.end()) {
      noise_.Add(name, own->dataset());
      continue;
    }
    absl::StatusOr<DatasetUse> use = registry->Use(name, caller, device);
    if (!use.ok()) {
      return absl::Status(
          use.status().code(),
          absl::StrCat("AddNoise, noise '", name, "': ", use.status().message(),
                       absl::IsInvalidArgument(use.status())
                           ? absl::StrCat(" (noise must be on the device of "
                                          "the feed, ",
                                          device, ")")
                           : ""));
    }
    noise_.Add(name, use->dataset());
    Add(*std::move(use), caller);
  }
  return absl::OkStatus();
}

absl::Status FeedDatasets::Mix(const v1::FeedOptions& options,
                               const Caller& caller,
                               DatasetRegistry* registry) {
  std::vector<std::shared_ptr<const Dataset>> parts;
  std::map<std::string, std::shared_ptr<const Dataset>> known;
  std::string device = options.device();
  std::string first_named;
  std::vector<std::string> classes;
  for (const v1::MixturePart& part : options.mixture().parts()) {
    const std::string& name = part.dataset();
    if (const auto found = known.find(name); found != known.end()) {
      parts.push_back(found->second);
      continue;
    }
    absl::StatusOr<DatasetUse> use = registry->Use(name, caller, device);
    if (!use.ok()) {
      return absl::Status(
          use.status().code(),
          absl::StrCat(use.status().message(),
                       parts.empty() || !options.device().empty()
                           ? ""
                           : absl::StrCat(" (the datasets of a mixture must be "
                                          "on one device, and '",
                                          parts.front()->name(), "' is on ",
                                          device, ")")));
    }
    if (parts.empty()) {
      backend_ = use->backend();
      device = backend_->info().name;
    }
    std::vector<std::string> names = use->class_names();
    if (classes.empty()) {
      classes = std::move(names);
      first_named = name;
    } else if (!names.empty() && names != classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mixture: datasets '", first_named, "' and '", name,
          "' have different class names, so that a label does not mean the "
          "same: ",
          Text(classes), " and ", Text(names),
          ". Load them with the same class names"));
    }
    parts.push_back(use->dataset());
    known[name] = use->dataset();
    Add(*std::move(use), caller);
  }
  DATASETD_ASSIGN_OR_RETURN(const std::optional<MixtureOptions> order,
                            PlanMixture(options.mixture(), parts));
  DATASETD_ASSIGN_OR_RETURN(dataset_,
                            MakeMixture(std::move(parts), DatasetName(options),
                                        OrderText(order), backend_));
  return absl::OkStatus();
}

bool FeedDatasets::Has(const Dataset* dataset) const {
  return std::any_of(uses_.begin(), uses_.end(), [&](const DatasetUse& use) {
    return use.dataset().get() == dataset;
  });
}

absl::Status FeedDatasets::CheckReady() const {
  for (const DatasetUse& use : uses_) {
    if (use.IsReady()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", use.dataset()->name(), "' is being unloaded"));
  }
  return absl::OkStatus();
}

void FeedDatasets::Reset() {
  dataset_.reset();
  noise_ = {};
  uses_.clear();
}

}  // namespace datasetd
