# SPDX-License-Identifier: Apache-2.0
"""A picture of a terminal, as SVG: its text with the colours that programs have set."""
import html
import re

from terminal import width

CHAR, LINE, MARGIN = 8.4, 18, 16            # px, of a font of 14 px
COLOURS = {'0': None, '1': 'b', '2': 'f', '1;34': 'd', '36': 'l', '32': 'g', '1;31': 'r', '34': 'bar', 'p': 'p'}
STYLE = """text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre }
.b { font-weight: bold } .f { fill: #8a93a3 } .d { fill: #81a1c1; font-weight: bold } .l { fill: #88c0d0 }
.g { fill: #a3be8c } .r { fill: #e0707a; font-weight: bold } .bar { fill: #5e81ac } .p { fill: #a3be8c; font-weight: bold }"""


def spans(line):
    """[(class or None, text)] of a line with escape sequences."""
    found, style = [], None
    for code, text in re.findall(r'(?:\x1b\[([\dp;]*)m)?([^\x1b]*)', line):
        style = COLOURS[code] if code else style
        if text:
            found.append((style, text))
    return found


def picture(lines):
    """The lines, which may be coloured; one that begins with `$ ` is what somebody has typed."""
    wide = max(width(line) for line in lines)
    w, h = round(2 * MARGIN + wide * CHAR), 2 * MARGIN + LINE * len(lines)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}">',
           f'<style>{STYLE}</style>', f'<rect width="{w}" height="{h}" rx="8" fill="#20242c"/>']
    for i, line in enumerate(lines):
        x, y = MARGIN, MARGIN + LINE * i + 14
        for style, text in spans('\x1b[pm$\x1b[0m' + line[1:] if line.startswith('$ ') else line):
            n = width(text)
            # of its exact width, whatever the font is
            if text.strip():
                name = f' class="{style}"' if style else ''
                out.append(f'<text{name} x="{x:.1f}" y="{y}" textLength="{n * CHAR:.1f}" lengthAdjust="spacingAndGlyphs" '
                           f'xml:space="preserve">{html.escape(text)}</text>')
            x += n * CHAR
    return '\n'.join([*out, '</svg>', ''])
