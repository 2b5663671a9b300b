"""Predicates that no equi-join can decide, helped by one: candidates are found by a key, then checked exactly.

    WITHIN(a, b, metres)      cells of a grid (``geometry``)
    CONTAINS(area, point)     cells of the box around the area
    MATCHES(text, words)      the longest of the words that are looked for, among the words of the text

One side has **one** key for each row, the other **several**, which are exploded; a pair has at most one key in
common, so that it is found once. The exact predicate stays. Where the level of the grid is not known beforehand,
because the radius is a column or a parameter, the side without the radius has keys of every level.

Helped are predicates that hold between two tables of one block, in WHERE or in the ON of an inner join; and in the
ON of a LEFT, SEMI or ANTI join if only its right side is exploded. Not where an equality joins the two already. A
table is exploded once at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from sqlglot import exp

from tocsin.pipeline.language.functions import geometry, library
from tocsin.pipeline.language.functions.library import coordinates, space_noted, sql_of
from tocsin.pipeline.language.functions.spaces import Space
from tocsin.pipeline.language.rewrite.per_subscription import SUBSCRIPTIONS
from tocsin.pipeline.language.tree import trees
from tocsin.pipeline.language.tree.resolution import NEWS, sources_of
from tocsin.pipeline.language.tree.trees import column, conjoin

_LEVELS: Final = "ARRAY(" + ", ".join(map(str, geometry.LEVELS)) + ")"
_LEVEL: Final = (
    "_l"  # the level of a row's cells: one that follows from its size, or each, one after the other
)
_EDGE: Final = "_e"  # the length of that level's edges
_HALF: Final = "_h"  # half the width of what a row covers


class _Side(msgspec.Struct, frozen=True):
    """The cells that a table gets so that it can be joined."""

    alias: str
    key: str  # an expression; an array of keys if ``several``
    several: bool = False
    lets: tuple[
        tuple[str, str], ...
    ] = ()  # columns that ``key`` uses: their names and expressions, one after the other
    each_level: str | None = None  # first of all a row for each level, which is this column

    @property
    def exploded(self) -> bool:
        return self.several or self.each_level is not None


class _Grid(msgspec.Struct, frozen=True):
    """The names of the columns that a predicate's grid adds to its tables."""

    level: str  # of a row's cells: what follows from its size, or every level, one after the other
    edge: str  # the length of that level's edges
    half: str  # half the width of what a row covers

    def of(self, alias: str) -> tuple[str, str]:
        return f"{alias}.{self.level}", f"{alias}.{self.edge}"

    def let_edge(self, alias: str) -> tuple[str, str]:
        return self.edge, geometry.edge(f"{alias}.{self.level}")


class _KeyedJoin(msgspec.Struct, frozen=True):
    """A join of two tables by a key."""

    sides: tuple[_Side, _Side]
    note: str


class _Condition(msgspec.Struct, frozen=True):
    """Where a condition stands. ``join``: the LEFT, SEMI or ANTI join whose ON it is; None elsewhere."""

    holder: exp.Expr  # Where or Join
    join: exp.Join | None = None

    @property
    def condition(self) -> exp.Expr | None:
        found = self.holder.args.get("on" if isinstance(self.holder, exp.Join) else "this")
        return found if isinstance(found, exp.Expr) else None

    def add(self, condition: exp.Expr) -> None:
        member = "on" if isinstance(self.holder, exp.Join) else "this"
        self.holder.set(member, conjoin(condition, self.condition))


class Accelerator:
    """Helps the blocks of one query; ``notes`` says how."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.pairs: list[tuple[str, str]] = []  # the tables that were helped; "" for a subquery
        self._keys = 0

    def help(self, tree: exp.Query) -> None:
        for select in list(tree.find_all(exp.Select)):
            _Block(self, select).help()

    def name(self, kind: str) -> str:
        self._keys += 1
        return f"_{kind}{self._keys - 1}"

    def grid(self) -> _Grid:
        return _Grid(self.name("l"), self.name("e"), self.name("h"))


class _Block:
    def __init__(self, accelerator: Accelerator, select: exp.Select) -> None:
        self._accelerator = accelerator
        self._select = select
        self._sources = {
            source.alias_or_name: source for source in sources_of(select) if source.alias_or_name
        }
        self._views = {
            alias: source.name if isinstance(source, exp.Table) else ""
            for alias, source in self._sources.items()
        }
        self._exploded: set[str] = set()
        optional = {
            join.this.alias_or_name
            for join in select.args.get("joins") or []
            if join.side or join.kind in ("SEMI", "ANTI")
        }
        self._inner = set(self._sources) - optional

    def help(self) -> None:
        for node in [node for node in trees.own(self._select) if _is_call(node, "contains")]:
            self._parse_area(node)
        for where in self._conditions():
            for node in trees.conjuncts(where.condition):
                if _is_call(node, "within", "contains", "matches"):
                    assert isinstance(node, exp.Anonymous)
                    self._help(node, where)

    def _conditions(self) -> Iterator[_Condition]:
        if (where := self._select.args.get("where")) is not None:
            yield _Condition(where)
        for join in self._select.args.get("joins") or []:
            if join.args.get("on") is not None:
                optional = bool(join.side) or join.kind in ("SEMI", "ANTI")
                yield _Condition(join, join if optional else None)

    def _help(self, node: exp.Anonymous, where: _Condition) -> None:
        name = node.name.upper()
        joins = {"WITHIN": self._within, "CONTAINS": self._contains, "MATCHES": self._matches}[name](node)
        for keyed in joins:
            if self._fits(keyed, where):
                if self._joined(keyed):
                    self._say(f"{name} is checked for the pairs that an equality finds")
                    return
                self._accelerator.pairs.append(
                    (self._views[keyed.sides[0].alias], self._views[keyed.sides[1].alias])
                )
                self._apply(keyed, where)
                self._say(keyed.note)
                return
        if len(_aliases(node)) > 1:
            self._say(f"{name} is checked for each pair of rows")

    def _say(self, note: str) -> None:
        for alias, view in self._views.items():
            if view == SUBSCRIPTIONS:
                note = note.replace(f" {alias} ", " the subscription ").replace(
                    f" {alias},", " the subscription,"
                )
        if note not in self._accelerator.notes:
            self._accelerator.notes.append(note)

    # ── whether it can be done ───────────────────────────────────────────────────────────────────────────────

    def _alias(self, node: exp.Expr) -> str | None:
        """The single table of this block that an expression refers to."""
        found = _aliases(node)
        return next(iter(found)) if len(found) == 1 and found <= self._sources.keys() else None

    def _fits(self, keyed: _KeyedJoin, where: _Condition) -> bool:
        exploded = {side.alias for side in keyed.sides if side.exploded}
        if exploded & self._exploded:
            return False
        if where.join is None:
            return {side.alias for side in keyed.sides} <= self._inner
        return exploded == {where.join.this.alias_or_name}

    def _joined(self, keyed: _KeyedJoin) -> bool:
        pair = {side.alias for side in keyed.sides}
        for where in self._conditions():
            for node in trees.conjuncts(where.condition):
                if (
                    isinstance(node, exp.EQ)
                    and {self._alias(node.this), self._alias(node.expression)} == pair
                ):
                    return True
        return False

    def _rank(self, alias: str) -> int:
        """Which side to explode: what is new is small; a dataset is larger than its subscriptions, as a rule."""
        name = self._views[alias]
        return 0 if name.startswith(NEWS) else 1 if name == SUBSCRIPTIONS else 2

    # ── what is done ─────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, keyed: _KeyedJoin, where: _Condition) -> None:
        keys: list[exp.Expr] = []
        for side in keyed.sides:
            if side.each_level is not None:
                self._wrap(side.alias, f"EXPLODE({_LEVELS}) AS {side.each_level}")
            for let, value in side.lets:
                self._wrap(side.alias, f"{value} AS {let}")
            if not side.exploded:
                keys.append(library.parsed(side.key))
                continue
            name = self._accelerator.name("g")
            self._wrap(
                side.alias, f"EXPLODE({side.key}) AS {name}" if side.several else f"{side.key} AS {name}"
            )
            self._exploded.add(side.alias)
            keys.append(column(side.alias, name))
        where.add(exp.EQ(this=keys[0], expression=keys[1]))

    def _wrap(self, alias: str, more: str) -> None:
        """Put a subquery in a table's place, with one column more."""
        source = self._sources[alias]
        select = library.parsed(f"SELECT {alias}.*, {more}")
        made = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(alias)))
        source.replace(made)
        select.set("from_", exp.From(this=source))
        self._sources[alias] = made

    def _parse_area(self, node: exp.Expr) -> None:
        """Read a polygon's text once for each row of its table, not for each pair."""
        area = node.expressions[0]
        alias = self._alias(area)
        if alias is None or node.meta.get("rings"):
            return
        name = self._accelerator.name("r")
        self._wrap(alias, f"{geometry.rings(sql_of(area))} AS {name}")
        area.replace(column(alias, name))
        node.meta["rings"] = True

    # ── the joins of each predicate ───────────────────────────────────────────────────────────────────────────

    def _within(self, node: exp.Anonymous) -> list[_KeyedJoin]:
        first, second, metres = node.expressions
        aliases = self._alias(first), self._alias(second)
        if None in aliases or aliases[0] == aliases[1]:
            return []
        points = {str(aliases[0]): first, str(aliases[1]): second}
        by_rank = sorted(points, key=self._rank)
        static = node.meta.get("level")
        if static is None and isinstance(metres, exp.Literal) and not metres.is_string:
            static = geometry.level_of(float(metres.name) * 1.000001 + 0.001, step=1)
        space = space_noted(node)
        if static is not None:
            return [self._known(space, points, int(static), *pair) for pair in (by_rank, by_rank[::-1])]
        area = self._alias(metres)
        if area not in points:
            return []
        assert area is not None
        other = next(alias for alias in points if alias != area)
        joins = [self._covered(node, points, area, other), self._surrounded(node, points, area, other)]
        return joins if self._rank(area) <= self._rank(other) else joins[::-1]

    def _known(
        self, space: Space, points: dict[str, exp.Expr], level: int, many: str, one: str
    ) -> _KeyedJoin:
        """The level is known: one side has its cell, the other the cells around it."""
        edge = geometry.edge(level)
        box = geometry.around(_axes(space, points[many]), edge)
        return _KeyedJoin(
            (
                _Side(many, geometry.cells(level, edge, box), several=True),
                _Side(one, geometry.cell(level, edge, _axes(space, points[one]))),
            ),
            f"WITHIN: {many} and {one} are joined by cells of {geometry.EDGE_M << level} m, then checked",
        )

    def _covered(self, node: exp.Anonymous, points: dict[str, exp.Expr], area: str, other: str) -> _KeyedJoin:
        """The side with the radius has the cells of its circle, the other its cell of each level."""
        space, grid = space_noted(node), self._accelerator.grid()
        half = geometry.bounded(sql_of(node.expressions[2]))
        level = geometry.level(f"({area}.{grid.half} / {geometry.SPREAD[space]})")
        box = geometry.around(_axes(space, points[area]), f"{area}.{grid.half}")
        own = ((grid.half, half), (grid.level, level), grid.let_edge(area))
        return _KeyedJoin(
            (
                _Side(area, geometry.cells(*grid.of(area), box), several=True, lets=own),
                _Side(
                    other,
                    geometry.cell(*grid.of(other), _axes(space, points[other])),
                    each_level=grid.level,
                    lets=(grid.let_edge(other),),
                ),
            ),
            f"WITHIN: {area} is spread over the cells of its radius, joined with the cell of {other}, then checked",
        )

    def _surrounded(
        self, node: exp.Anonymous, points: dict[str, exp.Expr], area: str, other: str
    ) -> _KeyedJoin:
        """The side with the radius has one cell, the other side the cells around it, of each level."""
        space, grid = space_noted(node), self._accelerator.grid()
        level = geometry.level(geometry.bounded(sql_of(node.expressions[2])))
        box = geometry.around(_axes(space, points[other]), f"{other}.{grid.edge}")
        return _KeyedJoin(
            (
                _Side(
                    area,
                    geometry.cell(*grid.of(area), _axes(space, points[area])),
                    lets=((grid.level, level), grid.let_edge(area)),
                ),
                _Side(
                    other,
                    geometry.cells(*grid.of(other), box),
                    several=True,
                    each_level=grid.level,
                    lets=(grid.let_edge(other),),
                ),
            ),
            f"WITHIN: {other} is spread over the cells around it, joined with the cell of {area}, then checked",
        )

    def _contains(self, node: exp.Anonymous) -> list[_KeyedJoin]:
        area, point = self._alias(node.expressions[0]), self._alias(node.expressions[1])
        if area is None or point is None or area == point or not node.meta.get("rings"):
            return []
        space, grid = space_noted(node), self._accelerator.grid()
        corners = geometry.box(sql_of(node.expressions[0]), space)
        west, south, east, north = (f"{area}._b{index}" for index in range(4))
        half = geometry.bounded(f"(GREATEST({east} - {west}, {north} - {south}) / 2)")
        lets = [
            *((f"_b{index}", corner) for index, corner in enumerate(corners)),
            (grid.level, geometry.level(half)),
        ]
        axes = geometry.flat_axes(space, coordinates(space, node.expressions[1]))
        return [
            _KeyedJoin(
                (
                    _Side(
                        area,
                        geometry.cells(*grid.of(area), [(west, east), (south, north)]),
                        several=True,
                        lets=(*lets, grid.let_edge(area)),
                    ),
                    _Side(
                        point,
                        geometry.cell(*grid.of(point), axes),
                        each_level=grid.level,
                        lets=(grid.let_edge(point),),
                    ),
                ),
                f"CONTAINS: {area} is spread over the cells of its box, joined with the cell of {point}, then checked",
            )
        ]

    def _matches(self, node: exp.Anonymous) -> list[_KeyedJoin]:
        text, wanted = self._alias(node.expressions[0]), self._alias(node.expressions[1])
        if text is None or wanted is None or text == wanted:
            return []
        return [
            _KeyedJoin(
                (
                    _Side(text, library.words(sql_of(node.expressions[0])), several=True),
                    _Side(wanted, library.longest_word(sql_of(node.expressions[1]))),
                ),
                f"MATCHES: the words of {text} are joined with the longest word of {wanted}, then checked",
            )
        ]


def _axes(space: Space, point: exp.Expr) -> tuple[str, ...]:
    return geometry.axes(space, coordinates(space, point))


def _is_call(node: exp.Expr, *names: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in names


def _aliases(node: exp.Expr) -> set[str]:
    return {each.table for each in node.find_all(exp.Column)}
