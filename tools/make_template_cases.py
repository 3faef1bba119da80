# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/templates/cases.json: small templates of our own, one construct each, with what python3-jinja2 makes
of them. usage: /usr/bin/python3 tools/make_template_cases.py"""
import json
import os
import pathlib
import sys
import time

os.environ["TZ"] = "UTC"
time.tzset()
root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "tools"))
import jinja2
import jinja_reference

NOW = 1767225600  # 2026-01-01T00:00:00Z

VARIABLES = {
    "n": 3, "x": 1.5, "yes": True, "nothing": None, "word": "h\u00e9llo W\u00f6rld", "empty": "",
    "list": [3, 1, 2], "words": ["b", "A", "c"], "pair": [["a", 1], ["b", 2]],
    "d": {"b": 1, "A": 2, "items": 3, "nested": {"k": [1, {"z": None}]}},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30, "tags": []}],
    "html": "<b>\"T\" & 'q'</b>", "lines": "a\nb\n\nc\n", "emoji": "a\U0001f600\u4f60z",
    "data": {"f": 2.0, "big": 1e20, "small": 1e-7, "t": True, "s": "q\"\\\n\t\u0001\u00e9", "l": [], "o": {}, "n": [1, [2, {"a": 3}]]},
}

STATEMENTS = r"""
{% if n > 2 %}a{% elif n %}b{% else %}c{% endif %}
{% if nothing %}a{% elif empty %}b{% else %}c{% endif %}
{% if missing %}a{% endif %}.
{% for i in list %}{{ i }},{% endfor %}
{% for i in [] %}a{% else %}none{% endfor %}
{% for i in missing %}a{% else %}none{% endfor %}
{% for i in nothing %}a{% endfor %}
{% for i in 5 %}a{% endfor %}
{% for k, v in pair %}{{ k }}={{ v }};{% endfor %}
{% for (k, (a, b)) in [[1, [2, 3]]] %}{{ k }}{{ a }}{{ b }}{% endfor %}
{% for k, v in list %}{% endfor %}
{% for k in d %}{{ k }},{% endfor %}
{% for k, v in d.items() %}{{ k }}:{{ v }},{% endfor %}
{% for k, v in d|items %}{{ k }}:{{ v }},{% endfor %}
{% for c in emoji %}[{{ c }}]{% endfor %}
{% for i in list if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ ',' if not loop.last }}{% endfor %}
{% for i in list if i > 9 %}a{% else %}none{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1, 2] %}{% continue %}{% else %}E{% endfor %}
{% for i in [1, 2] %}{% break %}{% else %}E{% endfor %}
{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}
{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for i in [1] %}{% for j in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in [[1, [2]], [3]] recursive %}({{ loop(i) if i is iterable else i }}{{ loop.depth }}){% endfor %}
{% for i in list %}{{ loop.nothing is defined }}{{ loop }}{% endfor %}
{% for i in 'ab' if i in 'b' %}{{ i }}{% endfor %}
{{ loop.index }}
{% for i in [1] %}{% endfor %}{{ i is defined }}
{% for i in [] %}{% else %}{% set a = 1 %}{% endfor %}{{ a is defined }}
{% for j in [1, 2] %}{% for i in [] %}{% else %}{% break %}{% endfor %}{{ j }}{% endfor %}
{% set n = 9 %}{% for n in list %}{{ n }}{% endfor %}{{ n }}
{% set a = 1 %}{{ a }}
{% set a, b = 1, 2 %}{{ b }}{{ a }}
{% set a = 1, 2 %}{{ a }}
{% set a %} x {{ n }} {% endset %}[{{ a }}]
{% set a | upper | trim %} x {{ word }} {% endset %}[{{ a }}]
{% set a %}{% set b = 1 %}{% endset %}{{ b is defined }}
{% set found = false %}{% for i in list %}{% set found = true %}{% endfor %}{{ found }}
{% set ns = namespace(found=false, n=0) %}{% for i in list %}{% set ns.found = true %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.found }}{{ ns.n }}{{ ns.z is defined }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns }}{{ ns['a'] }}
{% set d.x = 1 %}
{% set q = {} %}{% set q.x = 1 %}
{% if true %}{% set a = 5 %}{% endif %}{{ a }}
{% for i in [1] %}{% set a = 5 %}{% if true %}{% set a = 6 %}{% endif %}{{ a }}{% endfor %}{{ a is defined }}
{% macro m(a, b=2, c=none) %}{{ a }}|{{ b }}|{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}
{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 7 %}{{ m() }}
{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% macro show() %}{{ i is defined }}{% endmacro %}{% for i in [1] %}{{ show() }}{% endfor %}
{% macro m(ns) %}{% set ns.v = 2 %}{% endmacro %}{% set s = namespace(v=1) %}{{ m(s) }}{{ s.v }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b=0) m() %}{{ a }}{{ b }}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}x{% macro q() %}{{ caller() }}{% endmacro %}{% endmacro %}{% call m() %}in{% endcall %}
{% macro g() %}[{{ caller() }}]{% endmacro %}{% macro m() %}{% call g() %}{{ caller is defined }}{% endcall %}{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m }}{{ m.name }}{{ m(*[4]) }}{{ m(**{'x': 5}) }}
{% filter upper %}abc {{ n }}{% endfilter %}
{% filter replace('a', 'b') | trim %} aa {% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% with %}{% set a = 1 %}{% endwith %}{{ a is defined }}
{% generation %}{% set a = 1 %}gen {{ n }}{% endgeneration %}{{ a is defined }}
{% raw %}{{ x }} {% if %}{# #}{% endraw %}
{%- raw -%} a {%- endraw -%} b
a{# comment {{ x }} #}b
{% break %}
{% unknown %}
{% if %}a{% endif %}
{% if n %}a
{% endif %}
{% for i in list %}a{% endif %}
{{ n
{{ n }
{% set true = 1 %}
{# open
{% raw %}x
{{ 'open }}
{{ (1, 2 }}
{{ [1, 2) }}
{{ }}
{{ a b }}
{{ 1 + }}
{{ n | nofilter }}
{{ n is notest }}
{% if n is notest %}{% endif %}
{{ n | nofilter if false }}
{{ f(a=1, 2) }}
{{ n.1.2 }}
{% for i in list %}{{ i }}
{%- endfor %}
{{ raise_exception('No: ' + word) }}
{{ raise_exception('Bad id ' + missing.x.y + '!') }}
{% if false %}{{ raise_exception('never') }}{% endif %}ok
{{ strftime_now('%Y-%m-%d|%d %b %Y|%B %d, %Y|%A|%H:%M|%%') }}{{ strftime_now is defined }}
""".strip("\n").split("\n")

WHITE_SPACE = [
    "a\n{% if n %}\nb\n{% endif %}\nc\n", "a\n   {% if n %}\nb\n   {% endif %}   \nc", "a   {% if n %}\nb{% endif %}\n\n",
    "a\n  {{ n }}\n b", "a \n {{- n -}} \n b", "a \n {%- if n -%} \n b \n {%- endif -%} \n c", "  {% if n %}x{% endif %}",
    "a\n  {%+ if n %}x{% endif %}", "{% if n +%}\nx{% endif %}", "a\n  {# c #}\nb", "a\n  {#- c -#}\n b", "a  {# c +#}\nb",
    "{% set a = 1 %}\n{% set b = 2 %}\n{{ a }}{{ b }}\n", "a\r\nb{% if n %}\r\nc{% endif %}\rd", "\n\n{% if n %}\n\nx{% endif %}",
    "{% for i in list %}\n  {{ i }}\n{% endfor %}\n", "{%- for i in list %}\n  {{- i }}\n{%- endfor %}\n", "x{{ n }}\ny\n\n", "\n", "",
    "  \t{% raw %}\n  a\n  {% endraw %}\nb", "a\u00a0 {%- if n %}x{% endif %}", "{{ 'a\nb' }}\n{{ 'c\\\nd' }}", "{{n}}{%if n%}{{-n-}}{%endif%}",
    "{{ '}}' }}{{ {'a': {'b': 1}} }}{{ '{%' }}", "{ {{ n }} } {x} %} }} #}", "{% if n %}a{% endif %}  \n  {% if n %}b{% endif %}\n\n  c",
    "{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]", "{{ n -}}\n\n x", "{% if n -%}\n\n x{% endif %}\n",
]

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2, 2 ** 10, 2 ** -1, 2 ** 3 ** 2, -2 ** 2
1 / 0
1 // 0
1 % 0
1 ~ 2 * 3, 'a' ~ none ~ true ~ 1.5 ~ [1] ~ missing
'a' ~ 1 + 2
'a' + 1
1 + 'a'
'a' + none
missing + 'a'
missing ~ 'a'
missing - 1
-missing
-word
[1] + [2], (1,) + (2,), 'ab' * 2, [0] * 3, 2 * 'x', [1] * -1
[1] + (2,)
true + 1, -true, +2, - -3
1 < 2 < 3, 3 > 2 > 2, 1 == 1.0, true == 1, 'a' != 'b', none == false, [] == (), [1] == [1.0]
{'a': [1, {'b': 2}]} == {'a': [1, {'b': 2.0}]}, d == d, missing == gone, missing == none
'a' < 'b', 'B' < 'a', [1, 2] < [1, 3], 1 < 2.5, 'z' < '\u00e9'
'a' < 1
none < 1
missing < 1
1 in [1, 2], 'b' in 'abc', 'k' in {'k': 1}, 3 not in list, '' in 'a', {'a': 1} in [{'a': 1}], 'a' in missing
'x' in nothing
1 in 'abc'
1 and 2, 0 and 2, 0 or 'x', none or [], not 0, not missing, not not n
n if yes else x, 'v' if nothing, ('v' if nothing) is defined, 1 if 0 else 2 if 0 else 3
not x == 1.5 or false and true
missing.a
missing['a']
missing()
nothing.a is defined, nothing['a'] is defined, n.a is defined, word.a is defined
d.nope.deeper
d.b, d['b'], d['items'], d.nested.k[1].z, d.nope is defined
d.items is callable, d['items'] is callable
list[0], list[-1], list[9] is defined, list['0'] is defined, list.0, pair.1.0, list[1.0] is defined, list[true]
word[0], word[-1], word[1], emoji[1], emoji[-2], word[99] is defined
list[1:], list[:-1], list[-2:], list[::-1], list[::2], list[5:], list[-9:2], list[2:0:-1], list[:], (1, 2, 3)[:2]
word[1:], word[:-1], word[::-1], emoji[1:3], emoji[::-1], emoji[-2:], word[::2], word[3:1], range(10)[2:8:2]
list['a':] is defined
nothing[1:] is defined
d[1:] is defined
missing[1:] is defined
list[::0]
'a' 'b', "q'q", 'q"q', 'tab\tnl\n\\ \x41\u00e9\101\q\U0001F600', ""
1_000, 0x1f, 0b101, 0o17, 1e3, 1.5e-3, 10.25
[1, 'a', none, true, 1.5, [2], (3,), (), {}, {'k': 'v'}]
{'a': 1, 'b': [2], 3: 'c', (1, 2): 'd', none: 'e', true: 'f'}, {'a': 1,}['a'], [1, 2,][1]
{[1]: 2}
"it's", ["it's", 'say "x"', "b'o\"th", 'nl\n\t\\', '\u00e9\u200b\x07']
1.0, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 0.1 + 0.2, 1/3, -0.0, 1e300 * 1e10
true, True, false, False, none, None
missing, [missing], {'a': missing}
range(3), range(1, 4), range(5, 0, -2)|list, range(0)|list, range(3)|length, 2 in range(3)
range(100001)
range(1, 2, 0)
dict(a=1), dict({'b': 1}, c=2), dict([('x', 1)]), {}.keys(), d.keys()|list, d.values()|list, {'a': 1}.items(), {'a': 1}.keys()
d.get('b'), d.get('zz'), d.get('zz', 5), {'a': 1}.copy()
joiner is defined, cycler(1, 2).next(), cycler('a', 'b').current
nothing()
word()
word.upper()()
n is defined, missing is defined, missing is undefined, missing is not defined, nothing is none, n is not none
word is string, n is string, n is number, x is number, yes is number, word is number, n is integer, yes is integer, x is float, 2.0 is integer, yes is boolean, n is boolean
yes is true, n is true, false is false, nothing is false, d is mapping, list is mapping, missing is mapping
list is iterable, word is iterable, d is iterable, n is iterable, nothing is iterable, missing is iterable, range(2) is iterable
list is sequence, word is sequence, d is sequence, n is sequence, d.keys() is sequence, range(2) is sequence, (1,) is sequence
range is callable, n is callable, 4 is even, 3 is odd, 9 is divisibleby 3, 9 is divisibleby(2), n is eq 3, n is equalto(3), n is == 3 or true
n is ne 3, n is lt 4, n is le 3, n is gt 3, n is ge 3, n is in [3], n is in(list), nothing is sameas none, n is greaterthan 2, n is lessthan 2
'a' is lower, 'A' is upper, 'aB' is lower, '1' is upper, '\u00e9' is lower, word is escaped, word|e is escaped, 'upper' is filter, 'odd' is test
word is odd
missing is even
n is not string and n is not mapping, not n is string, n is string or n is number
v | tojson if v is not string else v
a + b | default('x')
missing|default('x'), nothing|default('x'), empty|default('x'), empty|default('x', true), nothing|d('y', boolean=true), missing|d, 0|default(5)
d|tojson
data|tojson
data|tojson(indent=2)
data|tojson(indent=0)
data|tojson(indent='--')
data|tojson(ensure_ascii=true)
data|tojson(separators=(',', ':')), data|tojson(sort_keys=true), data|tojson(indent=1, separators=('; ', '='))
'</script>\u2028\x7f'|tojson, '\U0001F600'|tojson(ensure_ascii=true), 1.0|tojson, none|tojson, (1, 2)|tojson, {1: 2, none: 3, true: 4}|tojson
missing|tojson
d.keys()|tojson
range(2)|tojson
'  a b '|trim, 'xxaxx'|trim('x'), '\u00a0\u2003a\n'|trim, 5|trim, nothing|trim, missing|trim
list|length, word|length, emoji|count, d|length, missing|length, range(4)|length
n|length
nothing|length
list|join, list|join(', '), words|join('-'), [1, none, true, 'a']|join('|'), people|join(', ', attribute='name'), 'abc'|join('.'), missing|join, list|join(d='/'), d|join
list|first, list|last, word|first, word|last, []|first is defined, d|first, d|last, missing|first is defined
word|list, d|list, missing|list, (1, 2)|list
n|list
word|string, 1.0|string, none|string, list|string, n|string ~ 'x'
word|upper, word|lower, word|title, word|capitalize, "it's a-b c_d (x) <y"|title, 'ABC'|capitalize, 5|upper, none|lower
'aXbXc'|replace('X', '-'), 'aaa'|replace('a', 'b', 2), 5|replace('5', '6'), 'abc'|replace('', '-'), 'abc'|replace('z', '')
d|items|list, missing|items|list
n|items|list
people|map(attribute='zip')|list|sort|length, [{'a': 1}, {'a': 1}]|sort|length, ('<b>'|e)|list, ('<b>'|safe)|first
'<&>' % list, 'a' % missing, 'a' % {}, 2.5 is even, 4.0 is even, '%s' is even, 2.5 is divisibleby(2), -3 is odd
'a' % d.items()
emoji.isalpha(), 'h\u00e9'.isalpha(), '\u0663'.isdigit(), '\u00bd'.isnumeric(), [emoji, '\u00ad\u2003\ue000\u0301']|wordcount
['\u00ad', '\u2003', '\ue000', 'e\u0301', '\U0001f600', '\uffff']
{'b': 1, 'A': 2, 'c': 0}|dictsort, {'b': 1, 'A': 2}|dictsort(true), {'b': 1, 'a': 2}|dictsort(by='value', reverse=true), {'b': 1, 'a': 2}|dictsort(false, 'value')
people|map(attribute='name')|list, people|map(attribute='tags')|list, people|map(attribute='zip', default='-')|list, words|map('upper')|join, list|map('string')|list, pair|map(attribute=0)|list, pair|map('first')|join, [{'a': {'b': 3}}]|map(attribute='a.b')|list
words|map('replace', 'b', 'X')|list, words|map('default', default_value=1)|list
words|map|list
words|map('nofilter')|list
[1, 0, '', 'a', none]|select|list, list|select('odd')|list, list|reject('odd')|list, list|select('gt', 1)|list, list|select('in', [1])|list, [1, 0]|reject|list, none|select|list
people|selectattr('tags')|map(attribute='name')|list, people|selectattr('age', 'equalto', 30)|map(attribute='name')|list, people|rejectattr('age', 'gt', 26)|map(attribute='name')|list, people|selectattr('tags', 'defined')|list|length, people|rejectattr('tags', 'undefined')|list|length
people|selectattr('a.b')|list
list|select('notest')|list
list|sort, list|sort(reverse=true), words|sort, words|sort(case_sensitive=true), people|sort(attribute='age')|map(attribute='name')|list, people|sort(reverse=true, attribute='age')|map(attribute='name')|list, people|sort(attribute='age,name')|map(attribute='name')|list, d|sort
['a', 1]|sort
[1, 1, 2, 'a', 'A']|unique|list, ['a', 'A']|unique(case_sensitive=true)|list, people|unique(attribute='age')|map(attribute='name')|list
list|reverse|list, word|reverse, (1, 2)|reverse|list, d|reverse|list
'10'|int, '12abc'|int, '0x1f'|int(0, 16), 'x'|int(7), 1.9|int, '1.5'|int, ' 42 '|int, '-3'|int, true|int, none|int, '1_000'|int, '1e3'|int, list|int(4)
'1.5'|float, 'x'|float, 'x'|float(2.5), 3|float, ' 1e3 '|float, none|float, 'inf'|float
missing|int
5|abs, -5|abs, -5.5|abs, 2.5|round, 3.5|round, 3.14159|round(2), 2.675|round(2), 3|round, 2.567|round(1, 'floor'), 2.1|round(method='ceil'), 1234.5678|round(-2), 1250|round(-2), 42.55|round(1)|int
'a'|abs
'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('> '), lines|indent(1), 'a\r\nb\x0bc'|indent(1), ''|indent(2, true)
none|indent
html|safe, html|e, html|escape|upper, html|e|e, 'a'|safe + '<', '<' + 'a'|safe, ('<'|e) ~ '<', ('<'|e).replace('&', '<'), ('<b>'|e)|replace('&', '<'), ['<', '>'|safe]|join, ('%s'|safe) % '<', ('{}'|safe).format('<'), ('-'|safe).join(['<']), [html|safe], (html|safe)[1:4] + '<'
list|min, list|max, words|min, []|max is defined, people|max(attribute='age'), words|max(case_sensitive=true)
list|sum, people|sum(attribute='age'), [[1], [2]]|sum(start=[]), []|sum, [1.5, 1]|sum
['a']|sum
people|groupby('age')|map('first')|list, people|groupby('age'), people|groupby('age')|map(attribute='list')|map('length')|list, people|groupby('zip', default='?')|length
[1, 2, 3]|batch(2)|list, [1, 2, 3]|batch(2, 0)|list, [1, 2, 3, 4, 5]|slice(2)|list, 'x'|center(5) ~ '|', 'two words'|wordcount, '%s-%s'|format(1, 'a'), '%(a)s'|format(a=1)
(list|select) is defined, (list|select) is iterable, (list|select) is sequence, 1 if list|select('gt', 9) else 2
list|map('string')|length
list|select|last
'a,b,c'.split(','), 'a,b,c'.split(',', 1), ' a b  c '.split(), ' a b  c '.split(none, 1), ''.split(), ''.split(','), 'abc'.split('b', maxsplit=0)
'a,b,c'.rsplit(',', 1), ' a b  c '.rsplit(none, 1), ' a b  c '.rsplit(), 'a--b--c'.rsplit('--'), 'abc'.partition('b'), 'abc'.rpartition('z'), 'a=b=c'.rpartition('=')
'a'.split('')
' a '.strip() ~ '|' ~ ' a '.lstrip() ~ '|' ~ ' a '.rstrip() ~ '|', '\n\na\n'.strip('\n'), 'xyaxy'.strip('yx'), '<<a>>'.lstrip('<'), '<<a>>'.rstrip('>'), '\u00e9a\u00e9'.strip('\u00e9'), 'aaa'.strip('a')
'abc'.startswith('ab'), 'abc'.endswith('bc'), 'abc'.startswith(('x', 'a')), 'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), 'abc'.startswith('')
'abc'.startswith(1)
'aXbX'.replace('X', '-'), 'aXbX'.replace('X', '-', 1), 'ABC'.lower(), 'abc'.upper(), "it's a b".title(), 'aBC dEF'.capitalize(), 'aB'.swapcase(), '\u00e9\u00df'.upper()
'-'.join(['a', 'b']), '-'.join('abc'), '-'.join([])
'-'.join([1])
'abca'.find('c'), 'abca'.find('z'), 'abca'.rfind('a'), 'abca'.index('b'), 'abca'.count('a'), 'abc'.find('c', -1), emoji.find('z'), 'aaa'.count('aa'), 'ab'.count('')
'abc'.index('z')
'12'.isdigit(), ''.isdigit(), '1a'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'a'.islower(), 'A'.isupper(), '1'.isupper()
'a\nb\r\nc'.splitlines(), 'a\nb'.splitlines(true), 'ab'.ljust(4) ~ '|', 'ab'.rjust(4, '*'), 'ab'.center(5) ~ '|', '-5'.zfill(4), 'prefix_a'.removeprefix('prefix_'), 'a.txt'.removesuffix('.txt')
word.nomethod is defined, word.nomethod
word.nomethod()
list.index(1), list.count(3), (1, 2).index(2)
list.index(99)
'%s and %05.2f %d %r %x %%' % ('a', 3.14159, 7, 'q', 255), '%d' % 3.7, '%s' % [1], '%5s|%-5s|%+d' % ('a', 'b', 3), '%(k)s' % {'k': 'v'}, '%c%c' % ('x', 65), '%.2s' % 'abc', '%e' % 12345.678, '%g' % 0.0001
'%s %s' % 'a'
'%d' % 'a'
'%s' % ('a', 'b')
'{} {}'.format(1, 'a'), '{0}{1}{0}'.format('a', 'b'), '{a:>5}|{b!r:<6}|{c:.2f}|{d:05d}|{e:,}'.format(a=3, b='x', c=1.239, d=42, e=1234567), '{{}}'.format(), '{0[a]} {1.b}'.format({'a': 1}, {'b': 2})
'{:>8}|{:<8}|{:^8}|{:*^7}|{:08.3f}|{:+d}|{:x}|{:#x}|{:%}|{:.3}'.format('a', 'b', 'c', 'd', 3.14159, 5, 255, 255, 0.5, 'abcdef'), '{:{}}|'.format('a', 3), '{}'.format(1.0), '{:.3g}'.format(1234.5), '{:e}'.format(0.5)
'{} {1}'.format(1, 2)
'{}'.format()
'{'.format()
'{:d}'.format('a')
x.__class__ is defined, x.__class__
strftime_now('%Y')
people[0].name, people[-1]['age'], people[::-1][0].name, people[1:]|map(attribute='name')|join(' ')
people|selectattr('age', 'ge', 30)|list|length > 1 and people|length == 3
[(n, x), (1, 2)]|first|last, (n), (n,), ()|length
n.real is defined or true, 5|string|length, (5)|string, [1, 2, 3][n - 2], {'a': {'b': [10, 20]}}['a']['b'][1]
'a' if n == 3 and not (x > 2 or yes == false) else 'b'
'a\
b'
"""

# Templates that change their data: refused by Hugging Face's sandbox, allowed by Jinja2's plain one and by us.
MUTATING = [
    "{% set l = [] %}{% set _ = l.append(1) %}{{ l }}{{ l.pop() }}{{ l }}",
    "{% set l = [1, 2, 3] %}{{ l.pop(0) }}{{ l.insert(0, 9) }}{{ l.extend([4]) }}{{ l }}",
    "{% set d = {'a': 1} %}{{ d.update({'b': 2}) }}{{ d.update(c=3) }}{{ d.pop('a') }}{{ d.setdefault('z', 5) }}{{ d }}",
    "{{ [].pop() }}", "{{ {}.pop('a') }}", "{% set ns = namespace(l=[]) %}{% for i in [1, 2] %}{% set _ = ns.l.append(i) %}{% endfor %}{{ ns.l }}",
]


def main():
    expressions = EXPRESSIONS.strip("\n").replace("\\\n", "\\\r").split("\n")  # the one string that spans two lines
    sources = STATEMENTS + WHITE_SPACE + MUTATING + ["{{ " + e.replace("\\\r", "\\\n") + " }}" for e in expressions]
    cases = []
    for source in sources:
        outcome = jinja_reference.Reference(source, NOW).render(VARIABLES)
        case = {"template": source}
        if "text" in outcome:
            case["text"] = outcome["text"]
        elif outcome["own"]:
            case["objection"] = outcome["error"]
        else:
            case["fails"] = "syntax" if outcome.get("syntax") else "render"
        cases.append(case)
    document = {"now": NOW, "variables": VARIABLES, "cases": cases}
    folder = root / "tests" / "golden" / "templates"
    (folder / "cases.json").write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n")
    (folder / "PROVENANCE.md").write_text(
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Template cases\n"
        "`cases.json`: our own small templates (written in `tools/make_template_cases.py`) and what Jinja2 makes of them in the\n"
        "environment of `tools/jinja_reference.py`, time zone UTC. Remade by `/usr/bin/python3 tools/make_template_cases.py`\n"
        f"(python3-jinja2 {jinja2.__version__}, Python {sys.version.split()[0]}).\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
