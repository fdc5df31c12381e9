"""stepnet.Error: what was wrong, where, and what would be right."""

from __future__ import annotations


class Error(RuntimeError, ValueError):
    """A mistake of the caller.

    `fact` says what is wrong, `fix` what would be right ("" if that is not known), and `lines` where it is: pairs of a
    label ("in": a place in a net, "op": an operator, "at": a line of a program) and a text.
    """

    def __init__(self, fact: str, fix: str = "", lines: list[tuple[str, str]] | None = None) -> None:
        self.fact, self.fix, self.lines = fact, fix, list(lines or [])
        text = fact + "".join(f"\n  {label:<3} {line}" for label, line in self.lines)
        super().__init__(text + (f"\n  fix {fix}" if fix else ""))

    def __reduce__(self):
        return Error, (self.fact, self.fix, self.lines)

    def _first(self, label: str) -> str:
        return next((line for name, line in self.lines if name == label), "")

    @property
    def place(self) -> str:
        """Where in a net, "" if that is not known: file, line and column, operator and net."""
        return self._first("in")

    @property
    def operator(self) -> str:
        """The operator as it was called, "" if it was none."""
        return self._first("op")
