"""Remembers every ID that was given out, and counts those that were given out twice.

IDs come as half-open ranges, as batches are; what joins is kept as one, so that 10^8 of them and more fit into memory:
what is kept grows with the number of batches, and never with their size.
"""

import array
import collections

# Ranges that wait to be sorted in; 24 bytes each.
PENDING_MAX = 500_000
EXAMPLES = 5

Duplicate = collections.namedtuple("Duplicate", "begin end first second")


class _Scope:
    """The IDs of one tag, or of one snowflake cluster."""

    def __init__(self):
        self.count = 0
        self.duplicates = 0
        self.examples = []
        # Columns of ranges: begin, end, the taker that got it. The settled ones are ascending and disjoint.
        self.settled = [array.array("q") for _ in range(3)]
        self.pending = [array.array("q") for _ in range(3)]

    def add(self, begin, end, who):
        self.count += end - begin
        begins, ends, owners = self.pending
        # What goes on where the same taker's last one ended is one range with it.
        if ends and ends[-1] == begin and owners[-1] == who:
            ends[-1] = end
            return
        begins.append(begin)
        ends.append(end)
        owners.append(who)
        if len(begins) >= PENDING_MAX:
            self.settle()

    def settle(self):
        """Sorts in what is pending, and counts what is there already."""
        rows = sorted(zip(*self.pending))
        merged = [array.array("q") for _ in range(3)]
        begins, ends, owners = merged
        settled = zip(*self.settled)
        held = next(settled, None)
        index = 0
        while held is not None or index < len(rows):
            if held is not None and (index == len(rows) or held <= rows[index]):
                begin, end, who = held
                held = next(settled, None)
            else:
                begin, end, who = rows[index]
                index += 1
            if ends and begin < ends[-1]:
                again = min(end, ends[-1]) - begin
                self.duplicates += again
                if len(self.examples) < EXAMPLES:
                    self.examples.append(Duplicate(begin, begin + again, owners[-1], who))
                begin = ends[-1]
                if begin >= end:
                    continue
            if ends and begin == ends[-1] and owners[-1] == who:
                ends[-1] = end
            else:
                begins.append(begin)
                ends.append(end)
                owners.append(who)
        self.settled = merged
        self.pending = [array.array("q") for _ in range(3)]


class IdLedger:
    """Of any number of scopes, in which no ID may come twice. Not thread-safe."""

    def __init__(self):
        self._scopes = collections.defaultdict(_Scope)
        self._names = []
        self._numbers = {}

    def add(self, scope, begin, end, who):
        """`who` got [begin, end)."""
        if not 0 <= begin < end <= 1 << 63:
            raise AssertionError("%s got [%d, %d), which is no range of IDs" % (who, begin, end))
        if who not in self._numbers:
            self._numbers[who] = len(self._names)
            self._names.append(who)
        # One more than what fits into a column is no ID, but may be an end.
        self._scopes[scope].add(begin, min(end, (1 << 63) - 1), self._numbers[who])

    @property
    def count(self):
        """IDs given, each time counted."""
        return sum(scope.count for scope in self._scopes.values())

    def settle(self):
        for scope in self._scopes.values():
            scope.settle()

    @property
    def duplicates(self):
        """How often an ID was given out that a taker had already."""
        self.settle()
        return sum(scope.duplicates for scope in self._scopes.values())

    def examples(self):
        """Some of them, in words."""
        self.settle()
        return [
            "%s: [%d, %d) was given to %s and to %s" % (name, begin, end, self._names[first], self._names[second])
            for name, scope in self._scopes.items()
            for begin, end, first, second in scope.examples
        ]
