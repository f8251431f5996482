"""Sessions that a logout ends, or else half an hour without a record.

    python examples/logout_sessions.py

Windows of sessions can only merge: no record ends one. A pattern can, so this is a pattern.
"""

from datetime import UTC, datetime, timedelta

import lowwater as lw

GAP = timedelta(minutes=30)


def sessions(records: lw.Stream) -> lw.MatchedStream:
    """Return the sessions of records with ``at`` (a time), ``user`` and ``what``."""
    is_near = lw.col("at") - lw.prev("at") < GAP
    is_logout = lw.col("what") == "logout"
    return records.key_by("user").match(
        "first near* logout?",
        define={"first": ~is_logout, "near": is_near & ~is_logout, "logout": is_near & is_logout},
        measures={
            "records": lw.count(),
            "ended": lw.matched("logout").count() > 0,
            "path": lw.collect("what"),
        },
        within="1d",
    )


def main() -> None:
    noon = datetime(2000, 1, 1, 12, tzinfo=UTC)
    records = [
        {"at": noon + timedelta(minutes=minute), "user": "ann", "what": what}
        for minute, what in [
            (0, "login"), (10, "page"), (12, "logout"), (15, "login"), (40, "page"), (90, "page"),
        ]
    ]  # fmt: skip
    source = lw.from_iterable(records, time="at", watermark=lw.BoundedDisorder("5m"))
    for session in sessions(source).run():
        start, end = session.value["match_start"], session.value["match_end"]
        how = "logout" if session.value["ended"] else "gap"
        print(f"{session.key} {start:%H:%M} to {end:%H:%M} ({how}):", *session.value["path"])


if __name__ == "__main__":
    main()
