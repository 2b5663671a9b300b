"""How small a Spark the tests have; ``tests/unit/conftest.py`` starts it."""

from __future__ import annotations

from tocsin import config

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # little memory, a quick start

# Two cores; then one that Tocsin overrules, and a text with all that a properties file could take amiss.
# Plans are interpreted: to compile each for a handful of rows would be half of the work. The tests of whole networks in
# tests/integration run Spark as it ships.
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ansi.enabled": "true",
    "spark.tocsin.text": "a=b:c\\d e",
}


def spark_settings(**chosen: object) -> config.Spark:
    """Settings for a small Spark on two cores."""
    return config.Spark(**{"master": "local[2]", "heap": "1g", "ui_port": -1, **chosen})  # type: ignore[arg-type]
