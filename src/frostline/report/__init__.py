"""One offline HTML page: figures, tables, explanations."""
