"""What is made of measurements: percentiles, recall, bounds, and the report that shows them."""

import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("llama-index-core", "pgvector", "asyncpg", "litestar", "granian", "onnxruntime", "qdrant-client")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of them lie, interpolated between neighbours.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.5
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))


def recall(found: Sequence[int], exact: Collection[int]) -> float:
    """The share of the exact result that was found; 1 where there is nothing to be found.

    >>> recall([1, 2, 9], [1, 2, 3, 4])
    0.5
    """
    return len(set(found) & set(exact)) / len(exact) if exact else 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one contestant's queries, in the order they were asked."""

    values: tuple[float, ...]

    @property
    def p50(self) -> float:
        return percentile(self.values, 0.5)

    @property
    def p95(self) -> float:
        return percentile(self.values, 0.95)

    def __str__(self) -> str:
        return f"{number(self.p50)} / {number(self.p95)}"


@dataclass(frozen=True, slots=True)
class Bound:
    """One promise of what fast means. `limit` is the most that `measured` may be, or the least."""

    what: str
    against: str
    measured: float
    limit: float
    at_most: bool = True

    @property
    def held(self) -> bool:
        """Not so for a NaN: what could not be measured was not held."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def __str__(self) -> str:
        return f"{self.what}: {number(self.measured)} ({'<=' if self.at_most else '>='} {number(self.limit)})"


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` are texts and numbers, a column each."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[tuple[str | float, ...]]

    def markdown(self) -> str:
        head = f"### {self.title}\n\n{self.note}\n" if self.note else f"### {self.title}\n"
        return f"{head}\n{_table(self.columns, self.rows)}\n"


@dataclass(slots=True)
class Report:
    """Everything that one run found."""

    conditions: Mapping[str, str]
    tables: list[Table] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)

    @property
    def missed(self) -> list[Bound]:
        return [bound for bound in self.bounds if not bound.held]

    def markdown(self) -> str:
        conditions = "\n".join(f"- {name}: {value}" for name, value in self.conditions.items())
        rows = [
            (each.what, each.against, each.measured, f"{'<=' if each.at_most else '>='} {number(each.limit)}",
             "held" if each.held else "**missed**")
            for each in self.bounds
        ]  # fmt: skip
        bounds = _table(("what", "against", "measured", "bound", ""), rows)
        tables = "\n".join(table.markdown() for table in self.tables)
        return (
            f"# Figures\n\nWritten by `make bench`.\n\n{conditions}\n\n## Bounds\n\n{bounds}\n\n## Tables\n\n{tables}"
        )

    def write(self, folder: Path) -> None:
        """`results.json` and `results.md`."""
        folder.mkdir(parents=True, exist_ok=True)
        bounds = [{**asdict(bound), "held": bound.held} for bound in self.bounds]
        everything = {"conditions": dict(self.conditions), "bounds": bounds, "tables": [asdict(t) for t in self.tables]}
        (folder / "results.json").write_text(json.dumps(everything, indent=1) + "\n", "utf-8")
        (folder / "results.md").write_text(self.markdown(), "utf-8")


def fastest(
    timings: Mapping[str, Timing], recalls: Mapping[str, float], least: float, *, short: Collection[str] = ()
) -> str:
    """The contestant with the lowest median among those that find enough, and never too few rows.

    >>> quick, right = Timing((1.0,)), Timing((2.0,))
    >>> fastest({"quick": quick, "right": right}, {"quick": 0.9, "right": 1.0}, 0.99)
    'right'
    """
    right = [name for name in timings if recalls[name] >= least and name not in short]
    return min(right, key=lambda name: timings[name].p50)


def ratio(ours: Timing, theirs: Timing, of: Callable[[Timing], float]) -> float:
    return of(ours) / of(theirs)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return {
        "machine": f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GB, {platform.system()} {platform.release()}",
        "load when it began": load,
        "software": f"Python {platform.python_version()}, {packages}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def number(value: float) -> str:
    """Three digits that matter.

    >>> number(0.1234), number(12.34), number(1234.5), number(float("nan"))
    ('0.123', '12.3', '1234', '-')
    """
    if math.isnan(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def rounds(questions: int) -> int:
    """How often contestants take turns with what is measured in bulk.

    >>> rounds(20), rounds(100), rounds(1000)
    (2, 5, 5)
    """
    return max(2, min(5, questions // 20))


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
