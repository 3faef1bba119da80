# SPDX-License-Identifier: Apache-2.0
"""Renders every chat template of a llama.cpp source tree (models/templates/*.jinja) with python3-jinja2 and with ours, for
many conversations, and demands the same bytes, or that both refuse.

usage: template_suite.py LLAMA_CPP_DIR OUTRIDER_TEMPLATE_RENDER [-v] [NAME_PART...]

Where the template itself objects (raise_exception), our error must carry its words."""
import copy
import difflib
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ["TZ"] = "UTC"
time.tzset()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import jinja_reference

NOW = 1767225600  # 2026-01-01T00:00:00Z

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a \"city\" <now> & here", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "The city\nname"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": ["integer", "null"], "minimum": 1}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "search", "description": "Sucht im Netz \u2014 \u00fcberall", "parameters": {
        "type": "object", "properties": {
            "queries": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object", "properties": {"deep": {"type": "boolean"}, "limit": {"type": "number"}}},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer", "default": 3}]}}, "required": []},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = {"city": "K\u00f6ln <1>", "days": 2, "deep": True, "ratio": 0.5, "none": None, "list": [1, "a"], "map": {"k": "v"}}


def user(text): return {"role": "user", "content": text}
def system(text): return {"role": "system", "content": text}
def assistant(text, **more): return {"role": "assistant", "content": text, **more}
def tool(text, call="call00001", name="get_weather"): return {"role": "tool", "content": text, "tool_call_id": call, "name": name}


def call(arguments, identifier="call00001", name="get_weather"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(*texts): return [{"type": "text", "text": t} for t in texts]


def tool_turns(arguments, content):
    return [user("Weather?"), assistant(content, tool_calls=[call(arguments)]), tool('{"t": 21}')]


def conversations():
    """name -> messages"""
    hello = "Hello <|im_start|> & 'you' \"there\" \u00e9\u4f60\U0001f600\n\n  indented\n"
    two = [user("One"), assistant("Eins"), user("Two"), assistant("Zwei "), user("Three")]
    thought = "\nThe user asks.\nI think.\n"
    yield "user", [user(hello)]
    yield "system_user", [system("Be  brief.\n"), user(hello)]
    yield "turns", two
    yield "system_turns", [system("Be brief.")] + two
    yield "ends_with_assistant", two + [assistant("Drei")]
    yield "developer", [{"role": "developer", "content": "Obey."}, user("Hi")]
    yield "list_content", [user(parts("First", " second\n"))]
    yield "list_content_turns", [system(parts("Sys")), user(parts("a")), assistant(parts("b")), user(parts("c", "d"))]
    yield "image", [user([{"type": "text", "text": "See"}, {"type": "image"}, {"type": "image_url", "image_url": {"url": "x"}}])]
    yield "think_in_content", [user("Q"), assistant("<think>" + thought + "</think>\n\nA"), user("Q2")]
    yield "reasoning_content", [user("Q"), assistant("A", reasoning_content=thought), user("Q2")]
    yield "reasoning_last", [user("Q"), assistant("A", reasoning_content=thought, thinking=thought)]
    yield "reasoning_null", [user("Q"), assistant("A", reasoning_content=None), user("Q2")]
    for kind, arguments in (("map", ARGUMENTS), ("text", json.dumps(ARGUMENTS)), ("empty", {})):
        for content_kind, content in (("none", None), ("empty", ""), ("words", "Let me see.")):
            yield f"tool_{kind}_{content_kind}", tool_turns(arguments, content)
        yield f"tool_{kind}_answered", [system("Use tools.")] + tool_turns(arguments, "") + [assistant("It is 21."), user("Thanks")]
        yield f"tool_{kind}_reasoned", [user("W?"), assistant("", reasoning_content=thought, tool_calls=[call(arguments)]),
                                         tool("cold"), assistant("Cold."), user("More"),
                                         assistant("", reasoning=thought, thinking=thought, tool_calls=[call(arguments, "call00009", "search")]),
                                         tool("x", "call00009", "search")]
        yield f"tool_{kind}_two", [user("Both"), assistant("", tool_calls=[call(arguments), call(arguments, "call00002", "search")]),
                                    tool("21"), tool("found", "call00002", "search"), user("And?")]
        yield f"tool_{kind}_pending", [user("Both"), assistant("", tool_calls=[call(arguments)])]
        yield f"tool_{kind}_list_result", [user("Go"), assistant("", tool_calls=[call(arguments)]),
                                           {"role": "tool", "content": parts("a", "b"), "tool_call_id": "call00001", "name": "get_weather"}]
        bare = {"name": "get_weather", "arguments": arguments}
        yield f"tool_{kind}_bare", [user("Go"), assistant(None, tool_calls=[bare]), tool("ok")]
        yield f"tool_{kind}_no_content", [user("Go"), {"role": "assistant", "tool_calls": [call(arguments)]}, tool("ok")]
    yield "tool_without_call", [user("Go"), tool("ok"), user("Hm")]
    yield "empty_texts", [system(""), user(""), assistant(""), user(" ")]
    yield "none_content", [user("a"), assistant(None), user("b")]
    yield "two_users", [user("a"), user("b")]
    yield "system_last", [user("a"), system("b")]
    yield "two_systems", [system("a"), system("b"), user("c")]
    yield "assistant_first", [assistant("a"), user("b")]
    yield "unknown_role", [user("a"), {"role": "oracle", "content": "b"}]
    yield "no_messages", []
    yield "user_number", [{"role": "user", "content": 5}]


OPTIONS = {
    "plain": {},
    "think": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high", "reasoning": True},
    "no_think": {"enable_thinking": False, "thinking": False, "reasoning_effort": "low", "preserve_thinking": True},
    "dated": {"date_string": "1 Jan 2026", "model_identity": "You are Outrider.", "documents": [{"title": "T", "text": "Doc"}],
              "builtin_tools": ["browser", "python"], "tool_choice": "auto", "keep_past_thinking": True, "clear_thinking": False},
}
TOOL_SETS = {"no_tools": None, "tools": TOOLS, "empty_tools": [], "bare_tools": [t["function"] for t in TOOLS]}


def requests(source):
    for conversation, messages in conversations():
        for option, extra in OPTIONS.items():
            for tool_set, tools in TOOL_SETS.items():
                if tool_set in ("empty_tools", "bare_tools") and option != "plain":
                    continue
                for generate in (True, False) if option == "plain" or tool_set == "tools" else (True,):
                    variables = {"messages": copy.deepcopy(messages), "bos_token": "<s>", "eos_token": "</s>",
                                 "add_generation_prompt": generate, **copy.deepcopy(extra)}
                    if tools is not None:
                        variables["tools"] = copy.deepcopy(tools)
                    name = f"{conversation}/{option}/{tool_set}/{'generate' if generate else 'complete'}"
                    yield name, {"template": source, "variables": variables, "now": NOW, "add_generation_prompt": generate}


def agree(theirs, ours):
    if "text" in theirs:
        return ours.get("text") == theirs["text"]
    return "error" in ours and (not theirs["own"] or ours["error"] == theirs["error"])


def main():
    folder = pathlib.Path(sys.argv[1]) / "models" / "templates"
    verbose = "-v" in sys.argv[3:]
    wanted = [a for a in sys.argv[3:] if a != "-v"]
    files = sorted(f for f in folder.glob("*.jinja") if not wanted or any(w in f.name for w in wanted))
    if not files:
        sys.exit(f"{folder}: no templates")
    n_cases = n_texts = n_own = n_refused = n_bad = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        cases = list(requests(source))
        feed = "".join(json.dumps(request, ensure_ascii=False) + "\n" for _, request in cases)
        done = subprocess.run([sys.argv[2]], input=feed.encode(), stdout=subprocess.PIPE, check=True)
        answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
        if len(answers) != len(cases):
            sys.exit(f"{file.name}: {len(answers)} answers to {len(cases)} requests")
        reference = jinja_reference.Reference(source, NOW)
        bad = []
        for (name, request), ours in zip(cases, answers):
            theirs = reference.render(request["variables"])
            n_cases += 1
            n_texts += "text" in theirs
            n_own += theirs.get("own", False)
            n_refused += "error" in theirs and not theirs["own"]
            if not agree(theirs, ours):
                bad.append((name, theirs, ours))
        n_bad += len(bad)
        print(f"{'ok  ' if not bad else 'FAIL'} {file.name}: {len(cases) - len(bad)} of {len(cases)} agree", flush=True)
        for name, theirs, ours in bad[: 1000 if verbose else 3]:
            print(f"  {name}\n    jinja2: {theirs.get('error', '(text)')[:300]}\n    ours:   {ours.get('error', '(text)')[:300]}")
            if "text" in theirs and "text" in ours:
                for line in list(difflib.unified_diff(theirs["text"].splitlines(), ours["text"].splitlines(), lineterm="", n=1))[:12]:
                    print("      " + line)
    print(f"{len(files)} templates, {n_cases} renderings: {n_texts} texts, {n_own} objections of the template, {n_refused} faults; {n_bad} differ")
    sys.exit(1 if n_bad else 0)


main()
