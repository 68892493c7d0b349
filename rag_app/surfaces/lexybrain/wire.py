"""What the JSON of several routes of Ask LexyBrain has in common."""

from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, convert

from rag_app.answering import roles
from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.surfaces.lexybrain.types import Rating

T = TypeVar("T", bound=Struct)

THREAD = "550e8400-e29b-41d4-a716-446655440000"
MESSAGE = "660e8400-e29b-41d4-a716-446655440001"

Moment = Annotated[datetime, Meta(examples=["2026-01-15T10:30:00Z"])]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

if TYPE_CHECKING:
    Capability = str
    Kind = str
    SourceScope = str
    RatingName = str
else:  # what the registries have; a type checker wants each name written out
    Capability = Literal[tuple(DESCRIPTIONS)]
    Kind = Literal[roles.TYPES]
    SourceScope = Literal[tuple(roles.SCOPES)]
    RatingName = Literal[tuple(each.value for each in Rating)]

Rated = Annotated[RatingName, Meta(description=f"one of {', '.join(Rating)}")]


def as_wire(of: type[T], inner: object, **others: Any) -> T:
    """A response from what it shows: fields come from the attributes of the same name, or from `others`."""
    values = {name: others[name] if name in others else getattr(inner, name) for name in of.__struct_fields__}
    return convert(SimpleNamespace(**values), of, from_attributes=True)
