"""Regular expressions that may run on rows: those that are not too large for RE2.

RE2 matches in linear time, but each character may take as many steps as the pattern has parts when
counted repetitions are written out, `a{3}` as `aaa`: 30 microseconds for one character with
`(.{0,400}a){2}.{400}z`. Repetitions within repetitions multiply, so few characters are enough.
"""

from __future__ import annotations

import re

from dpsql.errors import UnsupportedSqlError

_COUNTED = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_ESCAPED = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|[xpP]\{[^}]*\}|.|\Z)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*(?:\]|\Z)", re.DOTALL)
_REPEATS = "*+?"
_MOST_COPIES = 100
_LONGEST_PATTERN = 1_000


def check_pattern(pattern: str, options: str) -> None:
    """Check that a regular expression may run on rows.

    Raises:
        UnsupportedSqlError: it is too large, or has options that aren't listed.
    """
    if len(pattern) > _LONGEST_PATTERN or set(options) - set("ceilmnps"):
        raise UnsupportedSqlError(
            f"A regular expression on rows has at most {_LONGEST_PATTERN} characters, and options "
            "of c, e, i, l, m, n, p and s.",
            hint="write several conditions, joined by OR.",
        )
    added = copies(pattern)
    if added > _MOST_COPIES:
        raise UnsupportedSqlError(
            f"The counted repetitions in this regular expression add {added} parts, and on rows "
            f"they may add at most {_MOST_COPIES}.",
            hint="write * or + for them, and compare length(…) where the number matters.",
        )


def copies(pattern: str) -> int:
    """Return how many parts the counted repetitions of a pattern add to it; never too few."""
    groups, last, added, place = [0], 0, 0, 0  # parts of each open group, and of what came last
    while place < len(pattern):
        counted = _COUNTED.match(pattern, place)
        part = counted or _ESCAPED.match(pattern, place) or _CLASS.match(pattern, place)
        sign = "" if part is not None else pattern[place]
        if counted is not None:
            low, more, high = counted.groups()
            times = max(int(low or 0) + bool(more and not high), int(high or 0), 1)
            groups[-1] += last * (times - 1)
            added += last * (times - 1)
            last *= times
        elif sign == "(":
            groups.append(0)
        elif sign == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif not sign or sign not in _REPEATS:
            last = 1
            groups[-1] += 1
        place = place + 1 if part is None else part.end()
    return added
