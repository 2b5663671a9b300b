"""Table II: how lines are counted, and that our small client stays below the paper's."""

from __future__ import annotations

from tocsin_labs.cqbs import paper, size

PYTHON = '''"""Words."""

import socket  # a comment

# ── base: packets ──
def one():
    """Words
    of two lines."""
    return (
        1,
    )


# ── failover: elsewhere ──
x = "# no comment"
'''
C = """/* Words
   of two lines. */
#include <stdio.h>

/* ── base: packets ── */
int main(void) { /* a comment */
    // another
    return 0;
}
"""


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    assert size.by_part(PYTHON, "Python") == {"base": 5, "failover": 1, "total": 6}
    assert size.by_part(C, "C") == {"base": 4, "total": 4}


def test_the_small_client_in_python_is_smaller_than_the_papers() -> None:
    found = size.measure()
    assert (
        sum(lines for part, lines in found["Python"].items() if part != "total") == found["Python"]["total"]
    )
    assert {"base", "failover", "subscriber", "publisher"} <= found["Python"].keys()
    assert 100 < found["Python"]["total"] < paper.LINES["Python"]["total"]
    assert 100 < found["C"]["total"] < paper.LINES["Go"]["total"]
