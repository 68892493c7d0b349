"""Wrong arguments of the library's calls, told in a sentence before anything is done."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

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
    """A function that raises WrongArguments where a call does not fit its signature; a coroutine when it is awaited.

    >>> @checked_call
    ... def search(question: str, *, top_k: int = 8) -> None: ...
    >>> search("headphones", top_k="8")
    Traceback (most recent call last):
    rag_app.surfaces.library.arguments.WrongArguments: top_k: must be a whole number, not str
    >>> search("headphones", colour="red")
    Traceback (most recent call last):
    rag_app.surfaces.library.arguments.WrongArguments: search() got an unexpected keyword argument 'colour'; accepted: question, top_k
    """
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name != "self"]

    @cache
    def hints() -> dict[str, Any]:  # at the first call: they may name what is declared below the function
        arguments = {name: each for name, each in function.__annotations__.items() if name != "return"}
        return get_type_hints(SimpleNamespace(__annotations__=arguments, __globals__=function.__globals__))

    def check(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise WrongArguments("", None, f"{function.__name__}() {error}; accepted: {', '.join(names)}") from None
        for name, value in given.items():
            parameter, hint = signature.parameters[name], hints().get(name, Any)
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            for each in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
                if not _fits(each, hint):
                    accepted = _describe(hint)
                    members = ", ".join(dict.fromkeys(type(one).__name__ for one in each)) if type(each) is list else ""
                    of = f" of {members}" if "a list" in accepted and members else ""
                    raise WrongArguments(name, each, f"must be {accepted}, not {type(each).__name__}{of}")

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_later(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(*args, **kwargs)
            return await function(*args, **kwargs)

        return cast("Callable[P, R]", call_later)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return call


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
    if origin in (Sequence, Iterable):
        return f"{_NOUNS[Sequence]}, each of it {_describe(get_args(hint)[0])}"
    named = origin or hint
    return _NOUNS.get(named) or f"a {getattr(named, '__name__', named)}"
