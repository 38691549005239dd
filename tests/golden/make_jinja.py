#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes jinja.json: small templates and what Python's jinja2 makes of them, set up as transformers sets it up.

usage: make_jinja.py   (needs the packages jinja2; run by hand)
Each row is [template, context, expected text]; null for expected: jinja2 refuses to parse or render it.
"""
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """The block that transformers adds to mark what an assistant says; here it is only a scope."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


CONTEXT = {
    "s": "Hello, Wörld! ", "e": "", "n": 7, "neg": -7, "f": 2.5, "t": True, "no": False, "nil": None,
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "empty": [], "d": {"b": 1, "a": "x", "C": None}, "ed": {},
    "msgs": [{"role": "system", "content": "sys"}, {"role": "user", "content": "hi <|x|>"},
             {"role": "assistant", "content": "yo", "tool_calls": [{"name": "f", "arguments": {"q": [1, 2.5, None]}}]}],
    "nested": {"list": [{"k": 1}, {"k": 2}], "quote": "it's \"q\" \\ \n\t\u00e9\u0001\U0001f600"},
    "ws": "  \t two  words \n", "csv": "a,b,,c", "lines": "one\ntwo\r\nthree\n\nfive", "emoji": "a\U0001f600b\u00e9",
}

WHITESPACE = """
a {{ n }} b¦a {{- n }} b¦a {{ n -}} b¦a {{- n -}} b¦  {% if t %}x{% endif %}¦x{% if t %}\\n  y\\n{% endif %}\\nz
  {% if t %}\\n  y\\n  {% endif %}\\nz¦a\\n\\n  {%- if t %} y {%- endif %}  \\n b¦a {%+ if t %} y {% endif +%}\\n b
a{# c #}b¦a {#- c -#} b¦  {# c #}\\nb¦x\\n  {# c #}\\n  y¦a\\n{#- c #}\\n\\nb¦{% raw %}{{ x }}{% y %}{% endraw %}
a {%- raw -%} {{ x }} {%- endraw -%} b¦a {% raw %}\\n x \\n{% endraw %}\\nb¦{{ n }}\\n¦{{ n }}\\n\\n¦\\n{{ n }}¦
{% for i in l %}\\n  {{ i }},\\n{% endfor %}\\nend¦{% for i in l -%}\\n  {{ i }},\\n{%- endfor %}\\nend
\\t{% set x = 1 %}\\n\\t{{ x }}¦a\\r\\nb\\rc¦{{ 'a\\r\\nb' }}¦a {{ n }}\\n  {% if t %}b{% endif %}¦{% if t -%}\\n\\n a{% endif %}
{#- a -#}{#- b -#}  x¦{{ '{{' }}{{ '%}' }}{{ "}}" }}¦{{ {'a': {'b': 1}}['a']['b'] }}¦{{{'a': 1}}}¦{{-1}}¦{{- 1}}¦{{+1}}
 x {%- set y = 2 -%} z ¦{% if t %}\\n\\n{% endif %}x¦{%if t%}a{%endif%}¦{{n}}{{n}}¦a{% if t %}b{% endif %}\\n\\nc¦{#{{ x }}#}y
line one\\n    {%- for i in l %}\\n    {{- i }}\\n    {%- endfor %}\\nlast¦{% if t %}  \\n x{% endif %}¦\u00a0{%- if t %}x{% endif %}
"""

EXPRESSIONS = """
1 + 2¦7 // 2¦-7 // 2¦7 % 3¦-7 % 3¦7 % -3¦2 ** 10¦2 ** -1¦7 / 2¦6 / 2¦1.5 + 1¦'a' + 'b'¦'a' ~ 1 ~ none ~ true ~ 1.0
'ab' * 3¦3 * 'ab'¦[1] * 2¦[1] + [2, 3]¦(1, 2) + (3,)¦(1,)¦()¦(1)¦-2 ** 2¦2 ** 3 ** 2¦not true¦not not e¦n and s¦e or n
e and n¦none or 'x'¦1 if t else 2¦1 if no else 2¦1 if no¦1 < 2 < 3¦1 < 3 < 2¦1 == 1.0¦true == 1¦'a' == 'a'¦'a' != 'b'
'a' < 'b'¦[1, 2] < [1, 3]¦[1, 2] == [1, 2]¦{'a': 1} == {'a': 1}¦1 in l¦9 in l¦9 not in l¦'ell' in s¦'b' in d¦not 'z' in d
nope in l¦nope == nope2¦nope¦nope is defined¦nope.x¦nope['x']¦d.nope¦d.nope.x¦d['b']¦d.b¦d['nope'] is defined¦l[0]¦l[-1]
l[9] is defined¦l[1:]¦l[:-1]¦l[::-1]¦l[::2]¦l[5:]¦l[-2:]¦s[0]¦s[-1]¦s[7]¦s[1:4]¦s[::-1]¦s[:-2]¦emoji[1]¦emoji[::-1]
emoji[1:3]¦emoji|length¦s[100:]¦s[-3:]¦'abc'[2:0:-1]¦(1, 2, 3)[1:]¦range(5)[2]¦range(3)¦range(1, 10, 3)|list¦range(5, 0, -2)|list
nested.list[1].k¦nested['list'][0]['k']¦msgs[2].tool_calls[0].arguments.q¦l.0¦'a' 'b' "c"¦'a\\\\nb'¦'\\\\x41\\\\u00e9\\\\U0001f600'
'\\\\q'¦"it's"¦'say "x"'¦1_000¦1e3¦1.5e-3¦1E2¦0.1 + 0.2¦1e16¦1e-5¦123456789.123¦1e15¦100.0¦3.0¦-0.0¦1e22¦5e-324
[1, 'a', none, true, 1.5, [2], {'k': 'v'}]¦{'a': 1, 'b': [1, 2]}¦{1: 2, none: 3}¦{'it\\\\'s': "q\\\\"", 'n': '\\\\n'}
nested.quote¦[nested.quote]¦[s, e]¦[nil, t, no]¦{'x': (1, 2)}¦[(1,)]¦[()]¦[{}]¦[[]]¦true¦false¦none¦True¦False¦None
n is number¦s is string¦f is float¦n is integer¦t is boolean¦t is number¦t is integer¦d is mapping¦l is sequence¦s is sequence
d is sequence¦l is iterable¦n is iterable¦nope is iterable¦nope is sequence¦nil is none¦nil is defined¦s is not none¦t is true
no is false¦n is odd¦n is even¦n is divisibleby 7¦n is divisibleby(2)¦n is eq 7¦n is equalto(7)¦n is ne 7¦n is gt 3¦n is lt(3)
n is ge 7¦n is le 6¦'a' is in 'abc'¦1 is in(l)¦'x' is in ['x']¦s is upper¦'ABC' is upper¦'abc' is lower¦nil is sameas none
l is sameas l¦l is sameas [3, 1, 2]¦'upper' is filter¦'nope' is filter¦'odd' is test¦range is callable¦n is callable
not n is odd¦n is odd and t¦n is not odd or t¦(n is odd) is true¦s is string and s is defined¦n == 7 and f > 2 or no
1 + 2 * 3¦(1 + 2) * 3¦10 - 2 - 3¦2 * 3 % 4¦'a' ~ 1 + 2¦1 + 1 ~ 'a'¦-n¦+n¦--n¦- -n¦-n|abs¦(-n)|abs¦n|string + 'x'¦s|length + 1
n if n > 5 else 'small'¦'x' if nope else 'y'¦'x' if l and d else 'y'¦[n for x in l]¦1 / 0¦n + s¦s + n¦s + none¦n + none
none + 1¦none < 1¦1 < 'a'¦n()¦s.nope()¦nope()¦l['a']¦none.x¦none.x.y¦none['x'] is defined¦n.x is defined¦5.x¦d.items
"""

FILTERS = """
s|trim¦s|upper¦s|lower¦'hello wORLD foo-bar'|title¦'hELLO'|capitalize¦ws|trim¦'xxaxx'|trim('x')¦s|replace('l', 'L')¦s|replace('l', 'L', 1)
s|length¦l|length¦d|length¦e|length¦emoji|length¦l|count¦l|first¦l|last¦empty|first¦empty|first is defined¦words|last¦s|first¦d|first¦d|last
l|join¦l|join(', ')¦words|join('|')¦msgs|join(',', attribute='role')¦e|join('x')¦'abc'|join('-')¦d|join(',')¦l|sort¦l|sort(reverse=true)¦words|sort
words|sort(case_sensitive=true)¦msgs|sort(attribute='role')|map(attribute='role')|list¦l|reverse|list¦s|reverse¦words|unique|list¦l|sum¦l|min¦l|max
words|min¦words|max¦empty|sum¦empty|max is defined¦msgs|map(attribute='role')|list¦msgs|map(attribute='role')|join(',')¦words|map('upper')|list
words|map('replace', 'a', 'z')|list¦msgs|selectattr('role', 'equalto', 'user')|list|length¦msgs|selectattr('role', 'eq', 'user')|map(attribute='content')|first
msgs|rejectattr('role', 'equalto', 'user')|map(attribute='role')|list¦msgs|selectattr('tool_calls')|list|length¦msgs|selectattr('tool_calls', 'defined')|list|length
l|select('odd')|list¦l|reject('odd')|list¦l|select('gt', 1)|list¦l|select|list¦[0, 1, '', 'a', none]|select|list¦[0, 1]|reject|list¦l|select('>', 1)|list
s|default('x')¦nope|default('x')¦nope|default¦e|default('x')¦e|default('x', true)¦nil|default('x')¦nil|default('x', true)¦nope|d('x')¦e|d('x', boolean=true)¦d.nope|default([])
nope.x|default('x')¦n|string¦l|string¦'42'|int¦'4x'|int¦'4x'|int(9)¦'4.7'|int¦f|int¦'ff'|int(base=16)¦'1.5'|float¦'x'|float¦'x'|float(1.0)¦nil|int¦n|float¦t|int
neg|abs¦f|abs¦f|round¦2.567|round(2)¦3.5|round¦2.5|round¦2.4|round(method='ceil')¦2.6|round(method='floor')¦n|round¦1234.5|round(-2)¦2.675|round(2)¦1e3|round(1)
d|items|list¦nope|items|list¦d|dictsort¦d|dictsort(true)¦d|dictsort(reverse=true)¦{'x': 2, 'y': 1}|dictsort(by='value')¦d.items()|list¦d.keys()|list¦d.values()|list¦d.items()¦d.keys()
d|list¦s|list¦range(3)|list¦l|batch(2)|list¦l|batch(2, 'x')|list¦msgs|groupby('role')|length¦'%s and %d'|format('a', 3)¦'%05.1f|%-4s|%+d'|format(2.345, 'x', 5)¦'%s' % n¦'%s-%s' % ('a', 1)
'100%% %x'|format(255)¦'%(a)s'|format(a=1)¦'%r'|format('q')¦'<a href="x">&\\''|e¦s|safe¦'<b>'|escape¦lines|indent¦lines|indent(2)¦lines|indent(2, true)¦lines|indent('> ', first=true, blank=true)
e|indent¦'one'|indent¦'a\\n'|indent(1)¦nested.quote|tojson¦d|tojson¦msgs|tojson¦l|tojson¦l|tojson(indent=2)¦d|tojson(indent=4)¦nested|tojson(indent=1, sort_keys=true)¦nested.quote|tojson(ensure_ascii=true)
d|tojson(separators=(',', ':'))¦d|tojson(separators=(',', ': '), indent=2)¦{'b': 1, 'a': 2}|tojson(sort_keys=true)¦empty|tojson¦ed|tojson¦[[], {}]|tojson(indent=2)¦nil|tojson¦t|tojson¦f|tojson¦1e100|tojson
{1: 2, 1.5: 3, true: 4, none: 5}|tojson¦nope|tojson¦(1, 2)|tojson¦'é'|tojson¦'</script>'|tojson¦range(2)|tojson¦[1.0, 1e16, 1e-7]|tojson¦s|tojson|length¦l|map('string')|join¦l|map('nope')|list¦s|nope
nested.list|map(attribute='k')|sum¦nested.list|sum(attribute='k')¦nested.list|sum('k', 10)¦[[1, 2], [3]]|sum(start=[])¦nested|map('upper')|list¦[{'a': {'b': 1}}]|map(attribute='a.b')|list¦msgs|map(attribute='nope', default='x')|list
[[1, 'a']]|map(attribute=1)|list¦[[1, 'a']]|map('last')|list¦d|attr('items') is defined¦l|first + l|last¦s|upper|lower|trim|length¦(s ~ 'x')|upper¦s ~ 'x'|upper¦1 + l|length¦not l|length
'straße'|upper¦'ÀÉ'|lower¦'Éa éb'|title¦'ŒUVRE'|capitalize¦l|map('abs')|list¦words|map('lower')|unique|list¦words|select('in', ['a', 'b'])|list¦l|reverse|first¦s|list|last¦[1, 1.0, true, 2]|unique|list
words|sort|join¦(words|sort)|join¦n|upper¦nil|upper¦t|lower¦nil|string¦nil|length¦n|length¦5|join¦l|trim¦msgs[0]|length¦nope|length¦nope|upper¦nope|trim¦nope|list¦nope|join¦nope|first¦nope|string¦nope|int
[3, 'a']|sort¦[1, [2]]|sort¦[[2, 1], [1, 9]]|sort¦[0.5, 1, true]|sort¦[none]|sort¦nil|map('upper')|list¦nil|select|list¦0|selectattr('x')|list¦('<b>'|safe) + '<i>' + s¦'<' + ('&'|safe)¦('&'|safe) ~ '<'¦('<a>'|safe|upper) + '<'¦('a'|e) + '&'¦('&'|e|e)¦('a&b'|safe).split('&')[1] + '&'¦[none, none]|sort¦'b a'.split()|sort¦l|min + 1¦d|max¦'abc'|max
"""

METHODS = """
s.strip()¦s.lstrip()¦s.rstrip()¦ws.strip()¦'xxaxx'.strip('x')¦'xyaxy'.lstrip('yx')¦'a\\n\\n'.rstrip('\\\\n')¦csv.split(',')¦csv.split(',', 1)¦csv.rsplit(',', 1)¦csv.split(',')[-1]¦ws.split()
ws.split(none, 1)¦' a b c '.rsplit(None, 1)¦'a b c'.split(' ', 1)¦'a--b--c'.rsplit('--', 1)¦'abc'.split('x')¦''.split(',')¦''.split()¦'a,b'.split(sep=',')¦'a b c'.split(maxsplit=1)¦lines.splitlines()¦lines.splitlines(true)
s.startswith('Hell')¦s.startswith('x')¦s.startswith(('x', 'H'))¦s.endswith('! ')¦s.endswith(('a', 'b'))¦'abcd'.startswith('c', 2)¦s.replace('l', 'L')¦s.replace('l', '', 2)¦'aaa'.replace('', '-')¦'abc'.replace('b', '')
s.upper()¦s.lower()¦'hello world foo-bar it\\'s'.title()¦'hELLO wORLD'.capitalize()¦s.find('W')¦s.find('z')¦emoji.find('b')¦s.rfind('l')¦s.index('o')¦s.index('z')¦s.count('l')¦'aaaa'.count('aa')¦'abc'.count('')
','.join(words)¦''.join(['a', 'b'])¦', '.join(d)¦','.join(l)¦'123'.isdigit()¦'12a'.isdigit()¦''.isdigit()¦'abc'.isalpha()¦'a1'.isalnum()¦' '.isspace()¦'ABC'.isupper()¦'aBc'.islower()¦'½'.isnumeric()
'{} {}'.format(1, 'a')¦'{0}{1}{0}'.format('x', 'y')¦'{a}-{b}'.format(a=1, b=none)¦'{{}}'.format()¦'{:.2f}'.format(2.345)¦'{:>5}|{:<5}|{:^5}|'.format('a', 'b', 'c')¦'{:05d}'.format(42)¦'{:,}'.format(1234567)¦'{!r}'.format('a')
'{:x}'.format(255)¦'{:*^7}'.format('é')¦'{:+d}'.format(3)¦'{:.1%}'.format(0.256)¦'{}'.format()¦'{'.format()¦'{x}'.format()¦'{0.b}'.format(d)¦'{0[b]}'.format(d)¦'{:s}'.format('x')¦'{:5}|'.format(3)¦'{:5}|'.format('a')
'a'.ljust(3) ~ '|'¦'a'.rjust(3, '.')¦'ab'.center(5, '*')¦'a=b=c'.partition('=')¦'a=b=c'.rpartition('=')¦'abc'.partition('x')¦'prefix-x'.removeprefix('prefix-')¦'x.py'.removesuffix('.py')¦'x'.nope is defined¦'-7'.zfill(4)¦'é'.zfill(3)¦s.zfill(2)¦'x' % l¦'x' % (1,)¦'x' % 1¦words|map('upper')|reverse
d.get('b')¦d.get('z')¦d.get('z', 'dflt')¦d.get('C', 'dflt')¦d.items()|length¦d.keys()|join(',')¦d.values()|list¦d.copy()¦d.b.c is defined¦msgs[0].get('content', '')¦d.get('b') + 1¦ed.get('x') is none¦ed.items()|list
l.index(1)¦l.count(3)¦l.index(9)¦(1, 2).index(2)¦l.copy()¦words.append('x')¦d.update({'z': 1})¦d.pop('b')¦l.pop()¦s.format¦'a'.join(5)¦s.split(1)¦s.replace('a')¦s.startswith(1)¦s.upper(1)¦d.get()¦d.get('a', 'b', 'c')
dict(a=1, b='x')¦dict({'a': 1}, b=2)¦dict([('a', 1)])¦dict()¦namespace(a=1).a¦namespace({'a': 2}).a¦namespace().x is defined¦range(3)|length¦range(0)|list¦range(2, 4)|list¦range(200000)¦range(1, 2, 0)¦cycler('a', 'b').next()
"""

STATEMENTS = [
    "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}", "{% if e %}a{% elif no %}b{% elif l %}c{% endif %}",
    "{% if e %}a{% endif %}", "{% if d.nope %}x{% else %}y{% endif %}", "{% if n == 7 and s is string and not no %}ok{% endif %}",
    "{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}<{{ loop.nextitem }};{% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2,2,1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in empty %}x{% else %}none{% endfor %}", "{% for x in l %}{{ x }}{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}",
    "{% for x in l if x > 9 %}x{% else %}nothing{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }},{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a in n %}{% endfor %}", "{% for a in nope %}x{% else %}y{% endfor %}", "{% for a in nil %}x{% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ y }}{% endfor %}{% endfor %}", "{% for x in l %}{{ loop.depth }}{% for y in l %}{{ loop.depth0 }}{% endfor %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }}{% endfor %}",
    "{% break %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in l %}a{% else %}{% break %}{% endfor %}",
    "{% for item in [{'n': 'a', 'c': [{'n': 'b', 'c': []}]}] recursive %}{{ item.n }}{{ loop.depth }}({{ loop(item.c) }}){% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}", "{% set x | upper | trim %} abc {% endset %}{{ x }}|",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}", "{% for i in l %}{% set y = i %}{% endfor %}{{ y is defined }}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a = 'b' %}{{ ns.a }}{{ ns.zz }}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}",
    "{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}", "{% set true = 1 %}", "{% set 1 = 2 %}", "{% set x = %}", "{% set n = 1 %}{{ n }}", "{% set x %}{% set inner = 1 %}{% endset %}{{ inner is defined }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ b }}{% endwith %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(a=5) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}in{{ n }}{% endcall %}",
    "{% macro m() %}[{{ caller('x', 2) }}]{% endmacro %}{% call(a, b=1) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}a{% endmacro %}{% call m() %}b{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{{ n }}{% endmacro %}{% for n in l %}{{ m() }}{% endfor %}", "{% macro m() %}{% set n = 99 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m() %}  x  {% endmacro %}{{ m()|trim }}|{{ m()|length }}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}",
    "{% macro m(p, q=[]) %}{{ p is defined }}{{ q }}{% endmacro %}{{ m() }}", "{% macro m(loop) %}{{ loop }}{% endmacro %}{% for x in l %}{{ m(x) }}{% endfor %}", "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}",
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter trim | replace('b', 'x') %}  abc  {% endfilter %}|", "{% filter upper %}{% set zz = 1 %}{% endfilter %}{{ zz is defined }}", "{% filter indent(2, true) %}a\nb{% endfilter %}",
    "{% generation %}a{{ n }}{% endgeneration %}", "{%- generation -%} a {%- endgeneration -%} b", "{% generation %}{% set g = 1 %}{% endgeneration %}{{ g is defined }}", "{% for m in msgs %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% for m in msgs %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}", "{% for m in msgs %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.name }}({{ c.arguments | tojson }}){% endfor %}{% endif %}{% endfor %}",
    "{% if msgs[0]['role'] == 'system' %}{% set sys = msgs[0]['content'] %}{% set loop_messages = msgs[1:] %}{% else %}{% set loop_messages = msgs %}{% endif %}{{ sys }}:{{ loop_messages|length }}",
    "{% for m in msgs %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}", "{{ raise_exception('x') }}", "{% set x = joiner('|') %}{% for i in l %}{{ x() }}{{ i }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{% for i in l %}{{ c.next() }}{{ c.current }}{% endfor %}{% set _ = c.reset() %}{{ c.next() }}", "{% set x = l|select('odd') %}{% for i in x %}{{ i }}{% endfor %}{% for i in x %}again{% endfor %}", "{% set x = l|map('string') %}{{ x is iterable }}{{ x is sequence }}{{ x is string }}",
    "{% nope %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% for x in l %}", "{{ n", "{{ n }", "{% if t }}", "{{ }}", "{{ 'abc }}", "{{ (1 }}", "{{ 1) }}", "{{ [1, 2 }}", "{{ a b }}", "{{ 1 + }}", "{{ |upper }}", "{{ n| }}", "{{ n|nope }}", "{{ n is nope }}", "{# never closed", "{% raw %}x",
    "{% if no %}{{ n|nope }}{% endif %}ok", "{% if no %}{{ n is nope }}{% endif %}ok", "{{ (n|nope) if no else 'fine' }}", "{{ n $ }}", "{{ n ? 1 : 2 }}", "{{ d.b. }}", "{{ f(a=1, 2) }}", "{{ n is odd is true }}", "{% else %}", "{% for in l %}{% endfor %}", "{% for x l %}{% endfor %}", "{% set %}", "{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}",
    "{{ 'a' if t }}{{ 'b' if no }}|", "{{ [1,2,3,] }}{{ (1,) }}{{ {'a':1,} }}", "{{ n , s }}", "{{ {'a': 1}.a }}{{ [1,2][0] }}{{ 'abc'[1] }}{{ (1,2)|length }}", "{{ {}|length }}{{ {} }}", "{{ d . b }}{{ d\n.\nb }}", "{{ 'x'.upper().lower() }}{{ [1]|first + 1 }}", "{{ s|replace('Hello', 'Bye')|upper|trim ~ '!' }}",
    "{{ -1|abs }}{{ (-1)|abs }}{{ -n|abs }}", "{{ 1 if t else 2 if no else 3 }}{{ 1 if no else 2 if no else 3 }}", "{{ not t or t }}{{ not (t or t) }}", "{{ 'a' in 'abc' and 'b' not in 'xyz' }}", "{{ n > 3 and n < 10 }}{{ 3 < n < 10 }}{{ 3 < n > 10 }}", "{{ l == [3,1,2] == l }}", "{{ 1 is number and 'a' is string }}", "{{ x is defined and x.y }}",
    "{{ msgs[-1].role }}{{ msgs[-1]['tool_calls'][0]['name'] }}{{ msgs|length - 1 }}", "{% set messages = msgs[1:] if msgs[0].role == 'system' else msgs %}{{ messages|length }}", "{% for m in msgs[::-1] %}{{ m.role[0] }}{% endfor %}", "{% for m in msgs|reverse %}{{ m.role[0] }}{{ loop.last }}{% endfor %}",
    "{% set x = namespace(found=false) %}{% for m in msgs %}{% if not x.found and m.role == 'user' %}{% set x.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}", "{{ (msgs | selectattr('role', 'equalto', 'system') | list)[0].content }}", "{{ msgs | map(attribute='role') | join(', ') | upper }}",
    "{% macro render(v, depth=0) %}{% if v is mapping %}{% for k, x in v.items() %}{{ ' ' * depth }}{{ k }}:\n{{ render(x, depth + 1) }}{% endfor %}{% elif v is iterable and v is not string %}{% for x in v %}{{ render(x, depth + 1) }}{% endfor %}{% else %}{{ ' ' * depth }}{{ v }}\n{% endif %}{% endmacro %}{{ render(nested) }}{{ render(msgs) }}",
    "{{- '<s>' if t -}}\n{%- for m in msgs -%}\n    {%- if m.role == 'user' -%}\n        {{- '[INST] ' ~ m.content ~ ' [/INST]' -}}\n    {%- elif m.role == 'assistant' -%}\n        {{- m.content ~ '</s>' -}}\n    {%- endif -%}\n{%- endfor -%}\n",
    "{%- set ns = namespace(first=true) %}\n{%- for m in msgs %}\n    {%- if m.role != 'system' %}\n        {%- if not ns.first %}\n            {{- ',' }}\n        {%- endif %}\n        {%- set ns.first = false %}\n        {{- m.role }}\n    {%- endif %}\n{%- endfor %}",
    "{{ 'line' }}\n{% if t %}\n    indented\n{% endif %}\n  {% for i in l %}\n  - {{ i }}\n  {% endfor %}\nend\n", "{{ '\\n'.join(['a', 'b']) }}", "{{ \"a\\tb\" }}", "{{ s.split(', ')[1].strip() }}", "{{ (s.split(',')|last).strip()[:-1] }}", "{{ content.split('</think>')[-1] if content is defined else 'none' }}",
    "{{ '<think>a</think>b'.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}", "{% if ns is defined %}{% endif %}{{ ns is not defined }}", "{{ 2**63 }}" if False else "{{ 2**62 }}", "{{ 9223372036854775807 }}", "{% set a = [] %}{% set a = a + [n] %}{{ a }}", "{{ d.items()|list|first|last }}", "{{ {'a': 1, 'a': 2} }}", "{{ {1: 'x'}[1] }}{{ {1: 'x'}[true] }}{{ {1: 'x'}[1.0] }}",
    "{{ [] is sameas [] }}{{ 'a' is sameas 'b' }}", "{{ n.__class__ }}", "{{ s|attr('upper') is callable }}", "{{ 'abc' is iterable }}{{ {} is iterable }}", "{{ [1, 2, 3] | random is defined }}" if False else "{{ [1, 2, 3]|sum }}", "{{ '%d%%'|format(50) }}", "{{ '%s'|format }}", "{{ '%d'|format('x') }}", "{{ '%s %s'|format('x') }}", "{{ '%s'|format('x', 'y') }}",
    "{{ (1, 2) == [1, 2] }}{{ 'a' == 1 }}{{ none == false }}{{ 0 == false }}{{ '' == none }}", "{{ 1.0 }}{{ 1.50 }}{{ 1e2 }}{{ 10 / 4 }}{{ 10 // 4 }}{{ 10.0 // 4 }}{{ 10 % 4.5 }}", "{{ true + 1 }}{{ -true }}{{ true and 1 }}{{ 1 and true }}", "{{ [1, 2][nope] }}", "{{ d[nope] is defined }}", "{{ d[l] is defined }}", "{{ l['0'] is defined }}", "{{ l[1.0] is defined }}",
    "{{ s ~ nope ~ nil }}", "{{ nope ~ 'x' }}", "{{ nope + 'x' }}", "{{ 'x' + nope }}", "{{ nope|default('a') + 'x' }}", "{{ -nope }}", "{{ nope < 1 }}", "{{ nope == none }}", "{{ nope != none }}", "{{ not nope }}", "{{ nope and 1 }}|", "{{ nope or 1 }}", "{{ nope in 'abc' }}", "{{ 'a' in nope }}", "{{ 1 in 'abc' }}", "{{ 'a' in n }}", "{{ nope[1:] }}", "{{ nil[1:] }}", "{{ d[1:] }}",
]

NOW = [("%Y-%m-%d", "2023-11-14"), ("%d %b %Y", "14 Nov 2023"), ("%A, %B %d, %Y", "Tuesday, November 14, 2023"), ("%H:%M:%S", "22:13:20"),
       ("%j %y %m %p %I %%", "318 23 11 PM 10 %"), ("", "")]


def cells(text):
    return [cell for line in text.strip("\n").split("\n") for cell in line.split("¦")]


def main():
    env, rows = environment(), []
    decode = lambda s: s.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")
    templates = [decode(cell) for cell in cells(WHITESPACE)]
    for block in (EXPRESSIONS, FILTERS, METHODS):
        templates += ["{{ " + cell.replace("\\\\", "\\") + " }}" for cell in cells(block)]
    templates += STATEMENTS
    for template in templates:
        try:
            expected = env.from_string(template).render(**CONTEXT)
        except jinja2.exceptions.SecurityError:
            continue  # changing a list in place: longwave lets it
        except Exception:  # jinja2 lets Python's own errors through
            expected = None
        if expected is not None and (" at 0x" in expected or "<built-in" in expected):
            continue  # an address or a repr that no template prints on purpose
        rows.append([template, expected])
    rows += [["{{ strftime_now('" + f + "') }}", text] for f, text in NOW]
    out = {"jinja2": jinja2.__version__, "now_unix": 1700000000, "context": CONTEXT, "rows": rows}
    path = pathlib.Path(__file__).with_name("jinja.json")
    text = json.dumps(out, ensure_ascii=False, indent=None, separators=(",", ":"))
    path.write_text(text.replace('],["', '],\n["') + "\n", encoding="utf-8")
    refused = sum(row[1] is None for row in rows)
    print(f"{len(rows)} rows, {refused} of them refused")


main()
