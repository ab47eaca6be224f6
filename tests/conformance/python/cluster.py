"""Uses a cluster of servers through the Python client riak 2.7.0, and goes on when a node dies.

Usage: cluster.py --protocol pbc|http --stop PID HOST:PB_PORT:HTTP_PORT ...

One client has the addresses of all nodes, as an application's does. It writes, reads, lists and queries
indexes; then the last of the nodes is killed (PID), with connections to it open in the client's pools.
From then on every request has to succeed as before: the client tries another node by itself. An object
that was written through one node is read through every other one.
"""
import argparse
import concurrent.futures
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import riak_compat  # noqa: E402,F401  before riak
import riak  # noqa: E402

KEYS = 40
# More than there are nodes, so that every connection of the client's pool is in use at a time.
THREADS = 12


class Cluster:
    """The client of all nodes, and one of each."""

    def __init__(self, protocol, places):
        self.protocol = protocol
        nodes = [dict(zip(("host", "pb_port", "http_port"), it.split(":"))) for it in places]
        for node in nodes:
            node.update(pb_port=int(node["pb_port"]), http_port=int(node["http_port"]))
        self.client = riak.RiakClient(protocol=protocol, nodes=nodes)
        self.each = [riak.RiakClient(protocol=protocol, nodes=[node]) for node in nodes]

    def pool(self):
        return self.client._http_pool if self.protocol == "http" else self.client._tcp_pool

    def connect(self):
        """Opens connections until the client has one to every node: it draws the nodes at random."""
        held = []
        while {id(it.object._node) for it in held} < {id(it) for it in self.client.nodes}:
            held.append(self.pool().acquire())
        for it in held:
            self.pool().release(it)

    def with_connection_to(self, node, action):
        """Runs `action` while the client's other connections are in use, so that it begins with that node."""
        held = []
        while not held or held[-1].object._node is not self.client.nodes[node]:
            held.append(self.pool().acquire())
        self.pool().release(held.pop())
        action()
        for it in held:
            self.pool().release(it)

    def bucket(self, client):
        return client.bucket("accounts-" + self.protocol)


def value(number):
    return {"number": number, "text": "x" * number}


def each(numbers, action):
    """Runs `action` for all numbers, several at a time; raises an exception that one of them raised."""
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(action, numbers))


def write(cluster, numbers):
    def write_one(number):
        account = cluster.bucket(cluster.client).new("account-%d" % number, data=value(number))
        account.add_index("number_int", number)
        account.store()

    each(numbers, write_one)


def read(cluster, clients, numbers):
    def read_one(number):
        for client in clients:
            account = cluster.bucket(client).get("account-%d" % number)
            expect(account.exists and account.data == value(number), "account %d" % number)

    each(numbers, read_one)


def change(cluster, numbers):
    """Reads and writes again with the context that was read: this makes no siblings."""
    def change_one(number):
        account = cluster.bucket(cluster.client).get("account-%d" % number)
        account.store()
        account.reload()
        expect(len(account.siblings) == 1, "account %d has siblings" % number)

    each(numbers, change_one)


def look(cluster, clients, count):
    """Lists and index queries are complete, and name each key once."""
    wanted = sorted("account-%d" % number for number in range(count))
    for client in clients:
        bucket = cluster.bucket(client)
        expect(sorted(bucket.get_keys()) == wanted, "a list of %d keys" % count)
        found = bucket.get_index("number_int", 0, count)
        expect(sorted(found.results) == wanted, "an index query of %d keys" % count)


def delete(cluster, clients, number):
    cluster.bucket(cluster.client).get("account-%d" % number).delete()
    for client in clients:
        account = cluster.bucket(client).get("account-%d" % number)
        expect(not account.exists, "account %d is deleted" % number)


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def is_met(cluster, node):
    """True when the client has seen a request fail at this node."""
    return cluster.client.nodes[node].error_rate.value() > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--protocol", choices=["pbc", "http"], required=True)
    parser.add_argument("--stop", type=int, required=True, metavar="PID")
    parser.add_argument("places", nargs="+")
    arguments = parser.parse_args()
    cluster = Cluster(arguments.protocol, arguments.places)
    left = cluster.each[:-1]

    def die():
        os.kill(arguments.stop, signal.SIGKILL)

    def go_on():
        gone = len(left)
        cluster.with_connection_to(gone, lambda: write(cluster, [KEYS]))
        expect(is_met(cluster, gone), "the client never met the node that is gone")
        write(cluster, range(KEYS + 1, 3 * KEYS))
        read(cluster, [cluster.client] * 2, range(3 * KEYS))
        change(cluster, range(KEYS))

    steps = [
        ("connects to all nodes", cluster.connect),
        ("writes by way of them", lambda: write(cluster, range(KEYS))),
        ("every node reads them", lambda: read(cluster, cluster.each, range(KEYS))),
        ("they are changed without siblings", lambda: change(cluster, range(KEYS))),
        ("every node lists and finds them", lambda: look(cluster, cluster.each, KEYS)),
        ("a node is killed", die),
        ("the client goes on with the others", go_on),
        ("these read all", lambda: read(cluster, left, range(3 * KEYS))),
        ("these list and find all", lambda: look(cluster, left, 3 * KEYS)),
        ("a delete holds", lambda: delete(cluster, left, 3 * KEYS - 1)),
    ]
    passed = failed = 0
    for name, step in steps:
        try:
            step()
            passed += 1
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print("FAILED %s: %s: %r" % (arguments.protocol, name, error), flush=True)
    print("%d passed, %d failed" % (passed, failed), flush=True)
    os._exit(1 if failed else 0)  # the client's pools may leave threads behind


if __name__ == "__main__":
    main()
