"""Draws the charts of docs/performance.md from its tables.

The table that stands last above the line of a chart is its data: a row is a series, a column a
category. Run it in the root of the repository after a table has changed:

    python3 docs/charts/draw.py
"""

import re
from html import escape

PAGE = "docs/performance.md"
COLORS = ["#1b6ca8", "#e0803a", "#5b9a57", "#a8498f", "#8a8a8a", "#c9b03d"]
WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 44, 32
PLOT_HEIGHT = 220
ROW_HEIGHT = 26
LABEL_WIDTH = 250


def number(cell):
    """The first number of a cell, or None."""
    found = re.search(r"-?\d+(?:\.\d+)?", cell.replace(",", ""))
    return float(found.group()) if found else None


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text):
    """Each chart's file name with the rows of the table above it."""
    last, charts = [], {}
    previous = ""
    for line in text.splitlines():
        if line.startswith("|"):
            last = [cells(line)] if not previous.startswith("|") else last + [cells(line)]
        image = re.match(r"!\[(.*)\]\(charts/(.+\.svg)\)", line)
        if image:
            charts[image[2]] = (image[1], [last[0]] + last[2:])
        previous = line
    return charts


def text(x, y, words, anchor="start", size=12):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def bar(x, y, width, height, color, words):
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{color}"><title>{escape(words)}</title></rect>'
    )


def page(title, height, parts):
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def legend(names):
    parts, x = [], LEFT
    for index, name in enumerate(names):
        color = COLORS[index % len(COLORS)]
        parts += [bar(x, 14, 12, 12, color, name), text(x + 17, 24, name)]
        x += 34 + 7.2 * len(name)
    return parts


def upright(title, rows, is_stacked, most, step, unit):
    """Bars of several series for each category, side by side or on top of each other."""
    categories, series = rows[0][1:], rows[1:]
    parts = legend([row[0] for row in series])
    scale = PLOT_HEIGHT / most
    base = TOP + PLOT_HEIGHT
    for mark in range(round(most / step) + 1):
        value = mark * step
        y = base - value * scale
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d0d0"/>'
        )
        parts.append(text(LEFT - 6, y + 4, f"{value:g}{unit}", "end"))
    group = (WIDTH - LEFT - RIGHT) / len(categories)
    for column, category in enumerate(categories):
        begin = LEFT + column * group
        parts.append(text(begin + group / 2, base + 20, category, "middle"))
        breadth = group * 0.4 if is_stacked else group * 0.84 / len(series)
        below = 0.0
        for index, row in enumerate(series):
            value = number(row[column + 1])
            if value is None:
                continue
            x = begin + (group * 0.3 if is_stacked else group * 0.08 + index * breadth)
            height = value * scale
            y = base - height - (below if is_stacked else 0)
            below += height
            words = f"{row[0]}, {category}: {row[column + 1]}"
            parts.append(bar(x, y, breadth * 0.94, height, COLORS[index % len(COLORS)], words))
            if is_stacked and height > 14:
                parts.append(text(x + breadth + 4, y + height / 2 + 4, row[column + 1]))
    return page(title, base + BOTTOM, parts)


def lying(title, rows):
    """One bar for each row, from its first column."""
    values = [number(row[1]) for row in rows[1:]]
    scale = (WIDTH - LABEL_WIDTH - 70) / max(values)
    parts = []
    for index, (row, value) in enumerate(zip(rows[1:], values)):
        y = 12 + index * ROW_HEIGHT
        parts.append(text(LABEL_WIDTH - 8, y + 15, row[0], "end"))
        parts.append(bar(LABEL_WIDTH, y + 2, value * scale, ROW_HEIGHT - 8, COLORS[0], row[1]))
        parts.append(text(LABEL_WIDTH + value * scale + 6, y + 15, row[1]))
    return page(title, 20 + len(values) * ROW_HEIGHT, parts)


DRAWN = {
    "cached-get.svg": lambda title, rows: upright(title, rows, True, 100, 25, " %"),
    "peers.svg": lambda title, rows: upright(title, rows, False, 1.2, 0.2, ""),
    "opening.svg": lying,
}


def main():
    with open(PAGE, encoding="utf-8") as file:
        charts = tables(file.read())
    for name, (title, rows) in charts.items():
        with open(f"docs/charts/{name}", "w", encoding="utf-8") as file:
            file.write(DRAWN[name](title, rows))


main()
