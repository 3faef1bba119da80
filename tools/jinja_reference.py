# SPDX-License-Identifier: Apache-2.0
"""The environment chat templates are written for, built from python3-jinja2: Hugging Face's settings, filters and globals.
Used by the template suites; `render` is the reference our interpreter is compared with."""
import copy
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %} renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


class TemplateError(Exception):
    """raise_exception of the template itself."""


def make_environment(now, sandbox=jinja2.sandbox.ImmutableSandboxedEnvironment):
    def raise_exception(message):
        raise TemplateError(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(now).strftime(format)

    env = sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


class Reference:
    """One template. render() gives {"text": ...} or {"error": message, "own": raised by the template itself}. Templates that
    change lists or dicts are refused by the immutable sandbox; for them the plain sandbox is the reference."""

    def __init__(self, source, now):
        self.templates = []
        self.error = None
        try:
            for sandbox in (jinja2.sandbox.ImmutableSandboxedEnvironment, jinja2.sandbox.SandboxedEnvironment):
                self.templates.append(make_environment(now, sandbox).from_string(source))
        except (jinja2.TemplateSyntaxError, SyntaxError) as e:
            self.error = {"error": f"{type(e).__name__}: {e}", "own": False, "syntax": True}

    def render(self, variables):
        if self.error is not None:
            return self.error
        try:
            try:
                return {"text": self.templates[0].render(**copy.deepcopy(variables))}
            except jinja2.exceptions.SecurityError:
                return {"text": self.templates[1].render(**copy.deepcopy(variables))}
        except TemplateError as e:
            return {"error": str(e), "own": True}
        except Exception as e:  # every other failure of a template counts alike
            return {"error": f"{type(e).__name__}: {e}", "own": False}
