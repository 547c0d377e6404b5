"""Load on a daemon from h2load, which stays on schedule: it does not wait with the next request while one is late."""

import os
import re
import resource
import shutil
import subprocess
import tempfile

# Of one connection at a fixed rate: enough that a request is sent at its time however late the answers before it are.
PIPELINE = 1000


def raise_open_files(wanted=8192):
    """A connection is a file; children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, wanted)), hard))


def percentile(ordered, share):
    """Of a sorted list: the value that `share` of them are not above."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class LoadResult:
    """What came of a run of h2load."""

    def __init__(self, output, latencies_us):
        self.output = output
        found = re.search(
            r"^requests: (\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, "
            r"(\d+) failed, (\d+) errored, (\d+) timeout$",
            output, re.MULTILINE,
        )  # fmt: skip
        statuses = re.search(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx$", output, re.MULTILINE)
        finished = re.search(r"^finished in ([\d.]+)(us|ms|s|m|h)?, ([\d.]+) req/s", output, re.MULTILINE)
        if not found or not statuses or not finished:
            raise AssertionError("h2load says something else than expected:\n" + output)
        self.total = int(found.group(1))
        self.good = int(statuses.group(1))
        self.rate = float(finished.group(3))
        self._latencies_us = latencies_us

    @property
    def errors(self):
        """Requests that did not end with a 2xx, for whatever reason."""
        return self.total - self.good

    def latency_ms(self, share):
        """From the moment a request was due to the end of its answer."""
        return percentile(self._latencies_us, share) / 1000

    def why(self):
        return "\n".join(line for line in self.output.splitlines() if line and not line.startswith("progress"))


class Load:
    """A run of h2load in the background; `result` waits for it."""

    def __init__(self, url, requests, connections, rate=None, with_latencies=False, seconds=None, unix=None):
        """`url` may be a list, whose items take turns. With `seconds`, it goes on for so long, whatever `requests` is.

        With `unix`, the path of a socket, it connects there, and of the URL only the path counts.
        """
        tool = shutil.which("h2load")
        if not tool:
            raise AssertionError("there is no h2load: apt-get install nghttp2-client")
        self._log = None
        self._urls = None
        command = [tool, "--h1", "--clients=%d" % connections]
        if seconds is None:
            command.append("--requests=%d" % requests)
        else:
            command += ["--duration=%g" % seconds, "--warm-up-time=0"]
        if unix is not None:
            command.append("--base-uri=unix:" + unix)
        if rate is not None:
            # The rate is each connection's own.
            command += ["--rps=%g" % (rate / connections), "--max-concurrent-streams=%d" % PIPELINE]
        if with_latencies:
            handle, self._log = tempfile.mkstemp(prefix="leafctl-load-")
            os.close(handle)
            command.append("--log-file=" + self._log)
        if isinstance(url, list):
            handle, self._urls = tempfile.mkstemp(prefix="leafctl-load-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(item + "\n" for item in url)
            command.append("--input-file=" + self._urls)
        else:
            command.append(url)
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        for path in (self._log, self._urls):
            if path:
                os.unlink(path)
        self._log = self._urls = None

    def running(self):
        return self._process.poll() is None

    def result(self, timeout):
        try:
            output, _ = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError("h2load does not come to an end: requests hang") from None
        latencies = []
        if self._log:
            with open(self._log, encoding="ascii") as log:
                latencies = sorted(int(line.rsplit("\t", 1)[1]) for line in log)
        return LoadResult(output.decode("utf-8", "replace"), latencies)


def run(url, requests, connections, timeout, **more):
    """A whole run of h2load."""
    with Load(url, requests, connections, **more) as load:
        return load.result(timeout)
