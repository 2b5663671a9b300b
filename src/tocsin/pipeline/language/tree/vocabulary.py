"""The vocabulary of queries: the functions that may be called, and the nodes that a tree may have.

Both are lists of what is allowed. Everything on neither list is refused by its name, so that new features of sqlglot or
Spark are refused until somebody has looked at them. Left out on purpose: whatever writes, reads files or tables by
other means, calls into the JVM, depends on chance or on a clock (``NOW()`` is the time of the execution), takes a
regular expression that is not written out, or can make a large value of a small one (``repeat``, ``sequence``,
``aggregate``).
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Ours; ``library`` gives them their meaning.
LIBRARY: Final = _words("point xy distance within circle polygon contains now since tumble matches")
AGGREGATES: Final = _words("""
    count sum avg min max min_by max_by any_value count_if bool_and bool_or stddev stddev_pop stddev_samp
    variance var_pop var_samp median percentile_approx approx_percentile approx_count_distinct collect_list
    collect_set array_agg
""")
WINDOWS: Final = _words(
    "row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value"
)
SCALARS: Final = _words("""coalesce nvl ifnull nullif if greatest least isnull isnotnull nvl2
    abs ceil ceiling floor round bround sqrt cbrt pow power exp ln log log10 log2 sign signum mod pmod sin cos tan
    asin acos atan atan2 radians degrees pi
    concat concat_ws lower lcase upper ucase trim ltrim rtrim length char_length character_length substring substr
    left right replace instr locate position split split_part initcap reverse startswith endswith translate
    date_trunc trunc to_date to_timestamp date year month day dayofmonth dayofweek weekday dayofyear hour minute second
    quarter weekofyear date_add date_sub datediff date_diff months_between add_months last_day next_day unix_timestamp
    unix_seconds unix_millis unix_micros timestamp_seconds timestamp_millis timestamp_micros from_unixtime date_format
    make_date extract
    array size cardinality element_at array_contains array_distinct array_min array_max array_join sort_array
    array_sort slice array_union array_intersect array_except arrays_overlap array_position array_remove array_append
    exists forall filter transform map map_keys map_values map_contains_key named_struct struct
    flatten get get_json_object to_json cast try_cast try_divide try_add md5 sha2""")
FUNCTIONS: Final = LIBRARY | AGGREGATES | WINDOWS | SCALARS

# Words that may stand before a bracket without being called.
BEFORE_BRACKETS: Final = _words("""
    select distinct all from join on using where and or not in exists between like ilike rlike is as over by
    having order partition limit offset union intersect except when then else case with interval cross inner
    left right full outer semi anti filter
""")

# Functions that people look for, and what to write.
INSTEAD: Final = {
    "current_timestamp": "write NOW(), the time of the execution",
    "current_date": "write DATE(NOW())",
    "localtimestamp": "write NOW()",
    "curdate": "write DATE(NOW())",
    "window": "write TUMBLE(time, INTERVAL '10' MINUTES)",
    "session_window": "write TUMBLE(time, INTERVAL '10' MINUTES)",
    "rand": "a result may not depend on chance",
    "random": "a result may not depend on chance",
    "randn": "a result may not depend on chance",
    "uuid": "a result may not depend on chance",
    "shuffle": "a result may not depend on chance",
    "reflect": "the JVM cannot be called",
    "java_method": "the JVM cannot be called",
    "try_reflect": "the JVM cannot be called",
    "explode": "use array_contains, exists or transform on the array",
    "posexplode": "use array_contains, exists or transform on the array",
    "mean": "write AVG",
    "every": "write BOOL_AND",
    "some": "write BOOL_OR",
    "any": "write IN (SELECT …), or BOOL_OR",
    "first": "write ANY_VALUE, MIN_BY or FIRST_VALUE … OVER",
    "last": "write MAX_BY or LAST_VALUE … OVER",
    "regexp_like": "write text RLIKE 'pattern'",
    "regexp": "write text RLIKE 'pattern'",
    "st_distance": "write DISTANCE(a, b)",
    "st_dwithin": "write WITHIN(a, b, metres)",
    "st_contains": "write CONTAINS(area, point)",
    "st_point": "write POINT(lon, lat) or XY(x, y)",
    "percentile": "write PERCENTILE_APPROX",
    "repeat": "values are not made larger here",
    "sequence": "values are not made larger here",
    "lpad": "values are not made larger here",
    "rpad": "values are not made larger here",
    "aggregate": "values are not made larger here; use SIZE, ARRAY_MIN, ARRAY_MAX, EXISTS or FILTER",
    "reduce": "values are not made larger here; use SIZE, ARRAY_MIN, ARRAY_MAX, EXISTS or FILTER",
    "tablesample": "read the whole dataset, or NEW",
    "pivot": "use several SUM(CASE WHEN … THEN … END)",
    "unpivot": "use UNION ALL",
    "rollup": "use several GROUP BY with UNION ALL",
    "cube": "use several GROUP BY with UNION ALL",
    "values": "make a dataset, and load it with `tocsin dataset load`",
    "regexp_extract": "write text RLIKE 'pattern', or SPLIT_PART",
    "regexp_replace": "write REPLACE or TRANSLATE",
}
# Words that are functions without a bracket.
CLOCKS: Final = _words("current_timestamp current_date current_time localtimestamp localtime current_user")

_FUNCTION_NODES: Final = _words("""
    Count Sum Avg Min Max ArgMin ArgMax AnyValue CountIf LogicalAnd LogicalOr Stddev StddevPop StddevSamp Variance
    VariancePop Median ApproxQuantile ApproxDistinct ArrayAgg ArrayUniqueAgg
    RowNumber Rank DenseRank PercentRank CumeDist Ntile Lag Lead FirstValue LastValue NthValue
    Coalesce Nullif If Greatest Least Nvl2 Abs Ceil Floor Round Sqrt Cbrt Pow Exp Ln Log Sign Sin Cos Tan Asin Acos Atan
    Atan2 Radians Degrees Pi Concat ConcatWs Lower Upper Trim Length Substring Left Right Replace StrPosition
    RegexpSplit SplitPart Initcap Reverse StartsWith EndsWith Translate TimestampTrunc DateTrunc TsOrDsToDate Year Month
    Day DayOfMonth DayOfWeek DayOfYear Hour Minute Second Quarter WeekOfYear TsOrDsAdd DateDiff MonthsBetween AddMonths
    LastDay NextDay StrToUnix StrToTime UnixSeconds UnixMillis UnixMicros UnixToStr TimeToStr Extract Array ArraySize
    ArrayContains ArrayDistinct ArrayMin ArrayMax ArrayToString ArraySort ArraySlice ArrayIntersect ArrayExcept
    ArrayPosition ArrayRemove ArrayAppend ArrayFilter Transform VarMap Map MapKeys MapContainsKey Struct Flatten
    JSONExtractScalar JSONFormat Cast TryCast SafeDivide SafeAdd MD5 SHA2 Contains Case Date TimeStrToTime
""")

_MODIFIERS: Final = ("with_", "order", "limit", "offset")

# Other nodes, and the members that they may have.
_OTHER_NODES: Final[dict[str, tuple[str, ...] | None]] = {
    "Select": (
        *_MODIFIERS,
        "expressions",
        "distinct",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "windows",
    ),
    "Union": (*_MODIFIERS, "this", "expression", "distinct"),
    "Intersect": (*_MODIFIERS, "this", "expression", "distinct"),
    "Except": (*_MODIFIERS, "this", "expression", "distinct"),
    "Subquery": (*_MODIFIERS, "this", "alias"),
    "With": ("expressions",),
    "CTE": ("this", "alias"),
    "Table": ("this", "alias"),
    "TableAlias": ("this", "columns"),
    "From": ("this",),
    "Join": ("this", "side", "kind", "on", "using"),
    "Where": ("this",),
    "Group": ("expressions",),
    "Having": ("this",),
    "Order": ("expressions",),
    "Ordered": ("this", "desc", "nulls_first"),
    "Limit": ("expression",),
    "Offset": ("expression",),
    "Distinct": ("expressions",),
    "Window": ("this", "partition_by", "order", "spec", "alias", "over", "first"),
    "WindowSpec": ("kind", "start", "start_side", "end", "end_side"),
    "In": ("this", "expressions", "query"),
    "Exists": ("this", "expression"),
    "Star": ("except_",),
    "Column": ("this", "table", "db", "catalog"),
    "Filter": ("this", "expression"),
    "Anonymous": ("this", "expressions"),
} | dict.fromkeys(
    _words("""Identifier Alias Literal Boolean Null Placeholder Paren And Or Not EQ NEQ GT GTE LT LTE NullSafeEQ
    NullSafeNEQ Is Between Like ILike RegexpLike Escape Add Sub Mul Div IntDiv Mod Neg DPipe DataType DataTypeParam
    ColumnDef Interval Var Lambda Bracket Dot PropertyEQ JSONPath JSONPathRoot JSONPathKey JSONPathSubscript""")
)

FUNCTION_NODES: Final = frozenset(getattr(exp, name) for name in _FUNCTION_NODES)
OTHER_NODES: Final = {
    getattr(exp, name): None if members is None else frozenset(members)
    for name, members in _OTHER_NODES.items()
}

# The users' name of a node or member that is not allowed.
CALLED: Final = {
    "Hint": "a hint",
    "Lateral": "LATERAL",
    "laterals": "LATERAL",
    "Pivot": "PIVOT",
    "pivots": "PIVOT",
    "TableSample": "TABLESAMPLE",
    "sample": "TABLESAMPLE",
    "QueryTransform": "TRANSFORM … USING",
    "Values": "VALUES",
    "Version": "a version of a table",
    "version": "a version of a table",
    "Qualify": "QUALIFY",
    "qualify": "QUALIFY",
    "Rollup": "ROLLUP",
    "rollup": "ROLLUP",
    "Cube": "CUBE",
    "cube": "CUBE",
    "GroupingSets": "GROUPING SETS",
    "grouping_sets": "GROUPING SETS",
    "all": "GROUP BY ALL",
    "recursive": "WITH RECURSIVE",
    "Sort": "SORT BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "db": "a name with a dot",
    "catalog": "a name with a dot",
    "by_name": "BY NAME",
    "method": "NATURAL JOIN",
    "Parameter": "a variable",
    "SessionParameter": "a variable",
    "on": "DISTINCT ON",
    "Tuple": "a row of several values",
    "CurrentTimestamp": "CURRENT_TIMESTAMP",
    "CurrentDate": "CURRENT_DATE",
    "LikeAny": "LIKE ANY",
    "hint": "a hint",
    "kind": "SELECT AS",
    "into": "INTO",
    "locks": "FOR UPDATE",
    "joins": "a join in brackets",
}
REMEDIES: Final = {
    "a hint": "leave it out: the plan is chosen for you",
    "LATERAL": "join with a subquery in FROM, or use functions on arrays",
    "QUALIFY": "put the query into FROM (…) and filter there with WHERE",
    "NATURAL JOIN": "write JOIN … USING (…) or ON …",
    "CURRENT_TIMESTAMP": "write NOW(), the time of the execution",
    "CURRENT_DATE": "write DATE(NOW())",
    "SORT BY": "write ORDER BY",
    "VALUES": "make a dataset, and load it with `tocsin dataset load`",
    "DISTINCT ON": "use ROW_NUMBER() OVER (…) in a subquery",
    "a row of several values": "compare the columns one by one, with AND and OR",
    "a name with a dot": "write the dataset's name alone: only datasets can be read",
    "LIKE ANY": "write several LIKE, with OR between them",
    "a join in brackets": "leave the brackets out, or put a SELECT into them",
    "a variable": "write a parameter as :name",
}
