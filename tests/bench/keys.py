"""Which ID is best for the key of a table: rows inserted into InnoDB and SQLite under primary keys of each kind.

Usage: bench.sh keys [--rows N] [--pool MIB] [--only innodb|sqlite] [--json FILE]
"""

import argparse
import datetime
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from servers import MariaDb  # noqa: E402

ROWS_A_TRANSACTION = 100
EPOCH_MS = 1288834974657
PAGE = 16384

# Name, type in InnoDB, type in SQLite, and whether it is written as a text.
KINDS = (
    ("segment", "BIGINT", "INTEGER", False),
    ("snowflake", "BIGINT", "INTEGER", False),
    ("uuidv7", "BINARY(16)", "BLOB", False),
    ("uuidv4", "BINARY(16)", "BLOB", False),
    ("uuidv4_text", "CHAR(36) CHARACTER SET ascii", "TEXT", True),
    ("code", "CHAR(13) CHARACTER SET ascii", "TEXT", True),
)


def snowflakes(count):
    """As four nodes give them out at 4000 IDs a millisecond together: in the order of time, their workers mixed."""
    start = int(time.time() * 1000) - EPOCH_MS
    sequence = [0] * 4
    last = -1
    for i in range(count):
        now = start + i // 4000
        if now != last:
            sequence, last = [0] * 4, now
        worker = random.randrange(4)
        yield now << 22 | worker << 12 | sequence[worker]
        sequence[worker] += 1


def uuid_of(snowflake):
    """As lib/leaf/base/id_text.h has it."""
    low = snowflake & (1 << 22) - 1
    bits = (EPOCH_MS + (snowflake >> 22)) << 80 | 7 << 76 | (low >> 10) << 64 | 2 << 62 | (low & 0x3FF) << 52
    return bits.to_bytes(16, "big")


def codes(count, folder):
    """Real ones, of the IDs 1 to `count`, without their hyphens."""
    environment = {**os.environ, "HOME": folder, "LEAFCTL_STATE_DIR": os.path.join(folder, "state")}
    key = os.path.join(folder, "key")
    leafctl = os.environ["LEAFCTL"]
    subprocess.run([leafctl, "code", "keygen", key], env=environment, check=True, stdout=subprocess.DEVNULL)
    environment.update(LEAFCTL_CODES_KEY_FILE=key, LEAFCTL_CODES_GROUP="0")
    subprocess.run([leafctl, "tag", "add", "bench"], env=environment, check=True, stdout=subprocess.DEVNULL)
    made = subprocess.run(
        [leafctl, "code", "of", "bench"], input="\n".join(map(str, range(1, count + 1))), env=environment,
        check=True, stdout=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip
    return made.stdout.split()


def keys(kind, count, folder):
    if kind == "segment":
        return range(1, count + 1)
    if kind == "snowflake":
        return snowflakes(count)
    if kind == "uuidv7":
        return (uuid_of(each) for each in snowflakes(count))
    if kind == "uuidv4":
        return (uuid.UUID(int=random.getrandbits(128), version=4).bytes for _ in range(count))
    if kind == "uuidv4_text":
        return (str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(count))
    return codes(count, folder)


def rest(i):
    """The other columns of a row: a customer, with an index of its own, a time and a text."""
    return random.randrange(100_000), 1_700_000_000 + i, "order %030d" % i


class InnoDb:
    name = "innodb"

    def __init__(self, pool_mib):
        self.server = MariaDb()
        self.server.sql("CREATE DATABASE bench; SET GLOBAL innodb_buffer_pool_size=%d" % (pool_mib << 20))
        self.pool = int(self.server.sql("SELECT @@global.innodb_buffer_pool_size")[0][0])

    def close(self):
        self.server.close()

    def status(self, name):
        return int(self.server.sql("SHOW GLOBAL STATUS LIKE '%s'" % name)[0][1])

    def insert(self, kind, column, is_text, rows):
        table = "t_" + kind
        self.server.sql(
            "CREATE TABLE %s (id %s NOT NULL PRIMARY KEY, customer INT NOT NULL, created INT NOT NULL, "
            "note CHAR(40) CHARACTER SET ascii NOT NULL, KEY (customer)) ENGINE=InnoDB" % (table, column), "bench"
        )  # fmt: skip
        with tempfile.TemporaryFile("w+", encoding="ascii") as script:
            batch = []
            for key, (customer, created, note) in rows:
                text = "x'%s'" % key.hex() if isinstance(key, bytes) else "'%s'" % key if is_text else str(key)
                batch.append("(%s,%d,%d,'%s')" % (text, customer, created, note))
                if len(batch) == ROWS_A_TRANSACTION:
                    script.write("INSERT INTO %s VALUES %s;\n" % (table, ",".join(batch)))
                    batch = []
            script.seek(0)
            reads, began = self.status("Innodb_buffer_pool_reads"), time.monotonic()
            subprocess.run(
                [self.server.client, "--no-defaults", "--socket", self.server.socket, "bench"], stdin=script, check=True
            )
            took = time.monotonic() - began
        reads = self.status("Innodb_buffer_pool_reads") - reads
        self.server.sql("ANALYZE TABLE " + table, "bench")
        pages = int(self.server.sql(
            "SELECT (data_length + index_length) DIV %d FROM information_schema.tables "
            "WHERE table_schema = 'bench' AND table_name = '%s'" % (PAGE, table))[0][0])  # fmt: skip
        self.server.sql("DROP TABLE " + table, "bench")
        return took, pages, pages * PAGE, reads


class Sqlite:
    name = "sqlite"

    def __init__(self, pool_mib):
        self.pool = pool_mib << 20

    def close(self):
        pass

    @staticmethod
    def bytes_read():
        with open("/proc/self/io", encoding="ascii") as file:
            return int(file.readline().split()[1])

    def insert(self, kind, column, is_text, rows):
        del kind, is_text
        rows = [(key, *others) for key, others in rows]
        with tempfile.TemporaryDirectory(prefix="leafctl-keys-") as folder:
            path = os.path.join(folder, "keys.db")
            database = sqlite3.connect(path, isolation_level=None)
            database.executescript(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-%d;"
                "CREATE TABLE t (id %s NOT NULL PRIMARY KEY, customer INTEGER NOT NULL, created INTEGER NOT NULL, "
                "note TEXT NOT NULL)%s; CREATE INDEX by_customer ON t (customer)"
                % (self.pool >> 10, column, "" if column == "INTEGER" else " WITHOUT ROWID")
            )  # fmt: skip
            read, began = self.bytes_read(), time.monotonic()
            for at in range(0, len(rows), ROWS_A_TRANSACTION):
                database.execute("BEGIN")
                database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows[at : at + ROWS_A_TRANSACTION])
                database.execute("COMMIT")
            took, read = time.monotonic() - began, self.bytes_read() - read
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = database.execute("PRAGMA page_count").fetchone()[0]
            page = database.execute("PRAGMA page_size").fetchone()[0]
            database.close()
            return took, pages, os.path.getsize(path), read // page


def run(options):
    count = options.rows // ROWS_A_TRANSACTION * ROWS_A_TRANSACTION
    figures = []
    for engine in (InnoDb, Sqlite):
        if options.only not in (None, engine.name):
            continue
        store = engine(options.pool)
        try:
            print("%s, %d rows, a pool of %d MiB:" % (store.name, count, store.pool >> 20))
            print("  %-12s %10s %8s %8s %12s" % ("key", "rows/s", "pages", "MiB", "pages read"))
            for kind, innodb, sqlite, is_text in KINDS:
                with tempfile.TemporaryDirectory(prefix="leafctl-keys-") as folder:
                    rows = ((key, rest(i)) for i, key in enumerate(keys(kind, count, folder)))
                    took, pages, size, reads = store.insert(
                        kind, innodb if engine is InnoDb else sqlite, is_text, rows
                    )
                print("  %-12s %10.0f %8d %8.1f %12d" % (kind, count / took, pages, size / 2**20, reads), flush=True)
                figures.append({"engine": store.name, "key": kind, "rows": count, "rows_per_s": count / took,
                                "pages": pages, "bytes": size, "pages_read": reads, "pool": store.pool})  # fmt: skip
        finally:
            store.close()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"at": datetime.datetime.now().isoformat(timespec="seconds"), "keys": figures}, file, indent=1)
            file.write("\n")


def main():
    parser = argparse.ArgumentParser(prog="bench.sh keys", description="inserts rows under keys of each kind")
    parser.add_argument("--rows", type=int, default=300_000, help="rows of each table (default 300000)")
    parser.add_argument("--pool", type=int, default=16, metavar="MIB", help="memory for pages (default 16)")
    parser.add_argument("--only", choices=("innodb", "sqlite"), help="one of the two")
    parser.add_argument("--json", metavar="FILE", help="where to write the figures")
    random.seed(24)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
