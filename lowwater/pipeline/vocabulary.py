"""Names that are not there, and what was meant: another library's word, or a slip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowwater.errors import InvalidArgument, UnknownName, nearest

# What Beam, Flink, Spark, pandas, Polars and SQL call the steps that have another name here.
_STEPS_ELSEWHERE = {
    "key_by": "GroupByKey groupBy groupByKey group_by groupby group_by_key keyBy partition_by",
    "filter": "Filter query where",
    "with_columns": "assign withColumn with_column mutate",
    "select": "drop project",
    "map": "ParDo apply foreach par_do pipe transform",
    "flat_map": "FlatMap flatMap",
    "explode": "UNNEST explode_outer list_explode unnest unwind",
    "map_batches": "MapElements mapInArrow map_partitions",
    "union": "concat connect merge unionByName append",
    "join": "CoGroupByKey antiJoin anti_join coGroup cogroup crossJoin fullOuterJoin innerJoin "
    "inner_join intervalJoin interval_join joinWith join_interval join_where join_within leftJoin "
    "leftOuterJoin left_join outerJoin outer_join rightOuterJoin right_join semiJoin semi_join "
    "streamJoin window_join",
    "join_as_of": "asofJoin asof_join asof_now_join join_asof join_temporal lookup_join merge_asof "
    "temporalJoin temporal_join",
    "deduplicate": "distinct dropDuplicates drop_duplicates unique",
    "window": "Window WindowInto group_by_dynamic hop into resample rolling session tumble "
    "windowAll window_into",
    "aggregate": "agg aggregate_ CombinePerKey combine combine_per_key reduce summarize",
    "match": "CEP MATCH_RECOGNIZE Pattern begin cep followedBy followedByAny followed_by "
    "matchRecognize match_recognize pattern",
    "process": "KeyedProcessFunction flatMapGroupsWithState transformWithState",
    "write_to": "add_sink sinkTo sink_to write writeStream foreach_batch foreachBatch",
    "write_parquet": "sink_parquet to_parquet",
    "write_jsonl": "sink_ndjson to_json to_jsonl write_json write_ndjson",
    "run": "execute iter start_run stream",
    "collect": "compute fetch fetchall result results to_list tolist",
    "to_arrow": "arrow to_pyarrow",
    "to_pandas": "df pandas toPandas to_df to_frame",
    "named": "alias name set_name uid",
}
_STEP = {other: step for step, others in _STEPS_ELSEWHERE.items() for other in others.split()}
_AGGREGATES = {
    **{name: f'{name}("...")' for name in ("all", "any", "count_distinct", "first", "last")},
    **{name: f'{name}("...")' for name in ("max", "mean", "min", "std", "sum", "var")},
    **{name: f'{name}("...", by="...")' for name in ("max_by", "min_by")},
    **dict.fromkeys(("avg", "average"), 'mean("...")'),
    **dict.fromkeys(("count", "size"), "count()"),
    **dict.fromkeys(("n_unique", "nunique"), 'count_distinct("...")'),
    **dict.fromkeys(("nlargest", "top", "top_k"), 'top(3, by="...", keep="...")'),
    **dict.fromkeys(("mode", "value_counts"), 'most_frequent("...")'),
    **dict.fromkeys(("percentile", "quantile"), 'quantile("...", 0.95)'),
    "median": 'median("...")',
}
_LOOKS = {
    *("describe", "display", "head", "limit", "peek", "preview"),
    *("print", "sample", "show", "tail", "take"),
}
_NOT_HERE = {
    **dict.fromkeys(
        ("to_csv", "write_csv", "sink_csv"),
        'Write Parquet or JSON lines: .write_jsonl("out.jsonl").run(); or go through pandas: '
        '.collect().to_pandas().to_csv("out.csv")',
    ),
    **dict.fromkeys(
        ("order_by", "orderBy", "sort", "sort_by", "sort_values"),
        "Panes come in the order of their emission; sort what collect() returns",
    ),
    "final": "Run it first: .collect().final(), or .to_pandas(final=True)",
}
_OPTIONS = {
    "trigger": "trigger=",
    "triggering": "trigger=",
    "allowed_lateness": "allowed_lateness=",
    "allowedLateness": "allowed_lateness=",
    "lateness": "allowed_lateness=",
    "accumulation": "accumulation=",
    "accumulating": "accumulation=",
}
# What they call the functions and classes of the package.
_NAMES_ELSEWHERE = {
    "FixedWindows": (
        "FixedWindow Tumble TumblingWindow TumblingWindows TumblingEventTimeWindows TumbleWindows "
        "tumble tumbling window"
    ),
    "SlidingWindows": (
        "Hop HopWindows HoppingWindow HoppingWindows SlidingWindow SlidingEventTimeWindows Slide "
        "hop hopping sliding"
    ),
    "CumulativeWindows": "Cumulate CumulateWindows CumulatingWindows CumulativeWindow cumulate",
    "Sessions": (
        "Session SessionWindow SessionWindows EventTimeSessionWindows session session_window"
    ),
    "GlobalWindow": "GlobalWindows",
    "CountWindows": "CountWindow countWindow CountBasedWindow TumblingCountWindows",
    "CalendarWindows": "CalendarWindow DaysWindows MonthsWindows",
    "CustomWindows": "CustomWindow WindowFn WindowAssigner WindowFunction",
    "AfterCount": "AfterElementCount AfterElements AfterPane CountTrigger",
    "AfterWatermark": "AfterEndOfWindow AfterWatermarkTrigger EventTimeTrigger OnTime",
    "AfterProcessingTime": "AfterDelay ProcessingTimeTrigger ProcessingTime",
    "AfterAny": "AfterFirst AnyOf",
    "AfterAll": "AllOf",
    "AfterEach": "AfterInOrder",
    "Repeatedly": "Repeat RepeatedlyForever Forever",
    "Default": "DefaultTrigger",
    "BoundedDisorder": (
        "BoundedOutOfOrderness BoundedOutOfOrdernessWatermarks forBoundedOutOfOrderness Watermark "
        "with_watermark withWatermark"
    ),
    "Ascending": "AscendingTimestamps Monotonic MonotonousTimestamps forMonotonousTimestamps",
    "FinishedFiles": "PerFile",
    "mean": "average avg",
    "count": "len rows size",
    "count_distinct": "countDistinct distinct n_unique nunique uniq_exact uniqExact",
    "approx_count_distinct": (
        "approxCountDistinct approx_distinct approx_n_unique hll_sketch_agg hyperloglog uniq"
    ),
    "quantile": "percentile percentile_cont percentile_disc quantile_disc",
    "approx_quantile": "approxQuantile approx_percentile percentile_approx quantileDD tdigest",
    "top": "bottom_k nlargest topK top_k",
    "most_frequent": "approx_top_k heavy_hitters mode value_counts",
    "std": "stddev stdev stddev_samp",
    "var": "variance var_samp",
    "collect": "agg_list array_agg collect_list implode list to_list",
    "collect_set": "set to_set unique",
    "combine": "AggregateFunction CombineFn aggregate fold reduce udaf",
    "any": "bool_or some",
    "all": "bool_and every",
    "first": "FIRST first_value",
    "last": "LAST last_value",
    "max_by": "argmax argMax arg_max idxmax maxBy",
    "min_by": "argmin argMin arg_min idxmin minBy",
    "sum": "total",
    "col": "Column column field",
    "lit": "literal",
    "prev": "LAG PREV lag previous shift",
    "absent": "notFollowedBy notNext not_followed_by",
    "when": "case case_when if_else ifelse iff where",
    "from_iterable": "Create from_collection from_dicts from_elements from_list from_records",
    "from_frame": "from_dataframe from_df from_polars",
    "from_arrow": "from_pyarrow from_table",
    "from_source": "add_source read",
    "read_kafka": "from_kafka kafka_source KafkaSource",
    "read_postgres_changes": "from_postgres postgres_cdc read_postgres read_postgresql",
    "read_parquet": "ReadFromParquet from_parquet scan_parquet",
    "read_csv": "ReadFromCsv from_csv scan_csv",
    "read_jsonl": "ReadFromJson from_json from_jsonl read_json read_ndjson scan_ndjson",
    "ManualClock": "FakeClock MockClock TestClock",
    "value_cell": "ReadModifyWriteStateSpec ValueState ValueStateDescriptor value_state",
    "list_cell": "BagStateSpec ListState ListStateDescriptor",
    "map_cell": "MapState MapStateDescriptor",
    "timer": "TimerSpec",
    "between": "Interval interval",
}
_NAME = {other: ours for ours, others in _NAMES_ELSEWHERE.items() for other in others.split()}
_NO_NAME = {
    **dict.fromkeys(("union", "concat", "merge"), "Unite streams with a | b, or a.union(b, c)"),
    **dict.fromkeys(
        ("join", "interval_join", "CoGroupByKey"),
        'Join streams by time with a.join(b, on="...", within="1h")',
    ),
    **dict.fromkeys(
        ("join_as_of", "join_asof", "asof_join", "merge_asof", "temporal_join"),
        'Join a stream with a history with facts.join_as_of(versions, on="...")',
    ),
    **dict.fromkeys(
        ("CEP", "MATCH_RECOGNIZE", "Pattern", "match", "match_recognize", "pattern"),
        'Find row patterns with stream.key_by("...").match("first .. second", define={...})',
    ),
    **dict.fromkeys(
        ("LEAD", "NEXT", "lead", "next"),
        "No row of a stream knows the next one: let the pattern go on for one row, and compare "
        'that with lw.prev("...")',
    ),
}


def no_step(
    what: str, name: str, hints: Mapping[str, str], known: Iterable[str] = ()
) -> UnknownName:
    """Return the error for a missing method, with a hint at what may have been meant.

    Args:
        what: The value that lacks it.
        name: The method that was asked for.
        hints: What to do about methods that another value has.
        known: The names that the value has.
    """
    return UnknownName(f"{what} has no {name!r}", hint=_instead(name, hints, set(known)))


def _instead(name: str, hints: Mapping[str, str], known: set[str]) -> str | None:
    if name in hints:
        return hints[name]
    if name in _NOT_HERE and "collect" in known:
        return _NOT_HERE[name]
    step = _STEP.get(name, "")
    if step in known:
        return f"In lowwater it is .{step}(...)"
    if step in hints:
        return f"In lowwater it is .{step}(...). {hints[step]}"
    if name in _OPTIONS:
        return f"It is an option of .window(...): .window(..., {_OPTIONS[name]}...)"
    if name in _AGGREGATES:
        return f"Write {_path_to_aggregate(known)}.aggregate(result=lw.{_AGGREGATES[name]})"
    if name in _LOOKS:
        return (
            "A pipeline computes nothing before it runs. Its results: pipeline.collect().panes; "
            "the first ones: itertools.islice(pipeline.run(), 5)"
        )
    public = {each for each in known if not each.startswith("_")}
    hint = nearest(name, public)
    return hint if hint.startswith("Did you mean") else None


def _path_to_aggregate(known: set[str]) -> str:
    if "aggregate" in known:
        return ""
    window = '.window(lw.FixedWindows("1m"))'
    return window if "window" in known else f'.key_by("..."){window}'


def name_elsewhere(name: str) -> str | None:
    """Return a hint at what another library's function or class is called in this package."""
    return f"In lowwater it is lw.{_NAME[name]}" if name in _NAME else _NO_NAME.get(name)


# What others call what a result has.
RESULTS_ELSEWHERE = {
    **dict.fromkeys(("to_list", "items", "rows", "results"), "Panes are in .panes"),
    **dict.fromkeys(("head", "show", "describe"), "Make a DataFrame first: .to_pandas()"),
    **dict.fromkeys(("to_csv", "to_json"), "Make a DataFrame first, as in .to_pandas().to_csv()"),
    **dict.fromkeys(("df", "frame", "dataframe"), "Call .to_pandas() or .to_polars()"),
    **dict.fromkeys(("latest", "current", "last", "final_panes"), "What stands now: .final()"),
}
# What others call the option time= of readers.
READERS_ELSEWHERE = dict.fromkeys(
    ("at", "event_time", "on", "ts", "time_column", "timestamp", "timestamp_col"), "time"
)
# What others call the options of readers and of runs.
_OPTIONS_ELSEWHERE = {
    "batch_size": "bundle_size",
    "bootstrap_servers": "servers",
    "brokers": "servers",
    "batchsize": "bundle_size",
    "chunk_size": "bundle_size",
    "chunksize": "bundle_size",
    "errors": "on_error",
    "tz": "timezone",
    "watch": "follow",
}


def require_options(
    given: Iterable[str], known: Iterable[str], hints: Mapping[str, str] | None = None
) -> None:
    """Raise for the first option that is not known, and say which may have been meant.

    Args:
        given: The options that were given.
        known: Those that there are.
        hints: What to say of options that belong elsewhere.

    Raises:
        InvalidArgument: One of them is not known.
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            hint = (hints or {}).get(name) or nearest(name, known, _OPTIONS_ELSEWHERE)
            raise InvalidArgument(f"there is no option {name!r}", hint=hint)
