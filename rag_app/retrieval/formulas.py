"""Figures that an index computes from other figures of the same record: "demand * (100 - competition) / 100"."""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_PLACES = 4  # of what is computed


def names_in(formula: str) -> frozenset[str]:
    """The fields that a formula is computed from. Raises ValueError where it is more than + - * / and parentheses.

    >>> sorted(names_in("demand * (100 - competition) / 100"))
    ['competition', 'demand']
    >>> names_in("open('x')")
    Traceback (most recent call last):
    ValueError: formula "open('x')": accepted are fields, numbers, + - * / and parentheses
    """
    return frozenset(_names(_parse(formula), formula))


def compute(formula: str, values: Mapping[str, object]) -> float | None:
    """The figure; None where a field is missing or there is no such figure.

    >>> compute("demand * (100 - competition) / 100", {"demand": 60, "competition": 40})
    36.0
    >>> compute("a / b", {"a": 1, "b": 0}) is compute("a / b", {"a": 1}) is None
    True
    """
    try:
        return round(_value(_parse(formula), values), _PLACES)
    except (KeyError, ZeroDivisionError, OverflowError):
        return None


@lru_cache
def _parse(formula: str) -> ast.expr:
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError as error:
        raise ValueError(_refusal(formula)) from error


def _refusal(formula: str) -> str:
    return f'formula "{formula}": accepted are fields, numbers, + - * / and parentheses'


def _names(node: ast.expr, formula: str) -> list[str]:
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return [*_names(left, formula), *_names(right, formula)]
        case ast.Name(name):
            return [name]
        case ast.Constant(int() | float()):
            return []
    raise ValueError(_refusal(formula))


def _value(node: ast.expr, values: Mapping[str, object]) -> float:
    match node:
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Name(name) if isinstance(found := values[name], int | float):
            return float(found)
        case ast.Constant(int() | float() as number):
            return float(number)
    raise KeyError(ast.dump(node))
