// The files to read, and the daemon's own, failing as a FaultPlan says.

#ifndef DATASETD_TESTS_TESTING_FAULTY_FILE_SYSTEM_H_
#define DATASETD_TESTS_TESTING_FAULTY_FILE_SYSTEM_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "server/files/file_system.h"
#include "server/files/store_directory.h"
#include "tests/testing/fault_plan.h"

namespace datasetd::testing {

class FaultyFile : public RandomAccessFile {
 public:
  FaultyFile(std::unique_ptr<RandomAccessFile> file, FaultPlan* plan)
      : file_(std::move(file)), plan_(plan) {}
  const FileInfo& info() const override { return file_->info(); }
  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "ReadAt"));
    if (!buffer.empty() && plan_->Fires(kFaultShortRead)) {
      buffer.remove_suffix(1);
    }
    return file_->ReadAt(offset, buffer);
  }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
  FaultPlan* const plan_;
};

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem(std::unique_ptr<FileSystem> files, FaultPlan* plan)
      : files_(std::move(files)), plan_(plan) {}
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path) const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "Open"));
    DATASETD_ASSIGN_OR_RETURN(auto file, files_->Open(path));
    return std::make_unique<FaultyFile>(std::move(file), plan_);
  }
  absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "Stat"));
    return files_->Stat(path);
  }
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& directory,
                                             OnEntry on_entry) const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "List"));
    return files_->List(directory, on_entry);
  }

 private:
  const std::unique_ptr<FileSystem> files_;
  FaultPlan* const plan_;
};

class FaultyWritableFile : public WritableFile {
 public:
  FaultyWritableFile(std::unique_ptr<WritableFile> file, FaultPlan* plan)
      : file_(std::move(file)), plan_(plan) {}
  absl::Status WriteAt(int64_t offset,
                       absl::Span<const uint8_t> data) override {
    const absl::Status status = plan_->Pass(kFaultWrite, "WriteAt");
    // A disk that is full takes a part.
    if (!status.ok()) data = data.subspan(0, data.size() / 2);
    DATASETD_RETURN_IF_ERROR(file_->WriteAt(offset, data));
    return status;
  }
  absl::Status Sync() override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultWrite, "Sync"));
    return file_->Sync();
  }

 private:
  const std::unique_ptr<WritableFile> file_;
  FaultPlan* const plan_;
};

class FaultyStoreDirectory : public StoreDirectory {
 public:
  FaultyStoreDirectory(std::unique_ptr<StoreDirectory> directory,
                       FaultPlan* plan)
      : directory_(std::move(directory)), plan_(plan) {}
  const std::string& path() const override { return directory_->path(); }
  absl::StatusOr<std::vector<FileInfo>> List() const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "List"));
    return directory_->List();
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& name) const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "Open"));
    DATASETD_ASSIGN_OR_RETURN(auto file, directory_->Open(name));
    return std::make_unique<FaultyFile>(std::move(file), plan_);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& name) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultWrite, "Create"));
    DATASETD_ASSIGN_OR_RETURN(auto file, directory_->Create(name));
    return std::make_unique<FaultyWritableFile>(std::move(file), plan_);
  }
  absl::StatusOr<std::unique_ptr<MappedFile>> Map(
      const std::string& name) const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "Map"));
    return directory_->Map(name);
  }
  absl::StatusOr<std::unique_ptr<MappedFile>> CreateMapped(
      const std::string& name, int64_t size_bytes) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultWrite, "CreateMapped"));
    return directory_->CreateMapped(name, size_bytes);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultWrite, "Rename"));
    return directory_->Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultWrite, "Remove"));
    return directory_->Remove(name);
  }
  absl::Status Touch(const std::string& name) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultWrite, "Touch"));
    return directory_->Touch(name);
  }
  absl::StatusOr<int64_t> FreeBytes() const override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultRead, "FreeBytes"));
    return directory_->FreeBytes();
  }

 private:
  const std::unique_ptr<StoreDirectory> directory_;
  FaultPlan* const plan_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_FAULTY_FILE_SYSTEM_H_
