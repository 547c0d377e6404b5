"""Prometheus' text format, read."""

import re
import shutil
import subprocess

_SAMPLE = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$')
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?:,|$)')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


class Metrics:
    """Samples by name and labels. Every line has to be one, or a comment, and none may come twice."""

    def __init__(self, text):
        self.text = text
        self.types = {}
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                if name in self.types:
                    raise AssertionError("family %s comes twice" % name)
                self.types[name] = kind
                continue
            if line.startswith("# HELP ") or not line:
                continue
            found = _SAMPLE.match(line)
            if not found:
                raise AssertionError("no sample: %r" % line)
            labels = {
                name: re.sub(r'\\[n"\\]', lambda m: _ESCAPES[m.group()], value)
                for name, value in _LABEL.findall(found.group(2) or "")
            }
            key = (found.group(1), frozenset(labels.items()))
            if key in self.samples:
                raise AssertionError("sample twice: %r" % line)
            self.samples[key] = float(found.group(3))

    def get(self, name, default=None, **labels):
        return self.samples.get((name, frozenset(labels.items())), default)

    def values(self, name, label):
        """The label's value → the sample's, of all samples of that name."""
        return {dict(labels)[label]: value for (found, labels), value in self.samples.items() if found == name}

    def sum(self, name):
        return sum(value for (found, _), value in self.samples.items() if found == name)


def of(daemon):
    response = daemon.get("/metrics")
    if response.status != 200:
        raise AssertionError("%d %s" % (response.status, response.body))
    return Metrics(response.body)


def promtool_check(text):
    """What promtool finds wrong with it; "" for nothing."""
    tool = shutil.which("promtool")
    if not tool:
        raise AssertionError("there is no promtool: apt-get install prometheus")
    done = subprocess.run(
        [tool, "check", "metrics"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )
    output = done.stdout.decode("utf-8", "replace")
    return output or ("exit %d" % done.returncode if done.returncode else "")
