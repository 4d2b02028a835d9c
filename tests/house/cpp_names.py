#!/usr/bin/env python3
"""Names that a C++ file introduces at namespace scope, found without a compiler.

names_in(text) reads one file: comments, literals and preprocessor lines are blanked, then declarations are read one after
the other through all named and anonymous namespaces. Bodies of functions and classes are skipped. What cannot be read
raises Unreadable with its line; nothing is passed over in silence.
"""

import re
from dataclasses import dataclass

TOKEN = re.compile(r"[A-Za-z_]\w*|0[xX][\da-fA-F']+\w*|\d[\w.']*|::|->|<<=|<=>|\.\.\.|[{}()\[\];:,<>=&*~!+\-/%^|?.#@\\]")
COMMENTS = re.compile(
    r"""//(?:[^\n]*\\\n)*[^\n]*|/\*.*?\*/|R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
OPENING = {"(": ")", "{": "}", "[": "]"}
SPECIFIERS = {"inline", "static", "constexpr", "constinit", "consteval", "extern", "thread_local", "mutable", "explicit", "virtual", "friend", "const", "volatile", "__global__", "__device__", "__host__", "__forceinline__", "__constant__"}
TYPE_WORDS = {"struct", "class", "union", "enum"}


class Unreadable(Exception):
    """A declaration that this reader does not understand."""


@dataclass(frozen=True)
class Name:
    """A name introduced at namespace scope. kind: type, alias, concept, function, variable, using, using namespace, macro (a
    macro in capitals that is used as a declaration: what it introduces is not seen). `parameters`: for functions the text of
    their parameters' types, by which overloads differ; for macros that of their arguments; for aliases and usings what they
    stand for, since the same one may be repeated."""

    namespace: str  # "mgplan::runtime"; anonymous namespaces are left out
    name: str
    kind: str
    line: int
    internal: bool  # in an anonymous namespace, or static
    defined: bool  # not only declared
    parameters: str = ""


def blanked(text):
    """The text with comments, literals and preprocessor lines blanked; line numbers are kept."""

    def blank(match):
        found = match[0]
        empty = '""' if found[0] in "\"R" else "0" if found[0] == "'" else " "
        return empty + "\n" * found.count("\n")

    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    text = COMMENTS.sub(blank, text)
    return DIRECTIVE.sub(lambda match: "\n" * match[0].count("\n"), text).replace('""', " 0 ")


class Reader:
    def __init__(self, text):
        clean = blanked(text)
        self.tokens, self.lines = [], []
        line, at = 1, 0
        for match in TOKEN.finditer(clean):
            line += clean.count("\n", at, match.start())
            at = match.start()
            self.tokens.append(match[0])
            self.lines.append(line)
        self.at = 0
        self.names = []

    def token(self, ahead=0):
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def fail(self, what):
        line = self.lines[min(self.at, len(self.lines) - 1)] if self.lines else 1
        raise Unreadable(f"{line}: {what}")

    def group(self, place):
        """The place behind the bracket group that opens at `place`."""
        wanted = []
        begin = place
        while place < len(self.tokens):
            token = self.tokens[place]
            if token in OPENING:
                wanted.append(OPENING[token])
            elif token in OPENING.values():
                if not wanted or wanted.pop() != token:
                    self.at = place
                    self.fail(f"unexpected {token}")
                if not wanted:
                    return place + 1
            place += 1
        self.at = begin
        self.fail(f"{self.tokens[begin]} is never closed")

    def angles(self, place):
        """The place behind the template arguments or parameters that open at `place`."""
        depth = 0
        begin = place
        while place < len(self.tokens):
            token = self.tokens[place]
            if token in OPENING:
                place = self.group(place)
                continue
            if token == "<":
                depth += 1
            elif token == ">":
                depth -= 1
                if depth == 0:
                    return place + 1
            elif token == ";":
                break
            place += 1
        self.at = begin
        self.fail("< is never closed")

    def read(self):
        self.scope((), False, True)
        return self.names

    def scope(self, namespaces, internal, outermost=False):
        while self.at < len(self.tokens):
            token = self.token()
            if token == "}":
                if outermost:
                    self.fail("a } too many")
                self.at += 1
                return
            if token == ";":
                self.at += 1
            elif token == "namespace" or token == "inline" and self.token(1) == "namespace":
                self.namespace(namespaces, internal)
            elif token == "extern" and self.token(1) == "0" and self.token(2) == "{":  # extern "C" {
                self.at += 3
                self.scope(namespaces, internal)
            else:
                self.declaration(namespaces, internal)
        if not outermost:
            self.fail("a namespace is never closed")

    def namespace(self, namespaces, internal):
        self.at += 1 if self.token() == "namespace" else 2
        names = []
        while self.token() not in ("{", "=", None):
            token = self.token()
            if token == "[":
                self.at = self.group(self.at)
                continue
            if token not in ("::", "inline"):
                names.append(token)
            self.at += 1
        if self.token() == "=":
            # An alias of a namespace may be repeated, but not with another meaning: treated as a `using`.
            end = self.tokens.index(";", self.at)
            self.add(namespaces, names[0], "using", internal, True, "".join(self.tokens[self.at : end]))
            self.at = end
            return
        self.at += 1
        self.scope((*namespaces, *names), internal or not names)

    def add(self, namespaces, name, kind, internal, defined, parameters="", line=None):
        line = self.lines[self.at] if line is None else line
        self.names.append(Name("::".join(namespaces), name, kind, line, internal, defined, parameters))

    def declaration(self, namespaces, internal):
        line = self.lines[self.at]
        special = False  # a specialization of a template
        while True:
            token = self.token()
            if token == "template":
                if self.token(1) != "<":  # an explicit instantiation
                    return self.skip_statement()
                special = special or self.token(2) == ">"
                self.at = self.angles(self.at + 1)
            elif token == "requires":
                self.requirement()
            elif token == "[" and self.token(1) == "[":
                self.at = self.group(self.at)
            else:
                break
        if self.token() == "using":
            return self.using(namespaces, internal)
        if self.token() == "concept":
            self.add(namespaces, self.token(1), "concept", internal, True)
            return self.skip_statement()
        if self.token() in ("static_assert", "asm"):
            return self.skip_statement()
        if re.fullmatch(r"[A-Z][A-Z0-9_]+", self.token()) and self.token(1) == "(":
            return self.macro(namespaces, internal)
        if self.token() == "typedef":
            end = self.at
            while self.tokens[end] != ";":
                end = self.group(end) if self.tokens[end] in OPENING else end + 1
            self.add(namespaces, self.tokens[end - 1], "alias", internal, True, " ".join(self.tokens[self.at : end]))
            self.at = end
            return None
        begin = self.at
        place = self.at
        while self.tokens[place] in SPECIFIERS:
            internal = internal or self.tokens[place] == "static"
            place += 1
        if self.tokens[place] in TYPE_WORDS and self.type_definition(namespaces, internal, place, line):
            return None
        self.at = begin
        return self.function_or_variables(namespaces, internal, special, line)

    def macro(self, namespaces, internal):
        """A macro at namespace scope: with a body behind it, with a semicolon, or with neither."""
        end = self.group(self.at + 1)
        self.add(namespaces, self.token(), "macro", internal, True, " ".join(self.tokens[self.at + 2 : end - 1]))
        self.at = self.group(end) if end < len(self.tokens) and self.tokens[end] == "{" else end

    def requirement(self):
        """A requires-clause in front of a declaration: a conjunction of concepts or of parenthesized conditions."""
        self.at += 1
        while True:
            if self.token() == "(":
                self.at = self.group(self.at)
            else:
                while self.token(1) == "::":
                    self.at += 2
                self.at += 1
                if self.token() == "<":
                    self.at = self.angles(self.at)
            if self.token() in ("&", "|") and self.token() == self.token(1):
                self.at += 2
                continue
            return

    def skip_statement(self):
        while self.token() != ";":
            if self.token() is None:
                self.fail("the file ends within a declaration")
            self.at = self.group(self.at) if self.token() in OPENING else self.at + 1

    def using(self, namespaces, internal):
        end = self.at
        while self.tokens[end] != ";":
            end = self.group(end) if self.tokens[end] in OPENING else end + 1
        self.at += 1
        if self.token() == "namespace":
            self.add(namespaces, "using namespace", "using namespace", internal, True, "".join(self.tokens[self.at + 1 : end]))
        elif self.token() != "enum" and self.token(1) in ("=", "["):
            self.add(namespaces, self.token(), "alias", internal, True, " ".join(self.tokens[self.at + 1 : end]))
        else:
            self.add(namespaces, self.tokens[end - 1], "using", internal, True, "".join(self.tokens[self.at : end]))
        self.at = end

    def type_definition(self, namespaces, internal, place, line):
        """Reads struct, class, union or enum at `place`; returns whether it was a definition or a declaration of the type itself,
        rather than the type of a variable or function."""
        unscoped = self.tokens[place] == "enum"
        place += 1
        if self.tokens[place] in ("class", "struct"):  # enum class
            unscoped = False
            place += 1
        while self.tokens[place] in ("[", "alignas", "__align__"):
            place = self.group(place if self.tokens[place] == "[" else place + 1)
        name = []
        while place < len(self.tokens):
            token = self.tokens[place]
            if token == "<":
                end = self.angles(place)
                name.append("".join(self.tokens[place:end]))
                place = end
            elif token == "::" or token not in ("final",) and re.match(r"[A-Za-z_]", token):
                if name and re.match(r"[A-Za-z_]", token) and name[-1] != "::":
                    return False  # struct tm now: a variable
                name.append(token)
                place += 1
            else:
                break
        token = self.tokens[place]
        if token == ";":
            if name:
                self.add(namespaces, "".join(name), "type", internal, False, line=line)
            self.at = place
            return True
        if token == "final":
            place += 1
            token = self.tokens[place]
        if token == ":":  # bases, or the type below an enum
            while self.tokens[place] not in ("{", ";"):
                place = self.angles(place) if self.tokens[place] == "<" else place + 1
            token = self.tokens[place]
            if token == ";":
                self.add(namespaces, "".join(name), "type", internal, False, line=line)
                self.at = place
                return True
        if token != "{":
            return False
        if name:
            self.add(namespaces, "".join(name), "type", internal, True, line=line)
        if unscoped:
            self.enumerators(namespaces, internal, place)
        self.at = self.group(place)
        if self.token() != ";":  # variables of the type
            self.variables(namespaces, internal, line, self.at)
        return True

    def enumerators(self, namespaces, internal, place):
        """The constants of an unscoped enum stand in the namespace around it."""
        end = self.group(place) - 1
        place += 1
        while place < end:
            self.add(namespaces, self.tokens[place], "variable", internal, True, line=self.lines[place])
            place = self.initializer(place) + 1 if "," in self.tokens[place:end] else end

    def function_or_variables(self, namespaces, internal, special, line):
        begin = place = self.at
        # Up to what ends the declarator in front: parameters, an initializer, or the end.
        while True:
            if place >= len(self.tokens):
                self.fail("the file ends within a declaration")
            token = self.tokens[place]
            if token == "operator":
                return self.function(namespaces, internal, begin, place, special, line, operator=True)
            if token in ("__attribute__", "alignas", "decltype", "__launch_bounds__", "noexcept"):
                place = self.group(place + 1)
            elif token == "[" and self.tokens[place + 1] == "[":
                place = self.group(place)
            elif token == "<" and place > begin and re.match(r"[A-Za-z_]", self.tokens[place - 1]):
                place = self.angles(place)
            elif token == "(":
                return self.function(namespaces, internal, begin, place, special, line)
            elif token in ("=", "{", "[", ";", ","):
                return self.variables(namespaces, internal, line, begin)
            elif token in ("}", ")", "]", ":"):
                self.at = place
                self.fail(f"unexpected {token}")
            else:
                place += 1

    def function(self, namespaces, internal, begin, place, special, line, operator=False):
        if operator:
            start = place
            place += 1
            while self.tokens[place] != "(":
                place += 1
            if place == start + 1:  # operator()
                place += 2
            name, before = "".join(self.tokens[start:place]), start - 1
        else:
            before = place - 1
            if self.tokens[before] == ">":  # a specialization: f<int>(
                depth = 0
                while True:
                    depth += {">": 1, "<": -1}.get(self.tokens[before], 0)
                    before -= 1
                    if depth == 0:
                        break
            name = self.tokens[before]
            if not re.match(r"[A-Za-z_]\w*$", name):
                self.at = place
                self.fail("a declarator in parentheses")
            before -= 1
        member = before >= begin and self.tokens[before] in ("::", "~")
        end = self.group(place)
        if end < len(self.tokens) and self.tokens[end] == "(":
            self.at = place
            self.fail("a declarator in parentheses")
        parameters = self.parameter_types(place + 1, end - 1)
        # A variable that is initialized with parentheses reads like a function; it is named either way.
        place = end
        tries = False
        while True:
            token = self.tokens[place]
            if token == ":":  # members are initialized
                place += 1
                while True:
                    while self.tokens[place] not in ("(", "{"):
                        place = self.angles(place) if self.tokens[place] == "<" else place + 1
                    place = self.group(place)
                    while self.tokens[place] == ".":
                        place += 1
                    if self.tokens[place] == "...":
                        place += 1
                    if self.tokens[place] != ",":
                        break
                    place += 1
            elif token in ("{", ";", "="):
                break
            elif token in ("(", "["):
                place = self.group(place)
            elif token == "<":
                place = self.angles(place)
            else:
                tries = tries or token == "try"
                place += 1
        defined = self.tokens[place] == "{"
        if not member and not special:
            self.add(namespaces, name, "function", internal, defined, parameters, line)
        if defined:
            self.at = self.group(place)
            while tries and self.token() == "catch":
                self.at = self.group(self.group(self.at + 1))
        else:
            self.at = place
            self.skip_statement()

    def parameter_types(self, begin, end):
        """The types of parameters as text: without their names, default values and top-level const."""
        parameters, current, place = [], [], begin
        while place < end:
            token = self.tokens[place]
            if token == "<" and current and re.match(r"[A-Za-z_]", current[-1]):
                closed = self.angles(place)
                current.append("".join(self.tokens[place:closed]))
                place = closed
                continue
            if token in OPENING:
                closed = self.group(place)
                current.append("".join(self.tokens[place:closed]))
                place = closed
                continue
            if token == ",":
                parameters.append(current)
                current = []
            else:
                current.append(token)
            place += 1
        if current:
            parameters.append(current)
        return ", ".join(self.parameter_type(tokens) for tokens in parameters)

    @staticmethod
    def parameter_type(tokens):
        if "=" in tokens:
            tokens = tokens[: tokens.index("=")]
        tokens = [token for token in tokens if token not in ("struct", "class", "enum", "typename")]
        # The last word is the name where another one is in front of it that is no qualifier.
        words = [i for i, token in enumerate(tokens) if re.match(r"[A-Za-z_]", token) and token not in ("const", "volatile")]
        if len(words) > 1 and tokens[words[-1] - 1] != "::" and tokens[words[-1]] not in ("int", "long", "short", "char", "double", "unsigned"):
            del tokens[words[-1]]
        if "&" not in tokens and "*" not in tokens:
            tokens = [token for token in tokens if token != "const"]
        return " ".join(tokens)

    def variables(self, namespaces, internal, line, begin):
        """Variables, comma after comma, up to the semicolon. The first declarator holds the type."""
        place, last = begin, None
        depth_name = None
        while True:
            if place >= len(self.tokens):
                self.fail("the file ends within a declaration")
            token = self.tokens[place]
            if token in ("=", "{", "[", ",", ";") and not (token == "[" and self.tokens[place + 1] == "["):
                if depth_name is None and last is not None:
                    depth_name = last
                    if self.tokens[self.place_of_last - 1] != "::":
                        self.add(namespaces, last, "variable", internal, True, line=self.lines[self.place_of_last])
                if token == ";":
                    self.at = place
                    return
                if token == ",":
                    depth_name, last = None, None
                    place += 1
                elif token == "=":
                    place = self.initializer(place + 1)
                else:
                    place = self.group(place)
            elif token == "<" and last is not None and depth_name is None:
                place = self.angles(place)
            elif token in OPENING:
                place = self.group(place)
            else:
                if re.match(r"[A-Za-z_]", token):
                    last = token
                    self.place_of_last = place
                place += 1

    def initializer(self, place):
        """The place of the comma or semicolon that ends an initializer."""
        while True:
            token = self.tokens[place]
            if token in OPENING:
                place = self.group(place)
            elif token == "<" and self.is_template(place):
                place = self.angles(place)
            elif token in (",", ";"):
                return place
            else:
                place += 1

    def is_template(self, place):
        """Whether a < in an expression opens template arguments: closed before the statement ends, and followed by (, { or ::."""
        if not re.match(r"[A-Za-z_]", self.tokens[place - 1]):
            return False
        here = self.at
        try:
            end = self.angles(place)
        except Unreadable:
            return False
        finally:
            self.at = here
        return self.tokens[end] in ("(", "{", "::", ";", ",")


def names_in(text):
    """All names that the text of a C++ file introduces at namespace scope."""
    return Reader(text).read()
