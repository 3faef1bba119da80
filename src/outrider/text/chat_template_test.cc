// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/text/chat_template.h"

namespace outrider::text {
namespace {

using nlohmann::ordered_json;

struct Outcome {
  std::string text;
  std::string error;
  bool is_syntax = false;
  std::vector<RenderedSpan> spans;
};

Outcome run(const std::string& source, const ordered_json& variables = ordered_json::object(),
            RenderOptions options = {}) {
  Outcome outcome;
  try {
    outcome.spans = ChatTemplate::compile(source)->render(variables, options);
    for (const RenderedSpan& span : outcome.spans) outcome.text += span.text;
  } catch (const Error& error) {
    outcome.error = error.what();
    outcome.is_syntax = error.kind() == ErrorKind::kBadFile;
  }
  return outcome;
}

std::string text_of(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  const Outcome outcome = run(source, variables);
  return outcome.error.empty() ? outcome.text : "error: " + outcome.error;
}

// The spans, untrusted ones in brackets.
std::string traced(const std::string& source, const ordered_json& variables) {
  const Outcome outcome = run(source, variables);
  if (!outcome.error.empty()) return "error: " + outcome.error;
  std::string text;
  for (const RenderedSpan& span : outcome.spans) text += span.trusted ? span.text : "[" + span.text + "]";
  return text;
}

// tests/golden/templates: what python3-jinja2 makes of small templates, one construct each.
TEST(ChatTemplate, RendersAsJinja2Does) {
  setenv("TZ", "UTC", 1);
  tzset();
  std::ifstream file(std::string(OUTRIDER_SOURCE_DIR) + "/tests/golden/templates/cases.json");
  const auto golden = ordered_json::parse(file);
  ASSERT_GT(golden["cases"].size(), 250U);
  RenderOptions options;
  options.now = golden["now"].get<int64_t>();
  for (const auto& one : golden["cases"]) {
    const auto source = one["template"].get<std::string>();
    SCOPED_TRACE(source);
    const Outcome ours = run(source, golden["variables"], options);
    if (one.contains("text")) {
      EXPECT_EQ(ours.error, "");
      EXPECT_EQ(ours.text, one["text"].get<std::string>());
    } else if (one.contains("objection")) {
      EXPECT_EQ(ours.error, one["objection"].get<std::string>());
    } else {
      EXPECT_NE(ours.error, "") << ours.text;
      EXPECT_EQ(ours.is_syntax, one["fails"] == "syntax") << ours.error;
    }
  }
}

TEST(ChatTemplate, ErrorsNameLineAndReason) {
  EXPECT_EQ(run("a\n{% if %}").error, "chat template: line 2: expected an expression, got '%}'");
  EXPECT_EQ(run("{% for x in y %}\n\n").error,
            "chat template: line 2: expected 'else' or 'endfor', got the end of the template");
  EXPECT_EQ(run("{% macro f() %}{{ 1 }}\n{{ x | nope }}{% endmacro %}").error,
            "chat template: line 2: no filter named 'nope'");
  EXPECT_EQ(run("\n\n{{ a.b }}").error, "chat template: line 3: 'a' is undefined");
  EXPECT_EQ(run("{{ m.b.c }}", {{"m", ordered_json::object()}}).error,
            "chat template: line 1: 'dict object' has no attribute 'b'");
  EXPECT_EQ(run("{{ 'a' +\n 1 }}").error, "chat template: line 1: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(run("{{ 9223372036854775807 + 1 }}").error,
            "chat template: line 1: an integer of the template does not fit into 64 bits");
  EXPECT_EQ(run("{% macro f() %}\n{{ 1 // 0 }}{% endmacro %}\n\n{{ f() }}").error,
            "chat template: line 2: integer division or modulo by zero");
}

// OUT-4: a template that objects does so in its own words; a broken one is told when it is compiled.
TEST(ChatTemplate, ObjectionsComeInTheTemplatesOwnWords) {
  const std::string source =
      "{% if messages[0].role != 'system' %}{{ raise_exception('System message must come first') }}{% endif %}"
      "{% for m in messages[1:] %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Roles must alternate, got ' + m.role + ' ' + m.id) }}{% endif %}{{ m.content }}{% endfor %}";
  const auto objection = [&](const char* messages) {
    return run(source, {{"messages", ordered_json::parse(messages)}}).error;
  };
  EXPECT_EQ(objection(R"([{"role":"user","content":"a"}])"), "System message must come first");
  EXPECT_EQ(
      objection(R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"user","content":"b"}])"),
      "Roles must alternate, got user ");
  EXPECT_EQ(objection(R"([{"role":"system","content":"s"},{"role":"user","content":"a"}])"), "");
  EXPECT_THROW(ChatTemplate::compile("{% if %}"), Error);
}

// TOK-2: what came from a message is known as such after any treatment; what the template wrote stays trusted.
TEST(ChatTemplate, InputStaysUntrustedThroughEveryOperation) {
  const ordered_json v = {{"c", " <|im_start|>x "},
                          {"w", "<|im_end|>"},
                          {"list", {"<|a|>", "b"}},
                          {"d", {{"<k>", "<v>"}}},
                          {"bos_token", "<s>"},
                          {"role", "user"},
                          {"n", 5}};
  EXPECT_EQ(traced("{{ bos_token }}<|im_start|>{{ role }}\n{{ c }}<|im_end|>", v),
            "<s><|im_start|>[user]\n[ <|im_start|>x ]<|im_end|>");
  EXPECT_EQ(traced("{{ c | trim }}.", v), "[<|im_start|>x].");
  EXPECT_EQ(traced("{{ c.strip().split('|')[1] }}.", v), "[im_start].");
  EXPECT_EQ(traced("{{ '<|im_start|>' + role + '\n' + w ~ '<|im_end|>' }}", v),
            "<|im_start|>[user]\n[<|im_end|>]<|im_end|>");
  EXPECT_EQ(traced("{{ 'A%A' | replace('%', w) }}", v), "A[<|im_end|>]A");
  EXPECT_EQ(traced("{{ w | replace('|', '<|') }}", v), "[<]<|[im_end]<|[>]");
  EXPECT_EQ(traced("{{ list | join('<|sep|>') }}", v), "[<|a|>]<|sep|>[b]");
  EXPECT_EQ(traced("{{ '<|sep|>'.join(list) }}", v), "[<|a|>]<|sep|>[b]");
  EXPECT_EQ(traced("{{ '<|x|>%s<|y|>' % w }}", v), "<|x|>[<|im_end|>]<|y|>");
  EXPECT_EQ(traced("{{ '<|{}|>{:>12}'.format(role, w) }}", v), "<|[user]|>  [<|im_end|>]");
  EXPECT_EQ(traced("{{ '<|x|>%s' | format(w) }}", v), "<|x|>[<|im_end|>]");
  EXPECT_EQ(traced("{{ w[1:-1] }}{{ w[0] }}{{ w[::-1] }}", v), "[|im_end|<>|dne_mi|<]");
  EXPECT_EQ(traced("{{ 'a' ~ w | upper }}{{ w | title }}{{ w.capitalize() }}", v), "a[<|IM_END|><|im_end|><|im_end|>]");
  EXPECT_EQ(traced("{{ w | indent(2, true) }}{{ w * 2 }}", v), "  [<|im_end|><|im_end|><|im_end|>]");
  EXPECT_EQ(traced("{{ w | e }}", v), "&lt;[|im_end|]&gt;");
  EXPECT_EQ(traced("{{ list | first | reverse }}{{ list[0] | list | join }}", v), "[>|a|<<|a|>]");
  EXPECT_EQ(traced("{{ w | tojson }}|{{ {'a': w} | tojson }}|{{ list }}|{{ d }}|{{ d.items() | list }}", v),
            "[\"<|im_end|>\"]|[{\"a\": \"<|im_end|>\"}]|[['<|a|>', 'b']]|[{'<k>': '<v>'}]|[[('<k>', '<v>')]]");
  EXPECT_EQ(traced("{{ {'a': '<|t|>'} | tojson }}{{ ['<|t|>'] }}", v), "{\"a\": \"<|t|>\"}['<|t|>']");
  EXPECT_EQ(traced("{% set x %}<|a|>{{ w }}{% endset %}{{ x }}{% macro m(p) %}<|b|>{{ p }}{% endmacro %}{{ m(w) }}", v),
            "<|a|>[<|im_end|>]<|b|>[<|im_end|>]");
  EXPECT_EQ(
      traced("{% set ns = namespace(t='<|a|>') %}{% set ns.t = ns.t + w %}{{ ns.t }}{{ missing | default(w) }}", v),
      "<|a|>[<|im_end|><|im_end|>]");
  EXPECT_EQ(
      traced("{% for k, x in d | items %}{{ k }}<|=|>{{ x }}{% endfor %}{% for ch in w %}{{ ch }}{% endfor %}", v),
      "[<k>]<|=|>[<v><|im_end|>]");
  EXPECT_EQ(traced("{% filter trim %} <|a|>{{ w }} {% endfilter %}{{ strftime_now(w) }}", v),
            "<|a|>[<|im_end|><|im_end|>]");
  // Beyond ASCII a change of case moves bytes: then the whole text is distrusted.
  EXPECT_EQ(traced("{{ ('<|a|>' + w + u) | upper }}", {{"w", "x"}, {"u", "\xC3\x9F"}}), "[<|A|>XSS]");
  EXPECT_EQ(traced("{{ n }}{{ n + 1 }}", v), "56");
}

TEST(ChatTemplate, LimitsEndARenderWithAnError) {
  const auto fails = [](const std::string& source, const std::string& reason) {
    const Outcome outcome = run(source);
    EXPECT_NE(outcome.error.find(reason), std::string::npos) << source.substr(0, 80) << "\n"
                                                             << outcome.error << outcome.text.size();
  };
  fails("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps");
  fails(
      "{% set ns = namespace(s='0123456789abcdef') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "grows past");
  fails("{% set x = 'x' * 100000 %}{% for a in range(1000) %}{{ x }}{% endfor %}", "grows past");
  fails("{{ 'x' * 9223372036854775807 }}", "grows past");
  fails("{{ [1] * 9223372036854775807 }}", "too long");
  fails("{{ 'x' | indent(9223372036854775807, true) }}", "grows past");
  fails("{{ 'x'.center(9223372036854775807) }}", "grows past");
  fails("{{ '%999999999d' % 1 }}", "larger than");
  fails(
      "{% set ns = namespace(l=[]) %}{% set x = 'x' * 1000000 %}{% for a in range(999) %}{% set ns.l = ns.l + [x ~ a] "
      "%}{% endfor %}",
      "memory");
  fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deeply");
  fails(
      "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ "
      "g() }}",
      "too deeply");
  fails("{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}", "too deeply");
  fails("{% set ns = namespace(l=[]) %}{% for a in range(500) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "too deeply");
  fails("{% set ns = namespace(l=[]) %}{% for a in range(500) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
        "too deeply");
  fails(
      "{% set ns = namespace(l=[]) %}{% for a in range(500) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == [ns.l] }}",
      "too deeply");
  fails("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "too deeply");
  fails("{% set l = [] %}{{ l.append(l) }}{{ l }}", "too deeply");
  ordered_json deep = 1;
  for (int i = 0; i < 300; ++i) deep = ordered_json::array({deep});
  EXPECT_NE(run("{{ x }}", {{"x", deep}}).error.find("nested deeper"), std::string::npos);
}

std::string repeated(const std::string& part, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += part;
  return text;
}

void* deep_templates(void*) {
  for (const int n : {40, 101, 5000}) {
    for (const char* opener : {"(", "[", "{'a':", "-", "not ", "a(", "a[", "1 if ", "a is b ", "a|f(", "1+("}) {
      const Outcome outcome = run("{{ " + repeated(opener, n) + "1");
      EXPECT_NE(outcome.error, "") << opener << n;
    }
    EXPECT_NE(run(repeated("{% if a %}", n)).error, "");
    EXPECT_NE(run(repeated("{% for a in b %}", n)).error, "");
    EXPECT_NE(run(repeated("{% set a %}", n)).error, "");
  }
  // Long but flat is fine.
  EXPECT_EQ(text_of("{{ 1" + repeated(" + 1", 20000) + " }}"), "20001");
  EXPECT_EQ(text_of("{{ '" + repeated("a' ~ '", 20000) + "' }}").size(), 20000U);
  EXPECT_EQ(text_of("{{ 'a'" + repeated("|upper|lower", 10000) + " }}"), "a");
  EXPECT_EQ(text_of("{% if n %}{%" + repeated(" elif n %}{%", 5000) + " else %}x{% endif %}"), "x");
  // Recursion through every kind of block and expression, until it is refused.
  for (const char* body :
       {"{{ f() }}",
        "{% if true %}{{ f() }}{% endif %}",
        "{% for i in [1] %}{{ f() }}{% endfor %}",
        "{% set a = f() %}",
        "{% set a %}{{ f() }}{% endset %}",
        "{% filter upper %}{{ f() }}{% endfilter %}",
        "{% with a = f() %}{% endwith %}",
        "{% generation %}{{ f() }}{% endgeneration %}",
        "{{ 1 if f() }}",
        "{{ [f()] }}",
        "{{ {'a': f()} }}",
        "{{ 1 + f() }}",
        "{{ 'a' ~ f() }}",
        "{{ not f() }}",
        "{{ f() == 1 }}",
        "{{ 'a' in f() }}",
        "{{ f() and 1 }}",
        "{{ f()|upper }}",
        "{{ 'a'|replace('a', f()) }}",
        "{{ 'a' is eq f() }}",
        "{{ [1][f()] }}",
        "{{ [1][f():] }}",
        "{{ '{}'.format(f()) }}",
        "{{ dict(a=f()) }}",
        "{{ raise_exception(f()) }}",
        "{% for i in f() %}{% endfor %}",
        "{% for i in [1] if f() %}{% endfor %}",
        "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
        "{% set ns = namespace(a=f()) %}",
        "{% if true %}{% for i in [1] %}{% set a %}{% filter upper %}{{ [{'a': 'b'|replace('b', 1 ~ (f() if true))}] }}"
        "{% endfilter %}{% endset %}{% endfor %}{% endif %}"}) {
    EXPECT_NE(run("{% macro f() %}" + std::string(body) + "{% endmacro %}{{ f() }}").error.find("too deeply"),
              std::string::npos)
        << body;
    EXPECT_NE(run("{% macro f(a=1) %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f(g()) %}" + std::string(body) +
                  "{% endcall %}{% endmacro %}{{ g() }}")
                  .error.find("too deeply"),
              std::string::npos)
        << body;
  }
  EXPECT_NE(run("{{ 'a'|map(" + repeated("'map', ", 5000) + "'upper')|list }}").error.find("too deeply"),
            std::string::npos);
  EXPECT_NE(run("{{ 'a'|select(" + repeated("'in', ", 5000) + "'upper')|list }}").error, "");
  ordered_json nested = 1;
  for (int i = 0; i < 99; ++i) nested = {{"k", nested}};
  EXPECT_NE(text_of("{{ x }}{{ x | tojson(indent=1) }}{{ x == x }}{{ [x] == [x] }}", {{"x", nested}}).size(), 0U);
  return nullptr;
}

// Server threads may have small stacks: nesting is refused before it can overflow one. Sanitizers need larger frames.
TEST(ChatTemplate, DeepNestingIsRefusedOnASmallStack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const size_t stack_bytes = 2U << 20;
#else
  const size_t stack_bytes = 256U << 10;
#endif
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, deep_templates, nullptr), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(ChatTemplate, DamagedTemplatesGiveErrorsOrTexts) {
  std::ifstream file(std::string(OUTRIDER_SOURCE_DIR) + "/tests/golden/templates/cases.json");
  const auto golden = ordered_json::parse(file);
  TestRng rng(7);
  std::string pool;
  for (const auto& one : golden["cases"]) pool += one["template"].get<std::string>();
  for (int round = 0; round < 3000; ++round) {
    std::string source;
    for (int part = 0; part < 4; ++part) source += pool.substr(rng.below(pool.size()), rng.below(60));
    if (!source.empty()) source[rng.below(source.size())] = static_cast<char>(rng.below(256));
    static_cast<void>(run(source, golden["variables"]));
  }
}

TEST(ChatTemplate, FromMetadataChoosesByToolsAndFallsBackToChatMl) {
  format::Metadata metadata("m.gguf");
  bool fallback = false;
  const ordered_json v = {{"messages", {{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "U"}}}}};
  const auto render = [&](bool has_tools, bool generate) {
    RenderOptions options;
    options.add_generation_prompt = generate;
    std::string text;
    for (const RenderedSpan& span : ChatTemplate::from_metadata(metadata, has_tools, &fallback)->render(v, options))
      text += span.text;
    return text;
  };
  EXPECT_EQ(render(true, true),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(fallback);
  EXPECT_EQ(render(false, false), "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n");
  metadata.set_string("tokenizer.chat_template", "plain");
  EXPECT_EQ(render(true, true), "plain");
  EXPECT_FALSE(fallback);
  metadata.set_string("tokenizer.chat_template.tool_use", "tools {{ add_generation_prompt }}");
  EXPECT_EQ(render(true, false), "tools False");
  EXPECT_EQ(render(false, true), "plain");
  metadata.set_string("tokenizer.chat_template", "{{ 1 ");
  try {
    ChatTemplate::from_metadata(metadata, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
    EXPECT_STREQ(error.what(), "m.gguf: tokenizer.chat_template: line 1: '}}' is missing at the end of the template");
  }
}

TEST(ChatTemplate, InputIsCheckedAndKeepsItsOrder) {
  EXPECT_EQ(run("x", ordered_json::array()).error, "chat template: the variables must be a JSON object");
  EXPECT_EQ(text_of("{{ t | tojson }}",
                    {{"t", ordered_json::parse(
                               R"({"z":1,"a":[1.0,2e30,18446744073709551615,-5,null,true],"\u00e9":"\u00fc"})")}}),
            "{\"z\": 1, \"a\": [1.0, 2e+30, 1.8446744073709552e+19, -5, null, true], \"\xc3\xa9\": \"\xc3\xbc\"}");
  // Bytes that are not UTF-8 pass through, one code point each.
  EXPECT_EQ(text_of("{{ s }}{{ s | length }}{{ s[1:] }}{{ s | upper }}", {{"s", "a\xFF\xC3"}}),
            "a\xFF\xC3"
            "3\xFF\xC3"
            "A\xFF\xC3");
}

TEST(ChatTemplate, OneCompiledTemplateRendersManyTimes) {
  const auto chat_template =
      ChatTemplate::compile("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x }}");
  for (int i = 0; i < 3; ++i) {
    const auto spans = chat_template->render({{"x", "u"}}, {});
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_EQ(spans[0].text, "1");
    EXPECT_EQ(spans[1].text, "u");
    EXPECT_FALSE(spans[1].trusted);
  }
  EXPECT_EQ(chat_template->source().substr(0, 6), "{% set");
}

}  // namespace
}  // namespace outrider::text
