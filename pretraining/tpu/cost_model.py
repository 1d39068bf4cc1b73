"""The time of a compiled program by the cost model of libtpu's compiler.

The compiler writes `estimated_cycles` beside each operation of the program that the chip will run.
Their sum is an estimate, not a measurement: compare two programs for the same chip. It is the same
in every compilation.
"""

import re

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_OPERATION = re.compile(r"= .*? ([a-z\-]+)\(")
_CYCLES = re.compile(r'estimated_cycles":"(\d+)"')
_BRANCHES = re.compile(
    r"(?:true_computation=|false_computation=|branch_computations=)({[^}]*}|\S+)"
)
_NAME = re.compile(r"[\w.\-]+")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_BOUND = re.compile(r"s32\[\][^=]*constant\((\d+)\)")


def estimated_cycles(program: str, steps: int = 0) -> int:
    """Return the cycles of an optimized HLO module in text form; a loop's body counts each trip.

    Of the branches of a conditional, the longest counts. A loop whose trips the compiler does not
    state runs to the largest constant of its condition. If that has none because the loop counts
    down to 0, as the backward pass of a loop over layers does, it runs as often as the longest loop
    beside it. The loop over `steps` counts with 64 bits, in two numbers, and is alone in the entry
    computation.

    Raises:
      ValueError: no other loop tells the trips of such a loop.
    """
    return _Program(program, steps).cycles()


class _Program:
    def __init__(self, text: str, steps: int) -> None:
        self.steps = steps
        self.lines: dict[str, list[str]] = {}
        name = ""
        for line in text.splitlines():
            if head := _COMPUTATION.match(line):
                name = head[2]
                self.lines[name] = []
                if head[1]:
                    self.entry = name
            elif name:
                self.lines[name].append(line)

    def cycles(self, name: str = "") -> int:
        total = 0
        for line in self.lines.get(name or self.entry, []):
            operation = _OPERATION.search(line)
            if operation is None:
                continue
            if operation[1] == "while":
                trips = self._bound(line) or self._longest(name or self.entry)
                total += trips * self.cycles(_attribute(line, "body"))
            elif operation[1] == "call":
                total += self.cycles(_attribute(line, "to_apply"))
            elif operation[1] == "conditional":
                branches = _NAME.findall(" ".join(_BRANCHES.findall(line)))
                total += max(map(self.cycles, branches))
            elif cycles := _CYCLES.search(line):
                total += int(cycles[1])
        return total

    def _longest(self, name: str) -> int:
        """Return the trips of the longest loop of a computation whose trips are known."""
        trips = max(self._bound(line) for line in self.lines[name] if " while(" in line)
        if name == self.entry:
            trips = trips or self.steps
        if not trips:
            raise ValueError(f"the trips of a loop in {name} are unknown.")
        return trips

    def _bound(self, line: str) -> int:
        """Return the trips of a loop that counts up from 0, or 0 if they are unknown."""
        if known := _TRIPS.search(line):
            return int(known[1])
        condition = self.lines[_attribute(line, "condition")]
        return max((int(n) for line in condition for n in _BOUND.findall(line)), default=0)


def _attribute(line: str, name: str) -> str:
    match = re.search(rf"{name}=%?([\w.\-]+)", line)
    assert match is not None, f"an operation without {name}: {line[:200]}"
    return match[1]
