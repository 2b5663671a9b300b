"""The Spark session: Java, settings, the archive of classes that makes it start sooner, and its warm-up."""
