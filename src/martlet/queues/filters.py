"""Filters: which messages a subscription wants, in a strict subset of CEL that is bounded by construction.

    headers.kind == "order" && ("vip" in tags || int(headers.total) >= 100) && !key.startsWith("test-")

Variables are headers (a map of texts), tags (a list of texts), key, topic (texts), priority, size (numbers). There are
comparisons, `in`, `&&`, `||`, `!`, parentheses, lists of constants, `int(headers.x)`, `has(headers.x)`, and on texts
`startsWith`, `endsWith`, `contains`. Every filter is a CEL expression of the same meaning, but for what is not there:
CEL fails on an absent header or key; here *every* comparison with it is false, `!=` too, and `has` asks for it. The
same holds for `int` of a text that is no number, which is counted.

Rules: no loops, no patterns, no arithmetic; length, terms and depth are limited, so an evaluation takes a bounded time.
The code that runs is compiled from syntax nodes made here: no text of a user reaches Python's compiler.

Proved by: tests/unit/queues/test_filters.py, tests/properties/test_queue_filters.py
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

TEXT_MAX: Final = 1024
TERMS_MAX: Final = 128
DEPTH_MAX: Final = 16

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>-?\d{1,18}(?:\.\d{1,17})?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||[=!<>]=|[<>!()\[\],.])
    |(?P<end>$))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_COMPARISONS: Final[dict[str, type[ast.cmpop]]] = {
    "==": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
}
_METHODS: Final = {"startsWith": "startswith", "endsWith": "endswith", "contains": "__contains__"}


class _Kind(Enum):
    """What a part of a filter gives."""

    TRUTH = "a condition"
    TEXT = "a text"
    NUMBER = "a number"
    LIST = "a list"
    MAP = "a map"


_VARIABLES: Final = {
    "headers": _Kind.MAP,
    "tags": _Kind.LIST,
    "key": _Kind.TEXT,
    "topic": _Kind.TEXT,
    "priority": _Kind.NUMBER,
    "size": _Kind.NUMBER,
}


class FilterMistake(ValueError):
    """A text that is no filter; `position` counts its characters from 0."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(f"{what}, at character {position + 1} of the filter")
        self.position = position


class _Token(NamedTuple):
    kind: str
    value: str
    position: int


class _Part(NamedTuple):
    """A parsed part: what it gives, its code, and whether it may be absent when a message is looked at."""

    kind: _Kind
    node: ast.expr
    may_be_absent: bool = False


class Filter:
    """A compiled filter; `headers` names the headers it wants to see."""

    def __init__(self, text: str) -> None:
        """Raises FilterMistake."""
        parser = _Parser(text)
        body = parser.whole()
        self.text = text
        self.headers = frozenset(parser.headers)
        self.failures = 0
        """How often a text was to be a number and was none."""
        arguments = ast.arguments([], [ast.arg(name) for name in _VARIABLES], None, [], [], None, [])
        tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
        names = {"number": self._number, "__builtins__": {}}
        self._condition: Callable[..., bool] = eval(compile(tree, "<filter>", "eval"), names)  # noqa: S307 - our tree

    def matches(
        self,
        headers: Mapping[str, str],
        tags: Collection[str] = (),
        key: str | None = None,
        topic: str = "",
        priority: int = 0,
        size: int = 0,
    ) -> bool:
        """Whether the subscription wants this message; never raises."""
        return self._condition(headers, tags, key, topic, priority, size)

    def _number(self, text: str | None) -> float:
        if text is None:
            return float("nan")
        try:
            return int(text) if len(text) <= 19 and text.isascii() else float("nan")
        except ValueError:
            self.failures += 1
            return float("nan")


def _tokens(text: str) -> list[_Token]:
    if len(text) > TEXT_MAX:
        raise FilterMistake(f"a filter has at most {TEXT_MAX} characters", TEXT_MAX)
    tokens: list[_Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            rest = text[at:].lstrip()
            raise FilterMistake(f"{rest[:1]!r} is not understood", len(text) - len(rest))
        tokens.append(_Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
        at = found.end()
    return tokens


def _unescaped(token: _Token) -> str:
    def replace(found: re.Match[str]) -> str:
        code, sign = found.groups()
        if code is not None:
            return chr(int(code, 16))
        if sign not in _ESCAPES:
            raise FilterMistake(f"{found[0]!r} is no escape", token.position + 1 + found.start())
        return _ESCAPES[sign]

    return _ESCAPE.sub(replace, token.value[1:-1])


class _Parser:
    """Recursive descent: either > both > negated > comparison > term > members."""

    def __init__(self, text: str) -> None:
        self.headers: set[str] = set()
        self._tokens = _tokens(text)
        self._at = 0
        self._terms = 0
        self._depth = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *signs: str) -> str | None:
        """The next sign, if it is one of these."""
        token = self._next
        if token.kind == "sign" and token.value in signs:
            self._at += 1
            return token.value
        return None

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise FilterMistake(f"{sign!r} is expected, not {self._next.value or 'the end'!r}", self._next.position)

    def _count(self) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise FilterMistake(f"a filter has at most {TERMS_MAX} terms", self._next.position)

    def whole(self) -> ast.expr:
        position = self._next.position
        part = self._truth(self._either(), position)
        if self._next.kind != "end":
            raise FilterMistake(f"{self._next.value!r} follows what is a whole condition", self._next.position)
        return part.node

    def _truth(self, part: _Part, position: int) -> _Part:
        if part.kind is not _Kind.TRUTH:
            raise FilterMistake(f"a condition is expected, not {part.kind.value}", position)
        return part

    def _either(self) -> _Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterMistake(f"parentheses are nested at most {DEPTH_MAX} deep", self._next.position)
        part = self._chain("||", self._both, ast.Or())
        self._depth -= 1
        return part

    def _both(self) -> _Part:
        return self._chain("&&", self._negated, ast.And())

    def _chain(self, sign: str, parse: Callable[[], _Part], operator: ast.boolop) -> _Part:
        position = self._next.position
        part = parse()
        nodes = [part.node]
        while self._take(sign):
            self._truth(part, position)
            position = self._next.position
            part = self._truth(parse(), position)
            nodes.append(part.node)
        return part if len(nodes) == 1 else _Part(_Kind.TRUTH, ast.BoolOp(operator, nodes))

    def _negated(self) -> _Part:
        is_negated = has_signs = False
        while self._take("!"):
            self._count()
            is_negated, has_signs = not is_negated, True
        position = self._next.position
        part = self._comparison()
        if has_signs:
            self._truth(part, position)
        return _Part(_Kind.TRUTH, ast.UnaryOp(ast.Not(), part.node)) if is_negated else part

    def _comparison(self) -> _Part:
        position = self._next.position
        left = self._term()
        if sign := self._take(*_COMPARISONS):
            self._count()
            right = self._term()
            if left.kind not in (_Kind.TEXT, _Kind.NUMBER) or right.kind is not left.kind:
                raise FilterMistake(f"{left.kind.value} cannot be compared with {right.kind.value}", position)
            return _Part(_Kind.TRUTH, _compared(left, sign, right))
        if self._next[:2] == ("name", "in"):
            self._at += 1
            self._count()
            right = self._term()
            if left.kind is not _Kind.TEXT and not (left.kind is _Kind.NUMBER and isinstance(right.node, ast.Constant)):
                raise FilterMistake(f"{left.kind.value} is in no list", position)
            if right.kind not in (_Kind.LIST, _Kind.MAP):
                raise FilterMistake(f"'in' needs a list, not {right.kind.value}", position)
            return _Part(_Kind.TRUTH, ast.Compare(left.node, [ast.In()], [right.node]))
        return left

    def _term(self) -> _Part:
        self._count()
        token = self._next
        self._at += 1
        if token.kind == "number":
            number = float(token.value) if "." in token.value else int(token.value)
            return _Part(_Kind.NUMBER, ast.Constant(number))
        if token.kind == "text":
            return self._members(_Part(_Kind.TEXT, ast.Constant(_unescaped(token))))
        if token.kind == "sign" and token.value == "(":
            part = self._either()
            self._expect(")")
            return self._members(part)
        if token.kind == "sign" and token.value == "[":
            return self._list()
        if token.kind == "name":
            return self._named(token)
        raise FilterMistake(f"{token.value or 'the end'!r} comes where a value is expected", token.position)

    def _list(self) -> _Part:
        items: list[object] = []
        while not self._take("]"):
            if items:
                self._expect(",")
            position = self._next.position
            item = self._term()
            if not isinstance(item.node, ast.Constant) or item.kind not in (_Kind.TEXT, _Kind.NUMBER):
                raise FilterMistake("a list holds constants only", position)
            items.append(item.node.value)
        constants: Any = frozenset(items)  # which the compiler takes, though the type of Constant does not say so
        return _Part(_Kind.LIST, ast.Constant(constants))

    def _named(self, token: _Token) -> _Part:
        if token.value in ("true", "false"):
            return _Part(_Kind.TRUTH, ast.Constant(token.value == "true"))
        if token.value in ("int", "has"):
            self._expect("(")
            inner = self._header_or_key(token.value)
            self._expect(")")
            if token.value == "has":
                return _Part(_Kind.TRUTH, ast.Compare(inner.node, [ast.IsNot()], [ast.Constant(None)]))
            return _Part(_Kind.NUMBER, ast.Call(ast.Name("number", ast.Load()), [inner.node], []), may_be_absent=True)
        kind = _VARIABLES.get(token.value)
        if kind is None:
            known = ", ".join((*_VARIABLES, "has()", "int()"))
            raise FilterMistake(f"{token.value!r} is unknown; there are {known}", token.position)
        return self._members(_Part(kind, ast.Name(token.value, ast.Load()), may_be_absent=token.value == "key"))

    def _header_or_key(self, function: str) -> _Part:
        position = self._next.position
        part = self._named(self._tokens[self._at_next()]) if self._next.value in ("headers", "key") else None
        if part is None or part.kind is not _Kind.TEXT:
            raise FilterMistake(
                f"{function}() is asked of a header, as {function}(headers.name), or of the key", position
            )
        return part

    def _at_next(self) -> int:
        self._at += 1
        return self._at - 1

    def _members(self, part: _Part) -> _Part:
        while True:
            if part.kind is _Kind.MAP and self._take("["):
                token = self._next
                if token.kind != "text":
                    raise FilterMistake("the name of a header is a constant text", token.position)
                self._at += 1
                self._expect("]")
                part = self._header(part, _unescaped(token))
            elif self._take("."):
                part = self._member(part)
            else:
                return part

    def _member(self, part: _Part) -> _Part:
        token = self._next
        self._at += 1
        if part.kind is _Kind.MAP and token.kind == "name":
            return self._header(part, token.value)
        if part.kind is not _Kind.TEXT or token.value not in _METHODS:
            raise FilterMistake(f"{part.kind.value} has no {token.value!r}", token.position)
        self._expect("(")
        position = self._next.position
        argument = self._term()
        if argument.kind is not _Kind.TEXT or argument.may_be_absent:
            raise FilterMistake(f"{token.value}() needs a constant text", position)
        self._expect(")")
        call = ast.Call(ast.Attribute(part.node, _METHODS[token.value], ast.Load()), [argument.node], [])
        return _Part(_Kind.TRUTH, _if_there([part], call))

    def _header(self, part: _Part, name: str) -> _Part:
        self.headers.add(name)
        get = ast.Call(ast.Attribute(part.node, "get", ast.Load()), [ast.Constant(name)], [])
        return _Part(_Kind.TEXT, get, may_be_absent=True)


def _compared(left: _Part, sign: str, right: _Part) -> ast.expr:
    operator = _COMPARISONS[sign]()
    if sign == "==" or (left.kind is _Kind.NUMBER and sign != "!="):
        # An absent text equals none that is there, and nothing compares with a number that is none.
        node = ast.Compare(left.node, [operator], [right.node])
        both_texts = left.kind is _Kind.TEXT and left.may_be_absent and right.may_be_absent
        return _if_there([left], node) if both_texts else node
    return _if_there([left, right], ast.Compare(left.node, [operator], [right.node]))


def _if_there(parts: Collection[_Part], node: ast.expr) -> ast.expr:
    """The same condition, false where one of these parts is absent."""
    checks: list[ast.expr] = []
    for part in parts:
        if part.may_be_absent and part.kind is _Kind.TEXT:
            checks.append(ast.Compare(part.node, [ast.IsNot()], [ast.Constant(None)]))
        elif part.may_be_absent:
            checks.append(ast.Compare(part.node, [ast.Eq()], [part.node]))
    return ast.BoolOp(ast.And(), [*checks, node]) if checks else node
