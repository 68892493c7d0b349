"""Wrong arguments of the library's calls, told in a sentence before anything is done."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from rag_app.domain.errors import InvalidInput

P = ParamSpec("P")
R = TypeVar("R")

_NOUNS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
    Sequence: "a list",
    Mapping: "a mapping",
}


class WrongArguments(InvalidInput, TypeError):
    """A call with an argument that is missing, unknown or of another type. Also a TypeError, as in any Python function."""


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function that raises WrongArguments where a call does not fit its signature.

    >>> @checked_call
    ... def search(question: str, *, top_k: int = 8) -> None: ...
    >>> search("headphones", top_k="8")
    Traceback (most recent call last):
    rag_app.surfaces.library.arguments.WrongArguments: top_k: must be a whole number, not str
    >>> search("headphones", colour="red")
    Traceback (most recent call last):
    rag_app.surfaces.library.arguments.WrongArguments: colour: search() has no such argument; accepted: question, top_k
    """
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:  # at the first call: they may name what is declared below the function
        return get_type_hints(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        _check_names(function.__name__, signature, args, kwargs)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter, hint = signature.parameters[name], hints().get(name, Any)
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            for each in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
                if not _fits(each, hint):
                    raise WrongArguments(name, each, f"must be {_describe(hint)}, not {type(each).__name__}")
        return function(*args, **kwargs)

    return call


def _check_names(name: str, signature: inspect.Signature, args: Sequence[object], named: Mapping[str, object]) -> None:
    known = [each for each in signature.parameters.values() if each.name != "self"]
    kinds = {each.kind for each in known}
    accepted = [each.name for each in known if each.kind is not inspect.Parameter.VAR_KEYWORD]
    for each in named:
        if each not in accepted and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise WrongArguments(each, named[each], f"{name}() has no such argument; accepted: {', '.join(accepted)}")
    placed = [each.name for each in signature.parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    without_name = ", ".join(each for each in placed if each != "self") or "nothing"
    if len(args) > len(placed) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise WrongArguments("", args, f"{name}() takes only {without_name} without a name")
    for each in named.keys() & {*placed[: len(args)]}:
        raise WrongArguments(each, named[each], f"{name}() is given this argument twice")
    needed = [each.name for each in known if each.default is each.empty and each.kind not in _ANY_NUMBER]
    if missing := [each for each in needed if each not in {*named, *placed[: len(args)]}]:
        raise WrongArguments(missing[0], None, f"{name}() needs {' and '.join(missing)}")


_ANY_NUMBER = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def _fits(value: object, hint: Any) -> bool:
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in of)
    if origin is Literal:
        return value in of
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    if hint is Any or not isinstance(origin or hint, type):  # or a type variable
        return True
    if origin is None:
        return isinstance(value, hint)
    listed = isinstance(value, Sequence) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)
    return (
        isinstance(value, origin)
        and not (listed and isinstance(value, str | bytes))
        and all(_fits(each, of[0]) for each in (value if listed else ()))
    )


def _describe(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_describe(each) for each in get_args(hint)))
    if origin is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if origin is not None and issubclass(origin, Sequence):
        return f"{_NOUNS[Sequence]}, each of it {_describe(get_args(hint)[0])}"
    named = origin or hint
    return _NOUNS.get(named) or f"a {getattr(named, '__name__', named)}"
