// SPDX-License-Identifier: Apache-2.0
// outrider logits: raw logits for given ids, the door for comparisons with other engines.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/error.h"
#include "outrider/observe/digest.h"

namespace outrider::apps {

namespace {

struct LogitsFlags {
  EngineFlags engine;
  std::string ids, out;
  bool json = false;
};

void logits(const LogitsFlags& flags) {
  const std::vector<int32_t> ids = parse_ids(flags.ids, "--ids");
  auto loaded = load_model(flags.engine);
  const std::string part = flags.out + ".part";  // a stopped run leaves no half file under the wanted name
  std::ofstream out(part, std::ios::binary);
  if (!out) fail(ErrorKind::kIo, "{}: cannot be opened for writing", printable(part));
  observe::Digest digest;
  loaded->engine->prefill(0, ids, [&](uint32_t, std::span<const float> row) {
    digest.add(row);
    out.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
  });
  out.close();
  if (!out) fail(ErrorKind::kIo, "{}: cannot be written", printable(part));
  std::filesystem::rename(part, flags.out);
  Json object;
  object["positions"] = ids.size();
  object["n_vocab"] = loaded->model.spec.n_vocab;
  object["digest"] = digest.hex();
  object["kernel_class"] = loaded->engine->kernel_class();
  if (flags.json) {
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::printf("%zu rows of %u f32 to %s, digest %s\n", ids.size(), loaded->model.spec.n_vocab, flags.out.c_str(), digest.hex().c_str());
  }
}

}  // namespace

void add_logits(CLI::App& app) {
  CLI::App* command = app.add_subcommand("logits", "Write raw logits for given token ids (little-endian f32, one row a position)");
  auto flags = std::make_shared<LogitsFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--ids", flags->ids, "Token ids: 1,2,3 or @FILE")->required();
  command->add_option("--out", flags->out, "File to write")->required();
  command->add_flag("--json", flags->json, "Print the summary as JSON");
  command->callback([flags] { logits(*flags); });
}

}  // namespace outrider::apps
