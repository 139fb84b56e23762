// datasetctl preview NAME: writes a picture of transformed samples.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_PREVIEW_COMMAND_H_
#define DATASETD_CLIENT_CTL_PREVIEW_PREVIEW_COMMAND_H_

#include <cstdint>
#include <string>

#include "client/ctl/command.h"
#include "client/ctl/preview/sample_images.h"

namespace datasetd::ctl {

class PreviewCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "preview"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  SampleRange range_;
  std::string transforms_ = "crop-flip";
  std::string output_ = "preview.png";
  int zoom_ = 0;  // 0: about 96 pixels an image
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_PREVIEW_COMMAND_H_
