"""The rows of the benchmark: what is measured, beside what, and what is aimed at.

A row is a function that gets the Bench and returns two lists with the samples of ours and of theirs, one for each
round. A sample is figure → value; FIGURES says what the figures are.
"""

import collections
import concurrent.futures
import json
import os
import re
import subprocess

import load
import metrics
import wrk
from leafctl import RawConnection
from measure import (
    LOAD_CORE,
    BenchError,
    Spawner,
    ask_unix,
    check_sample,
    ms_until,
    on_core,
    resident_mb,
    tool,
)
from yardsticks import (
    IdStatements,
    Redis,
    client_environment,
    client_flags,
    start_on_free_port,
    tickets_per_second,
)

LEAF = "/api/segment/get/pay"
V1 = "/v1/segment/pay?count=%d"
# Where the tag begins: all IDs of a run have as many digits.
FIRST_ID = 10**12
SNOWFLAKE_PER_S = 4096 * 1000
# Share of the requests of a fixed rate that h2load has to come to, or it has not measured what it was to.
ON_SCHEDULE = 0.95
# How much later the slow database answers.
SLOW_MS = 200

FIGURES = {
    "ids_per_s": "IDs/s",
    "calls_per_s": "calls/s",
    "requests_per_s": "requests/s",
    "cpu_us": "CPU µs/request",
    "ids_per_grant": "IDs/transaction",
    "p99_grants": "p99 in grants",
    "cpu_ns": "CPU ns/ID",
    "instructions": "instructions/request",
    "token_instructions": "of these the token",
    "system_calls": "system calls/request",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
    "wall_ms": "wall ms",
    "cpu_ms": "CPU ms",
    "ready_ms": "ready after ms",
    "resident_mb": "resident MB",
}

# What is aimed at: `of` is "ratio" or "ours", and it should be `at` "most" or "least" `value`.
Goal = collections.namedtuple("Goal", "of at value")
Row = collections.namedtuple("Row", "name ours theirs goals run")
ROWS = {}


def row(name, ours, theirs, **goals):
    def add(run):
        ROWS[name] = Row(name, ours, theirs, goals, run)
        return run

    return add


# ---- In process ----------------------------------------------------------------------------------------------------


def run_benchmarks(bench, program, names, seconds):
    """benchmark → items a second of each repetition; all are run interleaved, in an order drawn anew."""
    path = os.path.join(os.path.dirname(bench.binary), program)
    if not os.access(path, os.X_OK):
        raise BenchError("there is no %s beside leafctl: build the target %s" % (path, program))
    out = bench.path(program + ".json")
    done = subprocess.run(
        [path, "--benchmark_filter=^(%s)/" % "|".join(names), "--benchmark_min_time=%g" % seconds,
         "--benchmark_repetitions=%d" % bench.rounds, "--benchmark_enable_random_interleaving=true",
         "--benchmark_out=" + out, "--benchmark_out_format=json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != 0:
        raise BenchError("%s failed:\n%s" % (program, done.stdout.decode("utf-8", "replace")))
    with open(out, encoding="utf-8") as file:
        entries = [entry for entry in json.load(file)["benchmarks"] if entry["run_type"] == "iteration"]
    found = collections.defaultdict(list)
    for entry in entries:
        if entry.get("error_occurred") or entry.get("refused", 0) > 0:
            raise BenchError("%s: %r" % (program, entry))
        parts = entry["run_name"].split("/")
        # Of the library, or an argument.
        threads = int(parts[1]) if parts[1].isdigit() else entry.get("threads", 1)
        found[parts[0], threads].append(entry["items_per_second"])
    return found


def segment_row(threads, take, **goals):
    @row(
        "segment.take%d.%dt" % (take, threads),
        "Take(%d) of a segment, %d thread%s" % (take, threads, "s" if threads > 1 else ""),
        "fetch_add on one counter",
        **goals,
    )
    def run(bench):
        # One run for all of them.
        found = bench.once(
            "segment_bench",
            lambda: run_benchmarks(
                bench, "segment_bench", ["BM_FetchAdd", "BM_Take1", "BM_Take100"], bench.seconds / 10
            ),
        )
        ours = [{"calls_per_s": rate / take, "ids_per_s": rate} for rate in found["BM_Take%d" % take, threads]]
        theirs = [{"calls_per_s": rate, "ids_per_s": rate} for rate in found["BM_FetchAdd", threads]]
        if take == 1:
            for sample in ours + theirs:
                del sample["ids_per_s"]  # says the same
        return ours, theirs


for _threads, _least in ((1, 0.90), (2, 0.85)):
    segment_row(_threads, 1, calls_per_s=Goal("ratio", "least", _least))
    segment_row(_threads, 100)


def ceiling_row(threads):
    @row(
        "snowflake.ceiling.%dt" % threads,
        "snowflake IDs as fast as they come, %d thread%s" % (threads, "s" if threads > 1 else ""),
        "the layout's ceiling, 4096 a millisecond",
        ids_per_s=Goal("ratio", "least", 0.985),
    )
    def run(bench):
        # A shorter run would say more about what is left of the lead over the clock.
        seconds = 0.1 if bench.smoke else max(10, bench.seconds)
        found = bench.once(
            "snowflake_ceiling", lambda: run_benchmarks(bench, "snowflake_bench", ["BM_Ceiling"], seconds)
        )
        ours = [{"ids_per_s": rate} for rate in found["BM_Ceiling", threads]]
        if not bench.smoke and max(found["BM_Ceiling", threads]) > 1.01 * SNOWFLAKE_PER_S:
            raise BenchError("more IDs than the layout has: %r a second" % found["BM_Ceiling", threads])
        return ours, [{"ids_per_s": SNOWFLAKE_PER_S}] * len(ours)


ceiling_row(1)
ceiling_row(2)


@row(
    "snowflake.below",
    "one snowflake ID, 500 a millisecond",
    "one reading of the wall clock",
    cpu_ns=Goal("ours", "most", 20),
)
def snowflake_below(bench):
    found = run_benchmarks(bench, "snowflake_bench", ["BM_Below", "BM_ReadClock"], bench.seconds / 250)
    ours, theirs = ([{"cpu_ns": 1e9 / rate} for rate in found[name, 1]] for name in ("BM_Below", "BM_ReadClock"))
    return ours, theirs


# ---- HTTP ----------------------------------------------------------------------------------------------------------


def ask_hard(bench, url, pids, ids, connections, pipeline=1, headers=()):
    """A sample of wrk on one processor and a server on another."""
    before = sum(wrk.cpu_s(pid) for pid in pids)
    seconds = bench.whole_seconds
    with on_core(LOAD_CORE):
        result = wrk.run(url, connections, seconds, pipeline=pipeline, headers=headers)
        # On a bad disk the first answers may take longer than a short run.
        while result.requests == 0 and not result.errors and seconds < 60:
            seconds *= 4
            result = wrk.run(url, connections, seconds, pipeline=pipeline, headers=headers)
    cpu_s = sum(wrk.cpu_s(pid) for pid in pids) - before
    if result.errors or result.requests == 0:
        raise BenchError("%s: %d requests, errors %r" % (url, result.requests, result.errors))
    sample = {"requests_per_s": result.rate, "cpu_us": 1e6 * cpu_s / result.requests}
    if pipeline == 1:
        sample.update(p50_ms=result.p50_ms, p99_ms=result.p99_ms, p999_ms=result.p999_ms)
    if ids > 1:
        sample["ids_per_s"] = result.rate * ids
    return check_sample(url, sample), result.requests


def ask_ours(daemon, ids, ask):
    """What `ask` returns, having seen to it that as many IDs were issued as it was told."""
    before = daemon.tag_status("pay")["issued"]
    sample, requests = ask()
    issued = daemon.tag_status("pay")["issued"] - before
    if issued < requests * ids:
        raise BenchError("%d requests got %d IDs each, but only %d were issued" % (requests, ids, issued))
    return sample


def http_row(name, ours, path, body, connections=64, ids=1, pipeline=1, **goals):
    """`body`: where nginx answers with as many bytes."""

    @row("http." + name, ours, "nginx, the same bytes each time", **goals)
    def run(bench):
        daemon, nginx = bench.server(), bench.nginx()
        answer = daemon.get(path)
        if answer.status != 200 or len(answer.body) != len(NGINX_BODIES[body]):
            raise BenchError("%s: %d %s" % (path, answer.status, answer.body[:200]))
        return bench.alternate(
            lambda: ask_ours(
                daemon,
                ids,
                lambda: ask_hard(bench, daemon.url + path, [daemon.process.pid], ids, connections, pipeline),
            ),
            lambda: ask_hard(bench, nginx.url + body, nginx.pids(), 1, connections, pipeline)[0],
        )


NGINX_BODIES = {
    "/one": str(FIRST_ID),
    "/hundred": json.dumps({"ids": [str(FIRST_ID + number) for number in range(100)]}, separators=(",", ":")),
    "/range": json.dumps({"ranges": [{"begin": str(FIRST_ID), "end": str(FIRST_ID + 100)}]}, separators=(",", ":")),
}

AMPLE = (
    "--set", "server.threads=1",
    # A limit that no request meets is checked all the same.
    "--set", "server.max_requests_per_second=100000000", "--set", "server.max_tag_requests_per_second=100000000",
    "--set", "server.request_timeout=20s",
)  # fmt: skip

http_row("8", "one ID a call, 8 connections", LEAF, "/one", connections=8)
http_row(
    "64", "one ID a call, 64 connections", LEAF, "/one",
    requests_per_s=Goal("ratio", "least", 0.97), cpu_us=Goal("ratio", "most", 0.90), p99_ms=Goal("ratio", "most", 1.3),
)  # fmt: skip
http_row("256", "one ID a call, 256 connections", LEAF, "/one", connections=256)
http_row(
    "pipelined", "one ID a call, 16 calls in one go", LEAF, "/one", pipeline=16,
    requests_per_s=Goal("ratio", "least", 5),
)  # fmt: skip
http_row(
    "count100", "100 IDs a call", V1 % 100, "/hundred", ids=100,
    ids_per_s=Goal("ours", "least", 10e6),
)  # fmt: skip
http_row("range100", "100 IDs a call, as a range", (V1 % 100) + "&form=range", "/range", ids=100)


def tls_row(name, ours, headers=(), **goals):
    @row("tls." + name, ours, "nginx with the same certificate", **goals)
    def run(bench):
        daemon, nginx = bench.tls_server(), bench.tls_nginx()
        return bench.alternate(
            lambda: ask_ours(
                daemon, 1, lambda: ask_hard(bench, daemon.url + LEAF, [daemon.process.pid], 1, 64, headers=headers)
            ),
            lambda: ask_hard(bench, nginx.url + "/one", nginx.pids(), 1, 64, headers=headers)[0],
        )


tls_row("64", "one ID a call over TLS, 64 connections", cpu_us=Goal("ratio", "most", 1.1))
tls_row(
    "handshakes", "one ID a connection over TLS: a handshake each", headers=("Connection: close",),
    cpu_us=Goal("ratio", "most", 1.1),
)  # fmt: skip


def count_work(bench, box, *args, headers=()):
    """(instructions, system calls) a request, of what a daemon does from the bytes that have come to those that are to be
    sent. Readings of the clock count as calls there, which they are not elsewhere."""
    requests = 200 if bench.smoke else 5000
    out = bench.path("callgrind.out")
    binary, box.binary = box.binary, box.write(
        "counted",
        "#!/bin/sh\nexec '%s' --tool=callgrind --callgrind-out-file='%s' --collect-systime=yes "
        "--toggle-collect='leaf::server::HttpProtocol::Handle(leaf::server::Stream&)' '%s' \"$@\"\n"
        % (tool("valgrind"), out, box.binary),
        mode=0o700,
    )  # fmt: skip
    try:
        daemon = box.serve("--set", "server.threads=1", *args)
    finally:
        box.binary = binary
    with RawConnection(("127.0.0.1", daemon.port)) as connection:
        for _ in range(requests):
            answer = connection.get(LEAF, *headers)
            if answer is None or answer.status != 200:
                raise BenchError("no ID: %r" % (answer,))
    if daemon.terminate() != 0:
        raise BenchError("leafctl serve ended badly:\n" + daemon.log())
    with open(out, encoding="utf-8") as file:
        text = file.read()
    events = re.search(r"^events: (.*)$", text, re.MULTILINE)
    totals = re.search(r"^totals: (.*)$", text, re.MULTILINE)
    found = dict(zip(events.group(1).split(), map(int, totals.group(1).split()))) if events and totals else {}
    if found.get("Ir", 0) < 100 * requests or "sysCount" not in found:
        raise BenchError("callgrind has counted nothing: %r" % found)
    return found["Ir"] / requests, found["sysCount"] / requests


@row(
    "token", "one ID a call over HTTP, with a token", "the same without",
    token_instructions=Goal("ours", "most", 150), system_calls=Goal("ratio", "most", 1.05),
)  # fmt: skip
def token(bench):
    box = bench.counted_box()
    tokens = ("--set", "auth.tokens_file=" + box.path("tokens"))
    made = box.ok("token", "add", "bench", "--role", "ids", *tokens).splitlines()[-1]
    ours, theirs = [], []
    # No more rounds: it is no time that is measured.
    for flags, headers, samples in (((), (), theirs), (tokens, ("Authorization: Bearer " + made,), ours)):
        instructions, calls = count_work(bench, box, *flags, headers=headers)
        samples.append({"instructions": instructions, "system_calls": calls})
    ours[0]["token_instructions"] = max(1, ours[0]["instructions"] - theirs[0]["instructions"])
    return ours, theirs


def redis_benchmark(port, requests, depth, clients=50):
    """Calls a second, and p99 in milliseconds."""
    with on_core(LOAD_CORE):
        done = subprocess.run(
            [tool("redis-benchmark"), "-p", str(port), "-c", str(clients), "-n", str(requests), "-P", str(depth), "--csv",
             "INCR", "pay"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
    lines = [line.replace('"', "").split(",") for line in done.stdout.splitlines()]
    if done.returncode != 0 or done.stderr or len(lines) != 2:
        raise BenchError("redis-benchmark: %d %s%s" % (done.returncode, done.stdout, done.stderr))
    figures = dict(zip(lines[0], lines[1]))
    return float(figures["rps"]), float(figures["p99_latency_ms"])


def ask_redis(bench, port, pid, depth):
    """A sample of redis-benchmark on one processor and a server on another, and how many IDs it took."""
    warm_up = 5000 * depth
    rate, _ = redis_benchmark(port, warm_up, depth)
    requests = max(1000, int(rate * bench.seconds))
    before = wrk.cpu_s(pid)
    rate, p99 = redis_benchmark(port, requests, depth)
    cpu_s = wrk.cpu_s(pid) - before
    sample = {"requests_per_s": rate, "cpu_us": 1e6 * cpu_s / requests}
    if depth == 1:
        sample["p99_ms"] = p99
    return check_sample("redis-benchmark", sample), warm_up + requests


def redis_row(name, depth, theirs="Redis in memory", flags=(), **goals):
    @row("redis." + name, "INCR on the Redis port, 50 connections, %d in one go" % depth, theirs, **goals)
    def run(bench):
        daemon, redis = bench.server(), bench.pinned_redis("redis." + name, *flags)
        port = int(daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)").group(1))
        return bench.alternate(
            lambda: ask_ours(daemon, 1, lambda: ask_redis(bench, port, daemon.process.pid, depth)),
            lambda: ask_redis(bench, redis.port, redis.process.pid, depth)[0],
        )


redis_row(
    "1", 1,
    cpu_us=Goal("ratio", "most", 1.0), requests_per_s=Goal("ratio", "least", 1.0), p99_ms=Goal("ratio", "most", 1.0),
)  # fmt: skip
redis_row("16", 16, cpu_us=Goal("ratio", "most", 1 / 1.3))
redis_row("64", 64, cpu_us=Goal("ratio", "most", 1 / 1.5))
redis_row(
    "durable", 1, theirs="Redis that keeps what it says: appendfsync always",
    flags=("--appendonly", "yes", "--appendfsync", "always"),
)  # fmt: skip


def ask_steadily(url, pids, connections, what, unix=None, rate=None, requests=0, seconds=None):
    """A sample of h2load, which runs on the processor that the server does not have."""
    before = sum(wrk.cpu_s(pid) for pid in pids)
    with on_core(LOAD_CORE):
        result = load.run(
            url, int(requests), connections, 300, rate=rate, with_latencies=True, seconds=seconds, unix=unix
        )
    cpu_s = sum(wrk.cpu_s(pid) for pid in pids) - before
    if result.errors or result.good == 0:
        raise BenchError("%s: %s" % (what, result.why()))
    sample = {"requests_per_s": result.rate, "cpu_us": 1e6 * cpu_s / result.good}
    for figure, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        sample[figure] = result.latency_ms(share)
    return check_sample(what, sample), result.good


@row("http.unix", "one ID a call, 64 connections to the Unix socket", "nginx, there as well")
def unix(bench):
    daemon, nginx = bench.server(), bench.nginx()

    def ask(path, socket, pids):
        return ask_steadily("http://localhost" + path, pids, 64, path, unix=socket, seconds=bench.whole_seconds)

    return bench.alternate(
        lambda: ask_ours(daemon, 1, lambda: ask(LEAF, daemon.box.socket, [daemon.process.pid])),
        lambda: ask("/one", nginx.socket, nginx.pids())[0],
    )


# ---- Latency at a fixed rate ---------------------------------------------------------------------------------------


def half_rate(bench):
    """Half of what h2load gets out of the server, in requests a second."""

    def probe():
        daemon = bench.server()
        sample, _ = ask_steadily(daemon.url + LEAF, [daemon.process.pid], 64, "probe", seconds=bench.whole_seconds)
        return sample["requests_per_s"] / (20 if bench.smoke else 2)

    return bench.once("half_rate", probe)


def ask_at_half(bench, url, pids, seconds=None):
    rate = half_rate(bench)
    requests = rate * (seconds or bench.whole_seconds)
    sample, good = ask_steadily(url, pids, 64, "half load", rate=rate, requests=requests)
    if sample["requests_per_s"] < ON_SCHEDULE * rate and not bench.smoke:
        raise BenchError("h2load was to ask %.0f times a second, and asked %.0f" % (rate, sample["requests_per_s"]))
    return sample, good


@row(
    "latency.half_load", "one ID a call at half load, a fixed rate", "nginx at the same rate",
    p999_ms=Goal("ours", "most", 1),
)  # fmt: skip
def half_load(bench):
    daemon, nginx = bench.server(), bench.nginx()
    return bench.alternate(
        lambda: ask_ours(daemon, 1, lambda: ask_at_half(bench, daemon.url + LEAF, [daemon.process.pid])),
        lambda: ask_at_half(bench, nginx.url + "/one", nginx.pids())[0],
    )


@row(
    "latency.slow_database", "the same while the database takes %d ms longer for each answer" % SLOW_MS,
    "the same with the database as it is", p999_ms=Goal("ratio", "most", 1.3),
)  # fmt: skip
def slow_database(bench):
    rate = half_rate(bench)
    # A grant takes five round trips; nine tenths of a range, which are left when the next one is asked for, last longer.
    seconds = max(bench.whole_seconds, 3)
    with bench.slow_server(step=int(1.6 * rate)) as (daemon, proxy):
        pids = [daemon.process.pid]
        # Past a tenth of the first range, and until the reserve knows the rate.
        ask_at_half(bench, daemon.url + LEAF, pids, 1)

        def ask(delay_ms):
            proxy.delay(delay_ms)
            proxy.stats()
            sample = ask_ours(daemon, 1, lambda: ask_at_half(bench, daemon.url + LEAF, pids, seconds))
            held = proxy.stats()
            if held["round_trips"] == 0 or held["held_ms"]["min"] < delay_ms:
                raise BenchError("the database was not asked, or not slow: %r" % held)
            return sample

        return bench.alternate(lambda: ask(SLOW_MS), lambda: ask(0))


# ---- One process a call --------------------------------------------------------------------------------------------


def one_shot(bench, name, ours, our_env, theirs, their_env):
    """Wall time of processes that make an ID each, one of ours and one of theirs in turn."""
    runs = 3 if bench.smoke else max(50, 20 * bench.rounds)
    spawners = [Spawner(bench.folder, name + suffix) for suffix in (".ours", ".theirs")]

    def run(spawner, command, env):
        return dict(zip(("wall_ms", "cpu_ms"), spawner.run(command, env)))

    samples = bench.alternate(
        lambda: run(spawners[0], ours, our_env), lambda: run(spawners[1], theirs, their_env), rounds=runs
    )
    for spawner in spawners:
        spawner.check_ids(runs)
    return samples


@row(
    "oneshot.socket", "leafctl next, from a daemon's socket", "redis-cli INCR, over TCP",
    wall_ms=Goal("ratio", "most", 0.40),
)  # fmt: skip
def one_shot_socket(bench):
    box, redis = bench.server().box, bench.redis()
    return one_shot(
        bench, "socket", [box.binary, "next", "pay"], box.env,
        [tool("redis-cli"), "-p", str(redis.port), "INCR", "socket"], dict(os.environ),
    )  # fmt: skip


@row("oneshot.sqlite", "leafctl next --direct, on SQLite", "redis-cli INCR, over TCP (not durable)")
def one_shot_sqlite(bench):
    box, redis = bench.sqlite_box(), bench.redis()
    return one_shot(
        bench, "sqlite", [box.binary, "next", "pay", "--direct"], box.env,
        [tool("redis-cli"), "-p", str(redis.port), "INCR", "sqlite"], dict(os.environ),
    )  # fmt: skip


@row("oneshot.mysql", "leafctl next --direct, on MariaDB", "mariadb -e, one UPDATE, over TCP")
def one_shot_mysql(bench):
    box, server = bench.mysql_box(), bench.mariadb()
    statements = IdStatements.UPDATE.strip()
    return one_shot(
        bench, "mysql", [box.binary, "next", "pay", "--direct"], box.env,
        [tool("mariadb"), *client_flags(server), "-e", statements, bench.counters()], client_environment(),
    )  # fmt: skip


# ---- Straight from the database ------------------------------------------------------------------------------------


def database_row(name, theirs, statements):
    @row("database." + name, "one connection, one ID a call over HTTP", theirs)
    def run(bench):
        daemon, server = bench.server(), bench.mariadb()
        connection = IdStatements(server, bench.counters())
        try:

            def ask():
                sample = ask_ours(
                    daemon, 1, lambda: ask_hard(bench, daemon.url + LEAF, [daemon.process.pid], ids=1, connections=1)
                )
                return {"requests_per_s": sample["requests_per_s"]}

            return bench.alternate(ask, lambda: {"requests_per_s": connection.run(statements, bench.seconds)})
        finally:
            connection.close()


database_row("ticket", "a ticket server: REPLACE and LAST_INSERT_ID, one connection", IdStatements.TICKET)
database_row("update", "an UPDATE for each ID, one connection", IdStatements.UPDATE)


# ---- Strict tags ----------------------------------------------------------------------------------------------------


def seconds_of_grants(daemon):
    """How long all grants of the tag pay took together."""
    return metrics.of(daemon).get("leaf_tag_refill_duration_seconds_sum", 0.0, tag="pay")


def strict_row(callers, **goals):
    """Every ID waits for the database. Theirs: a ticket table, one connection for each caller. The database has a
    binary log, as each primary of replicas has: without it MariaDB lets the next caller have the row before the last
    commit is on the disk."""

    @row(
        "strict.%d" % callers,
        "a strict tag, one ID a call, %d connections" % callers,
        "a ticket table, %d connections: UPDATE … LAST_INSERT_ID" % callers,
        requests_per_s=Goal("ratio", "least", goals["least"]),
        **({"ids_per_grant": Goal("ours", "least", callers / 2)} if callers > 1 else {}),
        **({"p99_grants": Goal("ours", "most", 2.5)} if callers == 64 else {}),
    )
    def run(bench):
        daemon, server = bench.strict_server(), bench.primary()
        database = bench.primary_counters()
        rate = [20.0 * callers]

        def ours():
            before, spent_before = daemon.tag_status("pay"), seconds_of_grants(daemon)
            sample, _ = ask_hard(bench, daemon.url + LEAF, [daemon.process.pid], ids=1, connections=callers)
            after, spent = daemon.tag_status("pay"), seconds_of_grants(daemon) - spent_before
            grants = max(1, after["grants"] - before["grants"])
            return {
                "requests_per_s": sample["requests_per_s"],
                "p99_ms": sample["p99_ms"],
                "p99_grants": sample["p99_ms"] / (1e3 * spent / grants),
                "ids_per_grant": (after["issued"] - before["issued"]) / grants,
            }

        def theirs():
            # As long as ours, about; how many that is shows the time before.
            count = max(callers, int(rate[0] * bench.seconds))
            rate[0] = tickets_per_second(server, database, callers, IdStatements.UPDATE, count)
            return {"requests_per_s": rate[0]}

        theirs()
        return bench.alternate(ours, theirs)


strict_row(1, least=0.45)
strict_row(64, least=15)
strict_row(256, least=40)


@row(
    "strict.neighbour", "another tag at a steady rate, beside 64 callers of a strict tag",
    "the same beside 64 callers of a tag with a reserve, who ask as often", p99_ms=Goal("ratio", "most", 1.1),
)  # fmt: skip
def strict_neighbour(bench):
    daemon = bench.strict_server()
    for tag in ("reserved", "neighbour"):
        daemon.box.ok("tag", "add", tag, "--step", "1000000")
    url = daemon.url + LEAF[: -len("pay")]
    # Half of what the strict tag gives when its callers ask again at once.
    closed, _ = ask_hard(bench, url + "pay", [daemon.process.pid], ids=1, connections=64)
    rate = closed["requests_per_s"] / 2

    def beside(tag):
        seconds = bench.whole_seconds + 1
        with on_core(LOAD_CORE), concurrent.futures.ThreadPoolExecutor(1) as pool:
            crowd = pool.submit(load.run, url + tag, max(64, int(rate * seconds)), 64, 300, rate=rate)
            sample, _ = ask_steadily(
                url + "neighbour", [daemon.process.pid], 8, tag, rate=400, requests=400 * bench.whole_seconds
            )
            if crowd.result().errors:
                raise BenchError("%s: %s" % (tag, crowd.result().why()))
        return {"p50_ms": sample["p50_ms"], "p99_ms": sample["p99_ms"]}

    return bench.alternate(lambda: beside("pay"), lambda: beside("reserved"))


def strict_redis_row(callers):
    """On one machine, without another server: every answer is on the disk."""

    @row(
        "strict.redis%d" % callers,
        "INCR of a strict tag on SQLite, %d connections" % callers,
        "Redis with appendfsync always",
        requests_per_s=Goal("ratio", "least", 0.4),
    )
    def run(bench):
        daemon = bench.strict_sqlite_server()
        redis = bench.pinned_redis("redis.durable", "--appendonly", "yes", "--appendfsync", "always")
        port = int(daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)").group(1))

        def ask(of_port):
            warm_up, _ = redis_benchmark(of_port, 20 * callers, 1, callers)
            rate, p99 = redis_benchmark(of_port, max(callers, int(warm_up * bench.seconds)), 1, callers)
            return {"requests_per_s": rate, "p99_ms": p99}

        return bench.alternate(lambda: ask(port), lambda: ask(redis.port))


strict_redis_row(64)
strict_redis_row(256)


# ---- Start and memory ----------------------------------------------------------------------------------------------

READY = b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"


def time_start(bench, box):
    """A daemon, and the milliseconds until it said that it is ready."""
    began = bench.clock()
    daemon = box.serve(ready=False, listening=False)
    ms = ms_until(
        began, lambda: ask_unix(box.socket, READY).startswith(b"HTTP/1.1 200"), daemon.process, "leafctl serve"
    )
    daemon.wait_listening()
    return daemon, ms


def start_redis(bench, redis):
    """The same of a Redis."""

    def launch(port):
        began = bench.clock()
        redis.process = redis.launch(port)
        try:
            return ms_until(began, redis.is_up, redis.process, "redis-server")
        except BenchError:
            redis.close()
            return None

    return start_on_free_port(launch)


@row("start", "leafctl serve, from the process to ready", "redis-server, to its first answer")
def start(bench):
    box = bench.sqlite_box()
    redis = Redis(bench.path("redis-start"))
    redis.close()

    def ours():
        daemon, ms = time_start(bench, box)
        if daemon.terminate() != 0:
            raise BenchError("leafctl serve ended badly:\n" + daemon.log())
        return {"ready_ms": ms}

    def theirs():
        ms = start_redis(bench, redis)
        redis.close()
        return {"ready_ms": ms}

    return bench.alternate(ours, theirs)


def memory_row(tags, **goals):
    @row("memory.%d" % tags, "leafctl serve, tags in its table: %d" % tags, "redis-server with as many counters", **goals)
    def run(bench):
        count = max(1, tags // 100) if bench.smoke else tags
        box = bench.many_tags_box(count)
        redis = Redis(bench.path("redis-%d" % tags))
        redis.close()

        def ours():
            daemon, ms = time_start(bench, box)
            resident = bench.settled(lambda: resident_mb(daemon.process.pid))
            # Only now: the answer takes memory, too.
            known = json.loads(daemon.get("/v1/status?limit=0").body)["segment"]["tags_total"]
            if known != count:
                raise BenchError("%d tags instead of %d" % (known, count))
            daemon.terminate()
            return {"resident_mb": resident, "ready_ms": ms}

        def theirs():
            ms = start_redis(bench, redis)
            redis.fill(count)
            resident = bench.settled(lambda: resident_mb(redis.process.pid))
            redis.close()
            return {"resident_mb": resident, "ready_ms": ms}

        return bench.alternate(ours, theirs)


memory_row(1)
memory_row(10000)
memory_row(
    100000, resident_mb=Goal("ours", "most", 60), ready_ms=Goal("ours", "most", 1000)
)  # fmt: skip
