"""What a page holds and no reader sees: such text could only speak to the model.

It is hidden (`hidden`, `aria-hidden`, display, visibility, opacity), off the screen or in a box without room, or its
letters are at most a pixel high or have the colour of what is behind them. The element's own `style` and the colours of
old HTML say so; style sheets are not read, for a script may show what they hide. Behind an unknown background, every
colour is seen.
"""

import re
from operator import sub
from typing import NamedTuple

from bs4 import Tag
from bs4.element import PageElement

Colour = tuple[int, int, int]

_OFF_SCREEN = -500.0  # pixels: further to the left or above than this is off the screen
_LEAST = 1.0  # pixels of a letter's height or a box's side that are seen as nothing
_ALIKE = 16  # of 255: colours that differ by less in each channel look the same
_FAINT = 0.05  # opacity
_PIXELS = {
    "": 1.0,
    "px": 1.0,
    "pt": 1.33,
    "pc": 16.0,
    "em": 16.0,
    "rem": 16.0,
    "ex": 8.0,
    "cm": 37.8,
    "mm": 3.8,
    "in": 96.0,
    "vw": 10.0,
    "vh": 8.0,
}
_LENGTH = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+))([a-z%]*)")
_COLOURS: dict[str, Colour] = {
    "white": (255, 255, 255),
    "snow": (255, 250, 250),
    "ivory": (255, 255, 240),
    "whitesmoke": (245, 245, 245),
    "black": (0, 0, 0),
    "silver": (192, 192, 192),
    "gray": (128, 128, 128),
    "grey": (128, 128, 128),
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "lime": (0, 255, 0),
    "blue": (0, 0, 255),
    "navy": (0, 0, 128),
    "yellow": (255, 255, 0),
}


class _Look(NamedTuple):
    """Of the text in an element; it goes on to the elements within. A background of None is not known."""

    colour: Colour | None = _COLOURS["black"]
    background: Colour | None = _COLOURS["white"]
    tiny: bool = False
    seen: bool = True


def find_unseen(page: Tag, dropped: set[str]) -> set[int]:
    """The `id`s of the elements of a page that no reader sees, of those named in `dropped`, and of unseen texts."""
    unseen: set[int] = set()
    waiting: list[tuple[PageElement, _Look]] = [(page, _Look())]
    while waiting:
        node, look = waiting.pop()
        if not isinstance(node, Tag):
            if not look.seen:
                unseen.add(id(node))
            continue
        style = _style(str(node.get("style") or "").lower()) if node.attrs else {}
        if node.name in dropped or _is_hidden(node, style):
            unseen.add(id(node))
            unseen.update(map(id, node.descendants))
        else:
            within = _look(node, style, look) if node.attrs else look
            waiting.extend((child, within) for child in node.contents)
    return unseen


def _style(said: str) -> dict[str, str]:
    said = re.sub(r"(?s)/\*.*?(?:\*/|\Z)", "", said)
    pairs = (declaration.partition(":") for declaration in said.split(";"))
    return {name.strip(): value.replace("!important", "").strip() for name, colon, value in pairs if colon}


def _is_hidden(tag: Tag, style: dict[str, str]) -> bool:
    if "hidden" in tag.attrs or str(tag.get("aria-hidden")).lower() == "true":
        return True
    if not style:
        return False
    opacity = _number(style.get("opacity", "1"), {"": 1.0, "%": 0.01})
    moved = ["text-indent", "margin-left", "margin-top"]
    if style.get("position") in ("absolute", "fixed"):
        moved += ["left", "right", "top", "bottom"]
    places = [_number(style.get(name, ""), _PIXELS | {"%": 10.0}) for name in moved]
    places += [_number(part, _PIXELS) for part in re.split(r"[(,]", style.get("transform", ""))]
    sides = [_number(style.get(name, ""), _PIXELS) for name in ("width", "height", "max-width", "max-height")]
    clipped = style.get("overflow") in ("hidden", "clip")
    return (
        style.get("display") == "none"
        or style.get("visibility") in ("hidden", "collapse")
        or (opacity is not None and opacity <= _FAINT)
        or any(place is not None and place <= _OFF_SCREEN for place in places)
        or style.get("clip", "").startswith("rect(0")
        or style.get("clip-path") in ("inset(50%)", "inset(100%)")
        or (clipped and any(side is not None and side <= _LEAST for side in sides))
    )


def _look(tag: Tag, style: dict[str, str], around: _Look) -> _Look:
    size = _number(style.get("font-size", ""), _PIXELS | {"%": 0.16})
    relative = style.get("font-size", "").endswith(("em", "%"))
    tiny = around.tiny if size is None or (relative and around.tiny) else size <= _LEAST
    colour, background = around.colour, around.background
    if said := style.get("color") or str(tag.get("color") or tag.get("text") or "").lower():
        colour = None if said == "transparent" else _colour(said) or colour
    behind = style.get("background-color") or style.get("background") or str(tag.get("bgcolor") or "").lower()
    if behind and behind not in ("transparent", "none", "inherit"):
        background = _colour(behind)
    if "background-image" in style:
        background = None
    alike = background is not None and colour is not None and max(map(abs, map(sub, colour, background))) < _ALIKE
    return _Look(colour, background, tiny, not (tiny or colour is None or alike))


def _number(said: str, units: dict[str, float]) -> float | None:
    """
    >>> _number("0.1px", _PIXELS), _number("-9999em", _PIXELS), _number("auto", _PIXELS)
    (0.1, -159984.0, None)
    """
    found = _LENGTH.match(said.strip())
    return float(found[1]) * units[found[2]] if found and found[2] in units else None


def _colour(said: str) -> Colour | None:
    """
    >>> _colour("#fff"), _colour("rgb(1, 2, 3)"), _colour("white"), _colour("url(a.png)")
    ((255, 255, 255), (1, 2, 3), (255, 255, 255), None)
    """
    if re.fullmatch(r"#[0-9a-f]{3,4}", said):
        said = "#" + "".join(digit * 2 for digit in said[1:])
    if found := re.fullmatch(r"#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})(?:[0-9a-f]{2})?", said):
        return int(found[1], 16), int(found[2], 16), int(found[3], 16)
    if found := re.match(r"rgba?\(\s*(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})", said):
        return int(found[1]), int(found[2]), int(found[3])
    return _COLOURS.get(said)
