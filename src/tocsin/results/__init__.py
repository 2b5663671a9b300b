"""Results of channels in the store, as the pipeline writes them and brokers read them.

``reader`` reads the results of one subscription, ``index`` finds them by position. It sits on the store, and knows
neither brokers nor Spark.
"""
