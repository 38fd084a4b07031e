"""Tables for a terminal of any width, in which no cell is cut and omitted columns are named.

A table that is too wide loses its last columns of numbers, and a line below it names them. If fewer
than two columns of numbers fit next to the names, or a sentence does not, each row becomes a block
with one line per number.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Cell = str | Text

#: Number of spaces between two columns, and before the lines of a block.
GAP = 2
#: Smallest width of a column of sentences, and width from which a heading wraps.
SENTENCE, HEADING = 24, 10
#: Number of columns of numbers that must fit; otherwise rows become blocks.
FEWEST = 2


@dataclass(frozen=True)
class Column:
    """A column of a table. Sentences wrap; every other cell is on one line.

    Attributes
    ----------
    head : str
        Heading.
    unit : str, default ''
        Unit below the heading; empty for none.
    align_left : bool, default False
        True to align the cells to the left.
    sentence : bool, default False
        True if the cells are sentences.
    """

    head: str
    unit: str = ""
    align_left: bool = False
    sentence: bool = False

    @staticmethod
    def from_heading(heading: str, *, align_left: bool = False) -> Column:
        """Return the column of a heading such as "Goodput [Mbit/s]"."""
        head, _, unit = heading.partition(" [")
        return Column(head, unit.removesuffix("]"), align_left)

    def least_width(self, cells: Sequence[Text]) -> int:
        """Return the least width at which no cell is cut."""
        words = self.head.split() or [""]
        heading = max(*map(cell_len, words), min(cell_len(self.head), HEADING), cell_len(self.unit))
        longest = max((cell.cell_len for cell in cells), default=0)
        if not self.sentence:
            return max(heading, longest)
        words = [word for cell in cells for word in cell.plain.split()]
        return max(heading, min(SENTENCE, longest), *map(cell_len, words), 0)

    def heading_lines(self, width: int) -> list[str]:
        """Return the heading in lines of a width, and the unit below them."""
        return [*(textwrap.wrap(self.head, width) or [""]), *([self.unit] if self.unit else [])]


@dataclass(frozen=True)
class RowGroup:
    """Rows under a title of their own; all groups of a table have the same columns.

    Attributes
    ----------
    rows : Sequence[Sequence[Cell]]
        The rows, as lists of cells.
    title : str, default ''
        Title above the rows; empty for none.
    """

    rows: Sequence[Sequence[Cell]]
    title: str = ""

    @property
    def texts(self) -> Iterator[list[Text]]:
        """The rows as Rich's texts."""
        return ([Text(c) if isinstance(c, str) else c.copy() for c in row] for row in self.rows)


def show(
    console: Console,
    columns: Sequence[Column],
    groups: Sequence[RowGroup],
    *,
    keys: int = 1,
    continued: bool = False,
    header: bool = True,
) -> None:
    """Print a table that is at most as wide as the console.

    Columns are as wide as their cells need. Columns that do not fit are omitted and named below the
    table, or printed in a further table (`continued`).

    Parameters
    ----------
    console : Console
        The console.
    columns : sequence of Column
        The columns.
    groups : sequence of RowGroup
        The rows.
    keys : int
        Number of first columns that name a row.
    continued : bool
        True to print the columns that do not fit in a further table below, with the names of the
        rows repeated, instead of only naming the columns.
    header : bool
        False to omit the headings, and the empty line at the end.
    """
    widths = fitting_widths(columns, groups, console.width, keys)
    if not widths:
        _show_blocks(console, columns, groups, keys)
        return
    for group in groups:
        if group.title and header:
            console.print(Text(group.title, style="bold"))
        console.print(_rich_table(columns, group, widths, header))
        if header:
            console.print()
    if len(widths) == len(columns) or not header:
        return
    if continued:
        below = [*range(keys), *range(len(widths), len(columns))]
        rest = [RowGroup([[row[i] for i in below] for row in group.rows]) for group in groups]
        show(console, [columns[i] for i in below], rest, keys=keys, continued=True)
        return
    heads = [column.head for column in columns[len(widths) :]]
    # The heading "Delay, mean" has a comma of its own.
    names = ("; " if any("," in head for head in heads) else ", ").join(heads)
    console.print(
        Text(f"Columns omitted, because the terminal is too narrow: {names}.", style="dim")
    )


def fitting_widths(
    columns: Sequence[Column], groups: Sequence[RowGroup], width: int, keys: int = 1
) -> list[int]:
    """Return the widths of the leading columns that fit into the width of the terminal.

    Parameters
    ----------
    columns : Sequence[Column]
        The columns.
    groups : Sequence[RowGroup]
        The rows.
    width : int
        Width of the terminal in characters.
    keys : int, default 1
        Number of first columns that name a row.

    Returns
    -------
    list[int]
        Widths in characters; empty if the table does not fit. Then each row must be shown as a
        block, with a line for each cell.
    """
    rows = [row for group in groups for row in group.texts]
    widths = [column.least_width([row[i] for row in rows]) for i, column in enumerate(columns)]
    while widths and sum(widths) + GAP * (len(widths) - 1) > width:
        widths.pop()
    omitted = columns[len(widths) :]
    if any(column.sentence for column in omitted) or (
        len(widths) - keys < min(FEWEST, len(columns) - keys)
    ):
        return []
    spare = width - sum(widths) - GAP * (len(widths) - 1)
    for i, column in enumerate(columns[: len(widths)]):
        if column.sentence:
            longest = max((row[i].cell_len for row in rows), default=0)
            wider = max(0, min(spare, longest - widths[i]))
            widths[i], spare = widths[i] + wider, spare - wider
    return widths


def _rich_table(
    columns: Sequence[Column], group: RowGroup, widths: Sequence[int], header: bool
) -> Table:
    """Return the columns that fit as a table with a rule below the headings."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        show_header=header,
        header_style="bold",
        border_style="dim",
    )
    pairs = list(zip(columns, widths, strict=False))
    tallest = max(len(column.heading_lines(width)) for column, width in pairs)
    for column, width in pairs:
        lines = column.heading_lines(width)
        table.add_column(
            "\n".join([""] * (tallest - len(lines)) + lines),
            justify="left" if column.align_left or column.sentence else "right",
            no_wrap=not column.sentence,
            overflow="fold",
            width=width,
        )
    for row in group.texts:
        table.add_row(*row[: len(widths)])
    return table


def _show_blocks(
    console: Console, columns: Sequence[Column], groups: Sequence[RowGroup], keys: int
) -> None:
    """Print a block for each row: its names, then a line for each of the other columns."""
    longest = max((cell_len(column.head) for column in columns[keys:]), default=0)
    for group in groups:
        if group.title:
            console.print(Text(group.title, style="bold"))
        names: list[Text] = []
        for row in group.texts:
            # A name that several rows share is repeated in each block.
            names = [cell if cell.plain or not names else names[i] for i, cell in enumerate(row)]
            heading = Text(", ").join(name for name in names[:keys] if name.plain)
            heading.stylize("bold")
            console.print(heading)
            for column, cell in zip(columns[keys:], row[keys:], strict=False):
                if not cell.plain:
                    continue
                if column.unit and cell.plain != "–":
                    cell.append(f" {column.unit}")
                line = Text.assemble(column.head.ljust(longest), " " * GAP, cell)
                if GAP + line.cell_len <= console.width:
                    console.print(Padding(line, (0, 0, 0, GAP)))
                else:
                    console.print(Padding(column.head, (0, 0, 0, GAP)))
                    console.print(Padding(cell, (0, 0, 0, 2 * GAP)))
            console.print()


def printed(show: Callable[[Console], None]) -> str:
    """Return what `show` prints on a screen of 120 columns."""
    screen = Console(width=120, highlight=False)
    with screen.capture() as capture:
        show(screen)
    return capture.get().rstrip()
