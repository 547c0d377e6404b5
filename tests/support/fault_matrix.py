"""A table of faults: for each, what shows that it happened, the IDs that were checked, those that came twice, and the
errors that the promise of that row does not allow.

A row is red if an ID came twice, if there was an error that it does not allow, if something that has to show that the
fault happened was counted 0 times, or if no ID was checked at all.
"""

import collections
import contextlib
import http.client
import json
import os
import threading
import time
import urllib.parse

from id_ledger import IdLedger

NO_ANSWER = "no answer"  # instead of an error's code: the connection was refused, reset or cut off
EXAMPLES = 5

Trouble = collections.namedtuple("Trouble", "asked_at answered_at code text")
Window = collections.namedtuple("Window", "began ended codes")


class Row:
    """One fault. Thread-safe.

    `needs`: names of what has to be counted at least once by `saw`, or nothing shows that the fault happened.
    """

    def __init__(self, name, fault, needs):
        if not needs:
            raise AssertionError("row %s would be believed without evidence" % name)
        self.name = name
        self.fault = fault
        self.seconds = 0.0
        self.evidence = dict.fromkeys(needs, 0)
        self.failure = ""
        self.notes = {}
        self._lock = threading.Lock()
        self._ledger = IdLedger()
        self._troubles = []
        self._allowed = []
        self._windows = []
        self._customers = []

    # ---- what happens

    def saw(self, what, times=1):
        with self._lock:
            self.evidence[what] = self.evidence.get(what, 0) + int(times)

    def note(self, what, value):
        """For the JSON; not judged."""
        self.notes[what] = value

    def got(self, scope, begin, end, who):
        with self._lock:
            self._ledger.add(scope, begin, end, who)

    def got_ids(self, scope, ids, who):
        for value in ids:
            self.got(scope, value, value + 1, who)

    def trouble(self, code, text, asked_at=None, answered_at=None):
        now = time.monotonic()
        trouble = Trouble(asked_at or now, answered_at or now, code, text)
        with self._lock:
            # Windows that are still open count, too: their end is not known yet.
            if any(
                code in window.codes
                and trouble.answered_at >= window.began
                and (window.ended is None or trouble.asked_at <= window.ended)
                for window in self._windows
            ):
                self._allowed.append(trouble)
            else:
                self._troubles.append(trouble)

    @contextlib.contextmanager
    def allowing(self, *codes):
        """Errors of these codes are within the promise, if the request overlaps with what happens inside."""
        window = Window(time.monotonic(), None, codes)
        with self._lock:
            self._windows.append(window)
        try:
            yield
        finally:
            with self._lock:
                self._windows[self._windows.index(window)] = window._replace(ended=time.monotonic())

    def customer(self, daemon, scopes, **more):
        customer = Customer(self, daemon, scopes, **more)
        self._customers.append(customer)
        return customer

    def stop_customers(self):
        for customer in self._customers:
            customer.stop()
        self._customers = []

    # ---- what came of it

    @property
    def ids(self):
        with self._lock:
            return self._ledger.count

    @property
    def duplicates(self):
        with self._lock:
            return self._ledger.duplicates

    @property
    def errors_allowed(self):
        return len(self._allowed)

    def refused(self, *codes):
        """How many of the errors that are allowed have one of these codes."""
        with self._lock:
            return sum(trouble.code in codes for trouble in self._allowed)

    def allowed_texts(self):
        with self._lock:
            return [trouble.text for trouble in self._allowed]

    @property
    def errors(self):
        """Those outside of the promise."""
        return len(self._troubles)

    def faults(self):
        """Why the row is red; nothing if it is not."""
        found = []
        if self.failure:
            found.append("it did not come to its end: " + self.failure)
        if self.duplicates:
            found.append("%d IDs twice: %s" % (self.duplicates, "; ".join(self._ledger.examples()[:EXAMPLES])))
        if self._troubles:
            found.append(
                "%d errors outside of the promise: %s"
                % (len(self._troubles), "; ".join("%s %s" % (t.code, t.text) for t in self._troubles[:EXAMPLES]))
            )
        missing = [what for what, times in self.evidence.items() if times <= 0]
        if missing or not self.evidence:
            found.append("nothing shows that it happened: " + ", ".join(missing))
        if self.ids == 0:
            found.append("no ID was checked")
        return found

    def as_json(self):
        faults = self.faults()
        return {
            "row": self.name,
            "fault": self.fault,
            "result": "red" if faults else "ok",
            "evidence": self.evidence,
            "ids": self.ids,
            "duplicates": self.duplicates,
            "errors": self.errors,
            "errors_allowed": self.errors_allowed,
            "seconds": round(self.seconds, 1),
            "why": faults,
            **({"notes": self.notes} if self.notes else {}),
        }


class Customer:
    """Takes IDs of the scopes ("snowflake", or a tag) from a daemon all the time, batch by batch, for a row.

    The daemon may be exchanged, and None: then it waits. IDs of one scope must increase as long as the daemon is the
    same. Whatever is no full answer is the row's trouble.
    """

    def __init__(self, row, daemon, scopes, count=20, pause=0.005, name="a customer", table=""):
        self.daemon = daemon
        self.count = count
        self._row = row
        self._scopes = scopes
        self._pause = pause
        self.name = name
        self._table = table
        self.taken = dict.fromkeys(scopes, 0)
        self._last = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join()

    def goes_on(self, times=5, timeout=180):
        """Until it was given that many batches more of each scope."""
        go_on([self], times, timeout)

    def _run(self):
        daemon = None
        while not self._stop.is_set():
            if self.daemon is not daemon:
                if daemon is not None:
                    daemon.disconnect()
                daemon = self.daemon
                self._last = {}
            if daemon is None:
                time.sleep(0.01)
                continue
            pause = self._pause
            for scope in self._scopes:
                if not self._take(daemon, scope):
                    pause = 0.02
            time.sleep(pause)
        if daemon is not None:
            daemon.disconnect()

    def _take(self, daemon, scope):
        asked_at = time.monotonic()
        try:
            code, text, ranges = take(daemon, scope, self.count)
        except (OSError, http.client.HTTPException, ValueError) as error:
            code, text, ranges = NO_ANSWER, repr(error), []
        if code:
            self._row.trouble(code, "%s: %s: %s" % (self.name, scope, text), asked_at, time.monotonic())
            return False
        for begin, end in ranges:
            self._row.got(scope_name(scope, self._table), begin, end, self.name)
            if begin < self._last.get(scope, 0):
                self._row.trouble(
                    "order", "%s: %s: %d after %d" % (self.name, scope, begin, self._last[scope]), asked_at
                )
            self._last[scope] = end
        self.taken[scope] += sum(end - begin for begin, end in ranges)
        return True


def go_on(customers, times=5, timeout=180):
    """Until each of them was given that many batches more of each of its scopes."""
    wanted = [{scope: taken + times * each.count for scope, taken in each.taken.items()} for each in customers]

    def missing():
        return [
            (each.name, scope, each.taken[scope], count)
            for each, counts in zip(customers, wanted)
            for scope, count in counts.items()
            if each.taken[scope] < count
        ]

    deadline = time.monotonic() + timeout
    while left := missing():
        if time.monotonic() > deadline:
            raise AssertionError("not within %g s (customer, scope, IDs, of): %r" % (timeout, left))
        time.sleep(0.02)


def scope_name(scope, table=""):
    """Among which IDs none may come twice. `table`: which one the tag is in, where there are several."""
    if scope == "snowflake":
        return scope
    return "tag %s of %s" % (scope, table) if table else "tag " + scope


def take(daemon, scope, count):
    """(error code or None, message, ranges) of one request."""
    path = "/v1/snowflake" if scope == "snowflake" else "/v1/segment/" + urllib.parse.quote(scope, safe="")
    response = daemon.get("%s?count=%d&form=range" % (path, count))
    answer = json.loads(response.body)
    if response.status != 200:
        return answer["code"], answer["message"], []
    ranges = [(int(item["begin"]), int(item["end"])) for item in answer["ranges"]]
    if sum(end - begin for begin, end in ranges) != count:
        return "incomplete", "%d asked for, got %r" % (count, ranges), []
    return None, "", ranges


class Table:
    """The rows that were run, in the order of `names`; written to a file, and beside it as JSON, when `path` is set."""

    def __init__(self, names, path=""):
        self.names = list(names)
        self.path = path
        self.rows = {}

    def add(self, row):
        self.add_json(row.as_json())
        self.write()

    def add_json(self, row):
        name = row["row"]
        if name not in self.names or name in self.rows:
            raise AssertionError("row %s is not announced, or there twice" % name)
        self.rows[name] = row

    def missing(self):
        return [name for name in self.names if name not in self.rows]

    def lines(self, all_names=True):
        """With those that were not run, or without."""
        head = ("row", "result", "IDs checked", "twice", "errors", "allowed", "seconds", "evidence")
        cells = [head]
        for name in self.names:
            row = self.rows.get(name)
            if row is None:
                if not all_names:
                    continue
                cells.append((name, "NOT RUN", "-", "-", "-", "-", "-", ""))
                continue
            evidence = ", ".join("%s %d" % item for item in row["evidence"].items())
            figures = (row["ids"], row["duplicates"], row["errors"], row["errors_allowed"], row["seconds"])
            cells.append((name, row["result"].upper(), *map(str, figures), evidence))
        rows = [self.rows[name] for name in self.names if name in self.rows]
        cells.append(
            ("all", "%d/%d" % (sum(row["result"] == "ok" for row in rows), len(self.names)),
             *(str(sum(row[key] for row in rows)) for key in ("ids", "duplicates", "errors", "errors_allowed")),
             str(round(sum(row["seconds"] for row in rows), 1)), "")
        )  # fmt: skip
        widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
        lines = []
        for line in cells:
            left = [text.ljust(width) for text, width in zip(line[:2], widths)]
            right = [text.rjust(width) for text, width in zip(line[2:7], widths[2:])]
            lines.append("  ".join([*left, *right, line[7]]).rstrip())
        for row in rows:
            lines += ["RED %s: %s" % (row["row"], why) for why in row["why"]]
        return lines

    def write(self):
        if not self.path:
            return
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines()) + "\n")
        with open(os.path.splitext(self.path)[0] + ".json", "w", encoding="utf-8") as file:
            json.dump({"rows": [self.rows[name] for name in self.names if name in self.rows], "not_run": self.missing()}, file, indent=1)
            file.write("\n")
