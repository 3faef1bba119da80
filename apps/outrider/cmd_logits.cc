// SPDX-License-Identifier: Apache-2.0
// outrider logits: raw logits for given ids, the door for comparisons with other engines.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "command.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "outrider/base/error.h"
#include "outrider/base/output_path.h"
#include "outrider/observe/digest.h"

namespace outrider::apps {

namespace {

struct LogitsFlags {
  EngineFlags engine;
  std::string ids, out;
  bool json = false;
};

// A stopped or failed run leaves no half file.
class Output {
 public:
  explicit Output(const std::string& path) : where_(output_path(path)), stream_(where_.partial, std::ios::binary) {
    if (!stream_) fail(ErrorKind::kIo, "{}: cannot be created: {}", printable(where_.partial), std::strerror(errno));
  }
  ~Output() {
    if (!finished_ && !where_.in_place()) ::unlink(where_.partial.c_str());
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::span<const float> row) {
    stream_.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
    check();
  }

  void finish() {
    stream_.close();
    check();
    if (!where_.in_place() && std::rename(where_.partial.c_str(), where_.target.c_str()) != 0) {
      fail(ErrorKind::kIo, "{}: cannot be renamed to {}: {}", printable(where_.partial), printable(where_.target),
           std::strerror(errno));
    }
    finished_ = true;
  }

 private:
  void check() {
    if (!stream_) fail(ErrorKind::kIo, "{}: cannot be written: {}", printable(where_.partial), std::strerror(errno));
  }

  OutputPath where_;
  std::ofstream stream_;
  bool finished_ = false;
};

void logits(const LogitsFlags& flags) {
  const std::vector<int32_t> ids = parse_ids(flags.ids, "--ids");
  auto loaded = load_model(flags.engine, &interrupted());
  catch_interrupts();
  Output out(flags.out);
  observe::Digest digest;
  loaded->engine->prefill(0, ids, [&](uint32_t, std::span<const float> row) {
    digest.add(row);
    out.write(row);
  });
  out.finish();
  Json object;
  object["positions"] = ids.size();
  object["n_vocab"] = loaded->model.spec.n_vocab;
  object["digest"] = digest.hex();
  object["kernel_class"] = loaded->engine->kernel_class();
  if (flags.json) {
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::printf("%zu rows of %u f32 to %s, digest %s\n", ids.size(), loaded->model.spec.n_vocab, flags.out.c_str(),
                digest.hex().c_str());
  }
}

}  // namespace

void add_logits(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("logits", "Write raw logits for given token ids (little-endian f32, one row a position)");
  auto flags = std::make_shared<LogitsFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--ids", flags->ids, "Token ids: 1,2,3 or @FILE")->required();
  command->add_option("--out", flags->out, "File to write")->required();
  command->add_flag("--json", flags->json, "Print the summary as JSON");
  command->callback([flags] { logits(*flags); });
}

}  // namespace outrider::apps
