"""Decide on commands, store events, and compute the state from them: now, from a snapshot, again.

    python examples/event_sourcing.py

Commands to bank accounts are accepted as events or rejected with a reason. The log of events is the
only truth. Balances are computed from it, from its beginning or from a snapshot with the events
after it. When the rules change, the balances of both versions stand beside each other.
"""

import tempfile
from pathlib import Path
from typing import Any

import lowwater as lw
from lowwater.io import Log
from lowwater.io.sinks import Callback

COMMANDS = [
    ("12:00", "ann", "open", 0),
    ("12:01", "ann", "deposit", 100),
    ("12:02", "bob", "deposit", 10),  # there is no such account
    ("12:04", "ann", "withdraw", 80),
    ("12:03", "ann", "withdraw", 70),  # sent a minute before the 80, and arrives after it
    ("12:05", "cy", "open", 0),
    ("12:06", "cy", "deposit", 500),
    ("12:07", "cy", "withdraw", 200),
    ("12:08", "ann", "deposit", 5),
]


class Decide:
    """Accepts or rejects the commands to an account, in the order in which they were sent."""

    opened = lw.value_cell(False)
    balance = lw.value_cell(0)
    rejected = lw.output()

    def on_record(self, command: Any, ctx: lw.ProcessContext) -> None:
        what, amount = command["what"], command["amount"]
        change = {"open": 0, "deposit": amount, "withdraw": -amount}[what]
        if ctx.opened.get() is (what == "open"):
            reason = "it is open already" if ctx.opened.get() else "there is no such account"
        elif ctx.balance.get() + change < 0:
            reason = f"the balance is {ctx.balance.get()}"
        else:
            ctx.opened.set(True)
            ctx.balance.set(ctx.balance.get() + change)
            ctx.emit({"what": what, "amount": amount})
            return
        ctx.emit({"what": what, "amount": amount, "reason": reason}, tag="rejected")


class Balance:
    """Computes the balance of an account from its events, or from a snapshot and the events after.

    Args:
        fee: What the bank takes of each withdrawal.
    """

    balance = lw.value_cell(0)

    def __init__(self, fee: int = 0) -> None:
        self.fee = fee

    def on_record(self, event: Any, ctx: lw.ProcessContext) -> None:
        match event["what"]:
            case "snapshot" | "deposit":
                change = event["amount"]
            case "withdraw":
                change = -event["amount"] - self.fee
            case _:
                change = 0
        ctx.balance.set(ctx.balance.get() + change)
        ctx.emit({"balance": ctx.balance.get()})


def decided(commands: lw.Stream) -> lw.Processed:
    """Return the events; the rejected commands are the output ``rejected``."""
    return commands.key_by("account").process(Decide(), order="event_time")


def balances(events: lw.Stream, rules: Balance) -> lw.Table[lw.Stream]:
    """Return the table of balances."""
    computed = events.key_by("account").process(rules, order="event_time")
    return computed.to_stream().select("account", "balance").table(key="account")


def rows_of(arrow: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table or batch."""
    rows: list[dict[str, Any]] = arrow.to_pylist()
    return rows


def append_to(log: Log, delivery: Any) -> None:
    """Append the events of a delivery, unless they are in the log: after a crash it comes again."""
    end = log.latest[0]
    if end:
        with log.reader(start=end - 1) as reader:
            batch: Any = next(iter(reader))
        if delivery.id <= rows_of(batch.records)[-1]["delivery"]:  # ids sort as deliveries come
            return
    columns = ("account", "timestamp", "what", "amount")
    log.append(
        [{**row, "delivery": delivery.id} for row in rows_of(delivery.panes.select(columns))]
    )


def read(path: Path, start: int = 0) -> lw.Stream:
    """Return the events in a log from an offset on."""
    log = lw.read_log(path, time="timestamp", start=start, watermark=lw.Ascending())
    return log.select("account", "what", "amount")


def snapshot(table: lw.Table[lw.Stream]) -> lw.Stream:
    """Return balances as events, to go before the events after them."""
    rows = table.to_pandas().sort_values("timestamp")
    stored = lw.from_pandas(rows, time="timestamp", watermark=lw.Ascending())
    return stored.select("account", what=lw.lit("snapshot"), amount=lw.col("balance"))


def main(folder: Path) -> None:
    with Log(folder / "commands") as log:
        for at, account, what, amount in COMMANDS:
            command = {"at": f"2000-01-01T{at}:00Z", "account": account}
            log.append([{**command, "what": what, "amount": amount}])
    commands = lw.read_log(folder / "commands", time="at", watermark=lw.BoundedDisorder("1m"))
    accepted = decided(commands)
    snapshots: list[tuple[int, lw.Stream]] = []

    def store(delivery: Any) -> None:
        append_to(log, delivery)
        computed = balances(read(folder / "events"), Balance())
        snapshots.append((log.latest[0], snapshot(computed)))

    def report(delivery: Any) -> None:
        for row in rows_of(delivery.panes):
            print("rejected:", row["account"], row["what"], row["amount"], "-", row["reason"])

    with Log(folder / "events") as log:
        lw.run(
            accepted.write_to(Callback(store)),
            accepted.output("rejected").write_to(Callback(report)),
            state=folder / "state",
            bundle_size=6,
            commit_every="bundle",
            progress=False,
        )
    events = read(folder / "events")
    for row in balances(events, Balance()).rows():
        print("from the beginning:", row)
    at, saved = snapshots[0]
    for row in balances(saved | read(folder / "events", at), Balance()).rows():
        print(f"from the snapshot at offset {at}:", row)
    old, new = balances(events, Balance()), balances(events, Balance(fee=2))
    for row in old.join(new, on="account", suffixes=("_old", "_new")).rows():
        print("both versions:", row)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
