#!/usr/bin/python3
"""Takes IDs by redis-py, as its README shows, and prints them, one a line.

Usage: redis_py_client.py PORT TAG COUNT alone|pipelined|pool|steady|error
"""

import sys
import threading
import time

import redis


def main():
    port, tag, count, mode = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    pool = redis.ConnectionPool(host="127.0.0.1", port=port, max_connections=8)
    client = redis.Redis(connection_pool=pool)
    if mode == "alone":
        for _ in range(count):
            print(client.incr(tag))
    elif mode == "pipelined":
        # A transaction, as redis-py's pipelines are unless told otherwise; then one that is none.
        for transaction in (True, False):
            pipeline = client.pipeline(transaction=transaction)
            for _ in range(count // 2):
                pipeline.incr(tag)
            for value in pipeline.execute():
                print(value)
    elif mode == "pool":
        ids = []

        def take():
            for _ in range(count // 8):
                ids.append(client.incr(tag))

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for value in ids:
            print(value)
    elif mode == "steady":
        taken = 0
        while taken < count:
            try:
                print(client.incr(tag), flush=True)
                taken += 1
            except redis.ConnectionError:
                time.sleep(0.02)
    elif mode == "error":
        try:
            client.incr(tag)
        except redis.ResponseError as error:
            print("%s" % error)


main()
