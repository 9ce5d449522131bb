"""Citation markers in an answer as it is written: `[1]`, `[1][2]`, `[1, 2]`, `[1-3]`.

A marker is held back until it is complete, then passed on as `[1][2]`. Numbers that no block of the context
has are left out, and in code (spans and fences) nothing is touched. However the text is cut into pieces, what
comes out is the same.
"""

from __future__ import annotations

import re

_MARKER = re.compile(r"\[\s*(\d+(?:\s*[,;–-]\s*\d+)*)\s*\]")
_NUMBERS = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")
_INSIDE = frozenset("0123456789 ,;-–")
_LONGEST = 64
_FENCE = 3


class Markers:
    """The markers of one answer to a context of `count` blocks. `used`: the numbers cited, in the order of
    their first use.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._used: dict[int, None] = {}
        self._held = ""  # white space, and what may become a marker
        self._out: list[str] = []
        self._code = ""  # the mark that closes the code we are in; "": none
        self._fenced = False
        self._run = ""  # backticks or tildes just seen
        self._run_leads = False  # whether they begin their line
        self._line = ""  # the line so far, while it is blank; then its first sign
        self._escaped = False

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers cited, in the order of their first use."""
        return tuple(self._used)

    def feed(self, text: str) -> str:
        """Return what of the answer so far may be shown."""
        for sign in text:
            self._step(sign)
        shown, self._out = "".join(self._out), []
        return shown

    def end(self) -> str:
        """Return the rest."""
        self._release()
        shown, self._out = "".join(self._out), []
        return shown

    def _step(self, sign: str) -> None:
        if self._run and sign != self._run[0]:
            self._run_ends()
        if self._code:
            self._pass(sign)
        elif "[" in self._held:
            self._in_marker(sign)
        elif sign in " \t" or (sign == "[" and not self._escaped):
            self._held += sign
        else:
            self._release()
            self._pass(sign)

    def _in_marker(self, sign: str) -> None:
        if sign in _INSIDE and len(self._held) < _LONGEST:
            self._held += sign
            return
        blank, _, inner = self._held.partition("[")
        found = _MARKER.fullmatch(f"[{inner}]") if sign == "]" else None
        if found is None:
            self._release()
            self._step(sign)
            return
        self._held = ""
        numbers = self._numbers(found[1])
        if numbers:
            self._used.update(dict.fromkeys(numbers))
            for each in blank + "".join(f"[{number}]" for number in numbers):
                self._pass(each)

    def _numbers(self, inner: str) -> list[int]:
        """The numbers of a marker that the context has, each once."""
        found: dict[int, None] = {}
        for first, last in _NUMBERS.findall(inner):
            end = min(int(last or first), self.count)
            found.update(dict.fromkeys(range(max(int(first), 1), end + 1)))
        return list(found)

    def _release(self) -> None:
        held, self._held = self._held, ""
        for sign in held:
            self._pass(sign)

    def _pass(self, sign: str) -> None:
        """Show a sign, and note where code begins and ends."""
        self._out.append(sign)
        self._escaped = sign == "\\" and not self._escaped and not self._code
        if sign in "`~" and (not self._run or self._run[0] == sign):
            if not self._run:
                self._run_leads = not self._line.strip()
            self._run += sign
        if sign == "\n":
            if not self._line.strip() and not self._fenced:
                self._code = ""  # a blank line ends what a lone backtick seemed to begin
            self._line = ""
        elif not self._line.strip():
            self._line += sign

    def _run_ends(self) -> None:
        run, self._run = self._run, ""
        leads = self._run_leads
        if not self._code:
            if leads and len(run) >= _FENCE:
                self._code, self._fenced = run, True
            elif run[0] == "`":
                self._code = run
        elif self._fenced:
            if leads and run[0] == self._code[0] and len(run) >= len(self._code):
                self._code, self._fenced = "", False
        elif run == self._code:
            self._code = ""
