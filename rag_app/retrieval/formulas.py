"""Figures that an index computes from other figures of the same record: "demand * (100 - competition) / 100"."""

import ast
import operator
from collections.abc import Callable, Container, Mapping
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


def is_whole(formula: str, whole: Container[str]) -> bool:
    """Whether its figures are whole numbers: it adds, subtracts and multiplies fields that are `whole`, and whole numbers.

    >>> is_whole("rent - 2 * paid", {"rent", "paid"}), is_whole("rent / 2", {"rent"}), is_whole("rent - fee", {"rent"})
    (True, False, False)
    """
    parts = [*ast.walk(_parse(formula))]
    figures = (each for each in parts if isinstance(each, ast.Name | ast.Constant))
    return not any(isinstance(each, ast.Div) for each in parts) and all(
        each.id in whole if isinstance(each, ast.Name) else isinstance(each.value, int) for each in figures
    )


def compute(formula: str, values: Mapping[str, object]) -> float | None:
    """The figure, a whole number where `is_whole`; None where a field is missing or there is no such figure.

    >>> compute("demand * (100 - competition) / 100", {"demand": 60, "competition": 40}), compute("a - 1", {"a": 1})
    (36.0, 0)
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
            return found
        case ast.Constant(int() | float() as number):
            return number
    raise KeyError(ast.dump(node))
