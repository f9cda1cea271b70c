"""Many runs: a plan of them, an engine that exists (Dask) to run them, one Parquet dataset to hold what came out."""
