// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/format/gguf.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

const Tokenizer& demo() {
  static const auto tokenizer =
      Tokenizer::load(format::ModelFile::open(OUTRIDER_SOURCE_DIR "/models/outrider-demo-q4_0.gguf").metadata);
  return *tokenizer;
}

TEST(Tokenizer, GoldenIdsOfTheDemoModel) {
  std::ifstream file(OUTRIDER_SOURCE_DIR "/tests/golden/tokenizer/cases.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 24u);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto want = one.at("ids_parse_special").get<Ids>();
    EXPECT_EQ(demo().encode(text, {.parse_special = true}), want) << text.substr(0, 60);
    EXPECT_EQ(demo().decode(want, true), text);
  }
}

// A small SPM vocabulary: <unk> <s> </s>, the byte tokens if wanted, then texts, the earlier the better their score.
format::Metadata spm_metadata(const Strings& texts, bool byte_tokens = true) {
  Strings tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types = {2, 3, 3};
  if (byte_tokens) {
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.resize(tokens.size(), 6);
  }
  std::vector<double> scores(tokens.size(), 0.0);
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens.push_back(texts[i]);
    types.push_back(1);
    scores.push_back(-1.0 - static_cast<double>(i));
  }
  format::Metadata metadata("spm.gguf");
  metadata.set_string("tokenizer.ggml.model", "llama");
  metadata.set_strings("tokenizer.ggml.tokens", tokens);
  metadata.set_ints("tokenizer.ggml.token_type", types);
  metadata.set_reals("tokenizer.ggml.scores", scores);
  return metadata;
}

const std::string kMark = "\u2581";  // SPM's space
const Strings kSpmTexts = {
    "he", "ll", "hell", "hello", kMark + "hello", kMark + kMark, kMark + kMark + kMark, kMark, "h", "e", "l", "o", "w"};

// A small byte-level BPE vocabulary: the tokens as given, no merges unless given.
format::Metadata bpe_metadata(const Strings& tokens, const std::vector<int64_t>& types, const Strings& merges = {}) {
  format::Metadata metadata("bpe.gguf");
  metadata.set_string("tokenizer.ggml.model", "gpt2");
  metadata.set_string("tokenizer.ggml.pre", "gpt-2");
  metadata.set_strings("tokenizer.ggml.tokens", tokens);
  metadata.set_ints("tokenizer.ggml.token_type", types);
  metadata.set_strings("tokenizer.ggml.merges", merges);
  return metadata;
}

Strings spelled(const Tokenizer& tokenizer, const Ids& ids) {
  Strings texts;
  for (const TokenId id : ids) texts.emplace_back(tokenizer.raw_text(id));
  return texts;
}

std::string error_of(const std::function<void()>& action, ErrorKind want) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), want);
    return error.what();
  }
  return "no error";
}

std::string load_error(const format::Metadata& metadata) {
  return error_of([&] { Tokenizer::load(metadata); }, ErrorKind::kBadFile);
}

std::string random_text(TestRng& rng, bool valid) {
  std::string text;
  for (size_t n = rng.below(60); n > 0; --n) {
    if (!valid && rng.below(3) == 0) {
      text.push_back(static_cast<char>(rng.below(256)));
      continue;
    }
    const uint64_t limit = rng.below(2) == 0 ? 0x80 : rng.below(2) == 0 ? 0x3200 : 0x110000;
    auto code_point = static_cast<char32_t>(rng.below(limit));
    if (code_point >= 0xD800 && code_point < 0xE000) code_point = ' ';
    append_utf8(text, code_point);
  }
  return text;
}

TEST(Tokenizer, DecodeIsTheInverseOfEncodeOnRandomTextAndBytes) {
  TestRng rng(1);
  const auto spm = Tokenizer::load(spm_metadata(kSpmTexts));
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(rng, round % 2 == 0);
    for (const bool parse_special : {false, true}) {
      EXPECT_EQ(demo().decode(demo().encode(text, {.parse_special = parse_special}), true), text);
    }
    if (text.find(kMark) != std::string::npos) continue;  // SPM reads it as a space
    EXPECT_EQ(spm->decode(spm->encode(text, {}), false), text);
  }
}

TEST(Tokenizer, PiecesOfTheIdsMakeUpTheText) {
  TestRng rng(2);
  for (int round = 0; round < 200; ++round) {
    const std::string text = random_text(rng, false);
    std::string pieces;
    for (const TokenId id : demo().encode(text, {})) pieces += demo().piece(id, false);
    EXPECT_EQ(pieces, text);
  }
}

TEST(Tokenizer, SpecialIdsAndTypesOfTheDemoModel) {
  const TokenId end = demo().encode("<|im_end|>", {.parse_special = true}).at(0);
  EXPECT_EQ(demo().type(end), TokenType::kControl);
  EXPECT_TRUE(demo().is_end_of_generation(end));
  EXPECT_EQ(demo().piece(end, true), "<|im_end|>");
  EXPECT_EQ(demo().piece(end, false), "");
  EXPECT_EQ(demo().n_tokens(), 16384u);
  EXPECT_FALSE(demo().is_end_of_generation(kNoToken));
  EXPECT_FALSE(demo().is_end_of_generation(16384));
  EXPECT_EQ(error_of([] { demo().piece(16384, false); }, ErrorKind::kBadArgument),
            "token id 16384 is not in the vocabulary of " OUTRIDER_SOURCE_DIR
            "/models/outrider-demo-q4_0.gguf (0 to 16383)");
}

TEST(Tokenizer, EndOfGenerationSet) {
  const Strings tokens = {"a", "<|im_end|>", "<|end|>", "<|file_sep|>", "x", "<|return|>", "<|call|>", "<|channel|>"};
  auto metadata = bpe_metadata(tokens, {1, 3, 3, 3, 1, 3, 3, 3});
  metadata.set_uint("tokenizer.ggml.eos_token_id", 4);
  const auto tokenizer = Tokenizer::load(metadata);
  const auto stops = [&](TokenId id) { return tokenizer->is_end_of_generation(id); };
  EXPECT_TRUE(stops(1) && stops(3) && stops(4) && stops(5) && stops(6));
  // With <|return|> and <|call|> there, <|end|> only ends one channel's message; both it and the channel token are
  // shown.
  EXPECT_FALSE(stops(0) || stops(2) || stops(7));
  EXPECT_EQ(tokenizer->piece(2, false), "<|end|>");
  EXPECT_EQ(tokenizer->piece(7, false), "<|channel|>");
}

TEST(Tokenizer, SuppressedAreUnusedRowsAndTheFilesOwnList) {
  auto metadata = bpe_metadata({"a", "b", "c", "d"}, {1, 5, 1, 1});
  metadata.set_ints("tokenizer.ggml.suppress_tokens", {3, 1, 99});
  const auto tokenizer = Tokenizer::load(metadata);
  EXPECT_EQ(Ids(tokenizer->suppressed().begin(), tokenizer->suppressed().end()), (Ids{1, 3}));
}

TEST(Tokenizer, LongestSpecialTokenIsCutOutFirstThenTheNextInWhatIsLeft) {
  const Strings tokens = {"a", "b", "<", ">", "|", "<|a|>", "<|a|>b", "|>b<|", "\u0120"};
  const auto tokenizer = Tokenizer::load(bpe_metadata(tokens, {1, 1, 1, 1, 1, 3, 3, 4, 1}));
  const auto encode = [&](std::string_view text, bool parse) {
    return spelled(*tokenizer, tokenizer->encode(text, {.parse_special = parse}));
  };
  EXPECT_EQ(encode("<|a|>b<|a|>", true), (Strings{"<|a|>b", "<|a|>"}));  // not |>b<|, which is shorter
  EXPECT_EQ(encode("<|a|>a", true), (Strings{"<|a|>", "a"}));
  EXPECT_EQ(encode("<|a|>b<|a|>", false), (Strings{"<", "|", "a", "|>b<|", "a", "|", ">"}));
}

TEST(Tokenizer, MergesGoByRankThenFromTheLeft) {
  const Strings tokens = {"a", "b", "c", "ab", "bc", "aa", "abc"};
  const std::vector<int64_t> types(tokens.size(), 1);
  const auto by_rank = Tokenizer::load(bpe_metadata(tokens, types, {"b c", "a b", "a a", "ab c"}));
  EXPECT_EQ(spelled(*by_rank, by_rank->encode("abc", {})), (Strings{"a", "bc"}));
  EXPECT_EQ(spelled(*by_rank, by_rank->encode("aaa", {})), (Strings{"aa", "a"}));
  const auto other = Tokenizer::load(bpe_metadata(tokens, types, {"a b", "b c", "ab c", "b c"}));
  EXPECT_EQ(spelled(*other, other->encode("abc", {})), (Strings{"abc"}));
}

TEST(Tokenizer, IgnoreMergesEmitsAWholePieceAtOnce) {
  const Strings tokens = {"a", "b", "c", "abc", "bc"};
  auto metadata = bpe_metadata(tokens, {1, 1, 1, 1, 1}, {"b c"});
  EXPECT_EQ(Tokenizer::load(metadata)->encode("abc", {}), (Ids{0, 4}));
  metadata.set_string("tokenizer.ggml.pre", "llama-bpe");
  EXPECT_EQ(Tokenizer::load(metadata)->encode("abc", {}), (Ids{3}));
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// TOK-1: a long run of one character, on a small stack, in time linear in its length.
void* encode_long_runs(void* failure) {
  const auto spm = Tokenizer::load(spm_metadata(kSpmTexts));
  for (const char* unit : {"x", "e", " ", "\n", "7", "\u4E2D", "\u00E9", "\U0001F642"}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += unit;
    for (const Tokenizer* tokenizer : {&demo(), static_cast<const Tokenizer*>(spm.get())}) {
      const double start = thread_seconds();
      const TextSpan spans[] = {{"<|im_start|>tool\n", true}, {text, false}, {"<|im_end|>", true}};
      const Ids ids = tokenizer->encode(text, {});
      const Ids in_chat = tokenizer->encode_spans(spans, true);
      const bool in_time = thread_seconds() - start < 2.0;
      if (tokenizer->decode(ids, false) != text || !in_time || in_chat.size() < 3)
        *static_cast<std::string*>(failure) += unit;
    }
  }
  return nullptr;
}

TEST(Tokenizer, Tok1LongRunsOfOneCharacterNeedLittleStackAndTime) {
  demo();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  std::string failure;
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, encode_long_runs, &failure), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(failure, "");
}

// TOK-2: text from outside that spells a control token stays text.
TEST(Tokenizer, Tok2ControlTokensAreTakenFromTrustedTextOnly) {
  for (TokenId id = 0; id < static_cast<TokenId>(demo().n_tokens()); ++id) {
    if (demo().type(id) != TokenType::kControl) continue;
    const std::string spelling(demo().raw_text(id));
    const std::string forged = "a" + spelling + "b";
    const TextSpan spans[] = {{spelling, true}, {forged, false}, {spelling, true}};
    const Ids ids = demo().encode_spans(spans, false);
    EXPECT_EQ(ids.front(), id);
    EXPECT_EQ(ids.back(), id);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 2) << spelling;
    EXPECT_EQ(Ids(ids.begin() + 1, ids.end() - 1), demo().encode(forged, {}));
    EXPECT_EQ(demo().decode(ids, true), spelling + forged + spelling);
    EXPECT_EQ(demo().encode(spelling, {.parse_special = true}), (Ids{id}));
    const Ids plain = demo().encode(spelling, {});
    EXPECT_EQ(std::count(plain.begin(), plain.end(), id), 0);
  }
}

TEST(Tokenizer, Tok2ATokenMustNotBePutTogetherAcrossABorder) {
  const TextSpan spans[] = {{"<|im_", true}, {"start|>", false}, {"<|im", false}, {"_end|>", true}};
  for (const TokenId id : demo().encode_spans(spans, false)) EXPECT_EQ(demo().type(id), TokenType::kNormal);
  const TextSpan trusted[] = {{"<|im_", true}, {"", false}, {"end|>", true}};
  EXPECT_EQ(demo().encode_spans(trusted, false), demo().encode("<|im_end|>", {.parse_special = true}));
}

TEST(Tokenizer, Tok2MarkersThatTheFileOrTheLoaderCallsUserDefinedCannotBeForgedEither) {
  // <|channel|> is control in the file and made visible; <|user|> is user-defined in the file; <tag> is no marker.
  const Strings tokens = {"<|channel|>", "<|user|>", "<tag>", "\u0120", "<", "|", ">", "c", "h",
                          "a",           "n",        "e",     "l",      "u", "s", "r", "t", "g"};
  std::vector<int64_t> types(tokens.size(), 1);
  types[0] = 3, types[1] = types[2] = 4;
  const auto tokenizer = Tokenizer::load(bpe_metadata(tokens, types));
  const std::string all = "<|channel|><|user|><tag>";
  const TextSpan spans[] = {{all, true}, {all, false}};
  const Ids ids = tokenizer->encode_spans(spans, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 2);
  EXPECT_EQ(tokenizer->encode("<|user|>", {}), (Ids{1}));  // the raw door does as the file says
}

TEST(Tokenizer, SpansWithoutControlTokensAreOneText) {
  TestRng rng(4);
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_text(rng, true);
    const size_t cut = rng.below(text.size() + 1);
    const TextSpan spans[] = {{std::string_view(text).substr(0, cut), true},
                              {std::string_view(text).substr(cut), false}};
    EXPECT_EQ(demo().encode_spans(spans, false), demo().encode(text, {}));
  }
}

// TOK-3: a character outside the vocabulary becomes bytes if there are byte tokens, else unknown, else an error.
TEST(Tokenizer, Tok3CharactersOutsideTheVocabulary) {
  const std::string zero("\0", 1);
  const Strings texts = {"\U0001F642", "\uFF01", zero, "\xFF", "\xE2\x82", "\n"};
  const auto with_bytes = Tokenizer::load(spm_metadata({kMark, "a"}));
  const auto with_unknown = Tokenizer::load(spm_metadata({kMark, "a"}, false));
  auto metadata = spm_metadata({kMark, "a"}, false);
  metadata.set_ints("tokenizer.ggml.token_type", {1, 3, 3, 1, 1});
  metadata.set_string("tokenizer.ggml.model", "gpt2");
  metadata.set_strings("tokenizer.ggml.merges", {});
  const auto with_neither = Tokenizer::load(metadata);
  for (const std::string& text : texts) {
    EXPECT_EQ(with_bytes->decode(with_bytes->encode("a" + text, {}), false), "a" + text);
    const Ids unknown = with_unknown->encode("a" + text, {});
    EXPECT_EQ(unknown.at(2), 0) << text;
    const std::string error = error_of([&] { with_neither->encode("a" + text, {}); }, ErrorKind::kBadArgument);
    EXPECT_EQ(error.find("spm.gguf: the vocabulary has no token for \\x"), 0u) << error;
  }
}

// TOK-4: the space that SPM puts before a text.
TEST(Tokenizer, Tok4DummySpaceIsAddedOncePerStretchAndTakenBackByDecode) {
  const auto on = Tokenizer::load(spm_metadata(kSpmTexts));
  auto metadata = spm_metadata(kSpmTexts);
  metadata.set_bool("tokenizer.ggml.add_space_prefix", false);
  const auto off = Tokenizer::load(metadata);
  EXPECT_EQ(spelled(*on, on->encode("hello", {.add_special = true})), (Strings{"<s>", kMark + "hello"}));
  EXPECT_EQ(spelled(*off, off->encode("hello", {.add_special = true})), (Strings{"<s>", "hello"}));
  EXPECT_EQ(spelled(*on, on->encode("<s>hello", {.parse_special = true})), (Strings{"<s>", kMark + "hello"}));
  EXPECT_EQ(spelled(*on, on->encode("\nhello", {})), (Strings{kMark, "<0x0A>", "hello"}));
  EXPECT_EQ(on->encode("", {.add_special = true}), (Ids{1}));
  for (size_t n = 0; n <= 5; ++n) {
    const std::string text = std::string(n, ' ') + "hello";
    for (const Tokenizer* tokenizer : {on.get(), off.get()}) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {}), false), text);
      const std::string chat = "<s>" + text + "</s>" + text;
      const Ids ids = tokenizer->encode(chat, {.parse_special = true});
      EXPECT_EQ(tokenizer->decode(ids, true), chat);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
    }
  }
  // A continuation is streamed piece by piece and keeps its space.
  EXPECT_EQ(on->piece(on->encode("hello", {}).at(0), false), " hello");
}

TEST(Tokenizer, SpmJoinsByScoreOfTheResult) {
  const auto tokenizer = Tokenizer::load(spm_metadata({kMark, "a", "b", "c", "bc", "ab", "abc"}));
  EXPECT_EQ(spelled(*tokenizer, tokenizer->encode("abc", {})), (Strings{kMark, "abc"}));
  EXPECT_EQ(spelled(*tokenizer, tokenizer->encode("abab", {})), (Strings{kMark, "ab", "ab"}));
  EXPECT_EQ(spelled(*tokenizer, tokenizer->encode("</s>", {})),
            (Strings{kMark, "<0x3C>", "<0x2F>", "<0x73>", "<0x3E>"}));
}

TEST(Tokenizer, RawUtf8BpeWritesSpacesAsMarksAndFallsBackToBytes) {
  Strings tokens = {"<pad>", "<bos>", kMark, "a", kMark + "a", "\n\n", "<0xC3>", "<0xA9>"};
  auto metadata = bpe_metadata(tokens, {3, 3, 1, 1, 1, 1, 6, 6}, {kMark + " a"});
  metadata.set_string("tokenizer.ggml.model", "gemma4");
  metadata.set_bool("tokenizer.ggml.add_bos_token", false);
  metadata.set_uint("tokenizer.ggml.bos_token_id", 1);
  const auto tokenizer = Tokenizer::load(metadata);
  EXPECT_EQ(tokenizer->encode(" a a\n\n\u00E9", {.add_special = true}), (Ids{1, 4, 4, 5, 6, 7}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 4, 4, 5, 6, 7}, false), " a a\n\n\u00E9");
}

TEST(Tokenizer, BadFilesAreRefusedByNameAndKey) {
  auto metadata = bpe_metadata({"a"}, {1});
  metadata.set_string("tokenizer.ggml.model", "t5");
  EXPECT_EQ(load_error(metadata),
            "bpe.gguf: tokenizer.ggml.model is t5, which is not supported (supported: gpt2, llama, gemma4)");
  metadata = bpe_metadata({"a"}, {1});
  metadata.set_string("tokenizer.ggml.pre", "qwen99");
  EXPECT_EQ(load_error(metadata).find(
                "bpe.gguf: tokenizer.ggml.pre is qwen99, which is not known (known: default, llama-bpe, "),
            0u);
  metadata = bpe_metadata({"a", "b"}, {1});
  EXPECT_EQ(load_error(metadata), "bpe.gguf: tokenizer.ggml.token_type has 1 entries for 2 tokens");
  EXPECT_EQ(load_error(bpe_metadata({}, {})), "bpe.gguf: key tokenizer.ggml.tokens is empty");
  format::Metadata bare("bare.gguf");
  EXPECT_FALSE(Tokenizer::present(bare));
  bare.set_string("tokenizer.ggml.model", "none");
  EXPECT_FALSE(Tokenizer::present(bare));
  bare.set_string("tokenizer.ggml.model", "gpt2");
  EXPECT_TRUE(Tokenizer::present(bare));
  EXPECT_EQ(load_error(bare), "bare.gguf: key tokenizer.ggml.tokens is missing");
  bare.set_strings("tokenizer.ggml.tokens", {"a"});
  EXPECT_EQ(load_error(bare), "bare.gguf: key tokenizer.ggml.merges is missing");
}

TEST(Tokenizer, TheFirstOfEqualTextsIsMeantAndEveryIdHasItsText) {
  const auto tokenizer = Tokenizer::load(bpe_metadata({"a", "b", "a", ""}, {1, 1, 1, 1}));
  EXPECT_EQ(tokenizer->encode("ab", {}), (Ids{0, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 3, 1}, false), "ab");
}

}  // namespace
}  // namespace outrider::text
