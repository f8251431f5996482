"""``search``: what it takes, what it refuses, and how it describes itself (J-15 to J-17)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.admit_words import HAS_NO_WORD

LISTS = pa.list_(pa.string())


def stream(*rows: tuple[Any, ...], columns: str = "ad words", **options: Any) -> lw.Stream:
    """Return records; each comes a second after the one before."""
    names = columns.split()
    records = [
        {"at": lw.Instant(at * 1_000_000), **dict(zip(names, row, strict=True))}
        for at, row in enumerate(rows)
    ]
    return lw.from_iterable(records, time="at", watermark=lw.Ascending(), **options).select(*names)


QUERIES = stream((1, ["red", "car"]), (2, ["bike"]), (3, []), columns="query words")
ADS = stream(*((n, words) for n, words in enumerate([["a"]] * 3 + [["red", "x", "car"], ["bike"]])))


def pairs(found: lw.JoinedStream, **options: Any) -> list[tuple[Any, Any]]:
    return [(one.value["ad"], one.key) for one in found.run(**options)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_all_or_any(size: int) -> None:
    assert pairs(ADS.search(QUERIES, on="words", key="query"), bundle_size=size) == [(3, 1), (4, 2)]
    more = stream(*ADS_OF_ONE, (9, None), (9, [None]))
    any_of = more.search(QUERIES, on="words", key="query", match="any")
    assert pairs(any_of, bundle_size=size) == [(3, 1), (4, 1), (4, 2)]


ADS_OF_ONE = [(0, []), (1, []), (2, []), (3, ["car"]), (4, ["bike", "red", "bike"])]


def test_words_are_equal_as_keys_are() -> None:
    """J-15, J-1: 1 and 1.0 are equal, and 1 and "1" are not."""
    queries = stream((1, [1]), (2, ["1"]), (3, [2**53 + 1]), columns="query words")
    ads = stream((0, []), (1, []), (2, []), (3, [1.0]), (4, ["1"]), (5, [float(2**53)]))
    assert pairs(ads.search(queries, on="words", key="query")) == [(3, 1), (4, 2)]


def test_columns_and_suffixes() -> None:
    found = ADS.search(QUERIES, on="words", key="query")
    assert found.to_stream().columns == ("query", "at", "ad", "words", "at_query", "words_query")
    other = ADS.search(QUERIES, on="words", key="query", suffixes=("_ad", "_of"))
    assert other.to_stream().columns == ("query", "at_ad", "ad", "words_ad", "at_of", "words_of")


def test_types_are_known_without_a_row() -> None:
    at = ("at", pa.timestamp("us", "UTC"))
    ads = pa.schema([at, ("ad", pa.int32()), ("words", LISTS)]).empty_table()
    queries = pa.schema([at, ("query", pa.string()), ("words", LISTS)]).empty_table()
    left, right = (lw.from_arrow(table, time="at") for table in (ads, queries))
    schema = left.select("ad", "words").search(right, on="words", key="query").to_stream()._schema
    assert schema is not None
    assert schema.field("query").type == pa.string()
    assert schema.field("words_query").type == LISTS


def test_a_null_is_a_query_like_others() -> None:
    """J-15."""
    queries = stream((None, ["car"]), (None, ["bike"]), (1, []), columns="query words")
    ads = stream(*[(n, ["car", "bike"]) for n in range(4)])
    found = ads.search(queries, on="words", key="query").run()
    assert [(one.value["ad"], one.value["words_query"]) for one in found] == [
        (0, ["car"]), (1, ["bike"]), (2, ["bike"]), (3, ["bike"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other"), [(-1, -2), (0, 2**61 - 1), (7, 7 - 2**61 + 1), (float("inf"), 314159)]
)
def test_what_has_the_hash_of_another_is_not_equal_to_it(one: Any, other: Any) -> None:
    """J-15: of ids, and of words."""
    queries = stream((one, ["car"]), (other, ["car"]), (3, [one]), columns="query words")
    ads = stream(*[(n, []) for n in range(3)], (3, ["car"]), (4, [other]), (5, [one]))
    assert pairs(ads.search(queries, on="words", key="query")) == [(3, one), (3, other), (5, 3)]


@pytest.mark.parametrize(
    "kind", [None, LISTS, pa.large_list(pa.string()), pa.list_(pa.string(), 1)]
)
def test_a_bad_record_is_a_dead_letter_and_its_neighbours_are_not(kind: Any) -> None:
    """J-15, S-B1: on both sides, by the column that is to blame."""
    words = pa.array([["car"]] * 3 + [None], kind)
    if kind == LISTS:  # null, over a word
        hidden = pa.array([False] * 3 + [True])
        words = pa.ListArray.from_arrays(range(5), ["car"] * 4, mask=hidden)
    columns = {"at": pa.array(range(4), pa.timestamp("us", "UTC")), "ad": range(4)}
    ads = lw.from_arrow(pa.table({**columns, "words": words}), time="at").select("ad", "words")
    if kind is None:
        odd = [{"at": lw.Instant(0), "ad": n, "words": bad} for n, (bad, _) in enumerate(NO_WORDS)]
        ads = ads | lw.from_iterable(odd, time="at").select("ad", "words")
    records = [
        {"at": lw.Instant(0), "query": query, "words": words}
        for query, words in [(1, ["car"]), (float("nan"), ["car"]), ([1], ["car"]), (2, "car")]
    ]
    queries = lw.from_iterable(records, time="at").select("query", "words")
    result = ads.search(queries, on="words", key="query").collect(on_error="dead_letter")
    assert [(row["ad"], row["words_query"]) for row in result.values()] == [
        (n, ["car"]) for n in range(3)
    ]
    found = sorted((error.reason, error.detail) for error in result.errors)
    assert found == sorted(
        [
            ("null_key", "the key 'query' is nan"),
            ("wrong_type", "query=[1] (list) cannot be a key"),
            ("not_a_list", "words='car' (str) is not a list"),
            *(said for _, said in (NO_WORDS if kind is None else [])),
        ]
    )


A_DICT = "item={'a': 1} (dict) cannot be a word"
NO_WORDS: list[tuple[Any, tuple[str, str]]] = [
    ("car", ("not_a_list", "words='car' (str) is not a list")),
    (3, ("not_a_list", "words=3 (int) is not a list")),
    ({"car"}, ("not_a_list", "words={'car'} (set) is not a list")),
    (
        ["car", {"a": 1}],
        ("wrong_type", f"words=['car', {{'a': 1}}] (list) {HAS_NO_WORD}: {A_DICT}"),
    ),
]


def test_words_that_are_nan_do_not_count() -> None:
    """J-15, S-B1: NaN is a null where it is a key."""
    nan = float("nan")
    cases: list[tuple[list[Any], list[Any]]] = [
        ([(1, [nan]), (2, [nan, 1.5])], [nan, 1.5]),
        ([(1, [nan]), (2, [(1, nan), "a"])], [(1, nan), nan, "a"]),
    ]
    for queries, words in cases:
        ads = stream((0, []), (1, []), (2, words))
        found = ads.search(stream(*queries, columns="query words"), on="words", key="query")
        assert pairs(found) == [(2, 2)]


def test_ids_of_several_kinds() -> None:
    queries = stream(("1", ["car"]), (1, ["car"]), (b"1", ["car"]), columns="query words")
    ads = stream(*[(n, ["car"]) for n in range(3)])
    found = ads.search(queries, on="words", key="query").run()
    assert [one.key for one in found] == ["1", "1", 1, "1", 1, b"1"]


def test_late_records_have_no_key_as_all_are_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    ads = stream(*[(n, ["car"]) for n in range(3)])
    rows: list[dict[str, Any]] = [
        {"at": lw.Instant(at), "ad": at, "words": []} for at in (0, 9_000_000, 1_000_000)
    ]
    late = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).select("ad", "words")
    queries = stream(*[(1, ["car"])] * 10, columns="query words")
    found = (late | ads).search(queries, on="words", key="query", keep="1s")
    result = found.collect(bundle_size=1)
    assert {one.key for one in result.late} == {None}
    found.to_arrow(bundle_size=1, progress=False)
    assert 'keep="' in (said := capsys.readouterr().err)
    assert "allowed_lateness" not in said


TEXTS = lw.from_arrow(
    pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "ad": [1], "words": ["a b"]}),
    time="at",
)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on": "wrods"}, r"no column 'wrods'.*search\(on=\).*words"),
        ({"key": "qery"}, r"no column 'qery'.*search\(key=\).*query"),
        ({"on": 3}, r"on=3 .*not the name of a column"),
        ({"key": ("query",)}, r"not the name of a column.*search\(key=\)"),
        ({"key": "words"}, r"the column with the words"),
        ({"match": "or"}, r"match='or'.*not known.*'any'"),
        ({"late_versions": "drop"}, r"late_versions='drop'.*not known"),
        ({"keep": "-1h"}, r"below zero"),
        ({"suffixes": ("", "")}, r"two different texts"),
    ],
)
def test_refusals(options: dict[str, Any], says: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=says):
        ADS.search(QUERIES, **{"on": "words", "key": "query", **options})


def test_inputs_that_are_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match=r"type string.*lists of words.*str.split"):
        TEXTS.search(QUERIES, on="words", key="query")
    with pytest.raises(lw.InvalidArgument, match=r"one of that name.*search\(key=\)"):
        ADS.select("words", query=lw.col("ad")).search(QUERIES, on="words", key="query")
    with pytest.raises(lw.InvalidArgument, match="not a stream of records"):
        ADS.search([1], on="words", key="query")  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="not known before the pipeline runs"):
        ADS.map(dict).search(QUERIES, on="words", key="query")
    table = QUERIES.table(key="query").changes()
    with pytest.raises(lw.InvalidArgument, match="changes of a table"):
        ADS.search(table, on="words", key="query", late_versions="correct")
    panes = ADS.key_by("ad").window(
        lw.FixedWindows("1s"), accumulation="retracting", allowed_lateness="1s"
    ).aggregate(words=lw.collect("ad")).select("ad", "words")  # fmt: skip
    with pytest.raises(lw.InvalidArgument, match="corrects nothing it has emitted"):
        panes.search(QUERIES, on="words", key="query")


def test_how_it_describes_itself() -> None:
    found = ADS.search(QUERIES, on="words", key="query", match="any", keep="5m")
    assert "search(IterableSource(list of 3) → select('query', 'words'), on='words'" in repr(found)
    lines = {line.strip() for line in found.explain().splitlines()}
    assert "reads documents: source 1" in lines or any("reads documents" in one for one in lines)
    assert any("documents that have any of the words" in one for one in lines)
    assert "remembers 5m" in lines


def test_what_check_says() -> None:
    blind = lw.from_iterable([{"at": lw.Instant(0), "query": 1, "words": ["a"]}], time="at").select(
        "query", "words"
    )
    ends = lw.check(ADS.search(blind, on="words", key="query"))
    assert not any("ever emitted" in one.what for one in ends if one.severity == "error")
