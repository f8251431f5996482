"""The graph of a pipeline as a picture: layers, watermarks, words."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.viz.layers import Layers
from lowwater.viz.shapes import Label, Rect

ITEMS = [{"t": f"2000-01-01T12:0{n}:05Z", "k": "a", "v": n} for n in range(6)]


def chain() -> lw.Pipeline:
    one = lw.from_iterable(ITEMS, time="t", watermark=lw.Ascending())
    two = lw.from_iterable(ITEMS, time="t", watermark=lw.BoundedDisorder("1m"))
    return (
        (one | two)
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(v=lw.sum("v"))
        .named("per minute")
        .key_by("k")
        .window(lw.FixedWindows("2m"))
        .aggregate(most=lw.max("v"))
    )


def test_layers_put_what_feeds_above() -> None:
    #  0   1      0 -> 2 -> 3, 1 -> 3: a bend (4) beside 2
    layers = Layers.of(4, [(0, 2), (2, 3), (1, 3)])
    assert layers.rows == ((0, 1), (2, 4), (3,))
    assert layers.ways == ((0, 2), (2, 3), (1, 4, 3))


def test_layers_cross_few_lines() -> None:
    layers = Layers.of(6, [(0, 5), (1, 4), (2, 3)])
    top, below = layers.rows
    assert [top.index(a) for a in (0, 1, 2)] == [below.index(b) for b in (5, 4, 3)]


def test_layers_of_nothing_and_of_one() -> None:
    assert Layers.of(0, []).rows == ()
    assert Layers.of(1, []).rows == ((0,),)


def test_a_pipeline_that_has_not_run() -> None:
    graph = chain().graph()
    assert [node.name for node in graph.nodes] == ["source 1", "source 2", "per minute", "stage 2"]
    assert graph.edges == ((0, 2, "by k"), (1, 2, "by k"), (2, 3, "by k"))
    assert not any(node.watermarks for node in graph.nodes)
    assert "FixedWindows('2m')" in str(graph)
    assert "reads: per minute, by k" in str(graph)


def test_a_run_shows_where_watermarks_stand() -> None:
    run = chain().run(bundle_size=1, progress=False)
    next(run)
    source, _, stage, _ = run.graph().nodes
    assert source.watermarks[0].startswith("watermark: 2000-01-01T12:0")
    assert stage.watermarks[0].startswith("watermark: 2000-01-01T12:0")
    assert stage.watermarks[1].startswith("held by source")
    assert stage.watermarks[2].startswith("open windows: ")
    list(run)
    assert [node.watermarks for node in run.graph().nodes] == [("watermark: at the end",)] * 4
    assert chain().collect().graph() == run.graph()


def test_svg_is_well_formed_and_boxes_stand_apart(tmp_path: Path) -> None:
    graph = chain().collect().graph()
    text = graph.to_svg()
    ET.fromstring(text)
    assert text.count("http") == 1
    boxes = [
        s for s in graph.picture.shapes if isinstance(s, Rect) and s.style in ("stage", "source")
    ]
    assert len(boxes) == 4
    for one, two in combinations(boxes, 2):
        assert one.area.overlap(two.area) == 0
    graph.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text() == text == graph._repr_svg_()
    with pytest.raises(lw.InvalidArgument, match=r"End it with one of \.png, \.svg"):
        graph.save(tmp_path / "graph.html")


def test_names_are_escaped() -> None:
    items = lw.from_iterable(ITEMS, time="t")
    pipeline = items.key_by("k").window(lw.FixedWindows("1m")).aggregate(v=lw.sum("v"))
    text = pipeline.named("<script>alert(1)</script>").graph().to_svg()
    ET.fromstring(text)
    assert "<script>" not in text


def test_many_stages_side_by_side_stay_on_the_paper() -> None:
    items = lw.from_iterable(ITEMS, time="t")
    parts = [
        items.key_by("k")
        .window(lw.FixedWindows(f"{n}m"))
        .aggregate(a_name_that_is_really_long_indeed=lw.sum("v"))
        for n in range(1, 9)
    ]
    joined = parts[0].union(*parts[1:]).key_by("k").window(lw.FixedWindows("1h"))
    picture = joined.aggregate(n=lw.count()).graph().picture
    for shape in picture.shapes:
        if isinstance(shape, Rect):
            assert 0 <= shape.area.left < shape.area.right <= picture.width


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_graph_in_one_theme(theme: Any) -> None:
    pipeline = lw.from_iterable([], time="at").key_by("k").window(lw.FixedWindows("1m")).group()
    for graph in (pipeline.graph(theme=theme), pipeline.collect().graph(theme=theme)):
        assert graph.theme == theme
        assert "@media" not in graph.to_svg()


def test_a_picture_is_as_wide_as_its_content() -> None:
    stream = lw.from_iterable([], time="at")
    narrow = stream.key_by("k").window(lw.FixedWindows("1m")).group().graph().picture
    assert narrow.width < 400
    long = "a very long name of a key that must be read beside its arrow"
    beside = stream.key_by(long).window(lw.FixedWindows("1m")).group().graph().picture
    for shape in beside.shapes:
        if isinstance(shape, Label):
            assert 0 <= shape.area.left < shape.area.right <= beside.width, shape.text


def orders() -> lw.Table[lw.Stream]:
    return lw.from_iterable(ITEMS, time="t").named("orders").table(key="v").named("newest")


def test_tables_are_cylinders_and_a_join_names_its_sides() -> None:
    people = lw.from_iterable(ITEMS, time="t").named("people").select("t", "k", w=lw.col("v"))
    made = orders().join(people.table(key="k"), on="k", how="left").group_by("k")
    table = made.aggregate(n=lw.count())
    graph = table.graph()
    assert [node.kind for node in graph.nodes] == ["source"] * 2 + ["table"] * 4
    assert (2, 4, "left, by k") in graph.edges
    assert (3, 4, "right, by k") in graph.edges
    assert sum(shape.style == "lid" for shape in graph.picture.shapes) == 4
    assert ".lid{" in graph.to_svg()
    assert ".lid{" not in chain().graph().to_svg()
    assert '[("newest<br/>' in table.to_mermaid()
    run = orders().changes("upsert").run(bundle_size=4, progress=False)
    assert len([next(run) for _ in range(5)]) == 5  # the fifth is of the second bundle
    assert "rows: 4" in run.graph().nodes[1].watermarks


def test_the_sides_of_other_joins() -> None:
    left = lw.from_iterable(ITEMS, time="t").named("left").select("t", "k", "v")
    right = lw.from_iterable(ITEMS, time="t").named("right").select("t", "k", w=lw.col("v"))
    near = left.join(right, left_on="v", right_on="w", within="1m")
    assert near.graph().edges == ((0, 2, "left, by v"), (1, 2, "right, by w"))
    history = left.join_as_of(right, on="k").graph()
    assert history.edges == ((0, 2, "facts, by k"), (1, 2, "versions, by k"))
    assert [node.kind for node in history.nodes] == ["source", "source", "stage"]
