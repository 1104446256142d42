# SPDX-License-Identifier: Apache-2.0
"""The grammar of selectors, and its parser, which is made when a program first uses a selector."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lark import Lark

# Keywords have priority over names; a keyword ends where a name would. A number is not followed by a letter, a digit or
# a point: `5x` is an error, and not the number 5 and the name x.
GRAMMAR = r"""
selector: disjunction
name: NAME -> plain_name | QUOTED -> quoted_name

?disjunction: conjunction | disjunction _OR conjunction -> either
?conjunction: negation | conjunction _AND negation -> both
?negation: predicate | _NOT negation -> negated
?predicate: sum
    | sum COMPARISON sum -> comparison
    | sum _BETWEEN sum _AND sum -> between
    | sum _NOT _BETWEEN sum _AND sum -> not_between
    | sum _IN "(" _literals ")" -> is_in
    | sum _NOT _IN "(" _literals ")" -> not_in
    | sum _LIKE STRING [_ESCAPE STRING] -> like
    | sum _NOT _LIKE STRING [_ESCAPE STRING] -> not_like
    | sum _IS _NULL -> is_null
    | sum _IS _NOT _NULL -> is_not_null
?sum: product | sum SIGN product -> calculation
?product: signed | product FACTOR signed -> calculation
?signed: primary | SIGN signed -> sign
?primary: constant | name | "(" disjunction ")"
_literals: literal ("," literal)*
?literal: constant | SIGN constant -> sign
constant: STRING -> string | NUMBER -> number | TRUE -> true | FALSE -> false

_AND.2: /and(?![\w$.])/i
_OR.2: /or(?![\w$.])/i
_NOT.2: /not(?![\w$.])/i
_BETWEEN.2: /between(?![\w$.])/i
_IN.2: /in(?![\w$.])/i
_LIKE.2: /like(?![\w$.])/i
_ESCAPE.2: /escape(?![\w$.])/i
_IS.2: /is(?![\w$.])/i
_NULL.2: /null(?![\w$.])/i
TRUE.2: /true(?![\w$.])/i
FALSE.2: /false(?![\w$.])/i
COMPARISON: "=" | "<>" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
FACTOR: "*" | "/"
NUMBER: /(0[xX][0-9a-fA-F]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[lLfFdD]?(?![\w$.])/
STRING: /'[^']*(''[^']*)*'(?!')/
QUOTED: /"[^"]*(""[^"]*)*"(?!")/
NAME: /[^\W\d][\w$.]*|\$[\w$.]*/
%ignore /[ \t\r\n\f]+/
"""


@functools.cache
def parser(compiler: Any) -> Lark:  # noqa: ANN401 - an object with a method for each rule
    """Returns the parser, which calls the method of ``compiler`` for each rule that it has recognised."""
    from lark import Lark  # noqa: PLC0415

    return Lark(GRAMMAR, start=["selector", "name"], parser="lalr", lexer="basic", transformer=compiler)


@functools.cache
def syntax_errors() -> tuple[type[Exception], type[Exception]]:
    """Returns the errors of the parser: for characters that begin no token, and for a token in the wrong place."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken  # noqa: PLC0415

    return UnexpectedCharacters, UnexpectedToken
