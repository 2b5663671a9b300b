"""The nouns of the domain as frozen structs."""
