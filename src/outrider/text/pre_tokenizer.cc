// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/pre_tokenizer.h"

#include <algorithm>

#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

// Where llama.cpp only approximates a model's own rule, this is the model's rule (spec 5.4): O200, TEKKEN and what is
// built on them cut at the case of every script, marks are letters there, and Han means Script=Han in K2. Its scanner
// for the digits of afmoe and tiny_aya also leaves the first group of digits joined to the text before it; here it is
// cut.
constexpr Stage kLlama3[] = {split_llama3};
constexpr Stage kQwen2[] = {split_qwen2};
constexpr Stage kQwen35[] = {split_qwen35};
constexpr Stage kO200[] = {split_o200};
constexpr Stage kAya[] = {split_grouped_digits, split_o200};
constexpr Stage kTekken[] = {split_tekken};
constexpr Stage kKimi[] = {split_kimi_k2};
constexpr Stage kDeepseek3[] = {split_three_digits, split_cjk_kana, split_deepseek_v3};
constexpr Stage kSpark[] = {split_three_digits, split_cjk_kana, split_spark, split_digit};
constexpr Stage kDeepseekLlm[] = {split_newline,        split_deepseek_cased, split_deepseek_punctuation,
                                  split_trailing_space, split_deepseek_cjk,   split_digits};
constexpr Stage kDeepseekCoder[] = {split_newline, split_spaced_letters, split_spaced_punctuation, split_deepseek_cjk,
                                    split_digit};
constexpr Stage kGpt2[] = {split_gpt2};
constexpr Stage kDigitGpt2[] = {split_digit, split_gpt2};
constexpr Stage kDefault[] = {split_default_punctuation, split_gpt2, split_digits, split_three_ascii_digits};
constexpr Stage kFalcon[] = {split_falcon_punctuation, split_gpt2, split_three_ascii_digits};
constexpr Stage kBloom[] = {split_bloom};
constexpr Stage kViking[] = {split_bloom, split_digit};
constexpr Stage kLines[] = {split_newline_runs};
constexpr Stage kSeedCoder[] = {split_seed_coder};
constexpr Stage kMiniCpm5[] = {split_three_digits, split_long_digits};
constexpr Stage kSuperBpe[] = {split_digits, split_before_digit_groups};
constexpr Stage kJais2[] = {split_jais2};
constexpr Stage kLaguna[] = {split_newline_runs, split_qwen2};
constexpr Stage kUfakZeka[] = {split_qwen2_no_contractions};
constexpr Stage kExaoneMoe[] = {split_exaone_moe};
constexpr Stage kAfmoe[] = {split_grouped_numbers, split_afmoe_scripts, split_deepseek_v3};
constexpr Stage kYoutu[] = {split_youtu_scripts, split_o200_digit};
constexpr Stage kChameleon[] = {split_chameleon_sentinel,    split_chameleon_image,
                                split_chameleon_blanks,      split_digit,
                                split_chameleon_punctuation, split_gpt2};
constexpr Stage kWhitespace[] = {split_non_space};

constexpr PreRule plain(std::string_view name, std::span<const Stage> stages) { return {name, stages}; }
constexpr PreRule whole(std::string_view name, std::span<const Stage> stages, bool add_bos) {
  return {name, stages, true, add_bos};
}

// clang-format off
constexpr PreRule kRules[] = {
    plain("default", kDefault),
    // L3
    whole("llama-bpe", kLlama3, true), whole("llama3", kLlama3, true), whole("llama-v3", kLlama3, true),
    whole("falcon3", kLlama3, true), whole("falcon-h1", kLlama3, true), whole("pixtral", kLlama3, true),
    whole("midm-2.0", kLlama3, true), whole("lfm2", kLlama3, true), whole("jina-v5-nano", kLlama3, true),
    plain("dbrx", kLlama3), plain("smaug-bpe", kLlama3), plain("glm4", kLlama3), plain("chatglm-bpe", kLlama3),
    // Q2; the possessive quantifiers of bailingmoe's original change no match, and its \s*[\r\n] ends where
    // \s*[\r\n]+ does
    plain("qwen2", kQwen2), plain("deepseek-r1-qwen", kQwen2), plain("kormo", kQwen2), plain("f2llmv2", kQwen2),
    plain("hunyuan", kQwen2), plain("solar-open", kQwen2), plain("grok-2", kQwen2), plain("megrez", kQwen2),
    plain("stablelm2", kQwen2), plain("bailingmoe", kQwen2), plain("bailingmoe2", kQwen2), plain("llada-moe", kQwen2),
    plain("qwen35", kQwen35), plain("seed-coder", kSeedCoder), plain("laguna", kLaguna), plain("ufakzeka", kUfakZeka),
    plain("exaone-moe", kExaoneMoe), plain("jais-2", kJais2),
    // O200 and its kin
    plain("gpt-4o", kO200), plain("llama4", kO200), plain("kanana2", kO200), plain("talkie", kO200),
    plain("minimax-m2", kO200),
    whole("granite-embed-multi-97m", kO200, false), plain("tiny_aya", kAya), plain("cohere2moe", kAya),
    whole("youtu", kYoutu, false), whole("tekken", kTekken, true), plain("kimi-k2", kKimi), plain("kimi-k25", kKimi),
    // DeepSeek and its kin
    plain("deepseek-v3", kDeepseek3), plain("hunyuan-dense", kDeepseek3), plain("joyai-llm", kDeepseek3),
    plain("hy_v4", kDeepseek3),
    plain("spark2_5", kSpark), plain("deepseek-llm", kDeepseekLlm), plain("deepseek-coder", kDeepseekCoder),
    plain("afmoe", kAfmoe),
    // G2 and what is put before it
    plain("gpt-2", kGpt2), plain("olmo", kGpt2), plain("phi-2", kGpt2), plain("mpt", kGpt2), plain("jais", kGpt2),
    plain("exaone4", kGpt2), plain("gigachat", kGpt2), plain("a.x-4.0", kGpt2), plain("mellum", kGpt2),
    plain("modern-bert", kGpt2),
    plain("jina-es", kGpt2), plain("jina-de", kGpt2), plain("jina-v2-es", kGpt2), plain("jina-v2-de", kGpt2),
    plain("jina-v1-en", kGpt2), plain("jina-v2-code", kGpt2), plain("roberta-bpe", kGpt2), plain("trillion", kGpt2),
    plain("granite-docling", kGpt2), plain("smollm", kDigitGpt2), plain("command-r", kDigitGpt2),
    plain("starcoder", kDigitGpt2),
    plain("refact", kDigitGpt2), plain("codeshell", kDigitGpt2), plain("exaone", kDigitGpt2),
    plain("minerva-7b", kDigitGpt2),
    plain("mellum2", kDigitGpt2), plain("falcon", kFalcon), {"chameleon", kChameleon, false, true},
    // the rest
    plain("bloom", kBloom), plain("gpt3-finnish", kBloom), plain("poro-chat", kBloom), plain("viking", kViking),
    whole("minicpm5", kMiniCpm5, false), plain("superbpe", kSuperBpe),
    {"gemma4", kLines, false, true, false, true, true},
    {"granite-embed-multi-311m", kLines, false, true, false, true, true},
    {"sarvam-moe", kLines, false, false, false, true, false},
    {"whitespace", kWhitespace, false, false, false, false, false},
};
// clang-format on

}  // namespace

const PreRule* find_pre_rule(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const PreRule& rule) { return rule.name == name; });
  return found == std::end(kRules) ? nullptr : found;
}

std::string pre_rule_names() {
  std::string names;
  for (const PreRule& rule : kRules) {
    if (!names.empty()) names += ", ";
    names += rule.name;
  }
  return names;
}

void pre_tokenize(std::string_view text, const PreRule& rule, std::vector<size_t>& ends) {
  std::vector<Character> characters;
  std::vector<size_t> offsets;
  characters.reserve(text.size());
  offsets.reserve(text.size() + 1);
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const bool valid = step.state == Utf8Step::kValid;
    offsets.push_back(pos);
    characters.push_back(valid ? Character{step.code_point, char_class(step.code_point)} : Character{kNoCodePoint, 0});
    pos += valid ? step.n_bytes : 1;
  }
  offsets.push_back(text.size());

  std::vector<size_t> pieces;
  std::vector<size_t> next;
  if (!characters.empty()) pieces.push_back(characters.size());
  for (const Stage stage : rule.stages) {
    size_t begin = 0;
    next.clear();
    for (const size_t end : pieces) {
      stage(characters.data(), begin, end, next);
      begin = end;
    }
    pieces.swap(next);
  }
  for (const size_t end : pieces) ends.push_back(offsets[end]);
}

}  // namespace outrider::text
