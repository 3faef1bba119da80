// SPDX-License-Identifier: Apache-2.0
// outrider tokenize: a text to token ids and back, with the tokenizer of a model file.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "outrider/base/error.h"
#include "outrider/format/gguf.h"
#include "outrider/text/tokenizer.h"
#include "text_input.h"

namespace outrider::apps {
namespace {

using text::TokenId;
using text::Tokenizer;

struct TokenizeOptions {
  std::string model;
  std::string prompt;
  std::vector<std::string> files;
  std::string decode;
  bool no_special = false;
  bool add_special = false;
  bool ids_only = false;
  bool json = false;
};

std::string joined(const std::vector<TokenId>& ids) {
  std::string list;
  for (const TokenId id : ids) {
    if (!list.empty()) list += ',';
    list += std::to_string(id);
  }
  return list;
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Pieces may end inside a character: what is no UTF-8 is shown as U+FFFD in JSON and escaped otherwise.
std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_ids(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const TokenizeOptions& options) {
  if (options.json) {
    nlohmann::ordered_json out = {{"ids", ids}, {"pieces", nlohmann::ordered_json::array()}};
    for (const TokenId id : ids) out["pieces"].push_back(tokenizer.piece(id, true));
    print(dump(out));
  } else if (options.ids_only) {
    print(joined(ids) + "\n");
  } else {
    for (const TokenId id : ids) print(fmt::format("{:>7}  {}\n", id, printable(tokenizer.piece(id, true), SIZE_MAX)));
  }
}

void run(const TokenizeOptions& options, bool have_prompt, bool have_decode) {
  const auto metadata = format::ModelFile::open(options.model).metadata;
  if (!Tokenizer::present(metadata)) {
    const auto name = metadata.find_string("tokenizer.ggml.model");
    fail(ErrorKind::kBadFile,
         "{}: the file carries no tokenizer (tokenizer.ggml.model is {}): text and ids cannot be converted",
         options.model, name ? std::string(*name) : "missing");
  }
  const auto tokenizer = Tokenizer::load(metadata);
  if (have_decode) {
    const std::vector<TokenId> ids = parse_ids(options.decode, "--decode");
    const std::string text = tokenizer->decode(ids, !options.no_special);
    print(options.json ? dump({{"ids", ids}, {"text", text}}) : text);
    return;
  }
  const text::EncodeOptions encode = {.add_special = options.add_special, .parse_special = !options.no_special};
  if (have_prompt) print_ids(*tokenizer, tokenizer->encode(options.prompt, encode), options);
  for (const std::string& file : options.files)
    print_ids(*tokenizer, tokenizer->encode(read_text_file(file), encode), options);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  command->add_option("MODEL", options->model, "GGUF file (one with a vocabulary only will do) or folder")->required();
  auto* source = command->add_option_group("source", "What to convert");
  auto* prompt = source->add_option("-p,--prompt", options->prompt, "The text");
  source
      ->add_option("-f,--file", options->files,
                   "Read the text from a file (- for standard input), every byte of it; may be repeated")
      ->allow_extra_args(false);
  auto* decode = source->add_option("--decode", options->decode, "Print the text of these ids: 1,2,3 or @FILE");
  source->require_option(1);
  command->add_flag("--no-special", options->no_special,
                    "Control tokens spelled in the text are plain text; hide them with --decode");
  command->add_flag("--add-special", options->add_special, "Add BOS and EOS as the model file wants them");
  command->add_flag("--ids", options->ids_only, "Print ids only, separated by commas");
  command->add_flag("--json", options->json, "Print one object: ids, pieces (with --decode: ids, text)");
  command->callback([options, prompt, decode] { run(*options, prompt->count() > 0, decode->count() > 0); });
}

}  // namespace outrider::apps
