"""A grid as Markdown, LaTeX or a table on the console."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from eval.grid import BEST, SECOND, Cell, Column, Grid

STYLES = {BEST: "bold green", SECOND: "underline", "": ""}
GROUPS = {"Single-Doc QA": "Single", "Multi-Doc QA": "Multi", "Summarization": "Summar.", "Synthetic": "Synth."}


def spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Groups of neighbouring columns with their widths in columns."""
    return [(name, len(list(members))) for name, members in groupby(columns, key=lambda column: column.group)]


def markdown(grid: Grid) -> str:
    """The grid as a Markdown table: groups in the heading, names in the first row; best bold, second underlined."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |\n"

    def shown(cell: Cell) -> str:
        text = cell.text + (cell.sign.replace("*", "\\*") if cell.text else "")
        return {BEST: f"**{text}**", SECOND: f"<u>{text}</u>", "": text}[cell.mark]

    heads = [name if not i else "" for name, width in spans(grid.columns) for i in range(width)]
    text = f"### {_escaped(grid.title)}\n\n" + line(["", *map(_escaped, heads)])
    text += line([":--", *["--:"] * len(grid.columns)])
    text += line(["Method", *(_escaped(column.name) for column in grid.columns)])
    for row, label in enumerate(grid.labels):
        text += line([_escaped(label), *(shown(column.cells[row]) for column in grid.columns)])
    for row, name in enumerate(grid.foot):
        text += line([f"*{name}*", *(column.foot[row] for column in grid.columns)])
    return text


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    for character in "\\`*_<>|[]":
        text = text.replace(character, f"\\{character}")
    return text


WIDE = 12  # columns above which a LaTeX table is shrunk to the page

LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "*": "$^{*}$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "Δ": r"$\Delta$",
}


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it is; characters beyond Latin-1 become question marks, as pdflatex lacks them."""
    return "".join(LATEX.get(c, c if ord(c) < 256 else "?") for c in text)


def latex(grid: Grid, notes: Sequence[str] = ()) -> str:
    """The grid as a booktabs table, shrunk to the page where it is wide; needs ``booktabs`` and ``graphicx``."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\" + "\n"

    def shown(cell: Cell) -> str:
        text = latex_text(cell.text).replace("-", "$-$")  # a minus, not a hyphen
        marked = {BEST: rf"\textbf{{{text}}}", SECOND: rf"\underline{{{text}}}", "": text}[cell.mark]
        return marked + (latex_text(cell.sign) if cell.text else "")

    groups, rules, start = [], [], 2
    for name, width in spans(grid.columns):
        groups.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(name)}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    body = line(["", *groups]) + " ".join(rules) + "\n"
    body += line(["Method", *(latex_text(column.short) for column in grid.columns)])
    body += "\\midrule\n"
    for row, label in enumerate(grid.labels):
        body += line([latex_text(label), *(shown(column.cells[row]) for column in grid.columns)])
        body += "\\midrule\n" if row in grid.full and row + 1 < len(grid.labels) else ""
    body += "\\midrule\n" if grid.foot else ""
    for row, name in enumerate(grid.foot):
        body += line([rf"\textit{{{name}}}", *(column.foot[row] for column in grid.columns)])
    wide = len(grid.columns) > WIDE
    fit = "\\resizebox{\\textwidth}{!}{%\n" if wide else "\\small\n"
    below = "".join(f"\\par {latex_text(note)}\n" for note in notes)
    return (
        "\\begin{table*}[t]\n\\centering\n"
        f"\\caption{{{latex_text(grid.title)}}}\n"
        f"\\setlength{{\\tabcolsep}}{{3pt}}\n{fit}\\begin{{tabular}}{{l{'r' * len(grid.columns)}}}\n\\toprule\n"
        f"{body}\\bottomrule\n\\end{{tabular}}{'}' if wide else ''}\n"
        + (
            f"\\begin{{minipage}}{{\\textwidth}}\\vspace{{1ex}}\\footnotesize\n{below}\\end{{minipage}}\n"
            if notes
            else ""
        )
        + "\\end{table*}\n"
    )


class Sheet(NamedTuple):
    """A grid for the console, cut into as many tables as its width asks for, the methods repeated in each."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        grid = self.grid
        labels = max(map(cell_len, ["Method", *grid.labels, *grid.foot])) + 3
        for number, columns in enumerate(_pages(grid.columns, options.max_width - labels)):
            yield _console_table(grid, columns, grid.title if not number else None)


def _pages(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    page: list[Column] = []
    used = 0
    for column in columns:
        texts = [column.short, *column.foot, *(cell.text + cell.sign for cell in column.cells)]
        needed = max(map(cell_len, [*texts, GROUPS.get(column.group, column.group)])) + 2
        if page and used + needed > width:
            yield page
            page, used = [], 0
        page.append(column)
        used += needed
    yield page


def _console_table(grid: Grid, columns: Sequence[Column], title: str | None) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("\nMethod", no_wrap=True)
    heads = [name if not i else "" for name, width in spans(columns) for i in range(width)]
    for head, column in zip(heads, columns, strict=True):
        table.add_column(f"{GROUPS.get(head, head)}\n{column.short}", justify="right", no_wrap=True)
    for row, label in enumerate(grid.labels):
        cells = [column.cells[row] for column in columns]
        texts = [Text(cell.text + (cell.sign if cell.text else ""), STYLES[cell.mark]) for cell in cells]
        table.add_row(Text(label), *texts, end_section=row + 1 == len(grid.labels))
    for row, name in enumerate(grid.foot if any("".join(column.foot) for column in columns) else ()):
        table.add_row(Text(name, "dim"), *(Text(column.foot[row], "dim") for column in columns))
    return table
