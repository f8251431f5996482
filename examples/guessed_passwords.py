"""Warn of accounts where three logins fail and then one succeeds, within five minutes.

python examples/guessed_passwords.py
"""

import lowwater as lw


def guessed(logins: lw.Stream) -> lw.MatchedStream:
    """Return successful logins (``user``, ``ok``, ``address``) after three that failed."""
    return logins.key_by("user").match(
        "failed{3,} ok",
        define={"failed": ~lw.col("ok"), "ok": lw.col("ok")},
        measures={
            "failed": lw.count(of="failed"),
            "addresses": lw.count_distinct("address"),
            "address": lw.last("address"),
        },
        within="5m",
    )


def main() -> None:
    logins = [
        {"at": f"2000-01-01T12:{at}Z", "user": user, "ok": ok, "address": address}
        for at, user, ok, address in [
            ("00:05", "ann", False, "10.0.0.7"), ("00:40", "ann", False, "10.0.0.8"),
            ("00:10", "bob", False, "10.0.0.2"), ("00:30", "bob", True, "10.0.0.2"),
            ("02:00", "ann", True, "10.0.0.9"), ("01:10", "ann", False, "10.0.0.9"),
        ]
    ]  # fmt: skip
    source = lw.from_iterable(logins, time="at", watermark=lw.BoundedDisorder("2m"))
    for login in guessed(source).run():
        failed, addresses = login.value["failed"], login.value["addresses"]
        print(f"{login.timestamp}  {login.key}: in after {failed} tries, {addresses} addresses")


if __name__ == "__main__":
    main()
