"""Running channels on Spark: one plan for all subscribers, the runs, and writing their results."""
