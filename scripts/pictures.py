#!/usr/bin/env python3
"""Makes the pictures of the dashboard in README, of a real daemon under a small load, in doc/pictures.

Usage: pictures.py    with build/release/leafctl; needs Debian's packages chromium and chromium-driver
"""

import os
import random
import shutil
import sys
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
os.environ.setdefault("LEAFCTL", os.path.join(ROOT, "build", "release", "leafctl"))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from browser import Browser  # noqa: E402
from leafctl import Sandbox  # noqa: E402

FOLDER = os.path.join(ROOT, "doc", "pictures")
WIDTH, HEIGHT = 1180, 640
STATE = "/tmp/leaf-demo"
# Requests a second of each tag, and the step that suits them.
TAGS = {"order": (60, 50_000), "payment": (25, 20_000), "shipment": (10, 10_000), "user": (3, 2_000), "coupon": (0, 2_000)}
# The charts show five minutes.
SECONDS = 270


def load(daemon, path, per_second, stop):
    while not stop.wait(1 / per_second * random.uniform(0.5, 1.5)):
        daemon.get(path)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    box = Sandbox()
    browser = Browser()
    stop = threading.Event()
    threads = []
    try:
        for tag, (_, step) in TAGS.items():
            box.ok("tag", "add", tag, "--step", str(step), "--state-dir", STATE)
        daemon = box.serve(
            "--state-dir", STATE, "--set", "snowflake.cluster=shop", "--set", "snowflake.worker_id=7",
            "--set", "server.socket=",
        )  # fmt: skip
        loads = [("/v1/segment/%s?count=5" % tag, per_second) for tag, (per_second, _) in TAGS.items() if per_second]
        for path, per_second in [*loads, ("/v1/snowflake?count=500", 20)]:
            threads.append(threading.Thread(target=load, args=(daemon, path, per_second, stop)))
            threads[-1].start()
        browser.resize(WIDTH, HEIGHT)
        browser.open(daemon.url + "/")
        time.sleep(SECONDS)
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            time.sleep(1)
            path = os.path.join(FOLDER, "dashboard-%s.png" % scheme)
            browser.screenshot(path)
            print("%s: %d KB" % (path, os.path.getsize(path) // 1024))
        stop.set()
        for thread in threads:
            thread.join()
        daemon.terminate()
    finally:
        stop.set()
        browser.close()
        box.close()
        shutil.rmtree(STATE, ignore_errors=True)


if __name__ == "__main__":
    main()
