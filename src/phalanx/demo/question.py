"""The question that Spark answers from the grid and from the files: a join of three of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WIND_STEP_MPH = 5
WIND_MOST_MPH = 25
WINDS = tuple(range(0, WIND_MOST_MPH + 1, WIND_STEP_MPH))

Answer = dict[tuple[str, int], tuple[float | None, int]]
"""(airline's name, least wind speed of the bucket) to mean arrival delay in minutes, and number of flights."""


def mean_delays(tables: Mapping[str, DataFrame]) -> Answer:
    """Mean arrival delay by airline and by wind speed at the origin in the hour of departure."""
    from pyspark.sql import functions as f

    airlines, weather = tables["airlines"], tables["weather"].select("origin", "time_hour", "wind_speed")
    wind = (f.floor(f.col("wind_speed") / WIND_STEP_MPH) * WIND_STEP_MPH).cast("int")
    rows = (
        tables["flights"]
        .join(airlines, "carrier")
        .join(weather, ["origin", "time_hour"])
        .where(f.col("wind_speed").isNotNull())
        .groupBy("name", f.least(wind, f.lit(WIND_MOST_MPH)).alias("wind"))
        .agg(f.avg("arr_delay").alias("delay"), f.count("arr_delay").alias("flights"))
    )
    return {(row["name"], row["wind"]): (row["delay"], row["flights"]) for row in rows.collect()}


def differing_answers(files: Answer, grid: Answer) -> list[str]:
    """What differs, one line each. Delays are whole minutes, so their mean is the same in whatever order they are added."""
    return [
        f"mean delay of {airline} at {wind_text(wind)}: {files.get((airline, wind))} from the files, "
        f"{grid.get((airline, wind))} from the grid"
        for airline, wind in sorted(files.keys() | grid.keys())
        if files.get((airline, wind)) != grid.get((airline, wind))
    ]


def wind_text(wind: int) -> str:
    """A bucket of wind speed for people."""
    return f"{wind}+ mph" if wind >= WIND_MOST_MPH else f"{wind}-{wind + WIND_STEP_MPH} mph"


def sample(answer: Answer, rows: int = 5) -> list[list[str]]:
    """For people: the airlines with the most flights, each with its mean delay by wind speed."""
    flights: dict[str, int] = {}
    for (airline, _), (_, count) in answer.items():
        flights[airline] = flights.get(airline, 0) + count
    largest = sorted(flights, key=lambda airline: (-flights[airline], airline))[:rows]
    return [[airline, *(_minutes(answer.get((airline, wind))) for wind in WINDS)] for airline in largest]


def text_table(rows: list[list[str]]) -> list[str]:
    """A sample as lines of text."""
    lines = [["minutes late, by wind", *map(wind_text, WINDS)], *rows]
    width = max(len(line[0]) for line in lines)
    return [f"{line[0]:<{width}}  " + "".join(f"{cell:>11}" for cell in line[1:]) for line in lines]


def _minutes(cell: tuple[float | None, int] | None) -> str:
    return "" if cell is None or cell[0] is None else f"{cell[0]:+.1f}"
