"""Tables on a terminal of any width: nothing is cut, and what is left out is named.

A table that is too wide loses its last columns of numbers, and a line below it names them. Where
not even two numbers fit beside the names, or a sentence does not, each row becomes a block with a
line for each number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

Cell = str | Text

#: Between two columns, and before the lines of a block.
GAP = "  "
#: Least room for sentences, and for a heading before its words stand below each other.
SENTENCE, HEADING = 24, 10
#: Numbers that a table must have room for.
FEWEST = 2


@dataclass(frozen=True)
class Column:
    """A column: sentences wrap, everything else stands on one line."""

    head: str
    unit: str = ""
    left: bool = False
    sentence: bool = False

    @staticmethod
    def from_heading(heading: str) -> Column:
        """From "Goodput [Mbit/s]"."""
        head, _, unit = heading.partition(" [")
        return Column(head, unit.removesuffix("]"))


@dataclass(frozen=True)
class RowGroup:
    """Rows under a title of their own; the columns of all groups are alike."""

    rows: Sequence[Sequence[Cell]]
    title: str = ""


def show(
    console: Console,
    columns: Sequence[Column],
    groups: Sequence[RowGroup],
    *,
    keys: int = 1,
    continued: bool = False,
) -> None:
    """Prints a table as wide as the console."""
    for line in table(columns, groups, console.width, keys=keys, continued=continued):
        console.print(line, soft_wrap=True)


def table(
    columns: Sequence[Column],
    groups: Sequence[RowGroup],
    width: int,
    *,
    keys: int = 1,
    continued: bool = False,
) -> Iterator[Text]:
    """The lines of a table in `width` cells; the first `keys` columns name the row.

    continued: columns without room stand in a table below, with the names of the rows again.
    """
    rows = [[_text(cell) for cell in row] for group in groups for row in group.rows]
    least = [_least(column, [row[i] for row in rows]) for i, column in enumerate(columns)]
    shown = len(columns)
    while shown and sum(least[:shown]) + len(GAP) * (shown - 1) > width:
        shown -= 1
    sentences = any(column.sentence for column in columns[shown:])
    if sentences or shown - keys < min(FEWEST, len(columns) - keys):
        yield from _blocks(columns, groups, width, keys)
        return
    widths = _widened(columns, rows, least[:shown], width)
    yield from _tables(columns[:shown], groups, widths)
    if shown == len(columns):
        return
    if continued:
        below = [*range(keys), *range(shown, len(columns))]
        rest = [RowGroup([[row[i] for i in below] for row in group.rows]) for group in groups]
        yield from table([columns[i] for i in below], rest, width, keys=keys, continued=True)
        return
    heads = [column.head for column in columns[shown:]]
    # "Delay, mean" is one of them.
    names = ("; " if any("," in head for head in heads) else ", ").join(heads)
    yield from _wrapped(Text(f"No room here for: {names}.", style="dim"), width)


def _text(cell: Cell) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell)


def _least(column: Column, cells: Sequence[Text]) -> int:
    """The least width of a column."""
    words = column.head.split() or [""]
    heading = max(*map(cell_len, words), min(cell_len(column.head), HEADING), cell_len(column.unit))
    if column.sentence:
        parts = [word for cell in cells for word in cell.plain.split()]
        longest = max((cell_len(cell.plain) for cell in cells), default=0)
        return max(heading, min(SENTENCE, longest), *map(cell_len, parts or [""]))
    return max(heading, *(cell_len(cell.plain) for cell in cells), 0)


def _widened(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], least: list[int], width: int
) -> list[int]:
    """Gives the room that is left to sentences, the first one first."""
    widths = list(least)
    for i, column in enumerate(columns[: len(widths)]):
        if column.sentence:
            left = width - sum(widths) - len(GAP) * (len(widths) - 1)
            longest = max((cell_len(row[i].plain) for row in rows), default=0)
            widths[i] = max(widths[i], min(longest, widths[i] + left))
    return widths


def _tables(
    columns: Sequence[Column], groups: Sequence[RowGroup], widths: Sequence[int]
) -> Iterator[Text]:
    for group in groups:
        if group.title:
            yield from _wrapped(Text(group.title, style="bold"), sum(widths) + 2 * len(widths))
        heads = [
            [*_wrapped(Text(column.head), width), *([Text(column.unit)] if column.unit else [])]
            for column, width in zip(columns, widths, strict=True)
        ]
        # Headings stand on the line below them.
        tallest = max(map(len, heads))
        heads = [[Text()] * (tallest - len(head)) + head for head in heads]
        for line in _side_by_side(columns, heads, widths):
            line.stylize("bold")
            yield line
        yield Text("─" * (sum(widths) + len(GAP) * (len(widths) - 1)), style="dim")
        for row in group.rows:
            cells = [
                list(_wrapped(_text(cell), width)) if column.sentence else [_text(cell)]
                for column, cell, width in zip(columns, row, widths, strict=False)
            ]
            yield from _side_by_side(columns, cells, widths)
        yield Text()


def _side_by_side(
    columns: Sequence[Column], cells: Sequence[list[Text]], widths: Sequence[int]
) -> Iterator[Text]:
    for i in range(max(map(len, cells))):
        line = Text()
        for column, lines, width in zip(columns, cells, widths, strict=True):
            text = lines[i] if i < len(lines) else Text()
            room = Text(" " * (width - cell_len(text.plain)))
            left, right = (text, room) if column.left or column.sentence else (room, text)
            line = Text.assemble(line, GAP if line else "", left, right)
        line.rstrip()
        yield line


def _blocks(
    columns: Sequence[Column], groups: Sequence[RowGroup], width: int, keys: int
) -> Iterator[Text]:
    """A block for each row: its names, then a line for each of the other columns."""
    longest = max((cell_len(column.head) for column in columns[keys:]), default=0)
    for group in groups:
        if group.title:
            yield from _wrapped(Text(group.title, style="bold"), width)
        names: list[Text] = []
        for row in group.rows:
            texts = [_text(cell) for cell in row]
            # A name that stands once for several rows is repeated in each block.
            names = [text if text.plain or not names else names[i] for i, text in enumerate(texts)]
            heading = Text(", ").join(name for name in names[:keys] if name.plain)
            heading.stylize("bold")
            yield from _wrapped(heading, width)
            for column, text in zip(columns[keys:], texts[keys:], strict=False):
                if not text.plain:
                    continue
                label = Text(f"{GAP}{column.head.ljust(longest)}{GAP}")
                unit = f" {column.unit}" if column.unit and text.plain != "–" else ""
                value = Text.assemble(text, unit)
                if cell_len(label.plain) + cell_len(value.plain) <= width:
                    yield Text.assemble(label, value)
                    continue
                for line in _wrapped(Text(column.head), width - len(GAP)):
                    yield Text.assemble(GAP, line)
                for line in _wrapped(value, width - 2 * len(GAP)):
                    yield Text.assemble(2 * GAP, line)
            yield Text()


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Lines of at most `width` cells, broken at spaces; a longer word stays whole."""
    for paragraph in text.split("\n", allow_blank=True):
        line = Text()
        for word in paragraph.split(" "):
            if line and cell_len(line.plain) + 1 + cell_len(word.plain) > width:
                yield line
                line = word
            else:
                line = Text.assemble(line, " ", word) if line else word
        yield line


def printed(show: Callable[[Console], None]) -> str:
    """What `show` prints on a screen of 120 columns, as a text."""
    screen = Console(width=120, highlight=False)
    with screen.capture() as capture:
        show(screen)
    return capture.get().rstrip()
